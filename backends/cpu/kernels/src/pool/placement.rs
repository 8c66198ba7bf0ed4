//! Restricts workers to CPUs other than their caller's.
//!
//! A system may wake a worker on the CPU of the thread that woke it although another CPU is idle, and leave both there
//! for tens of milliseconds. Linux does so in virtual machines, where an idle CPU that was given back to the host
//! counts as stolen. The two threads then take as long as one thread, or longer, since each waits for the other in a
//! loop.

use std::sync::{Mutex, PoisonError};

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Keeps workers off the CPU of their caller, as far as the system allows; the pool also works without.
#[derive(Default)]
pub(super) struct Placement(Mutex<State>);

#[derive(Default)]
struct State {
    workers: Vec<Worker>,
    /// The CPU that all workers avoid.
    avoided: Option<usize>,
}

struct Worker {
    thread: Pid,
    /// The CPUs that the worker was allowed to use when it started.
    allowed: CpuSet,
}

impl Placement {
    /// Registers the calling thread as a worker.
    pub(super) fn add_worker(&self) {
        if let Ok(allowed) = sched_getaffinity(None) {
            self.with(|state| {
                let thread = gettid();
                state.workers.push(Worker { thread, allowed });
                state.avoided = None;
            });
        }
    }

    /// Tells that the calling thread is about to compute beside the workers; it may have moved since its last call.
    pub(super) fn caller_is_here(&self) {
        let cpu = sched_getcpu();
        self.with(|state| {
            if state.avoided != Some(cpu) {
                state.avoided = Some(cpu);
                state.workers.iter().for_each(|worker| worker.stay_off(cpu));
            }
        });
    }

    fn with(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Worker {
    fn stay_off(&self, cpu: usize) {
        let mut others = self.allowed;
        if cpu < CpuSet::MAX_CPU {
            others.unset(cpu);
        }
        if others.count() > 0 {
            let _ = sched_setaffinity(Some(self.thread), &others);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ThreadPool;

    #[test]
    fn workers_stay_off_the_callers_cpu() {
        let all = sched_getaffinity(None).unwrap();
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).collect();
        let pool = ThreadPool::new(2);
        if cpus.len() < 2 || pool.threads() < 2 {
            println!("skipped: there are not two CPUs");
            return;
        }
        for &cpu in cpus.iter().take(2).cycle().take(6) {
            let mut here = CpuSet::new();
            here.set(cpu);
            sched_setaffinity(None, &here).unwrap();
            // Long enough for the worker to fall asleep, since workers are placed only when they are woken.
            std::thread::sleep(Duration::from_millis(20));
            pool.run(2, |_| ());
            let state = pool.shared.placement.0.lock().unwrap();
            let worker = sched_getaffinity(Some(state.workers[0].thread)).unwrap();
            assert!(!worker.is_set(cpu), "the worker may run on CPU {cpu}, the caller's");
            assert_eq!(worker.count(), all.count() - 1);
        }
        sched_setaffinity(None, &all).unwrap();
    }
}
