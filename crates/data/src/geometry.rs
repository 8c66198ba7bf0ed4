//! Flips, rotations and other maps of the plane, bit-identical to Pillow for 8-bit images.

use polygrad_core::{Error, Result, Rng};

use crate::Image;

/// An affine map of an image around its centre, as torchvision's `affine`. The default changes nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    /// Clockwise rotation in degrees.
    pub degrees: f64,
    /// Translation to the right and down, in pixels.
    pub translate: [f64; 2],
    /// Scale factor, above 0.
    pub scale: f64,
    /// Shear of the columns and of the rows, in degrees.
    pub shear: [f64; 2],
}

impl Default for Affine {
    fn default() -> Self {
        Self {
            degrees: 0.0,
            translate: [0.0; 2],
            scale: 1.0,
            shear: [0.0; 2],
        }
    }
}

/// The source position of a pixel of the result: `x' = a x + b y + c`, `y' = d x + e y + f`.
struct Source([f64; 6]);

impl Source {
    /// The map `[a, b, d, e]` around a centre that has been moved by `(tx, ty)`.
    fn around([a, b, d, e]: [f64; 4], (cx, cy): (f64, f64), (tx, ty): (f64, f64)) -> Self {
        let c = a * (-cx - tx) + b * (-cy - ty) + cx;
        let f = d * (-cx - tx) + e * (-cy - ty) + cy;
        Self([a, b, c, d, e, f])
    }

    fn is_finite(&self) -> bool {
        self.0.iter().all(|value| value.is_finite())
    }
}

impl Image {
    /// Swaps top and bottom.
    #[must_use]
    pub fn vertical_flip(&self) -> Self {
        let rows = self.pixels.chunks_exact(self.width * self.channels).rev();
        self.with(self.height, self.width, rows.flatten().copied().collect())
    }

    /// [`Image::vertical_flip`] with probability `p`.
    #[must_use]
    pub fn random_vertical_flip(self, p: f64, rng: &mut Rng) -> Self {
        if rng.chance(p) { self.vertical_flip() } else { self }
    }

    /// The image rotated counter-clockwise around its centre, in the same size. Pixels are interpolated bilinearly; a
    /// [mask](Image::into_mask) takes the nearest pixel. Areas from outside the image are black.
    ///
    /// # Errors
    /// An angle that is not a number.
    pub fn rotate(&self, degrees: f64) -> Result<Self> {
        // As in Pillow, rounding removes the error of right angles.
        let rounded = |value: f64| format!("{value:.15}").parse().unwrap_or(value);
        let angle = -degrees.rem_euclid(360.0).to_radians();
        let (sin, cos): (f64, f64) = (rounded(angle.sin()), rounded(angle.cos()));
        self.mapped(
            Source::around([cos, sin, -sin, cos], self.middle(), (0.0, 0.0)),
            "rotate",
        )
    }

    /// [`Image::rotate`] by an angle between `-degrees` and `degrees`.
    ///
    /// # Errors
    /// As [`Image::rotate`].
    pub fn random_rotation(&self, degrees: f64, rng: &mut Rng) -> Result<Self> {
        self.rotate(degrees * (2.0 * rng.uniform() - 1.0))
    }

    /// The image rotated, moved, scaled and sheared, in the same size, with [`Image::rotate`]'s interpolation. For
    /// random maps, compute the options: `Affine { degrees: 20.0 * rng.uniform(), ..Affine::default() }`.
    ///
    /// # Errors
    /// Options that are not numbers, a scale that is not above 0, a shear of a right angle.
    pub fn affine(&self, affine: &Affine) -> Result<Self> {
        let Affine {
            degrees,
            translate: [tx, ty],
            scale,
            shear: [sx, sy],
        } = *affine;
        if scale.is_nan() || scale <= 0.0 {
            return Err(Error::invalid(format!("scale = {scale:?} is not above 0")).with_op("affine"));
        }
        // A rotation after two shears, inverted: torchvision's `_get_inverse_affine_matrix`.
        let (turn, sx, sy) = (degrees.to_radians(), sx.to_radians(), sy.to_radians());
        let a = (turn - sy).cos() / sy.cos();
        let b = -(turn - sy).cos() * sx.tan() / sy.cos() - turn.sin();
        let c = (turn - sy).sin() / sy.cos();
        let d = -(turn - sy).sin() * sx.tan() / sy.cos() + turn.cos();
        let inverse = [d / scale, -b / scale, -c / scale, a / scale];
        self.mapped(Source::around(inverse, self.middle(), (tx, ty)), "affine")
    }

    /// The image resized with the nearest pixels, as a mask needs; [`Image::resize`] does the same for a
    /// [mask](Image::into_mask).
    ///
    /// # Errors
    /// As [`Image::resize`].
    pub fn resize_nearest(&self, height: usize, width: usize) -> Result<Self> {
        self.check_size(height, width)?;
        let pixels = self.by_nearest(
            (height, width),
            [self.width as f64 / width as f64, self.height as f64 / height as f64],
            [0.0, 0.0],
        );
        Ok(self.with(height, width, pixels))
    }

    fn middle(&self) -> (f64, f64) {
        (self.width as f64 / 2.0, self.height as f64 / 2.0)
    }

    fn mapped(&self, source: Source, op: &'static str) -> Result<Self> {
        if !source.is_finite() {
            return Err(Error::invalid("the angles and distances are no numbers, or too large").with_op(op));
        }
        let size = (self.height, self.width);
        let pixels = match (&source.0, self.outside) {
            (_, None) => self.by_bilinear(&source),
            (&[a, b, c, d, e, f], Some(_)) if b == 0.0 && d == 0.0 => self.by_nearest(size, [a, e], [c, f]),
            (_, Some(outside)) => self.by_nearest_turned(&source, outside),
        };
        Ok(self.with(self.height, self.width, pixels))
    }

    fn pixel(&self, y: usize, x: usize) -> &[u8] {
        &self.pixels[(y * self.width + x) * self.channels..][..self.channels]
    }

    /// The pixels nearest to `step · (position + 0.5) + begin`, summed in the same order as by Pillow.
    fn by_nearest(&self, (height, width): (usize, usize), step: [f64; 2], begin: [f64; 2]) -> Vec<u8> {
        let places = |count: usize, step: f64, begin: f64, whole: usize| -> Vec<Option<usize>> {
            let mut at = begin + step * 0.5;
            let next = |_| {
                let place = (at >= 0.0 && at < whole as f64).then_some(at as usize);
                at += step;
                place
            };
            (0..count).map(next).collect()
        };
        let columns = places(width, step[0], begin[0], self.width);
        let mut pixels = Vec::with_capacity(height * width * self.channels);
        let outside = vec![self.outside.unwrap_or(0); self.channels];
        for y in places(height, step[1], begin[1], self.height) {
            for &x in &columns {
                pixels.extend_from_slice(y.zip(x).map_or(&outside, |(y, x)| self.pixel(y, x)));
            }
        }
        pixels
    }

    /// The pixels nearest to their source positions, computed in fixed point with 16 fractional bits.
    fn by_nearest_turned(&self, &Source([a, b, c, d, e, f]): &Source, outside: u8) -> Vec<u8> {
        let fixed = |value: f64| (value * 65536.0 + 0.5).floor() as i64;
        let (right, down) = ([fixed(a), fixed(d)], [fixed(b), fixed(e)]);
        let mut row = [fixed(c + a * 0.5 + b * 0.5), fixed(f + d * 0.5 + e * 0.5)];
        let inside = |at: i64, whole: usize| usize::try_from(at >> 16).ok().filter(|&at| at < whole);
        let mut pixels = Vec::with_capacity(self.pixels.len());
        for _ in 0..self.height {
            let mut at = row;
            for _ in 0..self.width {
                match inside(at[1], self.height).zip(inside(at[0], self.width)) {
                    Some((y, x)) => pixels.extend_from_slice(self.pixel(y, x)),
                    None => pixels.extend(std::iter::repeat_n(outside, self.channels)),
                }
                at = [at[0].saturating_add(right[0]), at[1].saturating_add(right[1])];
            }
            row = [row[0].saturating_add(down[0]), row[1].saturating_add(down[1])];
        }
        pixels
    }

    /// Interpolates between the four pixels around each source position; edge pixels extend half a pixel outwards.
    fn by_bilinear(&self, &Source([a, b, c, d, e, f]): &Source) -> Vec<u8> {
        let mut pixels = Vec::with_capacity(self.pixels.len());
        let (width, height) = (self.width as f64, self.height as f64);
        for y in 0..self.height {
            for x in 0..self.width {
                let (x, y) = (x as f64 + 0.5, y as f64 + 0.5);
                let (from_x, from_y) = (a * x + b * y + c, d * x + e * y + f);
                if !(0.0..width).contains(&from_x) || !(0.0..height).contains(&from_y) {
                    pixels.extend(std::iter::repeat_n(0, self.channels));
                    continue;
                }
                let (left, top) = ((from_x - 0.5).floor(), (from_y - 0.5).floor());
                let (dx, dy) = (from_x - 0.5 - left, from_y - 0.5 - top);
                let place = |at: f64, whole: usize| (at.max(0.0) as usize).min(whole - 1);
                let (x0, x1) = (place(left, self.width), place(left + 1.0, self.width));
                let (y0, y1) = (place(top, self.height), place(top + 1.0, self.height));
                let between = |a: u8, b: u8| f64::from(a) + f64::from(i16::from(b) - i16::from(a)) * dx;
                for channel in 0..self.channels {
                    let of = |y: usize| between(self.pixel(y, x0)[channel], self.pixel(y, x1)[channel]);
                    let (upper, lower) = (of(y0), of(y1));
                    pixels.push((upper + (lower - upper) * dy) as u8);
                }
            }
        }
        pixels
    }
}
