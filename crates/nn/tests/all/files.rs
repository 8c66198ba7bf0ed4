//! Safetensors files and checkpoints: written files are read back, and damaged ones give helpful errors.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use polygrad_nn::optim::*;
use polygrad_nn::*;
use polygrad_reference::Reference;
use polygrad_tensor::{DType, Device, ErrorKind, HostTensor, Shape, Tensor, bf16, f16};
use safetensors::SafeTensors;
use serde_json::json;

fn all_dtypes() -> StateDict {
    let mut state = StateDict::new();
    let shape = Shape::from([3]);
    state.insert("bool", HostTensor::new(shape, vec![true, false, true]).unwrap());
    state.insert("u8", HostTensor::new(shape, vec![0u8, 7, 255]).unwrap());
    state.insert("i32", HostTensor::new(shape, vec![i32::MIN, 0, i32::MAX]).unwrap());
    state.insert("i64", HostTensor::new(shape, vec![i64::MIN, 0, i64::MAX]).unwrap());
    state.insert(
        "f16",
        HostTensor::new(shape, [1.5, -0.0, 65504.0].map(f16::from_f64).to_vec()).unwrap(),
    );
    state.insert(
        "bf16",
        HostTensor::new(shape, [1.5, f64::INFINITY, -3.0].map(bf16::from_f64).to_vec()).unwrap(),
    );
    state.insert(
        "f32",
        HostTensor::new(shape, vec![f32::MIN_POSITIVE, -1.0, f32::MAX]).unwrap(),
    );
    state.insert("f64", HostTensor::new(shape, vec![f64::NAN, 0.1, f64::MAX]).unwrap());
    state.insert("scalar", HostTensor::scalar(2.5f32));
    state.insert(
        "empty",
        HostTensor::new(Shape::from([2, 0]), Vec::<f32>::new()).unwrap(),
    );
    state
}

fn assert_same(a: &StateDict, b: &StateDict) {
    assert_eq!(a.len(), b.len());
    for (name, value) in a.iter() {
        let other = b.get(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(
            (value.dtype(), value.shape(), value.bytes()),
            (other.dtype(), other.shape(), other.bytes()),
            "{name}"
        );
    }
}

#[test]
fn every_dtype_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.safetensors");
    let metadata = BTreeMap::from([
        ("format".to_owned(), "pt".to_owned()),
        ("a".to_owned(), "\"b\"\n".to_owned()),
    ]);
    all_dtypes().save_with_metadata(&path, &metadata).unwrap();
    let (state, found) = StateDict::load_with_metadata(&path).unwrap();
    assert_same(&all_dtypes(), &state);
    assert_eq!(found, metadata);
    assert_eq!(DType::ALL.len(), 8);

    // The reference implementation also reads it, and finds every value aligned.
    let bytes = fs::read(&path).unwrap();
    let theirs = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(theirs.len(), all_dtypes().len());
    for (name, value) in all_dtypes().iter() {
        let view = theirs.tensor(name).unwrap();
        assert_eq!(
            (view.shape(), view.data()),
            (value.shape().dims(), value.bytes()),
            "{name}"
        );
        let offset = view.data().as_ptr() as usize - bytes.as_ptr() as usize;
        assert!(offset.is_multiple_of(value.dtype().size()), "{name}");
    }
    assert_eq!(
        bytes,
        all_dtypes().to_bytes(&metadata).unwrap(),
        "the same state gives the same file"
    );
}

#[test]
fn files_of_the_reference_implementation_are_read() {
    let state = all_dtypes();
    let own = state.to_bytes(&BTreeMap::new()).unwrap();
    let views = SafeTensors::deserialize(&own).unwrap();
    let theirs = safetensors::serialize(views.tensors(), None).unwrap();
    assert_same(&StateDict::from_bytes(&theirs).unwrap().0, &state);
}

/// A byte of the values of a file that has texts; without the checksum, any values are accepted.
#[test]
fn changed_values_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.safetensors");
    let texts = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    all_dtypes().save_with_metadata(&path, &texts).unwrap();
    let whole = fs::read(&path).unwrap();
    let values = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    for at in values..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let error = StateDict::load(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Format, "{at}: {error}");
        assert!(error.to_string().contains("all.safetensors"), "{error}");
    }
    // Another program dropped the texts, or never wrote any.
    let bytes = SafeTensors::deserialize(&whole).unwrap();
    let bare = safetensors::serialize(bytes.tensors(), None).unwrap();
    assert_same(&StateDict::from_bytes(&bare).unwrap().0, &all_dtypes());
    let mut bare = all_dtypes().to_bytes(&BTreeMap::new()).unwrap();
    *bare.last_mut().unwrap() ^= 1;
    StateDict::from_bytes(&bare).unwrap();
}

/// Neither a cut nor a flipped byte may cause a panic or allocate more than the file's size; a cut is always detected.
#[test]
fn damage_is_an_error() {
    let bytes = all_dtypes()
        .to_bytes(&BTreeMap::from([("k".to_owned(), "v".to_owned())]))
        .unwrap();
    for len in 0..bytes.len() {
        let error = StateDict::from_bytes(&bytes[..len]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Format, "{len}: {error}");
    }
    let mut found = 0;
    for i in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xFF] {
            let mut bytes = bytes.clone();
            bytes[i] ^= flip;
            found += usize::from(StateDict::from_bytes(&bytes).is_err());
        }
    }
    // Flips in names and values give another valid file.
    assert!(found > bytes.len(), "{found} of {}", bytes.len() * 3);
    let mut long = bytes;
    long.push(0);
    assert!(
        StateDict::from_bytes(&long)
            .unwrap_err()
            .to_string()
            .contains("announces")
    );
}

fn with_header(header: &str, values: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), values].concat()
}

#[test]
fn wrong_files_are_named_with_what_and_fix() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let huge = r#"{"a":{"dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,8]}}"#;
    let large = r#"{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}"#;
    let deep = r#"{"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}}"#;
    let overlap =
        r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}"#;
    let gap = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
    let short = r#"{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}"#;
    let unknown = r#"{"a":{"dtype":"F7","shape":[1],"data_offsets":[0,1]}}"#;
    let twice =
        r#"{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let complex = r#"{"z":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}}"#;
    let bad_bool = r#"{"flag":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}"#;
    let cases: [(&str, Vec<u8>, &[&str]); 14] = [
        ("empty", Vec::new(), &["has 0 bytes", "save it again"]),
        (
            "text",
            b"This is no tensor file, just some text.".to_vec(),
            &["more than the format allows"],
        ),
        (
            "cut",
            with_header(large, b"")[..40].to_vec(),
            &["ends inside its header"],
        ),
        ("json", with_header("{\"a\":", b""), &["header is not valid"]),
        ("huge", with_header(huge, &[0; 8]), &["header is not valid"]),
        (
            "large",
            with_header(large, &[0; 8]),
            &["announces 4000000000000 bytes of values, there are 8"],
        ),
        ("deep", with_header(deep, &[0]), &["tensor a", "rank 9"]),
        (
            "overlap",
            with_header(overlap, &[0; 3]),
            &["header is not valid", "tensor b has the values from 1 to 3"],
        ),
        ("gap", with_header(gap, &[0; 2]), &["header is not valid", "tensor a"]),
        (
            "short",
            with_header(short, &[0]),
            &["of F4 and shape [3] cannot have 1 bytes"],
        ),
        (
            "unknown",
            with_header(unknown, &[0]),
            &["tensor a has the unknown dtype F7"],
        ),
        ("twice", with_header(twice, &[0]), &["tensor a is there twice"]),
        (
            "complex",
            with_header(complex, &[0; 8]),
            &["tensor z", "C64", "convert it"],
        ),
        ("bool", with_header(bad_bool, &[9]), &["tensor flag", "save it again"]),
    ];
    for (name, bytes, parts) in cases {
        let path = dir.join(name);
        fs::write(&path, bytes).unwrap();
        let text = StateDict::load(&path).unwrap_err().to_string();
        for part in [&[path.to_str().unwrap()], parts].concat() {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
        assert!(Checkpoint::load(&path).is_err());
    }
    let text = StateDict::load(dir).unwrap_err().to_string();
    assert!(text.contains("is not a file"), "{text}");
    let text = StateDict::load(dir.join("absent")).unwrap_err().to_string();
    assert!(
        text.contains("absent") && text.contains("check that the path exists"),
        "{text}"
    );
    let text = all_dtypes().save(dir.join("no/such/folder")).unwrap_err().to_string();
    assert!(
        text.contains("no/such/folder") && text.contains("check that the path exists"),
        "{text}"
    );
    let mut reserved = StateDict::new();
    reserved.insert("__metadata__", HostTensor::scalar(1u8));
    assert!(reserved.save(dir.join("reserved")).is_err());
}

fn model() -> Linear<Reference> {
    Linear::new(2, 1, &Device::default()).unwrap()
}

#[test]
fn a_file_for_another_model_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.safetensors");
    Linear::<Reference>::new(3, 1, &Device::default())
        .unwrap()
        .save(&path)
        .unwrap();
    let text = model().load(&path).unwrap_err().to_string();
    assert!(
        text.contains("other.safetensors") && text.contains("module f32[1, 2], state dict f32[1, 3]"),
        "{text}"
    );
}

#[test]
fn checkpoints_come_back_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.safetensors");
    let model = model();
    let optimizer = Adam::new(model.parameters(), 0.1).unwrap();
    let config = json!({"lr": 0.1, "name": "ß \"quoted\"", "list": [1, 2.5e-308, null]});
    polygrad_tensor::manual_seed(u64::MAX);
    let written = Checkpoint::new(&model, &optimizer, u64::MAX)
        .unwrap()
        .with_config(config.clone());
    written.save(&path).unwrap();
    let read = Checkpoint::load(&path).unwrap();
    assert_same(&written.model, &read.model);
    assert_same(&written.optimizer, &read.optimizer);
    assert_eq!(
        (read.step, read.generator, read.config),
        (u64::MAX, written.generator, config)
    );
}

#[test]
fn a_changed_byte_is_never_resumed_from() {
    let model = model();
    let mut optimizer = Adam::new(model.parameters(), 0.1).unwrap();
    let x = Tensor::ones([1, 2], &Device::<Reference>::default()).unwrap();
    optimizer
        .backward_step(model.forward(&x).unwrap().sum_all().unwrap())
        .unwrap();
    let written = Checkpoint::new(&model, &optimizer, 12345)
        .unwrap()
        .with_config(json!({"lr": 0.1}));
    let whole = written.to_bytes().unwrap();
    let again = |bytes: &[u8]| Checkpoint::from_bytes(bytes).and_then(|read| read.to_bytes());
    let content = again(&whole).unwrap();
    let mut accepted = 0;
    for at in 0..whole.len() {
        for bit in [0x01, 0x40, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= bit;
            if let Ok(read) = again(&bytes) {
                // Only the checksum's own name is not covered; without it, the file is one of an earlier version.
                assert!(read == content, "byte {at}");
                accepted += 1;
            }
        }
    }
    assert!(accepted < 60, "{accepted}");
    let mut bytes = whole.clone();
    *bytes.last_mut().unwrap() ^= 1;
    let error = Checkpoint::from_bytes(&bytes).unwrap_err().to_string();
    assert!(
        error.contains("another checksum") && error.contains("take an earlier copy"),
        "{error}"
    );
}

#[test]
fn what_is_no_checkpoint_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let check = |path: &Path, part: &str| {
        let error = Checkpoint::load(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Format);
        let text = error.to_string();
        assert!(text.contains(part) && text.contains(path.to_str().unwrap()), "{text}");
    };
    let weights = folder.path().join("weights.safetensors");
    model().save(&weights).unwrap();
    check(&weights, "StateDict::load");
    let state = model().state_dict().unwrap();
    for (record, part) in [
        ("{", "not valid"),
        (
            r#"{"version":9,"step":0,"seed":0,"offset":0,"config":null}"#,
            "version 9",
        ),
    ] {
        let path = folder.path().join("broken.safetensors");
        let metadata = BTreeMap::from([("polygrad".to_owned(), record.to_owned())]);
        state.save_with_metadata(&path, &metadata).unwrap();
        check(&path, part);
    }
}
