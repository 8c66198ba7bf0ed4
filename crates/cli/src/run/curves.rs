//! `curves.png`: loss and first metric over the epochs, on the training data and those to judge by.

use std::path::Path;

use polygrad::nn::replace_file;
use polygrad::train::{Row, Split};
use polygrad::{Error, ErrorKind};

use crate::failure::Shown;
use crate::plot::canvas::{Align, Canvas, Colour, Picture as _, Point, Style};
use crate::plot::colours::{FAINT, GRID, GROUND, HEADING, LABEL, TITLE};

const WIDTH: usize = 1600;
const HEIGHT: usize = 700;
const TRAIN: Colour = [62, 116, 190];
const TEST: Colour = [226, 115, 28];

/// One chart: its place on the picture and the range of its axes.
struct Panel<'a> {
    heading: String,
    axis: &'a str,
    left: f32,
    right: f32,
    top: f32,
    bottom: f32,
    epochs: f64,
    low: f64,
    high: f64,
}

/// Picks what a chart shows out of a row.
type Value = fn(&Row) -> f64;

/// The first metric.
fn metric(row: &Row) -> f64 {
    row.metrics.first().copied().unwrap_or(f64::NAN)
}

/// What the curves are called.
pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    /// The first metric.
    pub(crate) metric: Option<&'a str>,
    /// The data of evaluations.
    pub(crate) judged_by: &'a str,
    /// What [`Row::epoch`] is.
    pub(crate) axis: &'a str,
}

impl Chart<'_> {
    /// Leaves the drawing at `path`.
    ///
    /// # Errors
    /// Whatever the PNG encoder or the file system says.
    pub(crate) fn save(&self, path: &Path, rows: &[Row]) -> polygrad::Result<()> {
        let png = self.draw(rows).map_err(|e| {
            let message = format!("cannot draw {}: {e}", path.shown());
            Error::new(ErrorKind::Format, message)
        })?;
        replace_file(path, |file| file.write_all(&png))
    }

    /// Draws a chart of the loss, and one of the metric if there is one.
    ///
    /// # Errors
    /// Whatever the PNG encoder says.
    fn draw(&self, rows: &[Row]) -> Result<Vec<u8>, png::EncodingError> {
        let mut canvas = Canvas::new(WIDTH, HEIGHT, GROUND);
        canvas.text(self.title, (60.0, 62.0), Align::Left, TITLE);
        // A share reads better in percent.
        let in_percent = self.metric == Some("accuracy");
        if let Some(last) = rows.iter().rfind(|row| row.split == Split::Validation) {
            let metric = self.metric.map_or_else(String::new, |name| match in_percent {
                true => format!("{name} {:.2} %, ", 100.0 * metric(last)),
                false => format!("{name} {:.4}, ", metric(last)),
            });
            let style = Style {
                colour: TEST,
                ..HEADING
            };
            let result = format!("{} {metric}loss {:.4}", self.judged_by, last.loss);
            canvas.text(&result, (WIDTH as f32 - 50.0, 62.0), Align::Right, style);
        }
        let epochs = rows.iter().map(|row| row.epoch).fold(0.0, f64::max);
        let epochs = if epochs > 0.0 { epochs } else { 1.0 };
        let mut charts: Vec<(String, f32, Value)> = vec![("loss".to_owned(), 120.0, |row| row.loss)];
        charts.extend(self.metric.map(|name| match in_percent {
            true => (format!("{name}, %"), 920.0, (|row| 100.0 * metric(row)) as Value),
            false => (name.to_owned(), 920.0, metric as Value),
        }));
        for (heading, left, value) in charts {
            let (low, high) = range(rows, epochs, value);
            let panel = Panel {
                heading,
                axis: self.axis,
                left,
                right: left + 630.0,
                top: 150.0,
                bottom: 600.0,
                epochs,
                low,
                high,
            };
            panel.draw(&mut canvas, rows, value, self.judged_by);
        }
        canvas.to_png()
    }
}

/// The values that the axis must show. The first twentieth of the training, where the curve plunges, may leave it.
fn range(rows: &[Row], epochs: f64, value: Value) -> (f64, f64) {
    let shown = |row: &&Row| row.split == Split::Validation || row.epoch > epochs / 20.0;
    let values = rows.iter().filter(shown).map(value).filter(|v| v.is_finite());
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    if low > high {
        return (0.0, 1.0);
    }
    let margin = f64::max((high - low) * 0.06, 1e-3 * high.abs().max(1.0));
    (low - margin, high + margin)
}

impl Panel<'_> {
    fn draw(&self, canvas: &mut Canvas, rows: &[Row], value: Value, judged_by: &str) {
        self.draw_axes(canvas);
        canvas.clip_rows(self.top, self.bottom);
        for (split, colour, thickness, opacity) in
            [(Split::Train, TRAIN, 2.6, 0.75), (Split::Validation, TEST, 3.5, 1.0)]
        {
            let points: Vec<Option<Point>> = rows
                .iter()
                .filter(|row| row.split == split)
                .map(|row| value(row).is_finite().then(|| self.place(row.epoch, value(row))))
                .collect();
            // A value that is no number leaves a gap.
            let lines: Vec<Vec<Point>> = points
                .split(Option::is_none)
                .map(|line| line.iter().flatten().copied().collect())
                .collect();
            canvas.strokes(&lines, thickness, colour, opacity);
            if split == Split::Validation {
                let dots: Vec<Vec<Point>> = points.iter().flatten().map(|&p| vec![p]).collect();
                canvas.strokes(&dots, 11.0, colour, 1.0);
                canvas.strokes(&dots, 4.5, GROUND, 1.0);
            }
        }
        canvas.clip_rows(0.0, f32::INFINITY);
        let mut x = self.right;
        let judged = rows.iter().any(|row| row.split == Split::Validation);
        let names = [(judged_by, TEST), ("train", TRAIN)];
        for &(name, colour) in &names[usize::from(!judged)..] {
            let y = self.top - 28.0;
            canvas.text(name, (x, y), Align::Right, Style { colour, ..HEADING });
            x -= 14.0 + 11.0 * name.chars().count() as f32;
            canvas.strokes(&[vec![(x - 34.0, y - 7.0), (x - 8.0, y - 7.0)]], 4.0, colour, 1.0);
            x -= 66.0;
        }
    }

    fn draw_axes(&self, canvas: &mut Canvas) {
        canvas.text(&self.heading, (self.left, self.top - 28.0), Align::Left, HEADING);
        for (tick, label) in ticks(self.low, self.high, 6) {
            let y = self.place(0.0, tick).1.round() + 0.5;
            canvas.strokes(&[vec![(self.left, y), (self.right, y)]], 1.0, GRID, 1.0);
            canvas.text(&label, (self.left - 16.0, y + 7.0), Align::Right, LABEL);
        }
        let floor = self.bottom.round() + 0.5;
        canvas.strokes(&[vec![(self.left, floor), (self.right, floor)]], 1.5, FAINT, 1.0);
        for (tick, label) in ticks(0.0, self.epochs, 10) {
            let x = self.place(tick, self.low).0.round() + 0.5;
            canvas.strokes(&[vec![(x, floor), (x, floor + 7.0)]], 1.5, FAINT, 1.0);
            canvas.text(&label, (x, floor + 33.0), Align::Centre, LABEL);
        }
        let middle = (self.left + self.right) / 2.0;
        canvas.text(self.axis, (middle, floor + 70.0), Align::Centre, LABEL);
    }

    /// Where a value lies on the picture, which may be above or below the chart, but not without limit.
    fn place(&self, epoch: f64, value: f64) -> Point {
        let across = (epoch / self.epochs) as f32;
        let up = ((value - self.low) / (self.high - self.low)).clamp(-20.0, 20.0) as f32;
        (
            self.left + across * (self.right - self.left),
            self.bottom - up * (self.bottom - self.top),
        )
    }
}

/// At most about `most` round numbers between `low` and `high`, with as many decimals as they need.
pub(crate) fn ticks(low: f64, high: f64, most: u8) -> Vec<(f64, String)> {
    let raw = (high - low) / f64::from(most);
    if !(raw.is_finite() && raw > 0.0) {
        return Vec::new();
    }
    let power = 10_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|s| s * power)
        .find(|&s| s >= raw * 0.999)
        .unwrap_or(10.0 * power);
    let decimals = (-(step * 1.001).log10().floor()).clamp(0.0, 12.0) as usize;
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last)
        .map(|i| {
            let tick = i as f64 * step;
            (tick, format!("{tick:.decimals$}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::colours::INK;

    /// Rows as a good run gives them: 8 epochs of 40 training rows, a test row after each.
    fn rows() -> Vec<Row> {
        let mut rows = Vec::new();
        for step in 1..=320_u64 {
            let epoch = step as f64 / 40.0;
            let noise = ((step * 7919) % 101) as f64 / 101.0 - 0.5;
            let fall = (-epoch / 1.5).exp();
            let row = |split, loss, accuracy| Row {
                step,
                epoch,
                split,
                loss,
                metrics: vec![accuracy],
                learning_rate: 1e-3,
                seconds: epoch,
            };
            rows.push(row(
                Split::Train,
                0.18 + 0.7 * fall + 1.4 * (-epoch * 12.0).exp() + 0.06 * noise,
                0.94 - 0.25 * fall - 0.6 * (-epoch * 12.0).exp() + 0.02 * noise,
            ));
            if step % 40 == 0 {
                rows.push(row(Split::Validation, 0.26 + 0.6 * fall, 0.915 - 0.2 * fall));
            }
        }
        rows
    }

    fn decode(bytes: Vec<u8>) -> Vec<u8> {
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width as usize, info.height as usize), (WIDTH, HEIGHT));
        pixels
    }

    /// The pixels of exactly `colour` in the left and in the right half.
    fn count(pixels: &[u8], colour: Colour) -> (usize, usize) {
        let mut halves = (0, 0);
        for (i, pixel) in pixels.chunks_exact(3).enumerate() {
            if pixel == colour {
                *(if i % WIDTH < WIDTH / 2 {
                    &mut halves.0
                } else {
                    &mut halves.1
                }) += 1;
            }
        }
        halves
    }

    fn draw(title: &str, rows: &[Row]) -> Result<Vec<u8>, png::EncodingError> {
        let chart = Chart {
            title,
            metric: Some("accuracy"),
            judged_by: "test",
            axis: "epoch",
        };
        chart.draw(rows)
    }

    #[test]
    fn draws_both_curves_in_both_charts() {
        let bytes = draw("fashion-mnist · cnn · cpu", &rows()).unwrap();
        let pixels = decode(bytes);
        let (left, right) = count(&pixels, TEST);
        assert!(left > 1_000 && right > 1_000, "{left} {right}");
        let empty = decode(draw("x", &[]).unwrap());
        assert!(count(&empty, INK).0 > 100);
        let (before, _) = count(&empty, TEST);
        assert!(before < left / 2);
    }

    #[test]
    fn survives_values_that_cannot_be_drawn() {
        let mut rows = rows();
        for (i, row) in rows.iter_mut().enumerate() {
            match i % 5 {
                0 => row.loss = f64::NAN,
                1 => row.loss = f64::INFINITY,
                _ => {}
            }
        }
        draw("bad", &rows).unwrap();
        rows.iter_mut().for_each(|row| row.loss = f64::NAN);
        draw("worse", &rows).unwrap();
        draw("one", &rows[..1]).unwrap();
        rows.iter_mut().for_each(|row| row.metrics = vec![1e300]);
        draw("far", &rows).unwrap();
    }

    #[test]
    fn ticks_are_round_numbers() {
        let labels = |low, high, most| -> Vec<String> { ticks(low, high, most).into_iter().map(|t| t.1).collect() };
        assert_eq!(labels(0.0, 8.0, 10), ["0", "1", "2", "3", "4", "5", "6", "7", "8"]);
        assert_eq!(labels(0.17, 0.61, 6), ["0.2", "0.3", "0.4", "0.5", "0.6"]);
        assert_eq!(labels(-0.5, 30.0, 6), ["0", "10", "20", "30"]);
        assert!(labels(1.0, 1.0, 6).is_empty());
    }
}
