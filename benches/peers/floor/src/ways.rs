//! Finds the fastest of several implementations on this machine.

use std::time::{Duration, Instant};

/// The least time of a sample: shorter ones are too short for the clock.
const SAMPLE: Duration = Duration::from_micros(200);
/// The number of turns of each implementation, and the time limit for all turns.
const TURNS: usize = 15;
const LIMIT: Duration = Duration::from_secs(2);

/// Runs all implementations in turn, and returns the one with the fastest turn. There must be at least one.
pub fn fastest<W: Copy>(ways: &[W], mut run: impl FnMut(W)) -> W {
    let start = Instant::now();
    let mut best = (f64::INFINITY, ways[0]);
    for turn in 0..TURNS {
        for &way in ways {
            let (begin, mut runs) = (Instant::now(), 0);
            while runs == 0 || begin.elapsed() < SAMPLE {
                run(way);
                runs += 1;
            }
            let seconds = begin.elapsed().as_secs_f64() / f64::from(runs);
            // The first turn warms up.
            if turn > 0 && seconds < best.0 {
                best = (seconds, way);
            }
        }
        if turn > 0 && start.elapsed() > LIMIT {
            break;
        }
    }
    best.1
}

/// Every implementation with one thread and, if there are more, with all threads.
pub fn on_threads<W: Copy>(ways: &[W], threads: usize) -> Vec<(W, usize)> {
    let numbers = if threads > 1 { vec![1, threads] } else { vec![1] };
    let with = |&way: &W| numbers.iter().map(move |&number| (way, number));
    ways.iter().flat_map(with).collect()
}
