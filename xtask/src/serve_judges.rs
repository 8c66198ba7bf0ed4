//! Judges of an inference server: clients of its protocols by others, other servers, a load generator, and a reader of
//! metrics.

use std::fs;
use std::path::{Path, PathBuf};

use crate::packages::listed;
use crate::torch::quoted;
use crate::{bench, cache, debian};

/// To be renamed when the contents of the folders change.
const JUDGES: &str = "serve-judges-2";
const PEERS: &str = "serve-peers-1";
const MODELS: &str = "serve-models-1";

/// The program that runs Triton's models in Python 3.11, in the folder of the peers.
const STUB: &str = "pytriton/tritonserver/python_backend_stubs/3.11/triton_python_backend_stub";
const STUB_FOLDER: &str = "pytriton/tritonserver/backends/python";

/// `cargo xtask setup judges`: prints only the variables to export to standard output.
pub(crate) fn command() -> Result<(), String> {
    let (judges, peers) = (listed("scripts/serve/judges.txt", JUDGES)?, peers()?);
    let found = [
        ("PYTHONPATH", judges),
        ("POLYGRAD_SERVE_PEERS", peers),
        ("POLYGRAD_SERVE_MODELS", listed("scripts/serve/real.txt", MODELS)?),
        ("POLYGRAD_SERVE_LOAD", bench::built("serve", &[])?),
        ("PROMTOOL", promtool()?),
    ];
    for (variable, path) in found {
        println!("export {variable}={}", quoted(&path.display().to_string()));
    }
    Ok(())
}

/// MLServer, and Triton with the program that starts its models at the expected path.
fn peers() -> Result<PathBuf, String> {
    let folder = listed("scripts/serve/peers.txt", PEERS)?;
    let (from, to) = (
        folder.join(STUB),
        folder.join(STUB_FOLDER).join("triton_python_backend_stub"),
    );
    if !to.exists() {
        // So that no other run finds it half-copied.
        let part = to.with_extension("part");
        let copy = || {
            fs::copy(&from, &part)?;
            #[cfg(unix)]
            fs::set_permissions(&part, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
            fs::rename(&part, &to)
        };
        copy().map_err(|e: std::io::Error| format!("cannot copy {} to {}: {e}", from.display(), to.display()))?;
    }
    Ok(folder)
}

/// Prometheus's checker of metrics: the machine's, or Debian's.
fn promtool() -> Result<PathBuf, String> {
    let installed = Path::new("/usr/bin/promtool");
    if installed.exists() {
        return Ok(installed.to_owned());
    }
    let folder = cache::folder()?.join("promtool");
    if !folder.exists() {
        eprintln!("fetching Debian's Prometheus");
        debian::unpack(&["prometheus"], &folder, "apt-get install prometheus")?;
    }
    Ok(folder.join("usr/bin/promtool"))
}
