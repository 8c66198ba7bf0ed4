//! A compiler for another target: rustup's, if the target was added, or Debian's, which comes with the library's
//! source.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::output;
use crate::{cache, debian};

/// Debian's packages of one version of the compiler, of its library as source, and of the libraries it links to. Only
/// one name includes a version; it is determined from the package that depends on it.
const PACKAGES: [&str; 4] = ["rustc-web", "rust-web-src", "libstd-rust-web-dev", "libllvm22"];

/// How cargo is told to use it.
pub(super) struct Toolchain {
    pub(super) target: &'static str,
    pub(super) arguments: Vec<&'static str>,
    pub(super) environment: Vec<(String, String)>,
}

impl Toolchain {
    /// # Errors
    /// If rustup does not have the target, and Debian's packages are not available.
    pub(super) fn find(target: &'static str) -> Result<Self, String> {
        let libraries = rustc(&["--print", "target-libdir", "--target", target])?;
        let has_core = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with("libcore-");
        if fs::read_dir(libraries).is_ok_and(|entries| entries.flatten().any(has_core)) {
            return Ok(Self {
                target,
                arguments: Vec::new(),
                environment: Vec::new(),
            });
        }
        let root = debian(target)?;
        let libraries = root.join("usr/lib/x86_64-linux-gnu");
        let path = match std::env::var("LD_LIBRARY_PATH") {
            Ok(rest) => format!("{}:{rest}", libraries.display()),
            Err(_) => libraries.display().to_string(),
        };
        let linker = Path::new(&rustc(&["--print", "target-libdir"])?).join("../bin/rust-lld");
        let variables = [
            ("RUSTC", root.join("usr/bin/rustc").display().to_string()),
            // The library is built from source, which stable compilers otherwise do not allow.
            ("RUSTC_BOOTSTRAP", "1".to_owned()),
            ("LD_LIBRARY_PATH", path),
            (
                "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER",
                linker.display().to_string(),
            ),
        ];
        Ok(Self {
            target,
            arguments: vec!["-Zbuild-std=std,panic_abort"],
            environment: variables.map(|(name, value)| (name.to_owned(), value)).into(),
        })
    }
}

/// The output of the compiler in use.
fn rustc(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("rustc")
        .args(arguments)
        .output()
        .map_err(|error| format!("rustc could not be started: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Debian's compiler in the cache folder, fetched if it is not there. Nothing is installed.
fn debian(target: &str) -> Result<PathBuf, String> {
    let folder = cache::folder()?.join("rust-web");
    if folder.exists() {
        return Ok(folder);
    }
    let fix = format!("rustup target add {target}");
    println!("fetching Debian's Rust compiler for other targets (140 MB; 760 MB unpacked)");
    let library = output(Command::new("apt-cache").args(["depends", "libstd-rust-web-dev"]))
        .ok()
        .and_then(|text| {
            text.split_whitespace()
                .find(|word| word.starts_with("libstd-rust-web-1"))
                .map(str::to_owned)
        })
        .ok_or_else(|| format!("this machine has no Debian package libstd-rust-web-dev\n  fix: {fix}"))?;
    debian::unpack(&[&PACKAGES[..], &[&library]].concat(), &folder, &fix)?;
    Ok(folder)
}
