//! The statements about this library in docs/differences.md, row by row, unless another test covers them.

use crate::common::{f64_of, randn};
use polygrad_nn::loss::{KLDivLoss, Reduction, mse_loss};
use polygrad_nn::optim::{
    ChainedScheduler, CosineAnnealingLR, LinearLR, Optimizer, PlateauMode, ReduceLROnPlateauConfig, SGD, Schedule,
};
use polygrad_nn::{Masks, MultiheadAttention, Param};
use polygrad_reference::Reference;
use polygrad_tensor::{
    Backend, ConvParams, DType, Device, ErrorKind, InterpolateMode, PoolParams, Resize, Result, RoundingMode, Tensor,
};

on_backends!(
    integers_divided_by_zero_are_zero,
    floats_saturate_as_integers,
    integers_have_negative_powers,
    a_mean_of_nothing_is_an_error,
    integers_are_not_averaged,
    infinity_divides_to_infinity,
    gradients_at_the_edges,
    one_of_equal_medians_takes_the_gradient,
    equals_keep_their_order,
    nearest_takes_one_element,
    no_channels_give_the_whole_shape,
    who_sees_nothing_gets_zero,
);

fn integers<B: Backend>(values: &[i64], device: &Device<B>) -> Tensor<B> {
    Tensor::from_slice(values, [values.len()], device).unwrap()
}

fn gradient<B: Backend>(values: &[f64], device: &Device<B>, f: impl Fn(&Tensor<B>) -> Result<Tensor<B>>) -> Vec<f64> {
    let x = f64_of(values.to_vec(), &[values.len()], device)
        .requires_grad()
        .unwrap();
    let gradients = f(&x).unwrap().sum_all().unwrap().backward().unwrap();
    gradients.require(&x).unwrap().to_f64_vec().unwrap()
}

fn integers_divided_by_zero_are_zero<B: Backend>(device: &Device<B>) {
    let (a, b) = (integers(&[7, -7, i64::MIN], device), integers(&[0, 0, -1], device));
    let floor = a.div_rounded(&b, RoundingMode::Floor).unwrap();
    assert_eq!(floor.to_vec::<i64>().unwrap(), [0, 0, i64::MIN]);
}

fn floats_saturate_as_integers<B: Backend>(device: &Device<B>) {
    let x = f64_of(vec![1e10, -1e10, f64::NAN, f64::INFINITY], &[4], device);
    let narrow = x.to_dtype(DType::I32).unwrap();
    assert_eq!(narrow.to_vec::<i32>().unwrap(), [i32::MAX, i32::MIN, 0, i32::MAX]);
    let bytes = f64_of(vec![300.0, -1.0], &[2], device).to_dtype(DType::U8).unwrap();
    assert_eq!(bytes.to_vec::<u8>().unwrap(), [255, 0]);
}

fn integers_have_negative_powers<B: Backend>(device: &Device<B>) {
    let powers = integers(&[2, -1, 1, 0], device)
        .pow(integers(&[-2, -1, -3, -1], device))
        .unwrap();
    assert_eq!(powers.to_vec::<i64>().unwrap(), [0, -1, 1, 0]);
}

fn a_mean_of_nothing_is_an_error<B: Backend>(device: &Device<B>) {
    let nothing = f64_of(Vec::new(), &[0], device);
    let results = [nothing.mean_all(), nothing.mean(0), mse_loss(&nothing, &nothing)];
    for result in results {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Shape);
    }
    assert!(nothing.variance(0, 1).unwrap().to_f64_vec().unwrap()[0].is_nan());
}

#[test]
fn activations_have_their_limits() {
    let x = f64_of(vec![f64::NEG_INFINITY], &[1], &Device::<polygrad_cpu::Cpu>::default());
    for y in [x.silu(), x.gelu(), x.gelu_tanh()] {
        assert_eq!(y.unwrap().to_f64_vec().unwrap(), [0.0]);
    }
}

fn integers_are_not_averaged<B: Backend>(device: &Device<B>) {
    let x = integers(&[1, 2], device).reshape([1, 1, 2]).unwrap();
    let error = x.avg_pool(&PoolParams::new([2, 1, 1])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DType);
    assert!(error.to_string().contains("to_dtype"), "{error}");
}

fn infinity_divides_to_infinity<B: Backend>(device: &Device<B>) {
    let (x, two) = (
        f64_of(vec![f64::INFINITY], &[1], device),
        f64_of(vec![2.0], &[1], device),
    );
    let floor = x.div_rounded(&two, RoundingMode::Floor).unwrap();
    assert_eq!(floor.to_f64_vec().unwrap(), [f64::INFINITY]);
}

fn gradients_at_the_edges<B: Backend>(device: &Device<B>) {
    let input = f64_of(vec![-1.0, -2.0], &[2], device);
    let by_target = gradient(&[0.0, 1.0], device, |target| {
        KLDivLoss::new().reduction(Reduction::None).forward(&input, target)
    });
    assert!(by_target.iter().all(|slope| slope.is_finite()), "{by_target:?}");
    assert!(gradient(&[f64::NAN], device, |x| x.elu(1.0))[0].is_nan());
    let product = gradient(&[f64::INFINITY, 0.0, 2.0], device, |x| x.prod(0));
    assert_eq!(product[0], 0.0);
}

fn one_of_equal_medians_takes_the_gradient<B: Backend>(device: &Device<B>) {
    let slopes = gradient(&[2.0, 1.0, 2.0, 3.0, 2.0], device, Tensor::median_all);
    assert_eq!(slopes.iter().filter(|&&slope| slope == 1.0).count(), 1);
    assert_eq!(slopes.iter().sum::<f64>(), 1.0);
}

fn equals_keep_their_order<B: Backend>(device: &Device<B>) {
    let (_, indices) = f64_of(vec![1.0; 4], &[4], device).topk(2, 0, true).unwrap();
    assert_eq!(indices.to_vec::<i64>().unwrap(), [0, 1]);
}

/// Position i · (1 / 1.3), whatever the number of axes.
fn nearest_takes_one_element<B: Backend>(device: &Device<B>) {
    let line = f64_of(vec![0.0, 1.0, 2.0], &[1, 1, 3], device);
    let flat = line.reshape([1, 1, 1, 3]).unwrap();
    let one = line.interpolate(Resize::Scale(&[1.3]), InterpolateMode::Nearest, false);
    let two = flat.interpolate(Resize::Scale(&[1.0, 1.3]), InterpolateMode::Nearest, false);
    let one = one.unwrap().to_f64_vec().unwrap();
    assert_eq!(one, [0.0, 1.0, 2.0]);
    assert_eq!(two.unwrap().to_f64_vec().unwrap(), one);
}

fn no_channels_give_the_whole_shape<B: Backend>(device: &Device<B>) {
    let (x, weight) = (
        f64_of(Vec::new(), &[2, 0, 5], device),
        f64_of(Vec::new(), &[4, 0, 3], device),
    );
    let y = x.conv(&weight, None, &ConvParams::default()).unwrap();
    assert_eq!(y.dims(), [2, 4, 3]);
    assert!(y.to_f64_vec().unwrap().iter().all(|&value| value == 0.0));
}

fn who_sees_nothing_gets_zero<B: Backend>(device: &Device<B>) {
    let attention = MultiheadAttention::new(2, 1, device).unwrap();
    let x = Tensor::ones([1, 2, 2], device).unwrap();
    let hidden = Tensor::new([[true], [true]], device).unwrap();
    let masks = Masks::default().with_key_padding_mask(&hidden);
    let (y, weights) = attention.forward_with_weights(&x, &x, &x, masks).unwrap();
    assert!(y.to_f64_vec().unwrap().iter().all(|value| value.is_finite()));
    assert!(weights.to_f64_vec().unwrap().iter().all(|&weight| weight == 0.0));
}

/// Each schedule starts from the result of the one before; PyTorch's multiplies the current rate.
#[test]
fn chained_schedules_are_functions_of_the_step() {
    let (warm_up, cosine) = (
        LinearLR::warm_up(4),
        CosineAnnealingLR {
            t_max: 10,
            eta_min: 0.1,
        },
    );
    let chained = ChainedScheduler::new(warm_up).and(cosine);
    for step in 0..12 {
        assert_eq!(chained.lr(1.0, step), cosine.lr(warm_up.lr(1.0, step), step));
    }
}

#[test]
fn a_plateau_has_any_sign() {
    let growing: Vec<f64> = (0..40).map(|step| -100.0 + 0.009 * f64::from(step)).collect();
    for (mode, sign) in [(PlateauMode::Min, 1.0), (PlateauMode::Max, -1.0)] {
        for shift in [0.0, 1000.0] {
            let param = Param::new(randn(&[1], &Device::<Reference>::default())).unwrap();
            let mut optimizer = SGD::new([param], 0.1).unwrap();
            let mut plateau = ReduceLROnPlateauConfig::new(mode).patience(5).build().unwrap();
            for metric in &growing {
                plateau.step(sign * (metric + shift), &mut optimizer).unwrap();
            }
            assert_eq!(plateau.best(), sign * (growing[0] + shift));
            assert!(optimizer.lr() < 1e-6, "{}", optimizer.lr());
            // A hundredth of a per cent is still an improvement, and nothing less.
            let best = plateau.best();
            plateau.step(best - 0.9e-4 * sign * best.abs(), &mut optimizer).unwrap();
            assert_eq!(plateau.best(), best);
            let better = best - 1.1e-4 * sign * best.abs();
            plateau.step(better, &mut optimizer).unwrap();
            assert_eq!(plateau.best(), better);
        }
    }
}
