//! Charts: bands, lines and dots between two axes, with a heading and a legend.

use crate::axis::Axis;
use crate::canvas::{Canvas, Colour, Point};
use crate::colours::{FAINT, GRID, GROUND, HEADING, INK, LABEL};
use crate::text::{Align, Style};

/// The distance from a chart's top to the baseline of heading and legend.
const HEAD: f32 = 28.0;
/// The additional space of tick labels above the chart.
const ABOVE: f32 = 40.0;
/// The distance between lines of the legend.
const LINE: f32 = 30.0;
/// The width of a line in the legend, to the left of its name.
const SAMPLE: f32 = 26.0;
/// The distance from such a line to its name.
const GAP: f32 = 10.0;
/// The distance between two names.
const APART: f32 = 30.0;
/// The size of a dot in the legend.
const DOT: f32 = 11.0;
const NAME: Style = LABEL.coloured(INK);

/// The area of a picture for a chart's lines; its texts are around it.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    left: f32,
    top: f32,
    right: f32,
    bottom: f32,
}

impl Frame {
    /// The area between the upper left and the lower right corner.
    pub fn new(upper_left: Point, lower_right: Point) -> Self {
        Self {
            left: upper_left.0,
            top: upper_left.1,
            right: lower_right.0,
            bottom: lower_right.1,
        }
    }
}

/// A data series of a chart, and how it is drawn. By default it is only in the legend.
#[derive(Clone, Debug)]
pub struct Series {
    name: String,
    colour: Colour,
    points: Vec<(f64, f64)>,
    edges: Vec<(f64, f64, f64)>,
    /// Thickness and opacity of the line.
    line: Option<(f32, f32)>,
    /// Size and opacity of the dots.
    dots: Option<(f32, f32)>,
    hollow: bool,
}

impl Series {
    /// A series of points; those of a line must be ordered from left to right. Without a name it is not in the legend.
    pub fn new(name: &str, colour: Colour, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.to_owned(),
            colour,
            points,
            edges: Vec::new(),
            line: None,
            dots: None,
            hollow: false,
        }
    }

    /// Connects the points with a line of this thickness in pixels; a point that is not finite leaves a gap.
    pub fn line(self, thickness: f32, opacity: f32) -> Self {
        Self {
            line: Some((thickness, opacity)),
            ..self
        }
    }

    /// Draws a dot of this size in pixels at each point.
    pub fn dots(self, size: f32, opacity: f32) -> Self {
        Self {
            dots: Some((size, opacity)),
            ..self
        }
    }

    /// Draws a ring of this size in pixels at each point.
    pub fn rings(self, size: f32) -> Self {
        Self {
            hollow: true,
            ..self.dots(size, 1.0)
        }
    }

    /// Fills the area between two edges: x, and the lower and the upper y there.
    pub fn band(self, edges: Vec<(f64, f64, f64)>) -> Self {
        Self { edges, ..self }
    }
}

/// Two axes, and the data between them.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The heading above, on the left; the legend is on the right.
    pub heading: String,
    /// The horizontal axis, from left to right.
    pub x: Axis,
    /// The vertical axis, from the bottom up; names are from the top down.
    pub y: Axis,
    /// All bands are drawn first, then all lines, then all dots.
    pub series: Vec<Series>,
}

impl Chart {
    /// The room that heading, legend and ticks take above a frame of this width.
    pub fn head(&self, width: f32) -> f32 {
        let lines = self.legend(width).len().max(1);
        self.baseline() + LABEL.size + LINE * (lines - 1) as f32
    }

    /// Draws the chart.
    pub fn draw(&self, canvas: &mut Canvas, frame: &Frame) {
        let baseline = frame.top - self.baseline();
        canvas.text(&self.heading, (frame.left, baseline), Align::Left, HEADING);
        self.draw_legend(canvas, frame, baseline);
        self.draw_y(canvas, frame);
        self.draw_x(canvas, frame);
        canvas.clip_rows(frame.top, frame.bottom);
        for series in &self.series {
            canvas.strokes(&self.band(frame, &series.edges), 1.0, series.colour, 0.18);
        }
        let placed = |series: &Series| -> Vec<Option<Point>> {
            series.points.iter().map(|point| self.place(frame, *point)).collect()
        };
        for series in &self.series {
            if let Some((thickness, opacity)) = series.line {
                let points = placed(series);
                let lines = points
                    .split(Option::is_none)
                    .map(|line| line.iter().flatten().copied().collect());
                canvas.strokes(&lines.collect::<Vec<_>>(), thickness, series.colour, opacity);
            }
        }
        for series in &self.series {
            if let Some((size, opacity)) = series.dots {
                let dots: Vec<Vec<Point>> = placed(series).into_iter().flatten().map(|point| vec![point]).collect();
                canvas.strokes(&dots, size, series.colour, opacity);
                if series.hollow {
                    canvas.strokes(&dots, 0.41 * size, GROUND, 1.0);
                }
            }
        }
        canvas.clip_rows(0.0, f32::INFINITY);
    }

    /// The position of a point on the picture. It may be above or below the frame, within limits. `None` if a number is
    /// not finite or has no position on its axis.
    pub fn place(&self, frame: &Frame, (x, y): (f64, f64)) -> Option<Point> {
        let up = self.y.share(y).clamp(-20.0, 20.0);
        let down = if self.y.has_names() { up } else { 1.0 - up };
        let place = (
            frame.left + self.x.share(x) * (frame.right - frame.left),
            frame.top + down * (frame.bottom - frame.top),
        );
        (y.is_finite() && place.0.is_finite() && place.1.is_finite()).then_some(place)
    }

    /// The distance from the baseline of heading and legend to the frame.
    fn baseline(&self) -> f32 {
        HEAD + if self.x.above { ABOVE } else { 0.0 }
    }

    fn draw_x(&self, canvas: &mut Canvas, frame: &Frame) {
        let axis = &self.x;
        let floor = frame.bottom.round() + 0.5;
        let marked = !axis.grid && !axis.has_names();
        if marked {
            canvas.strokes(&[vec![(frame.left, floor), (frame.right, floor)]], 1.5, FAINT, 1.0);
        }
        let (text, title) = match axis.above {
            true => (frame.top - 18.0, floor + 38.0),
            false => (floor + 33.0, floor + 70.0),
        };
        for (tick, label) in &axis.ticks {
            let x = (frame.left + axis.share(*tick) * (frame.right - frame.left)).round() + 0.5;
            if axis.grid {
                let (thickness, colour) = axis.line(*tick);
                let top = frame.top - if axis.above { 8.0 } else { 0.0 };
                canvas.strokes(&[vec![(x, top), (x, frame.bottom)]], thickness, colour, 1.0);
            }
            if marked {
                canvas.strokes(&[vec![(x, floor), (x, floor + 7.0)]], 1.5, FAINT, 1.0);
            }
            canvas.text(label, (x, text), Align::Centre, LABEL.coloured(axis.colour()));
        }
        let middle = (frame.left + frame.right) / 2.0;
        canvas.text(&axis.title, (middle, title), Align::Centre, LABEL);
    }

    fn draw_y(&self, canvas: &mut Canvas, frame: &Frame) {
        let axis = &self.y;
        for (tick, label) in &axis.ticks {
            let share = axis.share(*tick);
            let down = if axis.has_names() { share } else { 1.0 - share };
            let y = (frame.top + down * (frame.bottom - frame.top)).round() + 0.5;
            if axis.grid {
                let (thickness, colour) = axis.line(*tick);
                canvas.strokes(&[vec![(frame.left, y), (frame.right, y)]], thickness, colour, 1.0);
            }
            let style = LABEL.coloured(axis.colour());
            canvas.text(label, (frame.left - 16.0, y + 7.0), Align::Right, style);
        }
    }

    /// The lines of the legend, the first one on top: the entries of each, and their distances from the left of the
    /// line.
    fn legend(&self, width: f32) -> Vec<Vec<(&Series, f32)>> {
        let mut lines: Vec<Vec<(&Series, f32)>> = Vec::new();
        let mut end = f32::INFINITY;
        for series in self.series.iter().filter(|series| !series.name.is_empty()) {
            let own = entry(series);
            if end + own > width {
                lines.push(Vec::new());
                end = 0.0;
            }
            if let Some(line) = lines.last_mut() {
                line.push((series, end));
            }
            end += own + APART;
        }
        lines
    }

    /// Each line is aligned with the right side of the frame, the last one is on the baseline.
    fn draw_legend(&self, canvas: &mut Canvas, frame: &Frame, baseline: f32) {
        for (i, line) in self.legend(frame.right - frame.left).iter().rev().enumerate() {
            let y = baseline - LINE * i as f32;
            let width = line.last().map_or(0.0, |(series, begin)| begin + entry(series));
            for (series, begin) in line {
                let x = frame.right - width + begin;
                match series.line {
                    Some(_) => canvas.line(&[(x, y - 7.0), (x + SAMPLE, y - 7.0)], 4.0, series.colour),
                    None => canvas.disc((x + SAMPLE - DOT / 2.0, y - 7.0), DOT / 2.0, series.colour),
                }
                canvas.text(&series.name, (x + SAMPLE + GAP, y), Align::Left, NAME);
            }
        }
    }

    /// A band as adjacent vertical lines.
    fn band(&self, frame: &Frame, edges: &[(f64, f64, f64)]) -> Vec<Vec<Point>> {
        let placed = edges
            .iter()
            .map(|&(x, low, high)| Some((self.place(frame, (x, low))?, self.place(frame, (x, high))?)));
        let placed: Vec<Option<(Point, Point)>> = placed.collect();
        let mut lines = Vec::new();
        for pair in placed.windows(2) {
            let [Some(from), Some(to)] = pair else { continue };
            let (left, right) = (from.0.0.max(frame.left), to.0.0.min(frame.right));
            for x in left.ceil() as i32..right.ceil() as i32 {
                let x = x as f32;
                let share = (x - from.0.0) / (to.0.0 - from.0.0);
                let at = |a: Point, b: Point| (x, a.1 + share * (b.1 - a.1));
                lines.push(vec![at(from.0, to.0), at(from.1, to.1)]);
            }
        }
        lines
    }
}

/// The width of an entry of the legend.
fn entry(series: &Series) -> f32 {
    SAMPLE + GAP + NAME.width(&series.name)
}

impl Axis {
    /// Thickness and colour of the line across the chart at a tick.
    fn line(&self, tick: f64) -> (f32, Colour) {
        if self.stressed == Some(tick) {
            (3.0, FAINT)
        } else {
            (1.0, GRID)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colours::LINES;

    const FRAME: Frame = Frame {
        left: 100.0,
        top: 100.0,
        right: 500.0,
        bottom: 300.0,
    };

    fn chart(series: Vec<Series>) -> Chart {
        Chart {
            heading: "loss".to_owned(),
            x: Axis::linear(0.0, 10.0, 5).title("epoch"),
            y: Axis::linear(0.0, 1.0, 5).grid(),
            series,
        }
    }

    fn drawn(chart: &Chart) -> Canvas {
        let mut canvas = Canvas::new(600, 400, GROUND);
        chart.draw(&mut canvas, &FRAME);
        canvas
    }

    fn at(canvas: &Canvas, x: usize, y: usize) -> Colour {
        canvas.pixels()[y * 600 + x]
    }

    #[test]
    fn points_have_their_places() {
        let chart = chart(Vec::new());
        assert_eq!(chart.place(&FRAME, (5.0, 0.25)), Some((300.0, 250.0)));
        assert_eq!(chart.place(&FRAME, (0.0, 1e300)), Some((100.0, 300.0 - 20.0 * 200.0)));
        for nowhere in [(f64::NAN, 0.0), (0.0, f64::NAN), (0.0, f64::INFINITY)] {
            assert_eq!(chart.place(&FRAME, nowhere), None);
        }
        let bars = Chart {
            x: Axis::logarithmic(0.1, 10.0),
            y: Axis::names(["a", "b"].map(str::to_owned)),
            ..chart
        };
        assert_eq!(bars.place(&FRAME, (1.0, 0.5)), Some((300.0, 150.0)));
        assert_eq!(bars.place(&FRAME, (0.0, 0.5)), None);
    }

    #[test]
    fn bands_are_below_lines_and_lines_below_dots() {
        let level = |colour| Series::new("", colour, vec![(0.0, 0.5), (10.0, 0.5)]);
        let dots = level(LINES[0]).dots(20.0, 1.0);
        let band = level(LINES[2]).band(vec![(0.0, 0.0, 1.0), (10.0, 0.0, 1.0)]);
        let canvas = drawn(&chart(vec![dots, level(LINES[1]).line(6.0, 1.0), band]));
        assert_eq!(at(&canvas, 100, 200), LINES[0]);
        assert_eq!(at(&canvas, 300, 200), LINES[1]);
        let tinted = at(&canvas, 310, 150);
        assert!(tinted != GROUND && tinted[1] > tinted[0], "{tinted:?}");
        assert_eq!(at(&canvas, 310, 320), GROUND);
    }

    #[test]
    fn a_number_that_is_none_leaves_a_gap() {
        let points = vec![(0.0, 0.5), (4.0, 0.5), (5.0, f64::NAN), (6.0, 0.5), (10.0, 0.5)];
        let canvas = drawn(&chart(vec![Series::new("", LINES[0], points).line(6.0, 1.0)]));
        assert_eq!(at(&canvas, 200, 200), LINES[0]);
        assert_ne!(at(&canvas, 300, 200), LINES[0]);
        assert_eq!(at(&canvas, 400, 200), LINES[0]);
    }

    #[test]
    fn the_legend_goes_on_in_the_next_line() {
        let names = [
            "polygrad-written 0.1.0",
            "torch.compile 2.13.0+cu130",
            "",
            "candle 0.11.1",
            "burn-flex 0.22.1",
        ];
        let series = names.map(|name| Series::new(name, LINES[0], Vec::new()).dots(11.0, 1.0));
        let chart = chart(series.into());
        let lines = chart.legend(680.0);
        let named: Vec<Vec<&str>> = lines
            .iter()
            .map(|line| line.iter().map(|(series, _)| series.name.as_str()).collect())
            .collect();
        assert_eq!(named.concat(), [names[0], names[1], names[3], names[4]]);
        assert_eq!(lines.len(), 2);
        for line in &lines {
            let (last, begin) = line.last().unwrap();
            assert!(begin + entry(last) <= 680.0);
        }
        assert_eq!(chart.head(680.0), chart.head(5000.0) + LINE);
        // An entry that is wider than the chart has its own line.
        assert_eq!(chart.legend(10.0).len(), 4);
    }

    #[test]
    fn what_makes_no_sense_is_not_drawn() {
        let odd = vec![(1.0, f64::NAN), (f64::INFINITY, 1e300), (-1e300, -1e300)];
        let edges = vec![(0.0, f64::NAN, 1.0), (1.0, 0.0, 1e300), (2.0, -1e300, f64::INFINITY)];
        let series = Series::new("odd", LINES[0], odd).line(2.0, 1.0).rings(5.0).band(edges);
        let mut chart = chart(vec![series]);
        drawn(&chart);
        chart.y = Axis::linear(1.0, 1.0, 5);
        chart.x = Axis::logarithmic(0.0, f64::NAN);
        drawn(&chart);
    }
}
