//! Gloo between processes: this program starts itself as the ranks.

#[path = "gloo/hosts.rs"]
mod hosts;

use std::env;
use std::error::Error as _;
use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use polygrad_conformance::communicator::{self, Call, Ending, Options, Report};
use polygrad_core::communicator::{Communicator, HostSliceMut, LostPeer, Reduction};
use polygrad_core::{Error, ErrorKind};
use polygrad_torch::gloo::Gloo;

const LIMIT: Duration = Duration::from_secs(3);
/// The time beyond the limit that it may take to find the rank to blame, on a busy machine.
const MARGIN: Duration = Duration::from_secs(5);
const ENDINGS: [Ending; 3] = [Ending::Late, Ending::Leaves, Ending::Aborts];

/// The variable that makes this program a rank, and names the test.
const ROLE: &str = "POLYGRAD_GLOO_TEST";

fn main() -> ExitCode {
    if let Ok(role) = env::var(ROLE) {
        return rank(&role);
    }
    let mut trials = vec![
        Trial::test("a_killed_peer_is_named", || killed(3)),
        Trial::test("a_killed_peer_is_named_by_many", || killed(4)),
        Trial::test("the_rank_that_serves_the_store_is_named_when_it_is_killed", || {
            run("killed-0", 3, &[0])
        }),
        Trial::test("a_peer_that_never_comes_is_named", absent),
        Trial::test("a_second_group_meets_on_the_same_store", || run("again", 2, &[])),
    ];
    trials.extend((1..=4).map(|size| Trial::test(format!("suite_{size}"), move || run("suite", size, &[]))));
    for size in [2, 3] {
        for ending in ENDINGS {
            trials.push(Trial::test(format!("suite_{size}_{ending:?}"), move || {
                run(&format!("ends-{ending:?}"), size, &[])
            }));
        }
    }
    let hosts = hosts::allowed();
    trials.push(Trial::test("a_host_that_is_cut_off_is_named", || Ok(hosts::cut()?)).with_ignored_flag(!hosts));
    let python = torchrun();
    let lacks = python.is_none();
    trials.push(
        Trial::test("torchrun_restarts_ranks_which_meet_again", move || match &python {
            Some(program) => restarted(program),
            None => Err("there is no PyTorch: cargo xtask setup pytorch".into()),
        })
        .with_ignored_flag(lacks),
    );
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Runs one rank of a test; the error says why it failed.
fn rank(role: &str) -> ExitCode {
    let done = match role.split_once('-').unwrap_or((role, "")) {
        ("killed", rank) => loses(rank.parse().unwrap_or(usize::MAX)),
        ("absent", rank) => misses(rank.parse().unwrap_or(usize::MAX)),
        ("again", _) => meets_again(),
        ("cut", rank) => is_cut_off(rank.parse().unwrap_or(usize::MAX)),
        ("suite", _) => suite(),
        ("ends", ending) => ends_so(ending),
        ("elastic", file) => restarts(file),
        _ => Err(format!("there is no role {role}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn said(error: &Error) -> String {
    format!("{error:?}")
}

fn met() -> Result<Gloo, String> {
    Gloo::from_env(LIMIT).map_err(|e| said(&e))
}

fn sum(group: &Gloo, values: &mut [f32]) -> Result<(), Error> {
    group.all_reduce(HostSliceMut::new(values), Reduction::Sum)
}

/// As the system does when memory is short.
fn kill_self() -> ! {
    let id = std::process::id().to_string();
    let killed = Command::new("kill").args(["-9", &id]).status();
    panic!("still here: {killed:?}");
}

/// Checks that an error is that of a lost rank, and came in time.
fn named(error: &Error, lost: usize, begun: Instant) -> Result<(), String> {
    let took = begun.elapsed();
    let found = error.source().and_then(|source| source.downcast_ref::<LostPeer>());
    let named = found.map(|peer| peer.rank);
    match error.kind() == ErrorKind::Communication && named == Some(lost) && took <= LIMIT + MARGIN {
        true => Ok(()),
        false => Err(format!(
            "rank {lost} is lost, and after {took:?} {named:?} is named: {}",
            said(error)
        )),
    }
}

fn loses(lost: usize) -> Result<(), String> {
    let group = met()?;
    let mut values = vec![1f32; 100_000];
    sum(&group, &mut values).map_err(|e| said(&e))?;
    if group.rank() == lost {
        kill_self();
    }
    let begun = Instant::now();
    for _ in 0..2 {
        if let Err(error) = sum(&group, &mut values) {
            named(&error, lost, begun)?;
            // The group fails from now on, and at once.
            let again = Instant::now();
            let error = group.barrier().err().ok_or("a barrier without a lost rank succeeds")?;
            named(&error, lost, again)?;
            return match again.elapsed() < Duration::from_millis(100) {
                true => Ok(()),
                false => Err("the second error takes long".to_owned()),
            };
        }
    }
    Err("two sums without a lost rank succeed".to_owned())
}

fn misses(lost: usize) -> Result<(), String> {
    let begun = Instant::now();
    match Gloo::from_env(LIMIT) {
        Ok(_) => Err("a group without one of its ranks begins".to_owned()),
        Err(error) => named(&error, lost, begun),
    }
}

/// Works until the link to the last rank is cut.
fn is_cut_off(lost: usize) -> Result<(), String> {
    let group = met()?;
    let ends = Instant::now() + Duration::from_secs(60);
    while Instant::now() < ends {
        let begun = Instant::now();
        let mut values = vec![1f32; 1000];
        if let Err(error) = sum(&group, &mut values) {
            // The rank that is cut off misses the host of the store.
            let missed = if group.rank() == lost { 0 } else { lost };
            return named(&error, missed, begun);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err("nothing is cut".to_owned())
}

fn passed(report: &Report) -> Result<(), String> {
    match report.passed() {
        true => Ok(()),
        false => Err(report.to_string()),
    }
}

fn suite() -> Result<(), String> {
    let group = Gloo::from_env(Duration::from_secs(60)).map_err(|e| said(&e))?;
    let whole = Options::default();
    // 4 ranks share the machine's memory and processors.
    let most = if group.size() == 2 { whole.most } else { whole.most / 10 };
    let group: Arc<dyn Communicator> = Arc::new(group);
    passed(&communicator::run(&group, &Options { most, ..whole }))
}

/// Runs every collective, each in a group of its own.
fn ends_so(ending: &str) -> Result<(), String> {
    let ending = ENDINGS.into_iter().find(|known| format!("{known:?}") == ending);
    let ending = ending.ok_or("there is no such ending")?;
    for call in Call::ALL {
        passed(&communicator::ends(Arc::new(met()?), ending, call, &Options::default()))?;
    }
    Ok(())
}

fn meets_again() -> Result<(), String> {
    let (first, second) = (met()?, met()?);
    for group in [&first, &second, &first] {
        let mut values = [group.rank() as f32 + 1.0];
        sum(group, &mut values).map_err(|e| said(&e))?;
        if values != [3.0] {
            return Err(format!("1 + 2 = {values:?}"));
        }
    }
    drop(first);
    second.barrier().map_err(|e| said(&e))
}

/// Under torchrun: in the first run one rank is killed; the second run writes that to a file.
fn restarts(file: &str) -> Result<(), String> {
    let group = met()?;
    let restart = env::var("TORCHELASTIC_RESTART_COUNT").map_err(|e| e.to_string())?;
    let mut values = [group.rank() as f32 + 1.0];
    sum(&group, &mut values).map_err(|e| said(&e))?;
    if restart == "0" {
        if group.rank() == 1 {
            kill_self();
        }
        let error = group.barrier().err().ok_or("a barrier without rank 1 succeeds")?;
        return Err(said(&error));
    }
    if group.rank() == 0 {
        let text = format!("restart {restart}: {values:?}");
        std::fs::write(file, text).map_err(|e| e.to_string())?;
    }
    group.barrier().map_err(|e| said(&e))
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    Ok(listener.local_addr().map_err(|e| e.to_string())?.port())
}

/// Starts a rank of a test with a command to which this program's name is appended.
fn start(
    mut command: Command,
    role: &str,
    (rank, size): (usize, usize),
    (host, port): (&str, u16),
) -> Result<Child, String> {
    command
        .env(ROLE, role)
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", size.to_string())
        .env("MASTER_ADDR", host)
        .env("MASTER_PORT", port.to_string())
        .env_remove("TORCHELASTIC_USE_AGENT_STORE")
        .env_remove("TORCHELASTIC_RESTART_COUNT")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command.spawn().map_err(|e| e.to_string())
}

/// Waits for a process, with a time limit. Returns whether it succeeded, and its output.
fn ended(mut child: Child) -> Result<(bool, String), String> {
    let begun = Instant::now();
    let succeeds = loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) => break status.success(),
            None if begun.elapsed() > Duration::from_secs(300) => {
                child.kill().and_then(|()| child.wait()).map_err(|e| e.to_string())?;
                return Err("a rank does not end".to_owned());
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let mut text = String::new();
    if let Some(errors) = &mut child.stderr {
        errors.read_to_string(&mut text).map_err(|e| e.to_string())?;
    }
    Ok((succeeds, text))
}

/// Runs some ranks of a group of `size`; those in `killed` must fail, the others succeed.
fn run_some(role: &str, ranks: &[usize], size: usize, killed: &[usize]) -> Result<(), Failed> {
    let (program, place) = (env::current_exe()?, ("127.0.0.1", free_port()?));
    let started: Vec<_> = ranks
        .iter()
        .map(|&rank| Ok((rank, start(Command::new(&program), role, (rank, size), place)?)))
        .collect::<Result<_, String>>()?;
    let ends: Vec<_> = started.into_iter().map(|(rank, child)| (rank, ended(child))).collect();
    for (rank, end) in ends {
        let (succeeds, text) = end?;
        if succeeds == killed.contains(&rank) {
            return Err(format!("rank {rank} of {size} succeeds: {succeeds}\n{text}").into());
        }
    }
    Ok(())
}

fn run(role: &str, size: usize, killed: &[usize]) -> Result<(), Failed> {
    let ranks: Vec<_> = (0..size).collect();
    run_some(role, &ranks, size, killed)
}

fn killed(size: usize) -> Result<(), Failed> {
    let last = size - 1;
    run(&format!("killed-{last}"), size, &[last])
}

fn absent() -> Result<(), Failed> {
    run_some("absent-2", &[0, 1], 3, &[])?;
    run_some("absent-0", &[1], 2, &[])
}

/// The variables with which torchrun starts: the Python that is named or on the path, with the packages of `cargo xtask
/// setup pytorch` if it has no PyTorch.
fn torchrun() -> Option<Vec<(String, String)>> {
    let cache = env::var_os("XDG_CACHE_HOME")
        .map(std::path::PathBuf::from)
        .or_else(|| Some(std::path::PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    let packages = cache.join("polygrad/pytorch-1").display().to_string();
    let ways = [Vec::new(), vec![("PYTHONPATH".to_owned(), packages)]];
    ways.into_iter().find(|variables| {
        let found = python(variables)
            .args(["-c", "import torch.distributed.run"])
            .stderr(Stdio::null())
            .status();
        found.is_ok_and(|status| status.success())
    })
}

fn python(variables: &[(String, String)]) -> Command {
    let mut command = Command::new(env::var_os("PYTHON").unwrap_or_else(|| "python3".into()));
    // PyTorch finds its own LibTorch.
    command.envs(variables.iter().cloned()).env_remove("LD_LIBRARY_PATH");
    command
}

fn restarted(variables: &[(String, String)]) -> Result<(), Failed> {
    let program = env::current_exe()?;
    let file = env::temp_dir().join(format!("polygrad-gloo-{}", std::process::id()));
    let libraries = env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let mut command = python(variables);
    command
        .args(["-m", "torch.distributed.run", "--no-python", "--nproc-per-node", "2"])
        .args(["--max-restarts", "1", "--master-port", &free_port()?.to_string()])
        .args(["env", &format!("LD_LIBRARY_PATH={libraries}")])
        .arg(program)
        .env(ROLE, format!("elastic-{}", file.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let (succeeds, text) = ended(command.spawn()?)?;
    let told = std::fs::read_to_string(&file).unwrap_or_default();
    let _ = std::fs::remove_file(&file);
    match succeeds && told == "restart 1: [3.0]" {
        true => Ok(()),
        false => Err(format!("torchrun succeeds: {succeeds}, the second run: {told:?}\n{text}").into()),
    }
}
