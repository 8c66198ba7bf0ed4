//! Kinds of runs by their training data, and the commands and options for each.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::absent;
use crate::args::Eval;
use crate::failure::{Failure, Result, Shown};

/// The kind of a run, by what it learns from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Labelled images; their settings do not name a kind.
    #[default]
    Images,
    /// A text, to be continued.
    Chargpt,
    /// A table, one of whose columns is to be predicted.
    Table,
    /// An environment, for a policy to act in.
    Rl,
    /// Lines of texts, for a model trained by others.
    Finetune,
}

use Kind::{Chargpt, Finetune, Images, Rl, Table};

/// The names of environments, also for a build without them.
const ENVIRONMENTS: [&str; 9] = [
    "cartpole",
    "acrobot",
    "mountain-car",
    "mountain-car-continuous",
    "pendulum",
    "t-maze",
    "grid-world",
    "connect-four",
    "tic-tac-toe",
];

impl Kind {
    /// The kind for the first word of the command line; any other word is a data set of images.
    pub(crate) fn of_dataset(name: &str) -> Self {
        match [Chargpt, Table, Finetune].into_iter().find(|kind| kind.name() == name) {
            Some(kind) => kind,
            None if ENVIRONMENTS.contains(&name) || name.starts_with("gym:") => Rl,
            None => Images,
        }
    }

    /// The kind named in settings.
    pub(crate) fn of_settings(settings: &serde_json::Value) -> Self {
        let task = settings.get("task");
        task.and_then(|task| Self::deserialize(task).ok()).unwrap_or_default()
    }

    /// Its name on the command line and in settings.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Images => "images",
            Chargpt => "chargpt",
            Table => "table",
            Rl => "rl",
            Finetune => "finetune",
        }
    }

    /// For `skip_serializing_if`.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(crate) fn is_images(&self) -> bool {
        *self == Images
    }

    /// Fails if this build does not support runs of this kind.
    ///
    /// # Errors
    /// The missing feature, and how to get a build that has it.
    pub(crate) fn must_be_built(self) -> Result<Self> {
        let (what, feature) = match self {
            Rl => ("support for environments", "rl"),
            Finetune => ("support for pretrained language models", "text"),
            Images | Chargpt | Table => return Ok(self),
        };
        match absent::lacks(feature) {
            true => Err(absent::instead(what, feature)),
            false => Ok(self),
        }
    }

    /// Hint: what can be done with a run of this kind.
    fn uses(self) -> &'static str {
        match self {
            Images => {
                "`polygrad eval RUN` and `polygrad predict RUN IMAGE.png` take it; `polygrad train chargpt` makes one that writes"
            }
            Chargpt => "`polygrad generate RUN` lets it write",
            Table => "`polygrad eval RUN` and `polygrad predict RUN FILE.csv` take it",
            Rl => "`polygrad play RUN` and `polygrad eval RUN` take it",
            Finetune => "`polygrad eval RUN` and `polygrad merge RUN` take it, and if it writes `generate` and `serve`",
        }
    }

    /// The error for a run that a command does not accept, since it is for runs of the kinds `wanted`.
    pub(crate) fn unfit(self, run: &Path, wanted: &[Self]) -> Failure {
        let wanted: Vec<&str> = wanted.iter().map(|kind| kind.name()).collect();
        Failure::new(format!(
            "{} is a run of {}, and this is for runs of {}",
            run.shown(),
            self.name(),
            wanted.join(" and ")
        ))
        .fix(self.uses())
    }

    /// The error for an option `given` that only runs of the kinds `wanted` have.
    pub(crate) fn foreign(self, given: &str, wanted: &[Self]) -> Failure {
        let wanted: Vec<&str> = wanted.iter().map(|kind| kind.name()).collect();
        let (wanted, own) = (wanted.join(" and "), self.name());
        Failure::new(format!("{given} is for {wanted}, and this is a run of {own}")).fix("leave it out")
    }

    /// Fails if an evaluation has an option that runs of this kind do not have.
    ///
    /// # Errors
    /// The first such option.
    pub(crate) fn must_evaluate(self, args: &Eval) -> Result<()> {
        let options: [(&str, bool, &[Self]); 6] = [
            ("--full", args.data.full, &[Images]),
            ("--data", args.data.folder.is_some(), &[Images, Table, Finetune]),
            ("--episodes", args.episodes.is_some(), &[Rl]),
            ("--sample", args.sample, &[Rl]),
            ("--opponent", args.opponent.is_some(), &[Rl]),
            ("--seed", args.seed.is_some(), &[Rl]),
        ];
        let mut foreign = options
            .iter()
            .filter(|(_, given, kinds)| *given && !kinds.contains(&self));
        match foreign.next() {
            None => Ok(()),
            Some((option, _, kinds)) => Err(self.foreign(option, kinds)),
        }
    }
}

#[cfg(all(test, feature = "rl"))]
mod tests {
    use super::*;

    #[test]
    fn every_environment_is_known() {
        let names: Vec<&str> = polygrad::rl::zoo::all().iter().map(|spec| spec.name).collect();
        assert_eq!(names, ENVIRONMENTS);
    }
}
