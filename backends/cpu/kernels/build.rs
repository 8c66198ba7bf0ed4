//! Links a CBLAS library for the feature `blas`.
//!
//! `POLYGRAD_BLAS_LIB` names another library than `openblas`; `POLYGRAD_BLAS_DIR` names the folder that holds it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=POLYGRAD_BLAS_LIB");
    println!("cargo::rerun-if-env-changed=POLYGRAD_BLAS_DIR");
    if env::var_os("CARGO_FEATURE_BLAS").is_none() {
        return;
    }
    let name = env::var("POLYGRAD_BLAS_LIB").unwrap_or_else(|_| "openblas".to_owned());
    let folder = env::var_os("POLYGRAD_BLAS_DIR").map(PathBuf::from);
    let found = match &folder {
        Some(folder) => file_names(&name).iter().any(|file| folder.join(file).exists()),
        None => linker_finds(&name),
    };
    if !found {
        let place = folder.map_or("where the linker looks".to_owned(), |folder| {
            format!("in {}", folder.display())
        });
        println!(
            "cargo::error=feature `blas`: there is no library {name} {place}. Install it (Debian: libopenblas-dev), or set \
             POLYGRAD_BLAS_DIR to the folder that holds it and POLYGRAD_BLAS_LIB to its name (without lib and .so)."
        );
        return;
    }
    if let Some(folder) = folder {
        println!("cargo::rustc-link-search=native={}", folder.display());
    }
    println!("cargo::rustc-link-lib={name}");
}

fn file_names(name: &str) -> [String; 4] {
    [
        format!("lib{name}.so"),
        format!("lib{name}.dylib"),
        format!("lib{name}.a"),
        format!("{name}.lib"),
    ]
}

/// Asks the C compiler, which links; without one that can be asked, the linker has the last word.
fn linker_finds(name: &str) -> bool {
    let mut asked = false;
    for file in file_names(name) {
        let Ok(output) = Command::new("cc").arg(format!("-print-file-name={file}")).output() else {
            continue;
        };
        asked = true;
        let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        // A file that is not found is printed as it was asked for.
        if path != file && Path::new(&path).exists() {
            return true;
        }
    }
    !asked
}
