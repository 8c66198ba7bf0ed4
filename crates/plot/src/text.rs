//! Text on a picture.

use crate::canvas::{Canvas, Colour, Point};
use crate::font;

/// The position of text relative to its point.
#[derive(Clone, Copy, Debug)]
pub enum Align {
    /// It starts there.
    Left,
    /// It is centred there.
    Centre,
    /// It ends there.
    Right,
}

/// The style of text.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// The height of capitals in pixels.
    pub size: f32,
    /// The thickness of strokes in pixels.
    pub weight: f32,
    /// Its colour.
    pub colour: Colour,
}

impl Style {
    /// The same in another colour.
    pub const fn coloured(self, colour: Colour) -> Self {
        Self { colour, ..self }
    }

    /// The width of a line of text in pixels.
    pub fn width(&self, text: &str) -> f32 {
        font::width(text, self.size)
    }
}

impl Canvas {
    /// Draws a line of text whose baseline is at `at`.
    pub fn text(&mut self, text: &str, at: Point, align: Align, style: Style) {
        let shift = match align {
            Align::Left => 0.0,
            Align::Centre => 0.5,
            Align::Right => 1.0,
        };
        let x = at.0 - shift * style.width(text);
        let lines = font::strokes(text, style.size, (x, at.1));
        self.strokes(&lines, style.weight, style.colour, 1.0);
    }
}
