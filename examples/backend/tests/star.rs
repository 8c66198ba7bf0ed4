//! The star passes the conformance suite for communicators, and two processes train with it.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use polygrad::communicator::Communicator;
use polygrad_conformance::communicator::{Call, Ending, Options, Report, ends, run};
use polygrad_toy::Star;

const OPTIONS: Options = Options {
    most: 10_000,
    margin: Duration::from_millis(1500),
    names_peers: true,
    shrinks: false,
};

/// Runs each rank on a thread, connected over TCP.
fn reports(size: usize, timeout: Duration, f: impl Fn(Arc<dyn Communicator>) -> Report + Copy + Send + 'static) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let first = thread::spawn(move || f(Arc::new(Star::first(listener, size, timeout).unwrap())));
    let others = (1..size).map(|rank| {
        let address = address.clone();
        thread::spawn(move || f(Arc::new(Star::join(rank, size, &address, timeout).unwrap())))
    });
    let started: Vec<_> = std::iter::once(first).chain(others).collect();
    for rank in started {
        let report = rank.join().unwrap();
        assert!(report.passed(), "{report}");
    }
}

#[test]
fn it_passes_the_suite() {
    for size in 1..=3 {
        reports(size, Duration::from_secs(60), |end| run(&end, &OPTIONS));
    }
}

#[test]
fn it_ends_as_it_should() {
    for ending in [Ending::Late, Ending::Leaves, Ending::Aborts] {
        for call in Call::ALL {
            reports(3, Duration::from_millis(300), move |end| {
                ends(end, ending, call, &OPTIONS)
            });
        }
    }
}

#[test]
fn two_processes_train() {
    let run = Path::new(env!("CARGO_TARGET_TMPDIR")).join("star");
    let _ = std::fs::remove_dir_all(&run);
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/houses/houses.csv");
    // A port that is currently free.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let started: Vec<_> = (0..2)
        .map(|rank| {
            Command::new(env!("CARGO_BIN_EXE_polygrad-toy"))
                .args([
                    "train",
                    "table",
                    data.to_str().unwrap(),
                    "--target",
                    "price",
                    "--backend",
                    "toy",
                    "--epochs",
                    "1",
                ])
                .args(["--parallel", "star:timeout=60", "--out", run.to_str().unwrap()])
                .envs([
                    ("MASTER_ADDR", "127.0.0.1".to_owned()),
                    ("MASTER_PORT", port.to_string()),
                ])
                .envs([("RANK", rank.to_string()), ("WORLD_SIZE", "2".to_owned())])
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let said: Vec<String> = started
        .into_iter()
        .map(|process| {
            let output = process.wait_with_output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        })
        .collect();
    assert!(said[0].contains("2 processes by star"), "{}", said[0]);
    assert!(run.join("model.safetensors").exists());
}

#[test]
fn what_is_not_set_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_polygrad-toy"))
        .args(["train", "cartpole", "--parallel", "star"])
        .env_remove("RANK")
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", "1")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("RANK is not set") && errors.contains("as torchrun does"),
        "{errors}"
    );
}
