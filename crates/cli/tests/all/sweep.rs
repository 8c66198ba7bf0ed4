//! Sweeps: trials are separate runs, shared by several processes, and no kill loses one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::Scene;

/// Small images.
const BARS: &str =
    "train = [\"bars\", \"--data\", \"data\", \"--threads\", \"1\", \"--model\", \"mlp\", \"--epochs\", \"2\"]
maximize = \"accuracy\"
";

/// A policy that takes about half a second.
const POLICY: &str =
    "train = [\"cartpole\", \"--total-steps\", \"20000\", \"--threads\", \"1\", \"--set\", \"update_epochs=5\"]
maximize = \"return\"
";

fn scene(text: &str) -> Scene {
    let scene = Scene::new();
    scene.write("own.toml", text.as_bytes());
    scene
}

/// The lines of the journal.
fn journal(scene: &Scene) -> Vec<Value> {
    let text = fs::read_to_string(scene.path("runs/own/journal.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// How often each trial had an event.
fn count(lines: &[Value], event: &str) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for line in lines.iter().filter(|line| line["event"] == event) {
        *counts.entry(line["trial"].as_u64().unwrap()).or_default() += 1;
    }
    counts
}

/// Values and results of all trials, in their order.
fn results(scene: &Scene) -> Vec<(Value, Value)> {
    let lines = journal(scene);
    let of = |event: &str, field: &str| -> BTreeMap<u64, Value> {
        let lines = lines.iter().filter(|line| line["event"] == event);
        lines
            .map(|line| (line["trial"].as_u64().unwrap(), line[field].clone()))
            .collect()
    };
    let (values, results) = (of("start", "values"), of("done", "value"));
    values
        .into_iter()
        .map(|(trial, values)| (values, results.get(&trial).cloned().unwrap_or_default()))
        .collect()
}

/// Waits until a condition is fulfilled.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what} takes too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn last_value(run: &Path, column: usize) -> f64 {
    let text = fs::read_to_string(run.join("metrics.csv")).unwrap();
    let last = text.lines().rfind(|line| line.contains(",test,")).unwrap();
    last.split(',').nth(column).unwrap().parse().unwrap()
}

#[test]
fn the_best_setting_is_a_command_that_gives_the_same() {
    let scene = scene(&format!(
        "{BARS}trials = 6\nparallel = 2\n[space]\nlr = {{ log = [1e-4, 1e-1] }}\n\
         optimizer = {{ choice = [\"sgd\", \"adamw\"] }}\nbatch-size = {{ log_int = [4, 64] }}\n"
    ));
    let text = scene.ok("sweep own.toml");
    let (lines, results) = (journal(&scene), results(&scene));
    assert!(results.len() == 6 && count(&lines, "done").len() == 6, "{lines:?}");
    let best = results
        .iter()
        .map(|(_, value)| value.as_f64().unwrap())
        .fold(0.0, f64::max);
    let (said, command) = text.trim_end().rsplit_once("\n  polygrad ").unwrap();
    assert!(said.contains(&format!("best: accuracy {best} of trial ")), "{text}");
    scene.ok(&format!("{command} --out again"));
    assert_eq!(last_value(&scene.path("again"), 4), best);
    // Called again, there is nothing to do, but more trials can be requested.
    assert!(!scene.ok("sweep own.toml").contains("trial 7"));
    let more = fs::read_to_string(scene.path("own.toml"))
        .unwrap()
        .replace("trials = 6", "trials = 7");
    scene.write("own.toml", more.as_bytes());
    assert!(scene.ok("sweep own.toml").contains("trial 7 of 7: --batch-size "));
    let shown = scene.ok("sweep --show runs/own --plot own.png");
    assert!(
        shown.contains("\n  polygrad train bars --data data") && shown.lines().next().unwrap().contains("optimizer")
    );
    let picture = png::Decoder::new(std::io::Cursor::new(scene.read("own.png")))
        .read_info()
        .unwrap();
    assert_eq!((picture.info().width, picture.info().height), (1920, 80 + 2 * 520));
}

#[test]
fn a_killed_sweep_goes_on_as_if_it_had_not_been() {
    let text = format!("{POLICY}trials = 4\n[space]\nlr = {{ log = [1e-4, 1e-2] }}\n");
    let whole = scene(&text);
    whole.ok("sweep own.toml");
    let killed = scene(&text);
    for _ in 0..3 {
        let before = journal(&killed).len();
        let mut child = killed.command("sweep own.toml").spawn().unwrap();
        until("a trial", || journal(&killed).len() > before);
        std::thread::sleep(Duration::from_millis(300));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    killed.ok("sweep own.toml");
    let lines = journal(&killed);
    assert!(
        count(&lines, "start")
            .values()
            .chain(count(&lines, "done").values())
            .all(|&times| times == 1),
        "{lines:?}"
    );
    assert_eq!(results(&killed), results(&whole));
    for trial in 1..=4 {
        killed.ok(&format!("train --resume runs/own/trial-000{trial}"));
    }
}

/// The process of a trial may be killed with its sweep, before its first checkpoint or after it.
#[cfg(target_os = "linux")]
#[test]
fn a_trial_whose_process_was_killed_goes_on() {
    let scene = scene(&format!("{POLICY}trials = 1\n[space]\nlr = {{ log = [1e-4, 1e-2] }}\n"));
    let mut child = scene.command("sweep own.toml").spawn().unwrap();
    for what in ["trial-0001.txt", "trial-0001/checkpoint.safetensors"] {
        until(what, || scene.path("runs/own").join(what).exists());
        let id = child.id();
        let trial = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        std::process::Command::new("sh")
            .args(["-c", &format!("kill -KILL {trial}")])
            .status()
            .unwrap();
    }
    assert!(child.wait().unwrap().success());
    let lines = journal(&scene);
    assert_eq!(
        (count(&lines, "start").len(), count(&lines, "done").len()),
        (1, 1),
        "{lines:?}"
    );
    assert!(!count(&lines, "again").is_empty(), "{lines:?}");
}

#[test]
fn a_trial_has_a_run_for_each_seed_and_counts_by_their_mean() {
    let scene = scene(&format!(
        "{BARS}trials = 2\nseeds = 3\n[space]\nlr = {{ log = [1e-4, 1e-2] }}\n"
    ));
    let text = scene.ok("sweep own.toml");
    let accuracies = |trial: usize| {
        let run = |seed| scene.path(&format!("runs/own/trial-000{trial}/seed-{seed}"));
        [0, 1, 2].map(|seed| last_value(&run(seed), 4))
    };
    let means = [1, 2].map(|trial| accuracies(trial).iter().sum::<f64>() / 3.0);
    let best = if means[1] > means[0] { 2 } else { 1 };
    let of = |line: &str| -> Vec<f64> { line.split(", ").map(|x| x.parse().unwrap()).collect() };
    let (value, rest) = text
        .split_once("\nbest: accuracy ")
        .unwrap()
        .1
        .split_once(" of trial ")
        .unwrap();
    assert!(
        (value.parse::<f64>().unwrap() - means[best - 1]).abs() < 1e-4,
        "{text}\n{means:?}"
    );
    let each = rest
        .strip_prefix(&format!("{best}, the mean of "))
        .unwrap()
        .split_once(", runs")
        .unwrap()
        .0;
    let off = of(each)
        .iter()
        .zip(accuracies(best))
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max);
    assert!(off < 1e-4, "{text}");
    let lines = journal(&scene);
    assert_eq!(
        (count(&lines, "ran"), count(&lines, "done")),
        ([(1, 2), (2, 2)].into(), [(1, 1), (2, 1)].into())
    );
    // Each run is that of its seed.
    let command = text.trim_end().rsplit_once("\n  polygrad ").unwrap().1;
    for seed in [0, 2] {
        scene.ok(&format!("{command} --seed {seed} --out again-{seed}"));
        assert_eq!(
            last_value(&scene.path(&format!("again-{seed}")), 4),
            accuracies(best)[seed]
        );
    }
    let seeded = fs::read_to_string(scene.path("own.toml"))
        .unwrap()
        .replace("\"--threads\"", "\"--seed\", \"1\", \"--threads\"");
    scene.write("seeded.toml", seeded.as_bytes());
    scene.fails(
        "sweep seeded.toml",
        &["seeded.toml: seeds: the argument '--seed", "multiple times"],
    );
}

/// Of a trial's three runs, the second one is killed with its sweep.
#[cfg(target_os = "linux")]
#[test]
fn a_trial_goes_on_with_the_run_that_was_killed() {
    let text = format!("{POLICY}trials = 1\nseeds = 3\n[space]\nlr = {{ log = [1e-4, 1e-2] }}\n");
    let whole = scene(&text);
    whole.ok("sweep own.toml");
    let killed = scene(&text);
    let mut sweep = killed.command("sweep own.toml").spawn().unwrap();
    let checkpoint = killed.path("runs/own/trial-0001/seed-1/checkpoint.safetensors");
    until("the second run", || checkpoint.exists());
    let id = sweep.id();
    let trial = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    sweep.kill().unwrap();
    sweep.wait().unwrap();
    std::process::Command::new("sh")
        .args(["-c", &format!("kill -KILL {trial}")])
        .status()
        .unwrap();
    killed.ok("sweep own.toml");
    let values = |scene: &Scene| -> Vec<Value> {
        let lines = journal(scene);
        let ended = lines
            .iter()
            .filter(|line| line["event"] == "ran" || line["event"] == "done");
        ended.map(|line| line["value"].clone()).collect()
    };
    assert_eq!((values(&killed).len(), values(&killed)), (3, values(&whole)));
    assert_eq!(count(&journal(&killed), "again"), [(1, 1)].into());
}

#[test]
fn two_processes_share_the_trials() {
    let scene = scene(&format!("{POLICY}trials = 6\n[space]\nlr = {{ log = [1e-4, 1e-2] }}\n"));
    let children = [(); 2].map(|()| scene.command("sweep own.toml").spawn().unwrap());
    for child in children {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    let lines = journal(&scene);
    for event in ["start", "done"] {
        let counts = count(&lines, event);
        assert!(
            counts.len() == 6 && counts.values().all(|&times| times == 1),
            "{lines:?}"
        );
    }
    let by: std::collections::BTreeSet<&str> = lines.iter().filter_map(|line| line["by"].as_str()).collect();
    assert_eq!(by.len(), 2, "{lines:?}");
}

#[test]
fn a_trial_that_fails_is_the_worst() {
    let scene = scene(&format!(
        "{BARS}trials = 5\n[space]\nlr = {{ choice = [0.01, 1e30] }}\noptimizer = {{ choice = [\"sgd\"] }}\n"
    ));
    let text = scene.ok("sweep own.toml");
    let lines = journal(&scene);
    let (failed, done) = (count(&lines, "failed").len(), count(&lines, "done").len());
    assert!(failed > 0 && done > 0 && failed + done == 5, "{lines:?}");
    assert!(
        text.contains(" failed: the loss is ") && text.contains("best: "),
        "{text}"
    );
    // If no trial finishes, there is no best one.
    let all = fs::read_to_string(scene.path("own.toml"))
        .unwrap()
        .replace("[0.01, 1e30]", "[1e30]");
    scene.write("worst.toml", all.as_bytes());
    scene.fails("sweep worst.toml", &["no trial came to an end"]);
}

#[test]
fn what_has_no_hope_is_ended_early_with_a_checkpoint() {
    let scene = scene(&format!(
        "{POLICY}trials = 16\nparallel = 2\nsampler = \"random\"\npruner = \"median\"\n[space]\n\
         lr = {{ choice = [1e-3, 2e-3, 1e-8] }}\n"
    ));
    let text = scene.ok("sweep own.toml");
    let pruned = count(&journal(&scene), "pruned");
    assert!(!pruned.is_empty() && text.contains("ended early"), "{text}");
    for trial in pruned.keys() {
        let run = format!("runs/own/trial-{trial:04}");
        assert!(scene.path(&run).join("checkpoint.safetensors").exists());
        scene.ok(&format!("train --resume {run}"));
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_a_sweep_and_its_trials() {
    use crate::common::{heeding_ctrl_c, press_ctrl_c};
    let scene = scene(&format!(
        "{}trials = 2\nparallel = 2\n[space]\nlr = {{ log = [1e-4, 1e-2] }}\n",
        POLICY.replace("20000", "4000000")
    ));
    let child = heeding_ctrl_c(scene.command("sweep own.toml")).spawn().unwrap();
    until("both", || {
        let began = |trial: u32| scene.path(&format!("runs/own/trial-000{trial}/metrics.csv")).exists();
        began(1) && began(2)
    });
    press_ctrl_c(&child);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    let text = String::from_utf8(ended.stderr).unwrap();
    assert!(text.contains("stopped; to go on: polygrad sweep own.toml"), "{text}");
    let lines = journal(&scene);
    assert_eq!(
        (count(&lines, "stopped").len(), count(&lines, "done").len()),
        (2, 0),
        "{lines:?}"
    );
    for trial in 1..=2 {
        assert!(
            scene
                .path(&format!("runs/own/trial-000{trial}/checkpoint.safetensors"))
                .exists()
        );
    }
    let shown = scene.ok("sweep --show runs/own");
    assert!(shown.contains("running") && !shown.contains("best:"), "{shown}");
}

#[test]
fn a_file_stops_a_run() {
    let scene = Scene::new();
    scene.write("stop", b"");
    let ended = scene.run("train cartpole --threads 1 --total-steps 4000000 --stop-file stop --out run");
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    assert!(scene.path("run/checkpoint.safetensors").exists());
}

/// The metrics that a sweep expects of a job are those that its runs measure.
#[test]
fn metrics_are_those_of_the_runs() {
    let scene = Scene::new();
    scene.write(
        "homes.csv",
        b"size,price\n1,10\n2,21\n3,29\n4,41\n5,52\n6,58\n7,71\n8,80\n9,91\n10,99\n",
    );
    scene.write(
        "kinds.csv",
        b"size,kind\n1,a\n2,a\n3,a\n4,a\n5,b\n6,b\n7,b\n8,b\n9,b\n10,a\n",
    );
    scene.write(
        "text.txt",
        "to be or not to be, that is the question. ".repeat(60).as_bytes(),
    );
    for (at, job) in [
        "bars --data data --model mlp --epochs 1",
        "table homes.csv --target price --epochs 1",
        "table kinds.csv --target kind --epochs 1",
        "chargpt --text text.txt --epochs 1",
        "cartpole --total-steps 512",
        "cartpole --algorithm dqn --set learning_starts=100 --total-steps 256",
        "pendulum --algorithm sac --set learning_starts=100 --total-steps 128",
    ]
    .iter()
    .enumerate()
    {
        let words: Vec<String> = job.split(' ').map(|word| format!("{word:?}")).collect();
        let text = format!(
            "train = [{}, \"--threads\", \"1\"]\nmaximize = \"luck\"\ntrials = 1\n[space]\n\
             lr = {{ log = [1e-4, 1e-2] }}\n",
            words.join(", ")
        );
        scene.write("own.toml", text.as_bytes());
        let ended = scene.run("sweep own.toml");
        let error = ended.stderr;
        assert_eq!(ended.code, Some(1), "{error}");
        assert!(error.contains("error: own.toml: maximize: a run of "), "{error}");
        scene.ok(&format!("train {job} --threads 1 --out run-{at}"));
        let csv = fs::read_to_string(scene.path(&format!("run-{at}/metrics.csv"))).unwrap();
        let header: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
        let measured = header[3..header.len() - 2].join(", ");
        assert!(
            error.trim_end().ends_with(&format!("it measures {measured}")),
            "{error}\n{measured}"
        );
    }
    assert!(!scene.path("runs").exists(), "a trial has begun");
}

#[test]
fn nonsense_is_refused_before_the_first_trial() {
    let scene = Scene::new();
    let whole = format!(
        "{POLICY}trials = 3\n[space]\nlr = {{ log = [1e-4, 1e-2] }}\n[space.set]\ngamma = {{ uniform = [0.9, 1] }}\n"
    );
    for (from, to, words) in [
        (
            "[\"cartpole\"",
            "[\"no-such-set\"",
            [
                "own.toml: train: --total-steps is for rl, and this is a run of images",
                "leave it out",
            ],
        ),
        (
            "[\"cartpole\", \"--total-steps\", \"20000\", \"--threads\", \"1\", \"--set\", \"update_epochs=5\"]",
            "[]",
            ["train: it does not say what to learn from", "cartpole"],
        ),
        (
            "--total-steps",
            "--totl-steps",
            ["train: unexpected argument '--totl-steps'", "--total-steps"],
        ),
        (
            "epochs=5\"]",
            "epochs=5\", \"--out\", \"x\"]",
            ["train: --out cannot be told to several runs", "leave it out"],
        ),
        (
            "lr =",
            "lrr =",
            ["space.lrr: unexpected argument '--lrr'", "perhaps --lr"],
        ),
        (
            "lr =",
            "epochs =",
            ["space.epochs: --epochs is for images", "and this is a run of rl"],
        ),
        (
            "gamma",
            "gama",
            ["space.set.gama: there is no setting gama", "there are: "],
        ),
        (
            "uniform = [0.9, 1]",
            "uniform = [0.9, 7]",
            ["space.set.gamma: ", "gamma"],
        ),
        (
            "uniform = [0.9, 1]",
            "uniform = [1, 0.9]",
            ["space.set.gamma: 1 to 0.9 is no range", "lower bound first"],
        ),
        (
            "log = [1e-4, 1e-2]",
            "choice = [0.1, \"high\"]",
            ["space.lr: invalid value 'high'", "--lr"],
        ),
        (
            "log = [1e-4, 1e-2]",
            "uniform = [-1, 1]",
            ["space.lr: invalid value '-1", "above 0"],
        ),
        (
            "lr = { log = [1e-4, 1e-2] }",
            "total-steps = { int = [100, 200] }",
            ["space.total-steps: ", "multiple times"],
        ),
        (
            "\"return\"",
            "\"accuracy\"",
            [
                "maximize: a run of rl does not measure \"accuracy\"",
                "loss, return, length",
            ],
        ),
        (
            "trials = 3",
            "trails = 3",
            ["own.toml, line 3 (`trails = 3`)", "unknown field"],
        ),
    ] {
        assert!(whole.contains(from), "{from}");
        scene.write("own.toml", whole.replacen(from, to, 1).as_bytes());
        scene.fails("sweep own.toml", &words);
    }
    scene.fails("sweep none.toml", &["none.toml"]);
    scene.fails("sweep --show data", &["data holds no sweep"]);
    assert!(!scene.path("runs").exists());
    scene.write("own.toml", whole.as_bytes());
    fs::create_dir_all(scene.path("runs/own")).unwrap();
    scene.write("runs/own/sweep.toml", whole.replace("gamma", "gae_lambda").as_bytes());
    scene.fails(
        "sweep own.toml",
        &["runs/own is the folder of another sweep", "folder = "],
    );
}
