//! Returns over the steps of training: a panel for each environment, a line for each of its trainings, which is the mean over the seeds, in a
//! band from the worst seed to the best.

use super::experiments::Experiment;
use super::training::{POINTS, Trained};
use crate::plot::canvas::{Align, Canvas, Colour, Picture as _, Point, Style};
use crate::plot::colours::{FAINT, GRID, GROUND, HEADING, LABEL, LINES};
use crate::run::curves::ticks;

const WIDTH: usize = 1600;
const COLUMNS: usize = 3;
/// The place of a panel with all that belongs to it.
const CELL: Point = (520.0, 400.0);
/// Of the lines in it.
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
/// Whatever the PNG encoder says.
pub(super) fn draw(outcomes: &[Outcomes<'_>]) -> Result<Vec<u8>, png::EncodingError> {
    let environment = |outcome: &Outcomes<'_>| outcome.0.name.split('/').next().unwrap_or_default();
    let groups: Vec<&[Outcomes<'_>]> = outcomes.chunk_by(|a, b| environment(a) == environment(b)).collect();
    let rows = groups.len().div_ceil(COLUMNS).max(1);
    let mut canvas = Canvas::new(WIDTH, (CELL.1 * rows as f32) as usize + 20, GROUND);
    for (i, group) in groups.iter().enumerate() {
        let corner = (
            100.0 + CELL.0 * (i % COLUMNS) as f32,
            70.0 + CELL.1 * (i / COLUMNS) as f32,
        );
        let lines = group
            .iter()
            .map(|(experiment, seeds)| (experiment.name, line(seeds)))
            .collect();
        Panel::new(corner, lines).draw(&mut canvas, environment(&group[0]));
    }
    canvas.to_png()
}

/// A seed without an end of an episode at a point is left out there.
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

struct Panel<'a> {
    corner: Point,
    lines: Vec<(&'a str, Vec<At>)>,
    steps: f64,
    low: f64,
    high: f64,
}

impl<'a> Panel<'a> {
    fn new(corner: Point, lines: Vec<(&'a str, Vec<At>)>) -> Self {
        let points = || lines.iter().flat_map(|(_, line)| line);
        let low = points().map(|at| at.worst).fold(f64::INFINITY, f64::min);
        let high = points().map(|at| at.best).fold(f64::NEG_INFINITY, f64::max);
        // Half a percent of it is behind the last point.
        let steps = points().map(|at| at.steps).fold(1.0, f64::max) * 1.005;
        let (low, high) = if low < high {
            (low, high)
        } else {
            (low - 1.0, low + 1.0)
        };
        let margin = 0.04 * (high - low);
        Self {
            corner,
            lines,
            steps,
            low: low - margin,
            high: high + margin,
        }
    }

    fn draw(&self, canvas: &mut Canvas, environment: &str) {
        let (left, top) = self.corner;
        let (right, bottom) = (left + INNER.0, top + INNER.1);
        canvas.text(environment, (left, top - 22.0), Align::Left, HEADING);
        for (tick, label) in ticks(self.low, self.high, 5) {
            let y = self.place(0.0, tick).1.round() + 0.5;
            canvas.strokes(&[vec![(left, y), (right, y)]], 1.0, GRID, 1.0);
            canvas.text(&label, (left - 12.0, y + 6.0), Align::Right, LABEL);
        }
        canvas.strokes(&[vec![(left, bottom), (right, bottom)]], 1.5, FAINT, 1.0);
        for (tick, label) in ticks(0.0, self.steps / 1000.0, 5) {
            let x = self.place(1000.0 * tick, self.low).0;
            canvas.strokes(&[vec![(x, bottom), (x, bottom + 6.0)]], 1.5, FAINT, 1.0);
            canvas.text(&label, (x, bottom + 26.0), Align::Centre, LABEL);
        }
        let axis = ((left + right) / 2.0, bottom + 52.0);
        canvas.text("thousand steps", axis, Align::Centre, LABEL);
        let mut x = right;
        for ((name, line), colour) in self.lines.iter().zip(LINES) {
            let band: Vec<Vec<Point>> = self.band(line);
            canvas.strokes(&band, 1.0, colour, 0.18);
            let means: Vec<Point> = line.iter().map(|at| self.place(at.steps, at.mean)).collect();
            canvas.strokes(&[means], 2.4, colour, 1.0);
            let name = name.split('/').next_back().unwrap_or_default();
            canvas.text(name, (x, top - 22.0), Align::Right, Self::legend(colour));
            x -= 26.0 + 11.0 * name.len() as f32;
        }
    }

    /// Upright lines, side by side.
    fn band(&self, line: &[At]) -> Vec<Vec<Point>> {
        let pieces = line.windows(2).flat_map(|pair| {
            let [worst, best] = [
                pair.iter().map(|at| self.place(at.steps, at.worst)).collect::<Vec<_>>(),
                pair.iter().map(|at| self.place(at.steps, at.best)).collect::<Vec<_>>(),
            ];
            let columns = worst[0].0.ceil() as i32..worst[1].0.ceil() as i32;
            columns.map(move |x| {
                let x = x as f32;
                let share = (x - worst[0].0) / (worst[1].0 - worst[0].0);
                let at = |ends: &[Point]| (x, ends[0].1 + share * (ends[1].1 - ends[0].1));
                vec![at(&worst), at(&best)]
            })
        });
        pieces.collect()
    }

    fn legend(colour: Colour) -> Style {
        Style { colour, ..LABEL }
    }

    fn place(&self, steps: f64, value: f64) -> Point {
        let (across, up) = (steps / self.steps, (value - self.low) / (self.high - self.low));
        (
            self.corner.0 + across as f32 * INNER.0,
            self.corner.1 + (1.0 - up as f32) * INNER.1,
        )
    }
}
