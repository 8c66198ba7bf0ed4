//! Features that this build lacks. If cargo runs the command, it is rerun in a build that has the feature; otherwise
//! the error says how to get one.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;

use crate::failure::Failure;

/// Commands that need a feature.
const COMMANDS: [(&str, &str); 16] = [
    ("run", "onnx"),
    ("show", "onnx"),
    ("export", "onnx"),
    ("quantize", "onnx"),
    ("play", "rl"),
    ("list", "rl"),
    ("sweep", "sweep"),
    ("convert", "formats"),
    ("finetune", "text"),
    ("merge", "text"),
    ("serve", "serve"),
    ("check", "lab"),
    ("bench", "lab"),
    ("profile", "lab"),
    ("plan", "lab"),
    ("returns", "lab"),
];

macro_rules! features {
    ($($name:literal)*) => {
        &[$(($name, cfg!(feature = $name))),*]
    };
}

/// This crate's features, and whether this build has them.
const FEATURES: &[(&str, bool)] = features!(
    "blas" "burn" "burn-wgpu" "candle" "candle-cuda" "compute" "cpu" "cuda" "formats" "gloo" "jpeg" "lab" "luminal" "mpi"
    "nccl" "onnx" "ort" "otel" "rl" "rten" "serve" "sweep" "text" "tls" "torch" "tui" "wgpu"
);

/// Whether this build lacks a feature.
pub(crate) fn lacks(feature: &str) -> bool {
    FEATURES.contains(&(feature, false))
}

/// The command of the command line `words` and the feature that it needs, if this build lacks the feature.
pub(crate) fn needed(words: &[OsString]) -> Option<(&'static str, &'static str)> {
    let mut words = words.iter().filter(|word| *word != "help");
    let command = words.next()?;
    let mut absent = COMMANDS.into_iter().filter(|(_, feature)| lacks(feature));
    absent.find(|(name, _)| command == OsStr::new(name))
}

/// The help on commands that this build lacks.
pub(crate) fn help() -> String {
    let mut text = String::new();
    for (i, (name, feature)) in COMMANDS.iter().enumerate() {
        if lacks(feature) {
            let is_first = i == 0 || COMMANDS[i - 1].1 != *feature;
            let before = match is_first {
                true => format!("{}  --features {feature:<8}", if text.is_empty() { "" } else { "\n" }),
                false => ",".to_owned(),
            };
            let _ = write!(text, "{before} {name}");
        }
    }
    match text.is_empty() {
        true => text,
        false => {
            format!(
                "Commands that need a feature, for example `cargo run --release --features onnx -- export RUN`:\n{text}"
            )
        }
    }
}

/// If cargo runs this command, replaces it by the same command in a build with the feature added, and returns only if
/// that fails. Otherwise returns an error that says how to get such a build.
pub(crate) fn instead(what: &str, feature: &str) -> Failure {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let line: String = words.iter().map(|word| format!(" {}", word.display())).collect();
    #[cfg(unix)]
    if let Some(mut cargo) = cargo(feature) {
        use std::os::unix::process::CommandExt as _;
        crate::progress::note(&format!(
            "{what} needs the feature `{feature}`; cargo now builds the command with it"
        ));
        let error = cargo.args(words).exec();
        return Failure::new(format!("cargo cannot be run: {error}"));
    }
    Failure::new(format!("{what} is not in this build")).fix(format!(
        "switch the feature `{feature}` on: cargo run --release --features {feature} --{line}"
    ))
}

/// `cargo run` of this package as it was built, with one more feature, if cargo started this process.
#[cfg(unix)]
fn cargo(feature: &str) -> Option<std::process::Command> {
    use std::env::var_os;
    let cargo =
        var_os("CARGO").filter(|_| var_os("CARGO_PKG_NAME").is_some_and(|name| name == env!("CARGO_PKG_NAME")))?;
    let features: String = FEATURES
        .iter()
        .filter(|(name, is_on)| *is_on || *name == feature)
        .map(|(name, _)| format!("{name},"))
        .collect();
    let mut command = std::process::Command::new(cargo);
    command
        .arg("run")
        .arg("--manifest-path")
        .arg(var_os("CARGO_MANIFEST_PATH")?);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    command.args(["--no-default-features", "--features", &features, "--"]);
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_other_builds_are_known() {
        let needed = |line: &str| needed(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        for (name, feature) in COMMANDS {
            assert!(FEATURES.iter().any(|(known, _)| *known == feature), "{feature}");
            let wanted = lacks(feature).then_some((name, feature));
            assert_eq!(
                (needed(name), needed(&format!("help {name} x"))),
                (wanted, wanted),
                "{name}"
            );
            let help = help();
            let mut listed = help.lines().skip(1).flat_map(|line| line.split([' ', ',']));
            assert_eq!(listed.any(|word| word == name), lacks(feature), "{help}");
        }
        assert_eq!((needed("train serve"), needed("")), (None, None));
    }

    #[test]
    fn every_feature_of_the_manifest_is_listed() {
        let manifest = include_str!("../Cargo.toml");
        let of_features = manifest
            .split("[features]")
            .nth(1)
            .unwrap()
            .split("\n[")
            .next()
            .unwrap();
        let lines = of_features.lines().filter_map(|line| line.split_once(" = ["));
        let mut names: Vec<&str> = lines
            .map(|(name, _)| name)
            .filter(|name| !["default", "full"].contains(name))
            .collect();
        names.sort_unstable();
        assert_eq!(names, FEATURES.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    }
}
