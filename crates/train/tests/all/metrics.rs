//! Metrics agree with scikit-learn: scripts/make_metric_values.py prints the values.

use polygrad_core::{DType, Result};
use polygrad_nn::loss::{CrossEntropyLoss, Reduction};
use polygrad_tensor::{Device, Tensor};
use polygrad_train::{
    Accuracy, Auroc, Average, F1, JaccardIndex, MeanAbsoluteError, MeanSquaredError, Metric, Perplexity, Precision,
    R2Score, Recall, RootMeanSquaredError,
};

const COUNT: usize = 60;
const CLASSES: usize = 4;

fn device() -> Device {
    Device::<polygrad_cpu::Cpu>::default().into_any()
}

/// A linear congruential generator.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> f64 {
        self.0 = (self.0 * 1_103_515_245 + 12_345) % (1 << 31);
        self.0 as f64 / (1_u64 << 31) as f64
    }

    fn numbers(&mut self, count: usize, f: impl Fn(f64) -> f64) -> Vec<f64> {
        (0..count).map(|_| f(self.next())).collect()
    }

    fn labels(&mut self, classes: f64) -> Vec<i64> {
        (0..COUNT).map(|_| (self.next() * classes) as i64).collect()
    }
}

/// Adds the predictions in two batches, the second to a metric that continues from the first one's state.
fn held(metric: impl Metric, predictions: &Tensor, targets: &Tensor, expected: f64) {
    let mut metric = metric.boxed();
    assert!(metric.value().is_nan());
    let part = |x: &Tensor, begin: usize, count: usize| x.narrow(0, begin, count).unwrap();
    metric.update(&part(predictions, 0, 23), &part(targets, 0, 23)).unwrap();
    let state = metric.state();
    metric.reset();
    assert!(metric.value().is_nan());
    metric.load_state(&state).unwrap();
    metric
        .update(&part(predictions, 23, COUNT - 23), &part(targets, 23, COUNT - 23))
        .unwrap();
    let name = metric.name().to_owned();
    assert!(
        (metric.value() - expected).abs() < 1e-6,
        "{name}: {} is not {expected}",
        metric.value()
    );
    assert!(metric.load_state(&[0.5; 3]).is_err(), "{name}");
}

#[test]
fn metrics_are_those_of_scikit_learn() -> Result<()> {
    let device = device();
    let tensor = |values: Vec<f64>| Tensor::from_vec(values, [COUNT], &device);
    let mut draw = Draw(1);
    let logits = Tensor::from_vec(draw.numbers(COUNT * CLASSES, |x| x), [COUNT, CLASSES], &device)?;
    let targets = Tensor::from_vec(draw.labels(3.0), [COUNT], &device)?;
    held(Accuracy::new(), &logits, &targets, 0.216_666_666_666_666_67);
    for (average, precision, recall, f1) in [
        (
            Average::Macro,
            0.200_644_841_269_841_28,
            0.153_021_978_021_978_02,
            0.171_679_197_994_987_43,
        ),
        (
            Average::Weighted,
            0.296_990_740_740_740_7,
            0.216_666_666_666_666_67,
            0.247_953_216_374_269,
        ),
        (
            Average::Micro,
            0.216_666_666_666_666_67,
            0.216_666_666_666_666_67,
            0.216_666_666_666_666_67,
        ),
    ] {
        held(Precision::new().average(average), &logits, &targets, precision);
        held(Recall::new().average(average), &logits, &targets, recall);
        held(F1::new().average(average), &logits, &targets, f1);
    }
    for (average, iou) in [
        (Average::Macro, 0.098_642_533_936_651_58),
        (Average::Weighted, 0.143_831_070_889_894_4),
        (Average::Micro, 0.121_495_327_102_803_74),
    ] {
        held(JaccardIndex::new().average(average), &logits, &targets, iou);
    }
    held(
        JaccardIndex::new().ignore_index(1),
        &logits,
        &targets,
        0.086_660_617_059_891_12,
    );
    let of_classes = |values: Vec<f64>, expected: [f64; 4]| {
        assert_eq!(values.len(), CLASSES);
        assert!(
            values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-8),
            "{values:?}"
        );
    };
    let (mut iou, mut f1) = (JaccardIndex::new(), F1::new());
    iou.update(&logits, &targets)?;
    f1.update(&logits, &targets)?;
    of_classes(iou.per_class(), [0.2, 0.117_647_06, 0.076_923_08, 0.0]);
    of_classes(f1.per_class(), [0.333_333_33, 0.210_526_32, 0.142_857_14, 0.0]);
    let scores = tensor(draw.numbers(COUNT, |x| (x * 8.0).round_ties_even() / 8.0 - 0.5))?;
    let truth = Tensor::from_vec(draw.labels(2.0), [COUNT], &device)?;
    held(
        Precision::new().average(Average::Binary),
        &scores,
        &truth,
        0.413_793_103_448_275_86,
    );
    held(
        Recall::new().average(Average::Binary),
        &scores,
        &truth,
        0.461_538_461_538_461_56,
    );
    held(
        F1::new().average(Average::Binary),
        &scores,
        &truth,
        0.436_363_636_363_636_34,
    );
    held(
        JaccardIndex::new().average(Average::Binary),
        &scores,
        &truth,
        0.279_069_767_441_860_46,
    );
    held(Auroc::new(), &scores, &truth, 0.483_597_285_067_873_25);
    held(
        Auroc::new(),
        &Tensor::stack(&[scores.neg()?, scores.clone()], 1)?,
        &truth,
        0.483_597_285_067_873_25,
    );
    held(Perplexity::new(), &logits, &targets, 4.196_710_558_902_694);
    let losses = CrossEntropyLoss::new()
        .reduction(Reduction::None)
        .forward(&logits, &targets)?;
    held(Perplexity::new(), &losses, &targets, 4.196_710_558_902_694);
    let (numbers, predicted) = (
        tensor(draw.numbers(COUNT, |x| 10.0 * x))?,
        tensor(draw.numbers(COUNT, |x| 10.0 * x))?,
    );
    held(MeanAbsoluteError::new(), &predicted, &numbers, 3.285_884_033_267_697);
    held(MeanSquaredError::new(), &predicted, &numbers, 16.733_583_168_389_853);
    held(RootMeanSquaredError::new(), &predicted, &numbers, 4.090_670_259_063_892);
    held(R2Score::new(), &predicted, &numbers, -1.492_699_687_784_390_3);
    Ok(())
}

#[test]
fn masks_are_measured_pixel_by_pixel() -> Result<()> {
    let device = device();
    // Two images of 2 × 2 pixels with three classes; 255 marks ignored pixels.
    let answers = [[[0_i64, 1], [1, 2]], [[0, 0], [2, 1]]];
    let logits = Tensor::new(answers, &device)?
        .one_hot(3)?
        .permute([0, 3, 1, 2])?
        .to_dtype(DType::F32)?;
    let masks = Tensor::new([[[0_i64, 1], [2, 2]], [[0, 255], [255, 1]]], &device)?;
    let (mut iou, mut dice, mut pixels) = (
        JaccardIndex::new().ignore_index(255),
        F1::new().ignore_index(255),
        Accuracy::new().ignore_index(255),
    );
    for metric in [&mut iou as &mut dyn Metric, &mut dice, &mut pixels] {
        metric.update(&logits, &masks)?;
    }
    assert_eq!(iou.per_class(), [1.0, 2.0 / 3.0, 0.5]);
    assert!((iou.value() - (1.0 + 2.0 / 3.0 + 0.5) / 3.0).abs() < 1e-12);
    assert_eq!(dice.per_class(), [1.0, 0.8, 2.0 / 3.0]);
    assert_eq!(pixels.value(), 5.0 / 6.0);
    // Without it, 255 is an unknown class.
    let error = JaccardIndex::new().update(&logits, &masks).unwrap_err().to_string();
    assert!(error.contains("the target 255, but there are 3 classes"), "{error}");
    // A class that never occurs has no value, and does not count in the mean.
    let mut far = JaccardIndex::new();
    far.update(
        &Tensor::new([[0.0, 0.0, 1.0]], &device)?,
        &Tensor::new(vec![2_i64], &device)?,
    )?;
    let per_class = far.per_class();
    assert!(per_class[0].is_nan() && per_class[1].is_nan() && per_class[2] == 1.0 && far.value() == 1.0);
    // One channel is a logit of class 1; the targets may or may not have the channel axis.
    let single = Tensor::new([[[[3.0, -1.0]]], [[[0.5, -2.0]]]], &device)?;
    for shape in [vec![2, 1, 1, 2], vec![2, 1, 2]] {
        let mut iou = JaccardIndex::new().average(Average::Binary);
        iou.update(&single, &Tensor::from_vec(vec![1_i64, 0, 0, 0], shape, &device)?)?;
        assert_eq!(iou.value(), 0.5);
    }
    Ok(())
}

#[test]
fn targets_below_0_are_ignored_and_what_does_not_fit_is_refused() -> Result<()> {
    let device = device();
    let logits = Tensor::new([[1.0, 0.0], [0.0, 1.0], [5.0, 0.0]], &device)?;
    let targets = Tensor::new(vec![0_i64, 1, -100], &device)?;
    let mut accuracy = Accuracy::new();
    accuracy.update(&logits, &targets)?;
    assert_eq!(
        (accuracy.value(), accuracy.shown(accuracy.value())),
        (1.0, "100.00 %".to_owned())
    );
    let mut perplexity = Perplexity::new();
    perplexity.update(&logits, &targets)?;
    assert!((perplexity.value() - (1.0 + (-1.0_f64).exp())).abs() < 1e-6);
    // Ignored targets also do not count among losses.
    perplexity.reset();
    perplexity.update(&Tensor::new([1.0, 3.0, 50.0], &device)?, &targets)?;
    assert!((perplexity.value() - 2.0_f64.exp()).abs() < 1e-6);
    // Positions of a sequence: classes are along axis 1.
    let sequence = Tensor::new([[[9.0, 0.0, 0.0], [0.0, 9.0, 9.0]]], &device)?;
    accuracy.reset();
    accuracy.update(&sequence, &Tensor::new([[0_i64, 1, 0]], &device)?)?;
    assert!((accuracy.value() - 2.0 / 3.0).abs() < 1e-12);

    let error = accuracy
        .update(&logits, &Tensor::new(vec![0_i64, 1], &device)?)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("accuracy") && error.contains("logits [N, classes]"),
        "{error}"
    );
    let beyond = Tensor::new(vec![0_i64, 1 << 40, 1], &device)?;
    let error = F1::new().update(&logits, &beyond).unwrap_err().to_string();
    assert!(
        error.contains("the target 1099511627776, but there are 2 classes"),
        "{error}"
    );
    let error = R2Score::new().update(&logits, &targets).unwrap_err().to_string();
    assert!(error.contains("r2") && error.contains("same shape"), "{error}");
    let error = Auroc::new().update(&targets, &targets).unwrap_err().to_string();
    assert!(error.contains("a score for each target of 0 or 1"), "{error}");
    Ok(())
}
