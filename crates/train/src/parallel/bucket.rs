//! Buckets of gradients that are sent together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytemuck::Pod;
use polygrad_core::communicator::{Communicator, HostBuffer};
use polygrad_core::program::Call;
use polygrad_core::{AnyBackend, AnyTensor, Backend, DType, Element, Error, HostTensor, Result, Shape, dispatch_dtype};

use super::queue::{Flying, Queue};

/// Number of values that the ranks exchange besides gradients.
pub(super) const NOTES: usize = 2;

/// How the gradients of this batch count, and whether their sums are sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// The batch's share of all ranks' examples.
    pub(super) weight: f64,
    /// Whether the sums go to the optimizer; otherwise further batches follow.
    pub(super) sends: bool,
    /// Whether this rank wants to stop.
    pub(super) stops: bool,
}

impl Round {
    /// A batch of which every rank has the same number of examples.
    pub(super) fn of(communicator: &dyn Communicator) -> Self {
        Self {
            weight: 1.0 / communicator.size() as f64,
            sends: true,
            stops: false,
        }
    }
}

/// A parameter's place in a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// Index of the parameter.
    pub(super) param: usize,
    pub(super) shape: Shape,
    pub(super) dtype: DType,
    /// Index of its first element in the bucket.
    pub(super) start: usize,
}

impl Member {
    fn range(&self) -> std::ops::Range<usize> {
        self.start..self.start + self.shape.numel()
    }
}

/// Concatenated gradients, then the number of ranks that have each of them; in the last bucket also the loss and the
/// number of ranks that want to stop.
pub(super) struct Bucket {
    pub(super) number: usize,
    pub(super) dtype: DType,
    pub(super) members: Vec<Member>,
    pub(super) is_last: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The sum so far.
    sum: Option<HostBuffer>,
    flying: Option<Flying>,
    /// The sums of the step before; their buffer is reused if nothing else holds it, since the optimizer is done with
    /// it.
    spent: Option<Arc<HostBuffer>>,
}

/// The sums over all ranks.
pub(super) struct Landed {
    pub(super) values: HostTensor,
    /// Which members have a gradient on any rank.
    pub(super) has_gradient: Vec<bool>,
    /// The loss and the number of ranks that want to stop, in the last bucket.
    pub(super) notes: [f64; NOTES],
}

impl Bucket {
    pub(super) fn new(number: usize, dtype: DType, members: Vec<Member>, is_last: bool) -> Self {
        Self {
            number,
            dtype,
            members,
            is_last,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of gradient elements.
    fn numel(&self) -> usize {
        self.members.last().map_or(0, |last| last.range().end)
    }

    fn len(&self) -> usize {
        self.numel() + self.members.len() + if self.is_last { NOTES } else { 0 }
    }

    /// Adds the gradients of a batch, those of `present` members, and in the last bucket the loss after them. Sends the
    /// sums if this is due.
    pub(super) fn add(&self, present: &[usize], values: &[HostTensor], round: Round, queue: &Queue) -> Result<()> {
        match self.dtype {
            DType::F64 => self.add_as::<f64>(present, values, round, |x| x),
            _ => self.add_as::<f32>(present, values, round, |x| x as f32),
        }?;
        if round.sends {
            let mut state = self.lock();
            if let Some(sum) = state.sum.take() {
                state.flying = Some(queue.sum(self.number, self.dtype, sum));
            }
        }
        Ok(())
    }

    fn add_as<T: Sum>(
        &self,
        present: &[usize],
        values: &[HostTensor],
        round: Round,
        from: impl Fn(f64) -> T,
    ) -> Result<()> {
        let mut state = self.lock();
        let is_first = state.sum.is_none();
        let mut sum = match state.sum.take() {
            Some(sum) => sum,
            None => match state.spent.take().map(Arc::try_unwrap) {
                Some(Ok(spent)) => spent,
                _ => HostBuffer::new(self.len() * self.dtype.size())?,
            },
        };
        let all: &mut [T] = bytemuck::cast_slice_mut(sum.bytes_mut());
        let weight = from(round.weight);
        let mut given = present.iter().zip(values).peekable();
        for (i, member) in self.members.iter().enumerate() {
            let place = &mut all[member.range()];
            let found = given.next_if(|(at, _)| **at == i);
            match found {
                Some((_, gradient)) => dispatch_dtype!(gradient.dtype(), G => {
                    add(place, gradient.as_slice::<G>()?, weight, is_first);
                }),
                None if is_first => place.fill(from(0.0)),
                None => {}
            }
            let flag = &mut all[self.numel() + i];
            let before = if is_first { from(0.0) } else { *flag };
            *flag = before + from(f64::from(u8::from(found.is_some())));
        }
        if self.is_last {
            let loss = values.last().map_or(f64::NAN, |loss| loss.to_f64_vec().iter().sum());
            let notes = [loss * round.weight, f64::from(u8::from(round.stops))];
            let at = self.len() - NOTES;
            for (place, note) in all[at..].iter_mut().zip(notes) {
                let before = if is_first { from(0.0) } else { *place };
                *place = before + from(note);
            }
        }
        state.sum = Some(sum);
        Ok(())
    }

    /// Discards the sums so far, and does not wait for sent ones.
    pub(super) fn forget(&self) {
        *self.lock() = State::default();
    }

    /// Waits for the sums.
    pub(super) fn land(&self) -> Result<Landed> {
        let flying = self.lock().flying.take();
        let Some(flying) = flying else {
            return Err(Error::invalid(
                "no gradients were sent: the backward pass comes before the optimizer's step",
            ));
        };
        let ended = || Error::communication("the thread that exchanges gradients has ended");
        let sums = Arc::new(flying.recv().map_err(|_| ended())??);
        let tensor = HostTensor::from_shared(self.dtype, Shape::from([self.len()]), Arc::clone(&sums) as _)?;
        let rest = self.numel()..self.len();
        let tail: Vec<f64> = match self.dtype {
            DType::F64 => tensor.as_slice::<f64>()?[rest].to_vec(),
            _ => tensor.as_slice::<f32>()?[rest].iter().map(|x| f64::from(*x)).collect(),
        };
        let (flags, notes) = tail.split_at(self.members.len());
        self.lock().spent = Some(sums);
        Ok(Landed {
            values: tensor,
            has_gradient: flags.iter().map(|flag| *flag > 0.0).collect(),
            notes: notes.try_into().unwrap_or_default(),
        })
    }
}

/// The type in which sums are computed.
trait Sum: Element + Pod + std::ops::Add<Output = Self> + std::ops::Mul<Output = Self> {
    fn of<G: Element>(value: G) -> Self;
}

impl Sum for f32 {
    #[inline]
    fn of<G: Element>(value: G) -> Self {
        value.to_f64() as f32
    }
}

impl Sum for f64 {
    #[inline]
    fn of<G: Element>(value: G) -> Self {
        value.to_f64()
    }
}

fn add<T: Sum, G: Element>(sum: &mut [T], gradient: &[G], weight: T, is_first: bool) {
    let pairs = sum.iter_mut().zip(gradient);
    match is_first {
        true => pairs.for_each(|(sum, g)| *sum = T::of(*g) * weight),
        false => pairs.for_each(|(sum, g)| *sum = *sum + T::of(*g) * weight),
    }
}

/// The call of a program that takes the gradients of `present` members and, for the last bucket, the loss.
pub(super) struct Add {
    pub(super) bucket: Arc<Bucket>,
    pub(super) present: Vec<usize>,
    pub(super) round: Arc<Mutex<Round>>,
    pub(super) queue: Arc<RwLock<Queue>>,
}

impl Call for Add {
    fn name(&self) -> &'static str {
        "all_reduce"
    }

    fn run(&self, inputs: &[AnyTensor]) -> Result<Vec<AnyTensor>> {
        let values = inputs.iter().map(AnyBackend::to_host).collect::<Result<Vec<_>>>()?;
        let round = *self.round.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = self.queue.read().unwrap_or_else(PoisonError::into_inner);
        self.bucket.add(&self.present, &values, round, &queue)?;
        Ok(Vec::new())
    }
}
