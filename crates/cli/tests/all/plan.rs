//! `polygrad plan`: its predictions, and what it rejects.

use crate::common::Scene;

/// The cells of the line for `ranks` ranks.
fn cells(out: &str, ranks: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let is_it = |cells: &Vec<String>| cells.len() > 2 && cells[0] == "prediction" && cells[1] == ranks;
    let found = out.lines().map(words).find(is_it);
    found.unwrap_or_else(|| panic!("no line for {ranks} ranks in\n{out}"))
}

#[test]
fn a_prediction_for_each_number_of_ranks() {
    let scene = Scene::new();
    // 4,610 parameters of f32; 6 of them and 2 notes more are sent: 18,472 bytes.
    let line = "plan mlp-rl/adam --steps 3 --ranks 1,2,1024 --latency 2s --bandwidth 8Tbit";
    let out = scene.ok(line);
    for words in [
        "mlp-rl adam: 3 steps of a rank",
        "1 bucket: 18.5 kB after ",
        "model 18.4 kB, optimizer 36.9 kB, sums of gradients 18.5 kB",
        "8000.0 Gbit/s and 2.0 s; 1 rank of 1 thread on each machine",
        "on cpu:threads=1, ",
    ] {
        assert!(out.contains(words), "{words} is not in\n{out}");
    }
    let one = cells(&out, "1");
    assert_eq!(one[4..9], ["0.0", "ns", "100.0", "%", "0"], "{out}");
    // 2 (N - 1) latencies; 2 (N - 1) / N of the bytes.
    let two = cells(&out, "2");
    assert_eq!(
        (&two[4..6], &two[8..10]),
        (&["4.0".into(), "s".into()][..], &["18.5".into(), "kB".into()][..])
    );
    let many = cells(&out, "1024");
    assert_eq!(
        (&many[4..6], &many[8..10]),
        (&["4092.0".into(), "s".into()][..], &["36.9".into(), "kB".into()][..])
    );
    // Half as much again for the parameters.
    let sharded = cells(&scene.ok(&format!("{line} --shard-optimizer")), "2");
    assert_eq!(
        (&sharded[4..6], &sharded[8..10]),
        (&["6.0".into(), "s".into()][..], &["27.7".into(), "kB".into()][..])
    );
}

#[test]
fn ranks_that_take_all_cores_do_not_overlap() {
    let scene = Scene::new();
    let words = "1000000 ranks of 1 thread on each machine: all cores are taken";
    let out = scene.ok("plan mlp-rl/sgd --steps 1 --ranks-per-host 1000000");
    assert!(out.contains(words), "{out}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let scene = Scene::new();
    for (line, words) in [
        ("plan mlp-rl", "2 cases, and a plan is of one"),
        ("plan gemm/64x64x64", "gemm 64x64x64 does not train"),
        ("plan cnn --backend gpu", "no backend named \"gpu\""),
        ("plan cnn --parallel pigeons", "there is no engine \"pigeons\""),
    ] {
        scene.fails(line, &[words]);
    }
    for (line, words) in [
        ("plan cnn --ranks 0", "1 or more"),
        ("plan cnn --bandwidth 10", "such as 10Gbit"),
        ("plan cnn --latency 1h", "such as 50us"),
        ("plan cnn --parallel gloo --ranks 8", "cannot be used with"),
        ("plan cnn --trace steps.json", "--parallel"),
    ] {
        let ended = scene.run(line);
        assert!(
            ended.code == Some(2) && ended.stderr.contains(words),
            "{line}: {}",
            ended.stderr
        );
    }
}
