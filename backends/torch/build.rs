//! Compiles the shim between Rust and LibTorch's classes for process groups, if the feature `gloo` is enabled.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "gloo")]
    gloo::build();
}

#[cfg(feature = "gloo")]
mod gloo {
    use std::path::{Path, PathBuf};
    use std::{env, fs};

    /// Headers that LibTorch's headers include, but its packages leave out; src/gloo/gloo.h declares the needed parts.
    const MISSING: [&str; 5] = [
        "algorithm.h",
        "common/error.h",
        "context.h",
        "rendezvous/store.h",
        "transport/device.h",
    ];

    pub(super) fn build() {
        let folder = Path::new("src/gloo");
        for file in ["gloo.h", "shim.cpp"] {
            println!("cargo::rerun-if-changed={}", folder.join(file).display());
        }
        println!("cargo::rerun-if-env-changed=LIBTORCH_CXX11_ABI");
        let abi = env::var("LIBTORCH_CXX11_ABI").unwrap_or_else(|_| "1".to_owned());
        cc::Build::new()
            .cpp(true)
            .std("c++17")
            .warnings(false)
            .include(headers())
            .includes(libtorch())
            .define("USE_DISTRIBUTED", None)
            .define("USE_C10D_GLOO", None)
            .define("_GLIBCXX_USE_CXX11_ABI", abi.as_str())
            .file(folder.join("shim.cpp"))
            .compile("polygrad_gloo");
    }

    /// A folder with empty files for the missing headers.
    fn headers() -> PathBuf {
        let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("include");
        for name in MISSING {
            let file = folder.join("gloo").join(name);
            let made = fs::create_dir_all(file.parent().unwrap_or(&folder)).and_then(|()| fs::write(&file, ""));
            made.unwrap_or_else(|e| panic!("cannot write {}: {e}", file.display()));
        }
        folder
    }

    /// LibTorch's headers: beside the libraries that tch has found, or in the folder named by the variable.
    fn libtorch() -> [PathBuf; 2] {
        println!("cargo::rerun-if-env-changed=LIBTORCH_INCLUDE");
        let found = env::var_os("LIBTORCH_INCLUDE").map(PathBuf::from).or_else(|| {
            let libraries = PathBuf::from(env::var_os("DEP_TCH_LIBTORCH_LIB")?);
            libraries.parent().map(Path::to_owned)
        });
        let include = found.unwrap_or_default().join("include");
        let header = include.join("torch/csrc/distributed/c10d/ProcessGroupGloo.hpp");
        assert!(
            header.exists(),
            "{} is not there: the feature gloo needs LibTorch with its headers; `cargo xtask setup torch` fetches it",
            header.display()
        );
        let api = include.join("torch/csrc/api/include");
        [include, api]
    }
}
