//! `polygrad profile`: its tables, its trace, and what it rejects.

use crate::common::Scene;
use serde_json::Value;

/// The time span of an event, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Span {
    begin: f64,
    end: f64,
}

impl Span {
    fn of(event: &Value) -> Self {
        let number = |name: &str| event[name].as_f64().unwrap();
        let (begin, duration) = (number("ts"), number("dur"));
        assert!(begin >= 0.0 && duration >= 0.0, "{event}");
        Self {
            begin,
            end: begin + duration,
        }
    }

    fn holds(&self, other: &Self) -> bool {
        // A nanosecond is a thousandth of a microsecond, which is no binary fraction.
        self.begin <= other.begin + 1e-6 && other.end <= self.end + 1e-6
    }
}

/// The complete events of a trace, by category.
fn events(scene: &Scene, name: &str) -> impl Fn(&str) -> Vec<Value> {
    let trace: Value = serde_json::from_slice(&scene.read(name)).unwrap();
    let all = trace["traceEvents"].as_array().unwrap().clone();
    move |category| {
        let of_category = |event: &&Value| event["cat"] == category && event["ph"] == "X";
        all.iter().filter(of_category).cloned().collect()
    }
}

/// The cells of the first line that begins with `beginning`.
fn line<'a>(out: &'a str, beginning: &str) -> Vec<&'a str> {
    let words = |line: &'a str| {
        line.split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
            .collect::<Vec<_>>()
    };
    let begins = |cells: &Vec<&str>| cells.join(" ").starts_with(beginning);
    let found = out.lines().map(words).find(begins);
    found.unwrap_or_else(|| panic!("no line of\n{out}\nbegins with {beginning}"))
}

#[test]
fn training_is_told_by_op_and_shape_and_module() {
    let scene = Scene::new();
    let options = "--data data --threads 1 --model cnn --batch-size 8 --steps 4 --rows 99 --trace trace.json";
    let out = scene.ok(&format!("profile train bars {options}"));
    assert!(
        out.contains("cnn with adamw, batches of 8") && out.contains("4 steps, at the median"),
        "{out}"
    );
    for row in [
        "forward conv [8, 1, 8, 8] [16, 1, 3, 3] [16] 4 ",
        "backward conv_weight_grad ",
        "backward max_pool_backward ",
        "forward linear [8, 128] [128, 128] [128] 4 ",
        "forward cross_entropy [8, 4] i64[8] 4 ",
        "optimizer adam_step [128, 128] [128, 128] [128, 128] [128, 128] 4 ",
        "3 (Conv2d) ",
        "7 (Linear) ",
        "(outside the model) ",
        "ops ",
        "between ops ",
        "allocator, in both ",
    ] {
        line(&out, row);
    }
    assert!(!scene.path("runs").exists());

    let events = events(&scene, "trace.json");
    let steps: Vec<Span> = events("step").iter().map(Span::of).collect();
    assert_eq!(steps.len(), 4);
    let step_of = |event: &Value| {
        let span = Span::of(event);
        let holds = |step: &Span| step.holds(&span);
        steps
            .iter()
            .position(holds)
            .unwrap_or_else(|| panic!("{event} is in no step of {steps:?}"))
    };
    let mut in_ops = [0.0; 4];
    let ops = events("op");
    for op in &ops {
        in_ops[step_of(op)] += op["dur"].as_f64().unwrap();
        assert!(op["args"]["flops"].is_u64() && op["args"]["shapes"].is_string(), "{op}");
    }
    for (step, in_ops) in steps.iter().zip(in_ops) {
        assert!(0.0 < in_ops && in_ops <= step.end - step.begin, "{in_ops} {step:?}");
    }
    // Forward, the weight's gradient and, for the second layer, the input's.
    let products = |name: &str, module: &str| {
        let is = |op: &&Value| op["name"] == name && op["args"]["module"] == module;
        ops.iter()
            .filter(is)
            .map(|op| op["args"]["flops"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(products("conv", "0"), [2 * 8 * 16 * 8 * 8 * 9; 4]);
    assert_eq!(products("conv_weight_grad", "3"), [2 * 8 * 32 * 4 * 4 * 16 * 9; 4]);
    assert_eq!(products("conv_input_grad", "3"), [2 * 8 * 32 * 4 * 4 * 16 * 9; 4]);
    assert!(
        products("adam_step", "9").len() == 8
            && ops
                .iter()
                .any(|op| op["name"] == "cross_entropy" && op["args"]["module"].is_null())
    );

    let layers = events("layer");
    let of_layer = |layer: &Value| layer["name"] == "0 (Conv2d)";
    let spans: Vec<Span> = layers.iter().filter(|layer| of_layer(layer)).map(Span::of).collect();
    assert_eq!(spans.len(), 4);
    let convs = ops
        .iter()
        .filter(|op| op["name"] == "conv" && op["args"]["module"] == "0");
    for (conv, layer) in convs.zip(spans) {
        assert!(layer.holds(&Span::of(conv)), "{conv} {layer:?}");
    }
    layers.iter().for_each(|layer| assert!(step_of(layer) < 4));
    let passes: Vec<String> = events("pass").iter().map(|pass| pass["name"].to_string()).collect();
    // The loss is read before the first optimizer step.
    let wanted = ["\"forward\"", "\"backward\"", "\"forward\"", "\"optimizer\""];
    assert_eq!(passes[..4], wanted);
}

#[test]
fn a_case_keeps_its_fused_ops_and_its_layers() {
    let scene = Scene::new();
    let out = scene.ok("profile bench mlp-rl/adam --steps 5 --warmup 0 --rows 99 --no-sync");
    assert!(out.starts_with("mlp-rl adam on cpu:threads=1\n"), "{out}");
    for row in [
        "forward linear [32, 64] [64, 64] [64] 5 ",
        "optimizer adam_step [64, 64] [64, 64] [64, 64] [64, 64] 5 ",
        "2 (Linear) ",
    ] {
        line(&out, row);
    }
    let cut = scene.ok("profile bench gemm/64x64x64 --steps 2 --rows 1");
    assert!(line(&cut, "forward matmul [64, 64] [64, 64] 2 ").len() == 9, "{cut}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let scene = Scene::new();
    scene.fails("profile bench mlp-rl", &["2 cases", "mlp-rl/sgd, mlp-rl/adam"]);
    scene.fails("profile bench mlp", &["no workload is called \"mlp\"", "mlp-rl"]);
    scene.fails("profile bench memory/gpt", &["measures memory", "such as gpt"]);
    scene.fails(
        "profile bench mlp-act --trace no/such/trace.json",
        &["cannot write no/such/trace.json"],
    );
    scene.fails(
        "profile train bars --data data --out mine",
        &["--out names a run", "--trace"],
    );
    for kind in ["table t.csv", "chargpt"] {
        scene.fails(
            &format!("profile train {kind}"),
            &["of training is of images, and this is"],
        );
    }
    scene.fails("profile train --resume mine", &["--resume names a run"]);
    scene.fails(
        "profile train bars --data data --backend gpu",
        &["no backend named \"gpu\""],
    );
    scene.fails("profile train bars --data none", &["none"]);
}
