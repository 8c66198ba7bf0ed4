//! Training on a text, and continuing it.

use crate::common::Scene;

/// Two lines repeated: there is nothing else to learn.
fn text() -> String {
    "the cat sat on the mat.\nthe dog sat on the log.\n".repeat(100)
}

#[test]
fn a_text_is_learnt_and_written() {
    let scene = Scene::new();
    scene.write("text.txt", text().as_bytes());
    let options = "--batch-size 4 --lr 0.01 --threads 2";
    let out = scene.ok(&format!("train chargpt --text text.txt --epochs 2 --out run {options}"));
    assert!(
        out.contains("characters of 15 kinds") && out.contains("epoch 2/2"),
        "{out}"
    );
    let out = scene.ok("train --resume run --epochs 4");
    assert!(out.contains("epoch 4/4") && !out.contains("epoch 2/"), "{out}");
    let written = scene.ok("generate run --prompt the --tokens 200 --temperature 0");
    assert_eq!(written.chars().count(), "the".len() + 200 + 1, "{written}");
    // In so short a time, little is learnt beyond the words.
    assert!(written.contains(" the "), "{written}");
    assert_eq!(
        written,
        scene.ok("generate run --prompt the --tokens 200 --temperature 0")
    );
    let by_chance = |seed: u32| scene.ok(&format!("generate run --tokens 50 --top-k 5 --seed {seed}"));
    assert_eq!(by_chance(1), by_chance(1));

    // An uninterrupted run gives the same.
    scene.ok(&format!(
        "train chargpt --text text.txt --epochs 4 --out whole {options}"
    ));
    assert_eq!(scene.metrics("run").len(), scene.metrics("whole").len());
}

#[test]
fn what_cannot_be_learnt_or_written_is_named() {
    let scene = Scene::new();
    scene.write("short.txt", b"a short text");
    scene.fails("train chargpt --text none.txt", &["cannot read none.txt"]);
    scene.fails(
        "train chargpt --text short.txt",
        &["longer than 128 characters", "it has 12"],
    );
    scene.write("empty.txt", b"");
    scene.fails("train chargpt --text empty.txt --out none", &["empty.txt is empty"]);
    for text in ["a", &" ".repeat(5000), &"\n".repeat(5000)] {
        scene.write("one.txt", text.as_bytes());
        let words = format!("has the character {:?} alone", text.chars().next().unwrap());
        scene.fails("train chargpt --text one.txt --out none", &[&words, "nothing to learn"]);
    }
    scene.write("cut.txt", &[0x1f, 0x8b, 8, 0, 0]);
    scene.fails(
        "train chargpt --text cut.txt --out none",
        &["cut.txt is no whole gzip file"],
    );
    assert!(!scene.path("none").exists());
    scene.write("bytes", &[0xff; 4000]);
    scene.fails("train chargpt --text bytes", &["bytes is no text in UTF-8"]);
    scene.fails("train chargpt --model cnn", &["--model is for images"]);
    scene.fails("train chargpt pets", &["a path is for images"]);
    scene.fails("train bars --data data --text short.txt", &["--text is for chargpt"]);
    scene.train("images", "--epochs 1 --model mlp");
    scene.fails(
        "generate images",
        &["is a run of images, and this is for runs of chargpt", "train chargpt"],
    );
    scene.write("text.txt", "ab".repeat(1000).as_bytes());
    scene.ok("train chargpt --text text.txt --epochs 1 --out run --threads 1");
    scene.fails(
        "eval run",
        &[
            "is a run of chargpt, and this is for runs of images",
            "polygrad generate",
        ],
    );
    scene.fails("generate run --prompt x", &["never seen the character 'x'"]);
    scene.fails(
        "train --resume run --lr 0.1",
        &["cannot go on with other settings: --lr is 0.002 there, not 0.1"],
    );
    scene.write("text.txt", "abc".repeat(1000).as_bytes());
    scene.fails(
        "train --resume run --epochs 2",
        &["not the text that run was trained on"],
    );
}
