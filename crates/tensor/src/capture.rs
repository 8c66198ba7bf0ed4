//! Computations that are recorded in their first two runs and replayed afterwards.

use std::fmt;

use polygrad_core::program::{Program, Recorded, Replay, record};
use polygrad_core::{AnyBackend, AnyTensor, Backend, DType, Error, Result, Shape};

use crate::Tensor;
use crate::autocast::autocast_dtype;
use crate::random::{GeneratorState, next_key};

/// The most sets of input shapes that are recorded. For further shapes the computation always runs normally.
const MAX_PROGRAMS: usize = 8;

/// Replays a computation as its bare ops, without the layers above: shapes are not checked, and no gradient graph is
/// built.
///
/// The first two runs with inputs of the same shapes and dtypes, in one mode of [`autocast`](crate::autocast()), are
/// recorded. If both recordings have the same ops and numbers, later runs are replayed: ops that do not depend on the
/// inputs are computed once, and ops are fused if the backend has a fused form. Otherwise, or if something cannot be
/// recorded, every run is a normal one, and [`Capture::refusal`] says why.
///
/// Whatever the computation uses besides its inputs is frozen, numbers as well as tensors, since a replay does not run
/// the recorded code. State that it changes must be among its outputs. Random numbers are drawn anew in each run, and
/// are the same that the code would draw.
///
/// `TrainStep::captured` of polygrad-nn uses it. `S` is data of the caller about the outputs, which a replay returns
/// again.
pub struct Capture<S = ()> {
    entries: Vec<Entry<S>>,
    refusal: Option<String>,
}

struct Entry<S> {
    signature: Signature,
    state: State<S>,
}

/// Conditions under which a recording can be replayed.
struct Signature {
    variant: u64,
    autocast: Option<DType>,
    inputs: Vec<(Shape, DType)>,
    /// Pairs of inputs that were the same tensor, which a recording treats as one value.
    shared: Vec<(usize, usize)>,
    /// A tensor on the device, to compare devices with.
    witness: AnyTensor,
}

enum State<S> {
    Once(Box<Program>),
    Ready(Replayed, S),
    Never(String),
}

impl<S> Default for Capture<S> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            refusal: None,
        }
    }
}

impl<S: Clone> Capture<S> {
    /// Nothing is recorded yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the outputs of `f`, computed by `f` or by a replay. `inputs`, at least one, are all tensors that `f`
    /// uses and that may change between calls. `variant` encodes anything else that changes what `f` does, such as the
    /// mode of a model.
    ///
    /// # Errors
    /// Those of `f`; those of the device.
    pub fn run(
        &mut self,
        variant: u64,
        inputs: Vec<Tensor>,
        f: impl FnOnce() -> Result<(Vec<Tensor>, S)>,
    ) -> Result<(Vec<Tensor>, S)> {
        let inputs: Vec<AnyTensor> = inputs.into_iter().map(|x| x.value).collect();
        let found = self.entries.iter_mut().find(|entry| entry.fits(variant, &inputs));
        let Some(entry) = found else {
            if self.entries.len() == MAX_PROGRAMS {
                self.refusal = Some(format!(
                    "it was given inputs of more than {MAX_PROGRAMS} sets of shapes"
                ));
                return f();
            }
            let (outputs, s, program) = recorded(&inputs, f)?;
            let outputs = tensors(outputs);
            let state = match program {
                Ok(program) => State::Once(Box::new(program)),
                Err(why) => State::Never(why),
            };
            let signature = Signature::of(variant, &inputs)?;
            self.entries.push(Entry { signature, state });
            return Ok((outputs, s));
        };
        match &mut entry.state {
            State::Ready(ready, s) => {
                self.refusal = None;
                let outputs = ready.replay.run(&inputs, &mut next_key)?;
                Ok((tensors(outputs), s.clone()))
            }
            State::Never(why) => {
                self.refusal = Some(why.clone());
                f()
            }
            State::Once(first) => {
                let (outputs, s, second) = recorded(&inputs, f)?;
                entry.state = match second.and_then(|second| replay(first, second)) {
                    Ok(ready) => State::Ready(ready, s.clone()),
                    Err(why) => State::Never(why),
                };
                Ok((tensors(outputs), s))
            }
        }
    }

    /// Whether a replay is ready for some set of shapes.
    pub fn is_ready(&self) -> bool {
        let ready = |entry: &Entry<S>| matches!(entry.state, State::Ready(..));
        self.entries.iter().any(ready)
    }

    /// The most bytes that the values of a replay take at once, without its inputs, for the set of shapes that needs
    /// most. `None` if no replay is ready. See [`Program::peak_bytes`].
    pub fn peak_bytes(&self) -> Option<usize> {
        let bytes = |entry: &Entry<S>| match &entry.state {
            State::Ready(ready, _) => Some(ready.peak_bytes),
            State::Once(_) | State::Never(_) => None,
        };
        self.entries.iter().filter_map(bytes).max()
    }

    /// Why the last run was not a replay, and later ones will not be either. `None` if it was a replay, or the next one
    /// may be.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }
}

impl<S> Entry<S> {
    fn fits(&self, variant: u64, inputs: &[AnyTensor]) -> bool {
        // A replay also works if more of the inputs are the same tensor, but a second recording must match the first.
        let is_first = matches!(self.state, State::Once(_));
        self.signature.fits(variant, inputs) && (!is_first || self.signature.shared == shared(inputs))
    }
}

/// Pairs of inputs that are the same tensor.
pub(crate) fn shared(inputs: &[AnyTensor]) -> Vec<(usize, usize)> {
    let first = |i: usize| Some((inputs[..i].iter().position(|x| x.is(&inputs[i]))?, i));
    (0..inputs.len()).filter_map(first).collect()
}

impl Signature {
    fn of(variant: u64, inputs: &[AnyTensor]) -> Result<Self> {
        let device = AnyBackend::device(&inputs[0]);
        Ok(Self {
            variant,
            autocast: autocast_dtype(),
            inputs: inputs.iter().map(|x| (x.shape(), x.dtype())).collect(),
            shared: shared(inputs),
            witness: AnyBackend::zeros(Shape::SCALAR, inputs[0].dtype(), &device)?,
        })
    }

    fn fits(&self, variant: u64, inputs: &[AnyTensor]) -> bool {
        let same = |(x, wanted): (&AnyTensor, &(Shape, DType))| {
            (x.shape(), x.dtype()) == *wanted && AnyBackend::same_device(&self.witness, x)
        };
        (self.variant, self.autocast) == (variant, autocast_dtype())
            && self.inputs.len() == inputs.len()
            && inputs.iter().zip(&self.inputs).all(same)
            && self.shared.iter().all(|&(a, b)| inputs[a].is(&inputs[b]))
    }
}

pub(crate) fn tensors(values: Vec<AnyTensor>) -> Vec<Tensor> {
    values.into_iter().map(Tensor::from_inner).collect()
}

/// Runs `f` and records it.
pub(crate) fn recorded<S>(inputs: &[AnyTensor], f: impl FnOnce() -> Result<(Vec<Tensor>, S)>) -> Result<Recorded<S>> {
    let mut next = GeneratorState::current();
    let (outputs, s, program) = record(inputs, || {
        let (outputs, s) = f()?;
        Ok((outputs.into_iter().map(|x| x.value).collect(), s))
    })?;
    let program = program.and_then(|program| {
        for draw in program.draws() {
            if (next.seed, next.offset) != (draw.key.seed, draw.key.offset) {
                return Err("it does not draw its random numbers from the thread's stream alone".to_owned());
            }
            next.offset = next.offset.wrapping_add(draw.count as u64);
        }
        if next == GeneratorState::current() {
            Ok(program)
        } else {
            Err("it draws random numbers that are no tensors".to_owned())
        }
    });
    Ok((outputs, s, program))
}

/// A compiled program.
pub(crate) struct Replayed {
    pub(crate) replay: Box<dyn Replay>,
    pub(crate) ops: Vec<&'static str>,
    peak_bytes: usize,
}

/// Compiles a recording, if two recordings agree. The error says how they differ.
pub(crate) fn replay(first: &Program, mut second: Program) -> std::result::Result<Replayed, String> {
    let text = |error: Error| error.to_string();
    if let Some(difference) = first.difference(&second).map_err(text)? {
        return Err(difference);
    }
    second.optimize().map_err(text)?;
    Ok(Replayed {
        ops: second.ops().collect(),
        peak_bytes: second.peak_bytes(),
        replay: second.compile().map_err(text)?,
    })
}

impl<S> fmt::Debug for Capture<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture")
            .field("recorded", &self.entries.len())
            .field("refusal", &self.refusal)
            .finish_non_exhaustive()
    }
}
