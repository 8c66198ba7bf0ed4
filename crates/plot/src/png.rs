//! Pictures as PNG files.

use std::io;

use crate::canvas::Canvas;

impl Canvas {
    /// The picture as a PNG file.
    ///
    /// # Errors
    /// A picture without pixels.
    pub fn to_png(&self) -> io::Result<Vec<u8>> {
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
    use crate::text::{Align, Style};

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
        let mut reader = png::Decoder::new(io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        assert_eq!(pixels, canvas.pixels().as_flattened());
        assert!(Canvas::new(0, 0, [0; 3]).to_png().is_err());
    }
}
