//! A fuzzer for safetensors files: valid files are modified and read, and the result is written and read again. Nothing
//! may panic, hang or exhaust memory. For longer runs, with a limit on memory:
//!
//! ```text
//! cargo test -p polygrad-nn --test fuzz --no-run
//! (ulimit -v 1000000; POLYGRAD_FUZZ_SECONDS=3600 POLYGRAD_FUZZ_SEED=7 cargo test -p polygrad-nn --test fuzz)
//! ```

use std::collections::BTreeMap;

use polygrad_nn::StateDict;
use polygrad_tensor::{DType, HostTensor, Shape};
use polygrad_testing::fuzz::{self, Random, change_bytes};

fn tensor(dims: &[usize], dtype: DType) -> HostTensor {
    let shape = Shape::new(dims).expect("a small shape");
    let values = (0..shape.numel()).map(|i| i as f64 / 3.0).collect();
    HostTensor::new(shape, values).expect("as many values").cast(dtype)
}

/// Valid files of every dtype, with and without metadata.
fn files() -> Vec<Vec<u8>> {
    let dtypes = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::BF16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::Bool,
    ];
    let one = |dtype| StateDict::from_iter([("weight".to_owned(), tensor(&[2, 3], dtype))]);
    let many: StateDict = dtypes
        .iter()
        .enumerate()
        .map(|(i, &dtype)| (format!("layers.{i}.weight"), tensor(&[i, 2], dtype)))
        .chain([("scalar".to_owned(), tensor(&[], DType::F32))])
        .collect();
    let metadata = BTreeMap::from([
        ("format".to_owned(), "pt".to_owned()),
        ("step".to_owned(), "7".to_owned()),
    ]);
    let states = dtypes.into_iter().map(one).chain([many, StateDict::default()]);
    let both = states.flat_map(|state| [state.to_bytes(&BTreeMap::new()), state.to_bytes(&metadata)]);
    both.collect::<Result<_, _>>().expect("plain names")
}

/// Modified files; about half still have a header of the length that they claim.
fn change(files: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = files[random.below(files.len())].clone();
    let other = &files[random.below(files.len())];
    let header = |bytes: &[u8]| {
        let length = bytes.first_chunk::<8>().map(|length| u64::from_le_bytes(*length));
        length
            .and_then(|length| usize::try_from(length).ok()?.checked_add(8))
            .filter(|end| *end <= bytes.len())
    };
    for _ in 0..1 + random.below(3) {
        match header(&bytes) {
            Some(end) if random.below(2) == 0 => {
                let mut inner = bytes[8..end].to_vec();
                change_bytes(&mut inner, other, random);
                bytes = [&(inner.len() as u64).to_le_bytes()[..], &inner, &bytes[end..]].concat();
            }
            _ => change_bytes(&mut bytes, other, random),
        }
    }
    bytes
}

fn main() {
    let files = files();
    let mut read = 0u64;
    fuzz::fuzz(
        "safetensors",
        |random| ((), change(&files, random)),
        |(), bytes| {
            let Ok((state, metadata)) = StateDict::from_bytes(bytes) else {
                return;
            };
            read += 1;
            let again = state
                .to_bytes(&metadata)
                .and_then(|bytes| StateDict::from_bytes(&bytes));
            let (again, texts) = again.expect("what was read is written and read again");
            assert_eq!(texts, metadata);
            let pairs = state.iter().zip(again.iter());
            assert!(state.iter().count() == again.iter().count());
            assert!(pairs.into_iter().all(
                |((a, x), (b, y))| a == b && (x.dtype(), x.shape(), x.bytes()) == (y.dtype(), y.shape(), y.bytes())
            ));
        },
    );
    println!("{read} were read");
}
