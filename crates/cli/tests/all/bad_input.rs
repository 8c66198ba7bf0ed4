//! Bad input: every error says what is wrong, where, and what to do, and exits with status 1 (2 for an invalid command
//! line).

use std::fs;

use crate::common::{Scene, idx, png};

const TRAIN: &str = "train bars --data data --model mlp --epochs 1 --out run";

#[test]
fn an_unknown_backend_lists_those_there_are() {
    let scene = Scene::new();
    for command in [
        format!("{TRAIN} --backend gpu"),
        format!("{TRAIN} --backend gpu:0 --threads 2"),
    ] {
        scene.fails(&command, &["no backend named \"gpu\"", "available backends: cpu"]);
    }
    scene.fails(
        &format!("{TRAIN} --backend cpu:kernels=fast"),
        &["no kernels named \"fast\"", "scalar, simd"],
    );
    scene.fails(
        &format!("{TRAIN} --backend cpu:threads=1 --threads 2"),
        &["cpu:threads=1 asks for 1 threads, --threads for 2"],
    );
    assert!(!scene.path("run").exists());
}

#[test]
fn a_wrong_command_line_has_status_2() {
    let scene = Scene::new();
    for (line, words) in [
        ("", "Usage: polygrad"),
        ("train", "<DATASET>"),
        ("train bars --epochs none", "1 to 16777216"),
        ("train bars --lr -1", "give a number above 0"),
        ("generate run --temperature -0.5", "give a number from 0 on"),
        ("fly", "unrecognized subcommand"),
        (
            "export run --onnx data/t10k-labels-idx1-ubyte",
            "exists and would be lost",
        ),
        ("eval", "<RUN|FILE.onnx>"),
    ] {
        let ended = scene.run(line);
        assert_eq!(ended.code, Some(2), "{line}: {}", ended.stderr);
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
}

#[test]
fn missing_folders_and_files_are_named() {
    let scene = Scene::new();
    scene.fails("train bars --data nowhere", &["nowhere"]);
    let text = scene.fails(
        "train bars",
        &[
            "the data set bars is in none of these folders: ",
            "--data DIR",
            "`polygrad train --help`",
        ],
    );
    assert!(!text.contains("\\n"), "{text}");
    scene.fails("eval nowhere", &["nowhere is no folder"]);
    scene.fails("predict data x.png", &["data holds no run"]);
    scene.fails("train --resume nowhere", &["nowhere is no folder"]);
    fs::remove_file(scene.path("data/t10k-labels-idx1-ubyte")).unwrap();
    scene.fails(TRAIN, &["data has no file t10k-labels-idx1-ubyte"]);
}

#[test]
fn damaged_data_are_named() {
    let scene = Scene::new();
    let images = "data/train-images-idx3-ubyte";
    let whole = scene.read(images);
    scene.write(images, &whole[..whole.len() - 1]);
    scene.fails(TRAIN, &["train-images-idx3-ubyte", "truncated"]);
    scene.write(images, b"\x89PNG and so on");
    scene.fails(TRAIN, &["train-images-idx3-ubyte", "no IDX file"]);
    let mut huge = whole.clone();
    huge[4..8].copy_from_slice(&[255; 4]);
    scene.write(images, &huge);
    scene.fails(TRAIN, &["train-images-idx3-ubyte", "can hold at most"]);
    scene.write(images, &[&[0x1f, 0x8b][..], &whole[..100]].concat());
    scene.fails(TRAIN, &["train-images-idx3-ubyte", "corrupt"]);
    scene.write(images, &whole);
    scene.write("data/train-labels-idx1-ubyte", &idx(&[5], &[0; 5]));
    scene.fails(TRAIN, &["96 images", "5 labels"]);
    scene.write("data/train-labels-idx1-ubyte", &whole);
    scene.fails(TRAIN, &["rank 3", "rank 1"]);
    assert!(!scene.path("run").exists());
}

#[test]
fn images_without_content_or_too_small_are_refused() {
    let scene = Scene::new();
    scene.write("data/train-images-idx3-ubyte", &idx(&[96, 8, 8], &[9; 96 * 64]));
    scene.fails(TRAIN, &["same value"]);
    for split in ["train", "t10k"] {
        let pixels: Vec<u8> = (0..36).collect();
        scene.write(&format!("data/{split}-images-idx3-ubyte"), &idx(&[4, 3, 3], &pixels));
        scene.write(&format!("data/{split}-labels-idx1-ubyte"), &idx(&[4], &[0, 1, 0, 1]));
    }
    scene.fails(&TRAIN.replace("mlp", "cnn"), &["3 × 3 pixels", "--model mlp"]);
    scene.ok(TRAIN);
    for split in ["train", "t10k"] {
        scene.write(&format!("data/{split}-labels-idx1-ubyte"), &idx(&[4], &[0; 4]));
    }
    scene.fails(
        &TRAIN.replace("run", "one"),
        &["are of the class \"0\"", "at least two classes"],
    );
}

#[test]
fn a_damaged_or_foreign_model_is_named() {
    let scene = Scene::new();
    scene.ok(TRAIN);
    png(&scene.path("x.png"), 8, &[0; 64]);
    let file = "run/model.safetensors";
    let whole = scene.read(file);
    for (bytes, words) in [
        (&whole[..whole.len() - 10], "bytes of values"),
        (&whole[..20], "ends inside its header"),
        (&b"no"[..], "ends inside its first eight bytes"),
        (&[0xff; 64][..], "header"),
    ] {
        scene.write(file, bytes);
        for command in ["eval run", "predict run x.png"] {
            scene.fails(command, &["model.safetensors", words]);
        }
    }
    let mut changed = whole.clone();
    changed[whole.len() - 9] ^= 1;
    scene.write(file, &changed);
    for command in ["eval run", "predict run x.png", "export run --onnx x.onnx"] {
        scene.fails(
            command,
            &["model.safetensors", "another checksum", "take an earlier copy"],
        );
    }
    scene.fails(
        "convert run/model.safetensors x.npz",
        &["model.safetensors", "another checksum"],
    );
    let mut bad_header = whole.clone();
    bad_header[9] = b'!';
    scene.write(file, &bad_header);
    scene.fails("eval run", &["model.safetensors", "header is not valid"]);

    scene.ok("train bars --data data --model cnn --epochs 1 --out other");
    scene.write(file, &scene.read("other/model.safetensors"));
    scene.fails(
        "eval run",
        &[
            "model.safetensors was not trained with the settings in",
            "model differ",
            "the same run",
        ],
    );
    fs::remove_file(scene.path(file)).unwrap();
    scene.fails("eval run", &["no model.safetensors", "polygrad train --resume run"]);
    scene.write("run/config.json", b"{");
    scene.fails("eval run", &["config.json"]);
}

#[test]
fn pictures_that_are_none_are_named() {
    let scene = Scene::new();
    scene.ok(TRAIN);
    scene.fails("predict run none.png", &["none.png"]);
    scene.write("text.png", b"hello");
    scene.fails(
        "predict run text.png",
        &["text.png is neither a PNG nor a JPEG file", "give a PNG or JPEG file"],
    );
    scene.write("x.gif", b"GIF89a and so on");
    scene.fails(
        "predict run x.gif",
        &["x.gif is a GIF file, and PNG and JPEG files are read"],
    );
    png(&scene.path("x.png"), 8, &[0; 64]);
    let whole = scene.read("x.png");
    scene.write("half.png", &whole[..whole.len() / 2]);
    scene.fails("predict run half.png", &["half.png is no whole PNG file"]);
    let mut changed = whole;
    let values = changed.windows(4).position(|name| name == b"IDAT").unwrap();
    changed[values + 6] ^= 1;
    scene.write("changed.png", &changed);
    let text = scene.fails("predict run changed.png", &["changed.png is no whole PNG file"]);
    assert!(!text.contains("ChunkType"), "{text}");
}

#[test]
fn test_images_of_another_kind_are_refused() {
    let scene = Scene::new();
    scene.ok(TRAIN);
    fs::create_dir(scene.path("others")).unwrap();
    for split in ["train", "t10k"] {
        scene.write(&format!("others/{split}-images-idx3-ubyte"), &idx(&[1, 2, 2], &[0; 4]));
        scene.write(&format!("others/{split}-labels-idx1-ubyte"), &idx(&[1], &[0]));
    }
    scene.fails("eval run --data others", &["1 × 2 × 2", "1 × 8 × 8"]);
    scene.write("others/t10k-images-idx3-ubyte", &idx(&[1, 8, 8], &[0; 64]));
    scene.write("others/t10k-labels-idx1-ubyte", &idx(&[1], &[7]));
    scene.fails("eval run --data others", &["the label at index 0", "is 7", "4 classes"]);
}

#[test]
fn a_run_is_never_overwritten() {
    let scene = Scene::new();
    scene.ok(TRAIN);
    let before = scene.read("run/model.safetensors");
    scene.fails(TRAIN, &["run holds a run already", "--resume run"]);
    assert_eq!(scene.read("run/model.safetensors"), before);
}

#[test]
fn a_diverging_loss_is_an_error() {
    let scene = Scene::new();
    let line = format!("{TRAIN} --optimizer sgd --lr 1e30 --batch-size 4");
    scene.fails(&line, &["the loss is", "at step", "--lr below"]);
}

#[test]
fn what_no_run_can_have_is_refused_before_it_begins() {
    let scene = Scene::new();
    for (options, words) in [
        ("--epochs 20000000", "--epochs <N>': give a whole number, 1 to 16777216"),
        (
            "--batch-size 16777217",
            "--batch-size <N>': give a whole number, 1 to 16777216",
        ),
        (
            "--seed x",
            "--seed <N>': give a whole number, 0 to 18446744073709551615",
        ),
        ("--lr 0", "--lr <RATE>': give a number above 0"),
    ] {
        let ended = scene.run(&format!("train bars --data data --model mlp --out run {options}"));
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
    assert!(!scene.path("run").exists());
    // The largest accepted values can be read again.
    scene.train(
        "run",
        "--model mlp --epochs 1 --batch-size 16777216 --seed 18446744073709551615",
    );
    scene.ok("eval run");
    scene.ok("train --resume run --epochs 2");
}

#[test]
fn settings_that_were_edited_are_named() {
    let scene = Scene::new();
    scene.ok(TRAIN);
    let config = String::from_utf8(scene.read("run/config.json")).unwrap();
    let value =
        |key: &str| -> serde_json::Value { serde_json::from_str::<serde_json::Value>(&config).unwrap()[key].clone() };
    let std = value("input")["std"].to_string();
    for (from, to, words) in [
        (std.as_str(), "1e-300", "std 1e-300 are not those of images"),
        (
            "\"epochs\": 1",
            "\"epochs\": 20000000",
            "epochs: 20000000 is not 1 to 16777216",
        ),
        ("\"rows\": 8", "\"rows\": 4294967296", "the values of an image"),
    ] {
        let edited = config.replace(from, to);
        assert_ne!(edited, config);
        scene.write("run/config.json", edited.as_bytes());
        for line in ["eval run", "show run", "train --resume run", "export run --onnx x.onnx"] {
            scene.fails(line, &["config.json", words]);
        }
    }
}

#[test]
fn a_run_of_a_program_of_its_own_is_no_damaged_one() {
    use polygrad::nn::{Linear, Module};
    use polygrad::train::RunFolder;

    let scene = Scene::new();
    fs::create_dir(scene.path("own")).unwrap();
    let folder = RunFolder::new(scene.path("own"));
    let device = polygrad::Device::new("cpu").unwrap();
    Linear::new(3, 2, &device).unwrap().save(folder.model()).unwrap();
    for settings in ["{\"width\": 3}", "null", "{}"] {
        fs::write(folder.config(), settings).unwrap();
        for line in [
            "eval own",
            "export own --onnx x.onnx",
            "predict own x.png",
            "play own",
            "generate own",
        ] {
            scene.fails(
                line,
                &[
                    "own was written by a program of its own",
                    "model.safetensors in that program",
                    "ONNX",
                ],
            );
        }
        let said = scene.ok("show own");
        assert!(said.contains(settings) && said.contains("weight: f32[2, 3]"), "{said}");
    }
    fs::write(folder.metrics(), "step,loss\n1,0.5\n2,0.25\n").unwrap();
    assert!(scene.ok("show own").contains("last row of metrics: step 2, loss 0.25"));
}

#[test]
fn a_huge_learning_rate_is_told_in_few_digits() {
    let scene = Scene::new();
    let text = scene.fails(&format!("{TRAIN} --optimizer sgd --batch-size 4 --lr 1e300"), &[]);
    assert!(text.len() < 400 && !text.contains("000000"), "{text}");
}

#[test]
fn an_unknown_peer_is_told_once() {
    let scene = Scene::new();
    let text = scene.fails(
        "bench mlp-act --against nope",
        &["no peer is called \"nope\"", "cargo xtask setup peers"],
    );
    assert_eq!(text.matches("in a checkout of Polygrad").count(), 1, "{text}");
    assert!(!text.contains("``"), "{text}");
}

#[cfg(unix)]
#[test]
fn what_has_no_end_is_not_read() {
    let scene = Scene::new();
    scene.ok(TRAIN);
    png(&scene.path("x.png"), 8, &[0; 64]);
    let pipe = |name: &str| {
        let path = scene.path(name);
        let _ = fs::remove_file(&path);
        assert!(
            std::process::Command::new("mkfifo")
                .arg(path)
                .status()
                .unwrap()
                .success()
        );
    };
    pipe("pipe");
    std::os::unix::fs::symlink(scene.path("pipe"), scene.path("pipe.safetensors")).unwrap();
    for line in ["predict run pipe", "show pipe.safetensors"] {
        scene.fails(line, &["cannot read pipe", "it is not a file, but a pipe"]);
    }
    scene.fails("predict run /dev/zero", &["cannot read /dev/zero", "a device"]);
    for (file, lines) in [
        (
            "run/model.safetensors",
            &["eval run", "predict run x.png", "show run"][..],
        ),
        ("run/metrics.csv", &["train --resume run"]),
        ("run/checkpoint.safetensors", &["train --resume run"]),
        ("run/config.json", &["eval run"]),
        ("data/train-images-idx3-ubyte", &["train bars --data data --model mlp"]),
    ] {
        pipe(file);
        for line in lines {
            scene.fails(
                line,
                &[file.rsplit('/').next().unwrap(), "it is not a file, but a pipe"],
            );
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn names_need_be_no_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let scene = Scene::new();
    let name = |bytes: &'static [u8]| OsStr::from_bytes(bytes);
    fs::rename(scene.path("data"), scene.path("").join(name(b"d\xff"))).unwrap();
    let run = |line: &str, end: &'static [u8]| {
        let output = scene.command(line).arg(name(end)).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{line}: {text}");
    };
    run("train bars --model mlp --epochs 1 --out run --data", b"d\xff");
    scene.ok("eval run");
    scene.ok("train --resume run --epochs 2");
    run("export run --onnx", b"m\xff.onnx");
}

/// A picture stays in its decoded form: one byte for each pixel, not four, and only one copy. LibTorch alone takes more
/// address space than is given here.
#[cfg(all(target_os = "linux", not(feature = "torch")))]
#[test]
fn a_large_picture_takes_little_more_than_its_pixels() {
    let scene = Scene::new();
    scene.ok(TRAIN);
    let side = 9000;
    png(&scene.path("large.png"), side, &vec![7; (side * side) as usize]);
    let line = format!(
        "ulimit -v 500000; exec {} predict run large.png --threads 1",
        env!("CARGO_BIN_EXE_polygrad")
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &line])
        .current_dir(scene.path(""))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// LibTorch is linked, so the loader reports the error before the program starts. docs/engines.md says what to do.
#[cfg(all(feature = "torch", target_os = "linux"))]
#[test]
fn without_libtorch_the_loader_names_it() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_polygrad"))
        .arg("devices")
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap();
    if output.status.success() {
        println!("skipped: LibTorch lies where the loader finds it without LD_LIBRARY_PATH");
        return;
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(127), "{stderr}");
    assert!(
        stderr.contains("error while loading shared libraries: libtorch"),
        "{stderr}"
    );
}
