//! Files written by PyTorch, NumPy, safetensors and gguf, compared with their known contents.

use polygrad_formats::{Format, TensorFile, Value};
use polygrad_nn::StateDict;
use polygrad_tensor::{DType, ErrorKind, HostTensor};

use crate::common::data;

fn open(name: &str) -> TensorFile {
    TensorFile::open(data(name)).unwrap()
}

fn expected(name: &str) -> StateDict {
    StateDict::load(data(&format!("{name}.expected.safetensors"))).unwrap()
}

fn assert_same(name: &str, found: &HostTensor, wanted: &HostTensor) {
    let parts = |host: &HostTensor| (host.dtype(), host.shape().to_vec());
    assert_eq!(parts(found), parts(wanted), "{name}");
    assert_eq!(found.bytes(), wanted.bytes(), "{name}");
}

/// Compares each expected tensor with the one read, and its information with that given before.
fn holds(file: &TensorFile, wanted: &StateDict) {
    for (name, wanted) in wanted.iter() {
        let (info, found) = (file.info(name).unwrap(), file.read(name).unwrap());
        assert_same(name, &found, wanted);
        assert_eq!((info.dtype, &info.shape), (found.dtype(), found.shape()), "{name}");
    }
}

#[test]
fn pytorchs_files_have_pytorchs_values() {
    for (name, wanted, format) in [
        ("dtypes.pt", "dtypes", Format::PyTorch),
        ("views.pt", "views", Format::PyTorch),
        ("legacy.pt", "legacy", Format::PyTorchLegacy),
        ("checkpoint.pt", "checkpoint", Format::PyTorch),
        ("checkpoint_legacy.pt", "checkpoint", Format::PyTorchLegacy),
        ("checkpoint_protocol0.pt", "checkpoint", Format::PyTorch),
        ("checkpoint_protocol1.pt", "checkpoint", Format::PyTorch),
        ("checkpoint_protocol3.pt", "checkpoint", Format::PyTorch),
        ("checkpoint_protocol4.pt", "checkpoint", Format::PyTorch),
        ("checkpoint_protocol5.pt", "checkpoint", Format::PyTorch),
        ("checkpoint_legacy0.pt", "checkpoint", Format::PyTorchLegacy),
        ("checkpoint_legacy1.pt", "checkpoint", Format::PyTorchLegacy),
        ("checkpoint_legacy3.pt", "checkpoint", Format::PyTorchLegacy),
        ("checkpoint_legacy4.pt", "checkpoint", Format::PyTorchLegacy),
        ("checkpoint_legacy5.pt", "checkpoint", Format::PyTorchLegacy),
    ] {
        let (file, wanted) = (open(name), expected(wanted));
        assert_eq!(file.format(), format);
        assert_eq!(file.len(), wanted.len(), "{name}");
        holds(&file, &wanted);
        assert_eq!(file.state_dict().unwrap().len(), wanted.len());
        assert!(file.metadata().is_empty());
    }
}

#[test]
fn names_stand_in_the_files_order_and_say_what_is_stored() {
    let file = open("views.pt");
    let keys: Vec<&str> = file.keys().collect();
    assert_eq!(keys[..3], ["whole", "transposed", "column"]);
    assert_eq!(keys.len(), 13);
    let file = open("dtypes.pt");
    let info = file.info("uint16").unwrap();
    assert_eq!((info.dtype, info.stored.as_str()), (DType::I32, "u16"));
    let error = file.info("flaot32").unwrap_err().to_string();
    assert!(
        error.contains("has no tensor flaot32; perhaps float32 is meant"),
        "{error}"
    );
}

#[test]
fn what_is_no_tensor_is_skipped_by_name() {
    for name in [
        "checkpoint.pt",
        "checkpoint_legacy.pt",
        "checkpoint_legacy0.pt",
        "checkpoint_protocol0.pt",
        "checkpoint_protocol4.pt",
    ] {
        let file = open(name);
        let skipped: Vec<(&str, &str)> = file
            .skipped()
            .iter()
            .map(|s| (s.name.as_str(), s.what.as_str()))
            .collect();
        for wanted in [
            ("epoch", "3"),
            ("loss", "0.25"),
            ("note", "\"größer\""),
            ("nothing", "None"),
            ("large", "a large integer"),
            ("options", "refuses argparse.Namespace"),
            ("optimizer.param_groups", "a list of 1"),
        ] {
            assert!(skipped.contains(&wanted), "{name}: {wanted:?} is not in {skipped:?}");
        }
        assert!(file.keys().any(|key| key == "state_dict.bn.num_batches_tracked"));
        assert!(file.keys().any(|key| key == "optimizer.state.0.exp_avg"));
        assert!(file.keys().any(|key| key == "parameters.0"));
    }
}

#[test]
fn a_tensor_alone_has_a_name() {
    assert_eq!(
        open("one.pt").read("tensor").unwrap().to_f64_vec(),
        [0.0, 1.0, 2.0, 3.0]
    );
    let file = open("one.npy");
    assert_eq!((file.format(), file.len()), (Format::Npy, 1));
    let wanted: Vec<f64> = (0..12).map(f64::from).collect();
    let host = file.read("tensor").unwrap();
    assert_eq!(
        (host.dtype(), host.shape().dims(), host.to_f64_vec()),
        (DType::I64, &[3, 4][..], wanted)
    );
}

#[test]
fn tensors_that_only_code_gives_back_are_refused_by_name() {
    for (name, words) in [
        (
            "module.pt",
            [
                "refuses __main__.Net: it would make the whole file",
                "torch.save(model.state_dict(), path)",
            ],
        ),
        (
            "sparse.pt",
            ["tensor a: it is a sparse tensor", "call to_dense() before saving it"],
        ),
        ("script.pt", ["refuses __torch__.", "it is a TorchScript archive"]),
    ] {
        let error = TensorFile::open(data(name)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let text = error.to_string();
        assert!(words.iter().chain([&name]).all(|word| text.contains(word)), "{text}");
    }
}

#[test]
fn a_tensor_that_is_not_read_stops_no_other() {
    let file = open("foreign.pt");
    assert_eq!(file.keys().collect::<Vec<_>>(), ["w", "list.0"]);
    assert_eq!(file.read("w").unwrap().to_f64_vec(), [1.0, 1.0]);
    let left_out = file.skipped().iter().filter(|skipped| skipped.holds_tensors);
    let left_out: Vec<(&str, &str)> = left_out.map(|s| (s.name.as_str(), s.what.as_str())).collect();
    for (name, what) in [
        ("sparse", "it is a sparse tensor: call to_dense() before saving it"),
        ("csr", "it is a sparse tensor: call to_dense() before saving it"),
        (
            "quantized",
            "it is a quantized tensor: call dequantize() before saving it",
        ),
        (
            "conjugated",
            "it is negated or conjugated when it is read: call resolve_neg() or resolve_conj() before saving it",
        ),
        ("meta", "it is a tensor of the device meta, which has no values"),
        (
            "class",
            "it is a tensor of the class __main__.Own: call as_subclass(torch.Tensor) before saving it",
        ),
        ("list.1", "it is a sparse tensor: call to_dense() before saving it"),
        ("rank", "it is of rank 9, above the limit of 8"),
        (
            "large",
            "a view of [1048576, 1024] repeats 1 elements, more often than is read: call contiguous() before saving it",
        ),
    ] {
        assert!(left_out.contains(&(name, what)), "{name} is not in {left_out:?}");
    }
    let module = left_out.iter().find(|(name, _)| *name == "module").unwrap().1;
    assert!(
        module.contains("refuses __main__.Net: it would make module, in which tensors are")
            && module.contains("state_dict()"),
        "{module}"
    );
    assert_eq!(left_out.len(), 10);
    let conjugated = open("conjugated.pt");
    assert_eq!(conjugated.read("b").unwrap().to_f64_vec(), [1.0]);

    // These are known before reading, except for values that do not fit into an i64.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("u64.safetensors");
    let header = br#"{"u":{"dtype":"U64","shape":[1],"data_offsets":[0,8]},"w":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}}"#;
    let bytes = [
        &(header.len() as u64).to_le_bytes(),
        &header[..],
        &[0, 0, 0, 0, 0, 0, 0, 128, 7],
    ]
    .concat();
    std::fs::write(&path, bytes).unwrap();
    let file = TensorFile::open(&path).unwrap();
    let skipped = file.read_or_skip("u").unwrap().unwrap_err();
    assert!(
        skipped
            .what
            .starts_with("it holds the u64 9223372036854775808, and no i64 can hold that"),
        "{skipped:?}"
    );
    assert_eq!(file.read_or_skip("w").unwrap().unwrap().to_f64_vec(), [7.0]);
    let skipped = open("unknown.pt").read_or_skip("a").unwrap().unwrap_err();
    assert!(
        skipped.what.starts_with("its values are complex64, which no dtype"),
        "{skipped:?}"
    );
}

#[test]
fn what_no_dtype_holds_is_an_error_of_that_tensor_alone() {
    for (file, broken, what, sound) in [
        ("unknown.pt", "a", "complex64", "c"),
        ("unknown.pt", "b", "float8_e4m3fn", "c"),
        ("types.gguf", "IQ4_NL", "IQ4_NL", "F32"),
    ] {
        let file = open(file);
        assert!(file.read(sound).is_ok());
        for error in [file.read(broken).unwrap_err(), file.info(broken).unwrap_err()] {
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{text}");
            assert!(
                text.contains(what) && text.contains(&format!("tensor {broken}:")),
                "{text}"
            );
        }
        assert_eq!(file.state_dict().unwrap_err().kind(), ErrorKind::Unsupported);
    }
}

#[test]
fn shards_are_one_file() {
    let wanted = expected("sharded");
    for path in ["sharded", "sharded/model.safetensors.index.json"] {
        let file = open(path);
        assert_eq!(file.format(), Format::Sharded);
        assert_eq!(file.len(), wanted.len());
        holds(&file, &wanted);
        assert_eq!(file.metadata().get("format"), Some(&Value::Text("pt".into())));
    }
    let one = open("sharded/model-00001-of-00002.safetensors");
    assert_eq!((one.format(), one.len()), (Format::Safetensors, 2));
}

#[test]
fn numpys_archives_have_numpys_values() {
    let wanted = expected("stored");
    for name in ["stored.npz", "deflated.npz"] {
        let file = open(name);
        assert_eq!((file.format(), file.len()), (Format::Npz, wanted.len()));
        holds(&file, &wanted);
    }
}

#[test]
fn ggufs_types_are_ggmls_values() {
    let (file, wanted) = (open("types.gguf"), expected("types"));
    assert_eq!((file.format(), file.len()), (Format::Gguf, wanted.len() + 1));
    holds(&file, &wanted);
    assert_eq!(file.info("Q4_K").unwrap().stored, "Q4_K");
    for (name, bytes) in [("Q4_K", [2, 384]), ("Q6_K", [2, 768])] {
        let packed = file.read_packed(name).unwrap().unwrap();
        assert_eq!(packed.parts()[0].shape().dims(), bytes, "{name}");
    }
    assert!(file.read_packed("BF16").unwrap().is_none());
    let metadata = file.metadata();
    for (name, value) in [
        ("general.architecture", Value::Text("test".into())),
        ("n.u8", Value::UInt(200)),
        ("n.i8", Value::Int(-3)),
        ("n.u16", Value::UInt(60_000)),
        ("n.i16", Value::Int(-300)),
        ("n.u32", Value::UInt(4_000_000_000)),
        ("n.i32", Value::Int(-70_000)),
        ("n.f32", Value::Float(0.5)),
        ("n.bool", Value::Bool(true)),
        ("n.u64", Value::UInt(1 << 63)),
        ("n.i64", Value::Int(-(1 << 40))),
        ("n.f64", Value::Float(0.1)),
        ("n.text", Value::Text("größer".into())),
        (
            "tokens",
            Value::List(["a", "b", "c"].map(|text| Value::Text(text.into())).to_vec()),
        ),
        ("scores", Value::List([0.5, -1.0, 2.0].map(Value::Float).to_vec())),
    ] {
        assert_eq!(metadata.get(name), Some(&value), "{name}");
    }
    assert_eq!(metadata.get("ids").unwrap().as_list().unwrap().len(), 20);
    assert_eq!(metadata.get("ids").unwrap().to_string(), "[0, 1, 2, 3, 4, 5, 6, 7, …]");
}

#[test]
fn threads_read_one_file() {
    let file = open("views.pt");
    let wanted = expected("views");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| holds(&file, &wanted));
        }
    });
}
