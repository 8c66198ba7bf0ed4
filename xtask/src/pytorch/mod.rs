//! A Python with PyTorch, ONNX and ONNX Runtime, for the scripts in which other libraries judge Polygrad's files: the
//! one that `PYTHON` names, or `python3` with its own packages in the cache folder. PyTorch is the build with CUDA,
//! whose larger half is replaced by stubs.

mod stubs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo;
use crate::packages::{Package, download, install_list, unpack};
use crate::{cache, torch};

/// Incremented when the contents of the folder change.
const VERSION: u32 = 1;

/// The required Python for its own packages, which are compiled for it.
const PYTHON: &str = "CPython 3.11 Linux x86_64";

const FIX: &str =
    "let PYTHON name a Python with the packages torch, onnx, onnxscript, onnxruntime, safetensors and numpy";

/// The libraries of CUDA that PyTorch's CPU part needs are small; the rest is replaced.
const PACKAGES: [Package; 3] = [
    Package {
        parts: &[
            ("torch/", "torch"),
            ("torchgen/", "torchgen"),
            ("functorch/", "functorch"),
            ("torch-2.13.0.dist-info/", "torch-2.13.0.dist-info"),
        ],
        ..torch::PACKAGES[0]
    },
    Package {
        parts: &[("nvidia/cu13/lib/libcudart.so.13", "torch/lib")],
        ..torch::PACKAGES[1]
    },
    Package {
        parts: &[("nvidia/cu13/lib/libcupti.so.13", "torch/lib")],
        ..torch::PACKAGES[2]
    },
];

/// `cargo xtask setup pytorch`: prints only the variables to export to standard output.
pub(crate) fn command() -> Result<(), String> {
    let python = Python::find()?;
    match python.packages {
        Some(folder) => println!("export PYTHONPATH={}", torch::quoted(&folder.display().to_string())),
        None => println!("export PYTHON={}", torch::quoted(&python.program)),
    }
    Ok(())
}

/// A Python with the packages that the scripts need.
pub(crate) struct Python {
    program: String,
    packages: Option<PathBuf>,
}

impl Python {
    /// The Python that is named, or the one in the cache folder, which is first created if it does not exist: 600 MB to
    /// fetch, 930 MB on disk.
    ///
    /// # Errors
    /// If there is none, and on machines for which it cannot be created.
    pub(crate) fn find() -> Result<Self, String> {
        if let Some(program) = std::env::var("PYTHON").ok().filter(|program| !program.is_empty()) {
            return Ok(Self {
                program,
                packages: None,
            });
        }
        let folder = cache::folder()?.join(format!("pytorch-{VERSION}"));
        if !folder.exists() {
            make(&folder)?;
        }
        Ok(Self {
            program: "python3".to_owned(),
            packages: Some(folder),
        })
    }

    /// A script of the folder `scripts`.
    pub(crate) fn script(&self, name: &str) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(packages) = &self.packages {
            // The only path, so that no other version of a package comes first.
            command.env("PYTHONPATH", packages).arg("-s");
        }
        command.arg(cargo::checkout().join("scripts").join(name));
        command
    }

    /// The part of a shell command before the script's name.
    pub(crate) fn shell(&self) -> String {
        let program = torch::quoted(&self.program);
        match &self.packages {
            Some(folder) => format!(
                "PYTHONPATH={} exec {program} -s",
                torch::quoted(&folder.display().to_string())
            ),
            None => format!("exec {program}"),
        }
    }

    /// What to do if a script cannot be run.
    pub(crate) fn fix(&self) -> String {
        match &self.packages {
            Some(folder) => format!("\n  fix: delete {} to have it made again, or {FIX}", folder.display()),
            None => format!("\n  fix: {FIX}; or unset PYTHON to have one fetched"),
        }
    }
}

/// Creates the folder of packages atomically.
fn make(folder: &Path) -> Result<(), String> {
    let here = "import sys, platform as p; print(p.python_implementation(), '%d.%d' % sys.version_info[:2], p.system(), p.machine())";
    let output = Command::new("python3").args(["-c", here]).output();
    let output = output.map_err(|e| format!("python3 cannot be started: {e}\n  fix: {FIX}"))?;
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if found != PYTHON {
        return Err(format!(
            "PyTorch can be fetched for {PYTHON} alone, and python3 is {found}\n  fix: {FIX}"
        ));
    }
    let beside = |suffix: &str| PathBuf::from(format!("{}.{suffix}", folder.display()));
    let (downloads, part) = (beside("downloads"), beside("part"));
    if part.exists() {
        fs::remove_dir_all(&part).map_err(|e| format!("cannot delete {}: {e}", part.display()))?;
    }
    for new in [&downloads, &part] {
        fs::create_dir_all(new).map_err(|e| format!("cannot create {}: {e}", new.display()))?;
    }
    for package in &PACKAGES {
        let file = download(package, &downloads, FIX)?;
        unpack(package, &file, &part).map_err(|e| format!("cannot unpack {}: {e}", file.display()))?;
    }
    stubs::write(&part.join("torch/lib"))?;
    install_list("scripts/onnx_judges.txt", &part, FIX)?;
    let finish = || {
        fs::rename(&part, folder)?;
        fs::remove_dir_all(&downloads)
    };
    finish().map_err(|e| format!("cannot finish {}: {e}", folder.display()))
}
