//! Atomic writing of model files.

use std::io::Write;
use std::path::Path;

use polygrad_core::{Error, Result};
use polygrad_nn::replace_file;

use super::write::entry;
use super::{Graph, Literal};
use crate::proto::{EXTERNAL, TensorProto};

/// Alignment of values in another file: what systems can map into memory.
const ALIGNMENT: usize = 4096;

/// Options for writing a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveOptions {
    /// Puts the values of large tensors into a second file, `NAME.data` beside the model. By default only if the model
    /// exceeds the 2 GB that one file can hold.
    pub external_data: Option<bool>,
    /// The smallest size of a large tensor, in bytes.
    pub external_threshold: usize,
}

impl Default for SaveOptions {
    fn default() -> Self {
        Self {
            external_data: None,
            external_threshold: 1024,
        }
    }
}

/// The values that go into another file, in order.
pub(super) struct Outside {
    /// The file's name; `None` if all values stay in the model file.
    location: Option<String>,
    threshold: usize,
    tensors: Vec<Literal>,
    end: usize,
}

/// A piece of the other file.
pub(super) struct Place<'a> {
    location: &'a str,
    offset: usize,
    length: usize,
}

impl Outside {
    pub(super) fn none() -> Self {
        Self {
            location: None,
            threshold: 0,
            tensors: Vec::new(),
            end: 0,
        }
    }

    /// Moves a tensor's values to the other file, if they belong there.
    pub(super) fn take(&mut self, tensor: &Literal) -> Option<Place<'_>> {
        let length = tensor.wire_len();
        let location = self.location.as_deref()?;
        if length < self.threshold {
            return None;
        }
        let offset = self.end.next_multiple_of(ALIGNMENT);
        self.end = offset + length;
        self.tensors.push(tensor.clone());
        Some(Place {
            location,
            offset,
            length,
        })
    }

    fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let mut position = 0usize;
        for tensor in &self.tensors {
            let start = position.next_multiple_of(ALIGNMENT);
            out.write_all(&vec![0; start - position])?;
            let bytes = tensor.wire_bytes();
            out.write_all(&bytes)?;
            position = start + bytes.len();
        }
        Ok(())
    }
}

impl Place<'_> {
    pub(super) fn of(&self, tensor: &Literal, name: &str) -> TensorProto {
        TensorProto {
            dims: tensor.host().shape().iter().map(|&extent| extent as i64).collect(),
            data_type: tensor.element().number(),
            name: name.into(),
            external_data: vec![
                entry("location", self.location),
                entry("offset", &self.offset.to_string()),
                entry("length", &self.length.to_string()),
            ],
            data_location: EXTERNAL,
            ..TensorProto::default()
        }
    }
}

impl Graph {
    /// Writes a model file atomically, with external data if it exceeds 2 GB.
    ///
    /// # Errors
    /// As [`Graph::to_bytes`], and errors of the file system. An old file is then unchanged.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.save_with(path, SaveOptions::default())
    }

    /// [`Graph::save`], with options. The file with external data is complete before the model file appears, but it
    /// replaces an old one: if the process is killed in between, the old model is left beside the new data.
    ///
    /// # Errors
    /// As [`Graph::save`].
    pub fn save_with(&self, path: impl AsRef<Path>, options: SaveOptions) -> Result<()> {
        let path = path.as_ref();
        let Some(name) = path.file_name() else {
            return Err(Error::invalid(format!("{} is no name for a file", path.display())));
        };
        let large = self.wire_len() > i32::MAX as usize / 16 * 15;
        let mut outside = Outside::none();
        if options.external_data.unwrap_or(large) {
            // The model stores the name of the data file as text.
            let Some(name) = name.to_str() else {
                let text = format!("{} cannot name a file of external data: it is no UTF-8", path.display());
                return Err(Error::invalid(text).with_hint("give the model a name in UTF-8"));
            };
            outside.location = Some(format!("{name}.data"));
            outside.threshold = options.external_threshold;
        }
        let bytes = self.encode(&mut outside)?;
        if let Some(location) = &outside.location {
            replace_file(&path.with_file_name(location), |out| outside.write(out))?;
        }
        replace_file(path, |out| out.write_all(&bytes))
    }

    fn wire_len(&self) -> usize {
        let lengths = self
            .body
            .initializers
            .iter()
            .map(|initializer| initializer.tensor.wire_len());
        lengths.fold(0, usize::saturating_add)
    }
}
