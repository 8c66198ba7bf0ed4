//! What a command says when it cannot go on: what went wrong and where, and what the user can do about it.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;

/// The result of everything here that can fail.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why a command stopped, in words for the person who typed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    message: String,
    fix: Option<String>,
}

impl Failure {
    /// A failure that says what and where.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            fix: None,
        }
    }

    /// Adds what the user can do about it.
    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Adds what to do once that is done.
    pub(crate) fn then(mut self, next: &str) -> Self {
        self.fix = Some(match self.fix {
            Some(fix) => format!("{fix}; then {next}"),
            None => next.to_owned(),
        });
        self
    }

    /// A failed file operation: `action` is a verb phrase such as `"write"`.
    pub(crate) fn io(action: &str, path: &Path, error: &io::Error) -> Self {
        let failure = Self::new(format!("cannot {action} {}: {error}", path.display()));
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
        ErrorKind::ReadOnlyFilesystem => "this file system is read-only: choose another folder with --out",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "the disk is full: free some space, or choose a folder on another disk with --out"
        }
        ErrorKind::NotADirectory => "a part of this path is a file, not a folder",
        _ => return None,
    })
}

/// The library's hint is the fix.
impl From<polygrad::Error> for Failure {
    fn from(error: polygrad::Error) -> Self {
        let text = error.to_string();
        match error.hint() {
            None => Self::new(text),
            Some(hint) => {
                let message = text
                    .strip_suffix(hint)
                    .and_then(|text| text.strip_suffix("; "))
                    .unwrap_or(&text);
                Self::new(message).fix(hint)
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        match &self.fix {
            Some(fix) => write!(f, "\n  fix: {fix}"),
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
    fn the_librarys_hints_become_fixes() {
        let error = polygrad::Error::shape("3 and 4 differ").with_op("matmul");
        assert_eq!(Failure::from(error).to_string(), "matmul: 3 and 4 differ");
        let error = polygrad::Error::shape("3 and 4 differ").with_hint("transpose; then multiply");
        assert_eq!(
            Failure::from(error).to_string(),
            "3 and 4 differ\n  fix: transpose; then multiply"
        );
    }
}
