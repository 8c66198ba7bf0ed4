//! Pickles that try to run code, or to use too much memory or time. None succeeds: the pickle machine cannot resolve
//! globals, so these tests check that each such pickle either is an error that names what it tried, or returns only
//! what is allowed.

use polygrad_formats::TensorFile;
use polygrad_tensor::{Error, Result};

use crate::common::{checkpoint, dict, int, sound, storage, tensor, text, zip};

/// What is read of a file with these bytes.
fn open(bytes: &[u8]) -> Result<TensorFile> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.pt");
    std::fs::write(&path, bytes).unwrap();
    TensorFile::open(&path)
}

#[track_caller]
fn refused(what: &str, bytes: &[u8], words: &str) {
    let error: Error = match open(bytes) {
        Ok(file) => panic!("{what} was read: {:?}", file.keys().collect::<Vec<_>>()),
        Err(error) => error,
    };
    let text = error.to_string();
    assert!(text.contains(words) && text.contains("hostile.pt"), "{what}: {text}");
}

/// A pickle consisting of these opcodes, with its end.
fn program(opcodes: &[&[u8]]) -> Vec<u8> {
    [&[&b"\x80\x04"[..]], opcodes, &[b"."]].concat().concat()
}

const PROC: &str = "/tmp/polygrad-was-here";

#[test]
fn calls_are_refused_by_name() {
    let command = text(&format!("touch {PROC}"));
    for (what, opcodes, words) in [
        (
            "REDUCE",
            [&b"cos\nsystem\n("[..], &command, b"tR"].concat(),
            "refuses os.system",
        ),
        (
            "posix",
            [&b"cposix\nsystem\n("[..], &command, b"tR"].concat(),
            "refuses posix.system",
        ),
        (
            "eval",
            [&b"cbuiltins\neval\n("[..], &command, b"tR"].concat(),
            "refuses builtins.eval",
        ),
        (
            "exec",
            [&b"c__builtin__\nexec\n("[..], &command, b"tR"].concat(),
            "refuses __builtin__.exec",
        ),
        (
            "a dotted name",
            [&b"cos\npath.os.system\n("[..], &command, b"tR"].concat(),
            "refuses os.path.os.system",
        ),
        (
            "a dotted name of PyTorch",
            [&b"ctorch\nserialization.os.system\n("[..], &command, b"tR"].concat(),
            "refuses torch.serialization.os.system",
        ),
        (
            "STACK_GLOBAL",
            [
                text("subprocess"),
                text("Popen"),
                b"\x93(".to_vec(),
                command.clone(),
                b"tR".to_vec(),
            ]
            .concat(),
            "refuses subprocess.Popen",
        ),
        (
            "NEWOBJ",
            [&b"csubprocess\nPopen\n("[..], &command, b"t\x81"].concat(),
            "refuses subprocess.Popen",
        ),
        (
            "NEWOBJ_EX",
            [&b"csubprocess\nPopen\n("[..], &command, b"t}\x92"].concat(),
            "refuses subprocess.Popen",
        ),
        (
            "NEWOBJ of a function that is known",
            b"ctorch._utils\n_rebuild_tensor_v2\n)\x81".to_vec(),
            "refuses torch._utils",
        ),
        (
            "INST",
            [&b"("[..], &command, b"ios\nsystem\n"].concat(),
            "refuses os.system",
        ),
        ("OBJ", [&b"(cos\nsystem\n"[..], &command, b"o"].concat(), "opcode OBJ"),
        (
            "getattr",
            [
                &b"cbuiltins\ngetattr\n(cos\npath\n"[..],
                &text("system"),
                b"tR(",
                &command,
                b"tR",
            ]
            .concat(),
            "refuses builtins.getattr",
        ),
        (
            "import",
            [&b"cbuiltins\n__import__\n("[..], &text("os"), b"tR"].concat(),
            "refuses builtins.__import__",
        ),
        (
            "a module's loader",
            [&b"ctorch\nload\n("[..], &text("other.pt"), b"tR"].concat(),
            "refuses torch.load",
        ),
        (
            "hub",
            [&b"ctorch.hub\nload\n("[..], &text("a/b"), b"tR"].concat(),
            "refuses torch.hub.load",
        ),
        (
            "BUILD",
            [&b"cfoo\nBar\n)\x81}"[..], &text("__setstate__"), b"cos\nsystem\nsb"].concat(),
            "refuses foo.Bar",
        ),
        (
            "BUILD of a global",
            [
                &b"ccollections\nOrderedDict\n}"[..],
                &text("__new__"),
                b"cos\nsystem\nsb",
            ]
            .concat(),
            "refuses collections.OrderedDict",
        ),
        (
            "an item of a global",
            [&b"cos\nenviron\n"[..], &text("A"), &text("B"), b"s"].concat(),
            "refuses os.environ",
        ),
        ("APPEND to a global", b"csys\npath\nK\x01a".to_vec(), "refuses sys.path"),
        (
            "ADDITEMS to a global",
            b"csys\npath\n(K\x01\x90".to_vec(),
            "refuses sys.path",
        ),
    ] {
        refused(what, &checkpoint(&program(&[&opcodes])), words);
    }
    assert!(!std::path::Path::new(PROC).exists());
}

#[test]
fn what_tensors_do_not_need_is_refused() {
    for (what, opcodes, words) in [
        ("EXT1", &b"\x82\x01"[..], "opcode EXT1"),
        ("EXT2", b"\x83\x01\0", "opcode EXT2"),
        ("EXT4", b"\x84\x01\0\0\0", "opcode EXT4"),
        ("PERSID", b"Pstorage\n", "a persistent id that is no storage"),
        (
            "PERSID of another class",
            b"P('storage', <class 'os.system'>, '0', 'cpu', 3)\n",
            "refuses os.system",
        ),
        ("NEXT_BUFFER", b"\x97", "opcode NEXT_BUFFER"),
        ("READONLY_BUFFER", b"N\x98", "opcode READONLY_BUFFER"),
        ("GET of nothing", b"g0\n", "did not put there"),
        ("PUT of nothing", b"p0\n", "more from its stack"),
        ("PUT at no number", b"Np-1\n", "a number that is none"),
        ("STRING without quotes", b"Sa\n", "a text that cannot be read"),
        ("STRING of half a quote", b"S'\n", "a text that cannot be read"),
        ("UNICODE of half an escape", b"V\\u12\n", "a text that cannot be read"),
        ("UNICODE of a surrogate", b"V\\ud800\n", "a text that cannot be read"),
        ("FLOAT", b"F1.0.0\n", "a number that is none"),
        ("no opcode", b"\xff", "0xff"),
        ("a call of a number", b"K\x01)R", "calls 1"),
        ("a call of a list", b"])R", "calls a list of 0"),
        ("a call with no tuple", b"cos\nsystem\n]R", "what is no tuple"),
        ("a global of numbers", b"K\x01K\x02\x93", "no text"),
        ("a call's name from a call", b"cfoo\nbar\n)R)R", "refuses foo.bar"),
        ("an item of a number", b"K\x01K\x02K\x03s", "an item of 1"),
        ("an append to a tuple", b")K\x02a", "appends to a tuple"),
        ("attributes of a list", b"]}b", "attributes of a list"),
        ("an odd number of items", b"}(K\x01u", "key without a value"),
        ("nothing", b"", "more from its stack than is there"),
        ("POP of nothing", b"0", "more from its stack"),
        ("DUP of nothing", b"2", "more from its stack"),
        ("TUPLE3 of two", b"NN\x87", "more from its stack"),
        ("TUPLE2 over a mark", b"N(N\x86", "more from its stack"),
        ("TUPLE without a mark", b"t", "a mark that it did not set"),
        ("an empty place of the memo", b"h\x07", "did not put there"),
        ("MEMOIZE of nothing", b"\x94", "more from its stack"),
        ("a protocol to come", b"\x80\x06", "protocol 6"),
        ("a number that is none", b"Ix\n", "a number that is none"),
        ("a text that is none", b"X\x01\0\0\0\xff", "not UTF-8"),
        ("a global that is none", b"c\xff\n\n", "not UTF-8"),
    ] {
        refused(what, &checkpoint(&program(&[opcodes])), words);
    }
}

#[test]
fn lengths_that_are_not_there_are_refused() {
    for (what, opcodes) in [
        ("LONG4", &b"\x8b\xff\xff\xff\x7f\x01"[..]),
        ("LONG1", b"\x8a\xff\x01"),
        ("BINUNICODE", b"X\xff\xff\xff\xff"),
        ("BINUNICODE8", b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff"),
        ("BINBYTES8", b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f"),
        ("BYTEARRAY8", b"\x96\0\0\0\0\0\x01\0\0"),
        ("BINSTRING", b"T\xff\xff\xff\x7f"),
        ("SHORT_BINBYTES", b"C\xff"),
        ("a line without an end", b"cos"),
        ("no end", b"]]]"),
    ] {
        let pickle = [b"\x80\x04", opcodes].concat();
        refused(what, &checkpoint(&pickle), "its pickle ends too early");
    }
}

#[test]
fn bombs_are_refused() {
    // A list that contains the list before twice, repeatedly: 2⁶⁰ tensors.
    let double = b"q\x00(h\x00h\x00l".repeat(60);
    refused(
        "a memo bomb",
        &checkpoint(&program(&[&sound(), &double])),
        "it has more than 1048576 values",
    );
    // As many names, each of them long.
    let long = text(&"x".repeat(1 << 16));
    let longer = [&b"q\x00}"[..], &long, b"h\x00s"].concat().repeat(40);
    let wide = [&b"q\x01("[..], &b"h\x01".repeat(2000), b"l"].concat();
    refused(
        "long names",
        &checkpoint(&program(&[&sound(), &longer, &wide])),
        "or names of more than",
    );
    let deep = b"q\x00(h\x00l".repeat(100_000);
    refused(
        "a deep nest",
        &checkpoint(&program(&[&sound(), &deep])),
        "more than 64 deep",
    );
    let deep = [&b"(".repeat(100_000)[..], &sound(), &b"t".repeat(100_000)].concat();
    refused("deep tuples", &checkpoint(&program(&[&deep])), "more than 64 deep");
    refused(
        "a list in itself",
        &checkpoint(&program(&[b"]q\x00", &sound(), b"ah\x00a"])),
        "more than 64 deep",
    );
    refused(
        "many lists",
        &checkpoint(&program(&[&b"]".repeat(5_000_000)])),
        "more than 4194304 parts",
    );
    refused(
        "many marks",
        &checkpoint(&program(&[&b"(".repeat(5_000_000)])),
        "more than 4194304 parts",
    );
    refused(
        "many copies",
        &checkpoint(&program(&[b"N", &b"2".repeat(5_000_000)])),
        "more than 4194304 parts",
    );
    refused(
        "much memo",
        &checkpoint(&program(&[b"N", &b"\x94".repeat(5_000_000)])),
        "more than 4194304 parts",
    );
    let sizes = [b"(".to_vec(), b"K\x01".repeat(1_000_000), b"lq\x00".to_vec()].concat();
    let calls = b"ccollections\nOrderedDict\n(h\x00tR".repeat(100);
    refused(
        "an OrderedDict of numbers",
        &checkpoint(&program(&[&sizes, &calls])),
        "no pairs",
    );
    let calls = b"cfoo\nbar\n)R"
        .to_vec()
        .into_iter()
        .chain(b")R".repeat(200_000))
        .collect::<Vec<u8>>();
    refused("calls of calls", &checkpoint(&program(&[&calls])), "refuses foo.bar");
    refused(
        "a large pickle",
        &checkpoint(&vec![b'N'; (1 << 26) + 1]),
        "at most 67108864 are read",
    );
}

#[test]
fn tensors_outside_of_their_storage_are_refused() {
    let floats = |count| storage("FloatStorage", "0", count);
    let reads = |offset, size: &[i64], stride: &[i64]| dict("w", &tensor(&floats(4), offset, size, stride));
    for (what, pickle, words) in [
        ("an offset", reads(1, &[4], &[1]), "not within its storage of 4"),
        ("a size", reads(0, &[5], &[1]), "not within its storage of 4"),
        ("a stride", reads(0, &[2, 2], &[3, 1]), "not within its storage of 4"),
        (
            "a stride that overflows",
            reads(0, &[3, 1], &[i64::MAX, 1]),
            "not within its storage of 4",
        ),
        (
            "an offset that overflows",
            reads(i64::MAX, &[4], &[1]),
            "not within its storage of 4",
        ),
        ("a negative offset", reads(-1, &[4], &[1]), "-1 where a size"),
        ("a negative stride", reads(3, &[4], &[-1]), "-1 where a size"),
        ("a negative size", reads(0, &[-4], &[1]), "-4 where a size"),
        (
            "sizes that overflow",
            reads(0, &[i64::MAX, i64::MAX], &[0, 0]),
            "more elements than memory can address",
        ),
        ("a view that repeats", reads(0, &[1 << 40], &[0]), "repeats 4 elements"),
        ("a high rank", reads(0, &[1; 9], &[1; 9]), "rank 9"),
        ("strides that lack", reads(0, &[2, 2], &[1]), "more or fewer strides"),
        (
            "a storage that lacks",
            dict("w", &tensor(&storage("FloatStorage", "1", 4), 0, &[4], &[1])),
            "storage 1 is missing",
        ),
        (
            "a path for a storage",
            dict("w", &tensor(&storage("FloatStorage", "../version", 4), 0, &[4], &[1])),
            "is missing",
        ),
        (
            "a storage that is short",
            dict("w", &tensor(&floats(5), 0, &[4], &[1])),
            "and has 16 bytes",
        ),
        (
            "a storage without end",
            dict("w", &tensor(&floats(i64::MAX), 0, &[4], &[1])),
            "and has 16 bytes",
        ),
        (
            "a storage below nothing",
            dict("w", &tensor(&floats(-4), 0, &[4], &[1])),
            "-4 where a size",
        ),
        (
            "wider elements",
            dict("w", &tensor(&storage("DoubleStorage", "0", 4), 0, &[4], &[1])),
            "and has 16 bytes",
        ),
        (
            "a storage of no dtype",
            dict("w", &tensor(&storage("UntypedStorage", "0", 16), 0, &[4], &[1])),
            "another dtype than its storage",
        ),
        (
            "a class that is no storage",
            dict("w", &storage("load", "0", 4)),
            "refuses torch.load",
        ),
        ("an id that is no tuple", dict("w", b"K\x01Q"), "no storage"),
        ("an id that is short", dict("w", b"(K\x01tQ"), "no storage"),
        (
            "an id of a module",
            dict(
                "w",
                &[b"(".to_vec(), text("module"), b"cos\nsystem\nNNNtQ".to_vec()].concat(),
            ),
            "no storage",
        ),
        (
            "no storage",
            dict("w", &tensor(b"N", 0, &[4], &[1])),
            "without a storage",
        ),
        (
            "a tensor for a storage",
            dict("w", &tensor(&sound(), 0, &[4], &[1])),
            "without a storage",
        ),
        (
            "a parameter without a tensor",
            dict("w", b"ctorch._utils\n_rebuild_parameter\n(N\x88NtR"),
            "parameter without a tensor",
        ),
    ] {
        refused(what, &checkpoint(&pickle), words);
    }
    let part = |start, length| {
        let id = storage("FloatStorage", "0", 4);
        let part = [b"(".to_vec(), text("p"), int(start), int(length), b"ttQ".to_vec()].concat();
        dict("w", &tensor(&[&id[..id.len() - 2], &part].concat(), 0, &[2], &[1]))
    };
    assert_eq!(open_values(&part(1, 2)), [2.0, 3.0]);
    refused("a part of a storage", &checkpoint(&part(3, 2)), "outside of it");
    refused(
        "a part that overflows",
        &checkpoint(&part(i64::MAX, i64::MAX)),
        "outside of it",
    );
}

fn open_values(pickle: &[u8]) -> Vec<f64> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sound.pt");
    std::fs::write(&path, checkpoint(pickle)).unwrap();
    TensorFile::open(&path).unwrap().read("w").unwrap().to_f64_vec()
}

#[test]
fn views_that_overlap_are_gathered() {
    let floats = storage("FloatStorage", "0", 4);
    let overlapping = dict("w", &tensor(&floats, 0, &[3, 2], &[1, 1]));
    assert_eq!(open_values(&overlapping), [1.0, 2.0, 2.0, 3.0, 3.0, 4.0]);
    assert_eq!(open_values(&dict("w", &tensor(&floats, 3, &[2, 2], &[0, 0]))), [4.0; 4]);
    assert_eq!(open_values(&dict("w", &tensor(&floats, 9, &[0], &[1]))), [0.0; 0]);
}

#[test]
fn what_tensors_are_reached_without_stays_unrun() {
    let weight = [text("w"), sound(), b"s".to_vec()].concat();
    let call = [&text("x")[..], b"cos\nsystem\n(", &text("id"), b"tRs"].concat();
    let file = open(&checkpoint(&program(&[b"}", &weight, &call]))).unwrap();
    assert_eq!(file.keys().collect::<Vec<_>>(), ["w"]);
    let skipped: Vec<(&str, &str)> = file
        .skipped()
        .iter()
        .map(|s| (s.name.as_str(), s.what.as_str()))
        .collect();
    assert_eq!(skipped, [("x", "refuses os.system")]);

    // But it is refused if a tensor is passed to it, set in it, or is its key.
    let within =
        |what, opcodes: &[&[u8]]| refused(what, &checkpoint(&program(opcodes)), "refuses foo.Bar: it would make");
    within("an argument", &[b"}", &text("x"), b"cfoo\nBar\n(", &sound(), b"tRs"]);
    within(
        "an item",
        &[b"}", &text("x"), b"cfoo\nBar\n)\x81", &text("k"), &sound(), b"ss"],
    );
    within("an element", &[b"}", &text("x"), b"cfoo\nBar\n)\x81(", &sound(), b"es"]);
    within("a state", &[b"}", &text("x"), b"cfoo\nBar\n)\x81}", &weight, b"bs"]);
    within(
        "an argument of what it gave",
        &[b"}", &text("x"), b"cfoo\nBar\n)R(", &sound(), b"tRs"],
    );
    within(
        "a storage",
        &[
            b"}",
            &text("x"),
            b"cfoo\nBar\n(",
            &storage("FloatStorage", "0", 4),
            b"tRs",
        ],
    );
    refused(
        "an attribute of a dict",
        &checkpoint(&program(&[b"}}", &weight, b"b"])),
        "attributes of a dict",
    );
    refused(
        "a tensor under None",
        &checkpoint(&program(&[b"}N", &sound(), b"s"])),
        "a key that is no text",
    );
    let colliding = [
        &b"}"[..],
        &text("a.b"),
        &sound(),
        b"s",
        &text("a"),
        b"}",
        &text("b"),
        &sound(),
        b"ss",
    ]
    .concat();
    refused(
        "one name twice",
        &checkpoint(&program(&[&colliding])),
        "two of its tensors are called a.b",
    );
    // As in Python, the last item of a key counts.
    let twice = [&b"}"[..], &text("w"), b"K\x01s", &weight].concat();
    assert_eq!(open(&checkpoint(&program(&[&twice]))).unwrap().len(), 1);
}

#[test]
fn names_cannot_steer_a_terminal() {
    refused(
        "a global",
        &checkpoint(&program(&[b"ca\x1b[2J\nb\n)R"])),
        "refuses a\\u{1b}[2J.b",
    );
    let name = "w\u{1b}[2J\n";
    refused(
        "a tensor",
        &checkpoint(&dict(name, &tensor(&storage("FloatStorage", "0", 4), 1, &[4], &[1]))),
        "tensor w\\u{1b}[2J\\n",
    );
}

#[test]
fn big_endian_checkpoints_are_refused() {
    let pickle = dict("w", &sound());
    let bytes = zip(&[("x/data.pkl", &pickle), ("x/byteorder", b"big"), ("x/data/0", &[0; 16])]);
    refused("an archive", &bytes, "big-endian");
    let magic = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
    let system = [&b"\x80\x02}"[..], &text("little_endian"), b"\x89s."].concat();
    let old = |version: &[u8]| [&magic[..], version, &system, b"\x80\x02}.\x80\x02]."].concat();
    refused("an old file", &old(b"\x80\x02M\xe9\x03."), "big-endian");
    refused("another version", &old(b"\x80\x02K\x07."), "of version 7 of the format");
}
