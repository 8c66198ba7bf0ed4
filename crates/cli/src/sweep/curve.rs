//! The measurements of a run so far, from its `metrics.csv`.

use std::path::Path;

use super::config::Take;
use super::search::RUNGS;
use crate::failure::{Failure, Result, Shown};

/// The measurements of one metric.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Curve {
    /// The progress of the run, in units of the column `epoch`, and the measurement there.
    points: Vec<(f64, f64)>,
    /// The duration of the run so far, in seconds.
    pub(super) seconds: f64,
}

impl Curve {
    /// The measurements of the evaluations in a file, or if there are none, those of training. A missing file has no
    /// measurements.
    ///
    /// # Errors
    /// A file that cannot be read, or that lacks the metric.
    pub(super) fn read(path: &Path, metric: &str) -> Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            text => text.map_err(|e| Failure::io("read", path, &e))?,
        };
        Self::parse(&text, metric).ok_or_else(|| {
            Failure::new(format!("{} has no measurements of {metric}", path.shown()))
                .fix("leave the folder alone while the sweep goes on")
        })
    }

    fn parse(text: &str, metric: &str) -> Option<Self> {
        // The last line may be half-written.
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let mut lines = whole.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let Some(header) = lines.next() else {
            return Some(Self::default());
        };
        let column = |name: &str| header.iter().position(|own| *own == name);
        let (epoch, split, value, seconds) = (column("epoch")?, column("split")?, column(metric)?, column("seconds")?);
        let (mut curve, mut trained) = (Self::default(), Vec::new());
        for line in lines {
            let number = |at: usize| line.get(at)?.parse::<f64>().ok();
            let point = (number(epoch)?, number(value)?);
            curve.seconds = number(seconds)?;
            match *line.get(split)? {
                "train" => trained.push(point),
                _ => curve.points.push(point),
            }
        }
        if curve.points.is_empty() {
            curve.points = trained;
        }
        Some(curve)
    }

    /// The result of the run. `None` if there are no measurements, or for the best no finite ones. The last one may be
    /// not finite.
    pub(super) fn result(&self, take: Take, maximize: bool) -> Option<f64> {
        let mut values = self.points.iter().map(|point| point.1);
        match take {
            Take::Last => values.next_back(),
            Take::Best => values
                .filter(|value| value.is_finite())
                .reduce(|best, value| match maximize {
                    true => best.max(value),
                    false => best.min(value),
                }),
        }
    }

    /// The first measurement at or after each point of a run of this length, up to its current state. A value that is
    /// not finite, such as a return before the first episode has ended, counts as missing.
    pub(super) fn rungs(&self, length: f64) -> Vec<(u64, f64)> {
        let value = |rung: u64| {
            // Epochs are written with four decimal places.
            let from = length * rung as f64 / RUNGS as f64 - 1e-4;
            let point = self.points.iter().find(|point| point.0 >= from)?;
            point.1.is_finite().then_some((rung, point.1))
        };
        (1..=RUNGS).filter_map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGES: &str = "step,epoch,split,loss,accuracy,learning_rate,seconds\n\
                          6,0.5000,train,1.5,0.25,1e-3,0.5\n12,1.0000,train,1.2,0.5,1e-3,1.0\n\
                          12,1.0000,test,1.1,0.6,1e-3,1.1\n24,2.0000,test,1.3,0.4,1e-3,2.5\n24,2.0000,te";

    #[test]
    fn evaluations_count_before_training() {
        let curve = Curve::parse(IMAGES, "accuracy").unwrap();
        assert_eq!(
            (curve.points.clone(), curve.seconds),
            (vec![(1.0, 0.6), (2.0, 0.4)], 2.5)
        );
        assert_eq!(
            (curve.result(Take::Last, true), curve.result(Take::Best, true)),
            (Some(0.4), Some(0.6))
        );
        let losses = Curve::parse(IMAGES, "loss").unwrap();
        assert_eq!(
            (losses.result(Take::Last, false), losses.result(Take::Best, false)),
            (Some(1.3), Some(1.1))
        );
        let trained = IMAGES.replace("test", "train");
        assert_eq!(Curve::parse(&trained, "loss").unwrap().points.len(), 4);
        assert_eq!(Curve::parse(IMAGES, "return"), None);
        assert_eq!(Curve::parse("", "loss"), Some(Curve::default()));
        assert_eq!(Curve::default().result(Take::Last, true), None);
    }

    #[test]
    fn points_are_those_that_were_passed() {
        let curve = Curve::parse(IMAGES, "accuracy").unwrap();
        // The first of four epochs ends after a quarter of the run.
        let rungs = curve.rungs(4.0);
        assert_eq!(
            (rungs[0], rungs[5], rungs.last()),
            ((1, 0.6), (6, 0.6), Some(&(13, 0.4)))
        );
        let all = curve.rungs(2.0);
        assert_eq!((all.len() as u64, all.last()), (RUNGS, Some(&(RUNGS, 0.4))));
        assert!(
            Curve::parse(&IMAGES.replace("0.6", "NaN"), "accuracy")
                .unwrap()
                .rungs(4.0)
                .len()
                < 13
        );
    }
}
