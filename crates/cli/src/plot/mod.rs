//! A drawing surface and a font, enough for line charts.

pub(crate) mod canvas;
pub(crate) mod font;
