//! Models are served and queried over sockets.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Scene, image};

/// A server, which is stopped when this is dropped.
pub(crate) struct Served {
    child: Child,
    pub(crate) address: String,
    /// Its output before it was ready, including the example request.
    pub(crate) said: String,
}

impl Served {
    pub(crate) fn new(scene: &Scene, line: &str) -> Self {
        Self::started(&mut scene.command(&format!("serve --port 0 {line}")))
    }

    /// The server that a command starts.
    pub(crate) fn started(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = String::new();
        loop {
            let Some(line) = lines.next().transpose().unwrap() else {
                let ended = child.wait_with_output().unwrap();
                panic!("{said}{}", String::from_utf8_lossy(&ended.stderr));
            };
            said.push_str(&line);
            said.push('\n');
            if line.starts_with("  curl ") {
                break;
            }
        }
        let (_, address) = said.split_once("serving on ").unwrap();
        let (_, address) = address.split_once("://").unwrap();
        let address = address.split(' ').next().unwrap().to_owned();
        Self { child, address, said }
    }

    /// The status and the body of an answer.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        self.ask_with("", method, path, body)
    }

    /// The same with headers, one a line.
    pub(crate) fn ask_with(&self, headers: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request = request(headers, method, path, body);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_default())
    }

    /// The first output, and its shape.
    pub(crate) fn infer(&self, model: &str, body: &str) -> (Vec<f64>, Vec<u64>) {
        let (status, answer) = self.ask("POST", &format!("/v2/models/{model}/infer"), body);
        assert_eq!(status, 200, "{answer}");
        let output = &answer["outputs"][0];
        let numbers = |value: &Value| value.as_array().unwrap().clone();
        let data = numbers(&output["data"]).iter().map(|x| x.as_f64().unwrap()).collect();
        (
            data,
            numbers(&output["shape"]).iter().map(|x| x.as_u64().unwrap()).collect(),
        )
    }

    /// The body that the example curl command would post, and the model.
    pub(crate) fn example(&self) -> (String, String) {
        let (_, line) = self.said.split_once("/v2/models/").unwrap();
        let (model, line) = line.split_once("/infer -d ").unwrap();
        let shell = Command::new("sh")
            .args(["-c", &format!("printf %s {}", line.trim_end())])
            .output()
            .unwrap();
        (model.to_owned(), String::from_utf8(shell.stdout).unwrap())
    }

    fn terminate(&self) {
        let ended = Command::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(ended.success());
    }

    /// Sends SIGTERM, and returns the exit status.
    pub(crate) fn end(mut self) -> Option<i32> {
        self.terminate();
        self.child.wait().unwrap().code()
    }

    /// Sends SIGTERM, and returns the output on standard error.
    pub(crate) fn end_with_errors(mut self) -> String {
        self.terminate();
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

/// A request that closes its connection.
pub(crate) fn request(headers: &str, method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An image in the form that a scene's runs take.
fn picture(scene: &Scene, run: &str, class: usize) -> String {
    let config: Value = serde_json::from_slice(&scene.read(&format!("{run}/config.json"))).unwrap();
    let find = |name: &str| {
        config["input"][name]
            .as_f64()
            .or_else(|| config[name].as_f64())
            .unwrap()
    };
    let (mean, std) = (find("mean"), find("std"));
    let pixels = image(class, 77);
    let pixels: Vec<f64> = pixels.iter().map(|&x| (f64::from(x) / 255.0 - mean) / std).collect();
    format!(r#"{{"inputs":[{{"name":"images","shape":[1,1,8,8],"datatype":"FP32","data":{pixels:?}}}]}}"#)
}

#[test]
fn a_run_of_images_is_served_until_it_is_told_to_end() {
    let scene = Scene::new();
    scene.train("bars", "--epochs 8 --model mlp");
    let served = Served::new(&scene, "bars");
    assert!(
        served
            .said
            .contains("bars, version 1: images FP32[batch, 1, 8, 8] to logits FP32[batch, 4]")
    );
    for class in 0..4 {
        let (logits, shape) = served.infer("bars", &picture(&scene, "bars", class));
        assert_eq!(shape, [1, 4]);
        let largest = logits.iter().copied().fold(f64::MIN, f64::max);
        assert_eq!(logits[class], largest, "{class} {logits:?}");
    }
    let (model, body) = served.example();
    assert_eq!(served.infer(&model, &body).1, [1, 4]);
    // The metadata of the run, for the page and other clients.
    let known = &served.ask("GET", "/v2/models/bars/config", "").1["parameters"];
    let text = |name: &str| known[name]["string_value"].as_str().unwrap().to_owned();
    assert_eq!(text("classes").lines().count(), 4);
    assert!(
        [text("mean"), text("std")]
            .iter()
            .all(|number| number.parse::<f64>().unwrap() > 0.0)
    );
    assert_eq!(served.ask("POST", "/v2/repository/models/bars/unload", "").0 / 100, 4);
    assert_eq!(served.end(), Some(0));
}

#[test]
fn runs_of_all_kinds_are_served() {
    let scene = Scene::new();
    let rows: String = (0..60).map(|i| format!("{i},{},{}\n", i % 7, 3 * i + i % 7)).collect();
    scene.write("t.csv", format!("a,b,c\n{rows}").as_bytes());
    scene.ok("train table t.csv --target c --epochs 1 --threads 1 --out table");
    scene.write("text.txt", "the cat sat on the mat.\n".repeat(100).as_bytes());
    scene.ok("train chargpt --text text.txt --epochs 1 --threads 1 --out plays");
    scene.ok("train cartpole --policy lstm --total-steps 512 --threads 1 --out pole");
    for (run, words) in [
        ("table", "features FP32[batch, 2] to prediction FP32[batch, 1]"),
        (
            "plays",
            "input_ids INT64[batch, sequence] to logits FP32[batch, sequence, 12]",
        ),
        ("pole", "observation FP32[batch, 4], state_0"),
    ] {
        let served = Served::new(&scene, run);
        assert!(served.said.contains(words), "{}", served.said);
        if run == "table" {
            let known = &served.ask("GET", "/v2/models/table/config", "").1["parameters"];
            let encoder: Value = serde_json::from_str(known["encoder"]["string_value"].as_str().unwrap()).unwrap();
            assert_eq!(encoder["columns"][0][0], "a", "{encoder}");
        }
        let (model, body) = served.example();
        let (numbers, shape) = served.infer(&model, &body);
        assert_eq!(numbers.len() as u64, shape.iter().product::<u64>());
        if run == "pole" {
            // The sequence that the first request began continues with its state.
            let next = served.infer(&model, &body.replace(r#","sequence_start":true"#, "")).0;
            assert_ne!(numbers, next);
        }
    }
}

/// Repeats until a condition is fulfilled.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn files_that_change_are_read_again_when_they_are_whole() {
    let scene = Scene::new();
    for seed in [1, 2] {
        scene.train(&format!("run{seed}"), &format!("--epochs 1 --model mlp --seed {seed}"));
        scene.ok(&format!("export run{seed} --onnx {seed}.onnx"));
    }
    fs::create_dir_all(scene.path("all/bars/1")).unwrap();
    fs::create_dir_all(scene.path("all/bars/notes")).unwrap();
    fs::copy(scene.path("1.onnx"), scene.path("all/bars/1/model.onnx")).unwrap();
    let served = Served::new(&scene, "--repository all --watch 0.1");
    let asked = picture(&scene, "run1", 0);
    let first = served.infer("bars", &asked).0;

    let second = scene.read("2.onnx");
    scene.write("all/bars/1/model.onnx", &second[..second.len() / 2]);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(served.infer("bars", &asked).0, first);
    scene.write("all/bars/1/model.onnx", &second);
    until("the file is read again", || served.infer("bars", &asked).0 != first);

    // A new version, and a new model.
    for folder in ["all/bars/2", "all/more/7"] {
        fs::create_dir_all(scene.path(folder)).unwrap();
        fs::copy(scene.path("1.onnx"), scene.path(folder).join("model.onnx")).unwrap();
    }
    until("version 2 is found", || served.infer("bars", &asked).0 == first);
    assert_ne!(served.infer("bars/versions/1", &asked).0, first);
    until("a new model is found", || {
        served.ask("GET", "/v2/models/more/ready", "").0 == 200
    });
}

#[test]
fn models_come_and_go_by_request() {
    let scene = Scene::new();
    scene.train("bars", "--epochs 1 --model mlp");
    fs::create_dir(scene.path("all")).unwrap();
    let served = Served::new(&scene, "own=bars --repository all --control --watch 0");
    assert_eq!(served.ask("GET", "/v2/models/own/ready", "").0, 200);
    assert_eq!(served.ask("POST", "/v2/repository/models/own/unload", "").0, 200);
    assert_eq!(served.ask("GET", "/v2/models/own/ready", "").0 / 100, 5);
    assert_eq!(served.ask("POST", "/v2/repository/models/own/load", "").0, 200);
    assert_eq!(served.ask("GET", "/v2/models/own/ready", "").0, 200);
    assert_eq!(served.ask("POST", "/v2/repository/models/late/load", "").0, 404);
    fs::create_dir_all(scene.path("all/late")).unwrap();
    fs::rename(scene.path("bars"), scene.path("all/late/3")).unwrap();
    assert_eq!(served.ask("POST", "/v2/repository/models/late/load", "").0, 200);
    assert_eq!(
        served.infer("late/versions/3", &picture(&scene, "all/late/3", 1)).1,
        [1, 4]
    );
}

#[test]
fn what_cannot_be_served_is_named() {
    let scene = Scene::new();
    scene.train("bars", "--epochs 1 --model mlp");
    scene.ok("export bars --onnx m.onnx");
    scene.fails("serve none.onnx", &["none.onnx"]);
    scene.fails("serve data", &["data holds no model", "give an ONNX file"]);
    scene.fails("serve --repository none", &["none"]);
    scene.fails(
        "serve bars m.onnx bars",
        &["there is a version 1 of bars already", "NAME=bars"],
    );
    scene.fails("serve a/b=bars", &["\"a/b\" is no name for a model"]);
    scene.fails("serve bars=", &["bars= names no model", "NAME=PATH"]);
    let served = Served::new(&scene, "bars --max-memory 100B");
    let (status, answer) = served.ask("POST", "/v2/models/bars/infer", &picture(&scene, "bars", 1));
    let error = answer["error"].as_str().unwrap();
    assert!(
        status == 500 && error.ends_with("; ask for less at a time; --max-memory of `polygrad serve` is the limit"),
        "{error}"
    );
    drop(served);
    scene.fails("serve bars --backend tpu", &["no backend named \"tpu\""]);
    let bytes = scene.read("m.onnx");
    scene.write("half.onnx", &bytes[..bytes.len() / 2]);
    scene.fails(
        "serve half.onnx",
        &["version 1 of half could not be loaded", "half.onnx"],
    );
    scene.fails("serve stats=bars", &["\"stats\"", "/v2/models/stats"]);
    fs::create_dir_all(scene.path("hub")).unwrap();
    scene.write("hub/config.json", b"{\"model_type\": \"bert\",");
    let said = scene.fails("serve hub", &["config.json is damaged", "the Hub"]);
    assert!(!said.contains("train anew"), "{said}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    scene.fails(
        &format!("serve bars --port {port}"),
        &["cannot listen on 127.0.0.1", "choose another --port"],
    );
}

#[test]
fn what_is_passed_over_in_a_repository_is_named() {
    let scene = Scene::new();
    scene.train("bars", "--epochs 1 --model mlp");
    scene.ok("export bars --onnx m.onnx");
    let model = scene.read("m.onnx");
    for path in [
        "models/good/1/model.onnx",
        "models/odd/latest/model.onnx",
        "models/loose.onnx",
        "models/flat/model.onnx",
    ] {
        fs::create_dir_all(scene.path(path).parent().unwrap()).unwrap();
        scene.write(path, &model);
    }
    let served = Served::new(&scene, "--repository models");
    assert!(served.said.contains("good, version 1"), "{}", served.said);
    let errors = served.end_with_errors();
    for words in [
        "latest is passed over: versions are numbers",
        "loose.onnx is passed over",
        "flat is passed over",
    ] {
        assert!(errors.contains(words), "{words} is not in\n{errors}");
    }
}

#[test]
fn help_fits_on_a_screen() {
    let help = Scene::new().ok("serve --help");
    assert!(help.lines().count() <= 40, "{help}");
    assert!(help.lines().all(|line| line.len() <= 145), "{help}");
}
