//! Suggestions for mistyped names.

use std::collections::BTreeSet;

use polygrad_core::{Error, ErrorKind};

/// An error about an unknown name, with the most similar known names.
pub(crate) fn missing<'a>(what: &str, name: &str, there: impl Iterator<Item = &'a str>) -> Error {
    let there: BTreeSet<&str> = there.collect();
    let error = Error::new(ErrorKind::InvalidArgument, format!("there is no {what} {name:?}"));
    let mut ranked: Vec<(usize, &str)> = there
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .collect();
    ranked.sort();
    let nearest: Vec<&str> = ranked.into_iter().take(5).map(|(_, candidate)| candidate).collect();
    if nearest.is_empty() {
        return error.with_hint(format!("there is no {what} at all here"));
    }
    error.with_hint(format!("near it: {}", nearest.join(", ")))
}

/// The distance of two names in edits; a name that contains the other counts as near.
fn distance(wanted: &str, candidate: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (wanted.chars().take(64).collect(), candidate.chars().take(64).collect());
    if !wanted.is_empty() && candidate.contains(wanted) {
        return 0;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
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
    fn the_nearest_come_first() {
        let names = ["add", "addmm", "matmul", "nn.functional.linear", "sub"];
        let text = missing("op", "linear", names.into_iter()).to_string();
        assert!(
            text.contains("no op \"linear\"; near it: nn.functional.linear"),
            "{text}"
        );
        let text = missing("op", "adm", names.into_iter()).to_string();
        assert!(text.contains("near it: add, addmm"), "{text}");
        assert!(missing("op", "", [].into_iter()).to_string().contains("at all"));
    }
}
