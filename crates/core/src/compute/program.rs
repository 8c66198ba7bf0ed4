//! Chains of element-wise ops that run as one kernel.

use crate::{BinaryOp, CompareOp, DType, Error, Result, UnaryOp};

/// A per-element value of an [`ElementwiseProgram`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// The element of an input.
    Input(u16),
    /// A number that is the same for all elements, given when the program is run.
    Scalar(u16),
    /// The result of a step.
    Step(u16),
}

/// One instruction: an op of `Backend` on single elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// The result has the operand's dtype, or bool for predicates.
    Unary(UnaryOp, Value),
    /// Both operands and the result have one dtype.
    Binary(BinaryOp, Value, Value),
    /// Both operands have one dtype; the result is bool.
    Compare(CompareOp, Value, Value),
    /// `condition ? a : b`; the first is bool; the others and the result have one dtype.
    Select(Value, Value, Value),
    /// Converts to another dtype.
    Cast(Value, DType),
}

impl Step {
    /// PyTorch's name of the op.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unary(op, _) => op.name(),
            Self::Binary(op, ..) => op.name(),
            Self::Compare(op, ..) => op.name(),
            Self::Select(..) => "where",
            Self::Cast(..) => "to_dtype",
        }
    }

    /// Its operands.
    pub fn operands(&self) -> impl Iterator<Item = Value> {
        let (a, b, c) = match *self {
            Self::Unary(_, a) | Self::Cast(a, _) => (a, None, None),
            Self::Binary(_, a, b) | Self::Compare(_, a, b) => (a, Some(b), None),
            Self::Select(a, b, c) => (a, Some(b), Some(c)),
        };
        [Some(a), b, c].into_iter().flatten()
    }
}

/// A short list of instructions over the elements of some inputs. Chains of element-wise ops and activations become
/// such programs.
///
/// Each step's result is rounded to its own dtype, so that a program computes the same as its steps one by one. Numbers
/// that change from run to run, such as a learning rate, are scalars, so that programs which only differ in them are
/// equal, and compiled once.
///
/// ```
/// use polygrad_core::compute::{ElementwiseProgram, Step};
/// use polygrad_core::{BinaryOp, DType, UnaryOp};
///
/// # fn main() -> polygrad_core::Result<()> {
/// // relu(a * s + b)
/// let mut program = ElementwiseProgram::default();
/// let (a, b) = (program.input(DType::F32), program.input(DType::F32));
/// let s = program.scalar(DType::F32);
/// let product = program.push(Step::Binary(BinaryOp::Mul, a, s))?;
/// let sum = program.push(Step::Binary(BinaryOp::Add, product, b))?;
/// let relu = program.push(Step::Unary(UnaryOp::Relu, sum))?;
/// program.output(relu);
/// assert_eq!(program.name(), "mul+add+relu");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ElementwiseProgram {
    inputs: Vec<DType>,
    scalars: Vec<DType>,
    steps: Vec<(Step, DType)>,
    outputs: Vec<Value>,
}

impl ElementwiseProgram {
    /// Adds an input.
    pub fn input(&mut self, dtype: DType) -> Value {
        self.inputs.push(dtype);
        Value::Input(last(&self.inputs))
    }

    /// Adds a number that is given when the program is run.
    pub fn scalar(&mut self, dtype: DType) -> Value {
        self.scalars.push(dtype);
        Value::Scalar(last(&self.scalars))
    }

    /// Adds an instruction, and returns its result.
    ///
    /// # Errors
    /// When an operand does not belong to this program, or the op is not defined for its dtype.
    pub fn push(&mut self, step: Step) -> Result<Value> {
        let dtype = self.result(&step).map_err(|error| error.with_op(step.name()))?;
        self.steps.push((step, dtype));
        Ok(Value::Step(last(&self.steps)))
    }

    /// Adds an output, which can also be an input or a scalar.
    pub fn output(&mut self, value: Value) {
        self.outputs.push(value);
    }

    fn result(&self, step: &Step) -> Result<DType> {
        let of = |value| {
            self.dtype(value)
                .ok_or_else(|| Error::invalid(format!("the program has no {value:?}")))
        };
        let same = |a: Value, b: Value| match (of(a)?, of(b)?) {
            (a, b) if a == b => Ok(a),
            (a, b) => Err(Error::dtype(format!("operands of dtypes {a} and {b}"))),
        };
        let accepted = |accepts: bool, dtype: DType| match accepts {
            true => Ok(dtype),
            false => Err(Error::dtype(format!("not defined for {dtype}"))),
        };
        match *step {
            Step::Unary(op, x) => {
                let dtype = accepted(op.accepts(of(x)?), of(x)?)?;
                Ok(if op.is_predicate() { DType::Bool } else { dtype })
            }
            Step::Binary(op, a, b) => {
                let dtype = same(a, b)?;
                accepted(op.accepts(dtype), dtype)
            }
            Step::Compare(_, a, b) => same(a, b).map(|_| DType::Bool),
            Step::Select(condition, a, b) => {
                let dtype = of(condition)?;
                accepted(dtype == DType::Bool, dtype)?;
                same(a, b)
            }
            Step::Cast(x, dtype) => of(x).map(|_| dtype),
        }
    }

    /// The dtype of a value; `None` if it does not belong to this program.
    pub fn dtype(&self, value: Value) -> Option<DType> {
        match value {
            Value::Input(i) => self.inputs.get(usize::from(i)).copied(),
            Value::Scalar(i) => self.scalars.get(usize::from(i)).copied(),
            Value::Step(i) => self.steps.get(usize::from(i)).map(|&(_, dtype)| dtype),
        }
    }

    /// The inputs' dtypes.
    pub fn inputs(&self) -> &[DType] {
        &self.inputs
    }

    /// The scalars' dtypes.
    pub fn scalars(&self) -> &[DType] {
        &self.scalars
    }

    /// The instructions in order, each with its result's dtype.
    pub fn steps(&self) -> &[(Step, DType)] {
        &self.steps
    }

    /// The values that are written.
    pub fn outputs(&self) -> &[Value] {
        &self.outputs
    }

    /// The ops' names, for errors and logs.
    pub fn name(&self) -> String {
        if self.steps.is_empty() {
            return "copy".to_owned();
        }
        let names: Vec<_> = self.steps.iter().map(|(step, _)| step.name()).collect();
        names.join("+")
    }
}

/// The index of the last element.
fn last<T>(list: &[T]) -> u16 {
    u16::try_from(list.len() - 1).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn dtypes_follow_from_the_steps() {
        let mut program = ElementwiseProgram::default();
        let x = program.input(DType::F32);
        let n = program.scalar(DType::I64);
        let cast = program.push(Step::Cast(n, DType::F32)).unwrap();
        let less = program.push(Step::Compare(CompareOp::Lt, x, cast)).unwrap();
        let chosen = program.push(Step::Select(less, x, cast)).unwrap();
        let nan = program.push(Step::Unary(UnaryOp::IsNan, chosen)).unwrap();
        let dtypes = [x, n, cast, less, chosen, nan].map(|value| program.dtype(value).unwrap());
        assert_eq!(dtypes.map(DType::name), ["f32", "i64", "f32", "bool", "f32", "bool"]);
        assert_eq!(program.dtype(Value::Step(4)), None);
        assert_eq!(program.name(), "to_dtype+lt+where+isnan");
    }

    #[test]
    fn steps_that_make_no_sense_are_refused() {
        let mut program = ElementwiseProgram::default();
        let (x, n) = (program.input(DType::F32), program.input(DType::I64));
        for step in [
            Step::Binary(BinaryOp::Add, x, n),
            Step::Binary(BinaryOp::And, x, x),
            Step::Unary(UnaryOp::Exp, n),
            Step::Select(x, n, n),
        ] {
            let error = program.push(step).unwrap_err();
            assert_eq!((error.kind(), error.op()), (ErrorKind::DType, Some(step.name())));
        }
        let error = program.push(Step::Cast(Value::Input(2), DType::F32)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(program.steps().is_empty());
    }
}
