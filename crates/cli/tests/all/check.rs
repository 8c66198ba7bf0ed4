//! `polygrad check`: its output, and what it rejects.

use crate::common::Scene;

/// A set with one case; `field` replaces its arguments.
fn set(scene: &Scene, manifest: &str) {
    let _ = std::fs::create_dir(scene.path("set"));
    scene.write("set/manifest.json", manifest.as_bytes());
    let header = br#"{"x":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},"c/o.0":{"dtype":"F64","shape":[2],"data_offsets":[16,32]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend([1.0f64, -2.0, -1.0, 2.0].iter().flat_map(|value| value.to_le_bytes()));
    scene.write("set/tensors.safetensors", &file);
}

fn case(args: &str) -> String {
    format!(r#"[{{"k": "c", "op": "neg", "a": {args}, "kw": {{}}, "n": 1}}]"#)
}

#[test]
fn a_set_from_a_folder_is_run_and_reported() {
    let scene = Scene::new();
    set(&scene, &case(r#"[{"t": "x"}]"#));
    let out = scene.ok("check cpu --vectors set --json report.json");
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(rows.contains(&vec!["neg", "4", "0", "0", "0", "0", "0"]), "{out}");
    let json: serde_json::Value = serde_json::from_slice(&scene.read("report.json")).unwrap();
    assert_eq!(json["cases"].as_array().unwrap().len(), 4);
    assert_eq!(json["cases"][0]["forward"]["status"], "pass");
    assert!(json["cases"][0]["gradient"].is_null());
}

#[test]
fn a_wrong_answer_fails_with_the_name_of_the_case() {
    let scene = Scene::new();
    set(&scene, &case(r#"[{"t": "x"}]"#).replace("neg", "abs"));
    let ended = scene.run("check cpu --vectors set --case c@f64");
    assert_eq!(ended.code, Some(1));
    assert!(
        ended
            .stdout
            .contains("FAIL c@f64 (forward): output 0: element 0 is 1e0, -1e0 is right"),
        "{}",
        ended.stdout
    );
    assert!(
        ended.stderr.contains("1 of 1 cases fail") && ended.stderr.contains("--case NAME"),
        "{}",
        ended.stderr
    );
}

#[test]
fn strange_arguments_end_in_a_reason_that_names_them() {
    let scene = Scene::new();
    for (args, words) in [
        ("[]", "argument input is missing"),
        ("[7]", "argument input is no tensor: 7"),
        (r#"[{"t": 5}]"#, "argument input is no tensor"),
        (r#"[{"t": "gone"}]"#, "the set has no tensor \"gone\""),
        (r#"[{"t": "x"}, "nan"]"#, "arguments [\"1\"]"),
    ] {
        set(&scene, &case(args));
        let ended = scene.run("check cpu --vectors set --case c@f32");
        assert!(ended.stdout.contains(words), "{args}: {}", ended.stdout);
    }
}

#[test]
fn a_broken_set_is_an_error_that_names_file_and_place() {
    let scene = Scene::new();
    scene.fails("check cpu --vectors nowhere", &["cannot read nowhere/manifest.json"]);
    for (manifest, words) in [
        ("[", "manifest.json: no list of cases"),
        (r#"{"k": 1}"#, "manifest.json: no list of cases"),
        (r#"[{"k": "c"}]"#, "manifest.json: case number 0: \"op\" is missing"),
        (&case("{}"), "case number 0: \"a\" is no list"),
        (&case("[]").replace(": 1}", ": -1}"), "\"n\" is no number of outputs"),
    ] {
        set(&scene, manifest);
        let ended = scene.run("check cpu --vectors set");
        assert_eq!(ended.code, Some(1));
        assert!(ended.stderr.contains(words), "{}\nshould contain {words}", ended.stderr);
    }
    set(&scene, &case("[]"));
    scene.write("set/tensors.safetensors", b"not at all");
    assert!(
        scene
            .run("check cpu --vectors set")
            .stderr
            .contains("tensors.safetensors: no safetensors file")
    );
}

#[test]
fn unknown_names_are_refused_with_those_near() {
    let scene = Scene::new();
    scene.fails("check gpu", &["available backends: cpu"]);
    scene.fails(
        "check cpu --op matmull",
        &["there is no op \"matmull\"", "near it: matmul"],
    );
    scene.fails("check cpu --case neg/1000", &["there is no case \"neg/1000\"", "neg/1"]);
}

#[test]
fn one_op_of_the_suite_that_comes_along_passes() {
    let out = Scene::new().ok("check cpu --op matmul");
    assert!(out.lines().any(|line| line.starts_with("matmul ")), "{out}");
}

#[test]
fn gradients_are_checked_by_differences() {
    let out = Scene::new().ok("check cpu --mode grad --op tanh");
    assert!(out.lines().any(|line| line.starts_with("tanh ")), "{out}");
    Scene::new().ok("check cpu --mode grad --case argmax/0/none");
}

#[test]
fn timings_are_printed_and_written() {
    let scene = Scene::new();
    let out = scene.ok("check cpu --mode perf --op embedding --json perf.json");
    assert!(
        out.lines()
            .all(|line| line.contains("GFLOP/s") && line.contains("GB/s"))
            && out.contains("@f64"),
        "{out}"
    );
    let json: serde_json::Value = serde_json::from_slice(&scene.read("perf.json")).unwrap();
    assert!(json[0]["ns"].as_f64().unwrap() > 0.0);
    scene.fails("check cpu --mode perf --op embeding", &["near it: embedding"]);
}

/// The page itself is compared with the one in the repository by `.ci/run`.
#[test]
fn the_page_of_ops_has_a_place() {
    Scene::new().fails("check cpu --mode support", &["cannot write docs/ops.md"]);
}

#[test]
fn an_option_of_another_mode_is_refused() {
    let scene = Scene::new();
    scene.fails("check cpu --seed 3", &["--seed is not for --mode test"]);
    scene.fails(
        "check cpu --mode programs --op add",
        &["--op is not for --mode programs"],
    );
}
