//! `polygrad convert`.

use std::fs;
use std::path::Path;

use polygrad::formats::TensorFile;
use polygrad::{DType, nn::StateDict};

use crate::common::Scene;

/// A scene with one of the files that crates/formats is tested with.
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
    let scene = scene("types.gguf");
    scene.fails(
        "convert types.gguf out.npz",
        &["tensor IQ4_NL", "IQ4_NL, which no dtype", "fix: "],
    );
    assert!(!scene.path("out.npz").exists());
    let scene = self::scene("checkpoint.pt");
    for (dtype, ending) in [("f16", "pt"), ("bf16", "safetensors"), ("f32", "npz")] {
        scene.ok(&format!("convert checkpoint.pt out.{ending} --dtype {dtype}"));
        let file = TensorFile::open(scene.path(&format!("out.{ending}"))).unwrap();
        assert_eq!(file.info("state_dict.bn.bias").unwrap().dtype.name(), dtype);
        assert_eq!(
            file.info("state_dict.bn.num_batches_tracked").unwrap().dtype,
            DType::I64
        );
    }
}

#[test]
fn what_f16_cannot_hold_is_said() {
    let scene = Scene::new();
    let state = StateDict::from_iter([("w".to_owned(), polygrad::backend::HostTensor::scalar(1e9f32))]);
    state.save(scene.path("a.safetensors")).unwrap();
    let said = scene.ok("convert a.safetensors b.safetensors --dtype f16");
    assert!(
        said.contains("1 values are too large for f16 and became infinite"),
        "{said}"
    );
    let said = scene.ok("convert a.safetensors b.safetensors --dtype bf16");
    assert!(!said.contains("infinite"), "{said}");
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
