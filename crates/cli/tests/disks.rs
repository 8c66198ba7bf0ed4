//! Disks that cannot be written to: read-only and full.
//!
//! Both are simulated by a small tmpfs, which needs permission to mount. Without it the tests say so and pass; under
//! `CI=true` they fail instead, so that they are not skipped unnoticed.
#![cfg(target_os = "linux")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::Scene;

/// A mounted tmpfs, unmounted on drop.
struct Disk(PathBuf);

impl Disk {
    /// Mounts one at `path` with `options`; `None` without permission.
    fn mount(path: &Path, options: &str) -> Option<Self> {
        std::fs::create_dir_all(path).unwrap();
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "polygrad-test"])
            .arg(path)
            .output();
        match output {
            Ok(output) if output.status.success() => Some(Self(path.to_owned())),
            failed => {
                let why = failed.map_or_else(
                    |e| e.to_string(),
                    |o| String::from_utf8_lossy(&o.stderr).trim().to_owned(),
                );
                assert!(
                    std::env::var("CI").as_deref() != Ok("true"),
                    "no tmpfs can be mounted: {why}"
                );
                eprintln!("skipped, no tmpfs can be mounted: {why}");
                None
            }
        }
    }

    fn remount(&self, options: &str) {
        let status = Command::new("mount")
            .args(["-o", &format!("remount,{options}")])
            .arg(&self.0)
            .status()
            .unwrap();
        assert!(status.success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let status = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(status.is_ok_and(|s| s.success()) || std::thread::panicking());
    }
}

#[test]
fn a_read_only_folder_is_named() {
    let scene = Scene::new();
    let Some(_disk) = Disk::mount(&scene.path("disk"), "ro,size=1m") else {
        return;
    };
    scene.fails(
        "train bars --data data --model mlp --epochs 1 --out disk/run",
        &[
            "cannot create the folder disk/run",
            "read-only",
            "choose another folder",
        ],
    );
}

#[test]
fn a_disk_too_small_for_the_run_is_named_and_left_clean() {
    let scene = Scene::new();
    let Some(disk) = Disk::mount(&scene.path("disk"), "size=100k") else {
        return;
    };
    let line = "train bars --data data --model mlp --epochs 2 --out disk/run";
    scene.fails(line, &["cannot write disk/run/checkpoint.safetensors", "disk is full"]);
    assert_eq!(std::fs::read_dir(scene.path("disk/run")).unwrap().count(), 0);
    disk.remount("size=20m");
    scene.ok(line);
}

#[test]
fn a_disk_that_fills_up_leaves_the_last_checkpoint_whole() {
    let scene = Scene::new();
    let Some(disk) = Disk::mount(&scene.path("disk"), "size=20m") else {
        return;
    };
    let line = "train bars --data data --threads 1 --model mlp --batch-size 16 --epochs";
    scene.ok(&format!("{line} 1 --out disk/run"));
    let used: u64 = std::fs::read_dir(scene.path("disk/run"))
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    disk.remount(&format!("size={}k", used / 1024 + 100));
    let go_on = "then go on from the last checkpoint: polygrad train --resume disk/run";
    scene.fails(
        "train --resume disk/run --epochs 3",
        &["disk/run/", "disk is full", go_on],
    );
    disk.remount("size=20m");
    scene.ok("train --resume disk/run --epochs 3");
    // The schedule of the first epoch was that of a run of one epoch, so only a run with the same history gives the
    // same.
    scene.ok(&format!("{line} 1 --out other"));
    scene.ok("train --resume other --epochs 3");
    assert_eq!(scene.metrics("disk/run"), scene.metrics("other"));
}
