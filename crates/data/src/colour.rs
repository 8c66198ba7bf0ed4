//! Changes of brightness, contrast, saturation and hue, bit-identical to Pillow and torchvision for 8-bit images. A
//! mask, whose pixels are not colours, stays as it is.

use polygrad_core::{Error, Result, Rng};

use crate::Image;

/// How much colours are changed randomly, as torchvision's `ColorJitter`. The default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ColorJitter {
    /// The factor is between `1 - brightness`, at least 0, and `1 + brightness`.
    pub brightness: f64,
    /// The same for contrast.
    pub contrast: f64,
    /// The same for saturation.
    pub saturation: f64,
    /// The largest share of the colour circle by which colours are rotated, in `[0, 0.5]`.
    pub hue: f64,
}

impl Image {
    /// Brighter for a factor above 1, darker for one below, and black for 0.
    ///
    /// # Errors
    /// A factor that is negative or not a number.
    pub fn adjust_brightness(&self, factor: f64) -> Result<Self> {
        check(factor, "adjust_brightness")?;
        Ok(self.blended(factor, |_| 0))
    }

    /// With more contrast for a factor above 1, less for one below, and none for 0.
    ///
    /// # Errors
    /// As [`Image::adjust_brightness`].
    pub fn adjust_contrast(&self, factor: f64) -> Result<Self> {
        check(factor, "adjust_contrast")?;
        let grey = self.to_grayscale();
        let sum: u64 = grey.pixels.iter().map(|&pixel| u64::from(pixel)).sum();
        let mean = (sum as f64 / grey.pixels.len() as f64 + 0.5) as u8;
        Ok(self.blended(factor, |_| mean))
    }

    /// More colourful for a factor above 1, less for one below, and grey for 0.
    ///
    /// # Errors
    /// As [`Image::adjust_brightness`].
    pub fn adjust_saturation(&self, factor: f64) -> Result<Self> {
        check(factor, "adjust_saturation")?;
        if self.channels != 3 {
            return Ok(self.clone());
        }
        let grey = self.to_grayscale();
        Ok(self.blended(factor, |at| grey.pixels[at / 3]))
    }

    /// Rotates the colours by a share of their circle, in `[-0.5, 0.5]`: at a third, red becomes green.
    ///
    /// # Errors
    /// A share outside this range.
    pub fn adjust_hue(&self, share: f64) -> Result<Self> {
        if !(-0.5..=0.5).contains(&share) {
            return Err(Error::invalid(format!("{share} is not in -0.5 to 0.5")).with_op("adjust_hue"));
        }
        if self.channels != 3 || self.is_mask() {
            return Ok(self.clone());
        }
        let by = (share * 255.0) as i32 as u8;
        let turned = |pixel: &[u8]| {
            let [hue, saturation, value] = hsv([pixel[0], pixel[1], pixel[2]]);
            rgb([hue.wrapping_add(by), saturation, value])
        };
        let pixels = self.pixels.chunks_exact(3).flat_map(turned).collect();
        Ok(self.with(self.height, self.width, pixels))
    }

    /// All four changes by random amounts, in random order.
    ///
    /// # Errors
    /// Options that are negative or not numbers, a hue above 0.5.
    pub fn color_jitter(&self, jitter: &ColorJitter, rng: &mut Rng) -> Result<Self> {
        let ColorJitter {
            brightness,
            contrast,
            saturation,
            hue,
        } = *jitter;
        for value in [brightness, contrast, saturation] {
            check(value, "color_jitter")?;
        }
        if !(0.0..=0.5).contains(&hue) {
            return Err(Error::invalid(format!("hue = {hue} is not in 0 to 0.5")).with_op("color_jitter"));
        }
        let mut factor = |around: f64| {
            let (low, high) = ((1.0 - around).max(0.0), 1.0 + around);
            low + (high - low) * rng.uniform()
        };
        let factors = [factor(brightness), factor(contrast), factor(saturation)];
        let turn = hue * (2.0 * rng.uniform() - 1.0);
        let mut order = [0, 1, 2, 3];
        for last in (1..order.len()).rev() {
            order.swap(last, rng.below(last + 1));
        }
        let mut image = self.clone();
        for change in order {
            image = match change {
                0 => image.adjust_brightness(factors[0])?,
                1 => image.adjust_contrast(factors[1])?,
                2 => image.adjust_saturation(factors[2])?,
                // The conversion to hue and back would round bytes.
                _ if hue == 0.0 => image,
                _ => image.adjust_hue(turn)?,
            };
        }
        Ok(image)
    }

    /// Interpolates between another image, whose bytes are given by position, and this one: factor 0 gives the other, 1
    /// this one, and other factors extrapolate.
    fn blended(&self, factor: f64, other: impl Fn(usize) -> u8) -> Self {
        if factor == 1.0 || self.is_mask() {
            return self.clone();
        }
        let factor = factor as f32;
        let between = |(at, &pixel): (usize, &u8)| {
            let other = other(at);
            // The cast saturates to the range of a byte.
            (f32::from(other) + factor * f32::from(i16::from(pixel) - i16::from(other))) as u8
        };
        let pixels = self.pixels.iter().enumerate().map(between).collect();
        self.with(self.height, self.width, pixels)
    }
}

fn check(factor: f64, op: &'static str) -> Result<()> {
    if factor >= 0.0 && factor.is_finite() {
        return Ok(());
    }
    Err(Error::invalid(format!("{factor} is not 0 or above")).with_op(op))
}

/// Hue, saturation and value of red, green and blue. Source: Smith, "Color gamut transform pairs" (1978).
fn hsv([r, g, b]: [u8; 3]) -> [u8; 3] {
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    if most == least {
        return [0, 0, most];
    }
    let range = f32::from(most - least);
    let from_most = |channel: u8| f32::from(most - channel) / range;
    let (rc, gc, bc) = (from_most(r), from_most(g), from_most(b));
    // Single and double precision are used in the same places as in Pillow.
    let sixths = if r == most {
        bc - gc
    } else if g == most {
        (2.0 + f64::from(rc) - f64::from(bc)) as f32
    } else {
        (4.0 + f64::from(gc) - f64::from(rc)) as f32
    };
    let hue = ((f64::from(sixths) / 6.0 + 1.0) % 1.0) as f32;
    let saturation = range / f32::from(most);
    let byte = |share: f32| (f64::from(share) * 255.0) as u8;
    [byte(hue), byte(saturation), most]
}

/// Back to red, green and blue.
fn rgb([hue, saturation, value]: [u8; 3]) -> [u8; 3] {
    if saturation == 0 {
        return [value; 3];
    }
    let sixths = f64::from(hue) * 6.0 / 255.0;
    let sector = sixths.floor();
    let rest = (sixths - sector) as f32;
    let saturation = (f64::from(saturation) / 255.0) as f32;
    let of = |less: f64| (f64::from(value) * (1.0 - less)).round() as u8;
    let p = of(f64::from(saturation));
    let q = of(f64::from(saturation * rest));
    let t = of(f64::from(saturation) * (1.0 - f64::from(rest)));
    match sector as u8 % 6 {
        0 => [value, t, p],
        1 => [q, value, p],
        2 => [p, value, t],
        3 => [p, q, value],
        4 => [t, p, value],
        _ => [value, p, q],
    }
}
