//! Spectra.

use std::f64::consts::TAU;

use polygrad_core::{DType, Error, HostTensor, Result, Shape};
use polygrad_tensor::Tensor;
use smallvec::smallvec;

use super::row::{Row, rows};
use crate::graph::{ElementType, malformed};
use crate::import::call::{Call, Results, axis, one, size};

rows! {
    Row::new("DFT", 17, dft);
    Row::new("STFT", 17, stft);
    Row::new("MelWeightMatrix", 17, mel_weights);
}

/// A discrete Fourier transform.
struct Transform {
    length: usize,
    inverse: bool,
    onesided: bool,
}

impl Transform {
    /// Along the second-to-last axis of `x […, n, 1 or 2]`, by a product with the transform's matrix.
    fn apply(&self, c: &Call<'_>, x: &Tensor) -> Result<Tensor> {
        let shape = x.shape();
        let rank = shape.rank();
        let parts = shape[rank - 1];
        if !(1..=2).contains(&parts) || self.length == 0 {
            return Err(Error::shape(format!(
                "{shape} ends in neither real nor complex numbers, or has none"
            )));
        }
        let to_real = self.inverse && self.onesided;
        let half = self.length / 2 + 1;
        let (ins, outs) = match (self.onesided, self.inverse) {
            (true, false) => (self.length, half),
            (true, true) => (half, self.length),
            _ => (self.length, self.length),
        };
        let taken = shape[rank - 2].min(ins);
        let x = x.narrow(-2, 0, taken)?;
        c.reserve(&[taken, outs], DType::F64)?;
        c.reserve(&[shape[..rank - 2].iter().product(), outs, 2], x.dtype())?;
        let sign = if self.inverse { 1.0 } else { -1.0 };
        let factor = |i: usize| {
            let scale = if self.inverse { 1.0 / self.length as f64 } else { 1.0 };
            // In a one-sided spectrum, all elements except the ends stand for two.
            let twice = to_real && i != 0 && 2 * i != self.length;
            if twice { 2.0 * scale } else { scale }
        };
        let matrix = |wave: fn(f64) -> f64| -> Result<Tensor> {
            let mut values = c.list(taken.saturating_mul(outs))?;
            for i in 0..taken {
                for k in 0..outs {
                    // Modulo the length, so that large products lose no precision.
                    let turns = (i as u128 * k as u128 % self.length as u128) as f64 / self.length as f64;
                    values.push(factor(i) * wave(sign * TAU * turns));
                }
            }
            c.make_as(values, &[taken, outs], x.dtype())
        };
        let (cos, sin) = (matrix(f64::cos)?, matrix(f64::sin)?);
        let real = x.select(-1, 0)?;
        let (mut re, mut im) = (real.matmul(&cos)?, real.matmul(&sin)?);
        if parts == 2 {
            let imaginary = x.select(-1, 1)?;
            re = (re - imaginary.matmul(&sin)?)?;
            im = (im + imaginary.matmul(&cos)?)?;
        }
        if to_real {
            re.unsqueeze(-1)
        } else {
            Tensor::stack(&[&re, &im], -1)
        }
    }
}

fn dft(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let rank = x.rank();
    let number = if c.version < 20 {
        c.int("axis", 1)?
    } else if c.has(2) {
        c.int_scalar(2)?
    } else {
        -2
    };
    let at = axis(number, rank)?;
    if rank < 2 || at + 1 == rank {
        return Err(Error::shape(format!(
            "{} along axis {number}: the last axis holds the parts",
            x.shape()
        )));
    }
    let (inverse, onesided) = (c.flag("inverse", false)?, c.flag("onesided", false)?);
    let length = match c.value(1) {
        Some(_) => size(c.int_scalar(1)?)?,
        None if inverse && onesided => 2 * x.shape()[at].saturating_sub(1),
        None => x.shape()[at],
    };
    let (at, last) = (at as isize, rank as isize - 2);
    let moved = x.transpose(at, last)?;
    let y = Transform {
        length,
        inverse,
        onesided,
    }
    .apply(c, &moved)?;
    one(y.transpose(at, last)?)
}

fn stft(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let x = if x.rank() == 2 { x.unsqueeze(-1)? } else { x };
    let &[_, length, _] = x.shape().dims() else {
        return Err(Error::shape(format!("{} is not [N, length, parts]", x.shape())));
    };
    let step = size(c.int_scalar(1)?)?;
    let window = c.opt(2)?;
    let frame = match (c.value(3), &window) {
        (Some(_), _) => size(c.int_scalar(3)?)?,
        (None, Some(window)) => window.numel(),
        (None, None) => length,
    };
    if step == 0 || frame == 0 || frame > length || window.as_ref().is_some_and(|window| window.dims() != [frame]) {
        return Err(malformed(format!(
            "frames of {frame}, {step} apart, in a signal of {length}"
        )));
    }
    let frames = (length - frame) / step + 1;
    c.reserve(&[x.shape()[0].max(1), frames, frame, 2], DType::F64)?;
    let index = c.collect((0..frames * frame).map(|i| (i / frame * step + i % frame) as i64))?;
    let cut = x.index_select(1, &c.make(index, &[frames * frame])?)?;
    let mut cut = cut.reshape([x.shape()[0], frames, frame, x.shape()[2]])?;
    if let Some(window) = window {
        cut = (cut * window.reshape([1, 1, frame, 1])?)?;
    }
    let onesided = c.flag("onesided", true)?;
    one(Transform {
        length: frame,
        inverse: false,
        onesided,
    }
    .apply(c, &cut)?)
}

fn mel_weights(c: &Call<'_>) -> Results {
    let (bins, length) = (size(c.int_scalar(0)?)?, size(c.int_scalar(1)?)?);
    let rate = c.scalar(2)?.to_f64();
    let mel = |hertz: f64| 2595.0 * (hertz / 700.0).ln_1p() / 10f64.ln();
    let (low, high) = (mel(c.scalar(3)?.to_f64()), mel(c.scalar(4)?.to_f64()));
    let rows = length / 2 + 1;
    c.reserve(&[rows, bins.saturating_add(2)], DType::F64)?;
    let step = (high - low) / (bins + 2) as f64;
    let mut edges = c.list(bins.saturating_add(2))?;
    for i in 0..bins + 2 {
        let hertz = 700.0 * ((i as f64 * step + low) / 2595.0 * 10f64.ln()).exp_m1();
        let edge = ((length + 1) as f64 * hertz / rate).floor();
        if !(0.0..rows as f64).contains(&edge) {
            return Err(Error::out_of_range(format!(
                "{hertz} Hz is no frequency of a spectrum of {rows} at {rate} Hz"
            )));
        }
        edges.push(edge as usize);
    }
    let mut weights = c.collect((0..rows * bins).map(|_| 0f64))?;
    for i in 0..bins {
        let [left, center, right] = [edges[i], edges[i + 1], edges[i + 2]];
        if left == center {
            weights[center * bins + i] = 1.0;
        }
        for j in left..=center {
            if center > left {
                weights[j * bins + i] = (j - left) as f64 / (center - left) as f64;
            }
        }
        for j in center..right {
            weights[j * bins + i] = (right - j) as f64 / (right - center) as f64;
        }
    }
    let element = c.element_attribute("output_datatype")?.unwrap_or(ElementType::F32);
    let host = HostTensor::new(Shape::new(&[rows, bins])?, weights)?;
    Ok(smallvec![host.try_cast(element.dtype()?)?.into()])
}
