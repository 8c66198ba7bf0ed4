use polygrad_core::communicator::Communicator;
use polygrad_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// Running mean and variance, as in Gymnasium's `RunningMeanStd`: initially 0 and 1, with a weight of 1e-4.
///
/// Source: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Saved")]
pub struct RunningMeanStd {
    mean: Vec<f64>,
    var: Vec<f64>,
    count: f64,
    /// The statistics since they were last shared with other ranks.
    #[serde(skip)]
    since: Option<Box<Self>>,
}

/// Deserialized data, not yet checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    mean: Vec<f64>,
    var: Vec<f64>,
    count: f64,
}

impl TryFrom<Saved> for RunningMeanStd {
    type Error = Error;

    fn try_from(Saved { mean, var, count }: Saved) -> Result<Self> {
        if mean.len() != var.len() {
            let (means, vars) = (mean.len(), var.len());
            return Err(Error::shape(format!(
                "statistics have {means} means and {vars} variances"
            )));
        }
        let sound = |var: &f64| var.is_finite() && *var >= 0.0;
        let counted = count.is_finite() && count > 0.0;
        if !counted || !mean.iter().all(|mean| mean.is_finite()) || !var.iter().all(sound) {
            return Err(
                Error::invalid("statistics have a count, a mean or a variance that no numbers have")
                    .with_hint("take statistics that were saved whole"),
            );
        }
        let since = None;
        Ok(Self {
            mean,
            var,
            count,
            since,
        })
    }
}

/// The number of columns processed together: the f32 numbers of a cache line.
pub(super) const BLOCK: usize = 16;

impl RunningMeanStd {
    /// For rows of `len` numbers.
    pub fn new(len: usize) -> Self {
        Self {
            mean: vec![0.0; len],
            var: vec![1.0; len],
            count: 1e-4,
            since: None,
        }
    }

    /// The mean of each number.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// The variance of each number.
    pub fn var(&self) -> &[f64] {
        &self.var
    }

    /// The number of rows so far, plus 1e-4.
    pub fn count(&self) -> f64 {
        self.count
    }

    /// Adds more rows, one after another.
    ///
    /// # Errors
    /// If their number is not a whole number of rows, or one is NaN or infinite.
    pub fn update(&mut self, rows: &[f32]) -> Result<()> {
        check_rows(rows, self.mean.len())?;
        check_finite(rows)?;
        self.see(rows);
        Ok(())
    }

    /// From now on also records the statistics to be [shared](Self::share).
    pub(crate) fn track(&mut self) {
        let count = 0.0;
        self.since = Some(Box::new(Self {
            count,
            ..Self::new(self.mean.len())
        }));
    }

    /// Makes the statistics of all ranks the same: the changes of each other rank since the last call are added to the
    /// statistics of rank 0, in the order of the ranks.
    pub(crate) fn share(&mut self, group: &dyn Communicator) -> Result<()> {
        let part = match &self.since {
            Some(since) if group.rank() > 0 => since,
            _ => &*self,
        };
        let own = [&[part.count], &part.mean[..], &part.var].concat();
        let width = self.mean.len();
        for (rank, numbers) in group.all_gather_vec(&own)?.iter().enumerate() {
            let (Some(count), true) = (numbers.first(), numbers.len() == own.len()) else {
                return Err(Error::communication(format!(
                    "rank {rank} has statistics of another width"
                )));
            };
            let (mean, var) = numbers[1..].split_at(width);
            match rank {
                0 => (self.count, self.mean, self.var) = (*count, mean.to_vec(), var.to_vec()),
                _ => self.merge(mean, var, *count),
            }
        }
        self.track();
        Ok(())
    }

    /// Merges other statistics into these.
    fn merge(&mut self, mean: &[f64], var: &[f64], more: f64) {
        let (seen, total) = (self.count, self.count + more);
        for (i, (own_mean, own_var)) in self.mean.iter_mut().zip(&mut self.var).enumerate() {
            let delta = mean[i] - *own_mean;
            *own_mean += delta * more / total;
            *own_var = (*own_var * seen + var[i] * more + delta * delta * seen * more / total) / total;
        }
        self.count = total;
    }

    /// Adds whole rows of finite numbers.
    pub(super) fn see<T: Copy + Into<f64>>(&mut self, rows: &[T]) {
        if let Some(since) = &mut self.since {
            since.see(rows);
        }
        let width = self.mean.len();
        if rows.is_empty() {
            return;
        }
        let (seen, more) = (self.count, (rows.len() / width) as f64);
        let total = seen + more;
        let blocks = self.mean.chunks_mut(BLOCK).zip(self.var.chunks_mut(BLOCK));
        for (block, (mean, var)) in blocks.enumerate() {
            let columns = block * BLOCK..block * BLOCK + mean.len();
            let (mut sums, mut squares) = ([0.0; BLOCK], [0.0; BLOCK]);
            for row in rows.chunks_exact(width) {
                for (sum, x) in sums.iter_mut().zip(&row[columns.clone()]) {
                    *sum += (*x).into();
                }
            }
            let means = sums.map(|sum| sum / more);
            for row in rows.chunks_exact(width) {
                for ((square, mean), x) in squares.iter_mut().zip(&means).zip(&row[columns.clone()]) {
                    let apart = (*x).into() - mean;
                    *square += apart * apart;
                }
            }
            for (i, (mean, var)) in mean.iter_mut().zip(var).enumerate() {
                let delta = means[i] - *mean;
                *mean += delta * more / total;
                *var = (*var * seen + squares[i] + delta * delta * seen * more / total) / total;
            }
        }
        self.count = total;
    }
}

pub(super) fn check_rows(rows: &[f32], width: usize) -> Result<()> {
    if width > 0 && rows.len().is_multiple_of(width) {
        return Ok(());
    }
    let message = format!("{} numbers make no rows of {width}", rows.len());
    Err(Error::shape(message))
}

pub(super) fn check_finite(numbers: &[f32]) -> Result<()> {
    match numbers.iter().find(|x| !x.is_finite()) {
        Some(x) => Err(Error::invalid(format!("statistics cannot take in {x}"))),
        None => Ok(()),
    }
}
