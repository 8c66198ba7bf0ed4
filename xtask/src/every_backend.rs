//! The picture in the README: the losses of one training run that continues across all engines.

use std::process::Stdio;
use std::{fs, io};

use polygrad_plot::colours::{FAINT, GROUND, HEADING, LINES, TITLE};
use polygrad_plot::{Align, Axis, Canvas, Chart, Frame, Series};

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
/// If the example cannot be built or fails, or the picture cannot be written.
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

/// A line through all losses, with a different colour for the part of each engine.
fn draw(engines: &[(String, Vec<f64>)]) -> io::Result<Vec<u8>> {
    let losses = engines.iter().flat_map(|(_, losses)| losses);
    let points: Vec<(f64, f64)> = losses.enumerate().map(|(i, &loss)| (i as f64 + 0.5, loss)).collect();
    let top = (2.0 * points.iter().map(|point| point.1).fold(0.5, f64::max)).ceil() / 2.0;
    let mut chart = Chart {
        heading: String::new(),
        x: Axis::names((1..=points.len()).map(|step| step.to_string())).title("step"),
        y: Axis::linear(0.0, top, (2.0 * top) as u8).grid(),
        series: Vec::new(),
    };
    let frame = Frame::new((LEFT, TOP), (RIGHT, BOTTOM));
    let mut canvas = Canvas::new(WIDTH as usize, HEIGHT as usize, GROUND);
    let title = "One training run that moves from engine to engine: the loss of each step";
    canvas.text(title, (LEFT, 56.0), Align::Left, TITLE);
    let across = |step: usize| LEFT + step as f32 / points.len() as f32 * (RIGHT - LEFT);
    let mut begin = 0;
    for ((name, losses), colour) in engines.iter().zip(LINES.into_iter().cycle()) {
        let end = begin + losses.len();
        // The line continues from the last point of the previous engine.
        let line = points[begin.saturating_sub(1)..end].to_vec();
        chart.series.push(Series::new("", colour, line).line(4.0, 1.0));
        chart
            .series
            .push(Series::new("", colour, points[begin..end].to_vec()).dots(12.0, 1.0));
        if begin > 0 {
            canvas.strokes(
                &[vec![(across(begin), TOP - 40.0), (across(begin), BOTTOM)]],
                1.0,
                FAINT,
                0.5,
            );
        }
        let middle = (across(begin) + across(end)) / 2.0;
        canvas.text(name, (middle, TOP - 24.0), Align::Centre, HEADING.coloured(colour));
        begin = end;
    }
    chart.draw(&mut canvas, &frame);
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
