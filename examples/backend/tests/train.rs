//! The command line trains, evaluates and lists devices with this backend like with any other.

use std::fs;
use std::path::Path;
use std::process::Command;

fn ok(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_polygrad-toy"))
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}\n{text}{errors}");
    text
}

/// The percentage after `words`.
fn percentage(text: &str, words: &str) -> f64 {
    let (_, rest) = text
        .split_once(words)
        .unwrap_or_else(|| panic!("no {words:?} in\n{text}"));
    rest.split('%').next().unwrap().trim().parse().unwrap()
}

#[test]
fn an_epoch_of_fashion_mnist_is_learned() {
    let run = Path::new(env!("CARGO_TARGET_TMPDIR")).join("toy");
    let _ = fs::remove_dir_all(&run);
    let run = run.to_str().unwrap();
    let line = [
        "train",
        "fashion-mnist",
        "--backend",
        "toy",
        "--model",
        "mlp",
        "--epochs",
        "1",
    ];
    let trained = percentage(&ok(&[&line[..], &["--out", run]].concat()), "test accuracy");
    assert!(trained > 70.0, "{trained} % after an epoch");
    assert_eq!(percentage(&ok(&["eval", run]), "accuracy"), trained);
}

#[test]
fn it_stands_among_the_devices() {
    let text = ok(&["devices"]);
    assert!(
        text.contains("toy: plain loops") && text.contains("dtypes: f32, f64, i64, bool"),
        "{text}"
    );
}
