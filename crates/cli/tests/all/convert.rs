//! `polygrad convert`.

use std::fs;
use std::path::Path;

use polygrad::backend::HostTensor;
use polygrad::formats::TensorFile;
use polygrad::{DType, Shape, nn::StateDict};

use crate::common::Scene;

/// A scene with one of the test files of crates/formats.
fn scene(name: &str) -> Scene {
    let scene = Scene::new();
    let from = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../formats/tests/data")
        .join(name);
    fs::copy(from, scene.path(name)).unwrap();
    scene
}

#[test]
fn a_checkpoint_of_pytorchs_becomes_safetensors() {
    let scene = scene("checkpoint.pt");
    let said = scene.ok("convert checkpoint.pt out.safetensors");
    let state = StateDict::load(scene.path("out.safetensors")).unwrap();
    assert_eq!(state.get("state_dict.fc.weight").unwrap().shape().dims(), [2, 4]);
    for words in [
        "checkpoint.pt: PyTorch, ".to_owned(),
        "skipped epoch: 3\n".to_owned(),
        "skipped options: refuses argparse.Namespace\n".to_owned(),
        format!("wrote out.safetensors: {} tensors, ", state.len()),
    ] {
        assert!(said.contains(&words), "{words}: {said}");
    }
}

#[test]
fn floats_become_what_is_asked_and_integers_stay() {
    let scene = scene("checkpoint.pt");
    for (dtype, ending) in [("f16", "pt"), ("bf16", "safetensors"), ("f32", "npz")] {
        scene.ok(&format!("convert checkpoint.pt out.{ending} --dtype {dtype}"));
        let file = TensorFile::open(scene.path(&format!("out.{ending}"))).unwrap();
        assert_eq!(file.info("state_dict.bn.bias").unwrap().dtype.name(), dtype);
        assert_eq!(
            file.info("state_dict.bn.num_batches_tracked").unwrap().dtype,
            DType::I64
        );
    }
    let said = scene.ok("convert checkpoint.pt small.npz --dtype bf16");
    assert!(said.contains("tensors of bf16 are written as f32"), "{said}");
    let wide = scene.ok("convert out.npz wide.npz");
    let bytes = |said: &str| said.rsplit_once(" tensors, ").unwrap().1.to_owned();
    assert_eq!(bytes(&said), bytes(&wide));
}

#[test]
fn a_tensor_that_cannot_be_converted_stops_no_other() {
    for (file, left_out, kept) in [
        (
            "types.gguf",
            &["IQ4_NL: its values are IQ4_NL, which no dtype"][..],
            "Q4_K",
        ),
        (
            "unknown.pt",
            &["a: its values are complex64", "b: its values are float8_e4m3fn"],
            "c",
        ),
        (
            "foreign.pt",
            &[
                "sparse: it is a sparse tensor: call to_dense()",
                "module: refuses __main__.Net",
                "meta: it is",
            ],
            "w",
        ),
    ] {
        let scene = scene(file);
        let ended = scene.run(&format!("convert {file} out.safetensors"));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        for words in left_out {
            assert!(
                ended.stdout.contains(&format!("left out {words}")),
                "{words}: {}",
                ended.stdout
            );
        }
        assert!(
            ended.stderr.contains("were left out; with --strict that is an error"),
            "{}",
            ended.stderr
        );
        assert!(
            StateDict::load(scene.path("out.safetensors"))
                .unwrap()
                .get(kept)
                .is_some()
        );
        scene.fails(
            &format!("convert {file} none.npz --strict"),
            &["cannot be converted, such as ", "leave --strict out"],
        );
        assert!(!scene.path("none.npz").exists());
    }
    let scene = scene("sparse.pt");
    let text = scene.fails(
        "convert sparse.pt out.npz",
        &["tensor a: it is a sparse tensor: call to_dense()"],
    );
    assert!(!text.contains("damaged"), "{text}");
}

#[test]
fn what_another_dtype_cannot_hold_is_said_of_each_tensor() {
    let scene = Scene::new();
    let tensor = |values: &[f64]| HostTensor::new(Shape::from([values.len()]), values.to_vec()).unwrap();
    let wide = tensor(&[1e300, -1e300, 1e-300, 1.0, 0.0, f64::INFINITY]);
    let state = StateDict::from_iter([
        ("wide".to_owned(), wide),
        ("half".to_owned(), tensor(&[1e9, 1e-30, 2.0])),
        ("whole".to_owned(), tensor(&[1.0, -2.0]).cast(DType::I64)),
        ("sound".to_owned(), tensor(&[1.0, -2.0])),
    ]);
    state.save(scene.path("a.safetensors")).unwrap();
    let lines = |dtype: &str| {
        let line = format!("convert a.safetensors b.safetensors --dtype {dtype}");
        let said = scene.ok(&line);
        let warned = said.lines().filter(|line| line.starts_with("warning: "));
        let mut warned: Vec<String> = warned.map(|line| line["warning: ".len()..].to_owned()).collect();
        warned.sort();
        scene.fails(&format!("{line} --strict"), &["wide: 2 values are too large for"]);
        warned
    };
    let wide = |dtype: &str| {
        format!(
            "wide: 2 values are too large for {dtype} and became infinite, 1 values are too small for {dtype} and became 0"
        )
    };
    assert_eq!(lines("f32"), [wide("f32")]);
    assert_eq!(lines("bf16"), [wide("bf16")]);
    let half = "half: 1 values are too large for f16 and became infinite, 1 values are too small for f16 and became 0";
    assert_eq!(lines("f16"), [half.to_owned(), wide("f16")]);
    let said = scene.ok("convert a.safetensors b.safetensors --strict");
    assert!(!said.contains("warning"), "{said}");
}

#[test]
fn files_that_cannot_be_converted_say_why() {
    let scene = scene("module.pt");
    scene.fails(
        "convert module.pt out.safetensors",
        &["refuses __main__.Net", "fix: in PyTorch, save the state dict alone"],
    );
    scene.fails(
        "convert module.pt out.gguf",
        &["out.gguf", "fix: call it .safetensors, .npz, .pt or .pth"],
    );
    scene.fails(
        "convert nowhere.pt out.npz",
        &["nowhere.pt", "fix: check that the path exists"],
    );
    scene.write("text.pt", b"hello, this is no checkpoint");
    scene.fails("convert text.pt out.npz", &["text.pt", "fix: give a safetensors file"]);
    assert!(!scene.path("out.safetensors").exists());
}
