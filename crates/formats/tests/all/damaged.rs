//! Truncated, modified, and unrelated files give errors, and never a panic.

use std::fs;
use std::path::PathBuf;

use polygrad_formats::TensorFile;
use polygrad_tensor::{ErrorKind, HostTensor, Result};

use crate::common::{data, zip};

/// A folder with one file of these bytes.
struct Scene(tempfile::TempDir);

impl Scene {
    fn new(bytes: &[u8]) -> Self {
        let scene = Self(tempfile::tempdir().unwrap());
        fs::write(scene.path(), bytes).unwrap();
        scene
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("a.bin")
    }

    /// All tensors that are read.
    fn read(&self) -> Result<Vec<HostTensor>> {
        let file = TensorFile::open(self.path())?;
        let names: Vec<String> = file.keys().map(str::to_owned).collect();
        names.iter().map(|name| file.read(name)).collect()
    }
}

#[track_caller]
fn refused(bytes: &[u8], words: &str) {
    let text = Scene::new(bytes).read().unwrap_err().to_string();
    assert!(text.contains(words) && text.contains("a.bin"), "{text}");
}

#[test]
fn files_that_are_cut_anywhere_are_errors() {
    for name in [
        "one.npy",
        "one.pt",
        "stored.npz",
        "deflated.npz",
        "legacy.pt",
        "sharded/model-00001-of-00002.safetensors",
    ] {
        let whole = fs::read(data(name)).unwrap();
        for end in (0..whole.len()).step_by(1 + whole.len() / 400) {
            assert!(Scene::new(&whole[..end]).read().is_err(), "{name} cut at {end}");
        }
    }
    // The last bytes of this file are padding.
    let whole = fs::read(data("types.gguf")).unwrap();
    for end in (0..whole.len() - 32).step_by(97) {
        assert!(
            TensorFile::open(Scene::new(&whole[..end]).path()).is_err(),
            "cut at {end}"
        );
    }
}

#[test]
fn a_file_that_is_cut_after_it_was_opened_is_an_error() {
    let scene = Scene::new(&fs::read(data("legacy.pt")).unwrap());
    let file = TensorFile::open(scene.path()).unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(scene.path())
        .unwrap()
        .set_len(100)
        .unwrap();
    let error = file.read("whole").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("tensor whole: it ends too early"), "{error}");
}

#[test]
fn changed_values_in_an_archive_are_found() {
    for name in ["one.pt", "stored.npz", "deflated.npz"] {
        let mut bytes = fs::read(data(name)).unwrap();
        // 3.0 is the last value of the tensor; further cases are the values of an array, and a byte within deflated
        // data.
        let at = match name {
            "one.pt" => find(&bytes, &3f32.to_le_bytes()),
            "stored.npz" => find(&bytes, &11f32.to_le_bytes()),
            _ => bytes.len() / 4,
        };
        bytes[at] ^= 1;
        assert!(Scene::new(&bytes).read().is_err(), "{name}");
    }
}

fn find(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).position(|window| window == what).unwrap()
}

#[test]
fn files_of_other_kinds_are_said_to_be_such() {
    let known = "give a safetensors file, PyTorch's .pt, NumPy's .npy or .npz, or a GGUF file";
    refused(b"", "it is empty");
    refused(b"hello, world, hello", known);
    refused(b"\x80\x04]q\0.", "it is a pickle, and none that torch.save wrote");
    refused(b"FUGG\0\0\0\x03", "big-endian GGUF");
    refused(b"GGUF\0\0\0\x03", "big-endian GGUF");
    refused(b"GGUF\x01\0\0\0", "version 1 of GGUF");
    refused(b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull");
    for other in [&b"{}"[..], b"{", b"{\"x\": 1}\n{\"x\": 2}\n"] {
        refused(other, "has no weight_map");
        refused(other, known);
    }
    refused(b"{\"weight_map\": {", "it is no JSON");
    refused(b"{\"weight_map\": 3}", "its weight_map does not name");
    refused(&zip(&[("a.txt", b"a")]), "a zip archive of other things");
    refused(
        &zip(&[("a.npy", b"a"), ("a.npy", b"a")]),
        "two entries are called a.npy",
    );
    refused(&zip(&[("a.npy", b"a")]), "ends within its header");
    refused(&zip(&[("x/data.pkl", b"\x80\x02}.")]).repeat(2)[1..], known);
    let missing = TensorFile::open("missing.pt").unwrap_err();
    assert!(missing.to_string().contains("check that the path exists"), "{missing}");
    let folder = tempfile::tempdir().unwrap();
    let empty = TensorFile::open(folder.path()).unwrap_err().to_string();
    assert!(empty.contains("a folder without a .safetensors.index.json"), "{empty}");
    for name in ["a.safetensors", "b.safetensors"] {
        fs::copy(
            data("sharded/model-00001-of-00002.safetensors"),
            folder.path().join(name),
        )
        .unwrap();
    }
    let several = TensorFile::open(folder.path()).unwrap_err().to_string();
    assert!(
        several.contains("several models, such as a.safetensors and b.safetensors"),
        "{several}"
    );
}

#[test]
fn an_index_leads_to_files_beside_it_alone() {
    let folder = tempfile::tempdir().unwrap();
    let shard = "model-00001-of-00002.safetensors";
    fs::copy(data(&format!("sharded/{shard}")), folder.path().join(shard)).unwrap();
    let index = folder.path().join("model.safetensors.index.json");
    let open = |json: &str| {
        fs::write(&index, json).unwrap();
        TensorFile::open(folder.path())
    };
    for outside in ["../a.safetensors", "/etc/passwd", "a/b", "..", "c:a", "a\\b", ""] {
        let json = format!("{{\"weight_map\": {{\"w\": {outside:?}}}}}");
        let text = open(&json).unwrap_err().to_string();
        assert!(text.contains("which is no file beside it"), "{text}");
    }
    let text = open("{\"weight_map\": {\"w\": 3}}").unwrap_err().to_string();
    assert!(text.contains("w is in 3, which is no file"), "{text}");
    let text = open("{\"weight_map\": {\"w\": \"other.safetensors\"}}")
        .unwrap_err()
        .to_string();
    assert!(text.contains("other.safetensors: "), "{text}");
    let text = open(&format!("{{\"weight_map\": {{\"w\": {shard:?}}}}}"))
        .unwrap_err()
        .to_string();
    assert!(text.contains("tensor w is not in"), "{text}");
    let file = open(&format!("{{\"weight_map\": {{\"embed.weight\": {shard:?}}}}}")).unwrap();
    assert_eq!(file.keys().collect::<Vec<_>>(), ["embed.weight"]);
    assert_eq!(file.skipped()[0].name, "layers.0.weight");
    let nested = open("{\"weight_map\": {\"w\": \"model.safetensors.index.json\"}}").unwrap_err();
    assert!(
        nested.to_string().contains("an index where a shard should be"),
        "{nested}"
    );
    // Shards may be in any supported format.
    fs::copy(data("one.pt"), folder.path().join("pytorch_model.bin")).unwrap();
    let json = format!("{{\"weight_map\": {{\"tensor\": \"pytorch_model.bin\", \"embed.weight\": {shard:?}}}}}");
    let file = open(&json).unwrap();
    assert_eq!(file.read("tensor").unwrap().to_f64_vec(), [0.0, 1.0, 2.0, 3.0]);
    assert_eq!(file.read("embed.weight").unwrap().shape().dims(), [3, 2]);
}

/// A GGUF file with these counts and this rest.
fn gguf(tensors: u64, pairs: u64, rest: &[&[u8]]) -> Vec<u8> {
    let head = [
        b"GGUF\x03\0\0\0".to_vec(),
        tensors.to_le_bytes().to_vec(),
        pairs.to_le_bytes().to_vec(),
    ]
    .concat();
    [head, rest.concat()].concat()
}

fn text(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text].concat()
}

#[test]
fn counts_of_gguf_that_are_not_there_are_refused() {
    let many = u64::MAX.to_le_bytes();
    let info = |dims: &[u64], kind: u32, offset: u64| {
        let rank = (dims.len() as u32).to_le_bytes();
        let dims: Vec<u8> = dims.iter().flat_map(|dim| dim.to_le_bytes()).collect();
        gguf(
            1,
            0,
            &[
                &text(b"w"),
                &rank,
                &dims,
                &kind.to_le_bytes(),
                &offset.to_le_bytes(),
                &[0; 64],
            ],
        )
    };
    refused(&gguf(u64::MAX, 0, &[]), "items more than is read");
    refused(&gguf(0, 1 << 40, &[]), "items more than is read");
    refused(&gguf(0, 1, &[&many]), "a text of 18446744073709551615 bytes");
    refused(
        &gguf(0, 1, &[&text(b"k"), &[9, 0, 0, 0], &[0, 0, 0, 0], &many]),
        "metadata k: it would have",
    );
    refused(
        &gguf(0, 1, &[&text(b"k"), &[77, 0, 0, 0]]),
        "metadata k: it is of type 77",
    );
    let nested = [&[9u8, 0, 0, 0][..], &1u64.to_le_bytes()].concat().repeat(20);
    refused(&gguf(0, 1, &[&text(b"k"), &[9, 0, 0, 0], &nested]), "arrays in arrays");
    let alignment = text(b"general.alignment");
    refused(&gguf(0, 1, &[&alignment, &[4, 0, 0, 0], &[0; 4]]), "its alignment is 0");
    refused(&gguf(0, 1, &[&alignment, &[10, 0, 0, 0], &many]), "its alignment is");
    refused(&info(&[u64::MAX, u64::MAX], 0, 0), "tensor w: ");
    refused(&info(&[1 << 40], 0, 0), "tensor w: its values should begin");
    refused(&info(&[4], 0, u64::MAX), "tensor w: its values should begin");
    refused(&info(&[33], 2, 0), "rows of 33 values are not made of blocks of 32");
    refused(&info(&[1; 9], 0, 0), "its rank is 9");
    assert_eq!(
        Scene::new(&info(&[4, 2], 0, 0)).read().unwrap()[0].shape().dims(),
        [2, 4]
    );
}

#[test]
fn archives_that_lie_are_refused() {
    let whole = fs::read(data("stored.npz")).unwrap();
    let end = whole.len() - 22;
    let changed = |at: usize, bytes: &[u8]| {
        let mut file = whole.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    let directory = u32::from_le_bytes(whole[end + 16..][..4].try_into().unwrap()) as usize;
    refused(&changed(end + 10, &[255, 255]), "its directory");
    refused(&changed(end + 12, &[255; 4]), "its directory would have");
    refused(&changed(end + 16, &[0, 0, 0, 255]), "a.bin");
    refused(&changed(directory + 8, &[1, 0]), "is encrypted");
    refused(&changed(directory + 10, &[12, 0]), "compressed by method 12");
    refused(&changed(directory + 20, &[255, 255, 255, 0]), "has two sizes");
    refused(
        &changed(directory + 42, &[1, 0, 0, 0]),
        "is not where its directory says",
    );
    refused(&changed(30, b"x"), "is not where its directory says");
    // Deflated data must be exactly as long as the directory says.
    let deflated = fs::read(data("deflated.npz")).unwrap();
    let end = deflated.len() - 22;
    let directory = u32::from_le_bytes(deflated[end + 16..][..4].try_into().unwrap()) as usize;
    let mut short = deflated.clone();
    short[directory + 24..][..4].copy_from_slice(&140u32.to_le_bytes());
    refused(&short, "bytes of values");
    let mut long = deflated.clone();
    long[directory + 24..][..4].copy_from_slice(&0xffff_fff0u32.to_le_bytes());
    refused(&long, "which deflating cannot do");
}
