//! `curves.png`: loss and first metric over the epochs, on training and validation data.

use std::io;
use std::path::Path;

use polygrad::nn::replace_file;
use polygrad::train::{Row, Split};
use polygrad::{Error, ErrorKind};
use polygrad_plot::colours::{GROUND, HEADING, TITLE};
use polygrad_plot::{self as plot, Align, Axis, Canvas, Colour, Frame, Series};

use crate::failure::Shown;

const WIDTH: usize = 1600;
const HEIGHT: usize = 700;
const TRAIN: Colour = [62, 116, 190];
const TEST: Colour = [226, 115, 28];

/// Selects the value of a row that a chart shows.
type Value = fn(&Row) -> f64;

/// The first metric.
fn metric(row: &Row) -> f64 {
    row.metrics.first().copied().unwrap_or(f64::NAN)
}

/// The labels of the curves.
pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    /// The first metric.
    pub(crate) metric: Option<&'a str>,
    /// The name of the evaluation data.
    pub(crate) judged_by: &'a str,
    /// The meaning of [`Row::epoch`].
    pub(crate) axis: &'a str,
}

impl Chart<'_> {
    /// Saves the drawing at `path`.
    ///
    /// # Errors
    /// Errors of the PNG encoder or the file system.
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
    /// Errors of the PNG encoder.
    fn draw(&self, rows: &[Row]) -> io::Result<Vec<u8>> {
        let mut canvas = Canvas::new(WIDTH, HEIGHT, GROUND);
        canvas.text(self.title, (60.0, 62.0), Align::Left, TITLE);
        // A share reads better in percent.
        let in_percent = self.metric == Some("accuracy");
        if let Some(last) = rows.iter().rfind(|row| row.split == Split::Validation) {
            let metric = self.metric.map_or_else(String::new, |name| match in_percent {
                true => format!("{name} {:.2} %, ", 100.0 * metric(last)),
                false => format!("{name} {:.4}, ", metric(last)),
            });
            let result = format!("{} {metric}loss {:.4}", self.judged_by, last.loss);
            let style = HEADING.coloured(TEST);
            canvas.text(&result, (WIDTH as f32 - 50.0, 62.0), Align::Right, style);
        }
        let mut charts: Vec<(String, f32, Value)> = vec![("loss".to_owned(), 120.0, |row| row.loss)];
        charts.extend(self.metric.map(|name| match in_percent {
            true => (format!("{name}, %"), 920.0, (|row| 100.0 * metric(row)) as Value),
            false => (name.to_owned(), 920.0, metric as Value),
        }));
        for (heading, left, value) in charts {
            let frame = Frame::new((left, 150.0), (left + 630.0, 600.0));
            self.chart(heading, rows, value).draw(&mut canvas, &frame);
        }
        canvas.to_png()
    }

    fn chart(&self, heading: String, rows: &[Row], value: Value) -> plot::Chart {
        let of = |split| {
            let rows = rows.iter().filter(|row| row.split == split);
            rows.map(|row| (row.epoch, value(row))).collect::<Vec<_>>()
        };
        let epochs = rows.iter().map(|row| row.epoch).fold(0.0, f64::max);
        let epochs = if epochs > 0.0 { epochs } else { 1.0 };
        // The first twentieth of the training, in which the curve falls steeply, may leave the axis.
        let shown = |row: &&Row| row.split == Split::Validation || row.epoch > epochs / 20.0;
        let mut series = vec![Series::new("train", TRAIN, of(Split::Train)).line(2.6, 0.75)];
        let judged = of(Split::Validation);
        if !judged.is_empty() {
            series.push(Series::new(self.judged_by, TEST, judged).line(3.5, 1.0).rings(11.0));
        }
        plot::Chart {
            heading,
            x: Axis::linear(0.0, epochs, 10).title(self.axis),
            y: Axis::around(rows.iter().filter(shown).map(value), 6).grid(),
            series,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polygrad_plot::colours::INK;

    /// Rows of a good run: 8 epochs of 40 training rows, with a test row after each.
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
        let mut reader = png::Decoder::new(io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width as usize, info.height as usize), (WIDTH, HEIGHT));
        pixels
    }

    /// Counts the pixels of exactly `colour` in the left and in the right half.
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

    fn draw(title: &str, rows: &[Row]) -> io::Result<Vec<u8>> {
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
}
