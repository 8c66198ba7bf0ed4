//! Charts of a sweep: the trials in order, and each setting against the results.

use std::path::Path;

use polygrad_plot::colours::{GROUND, LINES, TITLE};
use polygrad_plot::{Align, Axis, Canvas, Chart, Frame, Series};

use super::config::Config;
use super::journal::{State, Trial};
use super::show::{plain, shell};
use super::space::{Setting, Values};
use crate::failure::{Failure, Result};
use crate::run::atomic::AtomicFile;

const WIDTH: f32 = 640.0;
const HEIGHT: f32 = 520.0;
/// The height above all charts.
const HEAD: f32 = 80.0;
const COLUMNS: usize = 3;

/// Draws the charts into a PNG file.
///
/// # Errors
/// Nothing to draw; a file that cannot be written.
pub(super) fn save(path: &Path, config: &Config, trials: &[Trial]) -> Result<()> {
    if trials.iter().all(|trial| trial.value().is_none()) {
        return Err(Failure::new("there is nothing to draw: no trial is done").fix("let the sweep go on first"));
    }
    let charts: Vec<Chart> = std::iter::once(history(config, trials))
        .chain(
            config
                .space
                .iter()
                .enumerate()
                .map(|(at, setting)| against(trials, at, setting)),
        )
        .collect();
    let rows = charts.len().div_ceil(COLUMNS);
    let width = (COLUMNS.min(charts.len()) as f32 * WIDTH) as usize;
    let mut canvas = Canvas::new(width, (HEAD + rows as f32 * HEIGHT) as usize, GROUND);
    canvas.text(
        &format!("polygrad train {}", shell(&config.train)),
        (50.0, 52.0),
        Align::Left,
        TITLE,
    );
    for (at, chart) in charts.iter().enumerate() {
        let corner = ((at % COLUMNS) as f32 * WIDTH, HEAD + (at / COLUMNS) as f32 * HEIGHT);
        let frame = Frame::new(
            (corner.0 + 100.0, corner.1 + 70.0),
            (corner.0 + WIDTH - 40.0, corner.1 + HEIGHT - 90.0),
        );
        chart.draw(&mut canvas, &frame);
    }
    let failed = |error| Failure::new(format!("cannot make the picture: {error}"));
    let mut file = AtomicFile::create(path)?;
    file.append(&canvas.to_png().map_err(failed)?)?;
    file.commit()
}

/// The value at which a trial is drawn, and whether it finished.
fn value(trial: &Trial) -> Option<(f64, bool)> {
    trial.reached().map(|value| (value, trial.state == State::Done))
}

/// Dots for finished trials, and rings for those that were ended early, at positions along the horizontal axis.
fn dots(trials: &[Trial], place: impl Fn(&Trial) -> Option<f64>) -> Vec<Series> {
    let points = |ended: bool| -> Vec<(f64, f64)> {
        let drawn = trials.iter().filter_map(|trial| Some((place(trial)?, value(trial)?)));
        drawn
            .filter(|(_, value)| value.1 == ended)
            .map(|(x, value)| (x, value.0))
            .collect()
    };
    let early = points(false);
    let mut series = vec![Series::new("", LINES[0], points(true)).dots(9.0, 0.7)];
    if !early.is_empty() {
        series.push(Series::new("ended early", LINES[0], early).rings(9.0));
    }
    series
}

fn up(trials: &[Trial]) -> Axis {
    Axis::around(trials.iter().filter_map(value).map(|value| value.0), 6).grid()
}

fn history(config: &Config, trials: &[Trial]) -> Chart {
    let mut best: Vec<(f64, f64)> = Vec::new();
    for trial in trials {
        if let Some(value) = trial.value() {
            let before = best.last().map_or(value, |last| last.1);
            let better = if config.maximize {
                before.max(value)
            } else {
                before.min(value)
            };
            best.push((trial.number as f64, better));
        }
    }
    let mut series = dots(trials, |trial| Some(trial.number as f64));
    series.push(Series::new("best so far", LINES[1], best).line(2.6, 1.0));
    Chart {
        heading: config.metric.clone(),
        x: Axis::linear(0.0, trials.len().max(1) as f64, 8).title("trial"),
        y: up(trials),
        series,
    }
}

fn against(trials: &[Trial], at: usize, setting: &Setting) -> Chart {
    let (x, choice) = match setting.values() {
        Values::Uniform(low, high) => (Axis::linear(*low, *high, 5), None),
        Values::Int(low, high) => (Axis::linear(*low as f64 - 0.5, *high as f64 + 0.5, 8), None),
        Values::Log(low, high) => (Axis::logarithmic(*low, *high), None),
        Values::LogInt(low, high) => (Axis::logarithmic(*low as f64, *high as f64), None),
        Values::Choice(values) => (Axis::names(values.iter().map(plain)), Some(values)),
    };
    let place = |trial: &Trial| {
        let value = trial.values.get(at)?;
        match choice {
            Some(values) => Some(values.iter().position(|own| own == value)? as f64 + 0.5),
            None => value.as_f64(),
        }
    };
    Chart {
        heading: setting.name(),
        x,
        y: up(trials),
        series: dots(trials, place),
    }
}
