//! Images and their transforms.

use std::path::Path;

use polygrad_core::{Error, ErrorKind, HostTensor, Result, Rng, Shape, open_file, printable};

use crate::resize::resize;

/// Larger images are rejected before memory is allocated for them.
pub(crate) const MAX_BYTES: usize = 128 << 20;

/// An image with 8 bits for each channel of each pixel, as in files: rows from the top, pixels from the left, the
/// channels of a pixel next to each other. Its methods are PyTorch's transforms and give the same results as
/// torchvision for such images; random ones take a generator:
///
/// ```
/// use polygrad_data::Image;
/// # use polygrad_core::Result;
/// # fn main() -> Result<()> {
/// # let images = vec![(Image::new(1, 28, 28, vec![0; 784])?, 3_usize)];
/// let config = polygrad_data::DataLoaderConfig::new(images).transform(|(image, label), rng| {
///     let image = image.random_crop(28, 28, 2, rng)?.random_horizontal_flip(0.5, rng);
///     Ok((image.normalize(&[0.5], &[0.25])?, label))
/// });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub(crate) channels: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) pixels: Vec<u8>,
    /// For a mask, the number of the area outside it.
    pub(crate) outside: Option<u8>,
}

impl Image {
    /// From `height * width * channels` bytes, all three at least 1.
    ///
    /// # Errors
    /// When the number of bytes does not match, or is 0.
    pub fn new(channels: usize, height: usize, width: usize, pixels: Vec<u8>) -> Result<Self> {
        let size = channels.checked_mul(height).and_then(|n| n.checked_mul(width));
        if size != Some(pixels.len()) || pixels.is_empty() {
            return Err(Error::shape(format!(
                "{} bytes are no image of {height} × {width} pixels and {channels} channels",
                pixels.len()
            )));
        }
        Ok(Self {
            channels,
            height,
            width,
            pixels,
            outside: None,
        })
    }

    /// Reads a PNG or JPEG file (features `png` and `jpeg`), regardless of its name: as grey or RGB. Palettes become
    /// colours and opacity is dropped, as by Pillow's `convert`. Of 16 bits the upper 8 are used, while Pillow's
    /// `convert` clips grey values at 255.
    ///
    /// # Errors
    /// A file that cannot be read, is neither PNG nor JPEG, is damaged, or is larger than 128 MiB when decoded.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::decode(&read(path)?).map_err(|what| unreadable(path, &what))
    }

    /// As [`Image::open`], except that the image lies on a black ground where it is transparent.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn open_on_black(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        decode(&read(path)?, Opacity::OnBlack).map_err(|what| unreadable(path, &what))
    }

    /// As [`Image::open`], from a file's bytes; errors are texts.
    pub(crate) fn decode(bytes: &[u8]) -> std::result::Result<Self, String> {
        decode(bytes, Opacity::Dropped)
    }

    /// The bytes of a PNG file.
    ///
    /// # Errors
    /// An image whose number of channels is neither 1 nor 3.
    #[cfg(feature = "png")]
    pub fn to_png(&self) -> Result<Vec<u8>> {
        let colour = match self.channels {
            1 => png::ColorType::Grayscale,
            3 => png::ColorType::Rgb,
            other => return Err(Error::unsupported(format!("a PNG file of {other} channels")).with_op("to_png")),
        };
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width as u32, self.height as u32);
        encoder.set_color(colour);
        encoder
            .write_header()
            .and_then(|mut writer| writer.write_image_data(&self.pixels))
            .map_err(|e| Error::new(ErrorKind::Format, format!("the image cannot be written: {e}")))?;
        Ok(bytes)
    }

    /// Number of channels: 1 for grey, 3 for RGB.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Height in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Width in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The bytes, in the order of [`Image`].
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    pub(crate) fn with(&self, height: usize, width: usize, pixels: Vec<u8>) -> Self {
        Self {
            channels: self.channels,
            height,
            width,
            pixels,
            outside: self.outside,
        }
    }

    /// The image in grey, by ITU-R BT.601's luma with Pillow's rounding.
    #[must_use]
    pub fn to_grayscale(&self) -> Self {
        if self.channels != 3 {
            return self.clone();
        }
        let luma = |p: &[u8]| {
            let sum = 19595 * u32::from(p[0]) + 38470 * u32::from(p[1]) + 7471 * u32::from(p[2]) + 0x8000;
            (sum >> 16) as u8
        };
        Self {
            channels: 1,
            pixels: self.pixels.chunks_exact(3).map(luma).collect(),
            ..*self
        }
    }

    /// The image in RGB, with three equal channels for grey.
    #[must_use]
    pub fn to_rgb(&self) -> Self {
        if self.channels != 1 {
            return self.clone();
        }
        Self {
            channels: 3,
            pixels: self.pixels.iter().flat_map(|&p| [p; 3]).collect(),
            ..*self
        }
    }

    /// A part of the image with its upper left corner at `(top, left)`.
    ///
    /// # Errors
    /// A part that is empty, or extends beyond the image.
    pub fn crop(&self, top: usize, left: usize, height: usize, width: usize) -> Result<Self> {
        let inside = |begin: usize, size: usize, whole: usize| size > 0 && begin <= whole && size <= whole - begin;
        if !inside(top, height, self.height) || !inside(left, width, self.width) {
            return Err(Error::out_of_range(format!(
                "{height} × {width} pixels from ({top}, {left}) on are not in an image of {} × {}",
                self.height, self.width
            ))
            .with_op("crop"));
        }
        let row = self.width * self.channels;
        let (begin, length) = (left * self.channels, width * self.channels);
        let rows = self.pixels.chunks_exact(row).skip(top).take(height);
        let pixels = rows.flat_map(|row| &row[begin..begin + length]).copied().collect();
        Ok(self.with(height, width, pixels))
    }

    /// The centre of the image.
    ///
    /// # Errors
    /// When the image is smaller.
    pub fn center_crop(&self, height: usize, width: usize) -> Result<Self> {
        // torchvision rounds halves to even.
        let begin = |whole: usize, size: usize| (whole.saturating_sub(size) as f64 / 2.0).round_ties_even() as usize;
        self.crop(begin(self.height, height), begin(self.width, width), height, width)
    }

    /// The image with `padding` black pixels on each side; for a [mask](Image::into_mask), pixels with the number for
    /// outside.
    ///
    /// # Errors
    /// When it would be larger than 128 MiB.
    pub fn pad(&self, padding: usize) -> Result<Self> {
        let padded = |size: usize| padding.checked_mul(2)?.checked_add(size);
        let size = padded(self.height).zip(padded(self.width));
        let bytes = size.and_then(|(height, width)| height.checked_mul(width)?.checked_mul(self.channels));
        let (Some((height, width)), Some(bytes @ ..=MAX_BYTES)) = (size, bytes) else {
            return Err(Error::invalid(format!("{padding} pixels on each side are too many")).with_op("pad"));
        };
        let (row, side) = (self.width * self.channels, padding * self.channels);
        let mut pixels = vec![self.outside.unwrap_or(0); bytes];
        let inner = pixels.chunks_exact_mut(row + 2 * side).skip(padding);
        for (to, from) in inner.zip(self.pixels.chunks_exact(row)) {
            to[side..side + row].copy_from_slice(from);
        }
        Ok(self.with(height, width, pixels))
    }

    /// A random part of the image, padded by [`Image::pad`].
    ///
    /// # Errors
    /// A part that is empty, or larger than the padded image; those of [`Image::pad`].
    pub fn random_crop(&self, height: usize, width: usize, padding: usize, rng: &mut Rng) -> Result<Self> {
        let padded = self.pad(padding)?;
        let top = rng.below((padded.height + 1).saturating_sub(height));
        let left = rng.below((padded.width + 1).saturating_sub(width));
        padded.crop(top, left, height, width)
    }

    /// A random part of the image, resized. It has an area from `scale` times to all of the image and an aspect ratio
    /// from 3 : 4 to 4 : 3; if ten attempts find none that fits, it is the centre. `scale` is in `(0, 1]`;
    /// torchvision's default is 0.08.
    ///
    /// Source: Szegedy et al., "Going deeper with convolutions" (2014), as torchvision's `RandomResizedCrop` does it.
    ///
    /// # Errors
    /// An empty size.
    pub fn random_resized_crop(&self, height: usize, width: usize, scale: f64, rng: &mut Rng) -> Result<Self> {
        let area = (self.height * self.width) as f64;
        let ratio = (3.0_f64 / 4.0).ln();
        for _ in 0..10 {
            let target = area * (scale + (1.0 - scale) * rng.uniform());
            let aspect = (ratio * (1.0 - 2.0 * rng.uniform())).exp();
            let w = (target * aspect).sqrt().round_ties_even() as usize;
            let h = (target / aspect).sqrt().round_ties_even() as usize;
            if (1..=self.width).contains(&w) && (1..=self.height).contains(&h) {
                let (top, left) = (rng.below(self.height - h + 1), rng.below(self.width - w + 1));
                return self.crop(top, left, h, w)?.resize(height, width);
            }
        }
        let bounded = |long: usize, short: usize| long.min((short as f64 * 4.0 / 3.0).round_ties_even() as usize);
        let (h, w) = (bounded(self.height, self.width), bounded(self.width, self.height));
        self.center_crop(h, w)?.resize(height, width)
    }

    /// Swaps left and right.
    #[must_use]
    pub fn horizontal_flip(&self) -> Self {
        let mut pixels = self.pixels.clone();
        for row in pixels.chunks_exact_mut(self.width * self.channels) {
            row.reverse();
            // Restores the order of each pixel's channels.
            if self.channels > 1 {
                row.chunks_exact_mut(self.channels).for_each(<[u8]>::reverse);
            }
        }
        self.with(self.height, self.width, pixels)
    }

    /// [`Image::horizontal_flip`] with probability `p`.
    #[must_use]
    pub fn random_horizontal_flip(self, p: f64, rng: &mut Rng) -> Self {
        if rng.chance(p) { self.horizontal_flip() } else { self }
    }

    /// The image resized by bilinear interpolation, averaging over as many pixels as a new one covers, bit-identical to
    /// Pillow. A [mask](Image::into_mask) is resized by [`Image::resize_nearest`].
    ///
    /// # Errors
    /// An empty size, or one of more than 128 MiB.
    pub fn resize(&self, height: usize, width: usize) -> Result<Self> {
        if self.is_mask() {
            return self.resize_nearest(height, width);
        }
        self.check_size(height, width)?;
        let pixels = resize(&self.pixels, self.channels, (self.height, self.width), (height, width));
        Ok(self.with(height, width, pixels))
    }

    pub(crate) fn check_size(&self, height: usize, width: usize) -> Result<()> {
        let size = height.checked_mul(width).and_then(|n| n.checked_mul(self.channels));
        match size {
            Some(1..=MAX_BYTES) => Ok(()),
            _ => Err(Error::invalid(format!("{height} × {width} pixels are none, or too many")).with_op("resize")),
        }
    }

    /// `[channels, height, width]`, f32 from 0 to 1.
    ///
    /// # Errors
    /// None that depend on the image.
    pub fn to_host(&self) -> Result<HostTensor> {
        self.normalize(&[0.0], &[1.0])
    }

    /// `[channels, height, width]`, f32: `(x - mean) / std` for x from 0 to 1. For many images use [`Normalize`], which
    /// is faster.
    ///
    /// # Errors
    /// As [`Normalize::new`] and [`Normalize::apply`].
    pub fn normalize(&self, mean: &[f32], std: &[f32]) -> Result<HostTensor> {
        Normalize::new(mean, std)?.apply(self)
    }
}

/// Converts images to numbers, using the mean and the standard deviation of their pixels.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalize {
    /// For each channel, or for all, the model's input for each byte value.
    seen: Vec<[f32; 256]>,
}

impl Normalize {
    /// `(x - mean) / std` for x from 0 to 1. Both have one value for each channel, or both have one for all.
    ///
    /// # Errors
    /// Different numbers of values, no values, or a `std` that is 0 or not a number.
    pub fn new(mean: &[f32], std: &[f32]) -> Result<Self> {
        if mean.len() != std.len() || mean.is_empty() || std.iter().any(|&std| std == 0.0 || std.is_nan()) {
            return Err(Error::invalid(format!("mean {mean:?} and std {std:?} do not fit"))
                .with_op("normalize")
                .with_hint("give both a number for each channel, or one for all; std is not 0"));
        }
        let pairs = mean.iter().zip(std);
        let seen = pairs.map(|(mean, std)| std::array::from_fn(|pixel| (pixel as f32 / 255.0 - mean) / std));
        Ok(Self { seen: seen.collect() })
    }

    /// `[channels, height, width]`, f32.
    ///
    /// # Errors
    /// An image with another number of channels.
    pub fn apply(&self, image: &Image) -> Result<HostTensor> {
        if self.seen.len() != 1 && self.seen.len() != image.channels {
            return Err(Error::shape(format!(
                "there are a mean and a std for {} channels, the image has {}",
                self.seen.len(),
                image.channels
            ))
            .with_op("normalize"));
        }
        let mut values = Vec::with_capacity(image.pixels.len());
        for channel in 0..image.channels {
            let seen = &self.seen[channel % self.seen.len()];
            match image.channels {
                1 => values.extend(image.pixels.iter().map(|&pixel| seen[usize::from(pixel)])),
                channels => {
                    let pixels = image.pixels.chunks_exact(channels);
                    values.extend(pixels.map(|pixel| seen[usize::from(pixel[channel])]));
                }
            }
        }
        HostTensor::new(Shape::from([image.channels, image.height, image.width]), values)
    }
}

/// A file's bytes, unless there are too many.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    let (mut file, length) = open_file(path)?;
    let mut bytes = Vec::new();
    if length > MAX_BYTES as u64 {
        return Err(bad(path, "is larger than 128 MiB"));
    }
    std::io::Read::read_to_end(&mut file, &mut bytes).map_err(|e| Error::io("read", path, e))?;
    Ok(bytes)
}

pub(crate) fn bad(path: &Path, what: &str) -> Error {
    Error::new(
        ErrorKind::Format,
        format!("{} {what}", printable(&path.to_string_lossy())),
    )
}

fn unreadable(path: &Path, what: &str) -> Error {
    bad(path, what).with_hint("replace the file, or take it away")
}

/// What becomes of an image's opacity.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opacity {
    Dropped,
    OnBlack,
}

fn decode(bytes: &[u8], opacity: Opacity) -> std::result::Result<Image, String> {
    if bytes.starts_with(b"\x89PNG") {
        #[cfg(feature = "png")]
        return decode_png(bytes, opacity);
        #[cfg(not(feature = "png"))]
        return {
            let _ = opacity;
            Err("is a PNG file, which the feature png reads".to_owned())
        };
    }
    if bytes.starts_with(&[0xff, 0xd8]) {
        #[cfg(feature = "jpeg")]
        return decode_jpeg(bytes);
        #[cfg(not(feature = "jpeg"))]
        return Err("is a JPEG file, which the feature jpeg reads".to_owned());
    }
    Err(match other_format(bytes) {
        Some(format) => format!("is a {format} file, and PNG and JPEG files are read"),
        None => "is neither a PNG nor a JPEG file".to_owned(),
    })
}

/// The name of a recognised format that is not supported.
fn other_format(bytes: &[u8]) -> Option<&'static str> {
    Some(match bytes {
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "WebP",
        [b'G', b'I', b'F', b'8', ..] => "GIF",
        [b'B', b'M', ..] => "BMP",
        [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => "TIFF",
        [_, _, _, _, b'f', b't', b'y', b'p', b'a', b'v', b'i', ..] => "AVIF",
        [_, _, _, _, b'f', b't', b'y', b'p', b'h', b'e', b'i', ..] => "HEIC",
        _ => return None,
    })
}

/// A decoder's error, as the rest of a sentence about the file.
#[cfg(feature = "png")]
pub(crate) fn broken_png(error: png::DecodingError) -> String {
    match error {
        png::DecodingError::LimitsExceeded => "is larger than 128 MiB when decoded".to_owned(),
        // The decoder names chunks as structs.
        e if e.to_string().contains("ChunkType") => {
            "is no whole PNG file: a part of it has another checksum than what was written, or is in the wrong place"
                .to_owned()
        }
        e => format!("is no whole PNG file: {e}"),
    }
}

#[cfg(feature = "png")]
fn decode_png(bytes: &[u8], opacity: Opacity) -> std::result::Result<Image, String> {
    use png::{ColorType, Decoder, Limits, Transformations};

    let mut decoder = Decoder::new_with_limits(std::io::Cursor::new(bytes), Limits { bytes: MAX_BYTES });
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(broken_png)?;
    let size = reader.output_buffer_size().filter(|&size| size <= MAX_BYTES);
    let mut pixels = vec![0; size.ok_or_else(|| broken_png(png::DecodingError::LimitsExceeded))?];
    let info = reader.next_frame(&mut pixels).map_err(broken_png)?;
    pixels.truncate(info.buffer_size());
    // The opacity follows the colours.
    let (samples, channels) = match info.color_type {
        ColorType::Grayscale | ColorType::Indexed => (1, 1),
        ColorType::GrayscaleAlpha => (2, 1),
        ColorType::Rgb => (3, 3),
        ColorType::Rgba => (4, 3),
    };
    if samples != channels {
        let lit = |sample: u8, opaque: u8| match opacity {
            Opacity::Dropped => sample,
            Opacity::OnBlack => ((u16::from(sample) * u16::from(opaque) + 127) / 255) as u8,
        };
        pixels = pixels
            .chunks_exact(samples)
            .flat_map(|pixel| pixel[..channels].iter().map(|&sample| lit(sample, pixel[channels])))
            .collect();
    }
    Image::new(channels, info.height as usize, info.width as usize, pixels).map_err(|e| e.to_string())
}

#[cfg(feature = "jpeg")]
fn decode_jpeg(bytes: &[u8]) -> std::result::Result<Image, String> {
    use zune_jpeg::JpegDecoder;
    use zune_jpeg::zune_core::bytestream::ZCursor;
    use zune_jpeg::zune_core::colorspace::ColorSpace;
    use zune_jpeg::zune_core::options::DecoderOptions;

    // Some of the messages end with a line break.
    let broken = |e: &dyn std::fmt::Display| format!("is no whole JPEG file: {}", e.to_string().trim_end());
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), DecoderOptions::default());
    decoder.decode_headers().map_err(|e| broken(&e))?;
    let (width, height) = decoder.dimensions().ok_or_else(|| broken(&"it has no size"))?;
    let channels = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => 1,
        _ => 3,
    };
    if height.saturating_mul(width).saturating_mul(channels) > MAX_BYTES {
        return Err("is larger than 128 MiB when decoded".to_owned());
    }
    let space = if channels == 1 {
        ColorSpace::Luma
    } else {
        ColorSpace::RGB
    };
    decoder.set_options(decoder.options().jpeg_set_out_colorspace(space));
    let pixels = decoder.decode().map_err(|e| broken(&e))?;
    Image::new(channels, height, width, pixels).map_err(|e| e.to_string())
}
