//! Bad input: every error says what is wrong, where, and what to do, and leaves with status 1 (2 for a wrong command line).

mod common;

use std::fs;

use common::{Scene, idx, png};

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
        ("train bars --epochs none", "1 or more"),
        ("fly", "unrecognized subcommand"),
        ("eval", "<RUN>"),
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
    scene.fails(
        "train bars",
        &["the data set bars is in none of these folders", "--data DIR"],
    );
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
    let mut bad_header = whole.clone();
    bad_header[9] = b'!';
    scene.write(file, &bad_header);
    scene.fails("eval run", &["model.safetensors", "header is not valid"]);

    scene.ok("train bars --data data --model cnn --epochs 1 --out other");
    scene.write(file, &scene.read("other/model.safetensors"));
    scene.fails(
        "eval run",
        &["model.safetensors", "does not fit", "mismatched", "the same run"],
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
    scene.fails("predict run text.png", &["text.png is no whole PNG file"]);
    png(&scene.path("x.png"), 8, &[0; 64]);
    let whole = scene.read("x.png");
    scene.write("half.png", &whole[..whole.len() / 2]);
    scene.fails("predict run half.png", &["half.png is no whole PNG file"]);
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

/// LibTorch is linked, so the loader speaks before the program does. What to do about it stands in docs/engines.md.
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
