//! Polygrad as a peer: the other end of the protocol of `peer`.

use std::io::Write;

use polygrad::communicator::Communicator;
use polygrad_console::failure::{Failure, Result};

use super::contestant::{Contestant, Times};

/// A question, or the error of reading it.
type Line = std::io::Result<String>;

/// Answers questions until the input ends.
///
/// # Errors
/// If an answer cannot be written. Failures of a case are answers.
pub(crate) fn serve(
    contestant: &mut dyn Contestant,
    questions: impl Iterator<Item = Line>,
    mut answers: impl Write,
) -> Result<()> {
    let gone = |error: std::io::Error| {
        Failure::new(format!("cannot answer: {error}")).fix("leave out --serve, which is for programs that ask")
    };
    writeln!(answers, "peer {}", contestant.name()).map_err(gone)?;
    for question in questions {
        let answer = answer(contestant, &question.map_err(gone)?);
        let line = match answer {
            Ok(text) => format!("ok {text}"),
            Err(reason) => format!("no {}", reason.replace('\n', " ")),
        };
        writeln!(answers, "{}", line.trim_end()).map_err(gone)?;
        answers.flush().map_err(gone)?;
    }
    Ok(())
}

/// The questions to the first of several processes, broadcast to all.
pub(crate) fn shared(
    group: &dyn Communicator,
    mut questions: impl Iterator<Item = Line>,
) -> impl Iterator<Item = Line> {
    let told = move |line: Option<String>| -> polygrad::Result<Option<String>> {
        // With a newline, so that only the end of input is empty.
        let line = line.map_or_else(Vec::new, |line| (line + "\n").into_bytes());
        let text = group.broadcast_vec(line, 0)?;
        Ok((!text.is_empty()).then(|| String::from_utf8_lossy(&text).trim_end().to_owned()))
    };
    std::iter::from_fn(move || {
        let own = if group.rank() == 0 { questions.next() } else { None };
        match own.transpose() {
            Ok(line) => told(line).map_err(std::io::Error::other).transpose(),
            Err(error) => Some(Err(error)),
        }
    })
}

fn answer(contestant: &mut dyn Contestant, question: &str) -> std::result::Result<String, String> {
    match question.split_once(' ').unwrap_or((question, "")) {
        ("case", name) => contestant.case(name).map(|()| String::new()),
        ("run", counts) => {
            let counts = counts.split_once(' ').and_then(|(samples, steps)| {
                let counts: (usize, usize) = (samples.parse().ok()?, steps.parse().ok()?);
                (counts.0 > 0 && counts.1 > 0).then_some(counts)
            });
            let (samples, steps) = counts.ok_or("run takes two numbers above 0, of samples and of steps in each")?;
            let Times { seconds, loss } = contestant.run(samples, steps)?;
            let loss = loss.map_or("-".to_owned(), |loss| loss.to_string());
            let times: Vec<String> = seconds.iter().map(f64::to_string).collect();
            Ok(format!("{loss} {}", times.join(" ")))
        }
        _ => Err(format!(
            "{question:?} is not among the questions: case NAME, run SAMPLES STEPS"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::native::{Mode, Native};
    use super::*;

    #[test]
    fn each_question_has_a_line_for_an_answer() {
        let questions = "case mlp-act\nrun 2 3\ncase mlp-act/x\nrun 0 1\nrun 1 1\nhello\ncase mlp-rl sgd\nrun 1 1\n";
        let mut answers = Vec::new();
        serve(
            &mut Native::open("cpu:threads=1", Mode::Written).unwrap(),
            questions.lines().map(|line| Ok(line.to_owned())),
            &mut answers,
        )
        .unwrap();
        let text = String::from_utf8(answers).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("peer polygrad "), "{text}");
        assert_eq!(lines[1], "ok");
        let words: Vec<&str> = lines[2].split(' ').collect();
        assert!(words.len() == 4 && words[..2] == ["ok", "-"], "{text}");
        for (line, words) in [
            (3, "no case"),
            (4, "above 0"),
            (5, "no case has been chosen"),
            (6, "\"hello\""),
        ] {
            assert!(lines[line].starts_with("no ") && lines[line].contains(words), "{text}");
        }
        assert_eq!(lines[7], "ok");
        assert!(lines[8].starts_with("ok 0."), "{text}");
    }
}
