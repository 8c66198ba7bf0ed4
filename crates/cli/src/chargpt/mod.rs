//! `polygrad train chargpt`: a GPT that learns to write from a text, a character at a time.

pub(crate) mod generate;
mod settings;
mod text;

use std::path::Path;

use polygrad::nn::Module;
use polygrad::nn::loss::cross_entropy;
use polygrad::nn::models::Gpt2;
use polygrad::optim::{AdamConfig, CosineAnnealingLR, LinearLR, SequentialLR};
use polygrad::train::{Ended, Perplexity, ProgressBar, Run, RunFolder, Step, Trainer, TrainerConfig};
use polygrad::{Device, Tensor, manual_seed};

use crate::args::Train;
use crate::backend;
use crate::failure::{Failure, Result, Shown};
use crate::interrupt::Interrupt;
use crate::outcome::Outcome;
use crate::progress::{clock, grouped, note, say, short};
use crate::run::resume_command;
use crate::train::{explained, occupied};

pub(crate) use settings::{NAME, Settings, is_one};
use text::Text;

type Batch = (Tensor, Tensor);

/// Trains a new model.
///
/// # Errors
/// Everything that options, texts, devices and disks can do wrong.
pub(crate) fn start(args: &Train) -> Result<Outcome> {
    let mut settings = Settings::new(args)?;
    let text = Text::load(settings.text.as_deref())?;
    settings.characters = text.characters().to_owned();
    let device = backend::open(&settings.backend, settings.threads)?;
    let run = match &args.out {
        Some(out) => Run::create(out).map_err(|error| occupied(error, out))?,
        None => Run::create_next("runs", NAME)?,
    };
    train(&settings, run, &text, &device)
}

/// Goes on with a run.
///
/// # Errors
/// As [`start`], and options that the run did not begin with.
pub(crate) fn resume(args: &Train, path: &Path) -> Result<Outcome> {
    let run = Run::resume(path)?;
    let settings = Settings::of_run(&run)?.resumed(args, path)?;
    let text = Text::load(settings.text.as_deref())?;
    if text.characters() != settings.characters {
        return Err(
            Failure::new(format!("this is not the text that {} was trained on", path.shown()))
                .fix("bring it back, or start a new run"),
        );
    }
    let device = backend::open(&settings.backend, settings.threads)?;
    train(&settings, run, &text, &device)
}

fn train(settings: &Settings, run: Run, text: &Text, device: &Device) -> Result<Outcome> {
    let (train, validation) = text.loaders(settings, device)?;
    manual_seed(settings.seed);
    let model = Gpt2::new(&settings.config(), device)?;
    say(&format!(
        "{} characters of {} kinds; {} parameters, {} characters of context, on {device}",
        grouped(text.len() as u64),
        text.characters().chars().count(),
        grouped(model.num_parameters() as u64),
        settings.context
    ));
    let interrupt = Interrupt::install()?;
    let steps = (train.batches().unwrap_or(0) * settings.epochs) as u64;
    let options = TrainerConfig::epochs(settings.epochs as u64)
        .run(run)
        .settings(settings)?
        .schedule(schedule(steps))
        .clip_grad_norm(1.0)
        .metric(Perplexity::new())
        .stop_flag(interrupt.flag())
        .callback(ProgressBar::printing(say));
    let optimizer = AdamConfig::adamw(settings.lr)
        .betas(0.9, 0.99)
        .weight_decay(0.1)
        .build(model.parameters())?;
    let mut trainer: Trainer<Gpt2, Batch> =
        options.build_captured(model, optimizer, |model: &Gpt2, (x, y): &Batch| {
            let logits = model.forward(x)?.flatten(0, 1)?;
            let targets = y.flatten(0, 1)?;
            Ok(Step::new(cross_entropy(&logits, &targets)?).outputs(logits, &targets))
        })?;
    let summary = trainer
        .fit(&train, Some(&validation))
        .map_err(|error| explained(error, trainer.run(), settings.lr))?;
    let Some(folder) = trainer.run().map(|run| RunFolder::new(run.path())) else {
        return Ok(Outcome::Done);
    };
    if summary.ended == Ended::Stopped {
        note(&format!("stopped; to go on: {}", resume_command(&folder)));
        return Ok(Outcome::Interrupted);
    }
    if let Some(last) = summary.evaluation {
        say(&format!(
            "validation loss {} nats a character after {}",
            short((last.loss * 1e4).round() / 1e4),
            clock(summary.seconds)
        ));
    }
    let path = folder.path().shown();
    say(&format!(
        "{path} holds the model; now try:\n  polygrad generate {path} --prompt \"To be\""
    ));
    Ok(Outcome::Done)
}

/// A warm-up over a twentieth of all steps, then half a wave of cosine down to 0.
fn schedule(steps: u64) -> SequentialLR {
    let warm_up = steps / 20;
    SequentialLR::new(LinearLR::warm_up(warm_up)).then(warm_up, CosineAnnealingLR::new((steps - warm_up).max(1)))
}
