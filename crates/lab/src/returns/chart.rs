//! Returns over the steps of training: a chart for each environment, with a line for each of its trainings. The line is
//! the mean over the seeds, in a band from the worst seed to the best.

use std::io;

use polygrad_plot::colours::{GROUND, LINES};
use polygrad_plot::{Axis, Canvas, Chart, Frame, Point, Series};

use super::experiments::Experiment;
use super::training::{POINTS, Trained};

const WIDTH: usize = 1600;
const COLUMNS: usize = 3;
/// The size of a chart with its texts.
const CELL: Point = (520.0, 400.0);
/// The size of the area for its lines.
const INNER: Point = (400.0, 260.0);

/// The returns of all seeds at a point of the training.
struct At {
    steps: f64,
    worst: f64,
    mean: f64,
    best: f64,
}

type Outcomes<'a> = (&'a Experiment, Vec<Trained>);

/// Draws the curves of all trainings.
///
/// # Errors
/// Errors of the PNG encoder.
pub(super) fn draw(outcomes: &[Outcomes<'_>]) -> io::Result<Vec<u8>> {
    let environment = |outcome: &Outcomes<'_>| outcome.0.name.split('/').next().unwrap_or_default();
    let groups: Vec<&[Outcomes<'_>]> = outcomes.chunk_by(|a, b| environment(a) == environment(b)).collect();
    let rows = groups.len().div_ceil(COLUMNS).max(1);
    let mut canvas = Canvas::new(WIDTH, (CELL.1 * rows as f32) as usize + 20, GROUND);
    for (i, group) in groups.iter().enumerate() {
        let corner = (
            100.0 + CELL.0 * (i % COLUMNS) as f32,
            70.0 + CELL.1 * (i / COLUMNS) as f32,
        );
        let frame = Frame::new(corner, (corner.0 + INNER.0, corner.1 + INNER.1));
        chart(environment(&group[0]), group).draw(&mut canvas, &frame);
    }
    canvas.to_png()
}

fn chart(environment: &str, group: &[Outcomes<'_>]) -> Chart {
    let lines: Vec<(&str, Vec<At>)> = group
        .iter()
        .map(|(experiment, seeds)| (experiment.name.split('/').next_back().unwrap_or_default(), line(seeds)))
        .collect();
    let points = || lines.iter().flat_map(|(_, line)| line);
    // With a margin of half a percent after the last point.
    let steps = points().map(|at| at.steps).fold(1.0, f64::max) * 1.005;
    let series = lines.iter().zip(LINES).map(|((name, line), colour)| {
        let means = line.iter().map(|at| (at.steps / 1000.0, at.mean)).collect();
        let band = line.iter().map(|at| (at.steps / 1000.0, at.worst, at.best)).collect();
        Series::new(name, colour, means).line(2.4, 1.0).band(band)
    });
    Chart {
        heading: environment.to_owned(),
        x: Axis::linear(0.0, steps / 1000.0, 5).title("thousand steps"),
        y: Axis::around(points().flat_map(|at| [at.worst, at.best]), 5).grid(),
        series: series.collect(),
    }
}

/// A seed in which no episode ended at a point is left out there.
fn line(seeds: &[Trained]) -> Vec<At> {
    let point = |i: usize| {
        let values = seeds.iter().map(|seed| seed.curve[i]).filter(|value| value.is_finite());
        let count = values.clone().count();
        let steps = seeds.first().map_or(0, |seed| seed.steps) as f64;
        (count > 0).then(|| At {
            steps: steps * (i as f64 + 0.5) / POINTS as f64,
            worst: values.clone().fold(f64::INFINITY, f64::min),
            mean: values.clone().sum::<f64>() / count as f64,
            best: values.fold(f64::NEG_INFINITY, f64::max),
        })
    };
    (0..POINTS).filter_map(point).collect()
}
