//! Grouped heads equal repeated heads, and the weights are those that attention uses.

use polygrad_reference::Reference;
use polygrad_tensor::{Attention, Device, Result, manual_seed};

type Tensor = polygrad_tensor::Tensor<Reference>;

fn random<const R: usize>(dims: [usize; R]) -> Result<Tensor> {
    Tensor::randn(dims, &Device::default())
}

#[test]
fn grouped_heads_are_repeated_ones() -> Result<()> {
    manual_seed(1);
    let (q, k, v) = (random([2, 6, 3, 4])?, random([2, 2, 5, 4])?, random([2, 2, 5, 7])?);
    let (all_k, all_v) = (k.repeat_interleave(3, -3)?, v.repeat_interleave(3, -3)?);
    for mask in [
        None,
        Some(random([3, 5])?),
        Some(random([2, 1, 3, 5])?),
        Some(random([2, 6, 3, 5])?),
    ] {
        for causal in [false, true] {
            let grouped =
                q.scaled_dot_product_attention(&k, &v, Attention::new().mask(mask.as_ref()).causal(causal))?;
            let repeated =
                q.scaled_dot_product_attention(&all_k, &all_v, Attention::new().mask(mask.as_ref()).causal(causal))?;
            assert_eq!(grouped.dims(), [2, 6, 3, 7]);
            assert_eq!(grouped.to_vec::<f32>()?, repeated.to_vec::<f32>()?);
            let weights = q.attention_weights(&k, Attention::new().mask(mask.as_ref()).causal(causal))?;
            assert_eq!(weights.dims(), [2, 6, 3, 5]);
            let product = weights.matmul(&all_v)?.to_vec::<f32>()?;
            for (a, b) in product.iter().zip(grouped.to_vec::<f32>()?) {
                assert!((a - b).abs() < 1e-5, "{a} {b}");
            }
        }
    }
    Ok(())
}

#[test]
fn heads_that_do_not_divide_are_an_error() -> Result<()> {
    let (q, k) = (random([1, 5, 3, 4])?, random([1, 2, 5, 4])?);
    for error in [
        q.scaled_dot_product_attention(&k, &k, Attention::new()).unwrap_err(),
        q.attention_weights(&k, Attention::new()).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(text.contains("attention") && text.contains("[1, 5, 3, 4]"), "{text}");
    }
    let (q, v) = (random([1, 4, 3, 4])?, random([1, 1, 5, 4])?);
    assert!(q.scaled_dot_product_attention(&k, &v, Attention::new()).is_err());
    let mask = random([1, 3, 3, 5])?;
    assert!(
        q.scaled_dot_product_attention(&k, &k, Attention::new().mask(&mask))
            .is_err()
    );
    Ok(())
}
