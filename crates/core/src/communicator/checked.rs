//! Collectives that are compared between ranks before they run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::call::{Call, Collective};
use super::{Communicator, HostSlice, HostSliceMut, Reduction, check};
use crate::{Error, Result};

/// A group whose ranks exchange what they are about to call before each collective, so that an error names
/// the rank that calls something else. Without this, the engine would hang or mix values up. It doubles the
/// number of collectives.
#[derive(Debug)]
pub struct Checked {
    inner: Arc<dyn Communicator>,
    calls: AtomicU64,
}

impl Checked {
    /// The same group, with its calls compared.
    pub fn new(inner: Arc<dyn Communicator>) -> Self {
        Self {
            inner,
            calls: AtomicU64::new(0),
        }
    }

    fn compare(&self, call: Call) -> Result<()> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let [kind, dtype, len, op, root] = call.numbers();
        let own = [number, kind, dtype, len, op, root].map(u64::cast_signed);
        let mut all = vec![0i64; own.len() * self.size()];
        // This gather has the same length and dtype on all ranks, even if their calls differ.
        self.inner
            .all_gather(HostSlice::new(&own), HostSliceMut::new(&mut all))?;
        let (calls, _) = all.as_chunks::<6>();
        match calls.iter().position(|call| *call != calls[0]) {
            Some(other) => {
                let message = format!(
                    "rank 0 calls {}, rank {other} {}",
                    shown(&calls[0]),
                    shown(&calls[other])
                );
                Err(Error::invalid(message)
                    .with_op(call.kind.name())
                    .with_hint("every rank calls the same collectives in the same order, with as many values"))
            }
            None => Ok(()),
        }
    }
}

fn shown(numbers: &[i64; 6]) -> String {
    let [number, call @ ..] = numbers.map(i64::cast_unsigned);
    let call = Call::from_numbers(call).map_or_else(|| "something unknown".to_owned(), |call| call.to_string());
    format!("{call} (its call {})", number + 1)
}

impl Communicator for Checked {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn timeout(&self) -> Duration {
        self.inner.timeout()
    }

    fn all_reduce(&self, values: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        check::all_reduce(&values, op)?;
        self.compare(Call::new(Collective::AllReduce, values.as_slice()).by(op))?;
        self.inner.all_reduce(values, op)
    }

    fn reduce_scatter(&self, values: HostSlice<'_>, own: HostSliceMut<'_>, op: Reduction) -> Result<()> {
        check::reduce_scatter(values, &own, op, self.size())?;
        self.compare(Call::new(Collective::ReduceScatter, values).by(op))?;
        self.inner.reduce_scatter(values, own, op)
    }

    fn all_gather(&self, own: HostSlice<'_>, all: HostSliceMut<'_>) -> Result<()> {
        check::parts(all.as_slice(), own, self.size())?;
        self.compare(Call::new(Collective::AllGather, own))?;
        self.inner.all_gather(own, all)
    }

    fn broadcast(&self, values: HostSliceMut<'_>, root: usize) -> Result<()> {
        check::root(root, self.size())?;
        self.compare(Call::new(Collective::Broadcast, values.as_slice()).rooted(root))?;
        self.inner.broadcast(values, root)
    }

    fn barrier(&self) -> Result<()> {
        self.compare(Call::bare(Collective::Barrier))?;
        self.inner.barrier()
    }

    fn duplicate(&self) -> Result<Arc<dyn Communicator>> {
        self.compare(Call::bare(Collective::Duplicate))?;
        Ok(Arc::new(Self::new(self.inner.duplicate()?)))
    }

    fn shrink(&self) -> Result<Arc<dyn Communicator>> {
        Ok(Arc::new(Self::new(self.inner.shrink()?)))
    }

    fn abort(&self, why: &str) {
        self.inner.abort(why);
    }
}
