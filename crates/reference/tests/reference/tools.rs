//! Making and reading tensors, and derivatives by finite differences.

use polygrad_core::{
    Axes, Backend, DType, Distribution, Element, ErrorKind, HostTensor, RandomKey, ReduceOp, Result, Shape,
};
use polygrad_reference::{Reference, ReferenceDevice, ReferenceTensor};

pub(crate) type R = Reference;
pub(crate) type T = ReferenceTensor;

/// A tensor of the values' dtype.
pub(crate) fn tensor<E: Element, const N: usize>(dims: [usize; N], values: &[E]) -> T {
    let host = HostTensor::new(Shape::from(dims), values.to_vec()).unwrap();
    R::from_host(host, &ReferenceDevice).unwrap()
}

/// A vector of the values' dtype.
pub(crate) fn vector<E: Element>(values: &[E]) -> T {
    tensor([values.len()], values)
}

/// A vector of a given dtype.
pub(crate) fn vector_of(dtype: DType, values: &[f64]) -> T {
    R::cast(&vector(values), dtype).unwrap()
}

/// Normal numbers in f64, which depend on the seed.
pub(crate) fn normal(dims: &[usize], seed: u64) -> T {
    let distribution = Distribution::Normal { mean: 0.0, std: 1.0 };
    let key = RandomKey { seed, offset: 0 };
    R::random(
        Shape::new(dims).unwrap(),
        distribution,
        DType::F64,
        key,
        &ReferenceDevice,
    )
    .unwrap()
}

pub(crate) fn elements<E: Element>(x: &T) -> Vec<E> {
    R::to_host(x).unwrap().to_vec().unwrap()
}

pub(crate) fn reals(x: &T) -> Vec<f64> {
    R::to_host(x).unwrap().to_f64_vec()
}

pub(crate) fn dims(x: &T) -> Vec<usize> {
    R::shape(x).to_vec()
}

/// A copy with one element changed.
pub(crate) fn with(x: &T, i: usize, value: f64) -> T {
    let mut values = reals(x);
    values[i] = value;
    R::from_host(HostTensor::new(R::shape(x), values).unwrap(), &ReferenceDevice).unwrap()
}

#[track_caller]
pub(crate) fn assert_close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (i, (&f, &e)) in found.iter().zip(expected).enumerate() {
        let same = f == e || (f.is_nan() && e.is_nan()) || (f - e).abs() <= tolerance * (1.0 + e.abs());
        assert!(same, "element {i}: {f} instead of {e}");
    }
}

#[track_caller]
pub(crate) fn assert_fails<V>(result: Result<V>, kind: ErrorKind, part: &str) {
    match result {
        Ok(_) => panic!("no error that says {part:?}"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(part), "{error} does not say {part:?}");
        }
    }
}

/// `Σ grad · f(x)` as a number.
fn weighted(f: &dyn Fn(&T) -> T, x: &T, grad: &T) -> f64 {
    let product = R::mul(&f(x), grad).unwrap();
    let all = Axes::all(R::shape(&product).rank());
    reals(&R::reduce(ReduceOp::Sum, &product, all, false).unwrap())[0]
}

/// The gradient of `Σ grad · f(x)`, by central differences of fourth order.
pub(crate) fn numerical_gradient(f: impl Fn(&T) -> T, x: &T, grad: &T) -> Vec<f64> {
    const STEP: f64 = 1e-3;
    let at = reals(x);
    (0..at.len())
        .map(|i| {
            let shifted = |steps: f64| weighted(&f, &with(x, i, at[i] + steps * STEP), grad);
            (8.0 * (shifted(1.0) - shifted(-1.0)) - (shifted(2.0) - shifted(-2.0))) / (12.0 * STEP)
        })
        .collect()
}

/// Compares an analytic gradient with [`numerical_gradient`].
#[track_caller]
pub(crate) fn assert_gradient(f: impl Fn(&T) -> T, x: &T, grad: &T, analytic: &T) {
    assert_eq!(R::shape(analytic), R::shape(x));
    assert_close(&reals(analytic), &numerical_gradient(f, x, grad), 1e-9);
}
