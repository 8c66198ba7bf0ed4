//! Cases of gradient checks: a function, and inputs at which its derivatives exist.

use std::collections::BTreeSet;

use polygrad_reference::Reference;
use polygrad_tensor::{BackwardOptions, Device, IntoShape, Result, gradcheck, gradgradcheck};

pub(crate) type Tensor = polygrad_tensor::Tensor<Reference>;
type Function = Box<dyn Fn(&[Tensor]) -> Result<Tensor>>;

pub(crate) struct Case {
    name: String,
    inputs: Vec<Tensor>,
    function: Function,
}

/// A list of cases.
#[derive(Default)]
pub(crate) struct Cases(Vec<Case>);

impl Cases {
    pub(crate) fn add<const N: usize>(
        &mut self,
        name: impl Into<String>,
        inputs: [Tensor; N],
        function: impl Fn(&[Tensor]) -> Result<Tensor> + 'static,
    ) {
        self.0.push(Case {
            name: name.into(),
            inputs: inputs.into(),
            function: Box::new(function),
        });
    }

    /// Adds a case with one input.
    pub(crate) fn unary(
        &mut self,
        name: impl Into<String>,
        input: Tensor,
        function: impl Fn(&Tensor) -> Result<Tensor> + 'static,
    ) {
        self.add(name, [input], move |x| function(&x[0]));
    }

    /// Checks first and second derivatives of all cases.
    pub(crate) fn check(&self) {
        let wrong: Vec<String> = self.0.iter().filter_map(Case::check).collect();
        assert!(
            wrong.is_empty(),
            "{} of {}:\n{}",
            wrong.len(),
            self.0.len(),
            wrong.join("\n")
        );
    }

    /// The ops that forward and first backward passes use.
    pub(crate) fn ops(&self) -> BTreeSet<String> {
        self.0.iter().flat_map(|case| case.ops().unwrap()).collect()
    }
}

impl Case {
    fn check(&self) -> Option<String> {
        let first = gradcheck(&self.function, &self.inputs);
        let second = || gradgradcheck(&self.function, &self.inputs);
        let error = match first {
            Ok(()) => second().err().map(|e| format!("second order: {e}")),
            Err(e) => Some(e.to_string()),
        };
        error.map(|e| format!("{}: {e}", self.name))
    }

    fn ops(&self) -> Result<Vec<String>> {
        let leaf = |x: &Tensor| {
            if x.dtype().is_float() {
                x.clone().requires_grad()
            } else {
                Ok(x.clone())
            }
        };
        let inputs = self.inputs.iter().map(leaf).collect::<Result<Vec<_>>>()?;
        let output = (self.function)(&inputs)?;
        let mut ops = output.recorded_ops();
        if output.is_tracked() {
            let options = BackwardOptions::default().create_graph(true);
            let gradients = output.sum_all()?.backward_with(&options)?;
            ops.extend(gradients.iter().flat_map(|(_, gradient)| gradient.recorded_ops()));
        }
        Ok(ops.iter().map(|op| format!("{op:?}")).collect())
    }
}

pub(crate) fn device() -> Device<Reference> {
    Device::default()
}

/// Distinct numbers between two bounds, without a pattern, which depend on the seed.
pub(crate) fn between(low: f64, high: f64, shape: impl IntoShape, seed: usize) -> Tensor {
    let shape = shape.into_shape().unwrap();
    let fraction = |i: usize| ((i as f64 + 31.0 * seed as f64) * 0.618_033_988_749_895 + 0.213).fract();
    let values: Vec<f64> = (0..shape.numel()).map(|i| low + (high - low) * fraction(i)).collect();
    Tensor::from_vec(values, shape, &device()).unwrap()
}

/// Numbers of both signs, none of them near 0.
pub(crate) fn mixed(shape: impl IntoShape, seed: usize) -> Tensor {
    let magnitudes = between(0.3, 1.7, shape, seed);
    let values = magnitudes.to_vec::<f64>().unwrap().into_iter().enumerate();
    let values: Vec<f64> = values
        .map(|(i, x)| if (i + seed).is_multiple_of(3) { -x } else { x })
        .collect();
    Tensor::from_vec(values, magnitudes.shape(), &device()).unwrap()
}

pub(crate) fn reals(values: &[f64], shape: impl IntoShape) -> Tensor {
    Tensor::from_slice(values, shape, &device()).unwrap()
}

pub(crate) fn integers(values: &[i64], shape: impl IntoShape) -> Tensor {
    Tensor::from_slice(values, shape, &device()).unwrap()
}
