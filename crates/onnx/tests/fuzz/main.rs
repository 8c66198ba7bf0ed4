//! A fuzzer without a nightly compiler: official cases, changed byte by byte and field by field, loaded and run. Nothing may panic, take
//! for ever or take all memory.
//!
//! It runs for POLYGRAD_FUZZ_SECONDS (5 by default) from POLYGRAD_FUZZ_SEED (0). Longer, with a limit on memory:
//!
//! ```text
//! (ulimit -v 4000000; POLYGRAD_FUZZ_SECONDS=600 POLYGRAD_FUZZ_SEED=7 cargo test -p polygrad-onnx --test fuzz)
//! ```
//!
//! What breaks is written to the temporary folder as `polygrad-fuzz-SEED.onnx`, and the seed is named: the same seed changes the same case
//! in the same way.

// Of a case, only the model and the inputs matter here.
#[allow(dead_code)]
#[path = "../node_cases/suite/archive.rs"]
mod archive;
mod wire;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use archive::{Archive, Case};
use polygrad_cpu::Cpu;
use polygrad_onnx::graph::Graph;
use polygrad_onnx::{OnnxModel, Options, Value};
use polygrad_tensor::{Device, Result};

/// How long one file may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A small generator: what matters is that a seed always gives the same.
pub(crate) struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64. Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// The seed and the file that are being tried out, and since when.
static NOW: Mutex<Option<(u64, Instant, Vec<u8>)>> = Mutex::new(None);

/// Where the cases are.
fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn main() {
    let number = |name: &str, default: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let budget = Duration::from_secs(number("POLYGRAD_FUZZ_SECONDS", 5));
    let mut seed = number("POLYGRAD_FUZZ_SEED", 0);
    let archive = Archive::read("node_cases.bin.gz");
    let device = Device::<Cpu>::default().into_any();
    std::panic::set_hook(Box::new(|_| ()));
    std::thread::spawn(watch);
    let (start, mut runs, mut loaded, mut ran) = (Instant::now(), 0u64, 0u64, 0u64);
    while start.elapsed() < budget {
        let mut random = Random(seed);
        let case = &archive.cases[random.below(archive.cases.len())];
        let other = &archive.cases[random.below(archive.cases.len())].model;
        let bytes = change(&case.model, other, &mut random);
        *NOW.lock().expect("nobody panics with the lock") = Some((seed, Instant::now(), bytes.clone()));
        match catch_unwind(AssertUnwindSafe(|| try_out(&archive, case, &bytes, &device))) {
            Ok((was_loaded, has_run)) => {
                loaded += u64::from(was_loaded);
                ran += u64::from(has_run);
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                eprintln!(
                    "seed {seed}, from {}, panicked: {text:?}; see {}",
                    case.name,
                    keep(seed, &bytes)
                );
                exit(1);
            }
        }
        runs += 1;
        seed = seed.wrapping_add(1);
    }
    println!("{runs} files, of which {loaded} were loaded and {ran} ran; the next seed is {seed}");
}

/// Ends the program when a file takes too long.
fn watch() {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let now = NOW.lock().expect("nobody panics with the lock").clone();
        if let Some((seed, since, bytes)) = now
            && since.elapsed() > PATIENCE
        {
            eprintln!("seed {seed} takes longer than {PATIENCE:?}; see {}", keep(seed, &bytes));
            exit(1);
        }
    }
}

/// Writes a file that broke something where it can be looked at.
fn keep(seed: u64, bytes: &[u8]) -> String {
    let path = std::env::temp_dir().join(format!("polygrad-fuzz-{seed}.onnx"));
    let _ = std::fs::write(&path, bytes);
    path.display().to_string()
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
        max_steps: 1 << 14,
        ..Options::default()
    };
    let Ok(graph) = Graph::from_bytes(bytes.to_vec()) else {
        return (false, false);
    };
    // What was read can be written, and read again.
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
