//! Finds the user's code in a backtrace.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;

/// A stack frame.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// The function, such as `program::Net::forward`.
    pub function: String,
    /// File, line and column, such as `src/main.rs:23:9`; `None` in a program without debug information.
    pub place: Option<String>,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place} ({})", self.function),
            None => f.write_str(&self.function),
        }
    }
}

/// Crates whose frames are not the user's: those of Rust, and those of this library.
const OURS: &[&str] = &[
    "std",
    "core",
    "alloc",
    "test",
    "polygrad",
    "polygrad_burn",
    "polygrad_candle",
    "polygrad_cli",
    "polygrad_compute",
    "polygrad_console",
    "polygrad_core",
    "polygrad_cpu",
    "polygrad_cpu_kernels",
    "polygrad_cuda",
    "polygrad_data",
    "polygrad_derive",
    "polygrad_formats",
    "polygrad_lab",
    "polygrad_luminal",
    "polygrad_mpi",
    "polygrad_nn",
    "polygrad_null",
    "polygrad_onnx",
    "polygrad_plot",
    "polygrad_reference",
    "polygrad_rl",
    "polygrad_serve",
    "polygrad_tensor",
    "polygrad_testing",
    "polygrad_text",
    "polygrad_threads",
    "polygrad_torch",
    "polygrad_train",
    "polygrad_wgpu",
];

/// The frames of the user's code, the innermost first.
pub(crate) fn of_users(backtrace: &Backtrace) -> Vec<Frame> {
    match backtrace.status() {
        BacktraceStatus::Captured => parse(&backtrace.to_string()),
        _ => Vec::new(),
    }
}

/// Parses the standard library's format: a numbered line for each function, followed by a line with `at` and its place
/// if that is known. If a program only has line tables, names lack their crates; then the place decides.
fn parse(text: &str) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    // The function whose place comes next, and whether its name says that it is the user's.
    let mut current: Option<(&str, Option<bool>)> = None;
    for line in text.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("at ") {
            match current.take() {
                Some((_, Some(true))) => {
                    if let Some(frame) = frames.last_mut() {
                        frame.place = Some(place.strip_prefix("./").unwrap_or(place).to_owned());
                    }
                }
                Some((function, None)) if !is_library(place) => frames.push(Frame {
                    function: function.to_owned(),
                    place: Some(place.strip_prefix("./").unwrap_or(place).to_owned()),
                }),
                _ => {}
            }
        } else if let Some((number, function)) = line.split_once(": ")
            && number.bytes().all(|c| c.is_ascii_digit())
        {
            let is_users = crate_of(function).map(|name| !OURS.contains(&name));
            current = Some((function, is_users));
            if is_users == Some(true) {
                frames.push(Frame {
                    function: function.to_owned(),
                    place: None,
                });
            }
        }
    }
    frames
}

/// Whether a file is Rust's, a registry's, or one of this library's sources.
fn is_library(place: &str) -> bool {
    let place = match place.strip_prefix("./") {
        Some(rest) => std::env::current_dir().unwrap_or_default().join(rest),
        None => place.into(),
    };
    let text = place.to_string_lossy();
    let root = env!("CARGO_MANIFEST_DIR").strip_suffix("/crates/core");
    let is_source = root.is_some_and(|root| text.strip_prefix(root).is_some_and(|rest| rest.contains("/src/")));
    is_source || text.starts_with("/rustc/") || text.contains("/registry/src/")
}

/// The crate of `name::f`, `<name::Type as Trait>::f` and `name[0123]::f`; `None` for a C symbol.
fn crate_of(function: &str) -> Option<&str> {
    let mut path = function;
    for lead in ["<", "&", "*", "(", "[", "mut ", "const ", "dyn ", "<"] {
        path = path.strip_prefix(lead).unwrap_or(path);
    }
    let (name, _) = path.split_once("::")?;
    let name = name.split('[').next()?;
    let is_name = !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
    is_name.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_the_library_are_left_out() {
        let text = "   0: polygrad_core::error::Error::new
             at /home/u/polygrad/crates/core/src/error.rs:120:9
   1: core::result::Result<T,E>::map_err
             at /rustc/abc/library/core/src/result.rs:960:27
   2: <polygrad_nn::layers::linear::Linear<B> as polygrad_nn::Forward<B>>::forward
   3: <polygrad_try::Net as polygrad_nn::module::Forward>::forward
             at ./src/main.rs:23:9
   4: program[7f3a]::train::{{closure}}
   5: <&program::Net as core::fmt::Debug>::fmt
   6: std::rt::lang_start
   7: main
   8: __libc_start_main
";
        let frames: Vec<String> = parse(text).iter().map(Frame::to_string).collect();
        assert_eq!(
            frames,
            [
                "src/main.rs:23:9 (<polygrad_try::Net as polygrad_nn::module::Forward>::forward)",
                "program[7f3a]::train::{{closure}}",
                "<&program::Net as core::fmt::Debug>::fmt",
            ]
        );
    }

    #[test]
    fn names_without_crates_go_by_their_files() {
        let library = concat!(env!("CARGO_MANIFEST_DIR"), "/src/error.rs:120:9");
        let text = format!(
            "   0: new
             at {library}
   1: forward
             at ./tests/all/net.rs:33:17
   2: call_once<program::train::{{closure_env#0}}, ()>
             at /rustc/abc/library/core/src/ops/function.rs:250:5
   3: main
"
        );
        let frames: Vec<String> = parse(&text).iter().map(Frame::to_string).collect();
        assert_eq!(frames, ["tests/all/net.rs:33:17 (forward)"]);
    }

    /// Fails when a new crate of the library is not listed, which would be taken for the user's.
    #[test]
    fn every_crate_of_the_library_is_known() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let manifest = std::fs::read_to_string(format!("{root}/Cargo.toml")).unwrap();
        let folders = ["crates", "backends", "communicators"];
        let mut names = Vec::new();
        for folder in folders {
            for entry in std::fs::read_dir(format!("{root}/{folder}")).unwrap() {
                let path = entry.unwrap().path().join("Cargo.toml");
                let Ok(text) = std::fs::read_to_string(&path) else {
                    continue;
                };
                let name = text.lines().find_map(|line| line.strip_prefix("name = \""));
                names.extend(
                    name.and_then(|name| name.strip_suffix('"'))
                        .map(|name| name.replace('-', "_")),
                );
            }
        }
        assert!(manifest.contains("[workspace]") && names.len() > 15, "{names:?}");
        let unknown: Vec<_> = names.iter().filter(|name| !OURS.contains(&name.as_str())).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
