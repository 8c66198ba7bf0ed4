//! Pooling and interpolation, at extents where errors in rounding or borders show.

use polygrad_tensor::{InterpolateMode, PoolParams, Resize, Result};

use super::{Tensor, device};

/// As in PyTorch 2.13, windows of ceil mode may be larger than their axis.
#[test]
fn a_window_larger_than_its_axis_sees_what_is_there() -> Result<()> {
    let x = Tensor::new([[[[0.0, 1.0], [2.0, 3.0]]]], &device())?;
    let params = PoolParams {
        stride: [2; 3],
        ceil_mode: true,
        ..PoolParams::new([3; 3])
    };
    let (values, places) = x.max_pool(&params)?;
    assert_eq!((values.dims(), values.to_vec::<f32>()?), (vec![1, 1, 1, 1], vec![3.0]));
    assert_eq!(places.to_vec::<i64>()?, [3]);
    assert_eq!(x.avg_pool(&params)?.to_vec::<f32>()?, [1.5]);
    assert_eq!(x.avg_pool_with_divisor(&params, 3)?.to_vec::<f32>()?, [2.0]);
    // The border counts, but not elements beyond it.
    let x = Tensor::new([[[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]]], &device())?;
    let params = PoolParams {
        stride: [4; 3],
        padding: [1; 3],
        ceil_mode: true,
        ..PoolParams::new([5, 6, 1])
    };
    assert_eq!(x.avg_pool(&params)?.to_vec::<f32>()?, [0.75]);
    Ok(())
}

/// `⌊i · in / out⌋` and `⌊(i + ½) · in / out⌋`, as in PyTorch, except where its quotient in f32 falls short of a whole
/// number.
#[test]
fn nearest_elements_are_exact() -> Result<()> {
    let d = &device();
    for (from, to) in (1..=33usize).flat_map(|from| (1..=33usize).map(move |to| (from, to))) {
        let x = Tensor::arange(0.0, from as f64, 1.0, d)?.reshape([1, 1, from])?;
        let found = |mode| x.interpolate(Resize::Size(&[to]), mode, false)?.to_vec::<f32>();
        let wanted: Vec<f32> = (0..to).map(|i| (i * from / to) as f32).collect();
        assert_eq!(found(InterpolateMode::Nearest)?, wanted, "{from} to {to}");
        let wanted: Vec<f32> = (0..to).map(|i| ((2 * i + 1) * from / (2 * to)) as f32).collect();
        assert_eq!(found(InterpolateMode::NearestExact)?, wanted, "{from} to {to}");
    }
    Ok(())
}

/// Extents and elements recorded from PyTorch 2.13.
#[test]
fn factors_give_the_extents_that_they_are_meant_to() -> Result<()> {
    let x = Tensor::arange(0.0, 10.0, 1.0, &device())?.reshape([1, 1, 10])?;
    let nearest = |factor: f64| {
        x.interpolate(Resize::Scale(&[factor]), InterpolateMode::Nearest, false)?
            .to_vec::<f32>()
    };
    assert_eq!(nearest(0.7)?, [0.0, 1.0, 2.0, 4.0, 5.0, 7.0, 8.0]);
    let two = x.narrow(2, 0, 2)?;
    for mode in [
        InterpolateMode::Nearest,
        InterpolateMode::NearestExact,
        InterpolateMode::Linear,
    ] {
        assert_eq!(
            two.interpolate(Resize::Scale(&[1.1]), mode, false)?.to_vec::<f32>()?,
            [0.0, 1.0],
            "{mode:?}"
        );
    }
    for (factor, to) in [(0.1, 1), (0.3, 3), (0.6, 6), (0.9, 9), (1.1, 11), (1.7, 17), (2.3, 23)] {
        assert_eq!(nearest(factor)?.len(), to, "{factor}");
    }
    let linear = x
        .square()?
        .interpolate(Resize::Scale(&[0.7]), InterpolateMode::Linear, false)?;
    let wanted: [f32; 7] = [
        0.214_285_73,
        2.928_571_7,
        9.500_002,
        20.5,
        35.214_287,
        54.357_143,
        77.357_14,
    ];
    let near = linear
        .to_vec::<f32>()?
        .iter()
        .zip(wanted)
        .all(|(a, b)| (a - b).abs() < 1e-5 * b.max(1.0));
    assert!(near, "{linear}");
    Ok(())
}
