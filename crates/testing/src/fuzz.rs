//! Fuzzers of file readers, which change the bytes of files by a seed.
//!
//! A fuzzer runs for POLYGRAD_FUZZ_SECONDS (5 by default) from POLYGRAD_FUZZ_SEED (0). A file that makes the reader
//! panic or take too long is written to the temporary folder as `polygrad-fuzz-NAME-SEED`, and the program exits with
//! 1. If memory runs out, the program ends at once: the last seed is in `polygrad-fuzz-NAME-now`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::exit;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The longest time that one file may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A small generator. It only has to give the same numbers for the same seed.
pub struct Random(u64);

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
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// The seed and the bytes of the current file, and when it was started.
static NOW: Mutex<Option<(u64, Instant, Vec<u8>)>> = Mutex::new(None);

/// Makes files and tries them out until the time is over, and prints their number at the end.
pub fn fuzz<C>(
    name: &'static str,
    mut change: impl FnMut(&mut Random) -> (C, Vec<u8>),
    mut try_out: impl FnMut(&C, &[u8]),
) {
    let number = |name: &str, default: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let budget = Duration::from_secs(number("POLYGRAD_FUZZ_SECONDS", 5));
    let mut seed = number("POLYGRAD_FUZZ_SEED", 0);
    std::panic::set_hook(Box::new(|_| ()));
    std::thread::spawn(move || watch(name));
    let (start, mut runs) = (Instant::now(), 0u64);
    while start.elapsed() < budget {
        let (case, bytes) = change(&mut Random(seed));
        *NOW.lock().expect("nobody panics with the lock") = Some((seed, Instant::now(), bytes.clone()));
        let _ = std::fs::write(place(name, "now"), seed.to_string());
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| try_out(&case, &bytes))) {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            eprintln!("seed {seed} panicked: {text:?}; see {}", keep(name, seed, &bytes));
            exit(1);
        }
        runs += 1;
        seed = seed.wrapping_add(1);
    }
    let _ = std::fs::remove_file(place(name, "now"));
    println!("{runs} files; the next seed is {seed}");
}

/// Ends the program if a file takes too long.
fn watch(name: &str) {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let now = NOW.lock().expect("nobody panics with the lock").clone();
        if let Some((seed, since, bytes)) = now
            && since.elapsed() > PATIENCE
        {
            eprintln!(
                "seed {seed} takes longer than {PATIENCE:?}; see {}",
                keep(name, seed, &bytes)
            );
            exit(1);
        }
    }
}

fn place(name: &str, what: &str) -> PathBuf {
    std::env::temp_dir().join(format!("polygrad-fuzz-{name}-{what}"))
}

/// Keeps a file that caused a failure, and returns its path.
fn keep(name: &str, seed: u64, bytes: &[u8]) -> String {
    let path = place(name, &seed.to_string());
    let _ = std::fs::write(&path, bytes);
    path.display().to_string()
}

/// Changes bytes without knowledge of the format: flips bits, removes, inserts or copies pieces from another file, and
/// writes edge-case numbers.
pub fn change_bytes(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(bytes.len().max(1)).min(bytes.len().saturating_sub(1));
    match random.below(8) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
        1 => bytes.truncate(at),
        2 => bytes.insert(at, random.below(256) as u8),
        3 if !other.is_empty() => {
            let start = random.below(other.len());
            let end = (start + random.below(200)).min(other.len());
            bytes.splice(at..at, other[start..end].iter().copied());
        }
        4 => {
            let end = (at + random.below(32)).min(bytes.len());
            bytes.drain(at..end);
        }
        5 if !bytes.is_empty() => {
            // Replaces a character of a text.
            bytes[at] = b"0123456789-,:[]{}()'\" "[random.below(22)];
        }
        6 if !bytes.is_empty() => bytes[at] = [0, 1, 127, 128, 255][random.below(5)],
        _ => {
            let numbers: [u64; 6] = [0, 1, u64::from(u32::MAX), 1 << 40, i64::MAX as u64, u64::MAX];
            let number = numbers[random.below(6)].to_le_bytes();
            let width = [2, 4, 8][random.below(3)];
            for (byte, new) in bytes.iter_mut().skip(at).zip(&number[..width]) {
                *byte = *new;
            }
        }
    }
}

/// [`change_bytes`], once or twice, and half of the time at the start or the end of the file, where formats have their
/// headers and indices.
pub fn change_file(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..1 + random.below(2) {
        if random.below(2) == 0 && bytes.len() > 800 {
            let at = if random.below(2) == 0 { 0 } else { bytes.len() - 800 };
            let mut part: Vec<u8> = bytes[at..at + 800].to_vec();
            change_bytes(&mut part, other, random);
            bytes.splice(at..at + 800, part);
        } else {
            change_bytes(bytes, other, random);
        }
    }
}
