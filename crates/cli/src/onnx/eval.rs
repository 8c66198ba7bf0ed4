//! `polygrad eval` of ONNX files: the accuracy of a model on the rows of a file or a folder.

use polygrad::no_grad;
use polygrad_onnx::graph::Graph;
use polygrad_onnx::{OnnxModel, Options};

use super::rows::{self, TARGETS};
use super::score::Score;
use super::{about_file, must_exist};
use crate::args::Eval;
use crate::backend;
use crate::failure::{Failure, Result, Shown};
use crate::outcome::Outcome;
use crate::progress::{grouped, say};

/// Evaluates a model on all rows of `--data`.
///
/// # Errors
/// A file or data that are missing or damaged, or do not fit together, or have no targets; those of the device.
pub(crate) fn command(args: &Eval) -> Result<Outcome> {
    let given = [
        ("--full", args.data.full),
        ("--episodes", args.episodes.is_some()),
        ("--sample", args.sample),
        ("--seed", args.seed.is_some()),
    ];
    if let Some((option, _)) = given.iter().find(|(_, given)| *given) {
        return Err(
            Failure::new(format!("{option} is for runs, and {} is a file", args.run.shown())).fix("leave it out"),
        );
    }
    must_exist(&args.run)?;
    let Some(path) = args.data.place()? else {
        return Err(Failure::new(format!("{} is a file, which has no data of its own", args.run.shown())).fix(format!(
            "give --data DATA: an .npz file with an array for each input and one of {TARGETS}, a CSV file, or a folder \
             of images"
        )));
    };
    let device = backend::open(args.backend.as_deref().unwrap_or("cpu"), args.threads)?;
    let graph = Graph::load(&args.run).map_err(about_file)?;
    let found = rows::read(&path, &graph, &device)?;
    let model = OnnxModel::from_graph(&graph, &device, Options::default()).map_err(about_file)?;
    let mut score = Score::default();
    for batch in found.batches((0..found.len()).collect()) {
        let (inputs, targets) = batch?;
        let Some(targets) = targets else {
            return Err(Failure::new(format!("{} has no targets to compare with", path.shown()))
                .fix(format!("add an array or a column {TARGETS}")));
        };
        score.update(&no_grad(|| model.forward(&inputs))?.tensor(0)?, &targets)?;
    }
    if !score.value().is_finite() {
        return Err(Failure::new(format!(
            "{} is not defined on {}: all targets are the same, or a target or an answer is NaN or infinite",
            score.title(),
            path.shown()
        ))
        .fix("give rows whose targets differ, and without NaN or infinity"));
    }
    say(&format!(
        "{}: {} {:.2} on {} rows of {}, on {device}",
        args.run.shown(),
        score.title(),
        score.value(),
        grouped(found.len() as u64),
        path.shown()
    ));
    Ok(Outcome::Done)
}
