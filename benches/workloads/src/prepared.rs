//! A case on a device, ready to run.

use std::fmt;
use std::rc::Rc;

use polygrad_nn::{Module, Param, Visit};
use polygrad_tensor::{Backend, DType, Result, Tensor, autocast};

use crate::data;

/// One step; returns the loss if it trains.
pub type Step = Box<dyn FnMut() -> Result<Option<f64>>>;

/// A parameter's name, shape and values.
pub type Weight = (String, Vec<usize>, Vec<f32>);

/// A step that can be run any number of times, and the weights that it uses or trains.
pub struct Prepared<B: Backend> {
    step: Step,
    params: Vec<(String, Param<B>)>,
    model: Option<Rc<dyn Visit<B>>>,
}

impl<B: Backend> Prepared<B> {
    pub(crate) fn new(params: Vec<(String, Param<B>)>, step: Step) -> Self {
        Self {
            step,
            params,
            model: None,
        }
    }

    /// Sets the model that the step runs.
    pub(crate) fn with_model(mut self, model: Rc<dyn Visit<B>>) -> Self {
        self.model = Some(model);
        self
    }

    /// The same step in mixed precision.
    pub(crate) fn under_autocast(mut self, dtype: DType) -> Self
    where
        B: 'static,
    {
        let mut step = self.step;
        self.step = Box::new(move || autocast(dtype, &mut step));
        self
    }

    /// A step without parameters or loss, whose result is dropped.
    pub(crate) fn call<T>(mut call: impl FnMut() -> Result<T> + 'static) -> Self {
        let step = move || {
            std::hint::black_box(call()?);
            Ok(None)
        };
        Self::new(Vec::new(), Box::new(step))
    }

    /// Runs one step; returns the loss if it trains. An asynchronous device may still be computing when this returns.
    ///
    /// # Errors
    /// If the device lacks an op or memory.
    pub fn step(&mut self) -> Result<Option<f64>> {
        (self.step)()
    }

    /// The model that a step runs, so that its layers can be watched; `None` for work without a model.
    pub fn model(&self) -> Option<Rc<dyn Visit<B>>> {
        self.model.clone()
    }

    /// The current parameters, in the order of the model; empty for work without parameters.
    ///
    /// # Errors
    /// If a value cannot be read.
    pub fn weights(&self) -> Result<Vec<Weight>> {
        let read = |(name, param): &(String, Param<B>)| {
            let value = param.tensor();
            Ok((name.clone(), value.dims(), value.to_vec::<f32>()?))
        };
        self.params.iter().map(read).collect()
    }
}

impl<B: Backend> fmt::Debug for Prepared<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.params.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Prepared")
            .field("params", &names)
            .finish_non_exhaustive()
    }
}

/// Sets every parameter to its initial value in the workload.
pub(crate) fn begin<B: Backend>(model: &impl Module<B>) -> Result<Vec<(String, Param<B>)>> {
    let params = model.named_parameters();
    for (index, (name, param)) in params.iter().enumerate() {
        let shape = param.tensor().dims();
        let values = data::weights(index, &shape, name.ends_with("weight"));
        param.set(&Tensor::from_vec(values, shape, &param.device())?)?;
    }
    Ok(params)
}
