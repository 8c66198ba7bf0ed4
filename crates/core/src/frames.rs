//! Where in the user's program something happened, by a backtrace.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;

/// A call that was under way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// The function, such as `program::Net::forward`.
    pub function: String,
    /// File, line and column, such as `src/main.rs:23:9`; none in a program without debug information.
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
    "polygrad_core",
    "polygrad_cpu",
    "polygrad_cuda",
    "polygrad_data",
    "polygrad_derive",
    "polygrad_formats",
    "polygrad_luminal",
    "polygrad_mpi",
    "polygrad_nn",
    "polygrad_null",
    "polygrad_onnx",
    "polygrad_reference",
    "polygrad_rl",
    "polygrad_serve",
    "polygrad_tensor",
    "polygrad_text",
    "polygrad_torch",
    "polygrad_train",
    "polygrad_wgpu",
];

/// The frames of user's code, the innermost first.
pub(crate) fn of_users(backtrace: &Backtrace) -> Vec<Frame> {
    match backtrace.status() {
        BacktraceStatus::Captured => parse(&backtrace.to_string()),
        _ => Vec::new(),
    }
}

/// What the standard library prints: a numbered line for each function, and below it `at` and its place, where that is known.
fn parse(text: &str) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    let mut is_users = false;
    for line in text.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("at ") {
            if let Some(frame) = frames.last_mut().filter(|frame| is_users && frame.place.is_none()) {
                frame.place = Some(place.strip_prefix("./").unwrap_or(place).to_owned());
            }
        } else if let Some((number, function)) = line.split_once(": ")
            && number.bytes().all(|c| c.is_ascii_digit())
        {
            is_users = crate_of(function).is_some_and(|name| !OURS.contains(&name));
            if is_users {
                frames.push(Frame {
                    function: function.to_owned(),
                    place: None,
                });
            }
        }
    }
    frames
}

/// The crate of `name::f`, `<name::Type as Trait>::f` and `name[0123]::f`; none for a symbol of C.
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

    /// So that a new crate of the library is not taken for the user's.
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
