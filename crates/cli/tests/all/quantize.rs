//! `polygrad quantize`, and `eval` of the file that it writes.

use crate::common::{Scene, idx, image};

/// A scene with a run, `run`.
fn trained() -> Scene {
    let scene = Scene::new();
    scene.train("run", "--model cnn --epochs 3 --batch-size 16");
    scene
}

#[test]
fn a_run_becomes_a_small_file_that_other_commands_take() {
    let scene = trained();
    let out = scene.ok("quantize run --per-channel --rows 64 --out a.onnx");
    for words in [
        "signal to noise",
        "0/Conv",
        "accuracy in % on the test data of the run: 100.00 before, 100.00 after (+0.00 points)",
        "a.onnx: int8, static, 64 rows by minmax, 4 of 4 layers per channel, op set 21; constants ",
    ] {
        assert!(out.contains(words), "{out}\nshould contain {words}");
    }
    scene.ok("quantize run --per-channel --rows 64 --out b.onnx");
    assert!(scene.read("a.onnx") == scene.read("b.onnx"));
    let out = scene.ok("eval a.onnx --data data");
    assert!(out.contains("a.onnx: accuracy in % 100.00 on 40 rows of "), "{out}");
    let out = scene.ok("run a.onnx --input images=random --dim batch=3");
    assert!(out.contains("logits: f32[3, 4]"), "{out}");
    assert!(scene.ok("show a.onnx").contains("2 Conv"));
    let picture = polygrad::data::Image::new(1, 8, 8, image(2, 7)).unwrap();
    scene.write("2.png", &picture.to_png().unwrap());
    let out = scene.ok("predict a.onnx 2.png");
    assert!(out.lines().next().unwrap().ends_with("  2"), "{out}");
    scene.fails("quantize a.onnx --calibrate data --out c.onnx", &["quantized already"]);
    // The same data, with the exported file.
    scene.ok("export run --onnx m.onnx");
    let out = scene.ok("quantize m.onnx --calibrate data --rows 30 --calibration mse --out c.onnx");
    assert!(out.contains("on the 10 other rows: 100.00 before"), "{out}");
    let out = scene.ok("quantize m.onnx --int8 dynamic --out d.onnx");
    assert!(
        out.contains("no targets are known") && out.contains("int8, dynamic, 2 of 2 layers"),
        "{out}"
    );
}

#[test]
fn what_does_not_fit_leaves_no_file() {
    let scene = trained();
    scene.ok("export run --onnx m.onnx");
    for (line, words) in [
        ("quantize m.onnx", vec!["found with data", "--calibrate"]),
        ("quantize run --skip 0/Con", vec!["\"0/Con\"", "near it: 0/Conv"]),
        (
            "quantize run --percentile 99",
            vec!["--percentile is for --calibration percentile"],
        ),
        (
            "quantize run --calibration percentile --percentile 0",
            vec!["percentile"],
        ),
        ("quantize run --int8 dynamic --calibration mse", vec!["--int8 static"]),
        (
            "quantize m.onnx --int8 dynamic --max-drop 1",
            vec!["--max-drop needs labels"],
        ),
        ("quantize none.onnx", vec!["there is no none.onnx"]),
    ] {
        scene.fails(&format!("{line} --out x.onnx"), &words);
        assert!(!scene.path("x.onnx").exists(), "{line}");
    }
    scene.write("wide.csv", b"a,b,labels\n1,2,0\n3,4,1\n");
    scene.fails(
        "quantize m.onnx --calibrate wide.csv --out x.onnx",
        &["wide.csv", "columns"],
    );
    scene.fails("eval m.onnx", &["no data of its own", "--data"]);
    scene.fails("eval m.onnx --data data --episodes 3", &["--episodes is for runs"]);
    let labels = scene.read("data/t10k-labels-idx1-ubyte").len() - 8;
    scene.write("data/t10k-labels-idx1-ubyte", &idx(&[labels as u32], &vec![9; labels]));
    scene.fails(
        "eval m.onnx --data data",
        &["the targets have the class 9", "scores of"],
    );
}

#[test]
fn a_table_of_numbers_is_judged_by_its_variance() {
    let scene = Scene::new();
    let row = |i: usize| {
        let [a, b] = [i % 17, i % 23];
        format!("{a},{b},{}\n", 3 * a + b)
    };
    let rows: String = (0..400).map(row).collect();
    scene.write("t.csv", format!("a,b,y\n{rows}").as_bytes());
    scene.ok("train table t.csv --target y --epochs 20 --threads 1 --out t");
    let out = scene.ok("quantize t --out t.onnx");
    assert!(out.contains("100 R² on the validation data of the run: 9"), "{out}");
    let out = scene.ok("eval t.onnx --data t.csv");
    assert!(out.contains("100 R² 9") && out.contains("400 rows"), "{out}");
    scene.write("new.csv", b"a,b\n10,5\n2,20\n");
    let out = scene.ok("predict t.onnx new.csv");
    let numbers: Vec<f64> = out.lines().skip(1).map(|line| line.parse().unwrap()).collect();
    assert_eq!((out.lines().next(), numbers.len()), (Some("y"), 2));
    assert!(
        (numbers[0] - 35.0).abs() < 4.0 && (numbers[1] - 26.0).abs() < 4.0,
        "{out}"
    );
    scene.fails("predict t.onnx new.csv --invert", &["--invert is for images"]);
    scene.write("flat.csv", format!("a,b,y\n{}", "1,2,5\n3,4,5\n".repeat(9)).as_bytes());
    scene.fails(
        "quantize t --calibrate flat.csv --out u.onnx",
        &["-inf before and -inf after", "no file is written", "targets differ"],
    );
    scene.fails(
        "eval t.onnx --data flat.csv",
        &[
            "100 R² is not defined on ",
            "flat.csv: all targets are the same",
            "targets differ",
        ],
    );
    scene.write("short.csv", b"a,y\n1,5\n");
    for command in ["eval t.onnx --data", "quantize t --out u.onnx --calibrate"] {
        scene.fails(
            &format!("{command} short.csv"),
            &["short.csv: there is no column \"b\""],
        );
    }
    // No loss is allowed, but rounding always loses something here.
    let error = scene.fails(
        "quantize t --max-drop 0 --out u.onnx",
        &["falls by", "no file is written", "--skip"],
    );
    assert!(!scene.path("u.onnx").exists(), "{error}");
}

#[test]
fn a_run_for_8_bits_keeps_the_ranges_that_it_learned() {
    let scene = Scene::new();
    let out = scene.train("run", "--qat --model cnn --epochs 3 --batch-size 16");
    assert!(out.contains("cnn for 8 bits with adamw"), "{out}");
    assert!(scene.ok("eval run").contains("accuracy 100.00 %"));
    let out = scene.ok("export run --onnx a.onnx");
    assert!(out.contains("int8 with the ranges that it learned, opset 21"), "{out}");
    let out = scene.ok("quantize run --max-drop 0 --out b.onnx");
    for words in [
        "100.00 before, 100.00 after",
        "b.onnx: int8, static, learned ranges, 4 of 4 layers per channel, op set 21",
    ] {
        assert!(out.contains(words), "{out}\nshould contain {words}");
    }
    assert!(scene.read("a.onnx") == scene.read("b.onnx"));
    let out = scene.ok("eval a.onnx --data data");
    assert!(out.contains("a.onnx: accuracy in % 100.00"), "{out}");
    for (line, words) in [
        (
            "quantize run --calibration mse",
            ["--calibration is for models without ranges", "leave it out"],
        ),
        (
            "quantize run --int8 dynamic",
            ["--int8 dynamic is for models without ranges", "leave it out"],
        ),
        (
            "quantize run --episodes 3",
            ["--episodes is for runs in environments", "leave it out"],
        ),
    ] {
        scene.fails(&format!("{line} --out x.onnx"), &words);
        assert!(!scene.path("x.onnx").exists(), "{line}");
    }
    scene.ok("train --resume run --qat --epochs 4 --threads 1");
    scene.train("plain", "--model mlp --epochs 1");
    scene.fails("train --resume plain --qat", &["--qat is false there, not true"]);
    scene.fails(
        "train cartpole --qat",
        &["--qat is for images and table", "leave it out"],
    );
    scene.fails(
        "train chargpt --qat",
        &["--qat is for images and table", "leave it out"],
    );
}

#[test]
fn a_policy_is_judged_by_its_returns() {
    let scene = Scene::new();
    scene.ok("train cartpole --total-steps 4096 --threads 1 --out p");
    let out = scene.ok("quantize p --episodes 20 --max-drop 60 --threads 1 --out a.onnx");
    for words in [
        "signal to noise",
        "mean return in 20 episodes of cartpole: ",
        "a.onnx: int8, static, ",
    ] {
        assert!(out.contains(words), "{out}\nshould contain {words}");
    }
    scene.ok("quantize p --episodes 20 --max-drop 60 --threads 1 --out b.onnx");
    assert!(scene.read("a.onnx") == scene.read("b.onnx"));
    let out = scene.ok("run a.onnx --input observation=random --dim batch=3");
    assert!(out.contains("logits: f32[3, 2]"), "{out}");
    let out = scene.ok("quantize p --int8 dynamic --per-channel --episodes 10 --max-drop 60 --out c.onnx");
    assert!(out.contains("int8, dynamic"), "{out}");
    scene.fails(
        "quantize p --calibrate data --out d.onnx",
        &["--calibrate is for", "leave it out"],
    );
    assert!(!scene.path("d.onnx").exists());
}
