//! Counted floating-point operations are those of the products, forward and backward.

use polygrad_reference::Reference;
use polygrad_tensor::{Attention, ConvParams, Device, Result, count_flops, no_grad};

type Tensor = polygrad_tensor::Tensor<Reference>;

fn ones<const R: usize>(dims: [usize; R]) -> Result<Tensor> {
    Tensor::ones(dims, &Device::default())
}

#[test]
fn a_linear_layer_costs_twice_as_much_backward_as_forward() -> Result<()> {
    let (x, weight) = (ones([7, 3])?.requires_grad()?, ones([5, 3])?.requires_grad()?);
    let (y, forward) = count_flops(|| x.linear(&weight, None));
    assert_eq!(forward, 2 * 7 * 3 * 5);
    let loss = y?.sum_all()?;
    let (gradients, backward) = count_flops(|| loss.backward());
    gradients?;
    assert_eq!(backward, 2 * forward);
    Ok(())
}

#[test]
fn a_convolution_costs_twice_as_much_backward_as_forward() -> Result<()> {
    let (x, weight) = (
        ones([2, 4, 6, 5])?.requires_grad()?,
        ones([8, 2, 3, 3])?.requires_grad()?,
    );
    let params = ConvParams {
        groups: 2,
        padding: [1, 0, 0],
        ..ConvParams::default()
    };
    let (y, forward) = count_flops(|| x.conv(&weight, None, &params));
    let y = y?;
    assert_eq!(y.dims(), [2, 8, 6, 3]);
    assert_eq!(forward, 2 * (2 * 8 * 6 * 3) * (2 * 3 * 3));
    let loss = y.sum_all()?;
    let (gradients, backward) = count_flops(|| loss.backward());
    gradients?;
    assert_eq!(backward, 2 * forward);
    Ok(())
}

#[test]
fn attention_costs_the_same_with_a_graph_as_without() -> Result<()> {
    let q = ones([2, 3, 4, 8])?.requires_grad()?;
    let (k, v) = (ones([2, 1, 5, 8])?, ones([2, 1, 5, 6])?);
    let attend = || q.scaled_dot_product_attention(&k, &v, Attention::new().causal(true));
    let (y, tracked) = count_flops(attend);
    assert!(y?.is_tracked());
    let (y, plain) = count_flops(|| {
        q.detach()
            .scaled_dot_product_attention(&k, &v, Attention::new().causal(true))
    });
    y?;
    assert_eq!(tracked, 2 * (2 * 3 * 4 * 5) * (8 + 6));
    assert_eq!(plain, tracked);
    let (y, ungraded) = count_flops(|| no_grad(attend));
    y?;
    assert_eq!(ungraded, tracked);
    Ok(())
}

#[test]
fn attention_backward_computes_its_scores_again() -> Result<()> {
    let q = ones([2, 3, 4, 8])?.requires_grad()?;
    let (k, v) = (ones([2, 3, 5, 8])?, ones([2, 3, 5, 6])?);
    let loss = q
        .scaled_dot_product_attention(&k, &v, Attention::new().causal(true))?
        .sum_all()?;
    let (gradients, backward) = count_flops(|| loss.backward());
    gradients?;
    assert_eq!(backward, 2 * (2 * 3 * 4 * 5) * (3 * 8 + 2 * 6));
    Ok(())
}
