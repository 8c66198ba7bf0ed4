//! Results documented to have no gradient have none, and functions with zero slope have a gradient of 0.

use polygrad_core::{BinaryOp, CompareOp, ReduceOp, UnaryOp};
use polygrad_tensor::{DType, PoolParams, Result, RoundingMode};

use super::case::{Tensor, device, integers, mixed};

#[test]
fn results_without_gradient_are_untracked() -> Result<()> {
    let x = mixed([2, 3], 1).requires_grad()?;
    let mut results: Vec<(String, Tensor)> = Vec::new();
    for &op in CompareOp::ALL {
        results.push((op.name().into(), x.compare(op, &x)?));
        results.push((format!("{} with a number", op.name()), x.compare_scalar(op, 0.5)?));
    }
    for &op in UnaryOp::ALL.iter().filter(|op| op.is_predicate()) {
        results.push((op.name().into(), x.unary(op)?));
    }
    for op in [ReduceOp::Any, ReduceOp::All] {
        results.push((op.name().into(), x.reduce(op, (), false)?));
    }
    let image = mixed([1, 1, 4], 1).requires_grad()?;
    let (_, mean, var) = x.batch_norm(None, None, 1e-5)?;
    let named = [
        ("logical_and", x.logical_and(&x)?),
        ("logical_or", x.logical_or(&x)?),
        ("logical_xor", x.logical_xor(&x)?),
        ("argmax", x.argmax(1)?),
        ("argmin", x.argmin(1)?),
        ("argsort", x.argsort(1, false)?),
        ("positions of sort", x.sort(1, false)?.1),
        ("positions of topk", x.topk(1, 1, true)?.1),
        ("positions of max", x.max(1)?.1),
        ("positions of min", x.min(1)?.1),
        ("positions of max_pool", image.max_pool(&PoolParams::new([2; 3]))?.1),
        ("mean of batch_norm", mean),
        ("variance of batch_norm", var),
        ("to an integer dtype", x.to_dtype(DType::I32)?),
        ("to bool", x.to_dtype(DType::Bool)?),
        ("norm of order 0", x.norm(0.0, ())?),
        ("zeros_like", x.zeros_like()?),
        ("full_like", x.full_like(2.0)?),
        ("detach", x.detach()),
        ("to_device", x.to_device(&device())?),
        ("one_hot", integers(&[0, 1], [2]).one_hot(2)?),
    ];
    results.extend(named.map(|(name, result)| (name.to_owned(), result)));
    let tracked: Vec<&String> = results
        .iter()
        .filter(|(_, t)| t.is_tracked())
        .map(|(name, _)| name)
        .collect();
    assert!(tracked.is_empty(), "{tracked:?} are tracked");
    Ok(())
}

#[test]
fn integers_are_never_tracked() -> Result<()> {
    let x = integers(&[1, 2, 3], [3]);
    for &op in BinaryOp::ALL
        .iter()
        .filter(|&&op| op.accepts(DType::I64) && op != BinaryOp::Div)
    {
        let result = x.binary(op, &x)?;
        assert!(!result.is_tracked() && result.dtype() == DType::I64, "{}", op.name());
    }
    Ok(())
}

#[test]
fn steps_have_a_gradient_of_zero() -> Result<()> {
    for op in [
        UnaryOp::Sign,
        UnaryOp::Floor,
        UnaryOp::Ceil,
        UnaryOp::Round,
        UnaryOp::Trunc,
    ] {
        let x = mixed([3], 1).requires_grad()?;
        let gradients = x.unary(op)?.sum_all()?.backward()?;
        assert_eq!(gradients.require(&x)?.to_vec::<f64>()?, [0.0; 3], "{}", op.name());
    }
    Ok(())
}

#[test]
fn rounded_quotients_have_a_gradient_of_zero() -> Result<()> {
    for mode in [RoundingMode::Floor, RoundingMode::Trunc] {
        let x = mixed([3], 1).requires_grad()?;
        // Also for a division by 0, where the quotient itself has no gradient.
        let y = Tensor::new([0.5, -2.0, 0.0], (&device(), DType::F64))?.requires_grad()?;
        let gradients = x.div_rounded(&y, mode)?.sum_all()?.backward()?;
        assert_eq!(gradients.require(&x)?.to_vec::<f64>()?, [0.0; 3], "{mode:?}");
        assert_eq!(gradients.require(&y)?.to_vec::<f64>()?, [0.0; 3], "{mode:?}");
    }
    Ok(())
}

#[test]
fn ties_share_the_gradient() -> Result<()> {
    let tied = || Tensor::new([2.0, 5.0, 5.0, 5.0], (&device(), DType::F64))?.requires_grad();
    let third = 1.0 / 3.0;
    let x = tied()?;
    let gradients = x.amax(())?.backward()?;
    assert_eq!(gradients.require(&x)?.to_vec::<f64>()?, [0.0, third, third, third]);
    let x = tied()?;
    let gradients = x.max(0)?.0.backward()?;
    assert_eq!(gradients.require(&x)?.to_vec::<f64>()?, [0.0, 1.0, 0.0, 0.0]);
    let (a, b) = (
        tied()?,
        Tensor::new([1.0, 5.0, 6.0, 5.0], (&device(), DType::F64))?.requires_grad()?,
    );
    let gradients = a.maximum(&b)?.sum_all()?.backward()?;
    assert_eq!(gradients.require(&a)?.to_vec::<f64>()?, [1.0, 0.5, 0.0, 0.5]);
    assert_eq!(gradients.require(&b)?.to_vec::<f64>()?, [0.0, 0.5, 1.0, 0.5]);
    Ok(())
}

#[test]
fn the_padding_row_of_an_embedding_gets_none() -> Result<()> {
    let weight = mixed([3, 2], 1).requires_grad()?;
    let index = integers(&[1, 2, 1], [3]);
    let gradients = index.embedding(&weight, Some(1))?.sum_all()?.backward()?;
    assert_eq!(
        gradients.require(&weight)?.to_vec::<f64>()?,
        [0.0, 0.0, 0.0, 0.0, 1.0, 1.0]
    );
    Ok(())
}
