//! State dicts: named values in host memory.

use std::collections::HashMap;
use std::fmt;

use polygrad_tensor::HostTensor;

/// Named tensors in host memory, in insertion order. It does not depend on a backend: a model trained on one can be
/// loaded on any other. [`StateDict::save`] and [`StateDict::load`] write and read its files.
#[derive(Clone, Default)]
pub struct StateDict {
    entries: Vec<(String, HostTensor)>,
    index: HashMap<String, usize>,
}

impl StateDict {
    /// An empty state dict.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores a tensor under a name, replacing an existing one.
    pub fn insert(&mut self, name: impl Into<String>, value: HostTensor) {
        let name = name.into();
        match self.index.get(&name) {
            Some(&i) => self.entries[i].1 = value,
            None => {
                self.index.insert(name.clone(), self.entries.len());
                self.entries.push((name, value));
            }
        }
    }

    /// The tensor with a name.
    pub fn get(&self, name: &str) -> Option<&HostTensor> {
        self.index.get(name).map(|&i| &self.entries[i].1)
    }

    /// Whether there is a tensor with a name.
    pub fn contains(&self, name: &str) -> bool {
        self.index.contains_key(name)
    }

    /// All names and tensors, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &HostTensor)> {
        self.entries.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The names, in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.iter().map(|(name, _)| name.as_str())
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries whose names begin with a prefix, without that prefix: `with_prefix("encoder.")` is the state of the
    /// encoder.
    #[must_use]
    pub fn with_prefix(&self, prefix: &str) -> Self {
        self.iter()
            .filter_map(|(name, value)| Some((name.strip_prefix(prefix)?.to_owned(), value.clone())))
            .collect()
    }
}

impl FromIterator<(String, HostTensor)> for StateDict {
    fn from_iter<I: IntoIterator<Item = (String, HostTensor)>>(entries: I) -> Self {
        let mut out = Self::new();
        out.extend(entries);
        out
    }
}

impl Extend<(String, HostTensor)> for StateDict {
    fn extend<I: IntoIterator<Item = (String, HostTensor)>>(&mut self, entries: I) {
        for (name, value) in entries {
            self.insert(name, value);
        }
    }
}

impl fmt::Debug for StateDict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(
                self.iter()
                    .map(|(name, value)| (name, format!("{}{}", value.dtype(), value.shape()))),
            )
            .finish()
    }
}
