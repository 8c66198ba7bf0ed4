//! `cargo xtask gpu-bundle`: a folder that tests Polygrad on a machine with a graphics card but without a toolchain.

mod chroots;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{cache, cargo, nvrtc};

/// The largest size of the folder, in bytes.
const LARGEST: u64 = 60_000_000;

/// Files of the checkout, and their destinations.
const FILES: [(&str, &str); 11] = [
    ("benches/gpu/bundle/run.sh", "run.sh"),
    ("benches/gpu/bundle/README.md", "README.md"),
    ("benches/gpu/bundle/peers/torch", "peers/torch"),
    ("benches/gpu/bundle/peers/torch-tf32", "peers/torch-tf32"),
    ("benches/gpu/bundle/peers/torch-compile", "peers/torch-compile"),
    ("benches/gpu/bundle/peers/torch-graphs", "peers/torch-graphs"),
    ("benches/gpu/bundle/peers/jax", "peers/jax"),
    ("benches/peers/peer_torch.py", "peers/python/peer_torch.py"),
    ("benches/peers/peer_jax.py", "peers/python/peer_jax.py"),
    ("benches/peers/protocol.py", "peers/python/protocol.py"),
    ("LICENSE-APACHE", "LICENSE-APACHE"),
];

/// The folders in which Debian and others install the Vulkan loader.
const LOADERS: [&str; 3] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];

/// Creates the folder `target/gpu-bundle`. With `--try`, also runs it in chroots of Debian and Ubuntu.
///
/// # Errors
/// If something cannot be built, fetched or written, the folder is too large, or it does not run.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let tried = match arguments {
        [] => false,
        ["--try"] => true,
        _ => return Err("usage: cargo xtask gpu-bundle [--try]".to_owned()),
    };
    let bundle = make()?;
    let bytes = size(&bundle).map_err(|error| format!("cannot read {}: {error}", bundle.display()))?;
    println!("{}: {:.1} MB", bundle.display(), bytes as f64 * 1e-6);
    if bytes > LARGEST {
        return Err(format!(
            "{:.1} MB are too much: it may be {} MB",
            bytes as f64 * 1e-6,
            LARGEST / 1_000_000
        ));
    }
    match tried {
        true => chroots::run(&bundle),
        false => Ok(()),
    }
}

fn make() -> Result<PathBuf, String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")) {
        return Err("the bundle is for Linux on x86-64, and is made there".to_owned());
    }
    let stripped = [("CARGO_PROFILE_RELEASE_STRIP".to_owned(), "symbols".to_owned())];
    let line = "build --release -p polygrad-gpu-report --features cuda,wgpu";
    let program = cargo::program(line, "polygrad-gpu", &stripped)?;
    let checkout = cargo::checkout();
    let bundle = checkout.join("target/gpu-bundle");
    let _ = fs::remove_dir_all(&bundle);
    // Compressed to a third of its size; every system has gzip.
    pack(&program, &bundle.join("bin/polygrad-gpu.gz"), gzip)?;
    for (from, to) in FILES {
        put(&checkout.join(from), &bundle.join(to))?;
    }
    let data = checkout.join("data/fashion-mnist");
    let entries = fs::read_dir(&data).map_err(|error| format!("cannot read {}: {error}", data.display()))?;
    for entry in entries.flatten() {
        put(
            &entry.path(),
            &bundle.join("data/fashion-mnist").join(entry.file_name()),
        )?;
    }
    for packed in nvrtc_packed()? {
        put(
            &packed,
            &bundle.join("lib").join(packed.file_name().unwrap_or_default()),
        )?;
    }
    let loader = LOADERS
        .iter()
        .map(|folder| Path::new(folder).join("libvulkan.so.1"))
        .find(|path| path.exists());
    let loader = loader.ok_or("there is no Vulkan loader to put in: apt-get install libvulkan1")?;
    pack(&loader, &bundle.join("lib/libvulkan.so.1.xz"), xz)?;
    let commit = commit(&checkout)?;
    fs::write(bundle.join("commit"), commit)
        .map_err(|error| format!("cannot write to {}: {error}", bundle.display()))?;
    Ok(bundle)
}

/// NVIDIA's compiler, compressed once for all bundles.
fn nvrtc_packed() -> Result<Vec<PathBuf>, String> {
    let (libraries, packed) = (nvrtc::find()?, cache::folder()?.join("packed"));
    let files = nvrtc::FILES.map(|file| (libraries.join(file), packed.join(format!("{file}.xz"))));
    for (from, to) in &files {
        if !to.exists() {
            println!("compressing {}, once", from.display());
            pack(from, to, xz)?;
        }
    }
    Ok(files.map(|(_, to)| to).into())
}

/// A copy, with the permissions.
fn put(from: &Path, to: &Path) -> Result<(), String> {
    let copy = || -> io::Result<()> {
        fs::create_dir_all(to.parent().unwrap_or(to))?;
        fs::copy(from, to).map(drop)
    };
    copy().map_err(|error| format!("cannot copy {} to {}: {error}", from.display(), to.display()))
}

/// Compresses a file atomically.
fn pack(from: &Path, to: &Path, how: fn(File, File) -> io::Result<File>) -> Result<(), String> {
    let part = to.with_extension("part");
    let write = || -> io::Result<()> {
        fs::create_dir_all(to.parent().unwrap_or(to))?;
        how(File::open(from)?, File::create(&part)?)?.sync_all()?;
        fs::rename(&part, to)
    };
    write().map_err(|error| format!("cannot compress {} to {}: {error}", from.display(), to.display()))
}

fn xz(mut input: File, output: File) -> io::Result<File> {
    let mut writer = lzma_rust2::XzWriter::new(output, lzma_rust2::XzOptions::with_preset(6))?;
    io::copy(&mut input, &mut writer)?;
    writer.finish()
}

fn gzip(mut input: File, output: File) -> io::Result<File> {
    let mut writer = flate2::write::GzEncoder::new(output, flate2::Compression::best());
    io::copy(&mut input, &mut writer)?;
    writer.finish()
}

/// The commit, and whether the checkout differs from it.
fn commit(checkout: &Path) -> Result<String, String> {
    let output = Command::new("git")
        .current_dir(checkout)
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .output();
    let output = output.map_err(|error| format!("git cannot be started: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn size(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let data = entry.metadata()?;
        bytes += if data.is_dir() {
            size(&entry.path())?
        } else {
            data.len()
        };
    }
    Ok(bytes)
}
