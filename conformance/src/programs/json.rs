//! Programs in files.

use polygrad_core::{DType, Error, Result};
use serde_json::{Value, json};

use super::calls::{Arg, Call};
use super::check::Failure;
use super::forms::Form;
use super::program::{Fill, Input, Kind, Program, Role, Step, Trainer};

/// A saved program, and how it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The program.
    pub program: Program,
    /// The dtype in which it fails.
    pub tested: DType,
    /// How it fails.
    pub failure: Failure,
    /// The seed and the index of the program it was reduced from.
    pub from: (u64, u64),
}

impl Kept {
    /// As JSON.
    pub fn to_json(&self) -> String {
        let value = json!({
            "seed": self.from.0,
            "number": self.from.1,
            "dtype": self.tested.name(),
            "form": self.failure.form.map(Form::name),
            "reason": self.failure.reason,
            "program": program(&self.program),
        });
        format!("{value:#}\n")
    }

    /// From JSON.
    ///
    /// # Errors
    /// If something is missing, of another type, or unknown; the error names it.
    pub fn from_json(text: &str) -> Result<Self> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| malformed(&format!("this is no JSON: {error}")))?;
        let form = match &value["form"] {
            Value::Null => None,
            form => Some(
                form.as_str()
                    .and_then(Form::find)
                    .ok_or_else(|| malformed("\"form\" is unknown"))?,
            ),
        };
        Ok(Self {
            program: read_program(&value["program"])?,
            tested: read_dtype(&value["dtype"])?,
            failure: Failure {
                form,
                reason: value["reason"].as_str().unwrap_or_default().to_owned(),
            },
            from: (
                value["seed"].as_u64().unwrap_or_default(),
                value["number"].as_u64().unwrap_or_default(),
            ),
        })
    }
}

fn malformed(what: &str) -> Error {
    Error::invalid(format!("a kept program cannot be read: {what}"))
}

fn kind(kind: Kind) -> Value {
    match kind {
        Kind::Tested => json!("tested"),
        Kind::Fixed(dtype) => json!(dtype.name()),
    }
}

fn program(program: &Program) -> Value {
    let inputs = program.inputs.iter().map(|input| {
        json!({
            "shape": input.shape,
            "dtype": kind(input.kind),
            "leaf": input.role == Role::Leaf,
            "fill": match input.fill {
                Fill::Uniform(low, high) => json!({ "uniform": [low, high] }),
                Fill::Whole(low, high) => json!({ "whole": [low, high] }),
                Fill::Distinct => json!("distinct"),
            },
        })
    });
    let arg = |arg: &Arg| match arg {
        Arg::Int(value) => json!({ "int": value }),
        Arg::Number(value) => json!({ "number": value }),
        Arg::List(values) => json!({ "list": values }),
        Arg::Kind(value) => json!({ "dtype": kind(*value) }),
    };
    let steps = program.steps.iter().map(|step| {
        json!({
            "call": step.call.name,
            "operands": step.operands,
            "args": step.args.iter().map(arg).collect::<Vec<_>>(),
            "results": step.results,
        })
    });
    json!({
        "seed": program.seed,
        "inputs": inputs.collect::<Vec<_>>(),
        "steps": steps.collect::<Vec<_>>(),
        "outputs": program.outputs,
        "order": program.order,
        "trainer": program.trainer.map(Trainer::name),
    })
}

fn read_dtype(value: &Value) -> Result<DType> {
    let name = value.as_str().unwrap_or_default();
    name.parse().map_err(|_| malformed(&format!("{value} is no dtype")))
}

fn read_kind(value: &Value) -> Result<Kind> {
    match value.as_str() {
        Some("tested") => Ok(Kind::Tested),
        _ => read_dtype(value).map(Kind::Fixed),
    }
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a [Value]> {
    let list = value[name].as_array();
    list.map(Vec::as_slice)
        .ok_or_else(|| malformed(&format!("{name:?} is no list")))
}

fn sizes(value: &Value, name: &str) -> Result<Vec<usize>> {
    let size = |value: &Value| value.as_u64().map(|size| size as usize);
    let sizes = list(value, name)?.iter().map(size).collect::<Option<_>>();
    sizes.ok_or_else(|| malformed(&format!("{name:?} holds what is no count")))
}

fn read_program(value: &Value) -> Result<Program> {
    let inputs = list(value, "inputs")?
        .iter()
        .map(read_input)
        .collect::<Result<Vec<_>>>()?;
    let steps = list(value, "steps")?
        .iter()
        .map(read_step)
        .collect::<Result<Vec<_>>>()?;
    let trainer = match value["trainer"].as_str() {
        None => None,
        Some(name) => Some(
            Trainer::ALL
                .into_iter()
                .find(|trainer| trainer.name() == name)
                .ok_or_else(|| malformed(&format!("there is no trainer {name:?}")))?,
        ),
    };
    let program = Program {
        seed: value["seed"]
            .as_u64()
            .ok_or_else(|| malformed("\"seed\" is no number"))?,
        inputs,
        steps,
        outputs: sizes(value, "outputs")?,
        order: value["order"]
            .as_u64()
            .filter(|order| *order < 3)
            .ok_or_else(|| malformed("\"order\" is not 0, 1 or 2"))? as u8,
        trainer,
    };
    program.check()?;
    Ok(program)
}

impl Program {
    /// Checks that each operand exists before it is used.
    fn check(&self) -> Result<()> {
        let mut there = self.inputs.len();
        for (i, step) in self.steps.iter().enumerate() {
            if step.operands.iter().any(|&operand| operand >= there) {
                return Err(malformed(&format!("step {i} asks for a value that is not there yet")));
            }
            there += step.results;
        }
        if self.outputs.iter().any(|&output| output >= there) {
            return Err(malformed("an output is not there"));
        }
        Ok(())
    }
}

fn read_input(value: &Value) -> Result<Input> {
    let fill = &value["fill"];
    let pair = |name: &str| Some((fill[name].get(0)?, fill[name].get(1)?));
    let uniform = || {
        let (low, high) = pair("uniform")?;
        Some(Fill::Uniform(low.as_f64()?, high.as_f64()?))
    };
    let whole = || {
        let (low, high) = pair("whole")?;
        Some(Fill::Whole(low.as_i64()?, high.as_i64()?))
    };
    let distinct = || (fill == "distinct").then_some(Fill::Distinct);
    let fill = uniform().or_else(whole).or_else(distinct);
    Ok(Input {
        shape: sizes(value, "shape")?,
        kind: read_kind(&value["dtype"])?,
        fill: fill.ok_or_else(|| malformed("\"fill\" is unknown"))?,
        role: if value["leaf"] == true { Role::Leaf } else { Role::Data },
    })
}

fn read_step(value: &Value) -> Result<Step> {
    let name = value["call"].as_str().unwrap_or_default();
    Ok(Step {
        call: Call::find(name).ok_or_else(|| malformed(&format!("there is no call {name:?}")))?,
        operands: sizes(value, "operands")?,
        args: list(value, "args")?.iter().map(read_arg).collect::<Result<_>>()?,
        results: value["results"]
            .as_u64()
            .ok_or_else(|| malformed("\"results\" is no count"))? as usize,
    })
}

fn read_arg(value: &Value) -> Result<Arg> {
    let integers = |value: &Value| value.as_array()?.iter().map(Value::as_i64).collect::<Option<Vec<_>>>();
    if !value["dtype"].is_null() {
        return read_kind(&value["dtype"]).map(Arg::Kind);
    }
    let arg = value["int"].as_i64().map(Arg::Int);
    arg.or_else(|| value["number"].as_f64().map(Arg::Number))
        .or_else(|| integers(&value["list"]).map(Arg::List))
        .ok_or_else(|| malformed(&format!("{value} is no argument")))
}
