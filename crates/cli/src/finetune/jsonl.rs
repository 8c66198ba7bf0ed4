//! Files with one JSON example per line.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use polygrad::Error;
use polygrad::nn::open_file;

use crate::failure::{Failure, Result, Shown};

/// Longer lines are rejected.
const LONGEST: usize = 1 << 24;

/// The failure for an invalid line of a file, with the right format.
pub(super) fn bad(path: &Path, line: usize, what: &str, form: &str) -> Failure {
    Failure::new(format!("{}, line {line}: {what}", path.shown())).fix(form)
}

/// Calls `take` with each non-empty line and its number, from 1; `form` describes the format.
///
/// # Errors
/// If the file cannot be read; if a line is too long, is not UTF-8, or `take` rejects it; the failure has its number.
pub(super) fn each(
    path: &Path,
    form: &str,
    mut take: impl FnMut(usize, &str) -> std::result::Result<(), String>,
) -> Result<()> {
    let mut file = BufReader::new(open_file(path)?.0);
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let read = file.by_ref().take(LONGEST as u64 + 1).read_until(b'\n', &mut bytes);
        if read.map_err(|e| Failure::io("read", path, &e))? == 0 {
            break;
        }
        let bad = |what: &str| bad(path, line, what, form);
        if bytes.len() > LONGEST {
            return Err(bad("it is too long"));
        }
        let text = std::str::from_utf8(&bytes).map_err(|e| bad(&e.to_string()))?;
        let text = text.trim_end_matches(['\n', '\r']);
        // Some Windows programs write a byte order mark first.
        let text = if line == 1 {
            text.trim_start_matches('\u{feff}')
        } else {
            text
        };
        // Serde would read a list as the fields of an object, in order.
        match text.trim_start().chars().next() {
            None => {}
            Some('[') => return Err(bad("it is a list, not an object")),
            Some(_) => take(line, text).map_err(|what| bad(&what))?,
        }
    }
    Ok(())
}

/// The fault in the JSON of a line.
pub(super) fn json(error: serde_json::Error) -> String {
    // serde counts the lines of this text only.
    error.to_string().replace(" at line 1 column ", " at column ")
}

/// The message of an error, with its hint.
pub(super) fn said(error: Error) -> String {
    match error.hint() {
        Some(hint) => format!("{}: {hint}", error.message()),
        None => error.message().to_owned(),
    }
}
