//! The picture of the README: the losses of one training run that goes on over all engines.

use std::fs;
use std::process::Stdio;

use crate::canvas::{Align, Canvas, Picture as _, Point, Style};
use crate::colours::{FAINT, GRID, GROUND, HEADING, LABEL, LINES, TITLE};
use crate::{cargo, torch};

const FEATURES: &str = "compute,candle,burn,luminal";
const PICTURE: &str = "docs/every-backend.png";

const WIDTH: f32 = 1600.0;
const HEIGHT: f32 = 640.0;
const LEFT: f32 = 110.0;
const RIGHT: f32 = 1550.0;
const TOP: f32 = 150.0;
const BOTTOM: f32 = 540.0;

/// `cargo xtask every-backend`: runs the example with every engine that can be built here, and draws what it prints.
///
/// # Errors
/// When the example cannot be built or fails, or the picture cannot be written.
pub(crate) fn run() -> Result<(), String> {
    let (features, environment) = match torch::environment() {
        Ok(environment) => (format!("{FEATURES},torch"), environment),
        Err(reason) => {
            println!("without torch: {reason}");
            (FEATURES.to_owned(), Vec::new())
        }
    };
    let line = [
        "run",
        "--release",
        "--features",
        &features,
        "--example",
        "every_backend",
    ];
    println!("cargo {}", line.join(" "));
    let output = cargo::command(&line, &environment)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("cargo could not be started: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    if !output.status.success() {
        return Err(format!("the example ended with {}", output.status));
    }
    let picture = draw(&losses(&text)?).map_err(|e| format!("{PICTURE}: {e}"))?;
    fs::write(cargo::checkout().join(PICTURE), picture).map_err(|e| format!("{PICTURE}: {e}"))?;
    println!("{PICTURE}");
    Ok(())
}

/// The losses of each engine in turn, out of lines such as `candle     step 11  loss 1.2345  ####`.
fn losses(text: &str) -> Result<Vec<(String, Vec<f64>)>, String> {
    let mut engines: Vec<(String, Vec<f64>)> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, "step", _, "loss", loss, ..] = words[..] else {
            continue;
        };
        let loss = loss.parse().map_err(|_| format!("no loss in: {line}"))?;
        match engines.last_mut().filter(|(last, _)| last == name) {
            Some((_, losses)) => losses.push(loss),
            None => engines.push((name.to_owned(), vec![loss])),
        }
    }
    match engines.is_empty() {
        true => Err("the example printed no losses".to_owned()),
        false => Ok(engines),
    }
}

/// A line through all losses, a stretch in a colour of its own for each engine.
fn draw(engines: &[(String, Vec<f64>)]) -> Result<Vec<u8>, png::EncodingError> {
    let all: Vec<f64> = engines.iter().flat_map(|(_, losses)| losses.iter().copied()).collect();
    let top = (2.0 * all.iter().copied().fold(0.5, f64::max)).ceil() / 2.0;
    let place = |step: f64, loss: f64| -> Point {
        let (x, y) = (step / all.len() as f64, loss / top);
        (LEFT + x as f32 * (RIGHT - LEFT), BOTTOM - y as f32 * (BOTTOM - TOP))
    };
    let mut canvas = Canvas::new(WIDTH as usize, HEIGHT as usize, GROUND);
    let title = "One training run that moves from engine to engine: the loss of each step";
    canvas.text(title, (LEFT, 56.0), Align::Left, TITLE);
    for i in 0..=(2.0 * top) as usize {
        let y = place(0.0, i as f64 / 2.0).1.round() + 0.5;
        canvas.strokes(&[vec![(LEFT, y), (RIGHT, y)]], 1.0, GRID, 1.0);
        canvas.text(
            &format!("{:.1}", i as f64 / 2.0),
            (LEFT - 16.0, y + 7.0),
            Align::Right,
            LABEL,
        );
    }
    let mut dots = Vec::new();
    let mut step = 0;
    let mut last: Option<Point> = None;
    for ((name, losses), colour) in engines.iter().zip(LINES.into_iter().cycle()) {
        let points: Vec<Point> = losses
            .iter()
            .enumerate()
            .map(|(i, &loss)| place((step + i) as f64 + 0.5, loss))
            .collect();
        let (from, to) = (place(step as f64, 0.0).0, place((step + losses.len()) as f64, 0.0).0);
        if step > 0 {
            canvas.strokes(&[vec![(from, TOP - 40.0), (from, BOTTOM)]], 1.0, FAINT, 0.5);
        }
        canvas.text(
            name,
            ((from + to) / 2.0, TOP - 24.0),
            Align::Centre,
            Style { colour, ..HEADING },
        );
        let line: Vec<Point> = last.into_iter().chain(points.iter().copied()).collect();
        canvas.strokes(&[line], 4.0, colour, 1.0);
        // Drawn last, so that no line covers a dot.
        dots.push((points.iter().map(|&point| vec![point]).collect::<Vec<_>>(), colour));
        for (i, point) in points.iter().enumerate() {
            canvas.text(
                &(step + i + 1).to_string(),
                (point.0, BOTTOM + 32.0),
                Align::Centre,
                LABEL,
            );
        }
        last = points.last().copied();
        step += losses.len();
    }
    for (dots, colour) in dots {
        canvas.strokes(&dots, 12.0, colour, 1.0);
    }
    canvas.text("step", ((LEFT + RIGHT) / 2.0, BOTTOM + 70.0), Align::Centre, LABEL);
    canvas.to_png()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_losses_are_gathered_by_engine() {
        let text = "cuda: not available: no driver\ncpu        step  1  loss 2.3000  ####\n\
                    cpu        step  2  loss 2.1000  ###\ncandle     step  3  loss 2.0000  ##\n";
        let engines = losses(text).unwrap();
        assert_eq!(
            engines,
            [("cpu".to_owned(), vec![2.3, 2.1]), ("candle".to_owned(), vec![2.0])]
        );
        assert!(!draw(&engines).unwrap().is_empty());
        assert!(losses("nothing\n").is_err());
    }
}
