//! `serve --engine`: the same answers from external engines.

use crate::common::Scene;
use crate::serve::Served;

/// Whether this build has an engine, and this machine its library.
fn is_there(engine: &str) -> bool {
    match engine {
        "ort" => cfg!(feature = "ort") && std::env::var_os("ORT_DYLIB_PATH").is_some(),
        _ => cfg!(feature = "rten"),
    }
}

#[test]
fn engines_serve_the_same_answers() {
    let scene = Scene::new();
    scene.train("bars", "--epochs 1 --model cnn --batch-size 16");
    scene.ok("export bars --onnx m.onnx");
    let native = Served::new(&scene, "m.onnx bars");
    let body = native.example().1;
    let expected = native.infer("m", &body).0;
    for engine in ["ort", "rten"] {
        let line = format!("m.onnx bars --engine {engine}");
        if !is_there(engine) {
            eprintln!("skipped, {engine} is not set up: serve {line}");
            continue;
        }
        let served = Served::new(&scene, &line);
        assert!(served.said.contains(&format!("with {engine} on ")), "{}", served.said);
        let (_, about) = served.ask("GET", "/v2/models/m", "");
        assert_eq!(about["platform"], engine);
        // The exported file, and the graph of the run.
        for model in ["m", "bars"] {
            let (numbers, shape) = served.infer(model, &body);
            assert_eq!(shape, [1, 4]);
            for (a, b) in numbers.iter().zip(&expected) {
                assert!((a - b).abs() < 1e-4, "{engine} {model}: {numbers:?} {expected:?}");
            }
        }
        assert_eq!(served.end(), Some(0));
    }
}

#[test]
fn engines_that_are_not_there_are_named() {
    let scene = Scene::new();
    scene.fails("serve m.onnx --engine tract", &["\"tract\"", "native, ort, rten"]);
    if !cfg!(feature = "rten") {
        scene.fails("serve m.onnx --engine rten", &["rten", "cargo feature rten"]);
    }
    let mut without = scene.command("serve m.onnx --engine ort");
    without.env("ORT_DYLIB_PATH", "/nowhere/libonnxruntime.so");
    let ended = without.output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    let words = match cfg!(feature = "ort") {
        true => ["/nowhere/libonnxruntime.so", "\n  fix: "],
        false => ["ort", "\n  fix: build with the cargo feature ort"],
    };
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
}
