//! Training on a table: targets that are numbers, words, and integers.

use std::fmt::Write;
use std::fs;

use crate::common::Scene;

const QUICK: &str = "--threads 1 --lr 0.01 --batch-size 16";

/// Houses whose price is 3 × area + 50 in Bern. They are dear above 300, and have 1 to 3 floors depending on their
/// size.
fn houses(rows: usize) -> String {
    let mut text = "id,area,town,price,class,floors\n".to_owned();
    for i in 0..rows {
        let area = 50 + i * 37 % 101;
        let town = ["Bern", "Thun, upper", "Biel"][i % 3];
        let price = 3 * area + if town == "Bern" { 50 } else { 0 };
        let class = if price > 300 { "dear" } else { "cheap" };
        let floors = 1 + (area - 50) / 34;
        let _ = writeln!(text, "house {i},{area},\"{town}\",{price},{class},{floors}");
    }
    text
}

fn scene() -> Scene {
    let scene = Scene::new();
    scene.write("houses.csv", houses(200).as_bytes());
    scene
}

/// The first cell of the second line, as a number.
fn first(csv: &str) -> f64 {
    let row = csv.lines().nth(1).unwrap();
    row.split(',').next().unwrap().parse().unwrap()
}

#[test]
fn a_number_is_predicted() {
    let scene = scene();
    let line =
        format!("train table houses.csv --target price --ignore id --ignore class --epochs 60 --out run {QUICK}");
    let out = scene.ok(&line);
    assert!(
        out.contains("160 training and 40 validation rows; price from 3 columns is a number"),
        "{out}"
    );
    let mae: f64 = {
        let at = out.find("validation mae ").unwrap() + "validation mae ".len();
        out[at..].split(',').next().unwrap().parse().unwrap()
    };
    // Prices are between 150 and 500.
    assert!(mae < 8.0, "{out}");
    let found = scene.ok("eval run");
    assert!(
        found.contains("on 40 validation rows") && (found.contains("r2 0.99") || found.contains("r2 1.0")),
        "{found}"
    );
    scene.write("row.csv", houses(1).as_bytes());
    assert!(
        scene
            .ok("eval run --data row.csv")
            .contains("  r2 - (the targets are all the same); the target's mean")
    );
    let all = scene.ok("eval run --data houses.csv");
    assert!(all.contains("on 200 rows"), "{all}");

    // Without the target, in another order, with an unknown word and an empty cell.
    scene.write(
        "new.csv",
        b"town;floors;area\nBern;2;100\n\"Thun, upper\";2;100\nelsewhere;;100\n",
    );
    let predicted = scene.ok("predict run new.csv");
    let lines: Vec<&str> = predicted.lines().collect();
    assert_eq!((lines.len(), lines[0]), (4, "price"), "{predicted}");
    let prices: Vec<f64> = lines[1..].iter().map(|line| line.parse().unwrap()).collect();
    assert!(
        (prices[0] - 350.0).abs() < 15.0 && (prices[1] - 300.0).abs() < 15.0,
        "{prices:?}"
    );
    // One row, in which a column has only an empty cell.
    scene.write("one.csv", b"town,floors,area\nBern,,100\n");
    assert!((first(&scene.ok("predict run one.csv")) - 350.0).abs() < 60.0);

    let shown = scene.ok("show run");
    assert!(
        shown.contains("price from 3 columns, a number") && shown.contains("features"),
        "{shown}"
    );
    // The file's outputs are in the target's units.
    scene.ok("export run --onnx houses.onnx");
    let ran = scene.ok("run houses.onnx --input features=random --dim batch=3");
    assert!(ran.contains("prediction"), "{ran}");
    assert!(scene.path("run/curves.png").is_file());
}

#[test]
fn a_number_that_is_large_to_its_spread_keeps_its_digits() {
    let scene = Scene::new();
    let rows: String = (0..60).map(|i| format!("{i},{}\n", 1_700_000_000 + i)).collect();
    scene.write("times.csv", format!("x,time\n{rows}").as_bytes());
    scene.ok(&format!(
        "train table times.csv --target time --epochs 150 --out run {QUICK}"
    ));
    let predicted = scene.ok("predict run times.csv");
    let times: Vec<f64> = predicted.lines().skip(1).map(|line| line.parse().unwrap()).collect();
    // An f32 would be a multiple of 128.
    for (i, time) in times.iter().enumerate() {
        assert!((time - 1.7e9 - i as f64).abs() < 5.0, "{i} {time}");
    }
}

#[test]
fn words_and_whole_numbers_are_classes() {
    let scene = scene();
    let words =
        format!("train table houses.csv --target class --ignore id --ignore price --epochs 60 --out words {QUICK}");
    let out = scene.ok(&words);
    assert!(out.contains("class from 3 columns is one of 2 classes"), "{out}");
    let found = scene.ok("eval words");
    assert!(
        found.contains("accuracy 9") || found.contains("accuracy 100"),
        "{found}"
    );
    assert!(found.contains("cheap") && found.contains("taken for"), "{found}");
    scene.write("new.csv", b"id,area,town,floors\nx,145,Bern,3\ny,50,Biel,1\n");
    let predicted = scene.ok("predict words new.csv");
    let lines: Vec<&str> = predicted.lines().collect();
    assert_eq!(lines[0], "class,probability");
    assert!(
        lines[1].starts_with("dear,0.9") || lines[1].starts_with("dear,1.0"),
        "{predicted}"
    );
    assert!(lines[2].starts_with("cheap,"), "{predicted}");

    let numbers = format!("train table --data houses.csv --target floors --ignore id --epochs 40 {QUICK}");
    let ended = scene.run(&format!("{numbers} --out numbers"));
    assert!(
        ended.stderr.contains("--classify makes them classes"),
        "{}",
        ended.stderr
    );
    let out = scene.ok(&format!("{numbers} --classify --out floors"));
    assert!(out.contains("one of 3 classes"), "{out}");
    scene.write(
        "new.csv",
        b"area,town,price,class\n145,Bern,485,dear\n50,Biel,150,cheap\n",
    );
    let predicted = scene.ok("predict floors new.csv");
    let lines: Vec<&str> = predicted.lines().collect();
    assert!(lines[1].starts_with("3,") && lines[2].starts_with("1,"), "{predicted}");
    assert!(scene.ok("show floors").contains("one of 3 classes"));
    scene.ok("export floors --onnx floors.onnx --fixed");
}

#[test]
fn a_prediction_does_not_depend_on_the_other_rows() {
    let scene = Scene::new();
    let codes = ["007", "1.50", "+5", "", "A"];
    let row = |i: usize| {
        format!(
            "{},{i},{},{}\n",
            codes[i % 5],
            ["01", "-0"][i / 2 % 2],
            ["x", "01"][i / 2 % 2]
        )
    };
    let rows = |range: std::ops::Range<usize>| format!("code,x,whole,word\n{}", range.map(row).collect::<String>());
    scene.write("all.csv", rows(0..40).as_bytes());
    // Everything except the word looks like numbers.
    scene.write("few.csv", rows(2..4).as_bytes());
    for (target, other) in [("whole --classify", "word"), ("word", "whole")] {
        scene.ok(&format!(
            "train table all.csv --target {target} --ignore {other} --categorical code --epochs 5 --out {other} {QUICK}"
        ));
        let (all, few) = (
            scene.ok(&format!("predict {other} all.csv")),
            scene.ok(&format!("predict {other} few.csv")),
        );
        let lines: Vec<&str> = all.lines().collect();
        assert_eq!(few.lines().skip(1).collect::<Vec<_>>(), lines[3..5], "{all}{few}");
        let found = scene.ok(&format!("eval {other} --data few.csv"));
        assert!(found.contains("on 2 rows"), "{found}");
    }
}

#[test]
fn cells_that_are_no_numbers_among_numbers_are_asked_about() {
    let scene = Scene::new();
    let rows = |odd: &str, at: &str| -> String {
        let row = |i: usize| {
            let cell = |own: &str, number: usize| {
                if own == at && i == 6 {
                    odd.to_owned()
                } else {
                    number.to_string()
                }
            };
            format!("{};{}\n", cell("a", i % 7), cell("price", 3 * i))
        };
        (0..40).map(row).collect()
    };
    for odd in ["NA", "null", "N/A", "None", "?", "-", "1,5", "1 000"] {
        for at in ["a", "price"] {
            scene.write("t.csv", format!("a;price\n{}", rows(odd, at)).as_bytes());
            let words = [
                &format!("\"{at}\" looks like numbers, but one of its 40 cells is none: {odd:?} in line 8")[..],
                "--categorical",
            ];
            let text = scene.fails("train table t.csv --target price --epochs 1 --out none", &words);
            assert!(text.contains("--missing") || text.contains("--decimal-comma"), "{text}");
            scene.fails(
                "train table t.csv --target price --classify --epochs 1 --out none",
                &words,
            );
        }
    }
    // A run stores the marks of missing values.
    scene.write("t.csv", format!("a;price\n{}", rows("NA", "a")).as_bytes());
    let out = scene.ok(&format!(
        "train table t.csv --target price --missing NA,? --epochs 2 --out run {QUICK}"
    ));
    assert!(out.contains("price from 1 columns is a number"), "{out}");
    scene.ok("eval run");
    scene.write("new.csv", b"a\n3\nNA\n?\n\"\"\n");
    let predicted = scene.ok("predict run new.csv");
    let lines: Vec<&str> = predicted.lines().collect();
    assert!(
        lines.len() == 5 && lines[2] == lines[4] && lines[3] == lines[4],
        "{predicted}"
    );
    scene.fails(
        "train --resume run --missing NA --epochs 3",
        &["--missing is NA,? there, not NA"],
    );
    scene.ok("train --resume run --epochs 3");
    for (cell, words) in [
        ("null", "\"a\" is no column of numbers: it has \"null\" in line 2"),
        (
            "5\n6\nnull",
            "\"a\" looks like numbers, but one of its 3 cells is none: \"null\" in line 4",
        ),
        ("inf", "\"a\" has inf"),
        ("1e300", "\"a\" has 1e300, which is too large"),
    ] {
        scene.write("new.csv", format!("a\n{cell}\n").as_bytes());
        scene.fails("predict run new.csv", &["new.csv: the column", words]);
    }
    scene.write("new.csv", b"a;price\n3;9\n4;NULL\n5;15\n");
    scene.fails(
        "eval run --data new.csv",
        &["\"price\" looks like numbers", "\"NULL\" in line 3"],
    );

    scene.write(
        "t.csv",
        format!("a;price\n{}", rows("1", "").replace(';', ",5;")).as_bytes(),
    );
    scene.fails(
        "train table t.csv --target price --epochs 1 --out none",
        &["give --decimal-comma"],
    );
    scene.ok(&format!(
        "train table t.csv --target price --decimal-comma --epochs 1 --out comma {QUICK}"
    ));
    let out = scene.ok(&format!(
        "train table t.csv --target price --categorical a --epochs 1 --out words {QUICK}"
    ));
    assert!(out.contains("price from 1 columns is a number"), "{out}");
    scene.fails(
        "train table t.csv --target price --categorical b --epochs 1 --out none",
        &["no column \"b\""],
    );
    scene.fails("train bars --data data --missing NA", &["--missing is for table"]);
}

#[test]
fn csv_for_other_programs_has_cells_as_they_are() {
    let scene = Scene::new();
    let rows: String = (0..20)
        .map(|i| format!("{i},\"{}\"\n", ["a\tb\u{7}", "c\r\nd"][i % 2]))
        .collect();
    scene.write("t.csv", format!("x,y\n{rows}").as_bytes());
    scene.ok(&format!("train table t.csv --target y --epochs 2 --out run {QUICK}"));
    let predicted = scene.ok("predict run t.csv");
    let mut rest = predicted.strip_prefix("y,probability\n").unwrap();
    while !rest.is_empty() {
        let cell = ["a\tb\u{7},0.", "\"c\r\nd\",0."]
            .iter()
            .find_map(|cell| rest.strip_prefix(cell));
        rest = cell.and_then(|rest| rest.split_once('\n')).expect(&predicted).1;
    }
}

#[test]
fn a_run_goes_on_with_its_own_table_alone() {
    let scene = scene();
    let line = |run: &str, epochs: u32| {
        format!("train table houses.csv --target price --ignore id --epochs {epochs} --seed 3 --out {run} {QUICK}")
    };
    scene.ok(&line("whole", 6));
    scene.ok(&line("again", 6));
    scene.same("whole", "again");
    let mut child = scene
        .command(&line("killed", 400).replace("--batch-size 16", "--batch-size 1"))
        .spawn()
        .unwrap();
    let metrics = scene.path("killed/metrics.csv");
    while fs::read_to_string(&metrics).unwrap_or_default().lines().count() < 30 {
        assert!(child.try_wait().unwrap().is_none(), "it ended too soon");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    scene.fails(
        "train --resume killed --target class",
        &["--target is price there, not class"],
    );
    scene.fails(
        "train --resume killed --classify",
        &["the goal is regress there, not classify"],
    );
    scene.fails("train --resume killed --text x", &["--text is for chargpt"]);
    fs::rename(scene.path("houses.csv"), scene.path("moved.csv")).unwrap();
    for line in ["train --resume killed", "eval killed"] {
        scene.fails(line, &["cannot read", "houses.csv", "say with --data where it is now"]);
    }
    scene.fails("train --resume killed --data none.csv", &["cannot read none.csv"]);
    scene.fails(
        "train table moved.csv --data moved.csv --resume killed",
        &["two places are named, one of them with --data"],
    );
    scene.write("houses.csv", houses(190).as_bytes());
    scene.fails(
        "train --resume killed",
        &["is not the table", "it had 200 rows, and has 190"],
    );
    scene.fails("eval killed", &["is not the table", "--data"]);
    scene.write("houses.csv", houses(200).replacen("Bern", "Biel", 1).as_bytes());
    scene.fails("train --resume killed", &["is not the table", "its cells differ"]);
}

#[cfg(unix)]
#[test]
fn a_stopped_run_goes_on_to_the_last_bit() {
    use crate::common;

    let scene = scene();
    let line = |run: &str| {
        format!("train table houses.csv --target class --ignore id --epochs 300 --batch-size 1 --threads 1 --out {run}")
    };
    let mut child = common::heeding_ctrl_c(scene.command(&line("stopped"))).spawn().unwrap();
    let metrics = scene.path("stopped/metrics.csv");
    while fs::read_to_string(&metrics).unwrap_or_default().lines().count() < 15 {
        assert!(child.try_wait().unwrap().is_none(), "it ended too soon");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    common::press_ctrl_c(&child);
    let ended: common::Ended = child.wait_with_output().unwrap().into();
    assert_eq!(ended.code, Some(130), "{}{}", ended.stdout, ended.stderr);
    fs::rename(scene.path("houses.csv"), scene.path("moved.csv")).unwrap();
    let out = scene.ok("train --resume stopped --data moved.csv");
    assert!(out.contains("data: ") && out.contains("moved.csv instead of"), "{out}");
    fs::rename(scene.path("moved.csv"), scene.path("houses.csv")).unwrap();
    scene.ok(&line("whole"));
    scene.same("stopped", "whole");
}

#[test]
fn what_cannot_be_learnt_is_named() {
    let scene = scene();
    let fails = |table: &str, options: &str, words: &[&str]| {
        scene.write("t.csv", table.as_bytes());
        scene.fails(&format!("train table t.csv {options} --epochs 1 --out none"), words);
        assert!(!scene.path("none").exists());
    };
    let rows = |cell: fn(usize) -> String| -> String { (0..20).map(|i| format!("{},{i}\n", cell(i))).collect() };
    let table = |cell: fn(usize) -> String| format!("y,x\n{}", rows(cell));
    scene.fails("train table --target y", &["lies in a file, which was not named"]);
    scene.fails("train table none.csv --target y", &["cannot read", "none.csv"]);
    scene.fails("train table houses.csv", &["column to be predicted was not named"]);
    scene.fails(
        "train table houses.csv --target y --model mlp",
        &["--model is for images"],
    );
    scene.fails("train bars --data data --target y", &["--target is for table"]);
    scene.fails(
        "train table houses.csv --target prize",
        &["houses.csv: there is no column \"prize\"", "did you mean \"price\"?"],
    );
    scene.fails(
        "train table houses.csv --target price --ignore price",
        &["the target \"price\" cannot be left out"],
    );
    scene.fails(
        "train table houses.csv --target price --ignore are",
        &["there is no column \"are\"", "did you mean \"area\"?"],
    );
    fails(
        &table(|i| if i % 3 == 0 { String::new() } else { i.to_string() }),
        "--target y",
        &["has empty or infinite cells: rows 1, 4, 7, 10, 13 and 2 more"],
    );
    fails(
        &table(|i| if i == 6 { " ".into() } else { format!("w{}", i % 2) }),
        "--target y",
        &["has empty or infinite cells: row 7\n"],
    );
    fails(&table(|_| "same".into()), "--target y", &["is \"same\" in every row"]);
    fails(&table(|_| "7".into()), "--target y", &["is 7 in every training row"]);
    fails(
        &table(|_| "7".into()),
        "--target y --classify",
        &["is \"7\" in every row"],
    );
    fails(
        &table(|i| format!("{i}.5")),
        "--target y --classify",
        &["0.5, which is no whole number"],
    );
    fails(
        &table(|i| format!("{}", (1_u64 << 60) * (i as u64 % 4))),
        "--target y --classify",
        &["which is too large for the number of a class"],
    );
    fails(
        &table(|i| format!("{i}e-310")),
        "--target y",
        &["which are too small to tell apart", "another unit"],
    );
    fails(
        &table(|i| format!("w{i}")),
        "--target y --regress",
        &["is no number: it has \"w0\""],
    );
    fails(
        &table(|i| format!("{i}e300")),
        "--target y",
        &["is too large to compute with"],
    );
    fails(
        &table(|i| format!("{i}e300")),
        "--target x",
        &["the column \"y\" has", "--ignore \"y\""],
    );
    fails("y,x\n1,2\n2,3\n", "--target y", &["2 rows are too few"]);
    fails("y\n1\n", "--target y", &["are too few"]);
    fails(
        &"y\n1\n2\n".replacen("1\n", &"1\n".repeat(20), 1),
        "--target y",
        &["no column to predict \"y\" from"],
    );
    fails("", "--target y", &["has no rows", "give a CSV file"]);
    fails("a,b\n1\n", "--target a", &["has 1 cells in line 2"]);
    fails("a,\"b\n1\n", "--target a", &["a quote in line 1 that is not closed"]);
    let names: String = (0..1100).map(|i| format!("{i},name {i}\n")).collect();
    fails(
        &format!("y,who\n{names}"),
        "--target y",
        &["\"who\" has 1,100 different texts", "--ignore \"who\""],
    );
    // In JSON these are six times as long.
    let long = "\u{1}".repeat(120_000);
    let long: String = (0..40).map(|i| format!("{i},{i}{long},a\n")).collect();
    let long = format!("y,who,town\n{long}");
    fails(
        &long,
        "--target y",
        &["too long, \"who\" most of them", "--ignore \"who\""],
    );
    fails(
        &long,
        "--target who",
        &["too long, \"who\" most of them", "another --target"],
    );
    scene.write("bytes.csv", &[0xff; 100]);
    scene.fails("train table bytes.csv --target y", &["bytes.csv is not UTF-8"]);
    let ended = scene.run("train table houses.csv --target y --validation-split 1.5");
    assert!(
        ended.code == Some(2) && ended.stderr.contains("0.01 to 0.9"),
        "{}",
        ended.stderr
    );
    let ended = scene.run("train table houses.csv --target y --classify --regress");
    assert!(
        ended.code == Some(2) && ended.stderr.contains("cannot be used with"),
        "{}",
        ended.stderr
    );
}

#[test]
fn what_does_not_fit_a_run_is_named() {
    let scene = scene();
    scene.ok(&format!(
        "train table houses.csv --target price --ignore id --epochs 2 --out run {QUICK}"
    ));
    let fails = |table: &str, words: &[&str]| {
        scene.write("new.csv", table.as_bytes());
        scene.fails("predict run new.csv", words);
        scene.fails("eval run --data new.csv", words);
    };
    fails(
        "area,town,class,floor\n1,Bern,dear,1\n",
        &["no column \"floors\"", "did you mean \"floor\"?"],
    );
    fails(
        "area,town,class,floors,price,garden\n1,Bern,dear,1,2,3\n",
        &["new.csv has a column \"garden\", which the table of training had not"],
    );
    fails(
        "area,town,class,floors,price\nlarge,Bern,dear,1,2\n",
        &["\"area\" is no column of numbers: it has \"large\""],
    );
    scene.write(
        "new.csv",
        b"area,town,class,floors,price\n1,Bern,dear,1,\n2,Bern,dear,1,5\n",
    );
    scene.fails("eval run --data new.csv", &["\"price\" is no number in row 1"]);
    scene.ok("predict run new.csv");
    scene.fails("predict run houses.csv --invert", &["--invert is for images"]);
    scene.fails("generate run", &["is a run of table"]);
    scene.fails("eval run --full", &["--full is for images"]);

    // The same shapes with other settings.
    scene.ok(&format!(
        "train table houses.csv --target price --ignore id --seed 1 --epochs 2 --out other {QUICK}"
    ));
    let model = scene.read("run/model.safetensors");
    scene.write("run/model.safetensors", &scene.read("other/model.safetensors"));
    for line in ["predict run houses.csv", "eval run", "export run --onnx x.onnx"] {
        scene.fails(
            line,
            &[
                "model.safetensors was not trained with the settings in",
                "seed",
                "the same run",
            ],
        );
    }
    scene.write("run/model.safetensors", &model);
    scene.ok("eval run");

    let config = String::from_utf8(scene.read("run/config.json")).unwrap();
    let width = config.replace("\"hidden\": [\n    64,", "\"hidden\": [\n    99999999999,");
    let encoder = {
        let mut value: serde_json::Value = serde_json::from_str(&config).unwrap();
        value["encoder"] = serde_json::Value::Null;
        value.to_string()
    };
    let mean = config.replace("\"std\":", "\"std\": -1e3, \"was\":");
    for (edited, words) in [
        (width, "hidden: 99999999999 is not 1 to 16777216"),
        (encoder, "the inputs: 0 is not 1 to 16777216"),
        (mean, "are not those of a target"),
        (config[..100].to_owned(), "EOF"),
    ] {
        assert_ne!(edited, config);
        scene.write("run/config.json", edited.as_bytes());
        for line in [
            "eval run",
            "show run",
            "predict run houses.csv",
            "train --resume run --epochs 3",
        ] {
            scene.fails(line, &["config.json", words]);
        }
    }
}
