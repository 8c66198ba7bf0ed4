//! The Python package: its wheel, and its tests in an otherwise empty environment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{cache, cargo};

/// The requirements of the tests, and maturin, all with pinned versions.
const REQUIREMENTS: &str = "python/tests/requirements.txt";

/// Packages from `setup pytorch` and `setup peers`, which judge shared tensors and provide batches, if they are
/// available.
const JUDGES: [&str; 2] = ["pytorch-1", "jax-0.10.2"];

/// The largest size of a wheel, in bytes.
const MOST: u64 = 15_000_000;

/// `cargo xtask wheel`: builds target/wheels, and tests the wheel in a new environment unless told only to build it.
///
/// # Errors
/// If there is no Python with `venv` and pip, the requirements cannot be fetched, or the wheel cannot be built, is too
/// large or fails a test.
pub(crate) fn run(only_build: bool) -> Result<(), String> {
    let checkout = cargo::checkout();
    let wheelhouse = wheelhouse(&checkout)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| checkout.join("target"), PathBuf::from);
    let (environment, wheels) = (target.join("wheel-environment"), target.join("wheels"));
    remove(&environment)?;
    remove(&wheels)?;
    done(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    let python = || {
        let mut command = Command::new(environment.join("bin/python"));
        command.arg("-m").current_dir(checkout.join("python"));
        command
    };
    let install = || {
        let mut command = python();
        command.args([
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-index",
            "--find-links",
        ]);
        command.arg(&wheelhouse);
        command
    };
    done(install().arg("--requirement").arg(checkout.join(REQUIREMENTS)))?;
    let mut build = python();
    build
        .args(["maturin", "build", "--release", "--out"])
        .arg(&wheels)
        .env("CARGO_TARGET_DIR", &target);
    done(&mut build)?;
    let wheel = only(&wheels)?;
    let size = fs::metadata(&wheel).map_err(|e| told(&wheel, &e))?.len();
    println!("{}: {:.1} MB", wheel.display(), size as f64 / 1e6);
    if size > MOST {
        return Err(format!(
            "the wheel has {size} bytes, and {MOST} are the most that it may have"
        ));
    }
    if only_build {
        return Ok(());
    }
    done(install().arg(&wheel))?;
    let tests = |files: &[&str]| {
        let mut command = python();
        // Outside the sources, so that the wheel is imported.
        command
            .current_dir(&target)
            .args(["pytest", "-q", "-rs", "-p", "no:cacheprovider"]);
        command.args(files.iter().map(|file| checkout.join("python/tests").join(file)));
        command
    };
    done(&mut tests(&[""]))?;
    for judge in JUDGES {
        let folder = cache::folder()?.join(judge);
        match folder.exists() {
            true => done(
                tests(&[
                    "test_tensor.py",
                    "test_model.py",
                    "test_fit.py",
                    "test_use.py",
                    "test_texts.py",
                ])
                .env("PYTHONPATH", &folder),
            )?,
            false => println!("skipped: {judge} is not in the cache folder, and does not judge the tensors"),
        }
    }
    Ok(())
}

/// The packages of the list, which are fetched again when the list changes.
fn wheelhouse(checkout: &Path) -> Result<PathBuf, String> {
    let list = checkout.join(REQUIREMENTS);
    let wanted = fs::read_to_string(&list).map_err(|e| told(&list, &e))?;
    let folder = cache::folder()?.join("wheelhouse");
    let there = folder.join("requirements.txt");
    if fs::read_to_string(&there).is_ok_and(|there| there == wanted) {
        return Ok(folder);
    }
    remove(&folder)?;
    let download = [
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary=:all:",
        "--dest",
    ];
    done(
        Command::new("python3")
            .args(download)
            .arg(&folder)
            .arg("--requirement")
            .arg(&list),
    )?;
    fs::write(&there, wanted).map_err(|e| told(&there, &e))?;
    Ok(folder)
}

fn remove(folder: &Path) -> Result<(), String> {
    match folder.exists() {
        true => fs::remove_dir_all(folder).map_err(|e| told(folder, &e)),
        false => Ok(()),
    }
}

/// The only file in a folder.
fn only(folder: &Path) -> Result<PathBuf, String> {
    let mut files = fs::read_dir(folder).map_err(|e| told(folder, &e))?;
    let first = files.next().and_then(Result::ok).map(|entry| entry.path());
    first.ok_or_else(|| format!("maturin has left no wheel in {}", folder.display()))
}

fn told(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn done(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{shown} ended with {status}")),
        Err(error) => Err(format!(
            "{shown} could not be started: {error}\n  fix: install Python 3.10 or newer with venv and pip (python3-venv)"
        )),
    }
}
