//! Python packages as a source of libraries: fetched by pip, checked by their hashes, partly unpacked.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hmac_sha256::Hash;
use indicatif::{ProgressBar, ProgressStyle};

use crate::{cache, cargo};

/// A package by its name in pip, with the hash of its file, and the parts to unpack.
pub(crate) struct Package {
    pub(crate) requirement: &'static str,
    pub(crate) file: &'static str,
    pub(crate) sha256: &'static str,
    /// Paths or folders in it, and their destination folders.
    pub(crate) parts: &'static [(&'static str, &'static str)],
}

/// Creates `folder` atomically with parts of a package.
///
/// # Errors
/// On machines for which there is no such package; errors of [`download`].
pub(crate) fn install(package: &Package, folder: &Path, instead: &str) -> Result<(), String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")) {
        return Err(format!(
            "{} can be fetched for Linux on x86-64 alone\n  fix: {instead}",
            package.requirement
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
    let file = download(package, &downloads, instead)?;
    unpack(package, &file, &part).map_err(|e| format!("cannot unpack {}: {e}", file.display()))?;
    let finish = || {
        fs::rename(&part, folder)?;
        fs::remove_dir_all(&downloads)
    };
    finish().map_err(|e| format!("cannot finish {}: {e}", folder.display()))
}

/// The package's file, from an earlier attempt or from pip, with a verified hash.
///
/// # Errors
/// Without pip or a network (the error says how to do without them), or if the hash is wrong.
pub(crate) fn download(package: &Package, downloads: &Path, instead: &str) -> Result<PathBuf, String> {
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
    // Standard output is only for the variables to export.
    .stdout(io::stderr());
    if resumes() {
        pip.args(["--resume-retries", "10"]);
    }
    let fix = format!("\n  fix: it needs python3 with pip (apt-get install python3-pip) and a network; or {instead}");
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

/// The folder of this name in the cache with all packages of a list. If it does not exist, it is first installed,
/// atomically.
///
/// # Errors
/// Without pip or a network, or if the files of the list are not for this Python.
pub(crate) fn listed(list: &str, name: &str) -> Result<PathBuf, String> {
    let folder = cache::folder()?.join(name);
    if !folder.exists() {
        let part = PathBuf::from(format!("{}.part", folder.display()));
        if part.exists() {
            fs::remove_dir_all(&part).map_err(|e| format!("cannot delete {}: {e}", part.display()))?;
        }
        eprintln!("fetching {name} with pip");
        let fix = format!(
            "what {list} names is fetched for CPython 3.11 on Linux on x86-64; it needs python3 with pip and a network"
        );
        install_list(list, &part, &fix)?;
        fs::rename(&part, &folder).map_err(|e| format!("cannot finish {}: {e}", folder.display()))?;
    }
    Ok(folder)
}

/// Installs the packages of a list in the checkout, with hashes, to a folder.
///
/// # Errors
/// If pip cannot be started, or fails.
pub(crate) fn install_list(list: &str, folder: &Path, fix: &str) -> Result<(), String> {
    let options = "-m pip install --quiet --no-deps --only-binary=:all: --require-hashes --root-user-action=ignore";
    let status = Command::new("python3")
        .args(options.split(' '))
        .arg("-r")
        .arg(cargo::checkout().join(list))
        .arg("--target")
        .arg(folder)
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("pip could not install {list}: {status}\n  fix: {fix}")),
        Err(error) => Err(format!("python3 cannot be started: {error}\n  fix: {fix}")),
    }
}

/// Whether this pip can resume a download after its connection broke.
fn resumes() -> bool {
    let help = Command::new("python3")
        .args(["-m", "pip", "download", "--help"])
        .stderr(Stdio::null())
        .output();
    help.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("--resume-retries"))
}

fn hash(file: &Path) -> Result<String, String> {
    let read = || -> io::Result<String> {
        let (mut input, mut hasher, mut buffer) = (File::open(file)?, Hash::new(), vec![0; 1 << 20]);
        loop {
            match input.read(&mut buffer)? {
                0 => return Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
                n => hasher.update(&buffer[..n]),
            }
        }
    };
    read().map_err(|e| format!("cannot read {}: {e}", file.display()))
}

/// Unpacks the wanted parts of a package, which is a zip archive with a verified hash.
pub(crate) fn unpack(package: &Package, file: &Path, to: &Path) -> Result<(), Box<dyn std::error::Error>> {
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
        let mut entry = archive.by_name(&name)?;
        io::copy(&mut entry, &mut File::create(&path)?)?;
        #[cfg(unix)]
        if let Some(mode) = entry.unix_mode().filter(|mode| mode & 0o111 != 0) {
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode & 0o777))?;
        }
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
        let package = Package {
            requirement: "torch==0",
            file: "package.whl",
            sha256: "",
            parts: &[("lib/libc10.so", "lib")],
        };
        let error = unpack(&package, &file, &folder).unwrap_err().to_string();
        assert!(error.contains("lacks"), "{error}");
        fs::write(&file, "no archive").unwrap();
        assert!(unpack(&package, &file, &folder).is_err());
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
