//! Guesses which name was meant.

/// The candidate most similar to `name`, if any is similar enough. Dotted parts that both begin or end with are
/// ignored; in the rest, regardless of case, at most a third of the letters may differ.
///
/// ```
/// use polygrad_core::nearest;
///
/// assert_eq!(nearest("fc1.wieght", ["fc2.bias", "fc1.weight"]), Some("fc1.weight"));
/// assert_eq!(nearest("head.weight", ["conv1.weight"]), None);
/// ```
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let rated = candidates.into_iter().filter_map(|candidate| {
        let (own, other) = differing(name, candidate);
        let distance = distance(&own.to_lowercase(), &other.to_lowercase());
        (distance * 3 <= own.chars().count().max(3)).then_some((distance, candidate))
    });
    rated.min().map(|(_, candidate)| candidate)
}

/// Strips the dotted parts that two names have in common at their beginnings and ends.
fn differing<'a>(a: &'a str, b: &'a str) -> (&'a str, &'a str) {
    let (mut a, mut b) = (a, b);
    while let (Some((first, rest)), Some((other, others))) = (a.split_once('.'), b.split_once('.'))
        && first == other
    {
        (a, b) = (rest, others);
    }
    while let (Some((rest, last)), Some((others, other))) = (a.rsplit_once('.'), b.rsplit_once('.'))
        && last == other
    {
        (a, b) = (rest, others);
    }
    (a, b)
}

/// The number of letters to insert, delete, replace, or swap with the next. Source: Boytsov, "Indexing methods for
/// approximate dictionary searching" (2011), the optimal string alignment.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut next = vec![i];
        for j in 1..=b.len() {
            let replaced = row[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(row[j] + 1).min(next[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            next.push(least);
        }
        (before, row) = (row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("wieght", "weight"), 1);
        assert_eq!(nearest("fc1.wieght", ["fc2.bias", "fc1.weight"]), Some("fc1.weight"));
        assert_eq!(
            nearest("haed.weight", ["bn1.weight", "head.weight"]),
            Some("head.weight")
        );
        assert_eq!(nearest("CPU", ["cuda", "cpu"]), Some("cpu"));
        assert_eq!(nearest("gpu", ["wgpu"]), Some("wgpu"));
        // A common ending alone says nothing about the rest.
        assert_eq!(nearest("head.weight", ["dec1.weight", "bn1.weight"]), None);
        assert_eq!(nearest("conv.weight", ["bn1.weight"]), None);
        assert_eq!(nearest("fc1.weight", ["conv.bias"]), None);
        assert_eq!(nearest("x", []), None);
    }
}
