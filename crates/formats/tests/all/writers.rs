//! Written files can be read again.

use polygrad_formats::{Format, GgufType, TensorFile, rewrite_gguf, save, save_with_metadata};
use polygrad_nn::StateDict;
use polygrad_tensor::{DType, HostTensor, Shape};

use crate::common::data;

fn state() -> StateDict {
    let tensor = |dims: &[usize], dtype| {
        let shape = Shape::new(dims).unwrap();
        let values = (0..shape.numel()).map(|i| i as f64 / 2.0).collect();
        HostTensor::new(shape, values).unwrap().cast(dtype)
    };
    let mut state: StateDict = DType::ALL
        .into_iter()
        .map(|dtype| (format!("layers.{dtype}"), tensor(&[2, 3], dtype)))
        .collect();
    state.insert("scalar", tensor(&[], DType::F32));
    state.insert("empty", tensor(&[0, 3], DType::F32));
    state.insert("größe", tensor(&[1], DType::F64));
    state
}

#[test]
fn what_is_saved_is_read_again_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let state = state();
    for (name, format) in [
        ("a.safetensors", Format::Safetensors),
        ("a.npz", Format::Npz),
        ("a.pt", Format::PyTorch),
        ("a.PTH", Format::PyTorch),
    ] {
        let path = folder.path().join(name);
        save(&path, &state).unwrap();
        let file = TensorFile::open(&path).unwrap();
        assert_eq!(file.format(), format);
        assert_eq!(file.len(), state.len());
        if format != Format::Safetensors {
            assert!(file.keys().eq(state.keys()), "{name}");
        }
        for (key, wanted) in state.iter() {
            let wanted = match (format, wanted.dtype()) {
                (Format::Npz, DType::BF16) => wanted.cast(DType::F32),
                _ => wanted.clone(),
            };
            let found = file.read(key).unwrap();
            assert_eq!(
                (found.dtype(), found.shape()),
                (wanted.dtype(), wanted.shape()),
                "{name} {key}"
            );
            assert_eq!(found.bytes(), wanted.bytes(), "{name} {key}");
        }
        assert!(file.skipped().is_empty());
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
}

/// PyTorch memory-maps storages at their position: `torch.load(path, mmap=True)`.
#[test]
fn values_begin_where_their_formats_have_them_begin() {
    let folder = tempfile::tempdir().unwrap();
    let state = state();
    for name in ["a.pt", "a.npz"] {
        let path = folder.path().join(name);
        save(&path, &state).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let number = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let mut at = 0;
        let mut entries = 0;
        while bytes[at..].starts_with(b"PK\x03\x04") {
            let start = at + 30 + number(at + 26) + number(at + 28);
            assert_eq!(start % 64, 0, "{name} at {at}");
            at = start + number(at + 18);
            entries += 1;
        }
        assert!(entries >= state.len());
    }
    let path = folder.path().join("a.safetensors");
    save(&path, &state).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    assert_eq!(length % 8, 0);
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    for (name, tensor) in header.as_object().unwrap() {
        let start = tensor["data_offsets"][0].as_u64().unwrap() as usize;
        let size = state.get(name).unwrap().dtype().size();
        assert_eq!(start % size, 0, "{name}");
    }
}

#[test]
fn texts_go_with_safetensors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let file = TensorFile::open(data("types.gguf")).unwrap();
    save_with_metadata(&path, &state(), file.metadata()).unwrap();
    let again = TensorFile::open(&path).unwrap();
    assert_eq!(again.metadata().get("n.text"), file.metadata().get("n.text"));
    assert_eq!(again.metadata().get("n.u8"), None);
}

#[test]
fn gguf_files_keep_all_but_what_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (data("types.gguf"), folder.path().join("a.gguf"));
    let file = TensorFile::open(&from).unwrap();
    let wanted = file.read("BF16").unwrap().cast(DType::F32);
    // What a type that is unknown here has is written anew; others stay.
    let of = |name: &str, kind| match name {
        "IQ4_NL" => Some((
            HostTensor::new(Shape::from([1, 32]), vec![0.5f32; 32]).unwrap(),
            GgufType::F32,
        )),
        "BF16" => Some((wanted.clone(), kind)),
        _ => None,
    };
    for (kind, stored, steps) in [
        (GgufType::F32, "f32", f64::INFINITY),
        (GgufType::F16, "f16", 2048.0),
        (GgufType::Q8_0, "Q8_0", 127.0),
        (GgufType::Q4_0, "Q4_0", 4.6),
    ] {
        rewrite_gguf(&from, &to, |name| Ok(of(name, kind))).unwrap();
        let again = TensorFile::open(&to).unwrap();
        assert!(again.keys().eq(file.keys()) && again.metadata() == file.metadata());
        assert_eq!(again.info("BF16").unwrap().stored, stored);
        let found = again.read("BF16").unwrap().to_f64_vec();
        for (found, wanted) in found.chunks(32).zip(wanted.to_f64_vec().chunks(32)) {
            let most = wanted.iter().fold(0.0f64, |most, x| most.max(x.abs()));
            for (found, wanted) in found.iter().zip(wanted) {
                assert!(
                    (found - wanted).abs() <= 0.6 * most / steps,
                    "{stored}: {found} for {wanted}"
                );
            }
        }
        assert_eq!(again.read("IQ4_NL").unwrap().to_f64_vec(), [0.5; 32]);
        for name in file.keys().filter(|name| !matches!(*name, "BF16" | "IQ4_NL")) {
            assert_eq!(again.info(name).unwrap(), file.info(name).unwrap());
            assert!(
                again.read(name).unwrap().bytes() == file.read(name).unwrap().bytes(),
                "{name}"
            );
        }
    }
    let whole = std::fs::read(&to).unwrap();
    let cut = folder.path().join("cut.gguf");
    std::fs::write(&cut, &whole[..whole.len() - 40]).unwrap();
    let short = HostTensor::new(Shape::from([2, 3]), vec![1f32; 6]).unwrap();
    let refused = |from: &std::path::Path, name: &str, new: Option<(HostTensor, GgufType)>, words: &str| {
        let error = rewrite_gguf(from, &to, |own| Ok(new.clone().filter(|_| own == name))).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(std::fs::read(&to).unwrap() == whole);
    };
    refused(&from, "", None, "tensor IQ4_NL: its values are IQ4_NL");
    refused(&cut, "", None, "its values");
    refused(
        &to,
        "BF16",
        Some((short.clone(), GgufType::F32)),
        "[2, 3] in the place of [2, 32]",
    );
    refused(&to, "F32", Some((short, GgufType::Q8_0)), "blocks of 32");
}

#[test]
fn what_cannot_be_written_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |name: &str, state: &StateDict| save(folder.path().join(name), state).unwrap_err().to_string();
    let text = refused("a.gguf", &state());
    assert!(
        text.contains("a.gguf") && text.contains(".safetensors, .npz, .pt or .pth"),
        "{text}"
    );
    assert!(refused("a", &state()).contains(".npz"));
    for name in ["../a", "/a", "a/../b", "a\\b", "c:a", ""] {
        let mut state = StateDict::new();
        state.insert(name, HostTensor::scalar(1f32));
        assert!(refused("a.npz", &state).contains("rename it"), "{name}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn numpy_and_pytorch_archives_may_hold_many_entries() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.npz");
    // More entries than a directory without 64-bit numbers can count.
    let state: StateDict = (0..66_000).map(|i| (format!("{i}"), HostTensor::scalar(i))).collect();
    save(&path, &state).unwrap();
    let file = TensorFile::open(&path).unwrap();
    assert_eq!(file.len(), 66_000);
    assert_eq!(file.read("65999").unwrap().to_f64_vec(), [65_999.0]);
}
