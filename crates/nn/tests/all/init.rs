//! Initialisers have the moments and bounds of their formulas; gradient clipping gives the right norms.

use polygrad_nn::optim::*;
use polygrad_nn::*;
use polygrad_tensor::{Backend, DType, Device, Tensor, manual_seed};

on_backends!(
    draws_have_their_moments,
    default_layers_begin_as_pytorchs,
    the_same_seed_gives_the_same_model,
    norms_are_clipped,
    norms_of_two_dtypes_are_one,
    values_are_clipped,
    what_is_not_finite_is_named,
);

fn moments(values: &[f64]) -> (f64, f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let std = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
    (mean, std, values.iter().fold(0.0, |a, v| a.max(v.abs())))
}

fn draws_have_their_moments<B: Backend>(device: &Device<B>) {
    // [64, 32, 5]: fan in 160, fan out 320.
    let uniform = |bound: f64| (bound / 3f64.sqrt(), bound);
    let open = f64::INFINITY;
    let cases = [
        (Init::kaiming_uniform(), uniform((6.0 / 160.0f64).sqrt())),
        (
            Init::KaimingUniform {
                gain: 1.0,
                fan: Fan::Out,
            },
            uniform((3.0 / 320.0f64).sqrt()),
        ),
        (Init::kaiming_normal(), ((2.0 / 160.0f64).sqrt(), open)),
        (Init::xavier_uniform(), uniform((6.0 / 480.0f64).sqrt())),
        (
            Init::XavierNormal { gain: Init::GAIN_TANH },
            ((2.0 / 480.0f64).sqrt() * 5.0 / 3.0, open),
        ),
        (Init::Normal { mean: 0.0, std: 0.3 }, (0.3, open)),
        // Rows of length 1 with 160 elements.
        (Init::orthogonal(2.0), (2.0 / 160.0f64.sqrt(), open)),
        // Within two standard deviations the standard deviation is 0.8796 times that of the whole.
        (Init::trunc_normal(0.5), (0.5 * 0.8796, 1.0)),
    ];
    for (init, (expected, bound)) in cases {
        let values = init
            .tensor([64, 32, 5], DType::F64, device)
            .unwrap()
            .to_f64_vec()
            .unwrap();
        let (mean, std, largest) = moments(&values);
        assert!(mean.abs() < 0.06 * std, "{init:?}: mean {mean}");
        assert!(
            (std / expected - 1.0).abs() < 0.03,
            "{init:?}: std {std}, not {expected}"
        );
        assert!(largest <= bound, "{init:?}: {largest} is beyond {bound}");
        assert!(
            bound.is_infinite() || largest > 0.97 * bound,
            "{init:?}: {largest} of {bound}"
        );
    }
    let shifted = Init::TruncNormal {
        mean: 1.0,
        std: 0.5,
        low: 1.0,
        high: 3.0,
    };
    let values = shifted
        .tensor([5000], DType::F32, device)
        .unwrap()
        .to_f64_vec()
        .unwrap();
    assert!(values.iter().all(|v| (1.0..=3.0).contains(v)));
}

fn default_layers_begin_as_pytorchs<B: Backend>(device: &Device<B>) {
    let bounded = |param: &Param<B>, bound: f64| {
        let (_, std, largest) = moments(&param.tensor().to_f64_vec().unwrap());
        assert!(
            largest <= bound && largest > 0.8 * bound,
            "{param:?}: {largest} of {bound}"
        );
        assert!((std / bound * 3f64.sqrt() - 1.0).abs() < 0.15, "{param:?}: {std}");
    };
    let linear = Linear::new(100, 80, device).unwrap();
    bounded(&linear.weight, 0.1);
    bounded(linear.bias.as_ref().unwrap(), 0.1);
    let conv = Conv2dConfig::new(8, 64, [5, 5]).groups(2).build(device).unwrap();
    bounded(&conv.weight, 0.1);
    bounded(conv.bias.as_ref().unwrap(), 0.1);
    let embedding = Embedding::new(100, 50, device).unwrap();
    let (_, std, _) = moments(&embedding.weight.tensor().to_f64_vec().unwrap());
    assert!((std - 1.0).abs() < 0.05);
    let padded = EmbeddingConfig::new(4, 3).padding_idx(-1).build(device).unwrap();
    assert_eq!(padded.weight.tensor().to_f64_vec().unwrap()[9..], [0.0; 3]);
}

fn the_same_seed_gives_the_same_model<B: Backend>(device: &Device<B>) {
    let draw = |seed| {
        manual_seed(seed);
        let a = Init::orthogonal(1.0).tensor([4, 4], DType::F64, device).unwrap();
        let b = Init::trunc_normal(1.0).tensor([9], DType::F64, device).unwrap();
        let c = Linear::new(3, 3, device).unwrap().weight.tensor();
        [a, b, c].map(|t| t.to_f64_vec().unwrap())
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

/// Two parameters with gradients [3, 0] and [0, -4], whose total norm is 5.
fn leaves<B: Backend>(device: &Device<B>) -> (Tensor<B>, Tensor<B>, Tensor<B>) {
    let leaf = |name: &str| Tensor::var(name, Tensor::zeros([2], device).unwrap()).unwrap();
    let factor = |values: [f32; 2]| Tensor::new(values, device).unwrap();
    let (a, b) = (leaf("a"), leaf("b"));
    let loss = a
        .mul(factor([3.0, 0.0]))
        .unwrap()
        .add(b.mul(factor([0.0, -4.0])).unwrap())
        .unwrap();
    let loss = loss.sum_all().unwrap();
    (a, b, loss)
}

fn norms_are_clipped<B: Backend>(device: &Device<B>) {
    let (a, b, loss) = leaves(device);
    let mut gradients = loss.backward().unwrap();
    assert_eq!(clip_grad_norm(&mut gradients, 10.0).unwrap(), 5.0);
    assert_eq!(gradients.get(&a).unwrap().to_f64_vec().unwrap(), [3.0, 0.0]);
    assert_eq!(clip_grad_norm(&mut gradients, 1.0).unwrap(), 5.0);
    let (ga, gb) = (
        gradients.get(&a).unwrap().to_f64_vec().unwrap(),
        gradients.get(&b).unwrap().to_f64_vec().unwrap(),
    );
    let factor = 1.0 / (5.0 + 1e-6);
    assert!(
        (ga[0] - 3.0 * factor).abs() < 1e-7 && (gb[1] + 4.0 * factor).abs() < 1e-7,
        "{ga:?} {gb:?}"
    );
    assert!(clip_grad_norm(&mut gradients, f64::NAN).is_err());
}

fn norms_of_two_dtypes_are_one<B: Backend>(device: &Device<B>) {
    let leaf = |name: &str, dtype| Tensor::var(name, Tensor::zeros([2], (device, dtype)).unwrap()).unwrap();
    let (a, b) = (leaf("a", DType::F32), leaf("b", DType::F64));
    let [sum_a, sum_b] = [a.mul(3.0), b.mul(4.0)].map(|x| x.unwrap().sum_all().unwrap());
    let loss = sum_a.to_dtype(DType::F64).unwrap().add(sum_b).unwrap();
    let mut gradients = loss.backward().unwrap();
    assert_eq!(clip_grad_norm(&mut gradients, 1.0).unwrap(), 50f64.sqrt());
    let (ga, gb) = (gradients.get(&a).unwrap(), gradients.get(&b).unwrap());
    assert_eq!((ga.dtype(), gb.dtype()), (DType::F32, DType::F64));
    let clipped = ga.to_f64_vec().unwrap()[0].hypot(gb.to_f64_vec().unwrap()[1]);
    assert!((clipped - 0.5f64.sqrt()).abs() < 1e-6, "{clipped}");
}

fn values_are_clipped<B: Backend>(device: &Device<B>) {
    let (a, b, loss) = leaves(device);
    let mut gradients = loss.backward().unwrap();
    clip_grad_value(&mut gradients, 3.5).unwrap();
    assert_eq!(gradients.get(&a).unwrap().to_f64_vec().unwrap(), [3.0, 0.0]);
    assert_eq!(gradients.get(&b).unwrap().to_f64_vec().unwrap(), [0.0, -3.5]);
    assert!(clip_grad_value(&mut gradients, -1.0).is_err());
}

fn what_is_not_finite_is_named<B: Backend>(device: &Device<B>) {
    let (_, b, loss) = leaves(device);
    let loss = (&loss + (&b * f64::INFINITY).unwrap().sum_all()).unwrap();
    let mut gradients = loss.backward().unwrap();
    let text = clip_grad_norm(&mut gradients, 1.0).unwrap_err().to_string();
    assert!(text.contains("not finite: b"), "{text}");
}
