//! The results of a run.

use std::sync::Arc;

use polygrad_core::{Error, Result};
use polygrad_tensor::{Device, Tensor};

use super::call::Made;
use super::value::Value;

/// The results of a run: values by name, in the model's order.
#[derive(Debug)]
pub struct Outputs {
    pub(super) names: Arc<[String]>,
    pub(super) values: Made,
    pub(super) device: Device,
}

impl Outputs {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The output of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// The tensor at an index.
    ///
    /// # Errors
    /// If there is no such output, or it is no tensor.
    pub fn tensor(&self, i: usize) -> Result<Tensor> {
        let found = self.values.get(i);
        let value = found
            .ok_or_else(|| Error::out_of_range(format!("output {i} of a model that has {}", self.values.len())))?;
        value
            .tensor(&self.device)
            .map_err(|e| e.in_module(format!("output {:?}", self.names[i])))
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// When there is no such output, or it is no tensor.
    pub fn named(&self, name: &str) -> Result<Tensor> {
        let place = self.names.iter().position(|key| key == name);
        self.tensor(place.ok_or_else(|| Error::invalid(format!("the model has no output {name:?}")))?)
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.names.iter().map(String::as_str).zip(&self.values)
    }
}
