//! Errors of commands: what went wrong and where, and what the user can do about it.

use std::error::Error as _;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;

use polygrad::backend::printable;

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Failure>;

/// Paths in printable form.
pub trait Shown {
    /// The path without characters that would control the terminal or break the line.
    fn shown(&self) -> String;
}

impl Shown for Path {
    fn shown(&self) -> String {
        printable(&self.to_string_lossy()).into_owned()
    }
}

/// The reason why a command stopped, in words for its user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    message: String,
    fix: Option<String>,
    /// That of the library's error that it was.
    kind: Option<polygrad::ErrorKind>,
}

impl Failure {
    /// A failure with a message that says what went wrong and where.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            fix: None,
            kind: None,
        }
    }

    /// Adds what the user can do about it.
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Adds what to do after the fix.
    pub fn then(mut self, next: &str) -> Self {
        self.fix = Some(match self.fix {
            Some(fix) => format!("{fix}; then {next}"),
            None => next.to_owned(),
        });
        self
    }

    /// A failed file operation: `action` is a verb phrase such as `"write"`.
    pub fn io(action: &str, path: &Path, error: &io::Error) -> Self {
        let failure = Self::new(format!("cannot {action} {}: {error}", path.shown()));
        match fix_for(error.kind()) {
            Some(fix) => failure.fix(fix),
            None => failure,
        }
    }
}

fn fix_for(kind: ErrorKind) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::NotFound => "check the path for a typing error",
        ErrorKind::PermissionDenied => "choose a place that you may read and write, or change its permissions",
        ErrorKind::ReadOnlyFilesystem => "this file system is read-only: choose another folder",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "the disk is full: free some space, or choose a folder on another disk"
        }
        ErrorKind::IsADirectory => "a folder is there: name a file",
        ErrorKind::NotADirectory => "a part of this path is a file, not a folder",
        ErrorKind::AlreadyExists => "a file, or a link to nothing, has this name: choose another one",
        ErrorKind::InvalidData => "the file is damaged, of another kind, or no UTF-8: write or get it again",
        _ => return None,
    })
}

/// The library's hint is the fix, unless it is for programmers; of a failed file operation without one, what
/// [`Failure::io`] says.
impl From<polygrad::Error> for Failure {
    fn from(error: polygrad::Error) -> Self {
        let text = error.to_string();
        let source = || error.source()?.downcast_ref::<io::Error>();
        let (message, fix) = match error.hint() {
            None => (&*text, source().and_then(|source| fix_for(source.kind()))),
            Some(hint) => {
                let message = text.strip_suffix(hint).and_then(|text| text.strip_suffix("; "));
                (
                    message.unwrap_or(&text),
                    Some(hint).filter(|hint| !for_programmers(hint)),
                )
            }
        };
        Self {
            message: message.to_owned(),
            fix: fix.map(str::to_owned),
            kind: Some(error.kind()),
        }
    }
}

/// The fix is the hint. The kind is that of the error that the failure was, if it was one.
impl From<Failure> for polygrad::Error {
    fn from(failure: Failure) -> Self {
        let kind = failure.kind.unwrap_or(polygrad::ErrorKind::InvalidArgument);
        let error = Self::new(kind, failure.message);
        match failure.fix {
            Some(fix) => error.with_hint(fix),
            None => error,
        }
    }
}

/// Whether a hint names types, functions or fields: `StateDict::load`, `to_dtype`, `eval()`. Suggestions near a
/// mistyped name are the user's own words, with or without underscores.
fn for_programmers(hint: &str) -> bool {
    if hint.starts_with("near it: ") {
        return false;
    }
    let plain = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    hint.split_whitespace().any(|word| {
        let word = word.trim_end_matches([',', '.', ';', ':']);
        let name = word.split('(').next().unwrap_or_default();
        name.contains("::") || name.contains('_') && name.split('_').all(plain) || word.ends_with("()")
    })
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The message may contain text from a foreign file, which must not add lines.
        write!(f, "{}", printable(&self.message))?;
        match &self.fix {
            Some(fix) => write!(f, "\n  fix: {}", printable(fix)),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_where_and_the_fix() {
        let full = io::Error::from(ErrorKind::StorageFull);
        let text = Failure::io("write", Path::new("/runs/a/metrics.csv"), &full).to_string();
        assert!(text.starts_with("cannot write /runs/a/metrics.csv: "), "{text}");
        assert!(text.contains("fix: the disk is full"), "{text}");
    }

    #[test]
    fn others_make_no_lines_of_their_own() {
        let text = Failure::new("its dtype is \"F32\n  fix: run this\"").to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
    }

    #[test]
    fn the_librarys_hints_become_fixes() {
        let taken = io::Error::from(ErrorKind::AlreadyExists);
        let text = Failure::from(polygrad::Error::io("create the folder", Path::new("run"), taken)).to_string();
        assert!(
            text.contains("cannot create the folder run: ") && text.contains("\n  fix: a file, or a link"),
            "{text}"
        );
        let error = polygrad::Error::shape("3 and 4 differ").with_op("matmul");
        assert_eq!(Failure::from(error).to_string(), "matmul: 3 and 4 differ");
        let error = polygrad::Error::shape("3 and 4 differ").with_hint("transpose; then multiply");
        assert_eq!(
            Failure::from(error).to_string(),
            "3 and 4 differ\n  fix: transpose; then multiply"
        );
        for hint in [
            "load a file of weights alone with StateDict::load",
            "convert it to a float with to_dtype",
            "convert it with to_dtype(DType::F32)",
            "raise Options::max_tensor_bytes if this is meant",
            "take a larger batch, or switch the model to evaluation with eval()",
            "make it with new_cache",
        ] {
            let error = polygrad::Error::shape("3 and 4 differ").with_hint(hint);
            assert_eq!(Failure::from(error).to_string(), "3 and 4 differ", "{hint}");
        }
        for hint in [
            "one of: scalar, simd",
            "write it like cpu:threads=2",
            "the disk is full: free some space, or choose another folder",
            "set LD_LIBRARY_PATH to /opt/lib_torch/lib, as docs/engines.md says",
            "eval \"$(cargo xtask setup onnxruntime)\"",
            "near it: softmax, log_softmax",
        ] {
            let error = polygrad::Error::shape("3 and 4 differ").with_hint(hint);
            assert_eq!(
                Failure::from(error).to_string(),
                format!("3 and 4 differ\n  fix: {hint}")
            );
        }
    }
}
