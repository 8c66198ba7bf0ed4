//! A Python with PyTorch, ONNX and ONNX Runtime, which others' judgements of our files are written in: the one that
//! `PYTHON` names, or `python3` with packages of its own in the cache folder. PyTorch is the build with CUDA, whose
//! larger half is replaced by stubs.

mod stubs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo;
use crate::packages::{Package, download, install_list, unpack};
use crate::{cache, torch};

/// Changes with what is in the folder.
const VERSION: u32 = 1;

/// What Python has to be for packages of its own: theirs are compiled for it.
const PYTHON: &str = "CPython 3.11 Linux x86_64";

const FIX: &str =
    "let PYTHON name a Python with the packages torch, onnx, onnxscript, onnxruntime, safetensors and numpy";

/// The libraries that the CPU's part needs of CUDA are small; what else it has is replaced.
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

/// `cargo xtask setup pytorch`: prints what to export, and nothing else, to standard output.
pub(crate) fn command() -> Result<(), String> {
    let python = Python::find()?;
    match python.packages {
        Some(folder) => println!("export PYTHONPATH={}", torch::quoted(&folder.display().to_string())),
        None => println!("export PYTHON={}", torch::quoted(&python.program)),
    }
    Ok(())
}

/// A Python that has what the scripts need.
pub(crate) struct Python {
    program: String,
    packages: Option<PathBuf>,
}

impl Python {
    /// The one that is named, or the one in the cache folder, made first where it is not there: 600 MB to
    /// fetch, 930 MB on disk.
    ///
    /// # Errors
    /// When there is none, and on machines for which it cannot be made.
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
            // Alone, so that no other version of a package comes first.
            command.env("PYTHONPATH", packages).arg("-s");
        }
        command.arg(cargo::checkout().join("scripts").join(name));
        command
    }

    /// What a shell script starts it with, up to the script's name.
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

    /// What to do about a script that could not be run.
    pub(crate) fn fix(&self) -> String {
        match &self.packages {
            Some(folder) => format!("\n  fix: delete {} to have it made again, or {FIX}", folder.display()),
            None => format!("\n  fix: {FIX}; or unset PYTHON to have one fetched"),
        }
    }
}

/// Makes the folder of packages: whole, or not at all.
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
