//! A fuzzer that needs no nightly compiler: official cases and ONNX Runtime's are changed byte by byte and field by
//! field, loaded and run. Nothing may panic, hang or take all memory.
//!
//! `polygrad_testing::fuzz` documents how long it runs and with which seed. Longer, with a limit on memory:
//!
//! ```text
//! cargo test -p polygrad-onnx --test fuzz --no-run
//! (ulimit -v 1000000; POLYGRAD_FUZZ_SECONDS=3600 POLYGRAD_FUZZ_SEED=7 cargo test -p polygrad-onnx --test fuzz)
//! ```
//!
//! The same seed changes the same case in the same way.

mod wire;

use polygrad_cpu::Cpu;
use polygrad_onnx::graph::Graph;
use polygrad_onnx::{OnnxModel, Options, Value};
use polygrad_tensor::{Device, Result};
use polygrad_testing::fuzz::{self, Random};
use polygrad_testing::node_cases::{Archive, Case};

fn main() {
    let archive = Archive::read("node_cases.bin.gz").and(Archive::read("onnxruntime_cases.bin.gz"));
    let device = Device::<Cpu>::default().into_any();
    let (mut loaded, mut ran) = (0u64, 0u64);
    let pick = |random: &mut Random| &archive.cases[random.below(archive.cases.len())];
    fuzz::fuzz(
        "onnx",
        |random| {
            let (case, other) = (pick(random), &pick(random).model);
            (case, change(&case.model, other, random))
        },
        |case, bytes| {
            let (was_loaded, has_run) = try_out(&archive, case, bytes, &device);
            loaded += u64::from(was_loaded);
            ran += u64::from(has_run);
        },
    );
    println!("{loaded} were loaded and {ran} ran");
}

fn change(model: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = model.to_vec();
    for _ in 0..1 + random.below(3) {
        let at = random.below(bytes.len().max(1)).min(bytes.len().saturating_sub(1));
        match random.below(10) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at),
            2 => bytes.insert(at, random.below(256) as u8),
            3 => {
                let start = random.below(other.len());
                let end = (start + random.below(200)).min(other.len());
                bytes.splice(at..at, other[start..end].iter().copied());
            }
            _ => bytes = wire::mutate(&bytes, other, random, 0).unwrap_or(bytes),
        }
    }
    bytes
}

/// Whether the model was loaded, and whether it ran.
fn try_out(archive: &Archive, case: &Case, bytes: &[u8], device: &Device) -> (bool, bool) {
    let options = Options {
        max_tensor_bytes: 1 << 22,
        max_memory_bytes: 1 << 26,
        max_steps: 1 << 14,
        ..Options::default()
    };
    let Ok(graph) = Graph::from_bytes(bytes.to_vec()) else {
        return (false, false);
    };
    // A graph that was read can be written, and read again.
    if let Ok(bytes) = graph.to_bytes() {
        let again = Graph::from_bytes(bytes);
        assert!(again.is_ok(), "what was written is not read: {:?}", again.err());
    }
    let Ok(model) = OnnxModel::from_graph(&graph, device, options) else {
        return (false, false);
    };
    let names: Vec<String> = model.inputs().map(|(name, _)| name.to_owned()).collect();
    let ran = case.sets.first().is_some_and(|(inputs, _)| {
        let values: Result<Vec<Value>> = inputs.iter().map(|item| archive.value(item)).collect();
        values.is_ok_and(|values| model.run(names.into_iter().zip(values)).is_ok())
    });
    (true, ran)
}
