//! A canvas for smooth shapes.

use std::ops::Range;

/// A point, x to the right and y down.
pub type Point = (f32, f32);

/// Red, green and blue, 0 to 255.
pub type Colour = [u8; 3];

/// The number of sample lines per row of pixels of a polygon.
const SAMPLES: usize = 4;

/// A picture of RGB pixels on which lines, discs and polygons with smooth edges are drawn. Parts outside of it are cut
/// off.
///
/// ```
/// use polygrad_plot::Canvas;
///
/// let mut canvas = Canvas::new(60, 40, [255; 3]);
/// canvas.view(600.0, 400.0);
/// canvas.disc((300.0, 200.0), 100.0, [200, 30, 30]);
/// assert_eq!(canvas.pixels()[20 * 60 + 30], [200, 30, 30]);
/// ```
#[derive(Clone, Debug)]
pub struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<Colour>,
    /// How much of each pixel the shape being drawn covers.
    mask: Vec<f32>,
    /// The rows of the mask that the shape reaches.
    reached: Range<usize>,
    /// The rows that may be drawn on.
    clip: Range<usize>,
    /// Pixels per unit.
    scale: f32,
    /// The position of the point (0, 0).
    origin: Point,
}

impl Canvas {
    /// A picture of one colour. The unit is a pixel.
    pub fn new(width: usize, height: usize, ground: Colour) -> Self {
        Self {
            width,
            height,
            pixels: vec![ground; width * height],
            mask: vec![0.0; width * height],
            reached: 0..0,
            clip: 0..height,
            scale: 1.0,
            origin: (0.0, 0.0),
        }
    }

    /// From here on, points and sizes refer to a picture of another extent, which is centred in this one and as large
    /// as fits.
    pub fn view(&mut self, width: f32, height: f32) {
        let (own_width, own_height) = (self.width as f32, self.height as f32);
        self.scale = (own_width / width).min(own_height / height);
        self.origin = (
            (own_width - width * self.scale) / 2.0,
            (own_height - height * self.scale) / 2.0,
        );
    }

    /// The width in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The height in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The pixels, row by row from the top.
    pub fn pixels(&self) -> &[Colour] {
        &self.pixels
    }

    /// Limits further drawing to the rows between two heights; the infinite range removes the limit.
    pub fn clip_rows(&mut self, from: f32, to: f32) {
        self.clip = self.row(from)..self.row(to);
    }

    /// Draws lines with round ends and joints; a line of one point is a disc. All of `lines` are one shape: where they
    /// overlap, a transparent colour is applied only once.
    pub fn strokes(&mut self, lines: &[Vec<Point>], thickness: f32, colour: Colour, opacity: f32) {
        let radius = thickness * self.scale / 2.0;
        for line in lines {
            if let &[dot] = line.as_slice() {
                self.cover(self.place(dot), self.place(dot), radius);
            }
            for pair in line.windows(2) {
                self.cover(self.place(pair[0]), self.place(pair[1]), radius);
            }
        }
        self.lay_on(colour, opacity);
    }

    /// Draws a line of points with round ends and joints.
    pub fn line(&mut self, points: &[Point], thickness: f32, colour: Colour) {
        self.strokes(&[points.to_vec()], thickness, colour, 1.0);
    }

    /// Fills a disc.
    pub fn disc(&mut self, centre: Point, radius: f32, colour: Colour) {
        self.line(&[centre], 2.0 * radius, colour);
    }

    /// Fills a polygon by the even-odd rule, if it crosses itself.
    pub fn polygon(&mut self, corners: &[Point], colour: Colour) {
        let corners: Vec<Point> = corners.iter().map(|corner| self.place(*corner)).collect();
        let heights = || corners.iter().map(|corner| corner.1);
        let (top, bottom) = (
            heights().fold(f32::INFINITY, f32::min),
            heights().fold(f32::NEG_INFINITY, f32::max),
        );
        let mut crossings = Vec::new();
        for row in self.reach(top, bottom + 1.0) {
            for sample in 0..SAMPLES {
                let y = row as f32 + (sample as f32 + 0.5) / SAMPLES as f32;
                crossings.clear();
                let sides = corners.iter().zip(corners.iter().cycle().skip(1));
                for (a, b) in sides.filter(|(a, b)| (a.1 <= y) != (b.1 <= y)) {
                    crossings.push(a.0 + (y - a.1) / (b.1 - a.1) * (b.0 - a.0));
                }
                crossings.sort_by(f32::total_cmp);
                for span in crossings.chunks_exact(2) {
                    self.cover_span(row, span[0], span[1]);
                }
            }
        }
        self.lay_on(colour, 1.0);
    }

    /// Fills a rectangle between two corners.
    pub fn rectangle(&mut self, a: Point, b: Point, colour: Colour) {
        self.polygon(&[a, (b.0, a.1), b, (a.0, b.1)], colour);
    }

    /// Draws a picture from the point (0, 0) on, whose pixels have the size of the unit: each pixel here is the mean of
    /// those that it covers.
    pub fn image(&mut self, width: usize, pixels: &[Colour]) {
        let height = pixels.len() / width.max(1);
        let covered = |at: usize, origin: f32, scale: f32, extent: usize| {
            let [from, to] = [at as f32, at as f32 + 1.0].map(|x| ((x - origin) / scale).max(0.0) as usize);
            from.min(extent)..to.max(from + 1).min(extent)
        };
        for y in self.clip.clone() {
            let rows = covered(y, self.origin.1, self.scale, height);
            for x in 0..self.width {
                let columns = covered(x, self.origin.0, self.scale, width);
                let inside = x as f32 >= self.origin.0.floor() && y as f32 >= self.origin.1.floor();
                let count = (rows.len() * columns.len()) as u32;
                if !inside || count == 0 {
                    continue;
                }
                let mut sum = [0; 3];
                for pixel in rows
                    .clone()
                    .flat_map(|row| &pixels[row * width + columns.start..row * width + columns.end])
                {
                    sum.iter_mut()
                        .zip(pixel)
                        .for_each(|(sum, part)| *sum += u32::from(*part));
                }
                self.pixels[y * self.width + x] = sum.map(|sum| ((sum + count / 2) / count) as u8);
            }
        }
    }

    /// The position of a point in pixels.
    fn place(&self, (x, y): Point) -> Point {
        (self.origin.0 + x * self.scale, self.origin.1 + y * self.scale)
    }

    fn row(&self, y: f32) -> usize {
        (y.max(0.0) as usize).min(self.height)
    }

    /// The rows between two heights that may be drawn on; they are added to the rows that the shape reaches.
    fn reach(&mut self, top: f32, bottom: f32) -> Range<usize> {
        let rows = self.row(top).max(self.clip.start)..self.row(bottom).min(self.clip.end);
        if !rows.is_empty() {
            self.reached = match self.reached.is_empty() {
                true => rows.clone(),
                false => self.reached.start.min(rows.start)..self.reached.end.max(rows.end),
            };
        }
        rows
    }

    /// Applies a colour to the mask, and clears the mask.
    fn lay_on(&mut self, colour: Colour, opacity: f32) {
        let reached = std::mem::take(&mut self.reached);
        let pixels = reached.start * self.width..reached.end * self.width;
        for (pixel, cover) in self.pixels[pixels.clone()].iter_mut().zip(&mut self.mask[pixels]) {
            if *cover > 0.0 {
                let share = *cover * opacity;
                for (old, new) in pixel.iter_mut().zip(colour) {
                    *old = (f32::from(*old) * (1.0 - share) + f32::from(new) * share).round() as u8;
                }
                *cover = 0.0;
            }
        }
    }

    /// Adds the coverage of a part of a row, at one of the sample lines.
    fn cover_span(&mut self, row: usize, from: f32, to: f32) {
        if from.is_nan() || to.is_nan() {
            return;
        }
        let (from, to) = (from.max(0.0), to.min(self.width as f32));
        let columns = from as usize..(to.ceil() as usize).min(self.width);
        for column in columns {
            let left = column as f32;
            let share = (to.min(left + 1.0) - from.max(left)).max(0.0) / SAMPLES as f32;
            let cover = &mut self.mask[row * self.width + column];
            *cover = (*cover + share).min(1.0);
        }
    }

    /// Adds the coverage of a thick line from `a` to `b`: it falls from 1 to 0 across the edge of the line.
    fn cover(&mut self, a: Point, b: Point, radius: f32) {
        let reach = radius + 1.0;
        let col = |x: f32| (x.max(0.0) as usize).min(self.width);
        let cols = col(a.0.min(b.0) - reach)..col(a.0.max(b.0) + reach + 1.0);
        let (dx, dy) = (b.0 - a.0, b.1 - a.1);
        let length2 = dx * dx + dy * dy;
        for row in self.reach(a.1.min(b.1) - reach, a.1.max(b.1) + reach + 1.0) {
            for col in cols.clone() {
                let (px, py) = (col as f32 + 0.5 - a.0, row as f32 + 0.5 - a.1);
                let along = if length2 > 0.0 {
                    ((px * dx + py * dy) / length2).clamp(0.0, 1.0)
                } else {
                    0.0
                };
                let (x, y) = (px - along * dx, py - along * dy);
                // Not `hypot`, which is a function call: distances of pixels are neither so small nor so large that
                // squares lose them.
                let distance = (x * x + y * y).sqrt();
                let share = (radius + 0.5 - distance).clamp(0.0, 1.0);
                let cover = &mut self.mask[row * self.width + col];
                *cover = cover.max(share);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHITE: Colour = [255; 3];
    const BLACK: Colour = [0; 3];

    /// The darkness of a picture: the number of pixels that a black shape covers.
    fn area(canvas: &Canvas) -> f32 {
        canvas
            .pixels
            .iter()
            .map(|pixel| 1.0 - f32::from(pixel[0]) / 255.0)
            .sum()
    }

    #[test]
    fn a_line_covers_its_pixels_and_no_others() {
        let mut canvas = Canvas::new(8, 5, WHITE);
        canvas.strokes(&[vec![(2.0, 2.5), (6.0, 2.5)]], 1.0, BLACK, 1.0);
        assert_eq!(canvas.pixels[2 * 8 + 3], BLACK);
        assert_eq!(canvas.pixels[2 * 8 + 7], WHITE);
        assert_eq!(canvas.pixels[3], WHITE);
    }

    #[test]
    fn pictures_are_drawn_in_any_size() {
        let picture = [[0; 3], [90; 3], [30; 3], [60; 3]];
        let mut canvas = Canvas::new(4, 6, WHITE);
        canvas.view(2.0, 2.0);
        canvas.image(2, &picture);
        let rows: Vec<Vec<u8>> = canvas
            .pixels
            .chunks(4)
            .map(|row| row.iter().map(|pixel| pixel[0]).collect())
            .collect();
        let (upper, lower) = (vec![0, 0, 90, 90], vec![30, 30, 60, 60]);
        let ground = vec![255; 4];
        assert_eq!(
            rows,
            [ground.clone(), upper.clone(), upper, lower.clone(), lower, ground]
        );
        let mut canvas = Canvas::new(1, 1, WHITE);
        canvas.view(2.0, 2.0);
        canvas.image(2, &picture);
        assert_eq!(canvas.pixels, [[45; 3]]);
        canvas.image(0, &[]);
        canvas.image(3, &picture[..2]);
    }

    #[test]
    fn overlapping_strokes_are_laid_on_once_and_clipped() {
        let mut canvas = Canvas::new(4, 4, WHITE);
        let line = vec![(-10.0, 2.0), (30.0, 2.0)];
        canvas.strokes(&[line.clone(), line], 4.0, BLACK, 0.5);
        assert_eq!(canvas.pixels[2 * 4 + 1], [128; 3]);
        canvas.strokes(&[vec![(f32::NAN, 1.0), (1.0, 1.0)], vec![(1e9, 1e9)]], 1.0, BLACK, 1.0);
    }

    #[test]
    fn nothing_is_drawn_outside_the_clip() {
        let mut canvas = Canvas::new(3, 6, WHITE);
        canvas.clip_rows(2.0, 4.0);
        canvas.strokes(&[vec![(1.5, -9.0), (1.5, 9.0)]], 1.0, BLACK, 1.0);
        canvas.rectangle((0.0, 0.0), (1.0, 6.0), BLACK);
        let column =
            |canvas: &Canvas, x: usize| -> Vec<u8> { canvas.pixels.iter().skip(x).step_by(3).map(|p| p[0]).collect() };
        assert_eq!(column(&canvas, 1), [255, 255, 0, 0, 255, 255]);
        assert_eq!(column(&canvas, 0), [255, 255, 0, 0, 255, 255]);
        canvas.clip_rows(0.0, f32::INFINITY);
        canvas.strokes(&[vec![(1.5, -9.0), (1.5, 9.0)]], 1.0, BLACK, 1.0);
        assert_eq!(canvas.pixels[1], BLACK);
    }

    #[test]
    fn shapes_cover_their_areas() {
        let near = |canvas: &Canvas, expected: f32| {
            let found = area(canvas);
            assert!(
                (found - expected).abs() < 0.02 * expected + 0.05,
                "{found} for {expected}"
            );
        };
        let box_from = |x: f32, y: f32| [(x, y), (13.0, y), (13.0, 12.0), (x, 12.0)];
        for (expected, corners) in [
            (6.0, &box_from(10.0, 10.0)[..]),
            (4.375, &box_from(10.5, 10.25)),
            (200.0, &[(5.0, 5.0), (25.0, 5.0), (5.0, 25.0)]),
            (200.0, &[(20.0, 10.0), (30.0, 20.0), (20.0, 30.0), (10.0, 20.0)]),
        ] {
            let mut canvas = Canvas::new(40, 40, WHITE);
            canvas.polygon(corners, BLACK);
            near(&canvas, expected);
        }
        let mut canvas = Canvas::new(40, 40, WHITE);
        canvas.disc((20.0, 20.0), 12.0, BLACK);
        near(&canvas, std::f32::consts::PI * 144.0);
    }

    #[test]
    fn a_view_is_in_the_middle_and_as_large_as_it_fits() {
        let mut canvas = Canvas::new(40, 20, WHITE);
        canvas.view(10.0, 10.0);
        canvas.rectangle((0.0, 0.0), (10.0, 10.0), BLACK);
        let row: Vec<u8> = canvas.pixels[..40].iter().map(|pixel| pixel[0]).collect();
        assert!(row[..10].iter().chain(&row[30..]).all(|x| *x == 255) && row[10..30].iter().all(|x| *x == 0));
        assert_eq!(area(&canvas), 400.0);
    }

    #[test]
    fn what_makes_no_sense_is_not_drawn() {
        let mut canvas = Canvas::new(4, 4, WHITE);
        canvas.polygon(&[], BLACK);
        canvas.polygon(&[(f32::NAN, 0.0), (1.0, f32::NAN), (f32::INFINITY, 3.0)], BLACK);
        canvas.polygon(&[(-1e30, -1e30), (-1e30, 1e30), (-1.0, 0.0)], BLACK);
        canvas.disc((f32::INFINITY, 0.0), 1.0, BLACK);
        canvas.view(0.0, f32::NAN);
        canvas.disc((0.0, 0.0), f32::NAN, BLACK);
        Canvas::new(0, 0, WHITE).disc((0.0, 0.0), 1.0, BLACK);
        assert_eq!(canvas.pixels, vec![WHITE; 16]);
    }
}
