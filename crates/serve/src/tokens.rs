//! Access tokens.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polygrad_core::{Error, Result};
use subtle::ConstantTimeEq;

use crate::watched::Watched;

/// The tokens of which a request must have one: `Authorization: Bearer TOKEN`. Clones are handles to the same tokens.
#[derive(Clone)]
pub struct Tokens(Arc<Watched<Vec<Vec<u8>>>>);

impl Tokens {
    /// Reads a file with one token a line, and reads it again when it has changed. If the file is then missing, empty
    /// or damaged, all requests are rejected and an error is logged, since tokens may have been removed on purpose.
    ///
    /// # Errors
    /// A file that cannot be read, holds no token, or one with other characters than visible ASCII.
    pub fn from_file(path: impl Into<PathBuf>) -> Result<Self> {
        let tokens = Watched::new(vec![path.into()], |paths| read(&paths[0]))?;
        Ok(Self(Arc::new(tokens.or_else(Vec::new))))
    }

    /// Whether this is a valid token. The time of the check depends only on lengths.
    pub(crate) fn contains(&self, token: &[u8]) -> bool {
        let all = self.0.get();
        let mut found = 0;
        for known in all.iter() {
            found |= known.ct_eq(token).unwrap_u8();
        }
        found == 1
    }
}

fn read(path: &Path) -> Result<Vec<Vec<u8>>> {
    let shown = path.display();
    let text = std::fs::read(path)
        .map_err(|error| Error::invalid(format!("the tokens in {shown} cannot be read: {error}")))?;
    let lines = text.split(|&c| c == b'\n').map(<[u8]>::trim_ascii);
    let tokens: Vec<Vec<u8>> = lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
    if tokens.is_empty() {
        return Err(Error::invalid(format!("{shown} holds no token")).with_hint("write one into each line"));
    }
    // The token itself is not in the message, which ends up in logs.
    match tokens.iter().position(|token| !token.iter().all(u8::is_ascii_graphic)) {
        None => Ok(tokens),
        Some(place) => Err(Error::invalid(format!(
            "token {} in {shown} has a character that a header cannot carry",
            place + 1
        ))
        .with_hint("take visible ASCII without spaces, such as what `openssl rand -hex 32` prints")),
    }
}

impl fmt::Debug for Tokens {
    /// Omits the tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tokens").field(&self.0.get().len()).finish()
    }
}
