//! Metrics of classes.

use polygrad_core::{Error, Result};
use polygrad_tensor::Tensor;

use super::{Metric, foreign, unfit};

/// How often each class (row) was predicted as each class (column). It grows with the classes seen.
#[derive(Clone, Debug, Default)]
struct Confusion {
    classes: usize,
    counts: Vec<u64>,
}

impl Confusion {
    /// Adds predictions: logits with classes along axis 1, `[N, C]` or `[N, C, …]`, for targets `[N]` or `[N, …]`; or
    /// one logit for each target of 0 or 1. Targets below 0 are ignored, as by cross entropy, and so is the number
    /// `ignored`.
    fn update(&mut self, metric: &str, ignored: Option<i64>, predictions: &Tensor, targets: &Tensor) -> Result<()> {
        // A single channel is a logit of class 1.
        let by_class =
            predictions.rank() == targets.rank() + 1 && predictions.rank() >= 2 && predictions.dims()[1] != 1;
        let classes = if by_class { predictions.dims()[1] } else { 2 };
        let answers = if by_class {
            let mut dims = predictions.dims();
            dims.remove(1);
            (dims == targets.dims()).then(|| predictions.argmax(1)?.to_vec::<i64>())
        } else {
            (predictions.shape().numel() == targets.shape().numel()).then(|| {
                Ok(predictions
                    .to_f64_vec()?
                    .iter()
                    .map(|&logit| i64::from(logit > 0.0))
                    .collect())
            })
        };
        let Some(answers) = answers else {
            return Err(unfit(
                metric,
                predictions,
                targets,
                "give logits [N, classes] with targets [N], or a logit for each target of 0 or 1",
            ));
        };
        let mut targets = targets.to_f64_vec()?;
        if let Some(ignored) = ignored {
            let ignored = ignored as f64;
            targets
                .iter_mut()
                .filter(|target| **target == ignored)
                .for_each(|target| *target = -1.0);
        }
        if let Some(target) = targets
            .iter()
            .find(|&&target| target >= classes as f64 || target.is_nan())
        {
            return Err(
                Error::out_of_range(format!("the target {target}, but there are {classes} classes"))
                    .with_op(metric.to_owned())
                    .with_hint("targets are numbered from 0; those below 0 are ignored"),
            );
        }
        for (answer, target) in answers?.into_iter().zip(targets) {
            if let (Ok(answer), true) = (usize::try_from(answer), target >= 0.0) {
                self.add(target as usize, answer, 1);
            }
        }
        Ok(())
    }

    fn add(&mut self, class: usize, answer: usize, count: u64) {
        let classes = self.classes.max(class + 1).max(answer + 1);
        if classes > self.classes {
            let mut counts = vec![0; classes * classes];
            for (row, to) in counts.chunks_exact_mut(classes).enumerate().take(self.classes) {
                to[..self.classes].copy_from_slice(&self.counts[row * self.classes..][..self.classes]);
            }
            (self.classes, self.counts) = (classes, counts);
        }
        self.counts[class * self.classes + answer] += count;
    }

    fn count(&self, class: usize, answer: usize) -> f64 {
        self.counts.get(class * self.classes + answer).copied().unwrap_or(0) as f64
    }

    /// Correct answers, all answers, and all targets of a class.
    fn of_class(&self, class: usize) -> [f64; 3] {
        let sum = |at: &dyn Fn(usize) -> f64| (0..self.classes).map(at).sum();
        [
            self.count(class, class),
            sum(&|other| self.count(other, class)),
            sum(&|other| self.count(class, other)),
        ]
    }

    fn merge(&mut self, other: &Self) {
        for (at, &count) in other.counts.iter().enumerate() {
            self.add(at / other.classes, at % other.classes, count);
        }
    }

    fn total(&self) -> f64 {
        self.counts.iter().sum::<u64>() as f64
    }

    fn state(&self) -> Vec<f64> {
        self.counts.iter().map(|&count| count as f64).collect()
    }

    fn load_state(&mut self, metric: &str, state: &[f64]) -> Result<()> {
        let classes = state.len().isqrt();
        if classes * classes != state.len() || state.iter().any(|count| count.fract() != 0.0 || *count < 0.0) {
            return Err(foreign(metric, state));
        }
        (self.classes, self.counts) = (classes, state.iter().map(|&count| count as u64).collect());
        Ok(())
    }
}

/// How the values of the classes are averaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Average {
    /// The mean over the classes that occur among targets or answers.
    #[default]
    Macro,
    /// The mean over the classes, weighted by their number of targets.
    Weighted,
    /// The value for all answers together.
    Micro,
    /// The value of class 1 only.
    Binary,
}

impl Average {
    /// Averages a value that depends on (correct answers, all answers, all targets).
    fn of(self, confusion: &Confusion, figure: impl Fn([f64; 3]) -> f64) -> f64 {
        if confusion.total() == 0.0 {
            return f64::NAN;
        }
        let share = |sums| match figure(sums) {
            value if value.is_nan() => 0.0,
            value => value,
        };
        let classes = || (0..confusion.classes).map(|class| confusion.of_class(class));
        match self {
            Self::Binary => share(confusion.of_class(1)),
            Self::Micro => share(classes().fold([0.0; 3], |a, b| [a[0] + b[0], a[1] + b[1], a[2] + b[2]])),
            Self::Weighted => classes().map(|sums| share(sums) * sums[2]).sum::<f64>() / confusion.total(),
            Self::Macro => {
                let there: Vec<f64> = classes().filter(|sums| sums[1] + sums[2] > 0.0).map(share).collect();
                there.iter().sum::<f64>() / there.len() as f64
            }
        }
    }
}

/// Metrics computed from counts of right and wrong answers.
macro_rules! of_classes {
    ($($(#[$doc:meta])* $metric:ident $name:literal, $value:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// Predictions are logits `[N, C]` (or `[N, C, …]`, for example for images whose pixels have classes) for
        /// targets `[N]` (or `[N, …]`), or one logit for each target of 0 or 1. Targets below 0 are ignored.
        #[derive(Clone, Debug, Default)]
        pub struct $metric {
            confusion: Confusion,
            average: Average,
            ignored: Option<i64>,
        }

        impl $metric {
            /// The metric, without predictions yet.
            pub fn new() -> Self {
                Self::default()
            }

            /// A target that is also ignored, besides those below 0, such as 255 in masks. Default: none.
            #[must_use]
            pub fn ignore_index(mut self, target: i64) -> Self {
                self.ignored = Some(target);
                self
            }
        }

        impl Metric for $metric {
            fn name(&self) -> &str {
                $name
            }

            fn update(&mut self, predictions: &Tensor, targets: &Tensor) -> Result<()> {
                self.confusion.update($name, self.ignored, predictions, targets)
            }

            fn value(&self) -> f64 {
                let value: fn(Average, &Confusion) -> f64 = $value;
                value(self.average, &self.confusion)
            }

            fn reset(&mut self) {
                self.confusion = Confusion::default();
            }

            fn higher_is_better(&self) -> bool {
                true
            }

            fn shown(&self, value: f64) -> String {
                format!("{:.2} %", 100.0 * value)
            }

            fn state(&self) -> Vec<f64> {
                self.confusion.state()
            }

            fn load_state(&mut self, state: &[f64]) -> Result<()> {
                self.confusion.load_state($name, state)
            }

            fn merge(&mut self, state: &[f64]) -> Result<()> {
                let mut other = Confusion::default();
                other.load_state($name, state)?;
                self.confusion.merge(&other);
                Ok(())
            }
        }
    )*};
}

of_classes! {
    /// The share of correct answers; in segmentation, of pixels.
    Accuracy "accuracy", |_, confusion| {
        let right: f64 = (0..confusion.classes).map(|class| confusion.count(class, class)).sum();
        right / confusion.total()
    };
    /// The share of correct answers among the predictions of a class.
    Precision "precision", |average, confusion| average.of(confusion, Precision::FIGURE);
    /// The share of a class's targets that were found.
    Recall "recall", |average, confusion| average.of(confusion, Recall::FIGURE);
    /// The harmonic mean of precision and recall; in segmentation, Dice's coefficient of all pixels together.
    #[doc(alias = "Dice")]
    F1 "f1", |average, confusion| average.of(confusion, F1::FIGURE);
    /// The intersection of targets and answers over their union. In segmentation its mean over the
    /// classes is called mIoU.
    ///
    /// Source: Jaccard, "The distribution of the flora in the alpine zone" (1912).
    #[doc(alias = "IoU")]
    JaccardIndex "iou", |average, confusion| average.of(confusion, JaccardIndex::FIGURE);
}

macro_rules! averages {
    ($($metric:ident $figure:expr;)*) => {$(
        impl $metric {
            /// The value from correct answers, all answers, and all targets.
            const FIGURE: fn([f64; 3]) -> f64 = $figure;

            /// The value of each class; NaN for a class that occurs neither among targets nor among answers.
            pub fn per_class(&self) -> Vec<f64> {
                let figure = |class| {
                    let sums = self.confusion.of_class(class);
                    let value = Self::FIGURE(sums);
                    if value.is_nan() && sums[1] + sums[2] > 0.0 { 0.0 } else { value }
                };
                (0..self.confusion.classes).map(figure).collect()
            }

            /// How the values of the classes are averaged. Default: [`Average::Macro`].
            #[must_use]
            pub fn average(mut self, average: Average) -> Self {
                self.average = average;
                self
            }
        }
    )*};
}

averages! {
    Precision |[right, answers, _]| right / answers;
    Recall |[right, _, targets]| right / targets;
    F1 |[right, answers, targets]| 2.0 * right / (answers + targets);
    JaccardIndex |[right, answers, targets]| right / (answers + targets - right);
}
