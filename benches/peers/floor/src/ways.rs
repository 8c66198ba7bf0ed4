//! Which of several ways is the fastest here and now.

use std::time::{Duration, Instant};

/// How long a sample takes at least: shorter ones are shorter than the clock is good for.
const SAMPLE: Duration = Duration::from_micros(200);
/// Turns of each way, and when there are no more.
const TURNS: usize = 15;
const LIMIT: Duration = Duration::from_secs(2);

/// Takes all ways in turn, and gives the one whose fastest turn took the least. There has to be one.
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

/// Every way with one thread, and with all where there are more.
pub fn on_threads<W: Copy>(ways: &[W], threads: usize) -> Vec<(W, usize)> {
    let numbers = if threads > 1 { vec![1, threads] } else { vec![1] };
    let with = |&way: &W| numbers.iter().map(move |&number| (way, number));
    ways.iter().flat_map(with).collect()
}
