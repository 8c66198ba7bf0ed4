//! The suite of communicators under every MPI that is here, and what ends a group. This program starts itself under their launchers, which
//! `POLYGRAD_MPI_LAUNCHERS` names (`cargo xtask setup mpi`).

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use polygrad_conformance::communicator::{Call, Ending, Options, ends, run};
use polygrad_conformance::libtest_mimic::{Arguments, Failed, Trial};
use polygrad_core::communicator::{Communicator, HostSlice, HostSliceMut, LostPeer, Reduction};
use polygrad_mpi::Mpi;

const LAUNCHERS: &str = "POLYGRAD_MPI_LAUNCHERS";
/// Names what a rank does, in a program that a launcher started.
const ROLE: &str = "POLYGRAD_MPI_TEST";
/// Where ranks write what they find.
const FOLDER: &str = "POLYGRAD_MPI_FOLDER";
/// How long a launcher may take.
const LIMIT: Duration = Duration::from_secs(120);
const SHORT: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    match std::env::var(ROLE) {
        Ok(role) => rank(&role),
        Err(_) => polygrad_conformance::libtest_mimic::run(&Arguments::from_args(), trials()).exit_code(),
    }
}

// ---------------------------------------------------------------- what a rank does

fn rank(role: &str) -> ExitCode {
    match role.split(' ').collect::<Vec<_>>().as_slice() {
        ["suite"] => suite(),
        ["late", call] => ending(Ending::Late, call),
        ["leaves", call] => ending(Ending::Leaves, call),
        ["aborts"] => aborts(),
        ["killed"] => killed(),
        ["cut"] => cut(),
        _ => panic!("no such role: {role}"),
    }
}

fn suite() -> ExitCode {
    let comm: Arc<dyn Communicator> = Arc::new(Mpi::init(Duration::from_secs(60)).unwrap());
    let rank = comm.rank();
    let report = run(&comm, &Options::default());
    write(rank, &report.to_string());
    drop(comm);
    match report.passed() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn ending(ending: Ending, call: &str) -> ExitCode {
    let comm = Mpi::init(SHORT).unwrap();
    let (rank, size) = (comm.rank(), comm.size());
    let call = Call::ALL
        .into_iter()
        .find(|known| format!("{known:?}") == call)
        .unwrap();
    let report = ends(Arc::new(comm), ending, call, &Options::default());
    write(rank, &report.to_string());
    // A launcher ends all ranks as soon as one is done without MPI_Finalize.
    let begun = Instant::now();
    while begun.elapsed() < SHORT * 4 && (0..size).any(|rank| !file(rank).exists()) {
        std::thread::sleep(Duration::from_millis(10));
    }
    ExitCode::FAILURE
}

fn aborts() -> ExitCode {
    let comm = Mpi::init(LIMIT).unwrap();
    comm.barrier().unwrap();
    if comm.rank() == comm.size() - 1 {
        comm.abort("its disk is full");
    }
    // Nobody comes back from this.
    let error = comm.barrier().unwrap_err();
    write(comm.rank(), &format!("came back: {error}"));
    ExitCode::FAILURE
}

/// The last rank kills itself in a loop of sums; the others shrink and go on.
fn killed() -> ExitCode {
    let comm: Arc<dyn Communicator> = Arc::new(Mpi::init(Duration::from_secs(30)).unwrap());
    let (rank, size) = (comm.rank(), comm.size());
    let mut values = vec![1f32; 10_000];
    let mut turns = 0;
    let error = loop {
        values.fill(1.0);
        if let Err(error) = comm.all_reduce(HostSliceMut::new(&mut values), Reduction::Sum) {
            break error;
        }
        assert_eq!(values[9999], size as f32);
        turns += 1;
        if turns == 200 && rank == size - 1 {
            let own = std::process::id().to_string();
            Command::new("kill").args(["-9", &own]).status().unwrap();
            std::thread::sleep(LIMIT);
        }
    };
    let begun = Instant::now();
    let named = lost(&error);
    let left = comm.shrink().unwrap();
    drop(comm);
    let mut ranks = vec![0i64; left.size()];
    left.all_gather(HostSlice::new(&[rank as i64]), HostSliceMut::new(&mut ranks))
        .unwrap();
    for _ in 0..200 {
        values.fill(1.0);
        left.all_reduce(HostSliceMut::new(&mut values), Reduction::Sum).unwrap();
        assert_eq!(values[0], size as f32 - 1.0);
    }
    let took = begun.elapsed();
    let expected: Vec<i64> = (0..size as i64 - 1).collect();
    let well = ranks == expected && took < Duration::from_secs(5) && named.is_none_or(|rank| rank == size - 1);
    let word = if well { "0 failed" } else { "wrong" };
    write(
        rank,
        &format!("{word}: {error}, after {turns} turns; {ranks:?} went on {took:?} later"),
    );
    ExitCode::SUCCESS
}

/// In a loop of sums, until the link to the last rank is cut.
fn cut() -> ExitCode {
    let comm = Mpi::init(Duration::from_secs(5)).unwrap();
    let rank = comm.rank();
    let mut values = vec![1f32; 1000];
    let mut turns = 0;
    loop {
        let begun = Instant::now();
        let done = comm.all_reduce(HostSliceMut::new(&mut values), Reduction::Max);
        let took = begun.elapsed();
        if let Err(error) = done {
            let named = lost(&error);
            write(rank, &format!("names {named:?} after {turns} turns, {took:?}: {error}"));
            std::thread::sleep(Duration::from_secs(2));
            return ExitCode::FAILURE;
        }
        turns += 1;
        if turns == 50 {
            write(rank, "runs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn lost(error: &polygrad_core::Error) -> Option<usize> {
    use std::error::Error;
    error
        .source()
        .and_then(|source| source.downcast_ref::<LostPeer>())
        .map(|peer| peer.rank)
}

fn file(rank: usize) -> PathBuf {
    Path::new(&std::env::var_os(FOLDER).unwrap()).join(rank.to_string())
}

/// Whole, or not at all.
fn write(rank: usize, text: &str) {
    let part = file(rank).with_extension("part");
    std::fs::write(&part, text).unwrap();
    std::fs::rename(part, file(rank)).unwrap();
}

// ---------------------------------------------------------------- what starts the ranks

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

    /// So many ranks of this program in a role.
    fn command(&self, ranks: usize, role: &str, folder: &Path) -> Command {
        let mut command = Command::new(&self.path);
        match self.kind {
            Kind::Mpich => {
                let library = self.path.with_file_name("../lib/libmpi_abi.so.1");
                command.env("POLYGRAD_MPI_LIBRARY", library);
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
    /// What each rank wrote.
    found: Vec<Option<String>>,
}

impl Ended {
    fn told(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&self.output.stdout), text(&self.output.stderr));
        format!("{}\n{out}{err}\nranks: {:#?}", self.output.status, self.found)
    }

    /// Whether the first so many ranks wrote something that contains a text.
    fn all(&self, ranks: usize, text: &str) -> bool {
        self.found[..ranks]
            .iter()
            .all(|found| found.as_ref().is_some_and(|found| found.contains(text)))
    }
}

/// A command that may hang.
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
    if trials.is_empty() {
        let name = format!("skipped: {LAUNCHERS} names no mpirun (cargo xtask setup mpi)");
        trials.push(Trial::test(name, || Ok(())).with_ignored_flag(true));
    }
    trials
}

fn of(launcher: &Launcher, trials: &mut Vec<Trial>) {
    let name = &launcher.name;
    let mut add = |what: String, test: Box<dyn Fn(&Launcher) -> Result<(), Failed> + Send>| {
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
    for (ending, ranks) in [("late", 3), ("leaves", 3), ("late", 2), ("leaves", 2)] {
        let calls = if ranks == 3 { &Call::ALL[..] } else { &Call::ALL[..1] };
        for call in calls {
            add(
                format!("{ending} of {ranks} in {call:?}"),
                Box::new(move |launcher| {
                    let ended = launcher.start(ranks, &format!("{ending} {call:?}"), &[])?;
                    holds(ended.all(ranks - 1, " 0 failed"), &ended)
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
        add(
            "goes on without a rank that was killed".to_owned(),
            Box::new(|launcher| {
                let ended = launcher.start(3, "killed", &["--with-ft", "ulfm"])?;
                holds(ended.all(2, "0 failed"), &ended)
            }),
        );
    }
}
