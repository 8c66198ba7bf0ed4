//! Models for tests.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use polygrad_core::{DType, Error, HostTensor, Result, Shape};
use polygrad_onnx::graph::{Dim, ElementType, Literal};
use polygrad_serve::{InferRequest, InferResponse, Model, NamedValue, Signature, TensorSpec, Value};

/// A model from a signature and a function.
pub(crate) struct Function<F> {
    pub(crate) signature: Signature,
    pub(crate) run: F,
}

impl<F: Fn(&[Value]) -> Result<Vec<Value>> + Send + Sync + 'static> Model for Function<F> {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, inputs: &[Value]) -> Result<Vec<Value>> {
        (self.run)(inputs)
    }
}

pub(crate) fn spec(name: &str, element: impl Into<ElementType>, dims: &[&str]) -> TensorSpec {
    let dim = |name: &&str| name.parse().map_or_else(|_| Dim::Named((*name).to_owned()), Dim::Fixed);
    TensorSpec::new(name, element, dims.iter().map(dim).collect::<Vec<_>>())
}

/// Inputs and outputs by name: rows are joined along `batch`, and `next_NAME` is the state for `NAME`.
pub(crate) fn signature(inputs: Vec<TensorSpec>, outputs: Vec<TensorSpec>) -> Signature {
    let mut signature = Signature {
        inputs,
        outputs,
        states: Vec::new(),
    };
    signature.batch_by_name();
    signature.states = signature.states_by_name();
    signature
}

/// Returns its input: `x` of any width as `y`. Rows are joined.
pub(crate) fn identity(element: ElementType) -> Arc<dyn Model> {
    counted(element, Arc::default(), Duration::ZERO)
}

/// [`identity`] that takes `time` and counts its runs and rows.
pub(crate) fn counted(element: ElementType, counts: Arc<Counts>, time: Duration) -> Arc<dyn Model> {
    let signature = signature(
        vec![spec("x", element, &["batch", "width"])],
        vec![spec("y", element, &["batch", "width"])],
    );
    let run = move |inputs: &[Value]| {
        std::thread::sleep(time);
        counts.runs.fetch_add(1, Ordering::SeqCst);
        counts.rows.fetch_add(inputs[0].shape()[0], Ordering::SeqCst);
        Ok(inputs.to_vec())
    };
    Arc::new(Function { signature, run })
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) runs: AtomicUsize,
    pub(crate) rows: AtomicUsize,
}

/// The sum of `a` and `b`, [batch, 2], and their difference.
pub(crate) fn add_sub() -> Arc<dyn Model> {
    let pair = |name: &str| spec(name, DType::I32, &["batch", "2"]);
    let signature = signature(vec![pair("a"), pair("b")], vec![pair("sum"), pair("difference")]);
    let run = |inputs: &[Value]| Ok(vec![zip(inputs, i32::wrapping_add)?, zip(inputs, i32::wrapping_sub)?]);
    Arc::new(Function { signature, run })
}

fn zip<T: polygrad_core::Element>(inputs: &[Value], both: impl Fn(T, T) -> T) -> Result<Value> {
    let [a, b] = [0, 1].map(|i| inputs[i].tensor().and_then(|literal| literal.host().to_vec::<T>()));
    let values = a?.into_iter().zip(b?).map(|(a, b)| both(a, b)).collect();
    Ok(HostTensor::new(*inputs[0].shape(), values)?.into())
}

/// `x` [batch, 2] with `by` [batch] added to each row as `y`; `by` defaults to 10.
pub(crate) fn shifted() -> Arc<dyn Model> {
    let numbers_of = |name: &str| spec(name, DType::F32, &["batch", "2"]);
    let by = spec("by", DType::F32, &["batch"]).with_default(10);
    let run = |inputs: &[Value]| {
        let by = numbers(&inputs[1]);
        let sums = numbers(&inputs[0])
            .iter()
            .enumerate()
            .map(|(i, x)| x + by[i / 2])
            .collect();
        Ok(vec![floats(&[by.len(), 2], sums)])
    };
    Arc::new(Function {
        signature: signature(vec![numbers_of("x"), by], vec![numbers_of("y")]),
        run,
    })
}

/// The sum of `x` [batch, 1] over a sequence as `y`, kept in the state `state`.
pub(crate) fn accumulate() -> Arc<dyn Model> {
    let column = |name: &str| spec(name, DType::F32, &["batch", "1"]);
    let signature = signature(
        vec![column("x"), column("state")],
        vec![column("y"), column("next_state")],
    );
    let run = |inputs: &[Value]| {
        let sum = zip(inputs, |a: f32, b: f32| a + b)?;
        Ok(vec![sum.clone(), sum])
    };
    Arc::new(Function { signature, run })
}

/// Sums `x` [batch, 1] over the steps of a sequence as `sum` [batch, 1], in the state `total`, whose rows are along its
/// second axis.
pub(crate) fn accumulator() -> Arc<dyn Model> {
    let signature = signature(
        vec![
            spec("x", DType::F32, &["batch", "1"]),
            spec("total", DType::F32, &["1", "batch"]),
        ],
        vec![
            spec("sum", DType::F32, &["batch", "1"]),
            spec("next_total", DType::F32, &["1", "batch"]),
        ],
    );
    let run = |inputs: &[Value]| {
        let sums = numbers(&inputs[0]).into_iter().zip(numbers(&inputs[1]));
        let sums: Vec<f32> = sums.map(|(x, total)| x + total).collect();
        Ok(vec![
            floats(&[sums.len(), 1], sums.clone()),
            floats(&[1, sums.len()], sums),
        ])
    };
    Arc::new(Function { signature, run })
}

/// Fails on −1, panics on −2; otherwise [`identity`].
pub(crate) fn delicate() -> Arc<dyn Model> {
    let signature = signature(
        vec![spec("x", DType::F32, &["batch", "width"])],
        vec![spec("y", DType::F32, &["batch", "width"])],
    );
    let run = |inputs: &[Value]| {
        let values = numbers(&inputs[0]);
        assert!(!values.contains(&-2.0), "minus two");
        match values.contains(&-1.0) {
            true => Err(Error::invalid("minus one")),
            false => Ok(inputs.to_vec()),
        }
    };
    Arc::new(Function { signature, run })
}

pub(crate) fn floats(shape: &[usize], values: Vec<f32>) -> Value {
    HostTensor::new(Shape::new(shape).unwrap(), values).unwrap().into()
}

/// Integers in any numeric type.
pub(crate) fn whole(element: ElementType, shape: &[usize], values: &[i64]) -> Value {
    let host = HostTensor::new(Shape::new(shape).unwrap(), values.to_vec()).unwrap();
    Value::Tensor(Literal::new(element, host.cast(element.dtype().unwrap())).unwrap())
}

pub(crate) fn numbers(value: &Value) -> Vec<f32> {
    value
        .tensor()
        .unwrap()
        .host()
        .to_f64_vec()
        .iter()
        .map(|&v| v as f32)
        .collect()
}

pub(crate) fn request(inputs: impl IntoIterator<Item = (&'static str, Value)>) -> InferRequest {
    let inputs = inputs.into_iter().map(|(name, value)| NamedValue {
        name: name.to_owned(),
        value,
    });
    InferRequest {
        inputs: inputs.collect(),
        ..InferRequest::default()
    }
}

pub(crate) fn output<'a>(answer: &'a InferResponse, name: &str) -> &'a Value {
    &answer.outputs.iter().find(|output| output.name == name).unwrap().value
}
