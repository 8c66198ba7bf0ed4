//! Sources of demonstrations: files of recorded play, or the policy of another run.

use std::path::{Path, PathBuf};

use polygrad::rl::Demonstrations;
use polygrad::rl::zoo::{Algorithm, EnvSpec, Lesson, Stepping};
use serde::{Deserialize, Serialize};

use super::replay::Replay;
use super::{Settings, TrainArgs};
use crate::failure::{Failure, Result, Shown};
use crate::trained::{self, Trained};

/// The form in `config.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Taught {
    /// Files of `polygrad play --record`.
    Demonstrations(Vec<PathBuf>),
    /// The folder of a run.
    Teacher(PathBuf),
}

impl Taught {
    /// The source for an algorithm; `None` for one that learns from its own actions.
    ///
    /// # Errors
    /// If a required source is missing, or an unused one is given.
    pub(super) fn of(args: &TrainArgs, algorithm: &Algorithm) -> Result<Option<Self>> {
        let (is_bc, is_distill) = (
            matches!(algorithm, Algorithm::Bc(_)),
            matches!(algorithm, Algorithm::Distill(_)),
        );
        let given = [
            ("--demonstrations", "bc", is_bc, !args.demonstrations.is_empty()),
            ("--teacher", "distill", is_distill, args.teacher.is_some()),
        ];
        for (option, learner, is_own, is_given) in given {
            match (is_own, is_given) {
                (true, false) => {
                    return Err(Failure::new(format!("{learner} needs something to learn from"))
                        .fix(format!("name it by {option}: {}", how(learner))));
                }
                (false, true) => {
                    let own = algorithm.name();
                    return Err(Failure::new(format!("{option} is for {learner}, and {own} learns"))
                        .fix(format!("leave it out, or add --algorithm {learner}")));
                }
                _ => {}
            }
        }
        let absolute = |path: &PathBuf| std::path::absolute(path).map_err(|e| Failure::io("find", path, &e));
        Ok(match (&args.teacher, is_bc) {
            (Some(teacher), _) => Some(Self::Teacher(absolute(teacher)?)),
            (None, true) => Some(Self::Demonstrations(
                args.demonstrations.iter().map(absolute).collect::<Result<_>>()?,
            )),
            (None, false) => None,
        })
    }

    /// The lesson for this environment.
    ///
    /// # Errors
    /// Files that cannot be read, or that are of other environments; steps that the environment does not repeat.
    pub(super) fn lesson(&self, settings: &Settings, spec: &EnvSpec) -> Result<Lesson> {
        match self {
            Self::Demonstrations(files) => {
                let envs = spec.make(1, Stepping::Serial)?;
                let mut found = Demonstrations::new(envs.observation_space(), envs.action_space());
                files.iter().try_for_each(|file| read(file, spec, &mut found))?;
                Ok(Lesson::Demonstrations(found))
            }
            Self::Teacher(run) => {
                let Trained { config, model, .. } =
                    trained::load::<Settings>(run, Some(&settings.base.backend), settings.base.threads)?;
                must_be(&config.environment, run, &settings.environment)?;
                Ok(Lesson::Teacher(model))
            }
        }
    }
}

fn how(learner: &str) -> &'static str {
    match learner {
        "bc" => "a file that `polygrad play RUN --episodes 20 --record FILE` wrote",
        _ => "the folder of a run",
    }
}

fn must_be(found: &str, path: &Path, wanted: &str) -> Result<()> {
    match found == wanted {
        true => Ok(()),
        false => Err(
            Failure::new(format!("{} is of {found}, and not of {wanted}", path.shown()))
                .fix("give one of the same environment"),
        ),
    }
}

/// Plays a file's episodes again, and adds their steps.
fn read(file: &Path, spec: &EnvSpec, found: &mut Demonstrations) -> Result<()> {
    let replay = Replay::load(file)?;
    let played = replay.spec()?;
    must_be(played.name, file, spec.name)?;
    let mut play = played.replay(replay.seed)?;
    for (number, episode) in replay.episodes.iter().enumerate() {
        play.reset()?;
        replay.check(number, &play, false)?;
        for actions in &episode.actions {
            let seen = play.observations().to_vec();
            let ended = replay.step(number, &mut play)?;
            found.push(&seen, actions)?;
            replay.check(number, &play, ended)?;
        }
    }
    Ok(())
}
