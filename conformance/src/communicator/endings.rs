//! Ways in which a group ends: a peer that is late, or one that leaves.

use std::error::Error as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polygrad_core::communicator::{Communicator, HostSliceMut, LostPeer, Reduction};
use polygrad_core::{Error, ErrorKind, HostTensor, Result, Shape};

use super::Options;
use super::rank::{Rank, watched};
use super::report::Report;

/// The action of the last rank of a group, instead of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It arrives after the time limit.
    Late,
    /// It drops its handle.
    Leaves,
    /// It aborts the group.
    Aborts,
}

/// The collective that the others call meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Communicator::all_reduce`].
    AllReduce,
    /// [`Communicator::reduce_scatter`].
    ReduceScatter,
    /// [`Communicator::all_gather`].
    AllGather,
    /// [`Communicator::broadcast`], from the missing rank.
    Broadcast,
    /// [`Communicator::barrier`].
    Barrier,
}

impl Call {
    /// Every collective.
    pub const ALL: [Self; 5] = [
        Self::AllReduce,
        Self::ReduceScatter,
        Self::AllGather,
        Self::Broadcast,
        Self::Barrier,
    ];

    fn make(self, rank: &mut Rank, root: usize) -> Result<()> {
        let values = HostTensor::new(Shape::new(&[rank.size() * 3])?, vec![1f32; rank.size() * 3])?;
        match self {
            Self::AllReduce => rank.all_reduce(&values, Reduction::Sum).map(drop),
            Self::ReduceScatter => rank.reduce_scatter(&values, Reduction::Sum).map(drop),
            Self::AllGather => rank.all_gather(&values).map(drop),
            Self::Broadcast => rank.broadcast(&values, root).map(drop),
            Self::Barrier => rank.barrier(),
        }
    }
}

/// Ends a group of at least two ranks, each of which calls this with the only handle of its end. The others get an
/// error within the time limit and the margin; the error names the last rank, and further calls fail as fast. With
/// [`Options::shrinks`], they continue without a rank that left.
pub fn ends(comm: Arc<dyn Communicator>, ending: Ending, call: Call, options: &Options) -> Report {
    let options = *options;
    let margin = options.margin;
    // The handle is passed on, so that the last rank can drop it.
    let about = About {
        rank: comm.rank(),
        size: comm.size(),
        timeout: comm.timeout(),
    };
    watched(comm, margin, move |rank| {
        rank.case(format!("{call:?} {ending:?}"));
        if about.size < 2 {
            return Err(Error::invalid("a group of one rank has no peer to lose"));
        }
        call.make(rank, 0)?;
        match about.rank == about.size - 1 {
            true => end(rank, &about, ending, call, &options),
            false => miss(rank, &about, ending, call, &options),
        }
    })
}

struct About {
    rank: usize,
    size: usize,
    timeout: Duration,
}

/// The last rank's part.
fn end(rank: &mut Rank, about: &About, ending: Ending, call: Call, options: &Options) -> Result<()> {
    match ending {
        Ending::Leaves => rank.leave(),
        Ending::Aborts => rank.comm()?.abort("for a test"),
        Ending::Late => {
            std::thread::sleep(about.timeout + options.margin / 2);
            // The others may have sent their part already, so that this call succeeds.
            let _ = call.make(rank, about.size - 1);
            let done = Call::Barrier.make(rank, about.size - 1);
            failed(rank, "the second call of a rank that comes late", done, options, None);
        }
    }
    Ok(())
}

/// The other ranks' part.
fn miss(rank: &mut Rank, about: &About, ending: Ending, call: Call, options: &Options) -> Result<()> {
    let last = about.size - 1;
    let begun = Instant::now();
    let done = call.make(rank, last);
    failed(rank, "the first call", done, options, Some(last));
    let took = begun.elapsed();
    rank.expect(took <= about.timeout + options.margin, || {
        format!("the first call took {took:?}")
    });
    for next in Call::ALL {
        let done = next.make(rank, last);
        failed(rank, &format!("{next:?} afterwards"), done, options, None);
    }
    if ending == Ending::Leaves && options.shrinks {
        let left = rank.comm()?.shrink()?;
        rank.called();
        let expected = (about.rank, last);
        let got = (left.rank(), left.size());
        rank.expect(got == expected, || {
            format!("shrink gives rank and size {got:?}, not {expected:?}")
        });
        let mut sum = [1i32];
        left.all_reduce(HostSliceMut::new(&mut sum), Reduction::Sum)?;
        rank.expect(sum[0] == last as i32, || {
            format!("of the {last} ranks that are left, {} are counted", sum[0])
        });
    }
    Ok(())
}

/// Checks that a call failed as expected, and that the error names the lost rank, if there is one.
fn failed(rank: &Rank, what: &str, done: Result<()>, options: &Options, lost: Option<usize>) {
    let Err(error) = done else {
        return rank.fails(format!("{what} succeeds"));
    };
    let kind = error.kind();
    rank.expect(kind == ErrorKind::Communication, || {
        format!("{what} fails as {}: {error}", kind.as_str())
    });
    let named = error.source().and_then(|source| source.downcast_ref::<LostPeer>());
    let named = named.map(|peer| peer.rank);
    if let Some(lost) = lost {
        rank.expect(named == Some(lost) || named.is_none() && !options.names_peers, || {
            format!("{what} names {named:?} as lost, not rank {lost}: {error}")
        });
    }
}
