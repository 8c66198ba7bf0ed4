//! `polygrad export`, `run` and `show`: a trained model as a file, and its uses.

use std::io::Write;

use crate::common::{Ended, Scene};
use polygrad_onnx::graph::{Attribute, Body, Dim, ElementType, Graph, Node, ValueType};

/// A scene with a run, `run`, and its model as `m.onnx`.
fn exported() -> Scene {
    let scene = Scene::new();
    scene.train("run", "--model cnn --epochs 1 --batch-size 16");
    let out = scene.ok("export run --onnx m.onnx");
    assert!(out.contains("m.onnx: the cnn of run, opset 20"), "{out}");
    scene
}

/// A `.npy` file of f32 in row-major order.
fn npy(shape: &str, values: &[f32]) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.bytes());
    file.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    file
}

/// The summary line of the output `name`.
fn line(text: &str, name: &str) -> String {
    let found = text.lines().find(|line| line.starts_with(&format!("{name}: ")));
    found.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
}

#[test]
fn an_exported_model_runs_from_files_and_on_random_numbers() {
    let scene = exported();
    let pixels: Vec<f32> = (0..2 * 64).map(|i| (i as f32 / 20.0).sin()).collect();
    scene.write("x.npy", &npy("(2, 1, 8, 8)", &pixels));
    let out = scene.ok("run m.onnx --input images=x.npy --output y.npz --time 3");
    assert!(line(&out, "logits").contains("f32[2, 4]"), "{out}");
    assert!(out.contains("3 runs on cpu: median"), "{out}");
    // The written file can be read: as an input of this name, or as the only array.
    let file = scene.read("y.npz");
    assert!(file.starts_with(b"PK"));
    scene.fails("run m.onnx --input images=y.npz", &["input \"images\"", "[2, 4]"]);
    let a = scene.ok("run m.onnx --input images=random --dim batch=3");
    assert!(line(&a, "logits").contains("f32[3, 4]"), "{a}");
    assert_eq!(a, scene.ok("run m.onnx --input images=random --dim batch=3"));
}

#[test]
fn engines_agree_or_say_what_they_need() {
    let scene = exported();
    let native = line(&scene.ok("run m.onnx --input images=random --dim batch=2"), "logits");
    for engine in ["ort", "rten"] {
        let command = format!("run m.onnx --input images=random --dim batch=2 --engine {engine} --threads 1 --time 1");
        let ended: Ended = scene.run(&command);
        if ended.code == Some(0) {
            let numbers =
                |line: &str| -> Vec<f64> { line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect() };
            let other = line(&ended.stdout, "logits");
            for (a, b) in numbers(&native).into_iter().zip(numbers(&other)) {
                assert!((a - b).abs() < 1e-4, "{native}\n{other}");
            }
            assert!(ended.stdout.contains("1 runs on "), "{}", ended.stdout);
        } else {
            let text = scene.fails(&command, &[]);
            assert!(text.contains("cargo"), "{text}");
        }
    }
    let mut without = scene.command("run m.onnx --input images=random --engine ort");
    let ended: Ended = without
        .env("ORT_DYLIB_PATH", "/nowhere/libonnxruntime.so")
        .output()
        .unwrap()
        .into();
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("\n  fix: "), "{}", ended.stderr);
    if cfg!(feature = "ort") {
        assert!(ended.stderr.contains("/nowhere/libonnxruntime.so"), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("cargo xtask setup onnxruntime"),
            "{}",
            ended.stderr
        );
    }
    scene.fails("run m.onnx --engine tract", &["\"tract\"", "native, ort, rten"]);
}

#[test]
fn show_tells_of_every_kind() {
    let scene = exported();
    let onnx = scene.ok("show m.onnx --dim batch=2");
    for words in [
        "op sets: ai.onnx 20",
        "input images: float[batch, 1, 8, 8]",
        "output logits: float[batch, 4]",
        "2 Conv",
    ] {
        assert!(onnx.contains(words), "{words}: {onnx}");
    }
    assert!(
        onnx.contains("FLOPs with batch 2") && !onnx.contains("without"),
        "{onnx}"
    );
    let run = scene.ok("show run");
    assert!(
        run.contains("cnn on bars: images of 1 × 8 × 8") && run.contains("FLOPs with every named dimension 1"),
        "{run}"
    );
    let state = scene.ok("show run/model.safetensors");
    assert!(
        state.contains("0.weight: f32[16, 1, 3, 3]") && state.contains("parameters"),
        "{state}"
    );
    scene.fails("show nowhere.onnx", &["nowhere.onnx"]);
    scene.fails("show data", &["data holds no run"]);
    scene.write("x.txt", b"text");
    scene.fails("show x.txt", &["x.txt", ".safetensors"]);
}

#[test]
fn bad_requests_say_what_and_what_to_do() {
    let scene = exported();
    for (command, words) in [
        ("run m.onnx", &["\"images\" is missing"][..]),
        ("run m.onnx --input x=random", &["no input \"x\"", "images"]),
        (
            "run m.onnx --input images=random",
            &["how large batch is", "--dim batch=N"],
        ),
        (
            "run m.onnx --input images=random --input images=random --dim batch=1",
            &["given twice"],
        ),
        ("run m.onnx --input images=m.onnx", &["no file of tensors does"]),
        ("run m.onnx --input images=none.npy", &["none.npy"]),
        (
            "run m.onnx --input images=random --dim batch=1 --output y.npy",
            &["y.npy", ".npz"],
        ),
        ("run m.onnx --backend gpu", &["no backend named \"gpu\""]),
        ("export run --onnx n.onnx --opset 19", &["19", "17"]),
        (
            "export run --onnx n.onnx --dynamic batch,seq",
            &["\"seq\"", "--dynamic batch"],
        ),
        ("export data --onnx n.onnx", &["holds no run"]),
    ] {
        scene.fails(command, words);
    }
    assert_eq!(scene.run("run m.onnx --input images").code, Some(2));
    assert_eq!(scene.run("run m.onnx --dim batch").code, Some(2));
    scene.ok("export run --onnx n.onnx --fixed --opset 17");
    let out = scene.ok("show n.onnx");
    assert!(
        out.contains("ai.onnx 17") && out.contains("images: float[1, 1, 8, 8]"),
        "{out}"
    );
}

/// A model in the scene's folder: one node on an input `x` of a type, with outputs of these names.
fn model(scene: &Scene, file: &str, op: &str, dims: Vec<Dim>, outputs: &[&str], attributes: Vec<(String, Attribute)>) {
    let mut body = Body {
        name: "g".into(),
        ..Body::default()
    };
    let ty = ValueType::tensor(ElementType::F32, dims);
    let x = body.add_value("x", Some(ty.clone()));
    body.inputs = vec![x];
    for name in outputs {
        let y = match body.values.iter().position(|value| value.name == *name) {
            Some(known) => polygrad_onnx::graph::ValueId(known as u32),
            None => {
                let y = body.add_value(*name, Some(ty.clone()));
                body.nodes.push(Node {
                    op_type: op.into(),
                    inputs: vec![Some(x)],
                    outputs: vec![Some(y)],
                    attributes: attributes.clone(),
                    ..Node::default()
                });
                y
            }
        };
        body.outputs.push(y);
    }
    let graph = Graph {
        opsets: [(String::new(), 20)].into(),
        body,
        ..Graph::default()
    };
    graph.save(scene.path(file)).unwrap();
}

fn named(names: &[&str]) -> Vec<Dim> {
    names.iter().map(|name| Dim::Named((*name).into())).collect()
}

#[test]
fn what_a_model_may_take_is_said_on_the_command_line() {
    let scene = Scene::new();
    model(&scene, "m.onnx", "Exp", named(&["n"]), &["y", "z"], Vec::new());
    scene.fails(
        "run m.onnx --input x=random --dim n=1000000000000",
        &["\"x\" would take 4000000000000 bytes", "--max-memory"],
    );
    let small = "run m.onnx --input x=random --dim n=1000000 --max-memory 5MB";
    let text = scene.fails(small, &["node", "(Exp)", "5000000", "--max-memory"]);
    assert!(!text.contains("Options::"), "{text}");
    scene.ok("run m.onnx --input x=random --dim n=1000000 --max-memory 10MB");
    let text = scene.fails("run m.onnx --input x=random --dim n=2 --max-steps 1", &["--max-steps"]);
    assert!(!text.contains("Options::"), "{text}");
    assert_eq!(scene.run("run m.onnx --max-memory lots").code, Some(2));
    scene.fails("run m.onnx --input x=random --dim n=2 --dim n=3", &["--dim n", "twice"]);
    scene.fails(
        "run m.onnx --input x=random --dim m=2",
        &["no extent \"m\"", "it names n"],
    );
}

#[test]
fn extents_of_show_are_1_where_none_is_given() {
    let scene = Scene::new();
    model(&scene, "m.onnx", "Exp", named(&["n", "seq+1"]), &["y"], Vec::new());
    let out = scene.ok("show m.onnx");
    assert!(out.contains("2 FLOPs with every named dimension 1"), "{out}");
    let out = scene.ok("show m.onnx --dim n=5");
    assert!(
        out.contains("10 FLOPs with n 5, every other named dimension 1"),
        "{out}"
    );
    let out = scene.ok("show m.onnx --dim n=5 --dim seq=9");
    assert!(out.contains("50 FLOPs with n 5, seq 9\n"), "{out}");
    scene.fails("show m.onnx --dim foo=3", &["no extent \"foo\"", "n, seq"]);
    let out = scene.ok("show m.onnx --dim n=4294967296 --dim seq=8589934591");
    assert!(out.contains("3.689e19 FLOPs"), "{out}");
}

#[test]
fn no_name_of_a_file_does_harm() {
    let scene = Scene::new();
    let name = "../../../x";
    model(
        &scene,
        "slip.onnx",
        "Identity",
        named(&["n"]),
        &[name, "a/b"],
        Vec::new(),
    );
    scene.ok("run slip.onnx --input x=random --dim n=3 --output y.npz");
    let mut archive = zip::ZipArchive::new(std::fs::File::open(scene.path("y.npz")).unwrap()).unwrap();
    let entries: Vec<String> = (0..2)
        .map(|i| archive.by_index(i).unwrap().name().unwrap().into_owned())
        .collect();
    assert_eq!(entries, ["%2E%2E%2F%2E%2E%2F%2E%2E%2Fx.npy", "a/b.npy"]);
    model(&scene, "two.onnx", "Exp", named(&["n"]), &["dup", "dup"], Vec::new());
    scene.ok("run two.onnx --input x=random --dim n=3");
    let text = scene.fails(
        "run two.onnx --input x=random --dim n=3 --output z.npz",
        &["\"dup\"", "z.npz"],
    );
    assert!(!text.contains("Zip") && !scene.path("z.npz").exists(), "{text}");
    let wild = "y\u{1b}[2J\nerror: no";
    model(&scene, "wild.onnx", "Exp", named(&[wild]), &[wild], Vec::new());
    for command in [
        "show wild.onnx",
        "run wild.onnx --input x=random",
        "run wild.onnx --input x=wild.onnx",
    ] {
        let ended = scene.run(command);
        let text = ended.stdout + &ended.stderr;
        assert!(
            !text.contains('\u{1b}') && !text.contains("\nerror: no"),
            "{command}: {text}"
        );
    }
}

#[test]
fn inputs_are_read_as_far_as_they_say() {
    let scene = Scene::new();
    model(&scene, "m.onnx", "Exp", named(&["n"]), &["y"], Vec::new());
    // A folder whose name has a `=`.
    std::fs::create_dir(scene.path("lr=0.1")).unwrap();
    scene.write("lr=0.1/x.npy", &npy("(2,)", &[1.0, 2.0]));
    scene.ok("run m.onnx --input x=lr=0.1/x.npy");
    scene.fails("run m.onnx --input z=lr=0.1/x.npy", &["no input \"z\""]);
    let pack = |arrays: &[(&str, &[u8])]| {
        let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for (name, content) in arrays {
            archive
                .start_file(*name, zip::write::SimpleFileOptions::default())
                .unwrap();
            archive.write_all(content).unwrap();
        }
        archive.finish().unwrap().into_inner()
    };
    let mut bomb = npy("(2,)", &[1.0, 2.0]);
    bomb.resize(32 << 20, 0);
    scene.write("bomb.npz", &pack(&[("x.npy", &bomb)]));
    assert!(scene.read("bomb.npz").len() < 1 << 20);
    // Data after the values are not unpacked.
    scene.ok("run m.onnx --input x=bomb.npz");
    scene.write("cut.npz", &pack(&[("x.npy", &npy("(1000000000000,)", &[1.0]))]));
    scene.fails("run m.onnx --input x=cut.npz", &["cut.npz", "has 4 bytes of values"]);
    scene.fails("run m.onnx --input x=bomb.npz --max-memory 7", &["--max-memory"]);
    scene.write("none.npz", &pack(&[]));
    scene.fails("run m.onnx --input x=none.npz", &["holds no arrays"]);
    if cfg!(unix) {
        scene.fails("run m.onnx --input x=/dev/zero", &["/dev/zero", "it is not a file"]);
        let made = std::process::Command::new("mkfifo")
            .arg(scene.path("pipe.npy"))
            .status();
        if made.is_ok_and(|status| status.success()) {
            scene.fails("run m.onnx --input x=pipe.npy", &["pipe.npy", "it is not a file"]);
        }
    }
}

#[test]
fn texts_maps_and_sequences_become_arrays() {
    let scene = Scene::new();
    let mut body = Body {
        name: "g".into(),
        ..Body::default()
    };
    let ty = ValueType::tensor(ElementType::F32, vec![Dim::Named("n".into()), Dim::Fixed(2)]);
    let x = body.add_value("x", Some(ty));
    let [label, scores, maps, parts] = ["label", "scores", "maps", "parts"].map(|name| body.add_value(name, None));
    let mut call = |op: &str, domain: &str, input, outputs: &[_], attributes| {
        body.nodes.push(Node {
            op_type: op.into(),
            domain: domain.into(),
            inputs: vec![Some(input)],
            outputs: outputs.iter().copied().map(Some).collect(),
            attributes,
            ..Node::default()
        });
    };
    let labels = Attribute::Strings(vec!["größer".into(), "no".into()]);
    let labels = ("classlabels_strings".to_owned(), labels);
    let coefficients = ("coefficients".to_owned(), Attribute::Floats(vec![1.0, 0.0, 0.0, 1.0]));
    let given = vec![labels.clone(), coefficients];
    call("LinearClassifier", "ai.onnx.ml", x, &[label, scores], given);
    call("ZipMap", "ai.onnx.ml", scores, &[maps], vec![labels]);
    call("SplitToSequence", "", x, &[parts], Vec::new());
    body.inputs = vec![x];
    body.outputs = vec![label, maps, parts];
    let graph = Graph {
        opsets: [(String::new(), 18), ("ai.onnx.ml".into(), 3)].into(),
        body,
        ..Graph::default()
    };
    graph.save(scene.path("m.onnx")).unwrap();
    scene.write("x.npy", &npy("(2, 2)", &[2.0, 1.0, 0.0, 3.0]));
    let out = scene.ok("run m.onnx --input x=x.npy --output y.npz");
    for (name, says) in [
        ("label", "string[2]  größer, no"),
        ("maps", "f32[2, 2]"),
        ("maps.keys", "string[2]  größer, no"),
        ("parts.0", "f32[1, 2]  1.000000 to 2.000000"),
        ("parts.1", "f32[1, 2]  0.000000 to 3.000000"),
    ] {
        assert!(line(&out, name).contains(says), "{out}");
    }
    let file = scene.read("y.npz");
    let has = |wanted: &[u8]| file.windows(wanted.len()).any(|found| found == wanted);
    let wide = |text: &str| {
        text.chars()
            .flat_map(|c| u32::from(c).to_le_bytes())
            .collect::<Vec<_>>()
    };
    assert!(has(b"maps.keys.npy") && has(b"parts.1.npy") && has(b"'descr': '<U6'"));
    assert!(has(&wide("größerno\0\0\0\0")));
}

#[test]
fn fixes_fit_what_is_wrong() {
    let scene = Scene::new();
    let mut body = Body {
        name: "g".into(),
        ..Body::default()
    };
    let shape = polygrad::Shape::from([600]);
    let w = body.add_initializer("w", polygrad::tensor::HostTensor::new(shape, vec![1f32; 600]).unwrap());
    body.outputs = vec![w];
    let graph = Graph {
        opsets: [(String::new(), 20)].into(),
        body,
        ..Graph::default()
    };
    let options = polygrad_onnx::graph::SaveOptions {
        external_data: Some(true),
        ..Default::default()
    };
    graph.save_with(scene.path("m.onnx"), options).unwrap();
    scene.ok("show m.onnx");
    let text = scene.fails("show m.onnx --max-memory 1kB", &["\"w\"", "--max-memory"]);
    assert!(
        !text.contains("export it anew") && !text.contains("Options::"),
        "{text}"
    );
    std::fs::remove_file(scene.path("m.onnx.data")).unwrap();
    for command in ["show m.onnx", "run m.onnx"] {
        let text = scene.fails(command, &["m.onnx.data"]);
        assert!(!text.contains("export it anew"), "{text}");
        assert_eq!(text.matches("module").count(), 1, "{text}");
    }
    scene.write("w.npy", &npy("(2,)", &[1.0, 2.0]));
    model(&scene, "wide.onnx", "Exp", named(&["n"]), &["y"], Vec::new());
    let mut double = b"\x93NUMPY\x01\x00".to_vec();
    let header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }\n";
    double.extend((header.len() as u16).to_le_bytes());
    double.extend(header.bytes().chain([0; 8]));
    scene.write("double.npy", &double);
    let text = scene.fails("run wide.onnx --input x=double.npy", &["f64 was given"]);
    assert!(!text.contains("to_dtype"), "{text}");
}

/// One node for each output, on the input `x` of type f32[n].
fn casts(scene: &Scene, file: &str, outputs: &[ElementType]) {
    let mut body = Body::default();
    let ty = |element| Some(ValueType::tensor(element, named(&["n"])));
    let x = body.add_value("x", ty(ElementType::F32));
    body.inputs = vec![x];
    for &element in outputs {
        let y = body.add_value(element.name(), ty(element));
        body.nodes.push(Node {
            op_type: "Cast".into(),
            inputs: vec![Some(x)],
            outputs: vec![Some(y)],
            attributes: vec![("to".into(), Attribute::Int(element.number().into()))],
            ..Node::default()
        });
        body.outputs.push(y);
    }
    let graph = Graph {
        opsets: [(String::new(), 23)].into(),
        body,
        ..Graph::default()
    };
    graph.save(scene.path(file)).unwrap();
}

#[test]
fn outputs_are_written_as_the_types_that_the_file_declares() {
    use ElementType::*;
    // NumPy's type names, and the bytes of 1 and −2, or of what −2 becomes.
    let written: [(ElementType, &str, &[u8]); 17] = [
        (I8, "|i1", &[1, 254]),
        (I16, "<i2", &[1, 0, 254, 255]),
        (I32, "<i4", &[1, 0, 0, 0, 254, 255, 255, 255]),
        (
            I64,
            "<i8",
            &[1, 0, 0, 0, 0, 0, 0, 0, 254, 255, 255, 255, 255, 255, 255, 255],
        ),
        (U8, "|u1", &[1, 254]),
        (U16, "<u2", &[1, 0, 254, 255]),
        (U32, "<u4", &[1, 0, 0, 0, 254, 255, 255, 255]),
        (Bool, "|b1", &[1, 1]),
        (F16, "<f2", &[0, 0x3c, 0, 0xc0]),
        (BF16, "<V2", &[0x80, 0x3f, 0, 0xc0]),
        (F32, "<f4", &[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]),
        (F64, "<f8", &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0xc0]),
        (F8E4M3Fn, "|V1", &[0x38, 0xc0]),
        (F8E5M2, "|V1", &[0x3c, 0xc0]),
        (I4, "|i1", &[1, 254]),
        (U4, "|u1", &[1, 14]),
        (F4E2M1, "<f4", &[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]),
    ];
    let scene = Scene::new();
    casts(&scene, "m.onnx", &written.map(|(element, ..)| element));
    scene.write("x.npy", &npy("(2,)", &[1.0, -2.0]));
    let out = scene.ok("run m.onnx --input x=x.npy --output y.npz");
    assert!(line(&out, "int8").contains("int8[2]  -2"), "{out}");
    assert!(line(&out, "bfloat16").contains("bf16[2]"), "{out}");
    let archive = scene.read("y.npz");
    for (element, descr, values) in written {
        let name = format!("{}.npy", element.name());
        let find = |from: usize, text: &[u8]| {
            archive[from..]
                .windows(text.len())
                .position(|part| part == text)
                .unwrap()
                + from
        };
        let header = find(find(0, name.as_bytes()), b"{'descr': '");
        let end = find(header, b"\n") + 1;
        let header = std::string::String::from_utf8_lossy(&archive[header..end]);
        assert!(header.starts_with(&format!("{{'descr': '{descr}'")), "{name}: {header}");
        assert_eq!(&archive[end..end + values.len()], values, "{name}");
    }
    // The written file can be used as an input.
    for (element, wrong) in [(I8, None), (BF16, None), (U32, Some("int64"))] {
        let ty = wrong.unwrap_or(element.name());
        let mut body = Body::default();
        let x = body.add_value(ty, Some(ValueType::tensor(element, named(&["n"]))));
        (body.inputs, body.outputs) = (vec![x], vec![x]);
        let graph = Graph {
            opsets: [(std::string::String::new(), 23)].into(),
            body,
            ..Graph::default()
        };
        graph.save(scene.path("again.onnx")).unwrap();
        let command = format!("run again.onnx --input {ty}=y.npz");
        match wrong {
            None => assert!(line(&scene.ok(&command), ty).contains("[2]  -2")),
            Some(_) => drop(scene.fails(&command, &["-2 is no uint32", "from 0 to 4294967295"])),
        }
    }
}

#[test]
fn an_input_with_a_default_is_given_or_left_out() {
    let scene = Scene::new();
    let mut body = Body::default();
    let ty = Some(ValueType::tensor(ElementType::F32, named(&["n"])));
    let (x, w, y) = (
        body.add_value("x", ty.clone()),
        body.add_value("w", ty.clone()),
        body.add_value("y", ty),
    );
    (body.inputs, body.outputs) = (vec![x, w], vec![y]);
    body.nodes.push(Node {
        op_type: "Add".into(),
        inputs: vec![Some(x), Some(w)],
        outputs: vec![Some(y)],
        ..Node::default()
    });
    let tensor = polygrad::backend::HostTensor::new(polygrad::Shape::from([2]), vec![10f32, 10.0]).unwrap();
    body.initializers = vec![polygrad_onnx::graph::Initializer {
        value: w,
        tensor: tensor.into(),
    }];
    let graph = Graph {
        opsets: [(String::new(), 20)].into(),
        body,
        ..Graph::default()
    };
    graph.save(scene.path("m.onnx")).unwrap();
    scene.write("x.npy", &npy("(2,)", &[1.0, 1.0]));
    scene.write("w.npy", &npy("(2,)", &[0.5, 0.5]));
    assert!(line(&scene.ok("run m.onnx --input x=x.npy"), "y").contains("11.000000 to 11.000000"));
    assert!(line(&scene.ok("run m.onnx --input x=x.npy --input w=w.npy"), "y").contains("1.500000 to 1.500000"));
    scene.fails(
        "run m.onnx --input x=x.npy --input z=w.npy",
        &["no input \"z\"", "its inputs are x, w"],
    );
}
