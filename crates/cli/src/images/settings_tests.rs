use super::TrainArgs;
use super::config::{Config, Model};
use super::settings::new;
use crate::run::config::Optimizer;
use crate::train::line::Line;
use crate::train::resumed::{changes, disagreements, settings};

/// The words after `polygrad train`.
fn args(words: &str) -> TrainArgs {
    Line::of(words).read().unwrap()
}

fn stored() -> Config {
    new(&args("fashion-mnist --epochs 4 --threads 2")).unwrap()
}

fn resume(options: &str) -> Result<Config, String> {
    let args = args(&format!("--resume runs/a{options}"));
    settings(&stored(), &args, "runs/a".as_ref()).map_err(|e| e.to_string())
}

#[test]
fn options_become_settings() {
    let config = stored();
    assert_eq!((config.model, config.optimizer), (Model::Cnn, Optimizer::AdamW));
    assert_eq!(
        (config.training.epochs, config.training.base.threads, config.mirror),
        (4, Some(2), true)
    );
    let config = new(&args("mnist --optimizer sgd --model mlp --seed 7")).unwrap();
    assert_eq!(
        (config.model, config.optimizer, config.training.seed),
        (Model::Mlp, Optimizer::Sgd, 7)
    );
    assert!(!config.mirror && config.training.lr > 0.01);
    let error = new(&args("mnist --data no/such/folder")).unwrap_err();
    assert!(error.to_string().contains("no/such/folder"), "{error}");
}

#[test]
fn a_run_goes_on_with_its_own_settings() {
    assert_eq!(resume("").unwrap(), stored());
    let same = format!(
        " --epochs 4 --lr {} --seed 0 --model cnn --optimizer adamw --batch-size 32",
        stored().training.lr
    );
    assert_eq!(resume(&same).unwrap(), stored());
    assert!(changes(&stored(), &resume("").unwrap()).is_empty());
    let config = resume(" --epochs 9 --backend cpu:kernels=scalar").unwrap();
    assert_eq!((config.training.epochs, config.training.base.threads), (9, None));
    let lines = changes(&stored(), &config).join("\n");
    for words in [
        "epochs: 9 instead of 4",
        "cpu:kernels=scalar instead of cpu",
        "threads: one per core instead of 2",
    ] {
        assert!(lines.contains(words), "{lines}\nshould contain {words}");
    }
    assert_eq!(resume(" --threads 1").unwrap().training.base.threads, Some(1));
}

#[test]
fn other_settings_are_refused_with_both_values() {
    let error = resume(" --epochs 3 --lr 0.5 --seed 9 --model mlp --optimizer sgd --batch-size 64").unwrap_err();
    for words in [
        "--epochs is 4 there, not 3",
        "--lr is 0.003 there, not 0.5",
        "--seed is 0 there, not 9",
        "--model is cnn there, not mlp",
        "--optimizer is adamw there, not sgd",
        "--batch-size is 32 there, not 64",
        "leave these options out",
    ] {
        assert!(error.contains(words), "{error}\nshould contain {words}");
    }
    let args = args("mnist --resume runs/a");
    let error = settings(&stored(), &args, "runs/a".as_ref()).unwrap_err().to_string();
    assert!(
        error.contains("the data set is fashion-mnist there, not mnist"),
        "{error}"
    );
}

#[test]
fn a_changed_config_is_noticed() {
    let mut file = resume(" --epochs 9 --threads 1").unwrap();
    assert!(disagreements(&stored(), &file).is_empty());
    file.training.batch_size = 64;
    assert_eq!(
        disagreements(&stored(), &file),
        ["batch_size is 32 in the checkpoint, 64 in config.json"]
    );
}

#[test]
fn images_lie_in_one_place() {
    let new = |options: &str| new(&args(&format!("images{options}")));
    let stored = new(" src").unwrap();
    let resume = |options: &str| {
        let args = args(&format!("images{options} --resume runs/a"));
        settings(&stored, &args, "runs/a".as_ref())
    };
    for (options, words) in [
        (" src --data tests", "two places are named, one of them with --data"),
        (" src --full", "--full is for fashion-mnist"),
        (" --full", "--full is for fashion-mnist"),
    ] {
        for error in [new(options).unwrap_err(), resume(options).unwrap_err()] {
            assert!(error.to_string().contains(words), "{error}");
        }
    }
    for options in [" tests", " --data tests"] {
        assert_eq!(resume(options).unwrap().data, new(options).unwrap().data);
    }
    assert_eq!(resume("").unwrap(), stored);
}
