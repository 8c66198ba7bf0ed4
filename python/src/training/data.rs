//! Training data from Python, as loaders of batches.

use std::sync::Arc;

use polygrad::backend::{HostTensor, dispatch_dtype};
use polygrad::data::{DataLoader, DataLoaderConfig, Dataset, Stream};
use polygrad::train::Tensors;
use polygrad::{DType, Device, Error, Result, Shape, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::errors::raised;
use crate::failure::Failure;
use crate::tensor::tensor_of;

/// The inputs of a model in order, followed by the target.
#[derive(Clone)]
pub(super) struct Batch(pub(super) Vec<Tensor>);

impl Tensors for Batch {
    fn to_tensors(&self) -> Vec<Tensor> {
        self.0.clone()
    }

    fn from_tensors(tensors: &[Tensor]) -> Result<Self> {
        Ok(Self(tensors.to_vec()))
    }
}

/// The dtypes to which a model's inputs are converted, and whether integer targets are classes.
#[derive(Clone)]
pub(super) struct Form {
    pub(super) inputs: Vec<DType>,
    pub(super) classes: bool,
}

impl Form {
    /// Inputs and a target in the form that the model and the loss take.
    fn fit(&self, arrays: Vec<HostTensor>) -> Result<Vec<HostTensor>> {
        let wanted = self.inputs.len() + 1;
        if arrays.len() != wanted {
            let given = arrays.len().saturating_sub(1);
            return Err(Error::invalid(format!(
                "{given} inputs, but the model takes {}",
                wanted - 1
            )));
        }
        let rows = |array: &HostTensor| array.shape().dims().first().copied();
        if let Some(other) = arrays
            .iter()
            .find(|array| rows(array).is_none() || rows(array) != rows(&arrays[0]))
        {
            let first = arrays[0].shape();
            return Err(Error::shape(format!(
                "an input has the shape {first}, and the target or another one {}",
                other.shape()
            ))
            .with_hint("the first extent of all is that of the examples, and the same"));
        }
        let fitted = arrays.into_iter().enumerate().map(|(place, array)| {
            let (dtype, wanted) = (array.dtype(), self.inputs.get(place));
            match wanted {
                Some(&wanted) if dtype.is_float() && !wanted.is_float() => Err(Error::dtype(format!(
                    "input {place} is {dtype}, and the model takes {wanted}"
                ))
                .with_hint("fractions are not cut off: convert it yourself")),
                Some(&wanted) => Ok(array.cast(wanted)),
                None if dtype.is_float() => Ok(array.cast(DType::F32)),
                None if self.classes => Ok(array.cast(DType::I64)),
                None => Ok(array.cast(DType::F32)),
            }
        });
        fitted.collect()
    }
}

/// The options for batches of arrays.
pub(super) struct Batches {
    pub(super) size: usize,
    /// With a seed, or in order.
    pub(super) shuffle: Option<u64>,
}

/// A loader of a list of arrays, whose rows are examples, or of an iterable of such lists, each of them a batch.
///
/// # Errors
/// If arrays do not fit the model or each other; Python's own exceptions.
pub(super) fn loader(
    given: &Bound<'_, PyAny>,
    form: &Form,
    batches: &Batches,
    failure: &Failure,
) -> PyResult<DataLoader<Batch>> {
    let device = crate::tensor::cpu()?;
    match given.cast::<PyList>() {
        Ok(list) => {
            let rows = Rows(Arc::new(form.fit(hosts(list)?).map_err(raised)?));
            if rows.is_empty() {
                return Err(raised(Error::invalid("there are no examples")));
            }
            let config = DataLoaderConfig::new(rows.clone()).batch_size(batches.size);
            let config = match batches.shuffle {
                Some(seed) => config.shuffle(seed),
                None => config,
            };
            config
                .build_with(move |indices| rows.batch(&indices, &device))
                .map_err(raised)
        }
        Err(_) => {
            let stream = Given {
                batches: given.clone().unbind(),
                form: form.clone(),
                failure: failure.clone(),
            };
            let rows = |batch: &Vec<HostTensor>| batch.first().map_or(0, |array| array.shape().dims()[0]);
            let config = DataLoaderConfig::from_batches(stream, rows);
            let build = config.build_with(move |batches| {
                let arrays = batches.into_iter().flatten();
                arrays
                    .map(|array| Tensor::from_host(array, &device))
                    .collect::<Result<_>>()
                    .map(Batch)
            });
            build.map_err(raised)
        }
    }
}

fn hosts(list: &Bound<'_, PyList>) -> PyResult<Vec<HostTensor>> {
    list.iter()
        .map(|array| tensor_of(&array, None)?.to_host().map_err(raised))
        .collect()
}

/// Arrays whose rows belong together; an example is an index.
#[derive(Clone)]
struct Rows(Arc<Vec<HostTensor>>);

impl Dataset for Rows {
    type Item = usize;

    fn len(&self) -> usize {
        self.0[0].shape().dims()[0]
    }

    fn example(&self, index: usize) -> Result<usize> {
        Ok(index)
    }
}

impl Rows {
    fn batch(&self, indices: &[usize], device: &Device) -> Result<Batch> {
        let tensors = self
            .0
            .iter()
            .map(|array| Tensor::from_host(taken(array, indices)?, device));
        tensors.collect::<Result<_>>().map(Batch)
    }
}

/// Rows of an array.
fn taken(array: &HostTensor, indices: &[usize]) -> Result<HostTensor> {
    let mut dims = array.shape().to_vec();
    dims[0] = indices.len();
    let shape = Shape::new(&dims)?;
    let row = dims[1..].iter().product::<usize>();
    dispatch_dtype!(array.dtype(), T => {
        let from = array.as_slice::<T>()?;
        let mut values: Vec<T> = Vec::with_capacity(shape.numel());
        for &index in indices {
            values.extend_from_slice(&from[index * row..][..row]);
        }
        HostTensor::new(shape, values)
    })
}

/// An iterable of Python whose items are lists of arrays.
struct Given {
    batches: Py<PyAny>,
    form: Form,
    failure: Failure,
}

impl Stream for Given {
    type Item = Vec<HostTensor>;

    fn examples(&self, _: u64) -> Result<Box<dyn Iterator<Item = Result<Self::Item>> + Send>> {
        let (form, failure) = (self.form.clone(), self.failure.clone());
        let begun = Python::attach(|py| Ok(self.batches.bind(py).try_iter()?.unbind()));
        let begun = begun.map_err(|error: PyErr| self.failure.of(error))?;
        Ok(Box::new(std::iter::from_fn(move || {
            let next = Python::attach(|py| {
                let item = begun.bind(py).clone().next().transpose()?;
                item.map(|item| hosts(item.cast::<PyList>()?)).transpose()
            });
            let is_empty = |batch: &Vec<HostTensor>| batch[0].shape().dims()[0] == 0;
            match next {
                Ok(arrays) => arrays.map(|arrays| match form.fit(arrays)? {
                    batch if is_empty(&batch) => {
                        Err(Error::invalid("a batch has no examples").with_hint("leave it out"))
                    }
                    batch => Ok(batch),
                }),
                Err(error) => Some(Err(failure.of(error))),
            }
        })))
    }
}
