//! Paths in JSON: as text if the path is valid text, else its bytes in serde's form of an OS string.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Other(OsString),
}

pub(crate) fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    match path.as_ref().map(|path| (path.to_str(), path.as_os_str())) {
        None => serializer.serialize_none(),
        Some((Some(text), _)) => text.serialize(serializer),
        Some((None, other)) => other.serialize(serializer),
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let written = Option::<Written>::deserialize(deserializer)?;
    Ok(written.map(|written| match written {
        Written::Text(text) => text.into(),
        Written::Other(other) => other.into(),
    }))
}
