//! Training on a folder of images.

use std::fs;
use std::path::Path;

use polygrad::data::Image;

use crate::common::{Scene, image};

/// A folder of PNG files of the four kinds of bars, `each` of each kind, in twice their size.
fn folder(path: &Path, each: usize) {
    for class in 0..4 {
        let dir = path.join(["first", "fourth", "second", "third"][class]);
        fs::create_dir_all(&dir).unwrap();
        for i in 0..each {
            let image = Image::new(1, 8, 8, image(class, 31 * i))
                .unwrap()
                .resize(16, 16)
                .unwrap();
            fs::write(dir.join(format!("{i}.png")), image.to_png().unwrap()).unwrap();
        }
    }
}

#[test]
fn a_folder_of_images_is_learnt() {
    let scene = Scene::new();
    folder(&scene.path("bars"), 15);
    let out = scene.ok("train images bars --size 8 --epochs 6 --lr 0.01 --threads 1 --out run");
    assert!(
        out.contains("48 training and 12 test images of 8 × 8, 4 classes"),
        "{out}"
    );
    assert!(out.contains("test accuracy 100.00 %"), "{out}");
    let out = scene.ok("eval run");
    assert!(out.contains("accuracy 100.00 %") && out.contains("fourth"), "{out}");
    let out = scene.ok("predict run bars/third/3.png");
    assert!(out.lines().next().unwrap().contains("third"), "{out}");
    let out = scene.ok("train --resume run --epochs 7");
    assert!(out.contains("epoch 7/7"), "{out}");
    folder(&scene.path("other"), 5);
    fs::rename(scene.path("other/first"), scene.path("other/zeroth")).unwrap();
    scene.fails("eval run --data other", &["other has other classes than the model"]);
    scene.fails(
        "train --resume run --size 16 --epochs 8",
        &["--size is 8 there, not 16"],
    );
}

#[test]
fn files_that_are_left_out_are_told() {
    let scene = Scene::new();
    folder(&scene.path("bars"), 5);
    for (at, name) in [
        "first/a.webp",
        "first/b.webp",
        "second/c.BMP",
        "third/d.gif",
        "e.tiff",
        "fourth/notes",
    ]
    .iter()
    .enumerate()
    {
        scene.write(&format!("bars/{name}"), &[at as u8]);
    }
    let told = |ended: crate::common::Ended| {
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        for words in [
            "left out 6 files",
            "2 .webp",
            "1 .bmp",
            "1 .gif",
            "1 .tiff",
            "1 without an ending",
            "such as ",
        ] {
            assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
        }
    };
    told(scene.run("train images bars --size 8 --epochs 1 --threads 1 --out run"));
    told(scene.run("eval run"));
    told(scene.run("train --resume run --epochs 2"));
    fs::create_dir(scene.path("bars/webp")).unwrap();
    scene.write("bars/webp/a.webp", b"RIFF");
    scene.fails(
        "train images bars --size 8",
        &["bars/webp does not hold PNG or JPEG files"],
    );
    scene.write("x.webp", b"RIFF\0\0\0\0WEBPVP8 ");
    scene.fails(
        "predict run x.webp",
        &["x.webp is a WebP file, and PNG and JPEG files are read"],
    );
}

#[cfg(feature = "jpeg")]
#[test]
fn a_jpeg_is_predicted_as_it_was_seen_in_training() {
    let scene = Scene::new();
    folder(&scene.path("bars"), 5);
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests/images");
    for name in ["full.jpg", "grey.jpg"] {
        fs::copy(from.join(name), scene.path("bars/third").join(name)).unwrap();
    }
    scene.ok("train images bars --size 8 --epochs 1 --threads 1 --out run");
    for name in ["full.jpg", "grey.jpg"] {
        assert!(scene.ok(&format!("predict run bars/third/{name}")).contains("third"));
    }
    // The content of a JPEG file, and the same in a PNG file.
    let image = Image::open(scene.path("bars/third/full.jpg")).unwrap();
    scene.write("same.png", &image.to_png().unwrap());
    assert_eq!(
        scene.ok("predict run bars/third/full.jpg"),
        scene.ok("predict run same.png")
    );
    scene.train("idx", "--epochs 1 --model mlp");
    assert_eq!(
        scene.ok("predict idx bars/third/full.jpg"),
        scene.ok("predict idx same.png")
    );
}

#[test]
fn what_is_no_folder_of_images_is_named() {
    let scene = Scene::new();
    scene.fails(
        "train images",
        &["images lie in a folder", "polygrad train images pets"],
    );
    scene.fails("train images none", &["cannot read none"]);
    scene.fails(
        "train images data",
        &["does not hold a folder for each class", "data/cat/1.png"],
    );
    scene.fails("train bars data", &["bars is a data set and takes no path", "--data"]);
    scene.fails("train bars --data data --size 8", &["have a size of their own"]);
    folder(&scene.path("bars"), 3);
    fs::write(scene.path("bars/first/1.png"), b"\x89PNG").unwrap();
    scene.fails("train images bars --size 8", &["1.png is no whole PNG file"]);
    scene.write("bars/first/1.png", &[0xff, 0xd8, 0xff, 0xe0]);
    scene.fails("train images bars --size 8", &["1.png is", "JPEG file"]);
}
