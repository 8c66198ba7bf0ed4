//! A font and colours, for charts of lines and dots.

pub(crate) mod canvas;
pub(crate) mod colours;
pub(crate) mod font;

// By this name, since `cargo xtask` compiles these files without the library.
use polygrad::rl as shapes;
