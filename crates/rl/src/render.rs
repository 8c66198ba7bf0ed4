//! Environments that can be drawn.

use crate::Canvas;

/// An environment that can be drawn; implementing it is optional.
///
/// ```
/// use polygrad_rl::{Canvas, Render};
///
/// /// Someone in a corridor of 10 fields.
/// struct Corridor {
///     place: usize,
/// }
///
/// impl Render for Corridor {
///     fn size(&self) -> [f32; 2] {
///         [100.0, 10.0]
///     }
///     fn fps(&self) -> f64 {
///         4.0
///     }
///     fn render(&self, canvas: &mut Canvas) {
///         canvas.disc((10.0 * self.place as f32 + 5.0, 5.0), 4.0, [200, 30, 30]);
///     }
/// }
/// let picture = Corridor { place: 3 }.picture(200, 100);
/// assert_eq!((picture.width(), picture.height()), (200, 20));
/// assert_eq!(picture.pixels()[10 * 200 + 70], [200, 30, 30]);
/// ```
pub trait Render {
    /// Width and height of the picture, in the units that [`render`](Self::render) draws in: pixels, if space is not
    /// limited.
    fn size(&self) -> [f32; 2];

    /// Steps per second for a viewer.
    fn fps(&self) -> f64;

    /// Draws the state on a white canvas, whose [view](Canvas::view) has the size of the picture.
    fn render(&self, canvas: &mut Canvas);

    /// The state as a picture, as large as fits into `width` by `height` pixels.
    fn picture(&self, width: usize, height: usize) -> Canvas {
        let [own_width, own_height] = self.size();
        let scale = (width as f32 / own_width).min(height as f32 / own_height);
        let pixels = |extent: f32, most: usize| ((extent * scale).round() as usize).clamp(1, most.max(1));
        let mut canvas = Canvas::new(pixels(own_width, width), pixels(own_height, height), [255; 3]);
        canvas.view(own_width, own_height);
        self.render(&mut canvas);
        canvas
    }
}
