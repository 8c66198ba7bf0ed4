//! The roles of ranks, in a program that a launcher started.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use polygrad_conformance::communicator::{Call, Ending, Options, ends, run};
use polygrad_core::ErrorKind;
use polygrad_core::communicator::{Communicator, HostSlice, HostSliceMut, LostPeer, Reduction};
use polygrad_mpi::Mpi;

use crate::{FOLDER, LIMIT};

const SHORT: Duration = Duration::from_secs(1);

pub(crate) fn rank(role: &str) -> ExitCode {
    match role.split(' ').collect::<Vec<_>>().as_slice() {
        ["suite"] => suite(),
        ["late", call] => ending(Ending::Late, call),
        ["leaves", call] => ending(Ending::Leaves, call),
        ["aborts"] => aborts(),
        ["killed", victim] => killed(victim.parse().unwrap()),
        ["cut"] => cut(),
        ["missing"] => missing(),
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
    // A launcher ends all ranks as soon as one exits without MPI_Finalize.
    wait(SHORT * 4, || (0..size).all(|rank| file(rank).exists()));
    ExitCode::FAILURE
}

fn aborts() -> ExitCode {
    let comm = Mpi::init(LIMIT).unwrap();
    comm.barrier().unwrap();
    if comm.rank() == comm.size() - 1 {
        comm.abort("its disk is full");
    }
    // No rank should return from this.
    let error = comm.barrier().unwrap_err();
    write(comm.rank(), &format!("came back: {error}"));
    ExitCode::FAILURE
}

/// One rank kills itself in a loop of sums; the others shrink and continue.
fn killed(victim: usize) -> ExitCode {
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
        if turns == 200 && rank == victim {
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
    let expected: Vec<i64> = (0..size as i64).filter(|&rank| rank != victim as i64).collect();
    let well = ranks == expected && took < Duration::from_secs(5) && named.is_none_or(|rank| rank == victim);
    let word = if well { "0 failed" } else { "wrong" };
    write(
        rank,
        &format!("{word}: {error}, after {turns} turns; {ranks:?} went on {took:?} later"),
    );
    ExitCode::SUCCESS
}

/// Runs a loop of reductions until the link to the last rank is cut.
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
            // A launcher ends all ranks as soon as one fails.
            let told = |rank: usize| std::fs::read_to_string(file(rank)).is_ok_and(|found| found.starts_with("names"));
            wait(LIMIT, || (0..comm.size()).all(told));
            return ExitCode::FAILURE;
        }
        turns += 1;
        if turns == 50 {
            write(rank, "runs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Without a library there is an error that says what was tried.
fn missing() -> ExitCode {
    let error = Mpi::init(LIMIT).unwrap_err();
    let says = error.to_string();
    match error.kind() == ErrorKind::BackendUnavailable && says.contains("/no/libmpi.so") && says.contains("install") {
        true => ExitCode::SUCCESS,
        false => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}

fn wait(limit: Duration, until: impl Fn() -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < limit && !until() {
        std::thread::sleep(Duration::from_millis(10));
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

/// Writes a rank's file atomically.
fn write(rank: usize, text: &str) {
    let part = file(rank).with_extension("part");
    std::fs::write(&part, text).unwrap();
    std::fs::rename(part, file(rank)).unwrap();
}
