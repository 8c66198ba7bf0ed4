//! What a turn is measured by.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

#[derive(Clone, Copy)]
pub enum Clock {
    /// The time that passes. A turn also waits for other programs.
    Wall,
    /// The processor's time of the process, since RTen computes on a thread of its own.
    Processor,
}

impl Clock {
    /// The time since a fixed moment.
    pub fn now(self) -> Duration {
        let id = match self {
            Clock::Wall => ClockId::Monotonic,
            Clock::Processor => ClockId::ProcessCPUTime,
        };
        let time = clock_gettime(id);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// The median of the times of turns, or the fastest twentieth of the processor's: other programs only make turns
    /// slower, by what they leave in the caches.
    pub fn typical(self, times: &[f64]) -> f64 {
        let mut sorted = times.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        match self {
            Clock::Wall => sorted[sorted.len() / 2],
            Clock::Processor => sorted[sorted.len() / 20],
        }
    }
}
