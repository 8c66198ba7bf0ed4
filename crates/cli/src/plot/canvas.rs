//! A picture to draw smooth lines and text on.

use std::ops::Range;

use super::font::{self, Point};

/// Red, green and blue, 0 to 255.
pub(crate) type Colour = [u8; 3];

/// Where text lies relative to the point it is given.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Align {
    /// It starts there.
    Left,
    /// Its middle is there.
    Centre,
    /// It ends there.
    Right,
}

/// How text looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// The height of capitals in pixels.
    pub(crate) size: f32,
    /// The thickness of strokes in pixels.
    pub(crate) weight: f32,
    /// Its colour.
    pub(crate) colour: Colour,
}

/// A picture of RGB pixels.
#[derive(Debug)]
pub(crate) struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<Colour>,
    /// How much of each pixel the shape being drawn covers.
    mask: Vec<f32>,
    /// The rows that may be drawn on.
    clip: Range<usize>,
}

impl Canvas {
    /// A picture of one colour.
    pub(crate) fn new(width: usize, height: usize, ground: Colour) -> Self {
        Self {
            width,
            height,
            pixels: vec![ground; width * height],
            mask: vec![0.0; width * height],
            clip: 0..height,
        }
    }

    /// Keeps what is drawn from here on between two heights; the infinite range lifts the limit.
    pub(crate) fn clip_rows(&mut self, from: f32, to: f32) {
        self.clip = self.row(from)..self.row(to);
    }

    fn row(&self, y: f32) -> usize {
        (y.max(0.0) as usize).min(self.height)
    }

    /// Draws lines with round ends and joints; a line of one point is a disc. All of `lines` are one shape: where they
    /// overlap, a transparent colour is laid on once.
    pub(crate) fn strokes(&mut self, lines: &[Vec<Point>], thickness: f32, colour: Colour, opacity: f32) {
        let radius = thickness / 2.0;
        for line in lines {
            if let &[dot] = line.as_slice() {
                self.cover(dot, dot, radius);
            }
            for pair in line.windows(2) {
                self.cover(pair[0], pair[1], radius);
            }
        }
        for (pixel, cover) in self.pixels.iter_mut().zip(&mut self.mask) {
            if *cover > 0.0 {
                let share = *cover * opacity;
                for (old, new) in pixel.iter_mut().zip(colour) {
                    *old = (f32::from(*old) * (1.0 - share) + f32::from(new) * share).round() as u8;
                }
                *cover = 0.0;
            }
        }
    }

    /// Draws a line of text whose baseline is at `at`.
    pub(crate) fn text(&mut self, text: &str, at: Point, align: Align, style: Style) {
        let shift = match align {
            Align::Left => 0.0,
            Align::Centre => 0.5,
            Align::Right => 1.0,
        };
        let x = at.0 - shift * font::width(text, style.size);
        let lines = font::strokes(text, style.size, (x, at.1));
        self.strokes(&lines, style.weight, style.colour, 1.0);
    }

    /// The picture as a PNG file.
    ///
    /// # Errors
    /// Whatever the encoder says; it writes to memory.
    pub(crate) fn to_png(&self) -> Result<Vec<u8>, png::EncodingError> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(self.pixels.as_flattened())?;
        writer.finish()?;
        Ok(bytes)
    }

    /// Marks what a thick line from `a` to `b` covers: a pixel's share falls from 1 to 0 across the edge.
    fn cover(&mut self, a: Point, b: Point, radius: f32) {
        let reach = radius + 1.0;
        let (top, bottom) = (self.row(a.1.min(b.1) - reach), self.row(a.1.max(b.1) + reach + 1.0));
        let col = |x: f32| (x.max(0.0) as usize).min(self.width);
        let cols = col(a.0.min(b.0) - reach)..col(a.0.max(b.0) + reach + 1.0);
        let (dx, dy) = (b.0 - a.0, b.1 - a.1);
        let length2 = dx * dx + dy * dy;
        for row in top.max(self.clip.start)..bottom.min(self.clip.end) {
            for col in cols.clone() {
                let (px, py) = (col as f32 + 0.5 - a.0, row as f32 + 0.5 - a.1);
                let along = if length2 > 0.0 {
                    ((px * dx + py * dy) / length2).clamp(0.0, 1.0)
                } else {
                    0.0
                };
                let distance = (px - along * dx).hypot(py - along * dy);
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

    #[test]
    fn a_line_covers_its_pixels_and_no_others() {
        let mut canvas = Canvas::new(8, 5, WHITE);
        canvas.strokes(&[vec![(2.0, 2.5), (6.0, 2.5)]], 1.0, BLACK, 1.0);
        assert_eq!(canvas.pixels[2 * 8 + 3], BLACK);
        assert_eq!(canvas.pixels[2 * 8 + 7], WHITE);
        assert_eq!(canvas.pixels[3], WHITE);
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
        let column: Vec<u8> = canvas.pixels.iter().skip(1).step_by(3).map(|p| p[0]).collect();
        assert_eq!(column, [255, 255, 0, 0, 255, 255]);
        canvas.clip_rows(0.0, f32::INFINITY);
        canvas.strokes(&[vec![(1.5, -9.0), (1.5, 9.0)]], 1.0, BLACK, 1.0);
        assert_eq!(canvas.pixels[1], BLACK);
    }

    #[test]
    fn the_png_reads_back() {
        let mut canvas = Canvas::new(3, 2, [1, 2, 3]);
        canvas.text(
            "no room",
            (0.0, 0.0),
            Align::Centre,
            Style {
                size: 1.0,
                weight: 0.1,
                colour: WHITE,
            },
        );
        let bytes = canvas.to_png().unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        assert_eq!(pixels, canvas.pixels.as_flattened());
    }
}
