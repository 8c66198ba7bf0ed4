//! Ranks that are threads of one process.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use polygrad_core::communicator::{
    Call, Collective, Communicator, HostBuffer, HostSlice, HostSliceMut, Reduction, check,
};
use polygrad_core::{Error, Result};

/// Ranks that are threads of one process: for tests, and as the definition of what each collective does.
///
/// Sums are computed in the order of the ranks. If a thread drops its end, because it is done or has failed, it counts
/// as lost for the others.
pub struct Threads {
    rank: usize,
    shared: Arc<Shared>,
    timeout: Duration,
}

struct Shared {
    /// For each rank of this group, its rank in the original group.
    names: Vec<usize>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The values that each rank has contributed to the running collective.
    brought: Vec<Option<Brought>>,
    /// The number of ranks that have not picked up the result yet; 0 while values are still being collected.
    taking: usize,
    /// The last message of each rank that left.
    gone: Vec<Option<String>>,
    /// Why the group can no longer be used.
    failed: Option<Failure>,
    /// The rank that aborted, and why.
    aborted: Option<Failure>,
    /// The ranks that have agreed to continue without the lost ones; `next` is their new group.
    agreed: Vec<usize>,
    next: Option<Arc<Shared>>,
    /// Duplicates of this group, and how many of them each rank has already got.
    duplicates: Vec<Arc<Shared>>,
    duplicated: Vec<usize>,
}

#[derive(Clone)]
struct Failure {
    rank: usize,
    what: String,
}

#[derive(Clone)]
struct Brought {
    call: Call,
    bytes: Arc<HostBuffer>,
}

impl Threads {
    /// The ends of a group of `size` ranks, at least 1. Each end is moved to a thread.
    ///
    /// # Errors
    /// A size of 0.
    pub fn group(size: usize, timeout: Duration) -> Result<Vec<Self>> {
        if size == 0 {
            return Err(Error::invalid("a group has at least one rank"));
        }
        let shared = Arc::new(Shared::new((0..size).collect()));
        let end = |rank| Self {
            rank,
            shared: Arc::clone(&shared),
            timeout,
        };
        Ok((0..size).map(end).collect())
    }

    /// Exchanges the contributions of all ranks to a collective, and returns them by rank.
    fn exchange(&self, call: Call, bytes: &[u8]) -> Result<Vec<Brought>> {
        self.exchanged(call, bytes).map_err(|e| e.with_op(call.kind.name()))
    }

    fn exchanged(&self, call: Call, bytes: &[u8]) -> Result<Vec<Brought>> {
        let shared = &*self.shared;
        let begun = Instant::now();
        // Some ranks may not have picked up the previous result yet.
        let mut state = self.wait(shared.lock(), begun, &|state| state.taking == 0)?;
        state.brought[self.rank] = Some(Brought {
            call,
            bytes: Arc::new(HostBuffer::copied(bytes)?),
        });
        let size = shared.names.len();
        if state.brought.iter().all(Option::is_some) {
            state.taking = size;
            shared.changed.notify_all();
        }
        state = self.wait(state, begun, &|state| state.taking > 0)?;
        let brought: Vec<Brought> = state.brought.iter().flatten().cloned().collect();
        state.taking -= 1;
        if state.taking == 0 {
            state.brought.fill(None);
            shared.changed.notify_all();
        }
        drop(state);
        match brought.iter().position(|other| other.call != brought[0].call) {
            Some(other) => {
                let message = format!("rank 0 calls {}, rank {other} {}", brought[0].call, brought[other].call);
                Err(Error::invalid(message).with_hint("every rank calls the same collectives in the same order"))
            }
            None => Ok(brought),
        }
    }

    /// Waits until a condition holds, a peer is lost, or the time is up.
    fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        begun: Instant,
        done: &dyn Fn(&State) -> bool,
    ) -> Result<MutexGuard<'a, State>> {
        loop {
            if let Some(Failure { rank, what }) = &state.failed {
                return Err(Error::lost_peer(*rank, what));
            }
            if done(&state) {
                return Ok(state);
            }
            // A rank that has left is an error only for ranks that still wait for its contribution.
            if let Some(rank) =
                (0..state.gone.len()).find(|&rank| state.gone[rank].is_some() && state.brought[rank].is_none())
            {
                let what = state.gone[rank].clone().unwrap_or_default();
                return Err(self.fail(state, rank, what));
            }
            let Some(left) = self.timeout.checked_sub(begun.elapsed()) else {
                let late = |rank: &usize| state.brought[*rank].is_none();
                let rank = (0..state.brought.len()).find(late).unwrap_or(self.rank);
                let what = format!("did not come within {:?}", self.timeout);
                return Err(self.fail(state, rank, what));
            };
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn fail(&self, mut state: MutexGuard<'_, State>, rank: usize, what: String) -> Error {
        let error = Error::lost_peer(rank, &what);
        state.failed = Some(Failure { rank, what });
        self.shared.changed.notify_all();
        error
    }
}

impl Shared {
    fn new(names: Vec<usize>) -> Self {
        let size = names.len();
        let state = State {
            brought: vec![None; size],
            taking: 0,
            gone: vec![None; size],
            failed: None,
            aborted: None,
            agreed: Vec::new(),
            next: None,
            duplicates: Vec::new(),
            duplicated: vec![0; size],
        };
        Self {
            names,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Records in this group and its duplicates that a rank gives up.
    fn leave(&self, rank: usize, why: &str) {
        let mut state = self.lock();
        let what = format!("gave up: {why}");
        state.gone[rank] = Some(what.clone());
        state.aborted = Some(Failure { rank, what });
        self.changed.notify_all();
        state.duplicates.iter().for_each(|group| group.leave(rank, why));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Communicator for Threads {
    fn name(&self) -> String {
        "threads".to_owned()
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.shared.names.len()
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn all_reduce(&self, mut values: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        check::all_reduce(&values, op)?;
        if self.size() == 1 {
            return Ok(());
        }
        let call = Call::new(Collective::AllReduce, values.as_slice()).by(op);
        let brought = self.exchange(call, values.as_slice().bytes())?;
        values.bytes_mut().copy_from_slice(brought[0].bytes.bytes());
        for other in &brought[1..] {
            op.apply(&mut values, HostSlice::from_bytes(call.dtype(), other.bytes.bytes())?)?;
        }
        Ok(())
    }

    fn reduce_scatter(&self, values: HostSlice<'_>, mut own: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        check::reduce_scatter(values, &own, op, self.size())?;
        let call = Call::new(Collective::ReduceScatter, values).by(op);
        let brought = self.exchange(call, values.bytes())?;
        let len = own.bytes_mut().len();
        let part = self.rank * len..(self.rank + 1) * len;
        own.bytes_mut().copy_from_slice(&brought[0].bytes.bytes()[part.clone()]);
        for other in &brought[1..] {
            op.apply(
                &mut own,
                HostSlice::from_bytes(call.dtype(), &other.bytes.bytes()[part.clone()])?,
            )?;
        }
        Ok(())
    }

    fn all_gather(&self, own: HostSlice<'_>, mut all: HostSliceMut<'_>) -> Result<()> {
        check::parts(all.as_slice(), own, self.size())?;
        let brought = self.exchange(Call::new(Collective::AllGather, own), own.bytes())?;
        let mut places = all.bytes_mut().chunks_exact_mut(own.bytes().len().max(1));
        for (place, other) in places.by_ref().zip(&brought) {
            place.copy_from_slice(other.bytes.bytes());
        }
        Ok(())
    }

    fn broadcast(&self, mut values: HostSliceMut<'_>, root: usize) -> Result<()> {
        check::root(root, self.size())?;
        let call = Call::new(Collective::Broadcast, values.as_slice()).rooted(root);
        let bytes = match root == self.rank {
            true => values.as_slice().bytes(),
            false => &[],
        };
        let brought = self.exchange(call, bytes)?;
        values.bytes_mut().copy_from_slice(brought[root].bytes.bytes());
        Ok(())
    }

    fn barrier(&self) -> Result<()> {
        self.exchange(Call::bare(Collective::Barrier), &[]).map(drop)
    }

    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        self.exchange(Call::bare(Collective::Duplicate), &[])?;
        let mut state = self.shared.lock();
        let number = state.duplicated[self.rank];
        state.duplicated[self.rank] += 1;
        // The first rank to arrive creates the duplicate.
        if number == state.duplicates.len() {
            let names = self.shared.names.clone();
            state.duplicates.push(Arc::new(Shared::new(names)));
        }
        let shared = Arc::clone(&state.duplicates[number]);
        Ok(Arc::new(Self { shared, ..*self }))
    }

    fn shrink(&self) -> Result<Arc<dyn Communicator>> {
        let begun = Instant::now();
        let mut state = self.shared.lock();
        state.agreed.push(self.rank);
        loop {
            if let Some(Failure { rank, what }) = &state.aborted {
                return Err(Error::unsupported(format!("rank {rank} {what}")).with_op("shrink"));
            }
            let left = state.gone.iter().filter(|gone| gone.is_none()).count();
            if state.next.is_none() && state.agreed.len() >= left {
                let mut agreed = state.agreed.clone();
                agreed.retain(|&rank| state.gone[rank].is_none());
                agreed.sort_unstable();
                state.next = Some(Arc::new(Shared::new(agreed)));
                self.shared.changed.notify_all();
            }
            if let Some(next) = &state.next {
                let place = next.names.iter().position(|&rank| rank == self.rank);
                let Some(rank) = place else {
                    return Err(Error::communication("the others went on without this rank").with_op("shrink"));
                };
                let (shared, timeout) = (Arc::clone(next), self.timeout);
                return Ok(Arc::new(Self { rank, shared, timeout }));
            }
            let Some(rest) = self.timeout.checked_sub(begun.elapsed()) else {
                return Err(Error::communication("not every rank that is left came to agree").with_op("shrink"));
            };
            // Do not wait for ranks that are gone.
            let waited = self.shared.changed.wait_timeout(state, rest);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn abort(&self, why: &str) {
        self.shared.leave(self.rank, why);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.lock().gone[self.rank].get_or_insert_with(|| "left the group".to_owned());
        self.shared.changed.notify_all();
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Threads(rank {} of {})", self.rank, self.size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polygrad_core::communicator::{Checked, LostPeer};
    use std::error::Error as _;

    fn ranks<R: Send>(size: usize, f: impl Fn(Threads) -> R + Sync) -> Vec<R> {
        let ends = Threads::group(size, Duration::from_secs(5)).unwrap();
        std::thread::scope(|scope| {
            let started: Vec<_> = ends.into_iter().map(|end| scope.spawn(|| f(end))).collect();
            started.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    #[test]
    fn who_leaves_is_named_and_the_others_go_on() {
        let found = ranks(3, |end| {
            if end.rank() == 1 {
                return Vec::new();
            }
            let error = end.barrier().unwrap_err();
            let lost = error.source().and_then(|source| source.downcast_ref::<LostPeer>());
            assert_eq!(lost, Some(&LostPeer { rank: 1 }), "{error}");
            let left = end.shrink().unwrap();
            let mut all = vec![0i32; left.size()];
            left.all_gather(HostSlice::new(&[end.rank() as i32]), HostSliceMut::new(&mut all))
                .unwrap();
            all
        });
        assert_eq!(found, [vec![0, 2], vec![], vec![0, 2]]);
    }

    #[test]
    fn collectives_of_a_duplicate_do_not_mix_with_those_of_its_group() {
        for checked in [false, true] {
            let found = ranks(2, |end| {
                let end: Arc<dyn Communicator> = match checked {
                    true => Arc::new(Checked::new(Arc::new(end))),
                    false => Arc::new(end),
                };
                let second = end.duplicate().unwrap();
                let third = end.duplicate().unwrap();
                let sum = |group: &Arc<dyn Communicator>, value: i64| {
                    let mut values = [value];
                    group
                        .all_reduce(HostSliceMut::new(&mut values), Reduction::Sum)
                        .map(|()| values[0])
                };
                // Rank 0 waits in one group while rank 1 waits in another.
                let (early, late) = if end.rank() == 0 {
                    (&second, &third)
                } else {
                    (&third, &second)
                };
                let sums = std::thread::scope(|scope| {
                    let other = scope.spawn(|| sum(early, 10).unwrap());
                    std::thread::sleep(Duration::from_millis(20));
                    let own = sum(&end, 1).unwrap();
                    (own, sum(late, 10).unwrap(), other.join().unwrap())
                });
                if end.rank() == 1 {
                    end.abort("it has had enough");
                    return (sums, String::new());
                }
                (sums, sum(&third, 1).unwrap_err().to_string())
            });
            assert_eq!([found[0].0, found[1].0], [(2, 20, 20); 2]);
            assert!(found[0].1.contains("gave up: it has had enough"), "{}", found[0].1);
        }
    }

    #[test]
    fn another_call_is_named() {
        for checked in [false, true] {
            let errors = ranks(2, |end| {
                let rank = end.rank();
                let end: Arc<dyn Communicator> = match checked {
                    true => Arc::new(Checked::new(Arc::new(end))),
                    false => Arc::new(end),
                };
                let mut values = vec![0f32; 2 + rank];
                end.all_reduce(HostSliceMut::new(&mut values), Reduction::Sum)
                    .unwrap_err()
                    .to_string()
            });
            for error in errors {
                assert!(error.contains("rank 0 calls all_reduce of 2 f32 by sum"), "{error}");
                assert!(error.contains("rank 1 all_reduce of 3 f32 by sum"), "{error}");
            }
        }
    }

    #[test]
    fn lists_of_any_length_come_to_all() {
        ranks(3, |end| {
            let group: &dyn Communicator = &end;
            // None, one and two values.
            let own: Vec<f64> = (0..end.rank()).map(|i| i as f64 + 0.5).collect();
            let all = group.all_gather_vec(&own).unwrap();
            assert_eq!(all, [vec![], vec![0.5], vec![0.5, 1.5]]);
            assert_eq!(group.all_gather_vec::<u8>(&[]).unwrap(), vec![Vec::<u8>::new(); 3]);
            assert_eq!(group.broadcast_vec(own, 2).unwrap(), [0.5, 1.5]);
        });
    }
}
