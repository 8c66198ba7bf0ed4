//! From f32 to 8 bits: scales, zero points and integers, as ONNX Runtime's quantizer computes them.

use polygrad_core::{DType, HostTensor, Result, Shape};

use crate::graph::{ElementType, Literal};

/// The largest integer of a weight. The smallest is its negative, so that there is no zero point.
pub(super) const WEIGHT: f64 = 127.0;

/// The largest integer of a bias, far enough from the limit of i32 for the products to be added.
const BIAS: f64 = (1_i64 << 30) as f64;

/// An encoding of numbers as bytes: a byte represents `(byte - zero) * scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bytes {
    pub(super) scale: f32,
    pub(super) zero: u8,
}

impl Bytes {
    /// The encoding of a range, extended to include 0.
    pub(super) fn of([low, high]: [f64; 2]) -> Self {
        let (low, high) = (low.min(0.0), high.max(0.0));
        let scale = ((high - low) / 255.0) as f32;
        if scale < f32::MIN_POSITIVE {
            return Self { scale: 1.0, zero: 0 };
        }
        let zero = (-low / f64::from(scale)).round_ties_even().clamp(0.0, 255.0);
        Self {
            scale,
            zero: zero as u8,
        }
    }

    /// The smallest and the largest number that it represents.
    pub(super) fn range(self) -> [f64; 2] {
        [0.0, 255.0].map(|byte| (byte - f64::from(self.zero)) * f64::from(self.scale))
    }

    /// A number after quantizing and dequantizing.
    pub(super) fn round(self, x: f64) -> f64 {
        let (scale, zero) = (f64::from(self.scale), f64::from(self.zero));
        (((x / scale).round_ties_even() + zero).clamp(0.0, 255.0) - zero) * scale
    }

    pub(super) fn literals(self) -> Result<[Literal; 2]> {
        Ok([
            HostTensor::scalar(self.scale).into(),
            HostTensor::scalar(self.zero).into(),
        ])
    }
}

/// A weight in 8 bits: integers of the same shape, and one scale or one for each channel.
pub(super) struct Weight {
    pub(super) numbers: Literal,
    pub(super) scales: Vec<f32>,
}

impl Weight {
    /// Quantizes a weight, with a scale for each channel of `axis` if `per_channel`, or with the given scales. The
    /// scales are made large enough for the integers of the bias, whose scale is that of the weight times `scale`.
    pub(super) fn of(
        weight: &HostTensor,
        axis: usize,
        per_channel: bool,
        learned: Option<&[f32]>,
        bias: Option<(&HostTensor, f32)>,
    ) -> Result<Self> {
        let per_channel = learned.map_or(per_channel, |scales| scales.len() > 1);
        let values = weight.to_f64_vec();
        let shape = *weight.shape();
        let outputs = shape[axis];
        let inner: usize = shape[axis + 1..].iter().product::<usize>().max(1);
        let channel = |i: usize| if per_channel { i / inner % outputs.max(1) } else { 0 };
        let mut largest = vec![0f64; if per_channel { outputs } else { 1 }];
        for (i, value) in values.iter().enumerate() {
            let largest = &mut largest[channel(i)];
            *largest = largest.max(value.abs());
        }
        let mut scales: Vec<f64> = match learned {
            Some(scales) => scales.iter().copied().map(f64::from).collect(),
            None => largest.into_iter().map(|largest| largest / WEIGHT).collect(),
        };
        if let Some((bias, scale)) = bias {
            for (i, value) in bias.to_f64_vec().into_iter().enumerate() {
                let least = value.abs() / (f64::from(scale) * BIAS);
                let at = if per_channel { i } else { 0 };
                scales[at] = scales[at].max(least);
            }
        }
        let scales: Vec<f32> = scales
            .into_iter()
            .map(|scale| {
                if (scale as f32) < f32::MIN_POSITIVE {
                    1.0
                } else {
                    scale as f32
                }
            })
            .collect();
        let numbers = values.iter().enumerate().map(|(i, value)| {
            let number = (value / f64::from(scales[channel(i)])).round_ties_even();
            number.clamp(-WEIGHT, WEIGHT) as i32
        });
        let host = HostTensor::new(shape, numbers.collect())?;
        Ok(Self {
            numbers: Literal::new(ElementType::I8, host)?,
            scales,
        })
    }

    /// Scales and zero points, as scalars if there is one scale.
    pub(super) fn literals(&self) -> Result<[Literal; 2]> {
        let shape = shape_of(self.scales.len())?;
        let zeros = HostTensor::new(shape, vec![0i32; self.scales.len()])?;
        let zeros = Literal::new(ElementType::I8, zeros)?;
        Ok([HostTensor::new(shape, self.scales.clone())?.into(), zeros])
    }

    /// A bias in i32, and its scales: those of the weight times the scale of the values.
    pub(super) fn bias(&self, bias: &HostTensor, scale: f32) -> Result<[Literal; 2]> {
        let scales: Vec<f32> = self.scales.iter().map(|weight| weight * scale).collect();
        let numbers = bias.to_f64_vec().into_iter().enumerate().map(|(i, value)| {
            let scale = scales[if scales.len() == 1 { 0 } else { i }];
            (value / f64::from(scale)).round_ties_even() as i32
        });
        let numbers = HostTensor::new(*bias.shape(), numbers.collect::<Vec<i32>>())?;
        let scales = HostTensor::new(shape_of(scales.len())?, scales)?;
        Ok([numbers.cast(DType::I32).into(), scales.into()])
    }
}

/// The shape of a list of scales; a single scale is a scalar.
fn shape_of(count: usize) -> Result<Shape> {
    match count {
        1 => Ok(Shape::SCALAR),
        count => Shape::new(&[count]),
    }
}
