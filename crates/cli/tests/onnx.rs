//! `polygrad export`, `run` and `show`: a trained model as a file, and what can be done with one.

mod common;

use common::{Ended, Scene};

/// A scene with a run, `run`, and its model as `m.onnx`.
fn exported() -> Scene {
    let scene = Scene::new();
    scene.train("run", "--model cnn --epochs 1 --batch-size 16");
    let out = scene.ok("export run --onnx m.onnx");
    assert!(out.contains("m.onnx: the cnn of run, opset 20"), "{out}");
    scene
}

/// A `.npy` file of f32 in row-major order.
fn npy(shape: &str, values: &[f32]) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.bytes());
    file.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    file
}

/// The line that sums up the output `name`.
fn line(text: &str, name: &str) -> String {
    let found = text.lines().find(|line| line.starts_with(&format!("{name}: ")));
    found.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
}

#[test]
fn an_exported_model_runs_from_files_and_on_random_numbers() {
    let scene = exported();
    let pixels: Vec<f32> = (0..2 * 64).map(|i| (i as f32 / 20.0).sin()).collect();
    scene.write("x.npy", &npy("(2, 1, 8, 8)", &pixels));
    let out = scene.ok("run m.onnx --input images=x.npy --output y.npz --time 3");
    assert!(line(&out, "logits").contains("f32[2, 4]"), "{out}");
    assert!(out.contains("3 runs on cpu: median"), "{out}");
    // What was written is read again: as an input of this name, or as the only array.
    let file = scene.read("y.npz");
    assert!(file.starts_with(b"PK"));
    scene.fails("run m.onnx --input images=y.npz", &["input \"images\"", "[2, 4]"]);
    let a = scene.ok("run m.onnx --input images=random --dim batch=3");
    assert!(line(&a, "logits").contains("f32[3, 4]"), "{a}");
    assert_eq!(a, scene.ok("run m.onnx --input images=random --dim batch=3"));
}

#[test]
fn engines_agree_or_say_what_they_need() {
    let scene = exported();
    let native = line(&scene.ok("run m.onnx --input images=random --dim batch=2"), "logits");
    for engine in ["ort", "rten"] {
        let command = format!("run m.onnx --input images=random --dim batch=2 --engine {engine} --threads 1 --time 1");
        let ended: Ended = scene.run(&command);
        if ended.code == Some(0) {
            let numbers =
                |line: &str| -> Vec<f64> { line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect() };
            let other = line(&ended.stdout, "logits");
            for (a, b) in numbers(&native).into_iter().zip(numbers(&other)) {
                assert!((a - b).abs() < 1e-4, "{native}\n{other}");
            }
            assert!(ended.stdout.contains("1 runs on "), "{}", ended.stdout);
        } else {
            let text = scene.fails(&command, &[]);
            assert!(text.contains("cargo"), "{text}");
        }
    }
    let mut without = scene.command("run m.onnx --input images=random --engine ort");
    let ended: Ended = without
        .env("ORT_DYLIB_PATH", "/nowhere/libonnxruntime.so")
        .output()
        .unwrap()
        .into();
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("\n  fix: "), "{}", ended.stderr);
    if cfg!(feature = "ort") {
        assert!(ended.stderr.contains("/nowhere/libonnxruntime.so"), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("cargo xtask setup onnxruntime"),
            "{}",
            ended.stderr
        );
    }
    scene.fails("run m.onnx --engine tract", &["\"tract\"", "native, ort, rten"]);
}

#[test]
fn show_tells_of_every_kind() {
    let scene = exported();
    let onnx = scene.ok("show m.onnx --dim batch=2");
    for words in [
        "op sets: ai.onnx 20",
        "input images: float[batch, 1, 8, 8]",
        "output logits: float[batch, 4]",
        "2 Conv",
    ] {
        assert!(onnx.contains(words), "{words}: {onnx}");
    }
    assert!(
        onnx.contains("FLOPs with batch 2") && !onnx.contains("without"),
        "{onnx}"
    );
    let run = scene.ok("show run");
    assert!(
        run.contains("cnn on bars: images of 1 × 8 × 8") && run.contains("FLOPs with every named extent 1"),
        "{run}"
    );
    let state = scene.ok("show run/model.safetensors");
    assert!(
        state.contains("0.weight: f32[16, 1, 3, 3]") && state.contains("parameters"),
        "{state}"
    );
    scene.fails("show nowhere.onnx", &["nowhere.onnx"]);
    scene.fails("show data", &["data holds no run"]);
    scene.write("x.txt", b"text");
    scene.fails("show x.txt", &["x.txt", ".safetensors"]);
}

#[test]
fn bad_requests_say_what_and_what_to_do() {
    let scene = exported();
    for (command, words) in [
        ("run m.onnx", &["\"images\" is missing"][..]),
        ("run m.onnx --input x=random", &["no input \"x\"", "images"]),
        (
            "run m.onnx --input images=random",
            &["how large batch is", "--dim batch=N"],
        ),
        (
            "run m.onnx --input images=random --input images=random --dim batch=1",
            &["given twice"],
        ),
        ("run m.onnx --input images=m.onnx", &["no NumPy file"]),
        ("run m.onnx --input images=none.npy", &["none.npy"]),
        (
            "run m.onnx --input images=random --dim batch=1 --output y.npy",
            &["y.npy", ".npz"],
        ),
        ("run m.onnx --backend gpu", &["no backend named \"gpu\""]),
        ("export run --onnx n.onnx --opset 19", &["19", "17"]),
        (
            "export run --onnx n.onnx --dynamic batch,seq",
            &["\"seq\"", "--dynamic batch"],
        ),
        ("export data --onnx n.onnx", &["holds no run"]),
    ] {
        scene.fails(command, words);
    }
    assert_eq!(scene.run("run m.onnx --input images").code, Some(2));
    assert_eq!(scene.run("run m.onnx --dim batch").code, Some(2));
    scene.ok("export run --onnx n.onnx --fixed --opset 17");
    let out = scene.ok("show n.onnx");
    assert!(
        out.contains("ai.onnx 17") && out.contains("images: float[1, 1, 8, 8]"),
        "{out}"
    );
}
