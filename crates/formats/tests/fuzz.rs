//! A fuzzer for every reader: valid files are modified, opened and read; the result is written and read again. Nothing
//! may panic, hang or exhaust memory. For longer runs, with a limit on memory:
//!
//! ```text
//! cargo test -p polygrad-formats --test fuzz --no-run
//! (ulimit -v 1500000; POLYGRAD_FUZZ_SECONDS=3600 POLYGRAD_FUZZ_SEED=7 cargo test -p polygrad-formats --test fuzz)
//! ```

#[path = "common/mod.rs"]
mod common;

use std::fs;

use polygrad_formats::{TensorFile, save};
use polygrad_testing::fuzz::{self, Random, change_bytes, change_file};

/// A file and, if it is an archive checkpoint, its pickle: modified separately and packed again, the pickle passes the
/// checksums.
struct Seed {
    name: &'static str,
    bytes: Vec<u8>,
    pickle: Option<Vec<u8>>,
}

const FILES: [&str; 16] = [
    "checkpoint.pt",
    "checkpoint_protocol4.pt",
    "checkpoint_legacy.pt",
    "dtypes.pt",
    "views.pt",
    "legacy.pt",
    "module.pt",
    "sparse.pt",
    "one.npy",
    "stored.npz",
    "deflated.npz",
    "types.gguf",
    "types.gguf",
    "sharded/model-00001-of-00002.safetensors",
    "sharded/model-00002-of-00002.safetensors",
    "sharded/model.safetensors.index.json",
];

/// The pickle of an archive with uncompressed entries: from the end of the first entry's header to the next entry.
fn pickle(bytes: &[u8]) -> Option<Vec<u8>> {
    let name = bytes.windows(8).position(|window| window == b"data.pkl")?;
    let start = name
        + bytes[name..]
            .windows(2)
            .position(|window| matches!(window, [0x80, 2..=5]))?;
    let end = start + bytes[start..].windows(4).position(|window| window == b"PK\x07\x08")?;
    Some(bytes[start..end].to_vec())
}

fn change(seeds: &[Seed], random: &mut Random) -> (&'static str, Vec<u8>) {
    let seed = &seeds[random.below(seeds.len())];
    let other = &seeds[random.below(seeds.len())].bytes;
    if let Some(pickle) = &seed.pickle
        && random.below(4) > 0
    {
        let mut pickle = pickle.clone();
        (0..1 + random.below(2)).for_each(|_| change_bytes(&mut pickle, other, random));
        return ("checkpoint", common::checkpoint(&pickle));
    }
    let mut bytes = seed.bytes.clone();
    change_file(&mut bytes, other, random);
    (seed.name, bytes)
}

fn main() {
    let seeds: Vec<Seed> = FILES
        .into_iter()
        .map(|name| {
            let bytes = fs::read(common::data(name)).expect("a file of scripts/make_format_files.py");
            Seed {
                name,
                pickle: pickle(&bytes).filter(|_| bytes.starts_with(b"PK")),
                bytes,
            }
        })
        .collect();
    assert!(seeds.iter().filter(|seed| seed.pickle.is_some()).count() >= 6);
    let folder = tempfile::tempdir().expect("a temporary folder");
    for shard in ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"] {
        fs::copy(common::data(&format!("sharded/{shard}")), folder.path().join(shard)).expect("a temporary file");
    }
    let (path, copy) = (folder.path().join("changed"), folder.path().join("copy.pt"));
    let (mut opened, mut read) = (0u64, 0u64);
    fuzz::fuzz(
        "formats",
        |random| change(&seeds, random),
        |_, bytes| {
            fs::write(&path, bytes).expect("a temporary file");
            let Ok(file) = TensorFile::open(&path) else {
                return;
            };
            opened += 1;
            let names: Vec<String> = file.keys().map(str::to_owned).collect();
            // Dtypes and shapes are known before anything is read, and match the values read.
            for name in &names {
                let (info, host) = (file.info(name), file.read(name));
                if let Ok(host) = host {
                    let info = info.expect("what is read has a dtype");
                    assert_eq!((info.dtype, &info.shape), (host.dtype(), host.shape()));
                    assert!(host.bytes().len() <= (bytes.len() * 4096).max(1 << 27));
                }
            }
            let Ok(state) = file.state_dict() else {
                return;
            };
            read += 1;
            save(&copy, &state).expect("what was read is written");
            let again = TensorFile::open(&copy)
                .and_then(|file| file.state_dict())
                .expect("and read again");
            assert!(
                state
                    .iter()
                    .zip(again.iter())
                    .all(|((a, x), (b, y))| a == b && x.bytes() == y.bytes())
            );
            assert_eq!(state.len(), again.len());
        },
    );
    println!("{opened} were opened, {read} were read whole");
}
