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
    let (k, v) = (random([2, 2, 5, 4])?, random([2, 2, 5, 7])?);
    let (all_k, all_v) = (k.repeat_interleave(3, -3)?, v.repeat_interleave(3, -3)?);
    // A single query of each head takes a path of its own.
    for queries in [3, 1] {
        let q = random([2, 6, queries, 4])?;
        let mut masks = vec![None];
        for float in [
            random([5])?,
            random([queries, 5])?,
            random([2, 1, queries, 5])?,
            random([6, queries, 5])?,
            random([2, 6, queries, 5])?,
        ] {
            let visible = float.gt(0.0)?;
            // Some queries see no key.
            let few = visible.logical_and(&visible.narrow(-1, 0, 1)?)?;
            masks.extend([float, visible, few].map(Some));
        }
        for mask in masks {
            for causal in [false, true] {
                let options = Attention::new().mask(mask.as_ref()).causal(causal);
                let grouped = q.scaled_dot_product_attention(&k, &v, options)?;
                let repeated = q.scaled_dot_product_attention(&all_k, &all_v, options)?;
                assert_eq!(grouped.dims(), [2, 6, queries, 7]);
                assert_eq!(grouped.to_vec::<f32>()?, repeated.to_vec::<f32>()?);
                let weights = q.attention_weights(&k, options)?;
                assert_eq!(weights.dims(), [2, 6, queries, 5]);
                let product = weights.matmul(&all_v)?.to_vec::<f32>()?;
                for (a, b) in product.iter().zip(grouped.to_vec::<f32>()?) {
                    assert!((a - b).abs() < 1e-5, "{a} {b}");
                }
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
    // As many rows as a single query has heads for each head of keys.
    let (q, k, mask) = (random([1, 6, 1, 4])?, random([1, 2, 5, 4])?, random([3, 5])?);
    let error = q
        .scaled_dot_product_attention(&k, &k, Attention::new().mask(&mask))
        .unwrap_err();
    assert!(error.to_string().contains("mask's shape [3, 5]"), "{error}");
    Ok(())
}
