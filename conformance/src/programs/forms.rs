//! The forms in which a program is run on a device.

use std::fmt;
use std::sync::Arc;

use polygrad_core::{Error, ErrorKind, Result};
use polygrad_nn::optim::{Adagrad, Adam, AdamW, Optimizer, RMSprop, SGDConfig};
use polygrad_nn::{Module, Param, TrainStep};
use polygrad_tensor::{Capture, Compiled, Device, Tensor, no_grad};

use super::program::{Dtypes, Input, Program, Role, Trainer};
use super::run::{Answers, everything, fetched, objective, placed};
use super::truth::{Answered, Question};

/// A form of running a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Eagerly.
    Eager,
    /// Recorded in its first two runs, and then replayed with other numbers.
    Captured,
    /// Compiled once, with its leaves as constants.
    Compiled,
    /// A training step that is recorded and replayed, with an optimizer.
    Trained,
    /// Exported to another form, such as a model file, and run from there by the given
    /// [engines](super::Programs::engines).
    Exported,
}

/// Exports a program, such as to a model file, and runs it from there. Returns the outputs for these inputs.
pub type Engine = dyn Fn(&Program, &[Tensor], Dtypes) -> Result<Vec<Tensor>> + Send + Sync;

impl Form {
    /// All forms, in the order in which they run.
    pub const ALL: [Self; 5] = [
        Self::Eager,
        Self::Captured,
        Self::Compiled,
        Self::Trained,
        Self::Exported,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Captured => "captured",
            Self::Compiled => "compiled",
            Self::Trained => "trained",
            Self::Exported => "exported",
        }
    }

    /// The question that it answers first.
    pub(crate) const fn question(self) -> Question {
        match self {
            Self::Trained => Question::Training,
            Self::Eager | Self::Captured | Self::Compiled | Self::Exported => Question::Values(0),
        }
    }

    /// The form with this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.name() == name)
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The results of a form: for each run the question, a description for reports, and the answers. Empty if the program
/// has no such form.
pub(crate) type Given = Vec<(Question, String, Answered)>;

/// The sets of numbers of captured runs: two are recorded; another set shows stale values.
const CAPTURED: [u64; 4] = [0, 0, 1, 0];

/// The same for a device that makes its own recording after some replays.
const CAPTURED_BY_DEVICE: [u64; 7] = [0, 0, 1, 0, 1, 0, 1];

/// The sets of numbers of the batches of training steps.
const BATCHES: [u64; 4] = [0, 1, 0, 1];

/// Runs a program in a form. The reasons why engines cannot run it are added to `lacking`; the others are still used.
///
/// # Errors
/// Errors of the calls, of the device and of the engines.
pub(crate) fn run(
    form: Form,
    program: &Program,
    device: &Device,
    dtypes: Dtypes,
    engines: &[(String, Arc<Engine>)],
    lacking: &mut Vec<String>,
) -> Result<Given> {
    match form {
        Form::Eager => {
            let answers = everything(program, &inputs(program, 0, device, dtypes)?, dtypes)?;
            Ok(vec![(Question::Values(0), "as written".to_owned(), answered(answers)?)])
        }
        Form::Captured => captured(program, device, dtypes),
        Form::Compiled => compiled(program, device, dtypes),
        Form::Trained => match program.trainer {
            None => Ok(Vec::new()),
            Some(_) => Ok(vec![(
                Question::Training,
                "four training steps, captured".to_owned(),
                answered(trained(program, device, dtypes, true)?)?,
            )]),
        },
        Form::Exported => {
            let mut given = Vec::new();
            for (name, engine) in engines {
                let tensors = match no_grad(|| engine(program, &inputs(program, 0, device, dtypes)?, dtypes)) {
                    Err(error) if error.kind() == ErrorKind::Unsupported => {
                        // Programs that cannot be exported are rejected before any engine is used.
                        let why = error.to_string();
                        if !lacking.contains(&why) {
                            lacking.push(why);
                        }
                        continue;
                    }
                    tensors => tensors?,
                };
                let answers = Answers {
                    names: output_names(tensors.len()),
                    tensors,
                };
                given.push((Question::Values(0), name.clone(), answered(answers)?));
            }
            Ok(given)
        }
    }
}

fn output_names(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("output {i}")).collect()
}

pub(crate) fn answered(answers: Answers) -> Result<Answered> {
    Ok(Answered {
        values: fetched(&answers.tensors)?,
        names: answers.names,
    })
}

pub(crate) fn inputs(program: &Program, set: u64, device: &Device, dtypes: Dtypes) -> Result<Vec<Tensor>> {
    placed(&program.numbers(set, dtypes)?, device)
}

fn captured(program: &Program, device: &Device, dtypes: Dtypes) -> Result<Given> {
    let mut capture: Capture<Vec<String>> = Capture::new();
    let mut given = Vec::new();
    let sets: &[u64] = match device.capabilities().graphs {
        true => &CAPTURED_BY_DEVICE,
        false => &CAPTURED,
    };
    for (i, &set) in sets.iter().enumerate() {
        let inputs = inputs(program, set, device, dtypes)?;
        let (tensors, names) = capture.run(0, inputs.clone(), || {
            let answers = everything(program, &inputs, dtypes)?;
            Ok((answers.tensors, answers.names))
        })?;
        let replayed = i >= 2 && capture.refusal().is_none();
        let words = if replayed { "replay" } else { "run" };
        let answers = answered(Answers { names, tensors })?;
        given.push((
            Question::Values(set),
            format!("{words} {} of a captured program", i + 1),
            answers,
        ));
    }
    Ok(given)
}

/// The data of another set are the example.
fn compiled(program: &Program, device: &Device, dtypes: Dtypes) -> Result<Given> {
    let is_data = |input: &Input| input.role == Role::Data;
    let data = |inputs: &[Tensor]| -> Vec<Tensor> {
        let chosen = inputs.iter().zip(&program.inputs).filter(|(_, input)| is_data(input));
        chosen.map(|(x, _)| x.clone()).collect()
    };
    if !program.inputs.iter().any(is_data) {
        return Ok(Vec::new());
    }
    let wanted = inputs(program, 0, device, dtypes)?;
    let mut mixed = inputs(program, 1, device, dtypes)?;
    for ((x, constant), input) in mixed.iter_mut().zip(&wanted).zip(&program.inputs) {
        if !is_data(input) {
            *x = constant.clone();
        }
    }
    let compiled = match Compiled::new(&data(&mixed), || program.forward(&mixed, dtypes)) {
        // It reports if it is unsupported.
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(Vec::new()),
        compiled => compiled?,
    };
    let tensors = compiled.run(&data(&wanted))?;
    let names = output_names(tensors.len());
    let words = format!("compiled to {:?}", compiled.ops());
    Ok(vec![(
        Question::Values(0),
        words,
        answered(Answers { names, tensors })?,
    )])
}

/// The leaves of a program as a model.
#[derive(Module)]
struct Leaves {
    leaves: Vec<Param>,
}

/// The losses of training steps, and the leaves after them.
///
/// # Errors
/// Errors of the calls and of the device.
pub(crate) fn trained(program: &Program, device: &Device, dtypes: Dtypes, capture: bool) -> Result<Answers> {
    let first = inputs(program, 0, device, dtypes)?;
    let is_leaf = |input: &Input| input.role == Role::Leaf;
    let leaves = first.iter().zip(&program.inputs).filter(|(_, input)| is_leaf(input));
    let leaves = leaves.map(|(x, _)| Param::new(x.clone())).collect::<Result<Vec<_>>>()?;
    let optimizer = optimizer(program.trainer.unwrap_or(Trainer::Sgd), &leaves)?;
    let loss = |model: &Leaves, batch: &[Tensor]| {
        let (mut leaves, mut data) = (model.leaves.iter(), batch.iter());
        let next = |input: &Input| match is_leaf(input) {
            true => leaves.next().map(Param::tensor),
            false => data.next().cloned(),
        };
        let inputs: Option<Vec<Tensor>> = program.inputs.iter().map(next).collect();
        let inputs = inputs.ok_or_else(|| Error::invalid("the batch lacks a tensor"))?;
        objective(&program.forward(&inputs, dtypes)?, dtypes)?
            .ok_or_else(|| Error::invalid("no output depends on a leaf"))
    };
    let step = TrainStep::new(Leaves { leaves: leaves.clone() }, optimizer, loss);
    let batch = |set: u64| -> Result<Vec<Tensor>> {
        let inputs = inputs(program, set, device, dtypes)?;
        let data = inputs
            .into_iter()
            .zip(&program.inputs)
            .filter(|(_, input)| !is_leaf(input));
        Ok(data.map(|(x, _)| x).collect())
    };
    let mut answers = Answers::default();
    let mut losses = Vec::new();
    if capture {
        let mut step = step.captured();
        for set in BATCHES {
            losses.push(step.step(&batch(set)?)?);
        }
    } else {
        let mut step = step;
        for set in BATCHES {
            losses.push(step.step(&batch(set)?)?);
        }
    }
    for (i, loss) in losses.into_iter().enumerate() {
        answers.push(format!("loss of step {}", i + 1), loss);
    }
    for (i, leaf) in leaves.iter().enumerate() {
        answers.push(format!("leaf {i} after training"), leaf.tensor().detach());
    }
    Ok(answers)
}

fn optimizer(trainer: Trainer, leaves: &[Param]) -> Result<Box<dyn Optimizer>> {
    const RATE: f64 = 1.0 / 64.0;
    let leaves = leaves.iter().cloned();
    Ok(match trainer {
        Trainer::Sgd => Box::new(SGDConfig::new(RATE).momentum(0.5).build(leaves)?),
        Trainer::Adam => Box::new(Adam::new(leaves, RATE)?),
        Trainer::AdamW => Box::new(AdamW::new(leaves, RATE)?),
        Trainer::RmsProp => Box::new(RMSprop::new(leaves, RATE)?),
        Trainer::Adagrad => Box::new(Adagrad::new(leaves, RATE)?),
    })
}
