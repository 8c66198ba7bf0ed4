//! Device strings.

use std::fmt;
use std::str::FromStr;

use crate::{Error, ErrorKind, Result};

/// A parsed device string: `name`, then parts after colons. Parts with `=` are options, which commas may also separate:
/// `cpu`, `cpu:threads=2,kernels=simd`, `torch:cuda:0`, `wgpu:0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSpec {
    backend: String,
    path: Vec<String>,
    options: Vec<(String, String)>,
}

impl DeviceSpec {
    /// The backend's name.
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// The parts that are not options, such as `cuda` and `0`.
    pub fn path(&self) -> &[String] {
        &self.path
    }

    /// The options in the order given.
    pub fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        self.options.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The value of an option.
    pub fn option(&self, key: &str) -> Option<&str> {
        self.options().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    /// Sets an option, replacing one of the same name.
    #[must_use]
    pub fn with_option(mut self, key: &str, value: &str) -> Self {
        self.options.retain(|(k, _)| k != key);
        self.options.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Removes an option.
    #[must_use]
    pub fn without_option(mut self, key: &str) -> Self {
        self.options.retain(|(k, _)| k != key);
        self
    }

    /// Checks that the backend knows all parts and options.
    ///
    /// # Errors
    /// When an option is not among `keys`, or there are more than `path_parts` parts that are not options.
    pub fn expect(&self, path_parts: usize, keys: &[&str]) -> Result<()> {
        if let Some(extra) = self.path.get(path_parts) {
            return Err(self.malformed(format!("{:?} means nothing to backend {}", extra, self.backend)));
        }
        match self.options().find(|(key, _)| !keys.contains(key)) {
            None => Ok(()),
            Some((key, _)) => Err(self
                .malformed(format!("backend {} has no option {key:?}", self.backend))
                .with_hint(if keys.is_empty() {
                    "it takes no options".to_owned()
                } else {
                    format!("it takes {}", keys.join(", "))
                })),
        }
    }

    /// An error about this device string.
    pub fn malformed(&self, message: String) -> Error {
        Error::new(ErrorKind::Device, format!("device {:?}: {message}", self.to_string()))
    }
}

impl FromStr for DeviceSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let malformed = |what: &str| {
            Error::new(ErrorKind::Device, format!("device {text:?}: {what}"))
                .with_hint("write it like cpu, cpu:threads=2 or torch:cuda:0")
        };
        let mut parts = text.trim().split(':');
        let backend = parts.next().unwrap_or_default().to_owned();
        if backend.is_empty() {
            return Err(malformed("the backend's name is missing"));
        }
        let mut spec = Self {
            backend,
            path: Vec::new(),
            options: Vec::new(),
        };
        for part in parts.flat_map(|part| part.split(',')) {
            match part.split_once('=') {
                Some((key, value)) if !key.is_empty() && !value.is_empty() => {
                    if spec.option(key).is_some() {
                        return Err(malformed(&format!("option {key} is given twice")));
                    }
                    spec.options.push((key.to_owned(), value.to_owned()));
                }
                None if !part.is_empty() => spec.path.push(part.to_owned()),
                _ => return Err(malformed("a part is empty")),
            }
        }
        Ok(spec)
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.backend)?;
        for part in &self.path {
            write!(f, ":{part}")?;
        }
        for (i, (key, value)) in self.options.iter().enumerate() {
            write!(f, "{}{key}={value}", if i == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_device_strings_apart_and_together() {
        for text in [
            "cpu",
            "cpu:threads=2",
            "cpu:threads=2,kernels=simd",
            "torch:cuda:0",
            "wgpu:0:f16=on",
        ] {
            assert_eq!(text.parse::<DeviceSpec>().unwrap().to_string(), text);
        }
        let spec: DeviceSpec = "cpu:threads=2,kernels=simd".parse().unwrap();
        assert_eq!(spec.option("threads"), Some("2"));
        assert!(
            spec.expect(0, &["threads"])
                .unwrap_err()
                .to_string()
                .contains("no option \"kernels\"")
        );
        for text in ["", ":0", "cpu:", "cpu:=2", "cpu:threads=", "cpu:a=1,a=2"] {
            assert!(text.parse::<DeviceSpec>().is_err(), "{text:?}");
        }
    }
}
