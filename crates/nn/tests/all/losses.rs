//! Losses beyond PyTorch's samples: invalid input, and extreme values.

use crate::common::f64_of;
use polygrad_nn::loss::*;
use polygrad_tensor::{Backend, DType, Device, ErrorKind, Result, Tensor, manual_seed};

on_backends!(
    bad_input_is_named,
    a_target_of_zero_costs_nothing,
    certain_and_wrong_stays_finite,
    what_is_ignored_gets_no_gradient,
    small_gradients_are_not_lost,
    options_and_lengths_are_checked,
    no_alignment_is_infinitely_unlikely,
    labels_in_a_row_are_those_of_padded_rows,
    the_ends_of_the_ranges_have_gradients,
    losses_in_parts_are_those_of_all_logits,
);

#[track_caller]
fn fails<T>(result: Result<T>, kind: ErrorKind, parts: &[&str]) {
    let Err(error) = result else {
        panic!("no error, but {kind:?} with {parts:?} was expected");
    };
    assert_eq!(error.kind(), kind, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{part:?} is missing in: {error}");
    }
}

fn bad_input_is_named<B: Backend>(device: &Device<B>) {
    let (x, y) = (
        f64_of(vec![0.5; 3], &[3], device),
        f64_of(vec![0.5; 3], &[3, 1], device),
    );
    let how = Reduction::Mean;
    let shapes = [
        ("binary_cross_entropy", BCELoss::new().reduction(how).forward(&x, &y)),
        ("kl_div", KLDivLoss::new().reduction(how).forward(&x, &y)),
        ("smooth_l1_loss", SmoothL1Loss::new().reduction(how).forward(&x, &y)),
    ];
    for (op, result) in shapes {
        fails(result, ErrorKind::Shape, &[op, "f64[3]", "f64[3, 1]", "reshape"]);
    }
    let narrow = x.to_dtype(DType::F32).unwrap();
    fails(
        BCELoss::new().reduction(how).forward(&x, &narrow),
        ErrorKind::DType,
        &["binary_cross_entropy", "one float dtype", "to_dtype"],
    );
    fails(
        SmoothL1Loss::new().beta(-1.0).reduction(how).forward(&x, &x),
        ErrorKind::InvalidArgument,
        &["smooth_l1_loss", "beta = -1"],
    );
    let scalar = f64_of(vec![0.5], &[], device);
    let empty = f64_of(Vec::new(), &[0, 2], device);
    for x in [scalar, empty] {
        fails(
            KLDivLoss::new().batch_mean(true).forward(&x, &x),
            ErrorKind::Shape,
            &["kl_div", "no batch"],
        );
    }
}

/// The limit of y ln y; PyTorch gives the same value, but its gradient for such a target is NaN.
fn a_target_of_zero_costs_nothing<B: Backend>(device: &Device<B>) {
    let x = f64_of(vec![-1.0, -2.0], &[2], device).requires_grad().unwrap();
    let y = f64_of(vec![0.0, 1.0], &[2], device);
    let loss = KLDivLoss::new().reduction(Reduction::None).forward(&x, &y).unwrap();
    assert_eq!(loss.to_f64_vec().unwrap(), [0.0, 2.0]);
    let gradients = loss.sum_all().unwrap().backward().unwrap();
    assert_eq!(gradients.require(&x).unwrap().to_f64_vec().unwrap(), [0.0, -1.0]);
}

/// A logarithm is limited to −100 and the slope's denominator to 1e-12, as in PyTorch.
fn certain_and_wrong_stays_finite<B: Backend>(device: &Device<B>) {
    let x = f64_of(vec![0.0, 1.0, 2.0], &[3], device).requires_grad().unwrap();
    let y: Tensor<B> = f64_of(vec![1.0, 0.0, 0.0], &[3], device);
    let loss = BCELoss::new().reduction(Reduction::None).forward(&x, &y).unwrap();
    let values = loss.to_f64_vec().unwrap();
    assert_eq!(values[..2], [100.0, 100.0]);
    assert!(values[2].is_nan(), "2 is no probability");
    let gradients = loss.sum_all().unwrap().backward().unwrap();
    let slopes = gradients.require(&x).unwrap().to_f64_vec().unwrap();
    let steepest = 1.0 / f64::from(1e-12f32);
    assert_eq!(slopes[..2], [-steepest, steepest]);
}

/// If everything is ignored, the mean is NaN and its gradient 0, as in PyTorch.
fn what_is_ignored_gets_no_gradient<B: Backend>(device: &Device<B>) {
    let weight = || f64_of(vec![1.0, 2.0, 0.5], &[3], device);
    // A log probability of minus infinity at an ignored target.
    let logits = f64_of(vec![f64::NEG_INFINITY, 0.25, -0.5, 1.0, 0.0, 0.5], &[2, 3], device);
    type Loss<'a, B> = Box<dyn Fn(&Tensor<B>, &Tensor<B>) -> Result<Tensor<B>> + 'a>;
    let of = |reduction: Reduction| -> Vec<(&'static str, Loss<'_, B>)> {
        let nll = move || NLLLoss::new().reduction(reduction);
        let entropy = move || CrossEntropyLoss::new().reduction(reduction);
        vec![
            ("nll", Box::new(move |x, y| nll().forward(x, y))),
            (
                "weighted nll",
                Box::new(move |x, y| nll().weight(weight()).forward(x, y)),
            ),
            ("cross entropy", Box::new(move |x, y| entropy().forward(x, y))),
            (
                "smoothed",
                Box::new(move |x, y| entropy().label_smoothing(0.1).forward(x, y)),
            ),
            (
                "weighted",
                Box::new(move |x, y| entropy().weight(weight()).forward(x, y)),
            ),
            (
                "weighted and smoothed",
                Box::new(move |x, y| entropy().weight(weight()).label_smoothing(0.1).forward(x, y)),
            ),
        ]
    };
    let gradient = |loss: &Tensor<B>, x: &Tensor<B>| {
        let gradients = loss.sum_all().unwrap().backward().unwrap();
        gradients.require(x).unwrap().to_f64_vec().unwrap()
    };
    let target = |classes: [i64; 2]| Tensor::from_slice(&classes, [2], device).unwrap();
    for (name, loss) in of(Reduction::Mean) {
        let x = logits.clone().requires_grad().unwrap();
        let y = loss(&x, &target([-100; 2])).unwrap();
        assert!(y.item().unwrap().is_nan(), "{name}");
        assert_eq!(gradient(&y, &x), [0.0; 6], "{name}");
    }
    for reduction in [Reduction::Mean, Reduction::Sum, Reduction::None] {
        for (name, loss) in of(reduction) {
            let x = logits.clone().requires_grad().unwrap();
            let y = loss(&x, &target([-100, 2])).unwrap();
            assert!(y.sum_all().unwrap().item().unwrap().is_finite(), "{name} {reduction:?}");
            let slopes = gradient(&y, &x);
            assert_eq!(slopes[..3], [0.0; 3], "{name} {reduction:?}");
            assert!(slopes[5] < 0.0, "{name} {reduction:?}: {slopes:?}");
        }
    }
}

/// If the gradient is not a difference of larger numbers, it is as exact as the dtype.
fn small_gradients_are_not_lost<B: Backend>(device: &Device<B>) {
    let of = |values: &[f32]| Tensor::from_slice(values, [values.len()], device).unwrap();
    let slopes = |x: &[f32], loss: &dyn Fn(&Tensor<B>) -> Result<Tensor<B>>| {
        let x = of(x).requires_grad().unwrap();
        let gradients = loss(&x).unwrap().sum_all().unwrap().backward().unwrap();
        gradients.require(&x).unwrap().to_f64_vec().unwrap()
    };
    let near = |found: f64, right: f64| assert!((found / right - 1.0).abs() < 1e-5, "{found} for {right}");
    let found = slopes(&[-17.0, 17.0], &|x| {
        BCEWithLogitsLoss::new()
            .reduction(Reduction::None)
            .forward(x, &of(&[0.0, 1.0]))
    });
    let easy = 1.0 / (1.0 + 17f64.exp());
    near(found[0], easy);
    near(found[1], -easy);
    let x = [1e-8, -1e-4, 3.0, f32::NAN];
    let found = slopes(&x, &|x| {
        HuberLoss::new().reduction(Reduction::None).forward(x, &of(&[0.0; 4]))
    });
    near(found[0], f64::from(x[0]));
    near(found[1], f64::from(x[1]));
    assert_eq!(found[2], 1.0);
    assert!(found[3].is_nan());
}

fn options_and_lengths_are_checked<B: Backend>(device: &Device<B>) {
    let x = f64_of(vec![0.5; 6], &[3, 2], device);
    let classes = Tensor::from_slice(&[0i64, 1, 1], [3], device).unwrap();
    fails(
        TripletMarginLoss::new().margin(0.0).forward(&x, &x, &x),
        ErrorKind::InvalidArgument,
        &["triplet_margin_loss", "margin = 0 must be above 0"],
    );
    fails(
        MultiMarginLoss::new().p(3).forward(&x, &classes),
        ErrorKind::InvalidArgument,
        &["multi_margin_loss", "p = 3 must be 1 or 2"],
    );
    fails(
        GaussianNLLLoss::new().eps(0.0).forward(&x, &x, &x),
        ErrorKind::InvalidArgument,
        &["gaussian_nll_loss", "eps = 0"],
    );
    let shapes = [
        (
            "margin_ranking_loss",
            margin_ranking_loss(&x, &x, &x.narrow(1, 0, 1).unwrap()),
        ),
        (
            "triplet_margin_loss",
            triplet_margin_loss(&x, &x, &x.narrow(1, 0, 1).unwrap()),
        ),
        ("cosine_embedding_loss", cosine_embedding_loss(&x, &x, &x)),
        (
            "multi_margin_loss",
            multi_margin_loss(&x.unsqueeze(0).unwrap(), &classes),
        ),
        ("multilabel_margin_loss", multilabel_margin_loss(&x, &classes)),
        ("multilabel_soft_margin_loss", multilabel_soft_margin_loss(&x, &classes)),
        (
            "gaussian_nll_loss",
            gaussian_nll_loss(&x, &x, &x.narrow(0, 0, 1).unwrap()),
        ),
    ];
    for (op, result) in shapes {
        fails(result, ErrorKind::Shape, &[op, "operands: f64["]);
    }
    let log_p = Tensor::zeros([4, 1, 3], (device, DType::F64)).unwrap();
    let labels = Tensor::from_slice(&[1i64, 2], [1, 2], device).unwrap();
    fails(
        ctc_loss(&log_p, &labels, &[5], &[2]),
        ErrorKind::Shape,
        &["ctc_loss", "of 4 steps", "input lengths [5]"],
    );
    fails(
        ctc_loss(&log_p, &labels, &[4], &[3]),
        ErrorKind::Shape,
        &["ctc_loss", "target lengths [3]"],
    );
    fails(
        ctc_loss(&log_p, &labels, &[4, 4], &[2]),
        ErrorKind::Shape,
        &["ctc_loss", "1 sequences"],
    );
    fails(
        ctc_loss(&x, &labels, &[4], &[2]),
        ErrorKind::Shape,
        &["ctc_loss", "[T, N, C]"],
    );
    fails(
        CTCLoss::new().blank(3).forward(&log_p, &labels, &[4], &[2]),
        ErrorKind::OutOfRange,
        &["ctc_loss", "3 of 3 classes"],
    );
    let narrow = labels.to_dtype(DType::I32).unwrap();
    fails(
        ctc_loss(&log_p, &narrow, &[4], &[2]),
        ErrorKind::DType,
        &["ctc_loss", "i64, not i32"],
    );
    let beyond = (labels + 1i64).unwrap();
    fails(
        ctc_loss(&log_p, &beyond, &[4], &[2]),
        ErrorKind::OutOfRange,
        &["ctc_loss"],
    );
}

/// PyTorch's value is the same; its gradient is NaN.
fn no_alignment_is_infinitely_unlikely<B: Backend>(device: &Device<B>) {
    let logits = f64_of((0..12).map(|i| f64::from(i % 5)).collect(), &[2, 2, 3], device);
    let logits = logits.requires_grad().unwrap();
    let labels = Tensor::from_slice(&[1i64, 1, 2, 1], [2, 2], device).unwrap();
    for dtype in [DType::F64, DType::F32, DType::F16] {
        let log_p = logits.to_dtype(dtype).unwrap().log_softmax(2).unwrap();
        let loss = CTCLoss::new().reduction(Reduction::None);
        let losses = loss.forward(&log_p, &labels, &[2, 2], &[2, 2]).unwrap();
        let values = losses.to_f64_vec().unwrap();
        assert!(values[0] == f64::INFINITY && values[1].is_finite(), "{values:?}");
        let gradients = losses.sum_all().unwrap().backward().unwrap();
        let slopes = gradients.require(&logits).unwrap().to_f64_vec().unwrap();
        assert!(slopes.iter().all(|slope| slope.is_finite()), "{slopes:?}");
        assert!(
            slopes[..3].iter().all(|slope| *slope == 0.0) && slopes[3] != 0.0,
            "{slopes:?}"
        );
    }
    // An impossible class makes labels that need it impossible, and no others.
    let mut certain = vec![f64::NEG_INFINITY; 12];
    for (step, class) in [2, 1, 2, 1].into_iter().enumerate() {
        certain[3 * step + class] = 0.0;
    }
    let certain = f64_of(certain, &[2, 2, 3], device);
    let loss = CTCLoss::new().reduction(Reduction::None);
    let losses = loss
        .forward(&certain, &labels, &[2, 2], &[1, 1])
        .unwrap()
        .to_f64_vec()
        .unwrap();
    assert_eq!(losses, [f64::INFINITY, f64::INFINITY]);
    let of_second = Tensor::from_slice(&[2i64, 1], [2, 1], device).unwrap();
    let losses = loss
        .forward(&certain, &of_second, &[2, 2], &[1, 1])
        .unwrap()
        .to_f64_vec()
        .unwrap();
    assert_eq!(losses, [0.0, 0.0]);
}

/// In cases where PyTorch's gradients are NaN: a count of 0, for which Stirling's approximation is invalid, and a
/// margin that overflows.
fn the_ends_of_the_ranges_have_gradients<B: Backend>(device: &Device<B>) {
    let x: Tensor<B> = f64_of(vec![0.0, 800.0], &[2], device).requires_grad().unwrap();
    let y = f64_of(vec![0.0, 1.0], &[2], device).requires_grad().unwrap();
    let loss = PoissonNLLLoss::new()
        .log_input(false)
        .full(true)
        .reduction(Reduction::Sum);
    let gradients = loss.forward(&x, &y).unwrap().backward().unwrap();
    let slopes = gradients.require(&y).unwrap().to_f64_vec().unwrap();
    assert!(slopes.iter().all(|slope| slope.is_finite()), "{slopes:?}");
    let y = f64_of(vec![1.0, -1.0], &[2], device);
    let loss = SoftMarginLoss::new()
        .reduction(Reduction::None)
        .forward(&x, &y)
        .unwrap();
    assert_eq!(loss.to_f64_vec().unwrap()[1], 800.0);
    let gradients = loss.sum_all().unwrap().backward().unwrap();
    assert_eq!(gradients.require(&x).unwrap().to_f64_vec().unwrap(), [-0.5, 1.0]);
}

fn labels_in_a_row_are_those_of_padded_rows<B: Backend>(device: &Device<B>) {
    let values = (0..5 * 3 * 4).map(|i| f64::from(i * 7 % 11)).collect();
    let log_p = f64_of(values, &[5, 3, 4], device).log_softmax(2).unwrap();
    let labels = |values: &[i64], dims: &[usize]| Tensor::from_slice(values, dims.to_vec(), device).unwrap();
    let padded = labels(&[1, 2, 3, 0, 0, 0, 3, 1, 0], &[3, 3]);
    let in_a_row = labels(&[1, 2, 3, 3, 1], &[5]);
    let (steps, lengths) = ([5, 4, 5], [3, 0, 2]);
    for how in [Reduction::Mean, Reduction::Sum, Reduction::None] {
        let loss = CTCLoss::new().reduction(how);
        let of = |labels: &Tensor<B>| loss.forward(&log_p, labels, &steps, &lengths).unwrap();
        assert_eq!(of(&in_a_row).to_f64_vec().unwrap(), of(&padded).to_f64_vec().unwrap());
        let alone = loss.forward(&log_p.narrow(1, 2, 1).unwrap(), &labels(&[3, 1], &[1, 2]), &[5], &[2]);
        let of_one = loss.forward(&log_p.select(1, 2).unwrap(), &labels(&[3, 1], &[2]), &[5], &[2]);
        let (alone, of_one) = (alone.unwrap(), of_one.unwrap());
        assert_eq!(of_one.rank(), 0);
        assert_eq!(of_one.to_f64_vec().unwrap(), alone.to_f64_vec().unwrap());
    }
    fails(
        ctc_loss(&log_p, &in_a_row, &steps, &[3, 1, 2]),
        ErrorKind::Shape,
        &["ctc_loss", "5 labels", "[3, 1, 2]"],
    );
    fails(
        ctc_loss(&log_p, &in_a_row, &steps, &[usize::MAX, 3, 3]),
        ErrorKind::Shape,
        &["ctc_loss", "5 labels"],
    );
    let none = labels(&[], &[0]);
    let empty = ctc_loss(&log_p, &none, &steps, &[0, 0, 0]).unwrap();
    assert!(empty.item().unwrap().is_finite());
}

fn cross_entropy_rows<B: Backend>(logits: &Tensor<B>, target: &Tensor<B>) -> Tensor<B> {
    let loss = CrossEntropyLoss::new().reduction(Reduction::None);
    loss.forward(&logits.transpose(1, 2).unwrap(), target).unwrap()
}

/// What PyTorch gives is held in `conformance/data/edges`, for parts of two rows.
fn losses_in_parts_are_those_of_all_logits<B: Backend>(device: &Device<B>) {
    manual_seed(4);
    let draw = |dims: &[usize]| {
        Tensor::<B>::randn(dims, (device, DType::F64))
            .unwrap()
            .requires_grad()
            .unwrap()
    };
    let (x, weight, bias) = (draw(&[2, 4, 3]), draw(&[6, 3]), draw(&[6]));
    let target = Tensor::new([[0i64, 5, -100, 2], [1, 1, -100, 4]], device).unwrap();
    let logits = |x: &Tensor<B>| x.linear(&weight, Some(&bias));
    let gradients = |loss: &Tensor<B>| -> Vec<f64> {
        let gradients = loss.sum_all().unwrap().backward().unwrap();
        let of = |x: &Tensor<B>| gradients.get(x).unwrap().to_f64_vec().unwrap();
        [of(&x), of(&weight), of(&bias)].concat()
    };
    for reduction in [Reduction::Mean, Reduction::Sum, Reduction::None] {
        let loss = CrossEntropyLoss::new().reduction(reduction).label_smoothing(0.1);
        let whole = loss
            .forward(&logits(&x).unwrap().transpose(1, 2).unwrap(), &target)
            .unwrap();
        for rows in [0, 1, 3, 8, 100] {
            let (weight, bias) = (weight.clone(), bias.clone());
            let head = move |x: &Tensor<B>| x.linear(&weight, Some(&bias));
            let parts = loss.forward_chunked(&x, &target, rows, head).unwrap();
            assert_eq!(parts.dims(), whole.dims());
            let near = |a: Vec<f64>, b: Vec<f64>| a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-12);
            assert!(near(parts.to_f64_vec().unwrap(), whole.to_f64_vec().unwrap()), "{rows}");
            assert!(near(gradients(&parts), gradients(&whole)), "{rows}");
        }
    }
    // A frozen head: the input's gradient alone, computed with the losses, in each of their scales.
    let frozen = weight.detach();
    let own = frozen.clone();
    let parts = CrossEntropyLoss::new()
        .reduction(Reduction::None)
        .forward_chunked(&x, &target, 3, move |x| x.linear(&own, None))
        .unwrap();
    let scales = Tensor::randn([2, 4], (device, DType::F64)).unwrap();
    let whole = cross_entropy_rows(&x.linear(&frozen, None).unwrap(), &target);
    let [found, wanted] = [parts, whole].map(|losses| {
        let gradients = losses.mul(&scales).unwrap().sum_all().unwrap().backward().unwrap();
        assert_eq!(gradients.len(), 1);
        gradients.get(&x).unwrap().to_f64_vec().unwrap()
    });
    assert!(found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-12));
    // In 16 bits the losses are rounded once.
    let half = x.detach().to_dtype(DType::F16).unwrap();
    let weight = weight.detach().to_dtype(DType::F16).unwrap();
    let head = move |x: &Tensor<B>| x.linear(&weight, None);
    let loss = CrossEntropyLoss::new();
    let whole = loss
        .forward(
            &head(&half).unwrap().flatten(0, 1).unwrap(),
            &target.flatten(0, 1).unwrap(),
        )
        .unwrap();
    let parts = loss.forward_chunked(&half, &target, 3, head.clone()).unwrap();
    assert_eq!(
        (parts.dtype(), parts.item().unwrap()),
        (DType::F16, whole.item().unwrap())
    );
    // No rows at all.
    let [none, empty] = [&half, &target].map(|x| x.narrow(0, 0, 0).unwrap());
    let sum = CrossEntropyLoss::new().reduction(Reduction::Sum);
    assert_eq!(
        sum.forward_chunked(&none, &empty, 3, head.clone())
            .unwrap()
            .item()
            .unwrap(),
        0.0
    );
    // Arguments that do not fit.
    let row = target.narrow(0, 0, 1).unwrap();
    fails(
        loss.forward_chunked(&half, &row, 3, head.clone()),
        ErrorKind::Shape,
        &["cross_entropy", "f16[2, 4, 3]", "i64[1, 4]"],
    );
    fails(
        loss.forward_chunked(&half, &half, 3, head.clone()),
        ErrorKind::DType,
        &["class indices are i64, not f16"],
    );
    let unknown = target.masked_fill(&target.eq(5).unwrap(), 6).unwrap();
    assert!(loss.forward_chunked(&half, &unknown, 3, head).is_err());
}
