//! A program as data: inputs, calls in order, and outputs.

use polygrad_core::{DType, HostTensor, Result, Rng, Shape};

use super::calls::{Arg, Call};

/// The dtype of a tensor of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The float dtype in which the program is run.
    Tested,
    /// A fixed dtype.
    Fixed(DType),
}

/// The dtypes in which a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dtypes {
    /// The dtype for [`Kind::Tested`].
    pub tested: DType,
    /// Whether all floats are f64, to compute the truth.
    pub wide: bool,
}

impl Dtypes {
    /// The dtype of a kind.
    pub fn of(self, kind: Kind) -> DType {
        match kind {
            Kind::Tested => self.float(self.tested),
            Kind::Fixed(dtype) => self.float(dtype),
        }
    }

    fn float(self, dtype: DType) -> DType {
        if self.wide && dtype.is_float() {
            DType::F64
        } else {
            dtype
        }
    }
}

/// The numbers of an input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Real numbers between two.
    Uniform(f64, f64),
    /// Integers from the first to the second: every dtype represents them, and they are not rounded.
    Whole(i64, i64),
    /// The integers from 0 on, in a random order along the last axis.
    Distinct,
}

/// The role of an input in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Data, which change for each run; no gradient is requested.
    Data,
    /// A leaf of the gradient graph. Training changes it, and it is constant in a compiled program.
    Leaf,
}

/// An input tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its dtype.
    pub kind: Kind,
    /// Its numbers.
    pub fill: Fill,
    /// Its role in the program.
    pub role: Role,
}

/// One call. Its operands are indices of values: the inputs come first, then the results of the steps in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The call.
    pub call: &'static Call,
    /// Its tensors.
    pub operands: Vec<usize>,
    /// Its other arguments.
    pub args: Vec<Arg>,
    /// The number of its results.
    pub results: usize,
}

/// The optimizer for training the leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trainer {
    /// SGD with momentum.
    Sgd,
    /// Adam.
    Adam,
    /// AdamW.
    AdamW,
    /// RMSprop.
    RmsProp,
    /// Adagrad.
    Adagrad,
}

impl Trainer {
    /// All.
    pub const ALL: [Self; 5] = [Self::Sgd, Self::Adam, Self::AdamW, Self::RmsProp, Self::Adagrad];

    /// The optimizer's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sgd => "SGD",
            Self::Adam => "Adam",
            Self::AdamW => "AdamW",
            Self::RmsProp => "RMSprop",
            Self::Adagrad => "Adagrad",
        }
    }
}

/// A whole program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// The seed of its numbers.
    pub seed: u64,
    /// The inputs.
    pub inputs: Vec<Input>,
    /// The calls.
    pub steps: Vec<Step>,
    /// The values that are outputs.
    pub outputs: Vec<usize>,
    /// The order of differentiation: 0, 1 or 2.
    pub order: u8,
    /// The optimizer for training steps, if there are any.
    pub trainer: Option<Trainer>,
}

impl Program {
    /// The number of values.
    pub fn values(&self) -> usize {
        self.inputs.len() + self.steps.iter().map(|step| step.results).sum::<usize>()
    }

    /// The first result of each step.
    pub(crate) fn first_results(&self) -> Vec<usize> {
        let mut next = self.inputs.len();
        let first = |step: &Step| {
            next += step.results;
            next - step.results
        };
        self.steps.iter().map(first).collect()
    }

    /// The last step that uses each value; `None` for outputs.
    pub(crate) fn last_uses(&self) -> Vec<Option<usize>> {
        let mut last = vec![None; self.values()];
        for (i, step) in self.steps.iter().enumerate() {
            for &operand in &step.operands {
                last[operand] = Some(i);
            }
        }
        for &output in &self.outputs {
            last[output] = None;
        }
        last
    }

    /// The numbers of the inputs, rounded to their dtypes. `set` selects one of many sets of numbers.
    ///
    /// # Errors
    /// If a shape is malformed, which only happens in programs that were edited by hand.
    pub fn numbers(&self, set: u64, dtypes: Dtypes) -> Result<Vec<HostTensor>> {
        let of = |(i, input): (usize, &Input)| input.host(self.seed, set, i, dtypes);
        self.inputs.iter().enumerate().map(of).collect()
    }
}

impl Input {
    /// Its numbers, as input `i` of a program with this seed.
    pub(crate) fn host(&self, seed: u64, set: u64, i: usize, dtypes: Dtypes) -> Result<HostTensor> {
        let rounded = Dtypes { wide: false, ..dtypes }.of(self.kind);
        let host = self.numbers(seed, (set << 16) + i as u64)?.try_cast(rounded)?;
        host.try_cast(dtypes.of(self.kind))
    }

    fn numbers(&self, seed: u64, stream: u64) -> Result<HostTensor> {
        let shape = Shape::new(&self.shape)?;
        let mut rng = Rng::at(seed, stream << 24);
        let count = shape.numel();
        let numbers: Vec<f64> = match self.fill {
            Fill::Uniform(low, high) => (0..count).map(|_| low + (high - low) * rng.uniform()).collect(),
            Fill::Whole(low, high) => {
                let span = (high - low + 1).max(1) as usize;
                (0..count).map(|_| (low + rng.below(span) as i64) as f64).collect()
            }
            Fill::Distinct => {
                let line = self.shape.last().copied().unwrap_or(1).max(1);
                let mut numbers = Vec::with_capacity(count);
                while numbers.len() < count {
                    let mut order: Vec<f64> = (0..line).map(|i| i as f64).collect();
                    for i in (1..line).rev() {
                        order.swap(i, rng.below(i + 1));
                    }
                    numbers.extend(order);
                }
                numbers
            }
        };
        HostTensor::new(shape, numbers)
    }
}
