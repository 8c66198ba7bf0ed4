//! The parts of the report, the most informative first.

use std::path::Path;

use super::machine::{self, Fact};

/// A command and its purpose.
pub(super) struct Part {
    /// The name of its log, by which it is chosen on the command line.
    pub(super) name: String,
    /// A line for the report.
    pub(super) title: String,
    /// The program and its arguments; this program is `""`.
    pub(super) words: Vec<String>,
    /// The time limit in minutes.
    pub(super) minutes: f64,
    /// The reason why it cannot run; `None` if it can.
    pub(super) lacks: Option<String>,
    /// Whether it writes the measurements of `polygrad bench` to `--json`.
    pub(super) figures: bool,
}

/// Workloads of training steps, by size.
const TRAINED: [&str; 6] = ["mlp-small", "mlp-big", "cnn", "resnet", "gpt", "lstm"];
/// Training steps in mixed precision, timed together.
const MIXED: [&str; 2] = ["gpt/124m/bf16", "resnet/bf16"];
/// Attention over a longer text, and with its gradient.
const ATTENTION: [&str; 2] = [
    "attention/8x8x1024x1024x64/bf16",
    "attention/backward/8x8x1024x1024x64/bf16",
];
/// Extents of square products.
const SQUARES: [usize; 5] = [512, 1024, 2048, 4096, 8192];

struct Planner<'a> {
    parts: Vec<Part>,
    facts: &'a [Fact],
    /// The devices; for a missing one, the reason.
    devices: [(&'static str, Result<String, String>); 2],
}

impl Planner<'_> {
    fn part(&mut self, name: impl Into<String>, title: impl Into<String>, minutes: f64, words: &[&str]) -> &mut Part {
        self.parts.push(Part {
            name: name.into(),
            title: title.into(),
            words: words.iter().map(|&word| word.to_owned()).collect(),
            minutes,
            lacks: None,
            figures: words.contains(&"bench"),
        });
        let last = self.parts.len() - 1;
        &mut self.parts[last]
    }

    /// Adds a part for each device, whose name replaces `DEVICE`.
    fn each(&mut self, name: &str, title: &str, minutes: f64, words: &[&str]) {
        for (device, there) in self.devices.clone() {
            let words: Vec<String> = words.iter().map(|word| word.replace("DEVICE", device)).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            self.part(
                format!("{name}-{device}"),
                format!("{title} on {device}"),
                minutes,
                &words,
            )
            .lacks = there.err();
        }
    }

    /// Adds a part for CUDA only.
    fn cuda(&mut self, name: impl Into<String>, title: impl Into<String>, minutes: f64, words: &[&str]) -> &mut Part {
        let lacks = self.devices[0].1.clone().err();
        let part = self.part(name, title, minutes, words);
        part.lacks = lacks;
        part
    }

    /// Adds a part that compute-sanitizer watches.
    fn sanitized(&mut self, name: &str, title: &str, words: &[&str]) {
        let sanitizer = machine::sanitizer();
        let program = sanitizer.as_deref().unwrap_or("compute-sanitizer");
        let words = [&[program, "--error-exitcode", "9", ""], words].concat();
        let part = self.cuda(name, title, 15.0, &words);
        if sanitizer.is_none() && part.lacks.is_none() {
            part.lacks = Some("compute-sanitizer is not there: it comes with the CUDA toolkit".to_owned());
        }
    }

    /// The peers that can be timed on the card, in the form of `bench --against`.
    fn peers(&self, names: &[&'static str]) -> Option<String> {
        let there = |name: &&&str| match **name {
            "jax" => machine::has_package(self.facts, "JAX"),
            _ => machine::has_package(self.facts, "PyTorch"),
        };
        let names: Vec<&str> = names.iter().filter(there).copied().collect();
        (!names.is_empty()).then(|| names.join(","))
    }
}

/// All parts; those that cannot run on this machine have the reason.
pub(super) fn plan(facts: &[Fact], work: &Path) -> Vec<Part> {
    let devices = machine::DEVICES.map(|device| (device, machine::device(device)));
    let mut planner = Planner {
        parts: Vec::new(),
        facts,
        devices,
    };
    let place = |name: String| work.join(name).display().to_string();
    planner.part("devices", "What there is to compute with", 1.0, &["", "devices"]);
    planner.each(
        "smoke",
        "A case of every op in every dtype",
        5.0,
        &["", "check", "DEVICE", "--sample", "1"],
    );
    planner.each("drivers", "The suite for drivers", 10.0, &["", "drivers", "DEVICE"]);
    planner.each("suite", "The suite for backends", 30.0, &["", "check", "DEVICE"]);
    for device in ["cuda", "wgpu", "cpu"] {
        let lacks = planner
            .devices
            .iter()
            .find(|(name, _)| *name == device)
            .and_then(|(_, there)| there.clone().err());
        let out = place(format!("train-{device}"));
        let words = [
            "",
            "train",
            "fashion-mnist",
            "--epochs",
            "1",
            "--seed",
            "1",
            "--backend",
            device,
            "--out",
            &out,
        ];
        planner
            .part(
                format!("train-{device}"),
                format!("An epoch of Fashion-MNIST's subset on {device}"),
                10.0,
                &words,
            )
            .lacks = lacks;
    }
    planner.each("losses", "100 losses beside the CPU's", 10.0, &["", "losses", "DEVICE"]);
    for (name, option, dtype, peer) in [
        ("f32", "", "", "torch"),
        ("tf32", ":tf32=on", "", "torch-tf32"),
        ("bf16", "", "/bf16", "torch"),
        ("f16", "", "/f16", "torch"),
    ] {
        let device = format!("cuda{option}");
        let cases = SQUARES.map(|n| format!("gemm/{n}x{n}x{n}{dtype}"));
        let mut words = vec!["", "bench"];
        words.extend(cases.iter().map(String::as_str));
        words.extend(["--backend", &device]);
        let peers = planner.peers(&[peer]);
        words.extend(peers.iter().flat_map(|peers| ["--against", peers]));
        planner.cuda(
            format!("gemm-{name}"),
            format!("Products in {name} beside cuBLAS by PyTorch"),
            3.0,
            &words,
        );
    }
    tensor_cores(&mut planner);
    for workload in TRAINED {
        let mut words = vec![
            "",
            "bench",
            workload,
            "--captured",
            "--backend",
            "cuda",
            "--patience",
            "200",
        ];
        let peers = planner.peers(&["torch", "torch-compile", "torch-graphs", "jax"]);
        words.extend(peers.iter().flat_map(|peers| ["--against", peers]));
        planner.cuda(
            format!("steps-{workload}"),
            format!("Training steps of {workload}, captured and as written"),
            8.0,
            &words,
        );
    }
    let mut words = vec!["", "memory"];
    let peers = planner.peers(&["torch"]);
    words.extend(peers.as_deref());
    planner.cuda("memory", "The card's memory while it trains", 5.0, &words);
    planner.sanitized(
        "sanitizer",
        "Memory accesses of a case of every op, by compute-sanitizer",
        &["check", "cuda", "--sample", "1"],
    );
    let part = planner.cuda(
        "nccl",
        "The suite for communicators over NCCL, with a rank for each of two devices if there are two",
        5.0,
        &["", "nccl"],
    );
    if part.lacks.is_none() && !machine::has_library(facts, "libnccl.so") {
        part.lacks = Some("libnccl is not there: it comes with the packages libnccl2 and nvidia-nccl-cu12".to_owned());
    }
    planner.cuda(
        "graphs",
        "Starting kernels one by one and as a graph",
        1.0,
        &["", "graphs"],
    );
    let words = [
        "",
        "bench",
        "mlp-rl",
        "mlp-small",
        "--captured",
        "--backend",
        "DEVICE:fusion=off",
    ];
    planner.each("steps-unfused", "Training steps with fusion=off", 3.0, &words);
    let words = [
        "",
        "bench",
        "mlp-small",
        "mlp-big",
        "cnn",
        "gpt",
        "--captured",
        "--backend",
        "wgpu",
    ];
    let lacks = planner.devices[1].1.clone().err();
    planner.part("steps-wgpu", "Training steps on wgpu", 8.0, &words).lacks = lacks;
    planner.each(
        "unfused",
        "The suite for backends, nothing fused,",
        30.0,
        &["", "check", "DEVICE:fusion=off"],
    );
    planner.parts
}

/// Attention by tensor cores, and training steps that use it.
fn tensor_cores(planner: &mut Planner<'_>) {
    let ops = ["scaled_dot_product_attention", "scaled_dot_product_attention_backward"];
    for (name, op) in ["attention-values", "attention-gradients"].into_iter().zip(ops) {
        planner.cuda(
            name,
            format!("The suite for {op}"),
            3.0,
            &["", "check", "cuda", "--op", op],
        );
    }
    planner.sanitized(
        "attention-sanitizer",
        "Memory accesses of attention's gradient, by compute-sanitizer",
        &["check", "cuda", "--op", ops[1]],
    );
    let timed = [
        ("attention-speed", "Attention in bf16", &ATTENTION, "", &["torch"][..]),
        (
            "mixed",
            "Training steps under autocast in bf16",
            &MIXED,
            "--captured",
            &["torch", "torch-compile", "torch-graphs"],
        ),
    ];
    for (name, title, cases, captured, peers) in timed {
        let mut words = vec!["", "bench"];
        words.extend(cases.iter().copied());
        words.extend(["--backend", "cuda", "--patience", "200"]);
        words.extend(Some(captured).filter(|word| !word.is_empty()));
        let peers = planner.peers(peers);
        words.extend(peers.iter().flat_map(|peers| ["--against", peers]));
        planner.cuda(name, title, 8.0, &words);
    }
}
