//! Results too large for the caches, which are stored past them: the rows must be those of a small tensor, bit for bit.

use crate::common::cpu;
use polygrad_core::{
    Activation, AnyBackend, AnyTensor, Backend, BinaryOp, HostTensor, Result, Shape, SliceRange, UnaryOp,
};
use polygrad_cpu::Kernels;

/// More than 32 MiB of f32, in rows that begin at whole registers only sometimes.
const ROWS: usize = 8_500;
const WIDTH: usize = 1_001;

fn apply(x: &AnyTensor) -> Result<Vec<AnyTensor>> {
    let (y, mean, rstd) = AnyBackend::layer_norm(x, None, None, 1, 1e-5)?;
    let (x_grad, ..) = AnyBackend::layer_norm_backward(x, &y, &mean, &rstd, None, 1)?;
    let soft = AnyBackend::softmax(x, 1)?;
    Ok(vec![
        AnyBackend::unary(UnaryOp::Exp, x)?,
        AnyBackend::unary(UnaryOp::Neg, x)?,
        AnyBackend::binary(BinaryOp::Add, x, x)?,
        AnyBackend::activation(Activation::Gelu, x)?,
        AnyBackend::activation_backward(Activation::Gelu, x, x)?,
        AnyBackend::activation_backward(Activation::Relu, x, x)?,
        AnyBackend::softmax_backward(x, &soft, 1)?,
        soft,
        AnyBackend::log_softmax(x, 1)?,
        y,
        x_grad,
    ])
}

#[test]
fn rows_of_a_large_result_are_those_of_a_small_one() -> Result<()> {
    let device = cpu(2, Kernels::Simd);
    let values: Vec<f32> = (0..ROWS * WIDTH)
        .map(|i| ((i * 37 % 1_013) as f32 - 506.0) / 100.0)
        .collect();
    let large = AnyBackend::from_host(HostTensor::new(Shape::from([ROWS, WIDTH]), values)?, &device)?;
    let large_results = apply(&large)?;
    for first in [0, 4_321, ROWS - 3] {
        let rows = [SliceRange::new(first, 3, 1), SliceRange::full(WIDTH)];
        let of = |x: &AnyTensor| AnyBackend::to_host(&AnyBackend::slice(x, &rows)?)?.to_vec::<f32>();
        let small = AnyBackend::slice(&large, &rows)?;
        for (i, (large, small)) in large_results.iter().zip(apply(&small)?).enumerate() {
            let small = AnyBackend::to_host(&small)?.to_vec::<f32>()?;
            assert!(of(large)? == small, "result {i}, rows from {first} on");
        }
    }
    Ok(())
}
