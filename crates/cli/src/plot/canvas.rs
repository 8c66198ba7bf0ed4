//! Text on a picture, and pictures as PNG files.

pub(crate) use super::shapes::{Canvas, Colour, Point};

use super::font;

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

/// What charts need of a picture beyond its shapes.
pub(crate) trait Picture {
    /// Draws a line of text whose baseline is at `at`.
    fn text(&mut self, text: &str, at: Point, align: Align, style: Style);

    /// The picture as a PNG file.
    ///
    /// # Errors
    /// Whatever the encoder says; it writes to memory.
    fn to_png(&self) -> Result<Vec<u8>, png::EncodingError>;
}

impl Picture for Canvas {
    fn text(&mut self, text: &str, at: Point, align: Align, style: Style) {
        let shift = match align {
            Align::Left => 0.0,
            Align::Centre => 0.5,
            Align::Right => 1.0,
        };
        let x = at.0 - shift * font::width(text, style.size);
        let lines = font::strokes(text, style.size, (x, at.1));
        self.strokes(&lines, style.weight, style.colour, 1.0);
    }

    fn to_png(&self) -> Result<Vec<u8>, png::EncodingError> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width() as u32, self.height() as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(self.pixels().as_flattened())?;
        writer.finish()?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_png_reads_back() {
        let mut canvas = Canvas::new(3, 2, [1, 2, 3]);
        let style = Style {
            size: 1.0,
            weight: 0.1,
            colour: [255; 3],
        };
        canvas.text("no room", (0.0, 0.0), Align::Centre, style);
        let bytes = canvas.to_png().unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        assert_eq!(pixels, canvas.pixels().as_flattened());
    }
}
