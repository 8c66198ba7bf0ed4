//! `libraries`: finds the libraries that the drivers load, and replacements in the bundle for those that are missing.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library, and its replacements if the loader does not find it.
struct Library {
    file: &'static str,
    /// Files of the bundle that replace it, and the names of their compressed forms.
    carried: &'static [&'static str],
    /// A later version under another name, whose called functions are the same.
    later: Option<&'static str>,
}

const LIBRARIES: [Library; 5] = [
    Library {
        file: "libcuda.so.1",
        carried: &[],
        later: None,
    },
    Library {
        file: "libcublas.so.12",
        carried: &[],
        later: Some("libcublas.so.13"),
    },
    Library {
        file: "libnvrtc.so.12",
        carried: &["libnvrtc.so.12", "libnvrtc-builtins.so.12.8"],
        later: Some("libnvrtc.so.13"),
    },
    Library {
        file: "libvulkan.so.1",
        carried: &["libvulkan.so.1"],
        later: None,
    },
    // An installation without headers only has the second name.
    Library {
        file: "libnccl.so",
        carried: &[],
        later: Some("libnccl.so.2"),
    },
];

/// Locations of NVIDIA's libraries that the loader may not know; `*` matches any name.
const FOLDERS: [&str; 7] = [
    "/usr/local/cuda*/lib64",
    "/usr/local/cuda*/targets/x86_64-linux/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/opt/conda/lib",
    "/usr/lib/wsl/lib",
];
/// The same, inside Python's package folders.
const PACKAGES: [&str; 3] = ["nvidia/*/lib", "nvidia/lib", "torch/lib"];

/// Writes the replacements to `work/lib`, and prints shell lines with the variables to export.
///
/// # Errors
/// If that folder cannot be written.
pub(crate) fn command(bundle: &Path, work: &Path) -> Result<(), String> {
    let (known, mut folders) = (loader(), Vec::new());
    for pattern in FOLDERS {
        folders.extend(expand(Path::new("/"), &pattern[1..]));
    }
    for place in python() {
        folders.extend(PACKAGES.iter().flat_map(|pattern| expand(&place, pattern)));
    }
    let (mut path, mut notes) = (Vec::new(), Vec::new());
    for library in &LIBRARIES {
        let note = provide(library, &known, &folders, bundle, work, &mut path)?;
        notes.push(format!("{}: {note}", library.file));
    }
    let before = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let path: Vec<String> = path.iter().map(|folder| folder.display().to_string()).collect();
    let after = [path.join(":"), before.clone()];
    let after: Vec<&str> = after
        .iter()
        .map(String::as_str)
        .filter(|part| !part.is_empty())
        .collect();
    println!("export POLYGRAD_LIBRARIES={}", quoted(&notes.join("; ")));
    println!("export POLYGRAD_OUTER_LIBRARY_PATH={}", quoted(&before));
    println!("export LD_LIBRARY_PATH={}", quoted(&after.join(":")));
    Ok(())
}

/// Describes where a library is from, and adds the folder that the loader needs for it to `path`.
fn provide(
    library: &Library,
    known: &str,
    folders: &[PathBuf],
    bundle: &Path,
    work: &Path,
    path: &mut Vec<PathBuf>,
) -> Result<String, String> {
    let mut with = |folder: PathBuf| {
        if !path.contains(&folder) {
            path.push(folder);
        }
    };
    let line = known
        .lines()
        .find(|line| line.split_whitespace().next() == Some(library.file));
    if let Some(line) = line {
        return Ok(line.rsplit("=> ").next().unwrap_or(line).trim().to_owned());
    }
    if let Some(folder) = folders.iter().find(|folder| folder.join(library.file).exists()) {
        with(folder.clone());
        return Ok(folder.join(library.file).display().to_string());
    }
    let own = work.join("lib");
    let failed = |error: io::Error| format!("cannot write to {}: {error}", own.display());
    if let Some((name, later)) = library
        .later
        .and_then(|later| Some((later, find(later, known, folders)?)))
    {
        fs::create_dir_all(&own).map_err(failed)?;
        let link = own.join(library.file);
        let _ = fs::remove_file(&link);
        #[cfg(unix)]
        std::os::unix::fs::symlink(&later, &link).map_err(failed)?;
        // Its dependencies are in the same folder.
        with(own);
        with(later.parent().unwrap_or(Path::new("/")).to_owned());
        return Ok(format!("{} in its place ({name})", later.display()));
    }
    if library.carried.is_empty() || !library.carried.iter().all(|file| packed(bundle, file).exists()) {
        return Ok("not found".to_owned());
    }
    fs::create_dir_all(&own).map_err(failed)?;
    for file in library.carried {
        let unpack = || -> io::Result<()> {
            let mut input = lzma_rust2::XzReader::new(File::open(packed(bundle, file))?, false);
            io::copy(&mut input, &mut File::create(own.join(file))?).map(drop)
        };
        unpack().map_err(|error| format!("cannot unpack {file} to {}: {error}", own.display()))?;
    }
    with(own);
    Ok("the bundle's".to_owned())
}

/// The path of a library, found by the loader or in one of the folders.
fn find(file: &str, known: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let line = known.lines().find(|line| line.split_whitespace().next() == Some(file));
    let line = line.and_then(|line| line.rsplit("=> ").next()).map(PathBuf::from);
    line.or_else(|| {
        folders
            .iter()
            .map(|folder| folder.join(file))
            .find(|path| path.exists())
    })
}

fn packed(bundle: &Path, file: &str) -> PathBuf {
    bundle.join("lib").join(format!("{file}.xz"))
}

/// The loader's list, one library per line.
fn loader() -> String {
    let programs = ["ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"];
    let list = programs
        .iter()
        .find_map(|program| Command::new(program).arg("-p").output().ok());
    list.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default()
}

/// Python's package folders.
fn python() -> Vec<PathBuf> {
    let program = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let ask = "import sys; print(*(path for path in sys.path if path), sep='\\n')";
    let output = Command::new(program).args(["-c", ask]).output();
    let text = output
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    text.lines().map(PathBuf::from).collect()
}

/// The folders that match a pattern below `root`.
fn expand(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![root.to_owned()];
    for part in pattern.split('/') {
        let Some((before, after)) = part.split_once('*') else {
            found = found
                .into_iter()
                .map(|folder| folder.join(part))
                .filter(|folder| folder.is_dir())
                .collect();
            continue;
        };
        let children = found
            .iter()
            .filter_map(|folder| folder.read_dir().ok())
            .flatten()
            .flatten();
        let fits = |name: &str| name.starts_with(before) && name.ends_with(after);
        found = children
            .filter(|child| child.file_name().to_str().is_some_and(fits))
            .map(|child| child.path())
            .filter(|path| path.is_dir())
            .collect();
        found.sort();
    }
    found
}

/// Quotes a text as one word of a shell line.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "library").unwrap();
    }

    #[test]
    fn what_the_machine_has_comes_before_what_the_bundle_has() {
        let folder = tempfile::tempdir().unwrap();
        let (bundle, work, packages) = (
            folder.path().join("bundle"),
            folder.path().join("work"),
            folder.path().join("site"),
        );
        let nvrtc = &LIBRARIES[2];
        let said = |known: &str, path: &mut Vec<PathBuf>| {
            let folders = expand(&packages, PACKAGES[0]);
            provide(nvrtc, known, &folders, &bundle, &work, path).unwrap()
        };
        let mut path = Vec::new();
        assert_eq!(said("", &mut path), "not found");
        for file in nvrtc.carried {
            touch(&packed(&bundle, file));
            let mut writer = lzma_rust2::XzWriter::new(
                File::create(packed(&bundle, file)).unwrap(),
                lzma_rust2::XzOptions::with_preset(1),
            )
            .unwrap();
            io::copy(&mut file.as_bytes(), &mut writer).unwrap();
            writer.finish().unwrap();
        }
        assert_eq!(said("", &mut path), "the bundle's");
        assert_eq!(path, [work.join("lib")]);
        assert_eq!(
            fs::read_to_string(work.join("lib/libnvrtc.so.12")).unwrap(),
            "libnvrtc.so.12"
        );
        touch(&packages.join("nvidia/cuda_nvrtc/lib/libnvrtc.so.12"));
        path.clear();
        assert!(said("", &mut path).ends_with("cuda_nvrtc/lib/libnvrtc.so.12"));
        assert_eq!(path, [packages.join("nvidia/cuda_nvrtc/lib")]);
        path.clear();
        let line = "\tlibnvrtc.so.12 (libc6,x86-64) => /usr/lib/libnvrtc.so.12";
        assert_eq!(said(line, &mut path), "/usr/lib/libnvrtc.so.12");
        assert!(path.is_empty());
    }

    #[test]
    fn a_later_edition_stands_in_under_the_name_that_is_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let later = folder.path().join("site/nvidia/cu13/lib/libcublas.so.13");
        touch(&later);
        let folders = expand(&folder.path().join("site"), PACKAGES[0]);
        let (mut path, work) = (Vec::new(), folder.path().join("work"));
        let said = provide(&LIBRARIES[1], "", &folders, folder.path(), &work, &mut path).unwrap();
        assert!(said.contains("libcublas.so.13 in its place"), "{said}");
        assert_eq!(fs::read_link(work.join("lib/libcublas.so.12")).unwrap(), later);
        assert_eq!(path, [work.join("lib"), later.parent().unwrap().to_owned()]);
    }

    #[test]
    fn words_of_a_shell_hold_anything() {
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
    }
}
