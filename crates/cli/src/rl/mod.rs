//! `polygrad train cartpole` and its kin: policies that learn in environments.

pub(crate) mod eval;
pub(crate) mod export;
pub(crate) mod list;
pub(crate) mod play;
mod screen;
mod settings;

use std::path::Path;
use std::sync::Arc;

use polygrad::nn::Module;
use polygrad::rl::Ppo;
use polygrad::rl::zoo;
use polygrad::train::{Ended, Run, RunFolder, TrainerConfig};
use polygrad::{Device, ErrorKind, manual_seed};

use crate::args::Train;
use crate::backend;
use crate::failure::{Failure, Result, Shown};
use crate::kind::Kind;
use crate::outcome::Outcome;
use crate::progress::{clock, grouped, note, say, short};
use crate::run::{config, resume_command};
use crate::task::RunSettings as _;
use crate::team::Team;
use crate::train::resumed::model_metadata;
use crate::train::session::{Curves, told};
use crate::train::{Show, create, open, restarted, resumed};

pub(crate) use settings::{PolicyKind, Settings};

/// Whether an environment is called so.
pub(crate) fn is_environment(name: &str) -> bool {
    zoo::find(name).is_ok()
}

/// Begins a run.
///
/// # Errors
/// Everything that options, environments, devices and disks can do wrong.
pub(crate) fn start(args: &Train, show: Show, team: &Team) -> Result<Outcome> {
    if let Some(run) = restarted(args, team)? {
        return resume(args, run, show, team);
    }
    Kind::Rl.must_have(args)?;
    let mut settings = Settings::of_options(args)?;
    config::check(&settings)
        .map_err(|what| Failure::new(format!("cannot train with these settings: {what}")).fix("give other options"))?;
    let device = backend::open(&settings.base.backend, settings.base.threads)?;
    settings.base_mut().run = config::fresh_name();
    let title = format!("{}-{}", settings.environment, settings.network());
    let run = create(args, &title, team)?;
    train(&settings, run, &device, show, &[], team)
}

/// Goes on with a run.
///
/// # Errors
/// As [`start`]; a checkpoint that does not fit.
pub(crate) fn resume(args: &Train, path: &Path, show: Show, team: &Team) -> Result<Outcome> {
    Kind::Rl.must_have(args)?;
    let (run, stored) = open::<Settings>(path, team)?;
    let settings = stored.resumed(args, path)?;
    let device = backend::open(&settings.base.backend, settings.base.threads)?;
    let changes = resumed::changed(settings.changes(&stored));
    train(&settings, run, &device, show, &changes, team)
}

fn train(
    settings: &Settings,
    (folder, run): (RunFolder, Option<Run>),
    device: &Device,
    show: Show,
    changes: &[String],
    team: &Team,
) -> Result<Outcome> {
    manual_seed(settings.ppo.seed);
    let spec = settings.spec()?;
    let envs = spec.make(settings.envs, settings.stepping())?;
    let mut ppo = Ppo::new(envs, settings.actor_critic(device)?, settings.ppo.clone())?;
    if let Some(group) = team.group() {
        ppo = ppo.parallel(Arc::clone(group))?;
    }
    let total = ppo.iterations() * ppo.steps_per_iteration();
    let rate = settings.ppo.learning_rate.at(0.0);
    let about = [
        format!(
            "{}: {}; {} environments, {} steps",
            spec.name,
            spec.description,
            settings.envs,
            grouped(total)
        ),
        format!(
            "{} of {} parameters with PPO, {} steps an iteration, learning rate {}, on {device}",
            settings.network(),
            grouped(ppo.policy().num_parameters() as u64),
            grouped(ppo.steps_per_iteration()),
            short(rate)
        ),
    ];
    about
        .iter()
        .chain(&team.about("as many environments"))
        .chain(changes)
        .for_each(|line| say(line));
    let title = format!("{}, {}", spec.name, settings.network());
    let curves = Curves::new(folder.curves(), title, "steps");
    let options = team
        .options(TrainerConfig::steps(total))
        .settings(settings)?
        .model_metadata(model_metadata(settings))
        .stop_on_ctrl_c()?;
    let options = told(options, run, show, "--total-steps", curves);
    let summary = options.train(&mut ppo).map_err(|error| match error.kind() {
        ErrorKind::Io if folder.checkpoint().exists() => {
            Failure::from(error).then(&format!("go on from the last checkpoint: {}", resume_command(&folder)))
        }
        _ => error.into(),
    })?;
    let path = folder.path().shown();
    if summary.ended == Ended::Stopped {
        note(&format!("stopped; to go on: {}", resume_command(&folder)));
        return Ok(Outcome::Interrupted);
    }
    if let Some(mean) = ppo.mean_return() {
        let solved = match spec.reward_threshold {
            Some(threshold) if mean >= threshold => format!(", which counts as solved (from {} on)", short(threshold)),
            Some(threshold) => format!(", which does not count as solved (from {} on)", short(threshold)),
            None => String::new(),
        };
        let seconds = clock(summary.seconds);
        say(&format!(
            "mean return of the last episodes {mean:.1}{solved}, after {seconds}"
        ));
    }
    say(&format!(
        "{path} holds the policy, its checkpoint and its curves; now try:\n  polygrad play {path}\n  polygrad eval {path}"
    ));
    Ok(Outcome::Done)
}
