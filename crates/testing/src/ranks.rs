//! Ranks that are lost at a collective, as if they were killed.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polygrad_core::communicator::{Communicator, HostSlice, HostSliceMut, Reduction};
use polygrad_core::{Error, ErrorKind, Result};
use polygrad_threads::Threads;
use polygrad_train::{Event, Progress, RunFolder};

/// A rank's end of a group, and of groups derived from it. It disappears for the others after a number of collectives.
#[derive(Debug)]
pub struct Mortal {
    group: Mutex<Option<Arc<dyn Communicator>>>,
    place: (usize, usize, Duration),
    left: Arc<AtomicUsize>,
}

impl Mortal {
    fn new(group: Arc<dyn Communicator>, left: Arc<AtomicUsize>) -> Self {
        Self {
            place: (group.rank(), group.size(), group.timeout()),
            group: Mutex::new(Some(group)),
            left,
        }
    }

    fn alive(&self) -> Result<Arc<dyn Communicator>> {
        let lives = |left: usize| left.checked_sub(1);
        let is_alive = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, lives)
            .is_ok();
        let mut group = self.group.lock().unwrap();
        match &*group {
            Some(group) if is_alive => Ok(Arc::clone(group)),
            _ => {
                // Drops the last handle, so that the others see that it is gone.
                *group = None;
                Err(Error::new(ErrorKind::Io, "killed"))
            }
        }
    }
}

impl Communicator for Mortal {
    fn name(&self) -> String {
        "mortal threads".to_owned()
    }
    fn rank(&self) -> usize {
        self.place.0
    }
    fn size(&self) -> usize {
        self.place.1
    }
    fn timeout(&self) -> Duration {
        self.place.2
    }
    fn all_reduce(&self, values: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        self.alive()?.all_reduce(values, op)
    }
    fn reduce_scatter(&self, values: HostSlice<'_>, own: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        self.alive()?.reduce_scatter(values, own, op)
    }
    fn all_gather(&self, own: HostSlice<'_>, all: HostSliceMut<'_>) -> Result<()> {
        self.alive()?.all_gather(own, all)
    }
    fn broadcast(&self, values: HostSliceMut<'_>, root: usize) -> Result<()> {
        self.alive()?.broadcast(values, root)
    }
    fn barrier(&self) -> Result<()> {
        self.alive()?.barrier()
    }
    fn shrink(&self) -> Result<Arc<dyn Communicator>> {
        Ok(Arc::new(Self::new(self.alive()?.shrink()?, Arc::clone(&self.left))))
    }
    // No `abort`: a killed rank does not tell the others.
}

/// Runs `f` on `size` ranks. `deaths` lists ranks and the number of collectives after which each is lost. Returns each
/// rank's result, and how many collectives it has made.
pub fn mortals<R: Send>(
    size: usize,
    deaths: &[(usize, usize)],
    f: impl Fn(Arc<dyn Communicator>) -> R + Sync,
) -> Vec<(R, usize)> {
    let ends = Threads::group(size, Duration::from_secs(20)).unwrap();
    let run = |end: Threads| {
        let death = deaths.iter().find(|(rank, _)| *rank == end.rank());
        let lives = death.map_or(usize::MAX, |(_, at)| *at);
        let left = Arc::new(AtomicUsize::new(lives));
        let found = f(Arc::new(Mortal::new(Arc::new(end), Arc::clone(&left))));
        (found, lives - left.load(Ordering::SeqCst))
    };
    std::thread::scope(|scope| {
        let run = &run;
        let started: Vec<_> = ends.into_iter().map(|end| scope.spawn(move || run(end))).collect();
        started.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Copies the run folder when the remaining ranks continue.
pub fn copy(event: Event<'_>, progress: &Progress<'_>, to: &Path) {
    if let (Event::Notice(notice), Some(from)) = (event, progress.run)
        && notice.contains("processes are left, and go on from the checkpoint")
    {
        let (from, to) = (RunFolder::new(from), RunFolder::new(to));
        fs::create_dir_all(to.path()).unwrap();
        for file in [
            RunFolder::config,
            RunFolder::checkpoint,
            RunFolder::metrics,
            RunFolder::events,
        ] {
            fs::copy(file(&from), file(&to)).unwrap();
        }
    }
}

/// The metrics of a run, without the column of seconds.
pub fn rows(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(RunFolder::new(path).metrics()).unwrap();
    let timeless = text.lines().map(|line| line.rsplit_once(',').unwrap().0.to_owned());
    timeless.collect()
}
