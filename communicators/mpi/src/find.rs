//! Finds the MPI library to load.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use polygrad_core::{Error, ErrorKind, Result};

use crate::ffi::Mpi;

/// The environment variable that names the library, if the loader does not find it, or finds another one.
pub(crate) const VARIABLE: &str = "POLYGRAD_MPI_LIBRARY";

const OPEN_MPI: &str = "libmpi.so.40";
const STANDARD: &str = "libmpi_abi.so.1";

/// The libraries to try, in order, by the environment.
fn candidates(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if let Some(path) = set(VARIABLE) {
        return vec![PathBuf::from(path)];
    }
    let relocated = set("OPAL_PREFIX").map(|prefix| Path::new(&prefix).join("lib").join(OPEN_MPI));
    let open_mpi = relocated.into_iter().chain([PathBuf::from(OPEN_MPI)]);
    let standard = PathBuf::from(STANDARD);
    // MPICH's mpiexec sets PMI_RANK, Open MPI's mpirun sets PMIX_RANK.
    match set("PMI_RANK").is_some() && set("PMIX_RANK").is_none() {
        true => [standard].into_iter().chain(open_mpi).collect(),
        false => open_mpi.chain([standard]).collect(),
    }
}

/// The number of processes that the launcher started, by its environment variables.
pub(crate) fn launched(variable: impl Fn(&str) -> Option<OsString>) -> Option<usize> {
    let number = |name| variable(name)?.to_str()?.parse().ok();
    ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"].into_iter().find_map(number)
}

/// Loads the first library that can be loaded.
///
/// # Errors
/// [`ErrorKind::BackendUnavailable`] when there is none; it lists what was tried, and why it cannot be loaded.
pub(crate) fn load() -> Result<&'static Mpi> {
    let mut tried = Vec::new();
    for path in candidates(|name| std::env::var_os(name)) {
        match Mpi::load(&path) {
            Ok(library) => return Ok(library),
            Err(reason) => tried.push(reason),
        }
    }
    let message = format!("no MPI can be loaded: {}", tried.join("; "));
    let hint = format!(
        "install Open MPI (apt-get install openmpi-bin), or let {VARIABLE} name the library of the MPI whose mpirun is used"
    );
    Err(Error::new(ErrorKind::BackendUnavailable, message).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(variables: &[(&str, &str)]) -> Vec<String> {
        let value = |name: &str| variables.iter().find(|(known, _)| *known == name);
        let found = candidates(|name| value(name).map(|(_, value)| value.into()));
        found.iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn the_launcher_says_which_library() {
        assert_eq!(tried(&[]), [OPEN_MPI, STANDARD]);
        assert_eq!(tried(&[("PMI_RANK", "0")]), [STANDARD, OPEN_MPI]);
        assert_eq!(tried(&[("PMI_RANK", "0"), ("PMIX_RANK", "0")]), [OPEN_MPI, STANDARD]);
        assert_eq!(tried(&[("OPAL_PREFIX", "/o")])[0], "/o/lib/libmpi.so.40");
        assert_eq!(tried(&[("OPAL_PREFIX", "/o"), (VARIABLE, "/m.so")]), ["/m.so"]);
    }

    #[test]
    fn the_launcher_says_how_many() {
        let says = |known: &'static str| move |name: &str| (name == known).then(|| "3".into());
        assert_eq!(launched(says("PMI_SIZE")), Some(3));
        assert_eq!(launched(says("OMPI_COMM_WORLD_SIZE")), Some(3));
        assert_eq!(launched(says("SIZE")), None);
    }
}
