//! Generates random programs: the same program for the same seed and index, on every machine.
//!
//! Each step is tried on the reference, for two sets of numbers, before it becomes part of the program. This ensures
//! that shapes fit, numbers stay in a range where the calls are well conditioned, and discontinuous calls only get
//! integers, which are not rounded.

mod elementwise;
mod layers;
mod movement;
mod reduce;

use polygrad_core::{DType, ErrorKind, Rng};
use polygrad_reference::Reference;
use polygrad_tensor::{Device, Tensor, no_grad};

use super::calls::{Arg, Call, Nature};
use super::forms::trained;
use super::noise::Noisy;
use super::program::{Dtypes, Fill, Input, Kind, Program, Role, Step, Trainer};
use super::run::everything;

/// The most elements of a tensor.
const MOST_ELEMENTS: usize = 256;

/// The largest float.
const LARGEST: f64 = 200.0;

/// The largest gradient that is requested.
const LARGEST_GRADIENT: f64 = 1e4;

/// The least magnitude of gradients if their nearness to 0 matters.
const FLAT: f64 = 1e-3;

/// The largest integer up to which every float dtype represents all integers.
const WHOLE: f64 = 256.0;

/// The largest integer.
const LARGEST_INTEGER: f64 = 100_000.0;

/// The dtypes that programs are drawn in.
const WIDE: Dtypes = Dtypes {
    tested: DType::F64,
    wide: true,
};

/// A value of the program so far.
struct Value {
    /// The input, or the step and the index of its result.
    origin: Origin,
    shape: Vec<usize>,
    kind: Kind,
    /// Whether its numbers are integers that have not been rounded.
    exact: bool,
    /// The bounds of its numbers.
    low: f64,
    high: f64,
    used: bool,
    /// The value for two sets of numbers.
    tensors: [Tensor; 2],
}

#[derive(Clone, Copy)]
enum Origin {
    Input(usize),
    Result(usize, usize),
}

impl Value {
    fn is_float(&self) -> bool {
        match self.kind {
            Kind::Tested => true,
            Kind::Fixed(dtype) => dtype.is_float(),
        }
    }

    fn is(&self, dtype: DType) -> bool {
        self.kind == Kind::Fixed(dtype)
    }

    fn rank(&self) -> usize {
        self.shape.len()
    }

    fn numel(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A program under construction. Values are numbered here in the order of their creation.
struct Draw {
    rng: Rng,
    program: Program,
    values: Vec<Value>,
    device: Device,
}

/// A candidate step: call, operands and arguments.
type Wish = Option<(&'static str, Vec<usize>, Vec<Arg>)>;

/// The weight of a way to generate steps, and the way.
type Way = (u32, fn(&mut Draw) -> Wish);

/// The program of a seed and an index.
pub fn draw(seed: u64, number: u64) -> Program {
    let mut rng = Rng::at(seed, number << 24);
    let steps = 5 + (56.0 * rng.uniform() * rng.uniform()) as usize;
    let numbers = rng.next_u64() >> 12;
    let mut draw = Draw {
        rng,
        program: Program {
            seed: numbers,
            inputs: Vec::new(),
            steps: Vec::new(),
            outputs: Vec::new(),
            order: 0,
            trainer: None,
        },
        values: Vec::new(),
        device: Device::<Reference>::default().into_any(),
    };
    draw.start();
    let ways: Vec<Way> = [elementwise::WAYS, reduce::WAYS, movement::WAYS, layers::WAYS].concat();
    let total: u32 = ways.iter().map(|way| way.0).sum();
    let mut patience = 20 * steps;
    while draw.program.steps.len() < steps && patience > 0 {
        patience -= 1;
        let mut place = draw.rng.below(total as usize) as u32;
        let way = ways.iter().find(|way| match place.checked_sub(way.0) {
            Some(rest) => {
                place = rest;
                false
            }
            None => true,
        });
        let Some((_, way)) = way else { continue };
        if let Some((name, operands, args)) = way(&mut draw) {
            draw.step(name, operands, args);
        }
    }
    draw.finish()
}

impl Draw {
    fn start(&mut self) {
        for _ in 0..1 + self.rng.below(3) {
            let shape = self.shape();
            self.float_input(shape);
        }
        if self.rng.chance(0.5) {
            let shape = self.shape();
            self.whole_input(shape);
        }
    }

    fn shape(&mut self) -> Vec<usize> {
        let rank = self.rng.below(5);
        (0..rank).map(|_| self.extent()).collect()
    }

    fn extent(&mut self) -> usize {
        match self.rng.below(24) {
            0 => 1,
            1 => 8 + self.rng.below(10),
            2 if self.rng.chance(0.2) => 0,
            _ => 1 + self.rng.below(5),
        }
    }

    fn int(&mut self, low: i64, high: i64) -> i64 {
        low + self.rng.below((high - low + 1).max(1) as usize) as i64
    }

    /// A number with few digits.
    fn number(&mut self, low: f64, high: f64) -> f64 {
        let eighths = self.int((low * 8.0) as i64, (high * 8.0) as i64);
        eighths as f64 / 8.0
    }

    /// One of several.
    fn one_of<T: Copy>(&mut self, several: &[T]) -> T {
        several[self.rng.below(several.len())]
    }

    /// An axis, counted from the front or from the back.
    fn axis(&mut self, rank: usize) -> Option<i64> {
        let axis = self.rng.below(rank) as i64;
        let back = self.rng.chance(0.3);
        (rank > 0).then_some(if back { axis - rank as i64 } else { axis })
    }

    /// Some axes, possibly all or none.
    fn axes(&mut self, rank: usize) -> Vec<i64> {
        if self.rng.chance(0.2) {
            return (0..rank as i64).collect();
        }
        (0..rank as i64).filter(|_| self.rng.chance(0.5)).collect()
    }

    /// A random value of this kind; values that no step has used yet are more likely.
    fn pick(&mut self, is_such: impl Fn(&Value) -> bool) -> Option<usize> {
        let such = |(i, value): (usize, &Value)| is_such(value).then_some(i);
        let all: Vec<usize> = self.values.iter().enumerate().filter_map(such).collect();
        let unused: Vec<usize> = all.iter().copied().filter(|&i| !self.values[i].used).collect();
        let from = if !unused.is_empty() && self.rng.chance(0.6) {
            unused
        } else {
            all
        };
        (!from.is_empty()).then(|| from[self.rng.below(from.len())])
    }

    /// Floats, mostly those of the tested dtype.
    fn float(&mut self) -> Option<usize> {
        let other = self.rng.chance(0.1);
        self.pick(|value| value.is_float() && (other || value.kind == Kind::Tested))
    }

    /// Floats of at least this rank.
    fn float_of_rank(&mut self, rank: usize) -> Option<usize> {
        self.pick(|value| value.kind == Kind::Tested && value.rank() >= rank && value.numel() > 0)
    }

    /// A tensor that broadcasts with a value, of the same dtype: an existing or a new one.
    fn beside(&mut self, x: usize) -> usize {
        let (shape, kind) = (self.values[x].shape.clone(), self.values[x].kind);
        let fits = |value: &Value| value.kind == kind && broadcasts(&value.shape, &shape);
        match self.pick(fits) {
            Some(y) if self.rng.chance(0.7) => y,
            _ => {
                let skip = self.rng.below(shape.len() + 1);
                let skip = if self.rng.chance(0.5) { 0 } else { skip };
                let dims: Vec<usize> = shape[skip..].to_vec();
                let dims = dims
                    .into_iter()
                    .map(|dim| if self.rng.chance(0.25) { 1 } else { dim })
                    .collect();
                self.like(x, dims)
            }
        }
    }

    /// A new input with a value's dtype and a similar range.
    fn like(&mut self, x: usize, shape: Vec<usize>) -> usize {
        let value = &self.values[x];
        let (kind, exact, is_float) = (value.kind, value.exact, value.is_float());
        let fill = match kind {
            Kind::Fixed(DType::Bool) => Fill::Whole(0, 1),
            Kind::Fixed(DType::U8) => Fill::Whole(0, 9),
            _ if is_float && !exact => Fill::Uniform(-1.5, 1.5),
            _ => Fill::Whole(-4, 4),
        };
        let role = if is_float && self.rng.chance(0.6) {
            Role::Leaf
        } else {
            Role::Data
        };
        self.input(shape, kind, fill, role)
    }

    fn float_input(&mut self, shape: Vec<usize>) -> usize {
        let fill = match self.rng.below(6) {
            0 => Fill::Whole(-3, 3),
            1 => Fill::Uniform(0.25, 2.0),
            _ => Fill::Uniform(-2.0, 2.0),
        };
        let role = if self.rng.chance(0.5) { Role::Leaf } else { Role::Data };
        self.input(shape, Kind::Tested, fill, role)
    }

    fn whole_input(&mut self, shape: Vec<usize>) -> usize {
        let dtype = self.one_of(&[DType::I64, DType::I32, DType::U8, DType::Bool]);
        let fill = match dtype {
            DType::Bool => Fill::Whole(0, 1),
            DType::U8 => Fill::Whole(0, 9),
            _ => Fill::Whole(-5, 5),
        };
        self.input(shape, Kind::Fixed(dtype), fill, Role::Data)
    }

    /// A weight of a layer.
    fn weight(&mut self, shape: &[usize]) -> usize {
        let role = if self.rng.chance(0.85) { Role::Leaf } else { Role::Data };
        self.input(shape.to_vec(), Kind::Tested, Fill::Uniform(-1.0, 1.0), role)
    }

    /// Indices below a number.
    fn positions(&mut self, shape: &[usize], below: usize) -> usize {
        let fill = Fill::Whole(0, below as i64 - 1);
        self.input(shape.to_vec(), Kind::Fixed(DType::I64), fill, Role::Data)
    }

    /// Indices without repetitions along the last axis.
    fn distinct(&mut self, shape: &[usize]) -> usize {
        self.input(shape.to_vec(), Kind::Fixed(DType::I64), Fill::Distinct, Role::Data)
    }

    fn input(&mut self, shape: Vec<usize>, kind: Kind, fill: Fill, role: Role) -> usize {
        let i = self.program.inputs.len();
        self.program.inputs.push(Input {
            shape: shape.clone(),
            kind,
            fill,
            role,
        });
        let tensor = |set: u64| {
            let host = self.program.inputs[i].host(self.program.seed, set, i, WIDE);
            Tensor::from_host(host.expect("a shape of few elements"), &self.device).expect("the reference holds it")
        };
        let tensors = [tensor(0), tensor(1)];
        let (low, high) = span(&tensors).unwrap_or((0.0, 0.0));
        self.values.push(Value {
            origin: Origin::Input(i),
            shape,
            kind,
            exact: !matches!(fill, Fill::Uniform(..)),
            low,
            high,
            used: false,
            tensors,
        });
        self.values.len() - 1
    }

    /// Adds a step if it is suitable, and returns its first result.
    fn step(&mut self, name: &str, operands: Vec<usize>, args: Vec<Arg>) -> Option<usize> {
        let call = Call::find(name).expect("a call of the table");
        let of = |i: &usize| &self.values[*i];
        let all_exact = operands.iter().all(|i| of(i).exact);
        if call.nature == Nature::Jump && !all_exact {
            return None;
        }
        let run = |set: usize| {
            let tensors = operands.iter().map(|i| of(i).tensors[set].clone()).collect();
            no_grad(|| call.run(tensors, &args, WIDE)).ok()
        };
        let (first, second) = (run(0)?, run(1)?);
        let float = operands
            .iter()
            .map(of)
            .find(|value| value.is_float())
            .map(|value| value.kind);
        let asked = args.iter().find_map(|arg| match arg {
            Arg::Kind(kind) => Some(*kind),
            _ => None,
        });
        let mut results = Vec::with_capacity(first.len());
        for (k, tensors) in first.into_iter().zip(second).map(|(a, b)| [a, b]).enumerate() {
            let dtype = tensors[0].dtype();
            let kind = match dtype.is_float() {
                true => asked.or(float).unwrap_or(Kind::Tested),
                false => Kind::Fixed(dtype),
            };
            let shape = tensors[0].dims();
            let (low, high) = span(&tensors)?;
            let limit = if dtype.is_float() { LARGEST } else { LARGEST_INTEGER };
            if tensors[0].numel() > MOST_ELEMENTS || shape.len() > 6 || low < -limit || high > limit {
                return None;
            }
            let exact = all_exact && call.nature != Nature::Smooth && (!dtype.is_float() || are_whole(&tensors));
            results.push(Value {
                origin: Origin::Result(self.program.steps.len(), k),
                shape,
                kind,
                exact,
                low,
                high,
                used: false,
                tensors,
            });
        }
        // Integers that rounding may change are not used.
        if results.iter().any(|value| !value.is_float() && !value.exact) {
            return None;
        }
        for &operand in &operands {
            self.values[operand].used = true;
        }
        let at = self.values.len();
        self.program.steps.push(Step {
            call,
            operands,
            args,
            results: results.len(),
        });
        self.values.extend(results);
        Some(at)
    }

    /// Renumbers the values as programs do, and chooses the outputs and the order of differentiation.
    fn finish(mut self) -> Program {
        let first = self.program.first_results();
        let place = |value: &Value| match value.origin {
            Origin::Input(i) => i,
            Origin::Result(step, k) => first[step] + k,
        };
        let places: Vec<usize> = self.values.iter().map(place).collect();
        for step in &mut self.program.steps {
            for operand in &mut step.operands {
                *operand = places[*operand];
            }
        }
        let mut outputs: Vec<usize> = Vec::new();
        for (i, value) in self.values.iter().enumerate() {
            let is_result = matches!(value.origin, Origin::Result(..));
            if is_result && (!value.used || self.rng.chance(0.06)) {
                outputs.push(places[i]);
            }
        }
        if outputs.is_empty() {
            outputs.extend(places.last());
        }
        // Occasionally in reverse order.
        if self.rng.chance(0.3) {
            outputs.reverse();
        }
        let (order, trainer) = (self.one_of(&[0, 1, 1, 1, 2]), self.one_of(&Trainer::ALL));
        let trains = self.rng.chance(0.3);
        let mut program = self.program;
        program.outputs = outputs;
        program.order = order;
        while program.order > 0 && !program.has_gradients() {
            program.order -= 1;
        }
        if trains && program.order > 0 {
            program.trainer = Some(if program.is_steep() { trainer } else { Trainer::Sgd });
            if !program.trains() {
                program.trainer = None;
            }
        }
        program
    }
}

impl Program {
    /// Whether gradients of its order exist, in a range that most dtypes have.
    fn has_gradients(&self) -> bool {
        let noisy = Noisy::silent();
        let device = noisy.device();
        [0, 1].into_iter().all(|set| {
            let answers =
                super::forms::inputs(self, set, &device, WIDE).and_then(|inputs| everything(self, &inputs, WIDE));
            match answers {
                // Other errors are left to the check.
                Err(error) if error.kind() != ErrorKind::NoGradient => true,
                Err(_) => false,
                Ok(answers) => answers.names.len() > self.outputs.len() && noisy.largest() < LARGEST_GRADIENT,
            }
        })
    }

    /// Whether each gradient is 0 or far from it: optimizers that divide gradients by their magnitude amplify the
    /// rounding errors of small ones.
    fn is_steep(&self) -> bool {
        let device = Noisy::silent().device();
        [0, 1].into_iter().all(|set| {
            let inputs = super::forms::inputs(self, set, &device, WIDE);
            let Ok(answers) = inputs.and_then(|inputs| everything(self, &inputs, WIDE)) else {
                return false;
            };
            let gradients = answers.tensors.iter().skip(self.outputs.len());
            let mut numbers = gradients.flat_map(|x| x.to_f64_vec().unwrap_or_default());
            numbers.all(|x| x == 0.0 || x.abs() > FLAT)
        })
    }

    fn trains(&self) -> bool {
        let noisy = Noisy::silent();
        let answers = trained(self, &noisy.device(), WIDE, false);
        answers.is_ok() && noisy.largest() < LARGEST_GRADIENT
    }
}

/// The least and the largest number; `None` if one is not finite.
fn span(tensors: &[Tensor; 2]) -> Option<(f64, f64)> {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for tensor in tensors {
        for x in tensor.to_f64_vec().ok()? {
            if !x.is_finite() {
                return None;
            }
            low = low.min(x);
            high = high.max(x);
        }
    }
    Some(if low > high { (0.0, 0.0) } else { (low, high) })
}

fn are_whole(tensors: &[Tensor; 2]) -> bool {
    tensors.iter().all(|tensor| {
        let numbers = tensor.to_f64_vec().unwrap_or_default();
        numbers.iter().all(|x| *x == x.trunc() && x.abs() <= WHOLE)
    })
}

fn broadcasts(a: &[usize], b: &[usize]) -> bool {
    let pairs = a.iter().rev().zip(b.iter().rev());
    pairs.into_iter().all(|(&a, &b)| a == b || a == 1 || b == 1)
}
