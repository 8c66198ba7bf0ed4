//! The cache of fetched files, outside the checkout.

use std::path::{Path, PathBuf};

/// `$XDG_CACHE_HOME/polygrad`, or `~/.cache/polygrad`.
///
/// # Errors
/// If neither variable is set.
pub(crate) fn folder() -> Result<PathBuf, String> {
    let cache = match (std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")) {
        (Some(cache), _) if !cache.is_empty() => PathBuf::from(cache),
        (_, Some(home)) => Path::new(&home).join(".cache"),
        _ => return Err("neither XDG_CACHE_HOME nor HOME says where the cache folder is".to_owned()),
    };
    Ok(cache.join("polygrad"))
}
