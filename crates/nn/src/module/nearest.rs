//! Guessing which name was meant.

/// The candidate most like `name`, if one is like it at all: at most a third of its letters differ.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, best) = candidates
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .min()?;
    (distance * 3 <= name.chars().count().max(3)).then_some(best)
}

/// How many letters must be inserted, deleted or replaced. Source: Wagner and Fischer, "The string-to-string correction problem" (1974).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
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
        assert_eq!(nearest("fc1.wieght", ["fc2.bias", "fc1.weight"]), Some("fc1.weight"));
        assert_eq!(nearest("fc1.weight", ["conv.bias"]), None);
        assert_eq!(nearest("x", []), None);
    }
}
