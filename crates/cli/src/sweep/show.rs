//! Text report of a sweep.

use serde_json::Value;

use super::config::Config;
use super::journal::{State, Trial, folder};
use super::search::importance;
use crate::failure::Shown;
use crate::progress::{clock, say, short};

/// Prints the results of all trials, the best first, and how to train with the best settings.
pub(super) fn report(config: &Config, trials: &[Trial]) {
    table(config, trials).iter().for_each(|line| say(line));
    let Some(best) = Trial::best(config, trials) else {
        return;
    };
    let shares = importance(config, trials);
    if !shares.is_empty() {
        say("share of the differences that each setting alone explains:");
        for (name, share) in shares {
            say(&format!("  {:>4.0} %  {name}", 100.0 * share));
        }
    }
    let of_seeds = match &best.runs[..] {
        [_] => String::new(),
        runs => {
            let values: Vec<String> = runs.iter().map(|run| figure(run.value)).collect();
            format!(", the mean of {}", values.join(", "))
        }
    };
    say(&format!(
        "best: {} {} of trial {}{of_seeds}, {}\n  polygrad train {}",
        config.metric,
        figure(best.value().unwrap_or(f64::NAN)),
        best.number,
        folder(&config.folder, best.number).shown(),
        shell(&config.words(&best.values))
    ));
}

/// A table of the trials, with column names.
fn table(config: &Config, trials: &[Trial]) -> Vec<String> {
    let names = config.space.iter().map(super::space::Setting::name);
    let header = ["trial".to_owned(), config.metric.clone()];
    let mut rows: Vec<Vec<String>> = vec![header.into_iter().chain(names).chain(["".to_owned()]).collect()];
    let mut sorted: Vec<&Trial> = trials.iter().collect();
    let cost = |trial: &Trial| trial.reached().map_or(f64::INFINITY, |value| config.cost(value));
    let rank = |trial: &Trial| match &trial.state {
        State::Done => (0, cost(trial)),
        State::Pruned => (1, cost(trial)),
        State::Failed { .. } => (2, 0.0),
        State::Running => (3, 0.0),
    };
    sorted.sort_by(|a, b| {
        let (a, b) = (rank(a), rank(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    for trial in sorted {
        let value = trial.reached().map_or_else(String::new, figure);
        let note = match &trial.state {
            State::Done => clock(trial.seconds()),
            State::Pruned => format!("{}, ended early", clock(trial.seconds())),
            State::Failed { why } => format!("failed: {why}"),
            State::Running => "running".to_owned(),
        };
        let values = trial.values.iter().map(plain);
        rows.push(
            [trial.number.to_string(), value]
                .into_iter()
                .chain(values)
                .chain([note])
                .collect(),
        );
    }
    let columns = rows[0].len();
    let widths: Vec<usize> = (0..columns)
        .map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0))
        .collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(at, (cell, &width))| match at + 1 < columns {
            true => format!("{cell:>width$}"),
            false => cell.clone(),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// A value without JSON syntax.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// The additional options of a trial.
pub(super) fn setting(config: &Config, values: &[Value]) -> String {
    let words = config
        .space
        .iter()
        .zip(values)
        .flat_map(|(setting, value)| setting.words(value));
    shell(&words.collect::<Vec<_>>())
}

/// A number with five significant digits.
pub(super) fn figure(x: f64) -> String {
    short(format!("{x:.4e}").parse().unwrap_or(x))
}

/// Words quoted for a shell.
pub(super) fn shell(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    let quoted = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::config::tests::config;
    use super::super::journal::tests::done;
    use super::*;

    #[test]
    fn words_reach_a_program_as_they_are() {
        let words = ["--set", "hidden=[64,64]", "it's", "a b", "", "lr=0.1", "$HOME"].map(str::to_owned);
        let line = shell(&words);
        assert_eq!(line, "--set 'hidden=[64,64]' 'it'\\''s' 'a b' '' lr=0.1 '$HOME'");
        #[cfg(unix)]
        {
            let told = std::process::Command::new("sh")
                .args(["-c", &format!("printf '%s\\n' {line}")])
                .output();
            assert_eq!(
                String::from_utf8(told.unwrap().stdout).unwrap(),
                words.join("\n") + "\n"
            );
        }
    }

    #[test]
    fn the_best_trial_is_on_top() {
        let config = config(
            "train = [\"x\"]\nmaximize = \"return\"\ntrials = 9\n[space]\nlr = { log = [1e-5, 1] }\n\
             [space.set]\nshared = { choice = [true, \"no\"] }\n",
        )
        .unwrap();
        let mut trials: Vec<Trial> = [3.0, 123.456_789, -7.5]
            .iter()
            .zip(1..)
            .map(|(&value, number)| done(number, vec![0.01.into(), "no".into()], value))
            .collect();
        trials[2].state = State::Failed {
            why: "its return is no number".to_owned(),
        };
        assert_eq!(
            table(&config, &trials),
            [
                "trial  return    lr  set.shared",
                "    2  123.46  0.01          no  0:01",
                "    1       3  0.01          no  0:01",
                "    3          0.01          no  failed: its return is no number",
            ]
        );
    }
}
