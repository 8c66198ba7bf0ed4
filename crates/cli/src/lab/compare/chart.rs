//! `compare.png`: the time of a call over its size, a chart for each kind of work, a line for each device, both axes logarithmic.

use super::measure::Series;
use super::table::duration;
use crate::plot::canvas::{Align, Canvas, Colour, Style};
use crate::plot::colours::{FAINT, GRID, GROUND, INK, LINES};
use crate::plot::font::Point;
use crate::progress::grouped;

const COLUMNS: usize = 2;
const CHART: (f32, f32) = (760.0, 480.0);
const MARGIN: f32 = 40.0;
const LEGEND: f32 = 90.0;

const HEADING: Style = Style {
    size: 18.0,
    weight: 2.4,
    colour: INK,
};
const LABEL: Style = Style {
    size: 14.0,
    weight: 1.8,
    colour: FAINT,
};

/// Draws all of them.
///
/// # Errors
/// Whatever the PNG encoder says.
pub(crate) fn draw(all: &[Series]) -> Result<Vec<u8>, png::EncodingError> {
    let rows = all.len().div_ceil(COLUMNS).max(1);
    let width = COLUMNS as f32 * CHART.0 + MARGIN;
    let mut canvas = Canvas::new(width as usize, (LEGEND + rows as f32 * CHART.1) as usize, GROUND);
    let names = all.first().map_or(&[][..], |series| &series.devices);
    let mut x = MARGIN;
    for (i, name) in names.iter().enumerate() {
        canvas.strokes(&[vec![(x, 43.0), (x + 30.0, 43.0)]], 5.0, colour(i), 1.0);
        canvas.text(name, (x + 42.0, 50.0), Align::Left, HEADING);
        x += 90.0 + 13.0 * name.len() as f32;
    }
    for (i, series) in all.iter().enumerate() {
        let (column, row) = (i % COLUMNS, i / COLUMNS);
        Chart::new(series, column as f32 * CHART.0, LEGEND + row as f32 * CHART.1).draw(&mut canvas);
    }
    canvas.to_png()
}

fn colour(device: usize) -> Colour {
    LINES[device % LINES.len()]
}

/// One chart: its place on the picture, and the range of each axis as powers of ten.
struct Chart<'a> {
    series: &'a Series,
    left: f32,
    right: f32,
    top: f32,
    bottom: f32,
    sizes: (f64, f64),
    times: (f64, f64),
}

impl<'a> Chart<'a> {
    fn new(series: &'a Series, x: f32, y: f32) -> Self {
        let size = |row: Option<&(usize, _)>| row.map_or(0.0, |(size, _)| (*size as f64).log10());
        let times = series.rows.iter().flat_map(|(_, outcomes)| outcomes);
        let times: Vec<f64> = times.filter_map(|o| o.seconds()).map(f64::log10).collect();
        let low = times.iter().copied().fold(f64::INFINITY, f64::min).min(0.0);
        let high = times.iter().copied().fold(f64::NEG_INFINITY, f64::max).max(low);
        Self {
            series,
            left: x + 120.0,
            right: x + CHART.0 - MARGIN,
            top: y + 60.0,
            bottom: y + CHART.1 - 90.0,
            sizes: (size(series.rows.first()), size(series.rows.last())),
            times: (low.floor(), high.ceil().max(low.floor() + 1.0)),
        }
    }

    fn draw(&self, canvas: &mut Canvas) {
        let work = self.series.work;
        let title = format!("{}: {}", work.name(), work.description());
        canvas.text(&title, (self.left, self.top - 24.0), Align::Left, HEADING);
        for power in self.times.0 as i32..=self.times.1 as i32 {
            let y = self.place(self.sizes.0, f64::from(power)).1.round() + 0.5;
            canvas.strokes(&[vec![(self.left, y), (self.right, y)]], 1.0, GRID, 1.0);
            let label = duration(10f64.powi(power) * 1.000_001).trim().replace(".0", "");
            canvas.text(&label, (self.left - 14.0, y + 6.0), Align::Right, LABEL);
        }
        for (size, _) in &self.series.rows {
            let x = self.place((*size as f64).log10(), self.times.0).0.round() + 0.5;
            canvas.strokes(&[vec![(x, self.bottom), (x, self.bottom + 7.0)]], 1.5, FAINT, 1.0);
            canvas.text(&grouped(*size as u64), (x, self.bottom + 30.0), Align::Centre, LABEL);
        }
        let middle = (self.left + self.right) / 2.0;
        canvas.text(work.axis(), (middle, self.bottom + 62.0), Align::Centre, LABEL);
        for device in 0..self.series.devices.len() {
            let points: Vec<Point> = self.points(device);
            let dots: Vec<Vec<Point>> = points.iter().map(|&point| vec![point]).collect();
            canvas.strokes(&[points], 3.0, colour(device), 1.0);
            canvas.strokes(&dots, 9.0, colour(device), 1.0);
        }
    }

    fn points(&self, device: usize) -> Vec<Point> {
        let timed = |(size, outcomes): &(usize, Vec<super::measure::Outcome>)| {
            let seconds = outcomes[device].seconds()?;
            Some(self.place((*size as f64).log10(), seconds.log10()))
        };
        self.series.rows.iter().filter_map(timed).collect()
    }

    fn place(&self, size: f64, time: f64) -> Point {
        let share = |value: f64, (low, high): (f64, f64)| {
            let width = if high > low { high - low } else { 1.0 };
            ((value - low) / width) as f32
        };
        (
            self.left + share(size, self.sizes) * (self.right - self.left),
            self.bottom - share(time, self.times) * (self.bottom - self.top),
        )
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;
    use crate::lab::compare::measure::Outcome;
    use crate::lab::compare::work::Work;

    fn pixels(png: &[u8]) -> Vec<[u8; 3]> {
        let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut bytes).unwrap();
        bytes.chunks_exact(3).map(|p| [p[0], p[1], p[2]]).collect()
    }

    #[test]
    fn each_device_that_has_times_has_a_line() {
        let series = |second: [Outcome; 2]| {
            let [a, b] = second;
            Series {
                work: Work::Add,
                devices: vec!["cpu".into(), "other".into()],
                rows: vec![(64, vec![Outcome::Time(1e-7), a]), (1024, vec![Outcome::Time(1e-6), b])],
            }
        };
        let count = |series: &Series, colour| {
            let all = pixels(&draw(std::slice::from_ref(series)).unwrap());
            all.iter().filter(|&&pixel| pixel == colour).count()
        };
        let both = series([Outcome::Time(1e-6), Outcome::Time(1e-5)]);
        let one = series([Outcome::Failed("no".into()), Outcome::Skipped]);
        assert!(count(&both, LINES[0]) > 400 && count(&both, LINES[1]) > 400);
        // What is left is its place in the legend.
        assert!(count(&one, LINES[1]) < 200);
    }

    #[test]
    fn every_text_can_be_drawn() {
        let mut texts: Vec<String> = [1e-8, 1e-5, 1e-2, 1.0].map(duration).to_vec();
        for work in Work::value_variants() {
            texts.push(format!("{}{}{}", work.name(), work.description(), work.axis()));
        }
        for c in texts.concat().chars() {
            assert!(crate::plot::font::knows(c), "{c:?} has no glyph");
        }
    }

    #[test]
    fn nothing_measured_is_an_empty_chart() {
        let none = Series {
            work: Work::Cnn,
            devices: vec!["cpu".into()],
            rows: vec![(1, vec![Outcome::Skipped])],
        };
        assert!(draw(&[none]).is_ok() && draw(&[]).is_ok());
    }
}
