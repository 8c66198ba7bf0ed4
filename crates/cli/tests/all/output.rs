//! Failing to write output is an error, unless the reader has closed it.
#![cfg(target_os = "linux")]

use std::fs::{File, OpenOptions};
use std::process::Stdio;

use polygrad::nn::StateDict;

use crate::common::{Ended, Scene, image, png};

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

#[test]
fn every_command_tells_that_its_output_is_lost() {
    let scene = Scene::new();
    scene.train("run", "--model mlp --epochs 1");
    png(&scene.path("x.png"), 8, &image(1, 77));
    for line in [
        "devices",
        "devices --explain",
        "eval run",
        "predict run x.png",
        "show run",
        "show run/model.safetensors",
        "export run --onnx model.onnx",
        "run model.onnx --input images=random --dim batch=2",
        "train bars --data data --model mlp --epochs 1 --out other",
        "train --resume run",
        "check cpu --case none-of-this-name",
        "profile train bars --data data --model mlp --steps 2 --warmup 1",
        "bench mlp-act --seconds 0.01",
        "--help",
        "train --help",
        "--version",
    ] {
        let ended: Ended = scene.command(line).stdout(full()).output().unwrap().into();
        assert_eq!(ended.code, Some(1), "polygrad {line}\n{}", ended.stderr);
        // That command prints nothing to standard output.
        let words = match line.starts_with("check") {
            true => "none-of-this-name",
            false => "error: cannot write to standard output: No space left on device",
        };
        assert!(ended.stderr.contains(words), "polygrad {line}\n{}", ended.stderr);
    }
    assert!(scene.path("other/model.safetensors").is_file(), "the run was lost, too");
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    let scene = Scene::new();
    scene.train("run", "--model mlp --epochs 1");
    for line in ["devices", "eval run", "show run", "--help"] {
        let mut child = scene.command(line).stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended: Ended = child.wait_with_output().unwrap().into();
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "polygrad {line}");
    }
}

#[test]
fn names_of_others_do_not_steer_the_terminal() {
    let scene = Scene::new();
    let header = r#"{"__metadata__":{"by\u001b[2J":"me\u001b]0;x\u0007"},"w\u001b[31m":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 4]].concat();
    scene.write("foreign.safetensors", &bytes);
    let out = scene.ok("show foreign.safetensors");
    assert!(out.contains("w\\u{1b}[31m") && out.contains("by\\u{1b}[2J"), "{out:?}");
    scene.train("run", "--model mlp --epochs 1");
    let config = String::from_utf8(scene.read("run/config.json")).unwrap();
    let named = config.replace("\"0\"", "\"bag\\u001b[2J\\nshoe\"");
    assert_ne!(named, config);
    scene.write("run/config.json", named.as_bytes());
    // Without the digests of the settings that it was trained with.
    let state = StateDict::load(scene.path("run/model.safetensors")).unwrap();
    state.save(scene.path("run/model.safetensors")).unwrap();
    let table = scene.ok("eval run");
    assert!(table.contains("bag\\u{1b}[2J\\nshoe"), "{table:?}");
    let ended = scene.command("eval").arg("no\u{1b}[2J\nrun").output().unwrap();
    let ended: Ended = ended.into();
    assert!(
        ended.stderr.contains("no\\u{1b}[2J\\nrun is no folder"),
        "{:?}",
        ended.stderr
    );
    for text in [out, table, ended.stdout, ended.stderr] {
        assert!(!text.contains(['\u{1b}', '\u{7}', '\r']), "{text:?}");
    }
}
