//! Creates a LibTorch without CUDA from PyTorch's packages.
//!
//! The Python package `torch` is a build with CUDA, but its CPU library only needs the runtime and a profiling library
//! of that, which are separate small packages. `libtorch.so`, an empty library that links to the parts, is rebuilt
//! without the CUDA part.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::VERSION;
use crate::packages::{Package, download, unpack};

pub(crate) const PACKAGES: [Package; 3] = [
    Package {
        requirement: "torch==2.13.0",
        file: "torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        sha256: "60fcdcb2f3876e21146cb4524ef06397d727ca9ad5f020818547e25075fe3cb7",
        parts: &[
            ("torch/include/", "include"),
            ("torch/lib/libtorch_cpu.so", "lib"),
            ("torch/lib/libc10.so", "lib"),
            ("torch/lib/libgomp.so.1", "lib"),
        ],
    },
    Package {
        requirement: "nvidia-cuda-runtime==13.0.96",
        file: "nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
        sha256: "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
        parts: &[("nvidia/cu13/lib/libcudart.so.13", "lib")],
    },
    Package {
        requirement: "nvidia-cuda-cupti==13.0.85",
        file: "nvidia_cuda_cupti-13.0.85-py3-none-manylinux_2_25_x86_64.whl",
        sha256: "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8",
        parts: &[("nvidia/cu13/lib/libcupti.so.13", "lib")],
    },
];

/// Creates it atomically in `folder`, which must not exist. Packages from an earlier attempt are reused.
///
/// # Errors
/// On machines for which there are no such packages, without pip or a C compiler, without a network, or if a hash is
/// wrong.
pub(crate) fn fetch(folder: &Path) -> Result<(), String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")) {
        return Err(format!(
            "LibTorch can be fetched for Linux on x86-64 alone\n  fix: let LIBTORCH name the folder of a LibTorch {VERSION}"
        ));
    }
    let beside = |suffix: &str| PathBuf::from(format!("{}.{suffix}", folder.display()));
    let (downloads, part) = (beside("downloads"), beside("part"));
    if part.exists() {
        fs::remove_dir_all(&part).map_err(|e| format!("cannot delete {}: {e}", part.display()))?;
    }
    for new in [&downloads, &part.join("lib")] {
        fs::create_dir_all(new).map_err(|e| format!("cannot create {}: {e}", new.display()))?;
    }
    for package in &PACKAGES {
        let file = download(
            package,
            &downloads,
            &format!("let LIBTORCH name the folder of a LibTorch {VERSION}"),
        )?;
        unpack(package, &file, &part).map_err(|e| format!("cannot unpack {}: {e}", file.display()))?;
    }
    link(&part.join("lib"))?;
    let finish = || {
        // torch-sys reads the version from this file.
        fs::write(part.join("build-version"), VERSION)?;
        fs::rename(&part, folder)?;
        fs::remove_dir_all(&downloads)
    };
    finish().map_err(|e| format!("cannot finish {}: {e}", folder.display()))
}

/// The empty library that links to all parts.
fn link(lib: &Path) -> Result<(), String> {
    let line = "-shared -o libtorch.so -Wl,-soname,libtorch.so -Wl,--no-as-needed -x c /dev/null -L. -l:libtorch_cpu.so -l:libc10.so \
                -Wl,-rpath,$ORIGIN -Wl,--allow-shlib-undefined";
    let output = Command::new("cc")
        .args(line.split_whitespace())
        .current_dir(lib)
        .output();
    let fix = "\n  fix: install a C++ compiler, which the crate tch needs too (apt-get install g++)";
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("cc {line}\n{}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(format!("cc cannot be started: {error}{fix}")),
    }
}
