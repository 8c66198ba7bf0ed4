//! `polygrad train`: from options and data to a run, of whatever kind.

#[cfg(feature = "sweep")]
pub(crate) mod job;
pub(crate) mod line;
pub(crate) mod optimizer;
pub(crate) mod qat;
pub(crate) mod resumed;
pub(crate) mod session;
pub(crate) mod state;

use std::error::Error as _;
use std::path::{Path, PathBuf};

use polygrad::train::{Callback, NonFiniteLoss, Run, RunFolder};
use polygrad::{Device, ErrorKind};

use crate::args::{Data, Every};
use crate::failure::{Failure, Result, Shown};
#[cfg(feature = "text")]
use crate::finetune;
use crate::kind::Kind;
use crate::outcome::Outcome;
use crate::progress::short;
#[cfg(feature = "rl")]
use crate::rl;
use crate::run::{config, resume_command};
use crate::task::{RunSettings, Task};
use crate::team::Team;
use crate::{backend, chargpt, images, table};
use line::{Line, RunArgs as _};
use session::show;

/// Why training did not start or failed.
pub(crate) enum Refused {
    /// The command line is invalid, or requests help.
    Line(clap::Error),
    Failed(Failure),
}

impl From<clap::Error> for Refused {
    fn from(error: clap::Error) -> Self {
        Self::Line(error)
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Trains a new model, or continues a run.
///
/// # Errors
/// An invalid command line; errors of options, data, devices and disks.
pub(crate) fn command(line: &Line) -> std::result::Result<Outcome, Refused> {
    let scanned = line.scan();
    if scanned.dataset.is_none() && scanned.resume.is_none() {
        return Err(line::overview(scanned.wants_help).into());
    }
    let engine = scanned.parallel.as_deref().filter(|_| !scanned.wants_help);
    let team = Team::join(engine)?;
    let kind = team.share(|| {
        Ok(match (&scanned.resume, &scanned.dataset) {
            // Errors of an unreadable checkpoint are reported when the run is continued.
            (Some(path), _) => Kind::of_settings(&RunFolder::new(path).settings().unwrap_or_default()),
            (None, dataset) => dataset.as_deref().map_or(Kind::Images, Kind::of_dataset),
        })
    })?;
    scanned.must_fit(kind.must_be_built()?)?;
    by_kind(kind, Training { line, team })?
}

/// An operation that is generic over the kind of run.
pub(crate) trait ForKind {
    type Output;

    /// Runs it for the kind with the settings `T`.
    fn with<T: Task>(self) -> Self::Output;
}

/// Runs an operation for a kind of run.
///
/// # Errors
/// A kind that is not in this build.
pub(crate) fn by_kind<F: ForKind>(kind: Kind, work: F) -> Result<F::Output> {
    Ok(match kind {
        Kind::Images => work.with::<images::config::Config>(),
        Kind::Chargpt => work.with::<chargpt::Settings>(),
        Kind::Table => work.with::<table::Settings>(),
        #[cfg(feature = "rl")]
        Kind::Rl => work.with::<rl::Settings>(),
        #[cfg(feature = "text")]
        Kind::Finetune => work.with::<finetune::Settings>(),
        #[cfg(not(all(feature = "rl", feature = "text")))]
        kind => {
            return Err(Failure::new(format!("runs of {} are not in this build", kind.name())));
        }
    })
}

/// Trains a new model, or continues a run.
struct Training<'a> {
    line: &'a Line,
    team: Team,
}

impl ForKind for Training<'_> {
    type Output = std::result::Result<Outcome, Refused>;

    fn with<T: Task>(self) -> Self::Output {
        train::<T>(self.line, self.team)
    }
}

fn train<T: Task>(line: &Line, team: Team) -> std::result::Result<Outcome, Refused> {
    let args: T::Args = line.read()?;
    let team = team.sharding(args.shards());
    let show = show(args.every())?;
    Ok(match &args.every().resume {
        Some(path) => resume::<T>(&args, path, show, &team)?,
        None => start::<T>(&args, show, &team)?,
    })
}

fn start<T: Task>(args: &T::Args, show: Box<dyn Callback>, team: &Team) -> Result<Outcome> {
    if let Some(run) = restarted(args.every(), team)? {
        return resume::<T>(args, run, show, team);
    }
    let (mut config, device, data) = prepare::<T>(args)?;
    config.base_mut().run = config::fresh_name();
    // Names of environments may have colons and slashes.
    let name = config.title().join("-").replace([':', '/', '\\'], "-");
    let run = create(args.every(), &name, team)?;
    session::run(&config, run, &data, &device, show, Vec::new(), team)
}

/// The run to continue if the processes were restarted after one was lost.
///
/// # Errors
/// If its location is unknown.
fn restarted<'a>(args: &'a Every, team: &Team) -> Result<Option<&'a Path>> {
    if !team.is_restarted() {
        return Ok(None);
    }
    let Some(out) = &args.out else {
        return Err(
            Failure::new("the processes were started anew, and it is not known where their run was")
                .fix("give --out DIR"),
        );
    };
    let has_begun = team.share(|| Ok(RunFolder::new(out).checkpoint().exists()))?;
    Ok(has_begun.then_some(out))
}

/// The folder of a new run, named `name` unless `--out` is given, and the run, which the first process of the team
/// holds.
///
/// # Errors
/// A folder that already has a run, or that cannot be created.
fn create(args: &Every, name: &str, team: &Team) -> Result<(RunFolder, Option<Run>)> {
    let mut run = None;
    let path = team.share(|| {
        let made = match &args.out {
            Some(out) => Run::create(out).map_err(|error| occupied(error, out))?,
            None => Run::create_next("runs", name)?,
        };
        Ok(run.insert(made).path().to_owned())
    })?;
    Ok((RunFolder::new(path), run))
}

/// A run to continue, which the first process of the team holds, and its settings.
///
/// # Errors
/// A folder without a run, or one in which another process trains; errors of [`state::settings`].
fn open<S: RunSettings>(path: &Path, team: &Team) -> Result<((RunFolder, Option<Run>), S)> {
    let mut run = None;
    let stored = team.share(|| {
        let found = Run::resume(path).map_err(|error| unbegun(error, path))?;
        state::settings(run.insert(found))
    })?;
    Ok(((RunFolder::new(path), run), stored))
}

/// The settings of a new run, its device and its data.
///
/// # Errors
/// Errors of options, data and devices.
pub(crate) fn prepare<T: Task>(args: &T::Args) -> Result<(T, Device, T::Data)> {
    let mut config = T::new(args)?;
    let device = backend::open(&config.base().backend, config.base().threads)?;
    let data = config.load()?;
    config.describe(&data)?;
    config::check(&config).map_err(|what| {
        Failure::new(format!("cannot train with these settings: {what}")).fix("give other options, or other data")
    })?;
    Ok((config, device, data))
}

fn resume<T: Task>(args: &T::Args, path: &Path, show: Box<dyn Callback>, team: &Team) -> Result<Outcome> {
    let (run, stored) = open::<T>(path, team)?;
    let config = stored.resumed(args, path)?;
    let device = backend::open(&config.base().backend, config.base().threads)?;
    let data = config.load()?;
    let mut found = config.clone();
    found.describe(&data)?;
    if found != config {
        return Err(config.other_data(&found, path));
    }
    let changes = config.changes(&stored);
    session::run(&config, run, &data, &device, show, changes, team)
}

/// The error for a folder that a new run cannot use.
fn occupied(error: polygrad::Error, out: &Path) -> Failure {
    let failure = Failure::from(error);
    match RunFolder::new(out) {
        folder if folder.checkpoint().exists() => failure.fix(format!(
            "choose another folder with --out, or go on with this run: {}",
            resume_command(&folder)
        )),
        _ => failure,
    }
}

/// Adds a fix to the error of a training that failed.
fn explained(error: polygrad::Error, run: Option<&Run>, lr: f64) -> Failure {
    if let Some(lost) = error.source().and_then(|source| source.downcast_ref::<NonFiniteLoss>()) {
        let fix = match lost.step {
            // No rate has changed anything yet.
            1 => {
                "look for NaN, infinite and very large numbers in the data and in what training begins with".to_owned()
            }
            _ => format!("start a new run with an --lr below {}", short(lr)),
        };
        return Failure::from(error).fix(fix);
    }
    // A run that did not begin leaves nothing to continue.
    let Some(run) = run.filter(|run| run.checkpoint().exists()) else {
        return error.into();
    };
    match (run.check(), error.kind()) {
        (Err(lost), _) => Failure::from(lost)
            .fix("bring the folder back and go on from its last checkpoint with --resume, or start a new run"),
        (_, ErrorKind::Io) => {
            Failure::from(error).then(&format!("go on from the last checkpoint: {}", resume_command(run)))
        }
        _ => error.into(),
    }
}

/// The error for a folder without a run to continue.
fn unbegun(error: polygrad::Error, path: &Path) -> Failure {
    let (folder, failure) = (RunFolder::new(path), Failure::from(error));
    let has_begun = folder.checkpoint().exists() || folder.config().is_file();
    match !has_begun && path.join("run.lock").is_file() {
        true => failure.fix(format!(
            "the run there was ended before it began: start it anew, with --out {}",
            path.shown()
        )),
        false => failure,
    }
}

/// The absolute path of an existing file or folder.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|e| Failure::io("read", path, &e))
}

impl Data {
    /// The location of the data from `--data`.
    ///
    /// # Errors
    /// A path that does not exist.
    pub(crate) fn place(&self) -> Result<Option<PathBuf>> {
        self.folder.as_deref().map(absolute).transpose()
    }
}

/// The location of the data from the path or `--data`.
///
/// # Errors
/// Two paths, or one that does not exist.
pub(crate) fn place(path: Option<&Path>, data: Option<&Path>) -> Result<Option<PathBuf>> {
    match (path, data) {
        (Some(_), Some(_)) => Err(Failure::new("two places are named, one of them with --data").fix("name one")),
        (found, None) | (None, found) => found.map(absolute).transpose(),
    }
}
