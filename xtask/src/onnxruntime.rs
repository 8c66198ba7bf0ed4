//! ONNX Runtime, which the engine `ort` of `polygrad-onnx` loads at run time.

use std::path::PathBuf;

use crate::cache;
use crate::packages::{self, Package};
use crate::torch;

const VERSION: &str = "1.32.0";

/// The variable in which the crate `ort` expects its path.
const VARIABLE: &str = "ORT_DYLIB_PATH";

const PACKAGE: Package = Package {
    requirement: "onnxruntime==1.32.0",
    file: "onnxruntime-1.32.0-cp311-cp311-manylinux_2_28_x86_64.whl",
    sha256: "5a34fc4dfeb5a7b4a74c95dcba1e773d722abda720b474edf1b0c419dc6d163d",
    parts: &[("onnxruntime/capi/libonnxruntime.so.1.32.0", "lib")],
};

/// `cargo xtask setup onnxruntime`: prints only the variables to export to standard output.
pub(crate) fn command() -> Result<(), String> {
    println!("export {VARIABLE}={}", torch::quoted(&find()?.display().to_string()));
    Ok(())
}

/// The environment variables for the tests. First fetches the library if it is not in the cache folder.
///
/// # Errors
/// If it cannot be fetched.
pub(crate) fn environment() -> Result<Vec<(String, String)>, String> {
    Ok(vec![(VARIABLE.to_owned(), find()?.display().to_string())])
}

/// The library: the one that the variable names, or the one in the cache folder.
fn find() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        return match path.is_file() {
            true => Ok(path),
            false => Err(format!(
                "{VARIABLE} names {}, which is no file\n  fix: let it name the library of an ONNX Runtime, or unset it",
                path.display()
            )),
        };
    }
    let folder = cache::folder()?.join(format!("onnxruntime-{VERSION}"));
    if !folder.exists() {
        let instead = format!("let {VARIABLE} name the library of an ONNX Runtime of version 1.22 or newer");
        packages::install(&PACKAGE, &folder, &instead)?;
    }
    Ok(folder.join("lib").join(format!("libonnxruntime.so.{VERSION}")))
}
