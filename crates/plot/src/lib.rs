//! Pictures without a system library: a canvas for smooth shapes, a font of strokes, and charts.
//!
//! ```
//! use polygrad_plot::{Axis, Canvas, Chart, Frame, Series, colours};
//!
//! let losses = vec![(1.0, 2.3), (2.0, 1.1), (3.0, 0.7)];
//! let chart = Chart {
//!     heading: "loss".to_owned(),
//!     x: Axis::linear(0.0, 3.0, 10).title("epoch"),
//!     y: Axis::around(losses.iter().map(|point| point.1), 6).grid(),
//!     series: vec![Series::new("train", colours::LINES[0], losses).line(3.0, 1.0)],
//! };
//! let mut canvas = Canvas::new(800, 500, colours::GROUND);
//! chart.draw(&mut canvas, &Frame::new((100.0, 60.0), (760.0, 400.0)));
//! assert!(canvas.pixels().contains(&colours::LINES[0]));
//! ```

mod axis;
mod canvas;
mod chart;
pub mod colours;
mod font;
#[cfg(feature = "png")]
mod png;
mod text;

pub use axis::Axis;
pub use canvas::{Canvas, Colour, Point};
pub use chart::{Chart, Frame, Series};
pub use font::knows;
pub use text::{Align, Style};
