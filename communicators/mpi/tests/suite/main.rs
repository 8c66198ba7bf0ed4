//! Runs the suite of communicators, and tests of lost ranks, under every MPI that is installed. This program starts
//! itself under their launchers, which `POLYGRAD_MPI_LAUNCHERS` names (`cargo xtask setup mpi`).

mod hosts;
mod ranks;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use polygrad_conformance::communicator::Call;
use polygrad_conformance::libtest_mimic::{self, Arguments, Failed, Trial};

const LAUNCHERS: &str = "POLYGRAD_MPI_LAUNCHERS";
/// The variable with a rank's role, in a program that a launcher started.
const ROLE: &str = "POLYGRAD_MPI_TEST";
/// The variable with the folder to which ranks write their results.
const FOLDER: &str = "POLYGRAD_MPI_FOLDER";
/// The longest time that a launcher may take.
const LIMIT: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    match std::env::var(ROLE) {
        Ok(role) => ranks::rank(&role),
        Err(_) => libtest_mimic::run(&Arguments::from_args(), trials()).exit_code(),
    }
}

#[derive(Clone)]
struct Launcher {
    path: PathBuf,
    name: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    OpenMpi4,
    OpenMpi5,
    Mpich,
}

impl Launcher {
    fn new(path: &str) -> Result<Self, String> {
        let said = Command::new(path).arg("--version").output();
        let said = said.map_err(|e| format!("{path} cannot be started: {e}"))?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let kind = match &said {
            said if said.contains("HYDRA") => Kind::Mpich,
            said if said.contains("(Open MPI) 4") || said.contains("(OpenRTE) 4") => Kind::OpenMpi4,
            said if said.contains("(Open MPI) 5") => Kind::OpenMpi5,
            _ => return Err(format!("{path} is none of the launchers known here")),
        };
        let name = match kind {
            Kind::Mpich => "mpich",
            Kind::OpenMpi4 => "openmpi 4",
            Kind::OpenMpi5 => "openmpi 5",
        };
        Ok(Self {
            path: path.into(),
            name: name.to_owned(),
            kind,
        })
    }

    /// MPICH's library, which its launcher does not make visible to the loader.
    fn library(&self) -> PathBuf {
        self.path.with_file_name("../lib/libmpi_abi.so.1")
    }

    /// The command that starts `ranks` ranks of this program in a role.
    fn command(&self, ranks: usize, role: &str, folder: &Path) -> Command {
        let mut command = Command::new(&self.path);
        match self.kind {
            Kind::Mpich => {
                command.env("POLYGRAD_MPI_LIBRARY", self.library());
            }
            Kind::OpenMpi4 | Kind::OpenMpi5 => {
                command.args(["--allow-run-as-root", "--oversubscribe"]);
                command.env_remove("POLYGRAD_MPI_LIBRARY");
            }
        }
        command.env(ROLE, role).env(FOLDER, folder);
        command.args(["-n", &ranks.to_string()]);
        command
    }

    fn start(&self, ranks: usize, role: &str, options: &[&str]) -> Result<Ended, String> {
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let mut command = self.command(ranks, role, folder.path());
        command
            .args(options)
            .arg(std::env::current_exe().map_err(|e| e.to_string())?);
        let output = limited(command)?;
        let read = |rank: usize| std::fs::read_to_string(folder.path().join(rank.to_string())).ok();
        let found = (0..ranks).map(read).collect();
        Ok(Ended { output, found })
    }
}

struct Ended {
    output: Output,
    /// The result that each rank wrote.
    found: Vec<Option<String>>,
}

impl Ended {
    fn told(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&self.output.stdout), text(&self.output.stderr));
        format!("{}\n{out}{err}\nranks: {:#?}", self.output.status, self.found)
    }

    /// Whether the results of the first `ranks` ranks all contain a text.
    fn all(&self, ranks: usize, text: &str) -> bool {
        self.found[..ranks]
            .iter()
            .all(|found| found.as_ref().is_some_and(|found| found.contains(text)))
    }
}

/// Runs a command that may hang, with a time limit.
fn limited(mut command: Command) -> Result<Output, String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    let (id, begun) = (child.id().to_string(), Instant::now());
    let waits = std::thread::spawn(move || child.wait_with_output());
    while !waits.is_finished() {
        if begun.elapsed() > LIMIT {
            let _ = Command::new("kill").args(["-9", &id]).status();
            return Err(format!("{command:?} does not end within {LIMIT:?}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    waits
        .join()
        .map_err(|_| "no output".to_owned())?
        .map_err(|e| e.to_string())
}

fn holds(holds: bool, ended: &Ended) -> Result<(), Failed> {
    match holds {
        true => Ok(()),
        false => Err(ended.told().into()),
    }
}

fn trials() -> Vec<Trial> {
    let paths = std::env::var(LAUNCHERS).unwrap_or_default();
    let mut trials = Vec::new();
    for path in paths.split(':').filter(|path| !path.is_empty()) {
        match Launcher::new(path) {
            Ok(launcher) => of(&launcher, &mut trials),
            Err(reason) => trials.push(Trial::test(path.to_owned(), move || Err(reason.into()))),
        }
    }
    trials.push(Trial::test("without a library", without));
    if trials.len() == 1 {
        trials.push(skipped(format!("{LAUNCHERS} names no mpirun (cargo xtask setup mpi)")));
    }
    trials
}

fn without() -> Result<(), Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .env(ROLE, "missing")
        .env("POLYGRAD_MPI_LIBRARY", "/no/libmpi.so");
    let output = limited(command)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}

type Test = Box<dyn Fn(&Launcher) -> Result<(), Failed> + Send>;

fn of(launcher: &Launcher, trials: &mut Vec<Trial>) {
    let name = &launcher.name;
    let mut add = |what: String, test: Test| {
        let launcher = launcher.clone();
        trials.push(Trial::test(format!("{name} {what}"), move || test(&launcher)));
    };
    for ranks in 1..=4 {
        add(
            format!("suite on {ranks}"),
            Box::new(move |launcher| {
                let ended = launcher.start(ranks, "suite", &[])?;
                holds(ended.output.status.success() && ended.all(ranks, " 0 failed"), &ended)
            }),
        );
    }
    for (ending, ranks, calls) in [
        ("late", 3, &Call::ALL[..]),
        ("late", 2, &Call::ALL[..1]),
        ("leaves", 3, &Call::ALL[..1]),
    ] {
        for call in calls {
            add(
                format!("{ending} of {ranks} in {call:?}"),
                Box::new(move |launcher| {
                    let ended = launcher.start(ranks, &format!("{ending} {call:?}"), &[])?;
                    holds(ended.all(ranks, " 0 failed"), &ended)
                }),
            );
        }
    }
    add(
        "aborts".to_owned(),
        Box::new(|launcher| {
            let ended = launcher.start(3, "aborts", &[])?;
            let says = ended.told().contains("rank 2 of 3 gives up: its disk is full");
            holds(
                says && !ended.output.status.success() && ended.found.iter().all(Option::is_none),
                &ended,
            )
        }),
    );
    if launcher.kind == Kind::OpenMpi5 {
        for victim in [0, 2] {
            add(
                format!("goes on without rank {victim}, which was killed"),
                Box::new(move |launcher| {
                    let ended = launcher.start(3, &format!("killed {victim}"), &["--with-ft", "ulfm"])?;
                    let went_on =
                        |found: &&Option<String>| found.as_ref().is_some_and(|found| found.contains("0 failed"));
                    holds(ended.found.iter().filter(went_on).count() == 2, &ended)
                }),
            );
        }
    }
    match hosts::possible() {
        Ok(()) => add("names the host that is cut off".to_owned(), Box::new(hosts::cut_off)),
        Err(reason) => trials.push(skipped(format!("{name}, a host that is cut off: {reason}"))),
    }
}

/// A named test that cannot run here; it fails under CI.
fn skipped(what: String) -> Trial {
    let strict = std::env::var_os("CI").is_some_and(|value| value == "true");
    let test = move || match strict {
        true => Err("under CI nothing may be skipped".into()),
        false => Ok(()),
    };
    Trial::test(format!("skipped: {what}"), test).with_ignored_flag(!strict)
}
