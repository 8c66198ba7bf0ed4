//! A program as data: what goes in, the calls in order, and what comes out.

use polygrad_core::{DType, HostTensor, Result, Rng, Shape};

use super::calls::{Arg, Call};

/// The dtype of a tensor of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The float dtype that the program is run in.
    Tested,
    /// One of its own.
    Fixed(DType),
}

/// In which dtypes a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dtypes {
    /// What [`Kind::Tested`] is.
    pub tested: DType,
    /// Whether all floats are f64: for the truth.
    pub wide: bool,
}

impl Dtypes {
    /// The dtype that a kind is.
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
    /// Whole numbers from the first to the second: every dtype holds them, and rounding leaves them alone.
    Whole(i64, i64),
    /// The numbers from 0 on, in any order along the last axis.
    Distinct,
}

/// What an input is to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Data, another one each time; no gradient is asked for.
    Data,
    /// A leaf of the gradient graph, which training changes, and which stays the same where the program is compiled.
    Leaf,
}

/// A tensor that goes in.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its dtype.
    pub kind: Kind,
    /// Its numbers.
    pub fill: Fill,
    /// What it is to the program.
    pub role: Role,
}

/// One call. Its operands are values: the inputs come first, then the results of the steps in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What is called.
    pub call: &'static Call,
    /// Its tensors.
    pub operands: Vec<usize>,
    /// Its other arguments.
    pub args: Vec<Arg>,
    /// How many tensors it gives.
    pub results: usize,
}

/// What trains the leaves.
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
    /// What its numbers come from.
    pub seed: u64,
    /// What goes in.
    pub inputs: Vec<Input>,
    /// The calls.
    pub steps: Vec<Step>,
    /// The values that come out.
    pub outputs: Vec<usize>,
    /// How many times it is differentiated: 0, 1 or 2.
    pub order: u8,
    /// Whether training steps are made with it, and by what.
    pub trainer: Option<Trainer>,
}

impl Program {
    /// How many values there are.
    pub fn values(&self) -> usize {
        self.inputs.len() + self.steps.iter().map(|step| step.results).sum::<usize>()
    }

    /// The first value that each step gives.
    pub(crate) fn first_results(&self) -> Vec<usize> {
        let mut next = self.inputs.len();
        let first = |step: &Step| {
            next += step.results;
            next - step.results
        };
        self.steps.iter().map(first).collect()
    }

    /// The step after which nobody asks for a value; for outputs none.
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

    /// The numbers of the inputs, rounded to their dtypes. `set` says which of the many sets of numbers.
    ///
    /// # Errors
    /// When a shape is malformed, which happens only to programs that were changed by hand.
    pub fn numbers(&self, set: u64, dtypes: Dtypes) -> Result<Vec<HostTensor>> {
        let of = |(i, input): (usize, &Input)| input.host(self.seed, set, i, dtypes);
        self.inputs.iter().enumerate().map(of).collect()
    }
}

impl Input {
    /// Its numbers, where it is input `i` of a program with this seed.
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
