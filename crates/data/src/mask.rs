//! Masks, whose pixels are class numbers, and changing images together with their masks.

#[cfg(feature = "png")]
use std::path::Path;

use polygrad_core::{Error, HostTensor, Result, Rng, Shape};

use crate::Image;

impl Image {
    /// Declares that the pixels are class numbers. From then on they are never interpolated: [`Image::resize`],
    /// [`Image::rotate`] and the like take the nearest pixel, and colour changes have no effect. Areas outside the
    /// image, also from padding, get the number `outside`, such as 255 for a loss's `ignore_index(255)`. A batch of
    /// masks is `[N, height, width]`, i64.
    #[must_use]
    pub fn into_mask(mut self, outside: u8) -> Self {
        self.outside = Some(outside);
        self
    }

    /// Whether it is a [mask](Image::into_mask).
    pub fn is_mask(&self) -> bool {
        self.outside.is_some()
    }

    /// Reads a PNG file of numbers (feature `png`): grey, or with a palette, of which the indices are used and not the
    /// colours, as in the data set Pascal VOC.
    ///
    /// # Errors
    /// A file that cannot be read, is not a PNG file, has colours or 16 bits, is damaged, or is larger than 128 MiB
    /// when decoded.
    #[cfg(feature = "png")]
    pub fn open_mask(path: impl AsRef<Path>, outside: u8) -> Result<Self> {
        let path = path.as_ref();
        let bytes = crate::image::read(path)?;
        decode(&bytes)
            .map(|image| image.into_mask(outside))
            .map_err(|what| crate::image::bad(path, &what))
    }

    /// The numbers `[height, width]`, i64.
    ///
    /// # Errors
    /// An image with several channels.
    pub fn to_labels(&self) -> Result<HostTensor> {
        if self.channels != 1 {
            return Err(
                Error::shape(format!("{} channels are no numbers of classes", self.channels))
                    .with_op("to_labels")
                    .with_hint("read the file by Image::open_mask"),
            );
        }
        let numbers = self.pixels.iter().map(|&pixel| i64::from(pixel)).collect();
        HostTensor::new(Shape::from([self.height, self.width]), numbers)
    }

    /// Applies the same change to several images of one size, such as an image and its mask: each gets the same random
    /// numbers.
    ///
    /// ```
    /// use polygrad_data::{Image, Rng};
    /// # fn main() -> polygrad_core::Result<()> {
    /// # let (image, mask) = (Image::new(3, 4, 4, vec![9; 48])?, Image::new(1, 4, 4, vec![1; 16])?);
    /// # let mut rng = Rng::new(0);
    /// let [image, mask] = Image::together([image, mask.into_mask(255)], &mut rng, |x, rng| {
    ///     x.random_crop(4, 4, 1, rng)?.random_horizontal_flip(0.5, rng).random_rotation(10.0, rng)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Images of different sizes, and those of `change`.
    pub fn together<const N: usize>(
        images: [Self; N],
        rng: &mut Rng,
        mut change: impl FnMut(Self, &mut Rng) -> Result<Self>,
    ) -> Result<[Self; N]> {
        if let [first, rest @ ..] = &images[..]
            && let Some(other) = rest.iter().find(|x| (x.height, x.width) != (first.height, first.width))
        {
            return Err(Error::shape(format!(
                "an image of {} × {} pixels and one of {} × {}",
                first.height, first.width, other.height, other.width
            ))
            .with_op("together")
            .with_hint("bring them to one size by resize"));
        }
        let begin = rng.clone();
        let mut changed = Vec::with_capacity(N);
        for image in images {
            *rng = begin.clone();
            changed.push(change(image, rng)?);
        }
        match changed.try_into() {
            Ok(changed) => Ok(changed),
            Err(_) => unreachable!("there are as many as before"),
        }
    }
}

/// The samples of a PNG file as they are stored.
#[cfg(feature = "png")]
fn decode(bytes: &[u8]) -> std::result::Result<Image, String> {
    use png::{BitDepth, ColorType, Decoder, Limits, Transformations};

    if !bytes.starts_with(b"\x89PNG") {
        return Err("is no PNG file: a mask is one of numbers".to_owned());
    }
    let limits = Limits {
        bytes: crate::image::MAX_BYTES,
    };
    let mut decoder = Decoder::new_with_limits(std::io::Cursor::new(bytes), limits);
    decoder.set_transformations(Transformations::IDENTITY);
    let mut reader = decoder.read_info().map_err(crate::image::broken_png)?;
    let (colour, depth) = reader.output_color_type();
    let bits = match (colour, depth) {
        (ColorType::Grayscale | ColorType::Indexed, BitDepth::One) => 1,
        (ColorType::Grayscale | ColorType::Indexed, BitDepth::Two) => 2,
        (ColorType::Grayscale | ColorType::Indexed, BitDepth::Four) => 4,
        (ColorType::Grayscale | ColorType::Indexed, BitDepth::Eight) => 8,
        (ColorType::Grayscale, _) => return Err("has numbers of 16 bits: those of classes go up to 255".to_owned()),
        _ => return Err("has colours or opacity, not numbers of classes".to_owned()),
    };
    let (width, height) = (reader.info().width as usize, reader.info().height as usize);
    let size = reader.output_buffer_size();
    let fits = |size: usize| size.max(width.saturating_mul(height)) <= crate::image::MAX_BYTES;
    let Some(size) = size.filter(|&size| fits(size)) else {
        return Err("is larger than 128 MiB when decoded".to_owned());
    };
    let mut packed = vec![0; size];
    let info = reader.next_frame(&mut packed).map_err(crate::image::broken_png)?;
    let mut pixels = Vec::with_capacity(width * height);
    for row in packed.chunks_exact(info.line_size).take(height) {
        let sample = |x: usize| row[x * bits / 8] >> (8 - bits - x * bits % 8) & (0xff >> (8 - bits)) as u8;
        pixels.extend((0..width).map(sample));
    }
    Image::new(1, height, width, pixels).map_err(|e| e.to_string())
}
