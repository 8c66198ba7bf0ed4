//! Joint measurements of a group of processes: its links, and steps taken together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use polygrad::DType;
use polygrad::communicator::{Communicator, HostBuffer, HostSliceMut, Reduction};
use polygrad::train::Link;
use polygrad_console::failure::{Failure, Result};

use super::trial::{Taken, Times, Trial};

/// The lengths in bytes of the all-reduces used to measure a link. They run one after the other, as in a step, with
/// long ones among short ones.
const SIZES: [usize; 5] = [1 << 20, 4 << 10, 256 << 10, 64 << 10, 4 << 20];

/// The number of repetitions in each turn.
const SUMS: usize = 5;

/// Consecutive steps in a turn; the one before them is not counted, since the caches are cold.
const TURN: usize = 5;

/// The measurements, one value for each repetition.
pub(super) struct Measured {
    pub(super) link: Link,
    /// The times of steps without communication, those of the slowest rank.
    pub(super) alone: Times,
    /// Seconds of a step of all ranks together.
    pub(super) together: f64,
    /// Those steps, as this rank took them.
    pub(super) steps: Vec<Taken>,
}

/// Measures all-reduces, steps of each rank separately while all others compute, too, and steps of all together. They
/// alternate, so that temporary disturbances of the machine affect all of them.
///
/// # Errors
/// If the device or the group fails, or no link explains the times.
pub(super) fn measure(
    group: &Arc<dyn Communicator>,
    alone: &mut Trial,
    together: &mut Trial,
    steps: usize,
) -> Result<Measured> {
    let buffers = SIZES.iter().map(|&bytes| HostBuffer::new(bytes));
    let mut buffers = buffers.collect::<polygrad::Result<Vec<_>>>()?;
    let (mut sums, mut lone, mut joint) = (vec![Vec::new(); SIZES.len()], Vec::new(), Vec::new());
    let mut taken = Vec::new();
    while lone.len() < steps {
        for _ in 0..SUMS {
            group.barrier()?;
            let found = all_reduces(&**group, &mut buffers)?;
            sums.iter_mut().zip(found).for_each(|(times, time)| times.push(time));
        }
        for i in 0..=TURN {
            group.barrier()?;
            let step = alone.step()?;
            if i > 0 {
                lone.push(slowest(&**group, &step.times())?);
            }
        }
        for i in 0..=TURN {
            let begin = Instant::now();
            let step = together.step()?;
            if i > 0 {
                joint.push(begin.elapsed().as_secs_f64());
                taken.push(step);
            }
        }
    }
    // All ranks continue with the same numbers.
    let mut figures: Vec<f64> = sums.iter().chain([&joint]).map(|times| mean(times)).collect();
    group.all_reduce(HostSliceMut::new(&mut figures), Reduction::Max)?;
    // Means of measured times are never negative.
    let time = |seconds: &f64| Duration::from_secs_f64(*seconds);
    let points: Vec<(usize, Duration)> = SIZES.into_iter().zip(figures.iter().map(time)).collect();
    Ok(Measured {
        link: Link::fit(group.size(), &points)?,
        alone: means(&lone)?,
        together: figures[SIZES.len()],
        steps: taken,
    })
}

/// Seconds of an all-reduce of each buffer, one after the other.
fn all_reduces(group: &dyn Communicator, buffers: &mut [HostBuffer]) -> Result<Vec<f64>> {
    let time = |buffer: &mut HostBuffer| {
        let begin = Instant::now();
        let values = HostSliceMut::from_bytes(DType::F32, buffer.bytes_mut())?;
        group.all_reduce(values, Reduction::Sum)?;
        Ok(begin.elapsed().as_secs_f64())
    };
    buffers.iter_mut().map(time).collect()
}

/// Each part's time on the slowest rank, since the others wait for it.
fn slowest(group: &dyn Communicator, times: &Times) -> Result<Times> {
    let mut values = times.to_vec();
    group.all_reduce(HostSliceMut::new(&mut values), Reduction::Max)?;
    Ok(Times::from_vec(&values))
}

/// The [`mean`] of each part.
///
/// # Errors
/// No times.
pub(super) fn means(all: &[Times]) -> Result<Times> {
    let rows: Vec<Vec<f64>> = all.iter().map(Times::to_vec).collect();
    let first = rows.first().ok_or_else(|| Failure::new("no step was measured"))?;
    let column = |i: usize| mean(&rows.iter().map(|row| row[i]).collect::<Vec<_>>());
    Ok(Times::from_vec(&(0..first.len()).map(column).collect::<Vec<_>>()))
}

/// The mean of all except the slowest and the fastest tenth. Medians of parts would not add up to the median of the
/// whole: a delay of one part in three is in none of the medians, but in most of the sums.
fn mean(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    let rest = &times[times.len() / 10..times.len() - times.len() / 10];
    rest.iter().sum::<f64>() / rest.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_and_the_fastest_tenth_do_not_count() {
        let times: Vec<f64> = [1000.0, -1000.0].into_iter().chain((1..=10).map(f64::from)).collect();
        assert_eq!(mean(&times), 5.5);
        assert_eq!(mean(&[3.0]), 3.0);
        let part = |backward| Times {
            backward,
            ready: vec![backward / 2.0],
            ..Times::default()
        };
        assert_eq!(means(&[part(1.0), part(3.0)]).unwrap(), part(2.0));
        assert!(means(&[]).is_err());
    }

    #[test]
    fn ranks_measure_their_links_and_steps_together() {
        use polygrad::Device;
        use polygrad::communicator::Threads;

        let ends = Threads::group(2, Duration::from_secs(60)).unwrap();
        let rank = |end: Threads| {
            let group: Arc<dyn Communicator> = Arc::new(end);
            let device = Device::new("cpu:threads=1").unwrap();
            let case = polygrad_workloads::select("mlp-rl/adam").unwrap()[0];
            let alone = Threads::group(1, Duration::from_secs(60)).unwrap().remove(0);
            let mut lone = Trial::new(&case, &device, &(Arc::new(alone) as _)).unwrap();
            let mut together = Trial::new(&case, &device, &group).unwrap();
            let measured = measure(&group, &mut lone, &mut together, 10).unwrap();
            let profile = lone.profile(&measured.alone);
            (measured.link, measured.together, profile)
        };
        let found = std::thread::scope(|scope| {
            let ranks: Vec<_> = ends.into_iter().map(|end| scope.spawn(|| rank(end))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(found[0], found[1], "every rank has the figures of all");
        let (link, together, profile) = &found[0];
        assert!(link.bandwidth > 0.0 && *together > 0.0, "{link:?} {together}");
        assert_eq!((profile.sums(), profile.parameters), (18_472, 18_440));
        assert!(profile.backward > Duration::ZERO && profile.buckets[0].ready <= profile.backward);
        assert!(profile.values >= 18_440, "gradients are among them: {}", profile.values);
    }
}
