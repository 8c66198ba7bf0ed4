//! Checks that a page lists exactly the differences that a sweep finds.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use polygrad_core::HostTensor;

/// A difference between an op's result here and elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The input, and which result is compared.
    pub given: String,
    /// The result here.
    pub ours: String,
    /// The result elsewhere.
    pub theirs: String,
    /// The op.
    pub op: String,
}

/// The kind of an element, in one word.
pub fn word(value: f64) -> &'static str {
    match value {
        v if v.is_nan() => "NaN",
        f64::INFINITY => "∞",
        f64::NEG_INFINITY => "−∞",
        0.0 => "0",
        _ => "a number",
    }
}

/// The kind of a tensor's content, in a few words.
pub fn kind(host: &HostTensor) -> String {
    match host.to_f64_vec()[..] {
        [] => "no elements".to_owned(),
        [first, ref rest @ ..] if rest.iter().all(|&other| word(other) == word(first)) => word(first).to_owned(),
        _ => "numbers".to_owned(),
    }
}

/// The rows of a table, by all columns except the ops and the reason.
type Rows = BTreeMap<[String; 3], Vec<(Vec<String>, String)>>;

/// The variable that requests writing the page instead.
const WRITE: &str = "POLYGRAD_WRITE_DIFFERENCES";

/// Compares the table under a heading of a page with the differences found by a sweep. The columns are the input, ours,
/// theirs, the ops and the reason. With the variable `POLYGRAD_WRITE_DIFFERENCES` the table is written instead; new
/// differences get `?` as their reason, which does not pass.
///
/// # Errors
/// A page without such a table; differences that are not in it, or are in it but not found; a row without a reason.
pub fn hold(page: &Path, heading: &str, found: &[Difference]) -> Result<(), String> {
    let text = std::fs::read_to_string(page).map_err(|e| format!("{}: {e}", page.display()))?;
    let (start, end) =
        table(&text, heading).ok_or_else(|| format!("{} has no table under {heading:?}", page.display()))?;
    let listed = rows(&text[start..end])?;
    let mut wanted: BTreeMap<[String; 3], Vec<String>> = BTreeMap::new();
    for difference in found {
        let Difference {
            given,
            ours,
            theirs,
            op,
        } = difference.clone();
        let ops = wanted.entry([given, ours, theirs]).or_default();
        if !ops.contains(&op) {
            ops.push(op);
        }
    }
    if std::env::var_os(WRITE).is_some() {
        let written = written(&wanted, &listed);
        let text = format!("{}{written}{}", &text[..start], &text[end..]);
        return std::fs::write(page, text).map_err(|e| format!("{}: {e}", page.display()));
    }
    let flat = |key: &[String; 3], op: &String| format!("{op}: {} gives {} here, {} there", key[0], key[1], key[2]);
    let of_page = listed.iter().flat_map(|(key, rows)| {
        let ops = rows.iter().flat_map(|(ops, _)| ops);
        ops.map(|op| flat(key, op)).collect::<Vec<_>>()
    });
    let of_page: Vec<String> = of_page.collect();
    let found: Vec<String> = wanted
        .iter()
        .flat_map(|(key, ops)| ops.iter().map(|op| flat(key, op)))
        .collect();
    let mut wrong: Vec<String> = Vec::new();
    wrong.extend(
        found
            .iter()
            .filter(|row| !of_page.contains(row))
            .map(|row| format!("not on the page: {row}")),
    );
    wrong.extend(
        of_page
            .iter()
            .filter(|row| !found.contains(row))
            .map(|row| format!("no longer so: {row}")),
    );
    wrong.extend(listed.iter().flat_map(|(key, rows)| {
        let bare = rows.iter().filter(|(_, why)| why == "?");
        bare.map(|(ops, _)| format!("without a reason: {}: {}", key.join(", "), ops.join(", ")))
            .collect::<Vec<_>>()
    }));
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}, under {heading:?}:\n{}\n  fix: mend what is wrong, or run this test with {WRITE}=1 and write the reasons",
        page.display(),
        wrong.join("\n")
    ))
}

/// The range of the rows of the first table under a heading.
fn table(text: &str, heading: &str) -> Option<(usize, usize)> {
    let section = text.find(&format!("\n## {heading}\n"))? + 1;
    let rule = section + text[section..].find("\n|---")? + 1;
    let start = rule + text[rule..].find('\n')? + 1;
    let length = text[start..]
        .split_inclusive('\n')
        .take_while(|line| line.starts_with('|'))
        .map(str::len)
        .sum::<usize>();
    Some((start, start + length))
}

fn rows(table: &str) -> Result<Rows, String> {
    let mut rows = Rows::new();
    for line in table.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [given, ours, theirs, ops, why] = cells[..] else {
            return Err(format!("{line:?} has not five columns"));
        };
        let ops = ops
            .split(',')
            .map(|op| op.trim().trim_matches('`').to_owned())
            .collect();
        let key = [given, ours, theirs].map(str::to_owned);
        rows.entry(key).or_default().push((ops, why.to_owned()));
    }
    Ok(rows)
}

/// The updated table: reasons are kept with their ops.
fn written(wanted: &BTreeMap<[String; 3], Vec<String>>, listed: &Rows) -> String {
    let mut text = String::new();
    for (key, ops) in wanted {
        let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
        for op in ops {
            let known = listed
                .get(key)
                .and_then(|rows| rows.iter().find(|(ops, _)| ops.contains(op)));
            let why = known.map_or("?", |(_, why)| why);
            match by_reason.iter_mut().find(|(reason, _)| *reason == why) {
                Some((_, ops)) => ops.push(op),
                None => by_reason.push((why, vec![op])),
            }
        }
        for (why, ops) in by_reason {
            let ops: Vec<String> = ops.iter().map(|op| format!("`{op}`")).collect();
            let [given, ours, theirs] = key;
            writeln!(text, "| {given} | {ours} | {theirs} | {} | {why} |", ops.join(", ")).expect("text takes all");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Page\n\n## Edges\n\nWords.\n\n| a | b | c | d | e |\n|---|---|---|---|---|\n| NaN | 0 | NaN | `sign`, `abs` | so |\n\nEnd.\n";

    fn found(op: &str) -> Difference {
        let [given, ours, theirs, op] = ["NaN", "0", "NaN", op].map(str::to_owned);
        Difference {
            given,
            ours,
            theirs,
            op,
        }
    }

    #[test]
    fn a_page_has_all_differences_and_no_other() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), PAGE).unwrap();
        let held = |ops: &[&str]| {
            let found: Vec<Difference> = ops.iter().map(|op| found(op)).collect();
            hold(file.path(), "Edges", &found)
        };
        assert_eq!(held(&["abs", "sign"]), Ok(()));
        assert!(held(&["abs"]).unwrap_err().contains("no longer so: sign"));
        assert!(
            held(&["abs", "sign", "relu"])
                .unwrap_err()
                .contains("not on the page: relu")
        );
        let rewritten = written(
            &BTreeMap::from([(
                ["NaN", "0", "NaN"].map(str::to_owned),
                vec!["relu".to_owned(), "sign".to_owned()],
            )]),
            &rows("| NaN | 0 | NaN | `sign` | so |").unwrap(),
        );
        assert_eq!(
            rewritten,
            "| NaN | 0 | NaN | `relu` | ? |\n| NaN | 0 | NaN | `sign` | so |\n"
        );
        std::fs::write(file.path(), PAGE.replace("| so |", "| ? |")).unwrap();
        assert!(held(&["abs", "sign"]).unwrap_err().contains("without a reason"));
    }
}
