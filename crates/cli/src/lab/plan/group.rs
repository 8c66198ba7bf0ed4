//! What a group of processes finds together: its links, and steps that all of them have taken.

use std::sync::Arc;
use std::time::{Duration, Instant};

use polygrad::communicator::{Communicator, HostBuffer, HostSliceMut, Reduction};
use polygrad::train::Link;
use polygrad::DType;

use super::trial::{Times, Trial};
use crate::failure::{Failure, Result};

/// The lengths of the all-reduces that a link is measured by, in bytes.
pub(super) const SIZES: [usize; 5] = [4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// Steps without others between them; the one before them is not counted, for what was between has taken the caches.
const TURN: usize = 5;

/// What was measured, a value a time.
pub(super) struct Measured {
    pub(super) link: Link,
    /// Steps that waited for nobody, those of the rank that took longest.
    pub(super) alone: Times,
    /// Seconds of a step of all ranks together.
    pub(super) together: f64,
}

/// All-reduces, steps of each rank by itself while all others compute, too, and steps of all together, in turn: what disturbs the machine for a
/// while disturbs all of them.
///
/// # Errors
/// When the device or the group fails; times that no link explains.
pub(super) fn measure(
    group: &Arc<dyn Communicator>,
    alone: &mut Trial,
    together: &mut Trial,
    steps: usize,
) -> Result<Measured> {
    let mut buffers = SIZES.iter().map(|&bytes| Ok((bytes, HostBuffer::new(bytes)?)));
    let mut buffers = buffers.by_ref().collect::<polygrad::Result<Vec<_>>>()?;
    let (mut sums, mut lone, mut joint) = (vec![Vec::new(); SIZES.len()], Vec::new(), Vec::new());
    while lone.len() < steps {
        for ((_, buffer), times) in buffers.iter_mut().zip(&mut sums) {
            for _ in 0..2 {
                times.push(sum(&**group, buffer)?);
            }
        }
        for i in 0..=TURN {
            group.barrier()?;
            let times = alone.step()?;
            if i > 0 {
                lone.push(slowest(&**group, &times)?);
            }
        }
        for i in 0..=TURN {
            let begin = Instant::now();
            together.step()?;
            if i > 0 {
                joint.push(begin.elapsed().as_secs_f64());
            }
        }
    }
    let points = buffers.iter().zip(&sums);
    let points: Vec<(usize, Duration)> = points
        .map(|((bytes, _), times)| (*bytes, Duration::try_from_secs_f64(median(times)).unwrap_or_default()))
        .collect();
    let mut agreed = [median(&joint)];
    group.all_reduce(HostSliceMut::new(&mut agreed), Reduction::Max)?;
    Ok(Measured {
        link: agree(&**group, Link::fit(group.size(), &points)?)?,
        alone: medians(&lone)?,
        together: agreed[0],
    })
}

fn sum(group: &dyn Communicator, buffer: &mut HostBuffer) -> Result<f64> {
    group.barrier()?;
    let begin = Instant::now();
    group.all_reduce(
        HostSliceMut::from_bytes(DType::F32, buffer.bytes_mut())?,
        Reduction::Sum,
    )?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Every rank goes on with the figures of the first.
fn agree(group: &dyn Communicator, link: Link) -> Result<Link> {
    let mut values = [link.latency.as_secs_f64(), link.bandwidth];
    group.broadcast(HostSliceMut::new(&mut values), 0)?;
    Ok(Link {
        latency: Duration::try_from_secs_f64(values[0]).unwrap_or_default(),
        bandwidth: values[1],
    })
}

/// Each part's time on the rank where it was done last: the others wait for that one.
fn slowest(group: &dyn Communicator, times: &Times) -> Result<Times> {
    let mut values = times.to_vec();
    group.all_reduce(HostSliceMut::new(&mut values), Reduction::Max)?;
    Ok(Times::from_vec(&values))
}

/// The times of the middle.
///
/// # Errors
/// No times.
pub(super) fn medians(all: &[Times]) -> Result<Times> {
    let rows: Vec<Vec<f64>> = all.iter().map(Times::to_vec).collect();
    let first = rows.first().ok_or_else(|| Failure::new("no step was measured"))?;
    let column = |i: usize| median(&rows.iter().map(|row| row[i]).collect::<Vec<_>>());
    Ok(Times::from_vec(&(0..first.len()).map(column).collect::<Vec<_>>()))
}

fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}
