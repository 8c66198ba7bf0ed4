//! A fuzzer for `.npy` and `.npz` files: whole ones, changed, are read as inputs of `polygrad run` are. Nothing may panic, take for ever or
//! take more memory than the reader was allowed. For longer, with a limit on memory:
//!
//! ```text
//! cargo test -p polygrad-cli --test fuzz_arrays --no-run
//! (ulimit -v 1000000; POLYGRAD_FUZZ_SECONDS=3600 POLYGRAD_FUZZ_SEED=7 cargo test -p polygrad-cli --test fuzz_arrays)
//! ```

#[allow(dead_code, unused_imports, reason = "of the program, only the readers are tried out")]
#[path = "../../src/failure.rs"]
mod failure;
mod onnx;
mod run;
#[path = "../../../onnx/tests/fuzz/seeded.rs"]
mod seeded;

use std::fs;

use polygrad::backend::{DType, HostTensor, Shape};
use seeded::{Random, change_bytes};

/// The most bytes that an array may take.
const MAX_BYTES: usize = 1 << 24;

/// An array, its values 0 to 9 again and again.
fn array(dims: &[usize], dtype: DType) -> HostTensor {
    let shape = Shape::new(dims).expect("a small shape");
    let values = (0..shape.numel()).map(|i| (i % 10) as f64).collect();
    HostTensor::new(shape, values).expect("as many values").cast(dtype)
}

/// Several arrays in an archive, squeezed or not.
fn archive(arrays: &[(&str, HostTensor)], method: zip::CompressionMethod) -> Vec<u8> {
    use std::io::Write;
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, host) in arrays {
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        archive.start_file(format!("{name}.npy"), options).expect("memory");
        archive.write_all(&onnx::write(host)).expect("memory");
    }
    archive.finish().expect("memory").into_inner()
}

fn main() {
    let dtypes = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::Bool,
    ];
    let mut single: Vec<Vec<u8>> = dtypes
        .iter()
        .map(|&dtype| onnx::write(&array(&[2, 3], dtype)))
        .collect();
    single.push(onnx::write(&array(&[], DType::F32)));
    let mut columns = onnx::write(&array(&[3, 4, 2], DType::I32));
    let order = columns
        .windows(5)
        .position(|text| text == b"False")
        .expect("a header says its order");
    columns[order..order + 5].copy_from_slice(b"True ");
    single.push(columns);
    let several = [
        ("x", array(&[2, 3], DType::F32)),
        ("y/z", array(&[100, 100], DType::I64)),
        ("b", array(&[0, 4], DType::Bool)),
    ];
    let squeezed = [zip::CompressionMethod::Stored, zip::CompressionMethod::Deflated];
    let packed = squeezed.map(|method| archive(&several, method));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let change = |random: &mut Random| {
        let in_archive = random.below(2) == 0;
        let files = if in_archive {
            packed.as_slice()
        } else {
            single.as_slice()
        };
        let mut bytes = files[random.below(files.len())].clone();
        for _ in 0..1 + random.below(3) {
            change_bytes(&mut bytes, &files[random.below(files.len())], random);
        }
        (in_archive, bytes)
    };
    let mut read = 0u64;
    seeded::fuzz("arrays", change, |&in_archive, bytes| {
        let path = folder.path().join(if in_archive { "x.npz" } else { "x.npy" });
        fs::write(&path, bytes).expect("a temporary file");
        for name in ["x", "y/z"] {
            if let Some(host) = onnx::load(&path, name, MAX_BYTES) {
                read += 1;
                assert!(host.bytes().len() <= 8 * MAX_BYTES);
                // What was read can be written, and read again.
                let again = onnx::read(&onnx::write(&host), 8 * MAX_BYTES).expect("what was written is read");
                assert!((again.dtype(), again.shape(), again.bytes()) == (host.dtype(), host.shape(), host.bytes()));
            }
        }
    });
    println!("{read} were read");
}
