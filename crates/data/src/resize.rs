//! Resizing of images as by Pillow's `resize` with `BILINEAR`: each pass rounds to 8 bits, with integer weights.

/// Fractional bits of a weight.
const BITS: u32 = 22;

/// The first source position and the weights, for each new position.
struct Weights(Vec<(usize, Vec<i32>)>);

impl Weights {
    /// Weights from `old` positions to `new` ones, a triangle as wide as two of the coarser ones.
    fn new(old: usize, new: usize) -> Self {
        let scale = old as f64 / new as f64;
        let support = scale.max(1.0);
        let of = |position: usize| {
            let center = (position as f64 + 0.5) * scale;
            let begin = (center - support + 0.5).max(0.0) as usize;
            let end = ((center + support + 0.5) as usize).min(old);
            let triangle = |i| (1.0 - ((i as f64 - center + 0.5) / support).abs()).max(0.0);
            let weights: Vec<f64> = (begin..end).map(triangle).collect();
            let total: f64 = weights.iter().sum();
            let whole = |weight: &f64| (weight / total * f64::from(1 << BITS) + 0.5) as i32;
            (begin, weights.iter().map(whole).collect())
        };
        Self((0..new).map(of).collect())
    }
}

/// Rounds a weighted sum of bytes to a byte.
fn byte(sum: i32) -> u8 {
    ((sum + (1 << (BITS - 1))) >> BITS).clamp(0, 255) as u8
}

/// Resizes the rows of `pixels`, of `C` channels, to another width.
fn horizontally<const C: usize>(pixels: &[u8], from: usize, to: usize) -> Vec<u8> {
    let weights = Weights::new(from, to);
    let mut out = Vec::with_capacity(pixels.len() / from * to);
    for row in pixels.chunks_exact(from * C) {
        for (begin, weights) in &weights.0 {
            let mut sums = [0; C];
            for (weight, pixel) in weights.iter().zip(row[begin * C..].chunks_exact(C)) {
                for (sum, &value) in sums.iter_mut().zip(pixel) {
                    *sum += weight * i32::from(value);
                }
            }
            out.extend(sums.map(byte));
        }
    }
    out
}

/// Resizes `pixels` of `(height, width)`, first the width, then the height.
pub(crate) fn resize(pixels: &[u8], channels: usize, from: (usize, usize), to: (usize, usize)) -> Vec<u8> {
    let wide = match channels {
        _ if from.1 == to.1 => pixels.to_vec(),
        1 => horizontally::<1>(pixels, from.1, to.1),
        3 => horizontally::<3>(pixels, from.1, to.1),
        // Each channel is resized separately and put back in its place.
        channels => {
            let plane = |channel: usize| {
                pixels
                    .iter()
                    .skip(channel)
                    .step_by(channels)
                    .copied()
                    .collect::<Vec<u8>>()
            };
            let planes: Vec<_> = (0..channels)
                .map(|channel| horizontally::<1>(&plane(channel), from.1, to.1))
                .collect();
            (0..from.0 * to.1)
                .flat_map(|at| planes.iter().map(move |plane| plane[at]))
                .collect()
        }
    };
    if from.0 == to.0 {
        return wide;
    }
    let row = to.1 * channels;
    let mut out = Vec::with_capacity(to.0 * row);
    let mut sums = vec![0_i32; row];
    for (begin, weights) in &Weights::new(from.0, to.0).0 {
        sums.fill(0);
        for (weight, values) in weights.iter().zip(wide[begin * row..].chunks_exact(row)) {
            for (sum, &value) in sums.iter_mut().zip(values) {
                *sum += weight * i32::from(value);
            }
        }
        out.extend(sums.iter().copied().map(byte));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_channels_gives_what_each_gives_alone() {
        let pixels: Vec<u8> = (0..7 * 5 * 2).map(|i| (i * 37 % 251) as u8).collect();
        let both = resize(&pixels, 2, (7, 5), (4, 9));
        for channel in 0..2 {
            let plane: Vec<u8> = pixels[channel..].iter().step_by(2).copied().collect();
            let alone = resize(&plane, 1, (7, 5), (4, 9));
            assert!(both[channel..].iter().step_by(2).eq(&alone));
        }
    }
}
