//! SIGTERM and SIGHUP stop training like Ctrl-C, and leave no half-written file.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{Ended, Scene, signal};

/// How long anything may take: the disk of a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(600);

/// As a terminal starts it, or with some signals ignored: the test's parent may ignore some, which children inherit.
fn start(scene: &Scene, line: &str, ignored: &str) -> Child {
    let command = scene.command(line);
    let mut reset = Command::new("env");
    reset.arg("--default-signal=INT,TERM,HUP");
    if !ignored.is_empty() {
        reset.arg(format!("--ignore-signal={ignored}"));
    }
    reset
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(command.get_current_dir().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    reset.spawn().unwrap()
}

fn wait_for(child: &mut Child, what: &str, mut reached: impl FnMut() -> bool) {
    let started = Instant::now();
    while !reached() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before {what}");
        assert!(started.elapsed() < PATIENCE, "too slow: {what}");
        sleep(Duration::from_millis(2));
    }
}

fn rows(scene: &Scene, run: &str) -> usize {
    let text = fs::read_to_string(scene.path(run).join("metrics.csv"));
    text.unwrap_or_default().lines().count()
}

#[test]
fn whatever_ends_training_leaves_all_steps() {
    let scene = Scene::new();
    let kinds = [
        "bars --data data --model mlp --batch-size 1 --epochs 100000",
        "mountain-car --total-steps 100000000",
    ];
    let cases = [
        (0, "HUP", "", 129),
        // In the background of a script, and under nohup.
        (0, "TERM", "INT", 143),
        (0, "TERM", "HUP", 143),
        (1, "TERM", "", 143),
    ];
    for (number, (kind, sent, ignored, status)) in cases.into_iter().enumerate() {
        let run = format!("run{number}");
        let line = format!("train {} --threads 1 --out {run}", kinds[kind]);
        let mut child = start(&scene, &line, ignored);
        wait_for(&mut child, "its rows", || rows(&scene, &run) > 2);
        if !ignored.is_empty() {
            signal(&child, ignored);
            let before = rows(&scene, &run);
            wait_for(&mut child, "more rows", || rows(&scene, &run) > before + 1);
        }
        signal(&child, sent);
        if sent != "INT" {
            // Shells send SIGHUP again, and Slurm sends SIGTERM again.
            signal(&child, sent);
        }
        let how: Ended = child.wait_with_output().unwrap().into();
        let said = format!("{sent}, {ignored} ignored: {}{}", how.stdout, how.stderr);
        assert_eq!(how.code, Some(status), "{said}");
        assert!(
            how.stderr.contains(&format!("to go on: polygrad train --resume {run}")),
            "{said}"
        );
        assert!(!scene.path(&run).join("run.lock").exists(), "{said}");
        let step = |line: &str| line.split(',').next().unwrap().parse::<u64>().unwrap();
        let last = step(scene.metrics(&run).last().unwrap());
        assert!(last > 0, "{said}");
        if kind == 0 {
            // The progress since the last epoch is in the checkpoint.
            let epochs = format!("train --resume {run} --epochs 100001");
            let mut child = start(&scene, &epochs, "");
            wait_for(&mut child, "more rows", || rows(&scene, &run) > 2);
            assert!(step(scene.metrics(&run).last().unwrap()) >= last, "{said}");
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

#[test]
fn a_conversion_that_is_ended_leaves_nothing() {
    let scene = Scene::new();
    // A conversion that takes long.
    let side = 1024_usize;
    let values = vec![0_u8; 4 * side * side];
    let count = 24;
    let entries: Vec<String> = (0..count)
        .map(|i| {
            let at = i * values.len();
            format!(
                "\"a{i}\":{{\"dtype\":\"F32\",\"shape\":[{side},{side}],\"data_offsets\":[{at},{}]}}",
                at + values.len()
            )
        })
        .collect();
    let head = format!("{{{}}}", entries.join(","));
    let mut file = (head.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(head.as_bytes());
    (0..count).for_each(|_| file.extend_from_slice(&values));
    scene.write("in.safetensors", &file);
    drop(file);
    let strays = || {
        let names = fs::read_dir(scene.path("")).unwrap().map(|entry| entry.unwrap());
        names
            .filter(|entry| entry.file_name().to_string_lossy().contains("tmp"))
            .collect::<Vec<_>>()
    };
    for (sent, status) in [
        ("TERM", Some(143)),
        ("INT", Some(130)),
        ("HUP", Some(129)),
        ("KILL", None),
    ] {
        let mut child = start(&scene, "convert in.safetensors out.npz", "");
        let begun = || {
            strays()
                .iter()
                .any(|stray| stray.metadata().is_ok_and(|about| about.size() > 0))
        };
        wait_for(&mut child, "it writes", begun);
        signal(&child, sent);
        assert_eq!(child.wait().unwrap().code(), status);
        assert_eq!(strays().len(), usize::from(status.is_none()), "{sent}");
        assert!(!scene.path("out.npz").exists());
    }
    // The next write next to files left by a kill removes them, whatever it writes.
    scene.train("run", "--epochs 1 --model mlp");
    assert_eq!(strays().len(), 1);
    scene.ok("convert run/model.safetensors other.npz");
    assert!(strays().is_empty());
}
