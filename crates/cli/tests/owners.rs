//! A run folder has one owner: a second process is rejected, and a folder that is removed meanwhile is noticed.

mod common;

use std::fs;
#[cfg(unix)]
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{Ended, Scene};

/// Long enough to be observed while it runs, and to be ended by the test.
const LONG: &str = "train bars --data data --threads 1 --model mlp --batch-size 1";

/// How long anything may take: the disk of a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(600);

fn ended(child: Child) -> Ended {
    child.wait_with_output().unwrap().into()
}

fn wait_for(child: &mut Child, what: &str, mut reached: impl FnMut() -> bool) {
    let started = Instant::now();
    while !reached() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before {what}");
        assert!(started.elapsed() < PATIENCE, "too slow: {what}");
        sleep(Duration::from_millis(2));
    }
}

fn rows(metrics: &Path) -> usize {
    fs::read_to_string(metrics).unwrap_or_default().lines().count()
}

#[test]
fn of_two_that_start_in_one_folder_one_wins() {
    let scene = Scene::new();
    for turn in 0..4 {
        let run = format!("run{turn}");
        let mut both = [1, 2].map(|seed| {
            let line = format!("{LONG} --epochs 100000 --out {run} --seed {seed}");
            (seed, scene.command(&line).spawn().unwrap())
        });
        let started = Instant::now();
        let lost = loop {
            assert!(started.elapsed() < PATIENCE, "none gives way");
            if let Some(lost) = both
                .iter_mut()
                .position(|(_, child)| child.try_wait().unwrap().is_some())
            {
                break lost;
            }
            sleep(Duration::from_millis(2));
        };
        let [first, second] = both;
        let ((_, lost), (seed, mut winner)) = if lost == 0 { (first, second) } else { (second, first) };
        let lost = ended(lost);
        assert_eq!(lost.code, Some(1), "{}{}", lost.stdout, lost.stderr);
        let words = format!("process {} is training in {run}\n  fix: ", winner.id());
        assert!(lost.stderr.contains(&words), "{}", lost.stderr);
        let metrics = scene.path(&run).join("metrics.csv");
        wait_for(&mut winner, "its rows", || rows(&metrics) > 40);
        winner.kill().unwrap();
        winner.wait().unwrap();
        let config = String::from_utf8(scene.read(&format!("{run}/config.json"))).unwrap();
        assert!(config.contains(&format!("\"seed\": {seed}")), "{config}");
        let steps: Vec<f64> = scene.metrics(&run)[1..]
            .iter()
            .filter_map(|row| row.split(',').nth(1)?.parse().ok())
            .collect();
        assert!(steps.is_sorted() && steps.len() > 30, "{steps:?}");
    }
}

#[cfg(unix)]
#[test]
fn nobody_else_trains_where_somebody_does_and_all_may_read() {
    let scene = Scene::new();
    let mut owner = scene.command(&format!("{LONG} --epochs 60 --out run")).spawn().unwrap();
    let model = scene.path("run/model.safetensors");
    wait_for(&mut owner, "its first epoch", || model.exists());
    // Stopped, since on some machines the rest of the test takes longer than the run.
    common::signal(&owner, "STOP");
    let words = format!("process {} is training in run", owner.id());
    for line in [
        "train --resume run",
        "train --resume run --epochs 90",
        &format!("{LONG} --out run"),
    ] {
        scene.fails(line, &[&words]);
    }
    assert!(scene.ok("eval run").contains("accuracy"));
    scene.ok("show run");
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(scene.path("run/run.lock").is_file());
    let stray = ".polygrad-tmp-4000000000-3";
    scene.write(&format!("run/{stray}"), b"half");
    scene.ok("train --resume run");
    assert!(!scene.path("run").join(stray).exists() && !scene.path("run/run.lock").exists());
    scene.ok(&format!("{LONG} --epochs 60 --out whole"));
    scene.same("run", "whole");
}

#[cfg(unix)]
#[test]
fn a_folder_that_goes_meanwhile_is_missed() {
    let scene = Scene::new();
    let options = "--epochs 60";
    scene.ok(&format!("{LONG} {options} --out whole"));
    let start = |run: &str| {
        let mut child = scene.command(&format!("{LONG} {options} --out {run}")).spawn().unwrap();
        let metrics = scene.path(run).join("metrics.csv");
        wait_for(&mut child, "its rows", || rows(&metrics) > 12);
        // Stopped until the damage is done, since it might finish, or check between two steps of it.
        common::signal(&child, "STOP");
        child
    };
    let missed = |child: Child, words: &str| {
        common::signal(&child, "CONT");
        let how = ended(child);
        assert_eq!(how.code, Some(1), "{}{}", how.stdout, how.stderr);
        assert!(
            how.stderr.contains(words) && how.stderr.contains("\n  fix: "),
            "{}",
            how.stderr
        );
        assert!(!how.stdout.contains("holds the model"), "{}", how.stdout);
    };
    let child = start("replaced");
    fs::rename(scene.path("replaced"), scene.path("aside")).unwrap();
    fs::create_dir(scene.path("replaced")).unwrap();
    missed(child, "replaced is no longer the folder that this run began in");
    // Follows the fix in the message.
    fs::remove_dir_all(scene.path("replaced")).unwrap();
    fs::rename(scene.path("aside"), scene.path("replaced")).unwrap();
    scene.ok("train --resume replaced");
    scene.same("replaced", "whole");

    let child = start("gone");
    fs::rename(scene.path("gone"), scene.path("aside")).unwrap();
    missed(child, "gone is gone");

    let child = start("bare");
    fs::remove_file(scene.path("bare/config.json")).unwrap();
    missed(child, "bare has lost its config.json");
    scene.ok("train --resume bare");
    scene.same("bare", "whole");

    let child = start("cut");
    fs::remove_file(scene.path("cut/metrics.csv")).unwrap();
    missed(child, "cut/metrics.csv was removed or replaced");
}

#[cfg(target_os = "linux")]
#[test]
fn a_kill_before_the_first_checkpoint_leaves_a_folder_to_start_in() {
    let scene = Scene::new();
    // The signal for a too large file kills, unless the test's parent ignores it, which children inherit.
    let line = format!(
        "ulimit -c 0; ulimit -f 8; exec env --default-signal=XFSZ {} train bars --data data --threads 1 --model mlp --epochs 1 --out run",
        env!("CARGO_BIN_EXE_polygrad")
    );
    let killed = std::process::Command::new("sh")
        .args(["-c", &line])
        .current_dir(scene.path(""))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&killed.stderr);
    assert!(killed.status.signal().is_some(), "nothing killed it: {text}");
    scene.fails(
        "train --resume run",
        &["run has no checkpoint", "start it anew, with --out run"],
    );
    scene.train("run", "--model mlp --epochs 1");
    let names: Vec<_> = fs::read_dir(scene.path("run"))
        .unwrap()
        .map(|f| f.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 7, "{names:?}");
}

#[cfg(unix)]
#[test]
fn a_run_folder_leads_no_write_out_of_itself() {
    let scene = Scene::new();
    scene.train("run", "--model mlp --epochs 1");
    let victim = scene.path("victim");
    fs::write(&victim, "precious").unwrap();
    let files: Vec<_> = fs::read_dir(scene.path("run"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(files.len() >= 7, "{files:?}");
    let mut epochs = 1;
    for name in &files {
        let path = scene.path("run").join(name);
        let kept = fs::read(&path).unwrap();
        // Files that are read at the start must exist.
        let content = scene.path("content");
        fs::write(&content, &kept).unwrap();
        let reads = name == "checkpoint.safetensors"
            || name == "config.json"
            || name == "metrics.csv"
            || name == "best.safetensors";
        let target = if reads || name.to_string_lossy().contains("tfevents") {
            &content
        } else {
            &victim
        };
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(target, &path).unwrap();
        epochs += 1;
        scene.ok(&format!("train --resume run --epochs {epochs}"));
        assert!(!path.is_symlink(), "{name:?} is still a link");
        assert_eq!(fs::read(&victim).unwrap(), b"precious", "{name:?}");
        assert_eq!(fs::read(&content).unwrap(), kept, "{name:?}");
    }
    std::os::unix::fs::symlink(&victim, scene.path("run/run.lock")).unwrap();
    scene.fails("train --resume run --epochs 90", &["run.lock", "it is a link"]);
    fs::remove_file(scene.path("run/run.lock")).unwrap();
    std::os::unix::fs::symlink(&victim, scene.path("run/x.onnx")).unwrap();
    scene.ok("export run --onnx run/x.onnx");
    std::os::unix::fs::symlink(&victim, scene.path("run/x.safetensors")).unwrap();
    scene.ok("convert run/model.safetensors run/x.safetensors");
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    // A folder that is a symbolic link is allowed, since the user chose it.
    std::os::unix::fs::symlink(scene.path("run"), scene.path("latest")).unwrap();
    scene.ok("train --resume latest --epochs 90");
    scene.fails("train bars --data data --out /", &["no folder for a run"]);
}
