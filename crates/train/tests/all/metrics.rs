//! Metrics are what scikit-learn says they are: scripts/make_metric_values.py prints the values.

use polygrad_core::Result;
use polygrad_tensor::{Device, Tensor};
use polygrad_train::{
    Accuracy, Auroc, Average, F1, MeanAbsoluteError, MeanSquaredError, Metric, Perplexity, Precision, R2Score, Recall,
    RootMeanSquaredError,
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

/// Takes in the predictions in two batches, the second by a metric that goes on from the first one's state.
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
    held(Auroc::new(), &scores, &truth, 0.483_597_285_067_873_25);
    held(
        Auroc::new(),
        &Tensor::stack(&[scores.neg()?, scores.clone()], 1)?,
        &truth,
        0.483_597_285_067_873_25,
    );
    held(Perplexity::new(), &logits, &targets, 4.196_710_558_902_694);
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
