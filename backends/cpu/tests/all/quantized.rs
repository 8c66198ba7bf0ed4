//! Products with weights in blocks whose input may be rounded, against the reference's products.

use crate::common::{self, cpu};
use polygrad_core::{AnyBackend, AnyDevice, Backend, BlockScheme, DType, HostTensor, Result, Shape};
use polygrad_cpu::Kernels;
use polygrad_reference::{Reference, ReferenceDevice};

fn noise(count: usize, seed: u64) -> Vec<f32> {
    (0..count).map(|i| common::noise(i, seed) as f32 / 2.0).collect()
}

/// What the input becomes: the nearest of 255 numbers for each block, times its scale.
fn rounded(x: &[f32], size: usize) -> Vec<f32> {
    let round = |block: &[f32]| {
        let most = block.iter().fold(0f32, |most, x| most.max(x.abs()));
        let number = move |x: &f32| {
            if most > 0.0 {
                (x * (127.0 / most)).round_ties_even() * (most / 127.0)
            } else {
                0.0
            }
        };
        block.iter().map(number).collect::<Vec<_>>()
    };
    x.chunks(size).flat_map(round).collect()
}

struct Given {
    scheme: BlockScheme,
    rows: usize,
    x: Vec<f32>,
    /// Bytes, scales and zero points.
    weight: [HostTensor; 3],
}

impl Given {
    fn new(bits: usize, size: usize, each: bool, rows: usize) -> Result<Self> {
        let scheme = BlockScheme::new(bits, size)?;
        let (n, blocks) = (37, 19 * 32 / size);
        let k = blocks * size;
        let bytes = noise(n * k / 8 * bits, 1)
            .iter()
            .map(|x| (x * 128.0 + 128.0) as u8)
            .collect();
        let shape = |columns: usize| Shape::from([n, columns]);
        let zeros = match each {
            true => HostTensor::new(
                shape(blocks),
                noise(n * blocks, 3).iter().map(|x| x * 4.0 + 7.0).collect::<Vec<f32>>(),
            )?,
            false => HostTensor::new(Shape::from([1]), vec![scheme.centre()])?,
        };
        Ok(Self {
            scheme,
            rows,
            x: noise(rows * k, 4),
            weight: [
                HostTensor::new::<u8>(shape(k / 8 * bits), bytes)?,
                HostTensor::new(shape(blocks), noise(n * blocks, 2))?.cast(DType::F16),
                zeros,
            ],
        })
    }

    /// `x Wᵀ` on a device.
    fn product(&self, device: &AnyDevice, x: &[f32], scheme: BlockScheme) -> Result<Vec<f64>> {
        let x = HostTensor::new(Shape::from([self.rows, x.len() / self.rows]), x.to_vec())?;
        let put = |x: &HostTensor| AnyBackend::from_host(x.clone(), device);
        let [w, scales, zeros] = [put(&self.weight[0])?, put(&self.weight[1])?, put(&self.weight[2])?];
        let y = AnyBackend::quantized_linear(&put(&x)?, &w, &scales, &zeros, scheme, false)?;
        Ok(AnyBackend::to_host(&y)?.to_f64_vec())
    }
}

#[test]
fn a_rounded_input_gives_the_products_of_what_it_becomes() -> Result<()> {
    let reference = AnyDevice::new::<Reference>(ReferenceDevice);
    for (bits, size, each, rows) in [
        (4, 32, false, 1),
        (4, 32, true, 14),
        (8, 32, false, 40),
        (8, 16, true, 3),
        (4, 64, true, 5),
    ] {
        let given = Given::new(bits, size, each, rows)?;
        let allowed = given.scheme.with_rounded_input(true);
        let wanted = given.product(&reference, &rounded(&given.x, size), given.scheme)?;
        let largest = wanted.iter().fold(0f64, |most, y| most.max(y.abs()));
        for threads in [1, 3] {
            let found = given.product(&cpu(threads, Kernels::Simd), &given.x, allowed)?;
            for (a, b) in found.iter().zip(&wanted) {
                assert!(
                    (a - b).abs() < 1e-5 * largest,
                    "{bits} bits in {size}, {threads} threads: {a} for {b}"
                );
            }
        }
        // How far that is from the input as it is, which all other devices take.
        let exact = given.product(&reference, &given.x, allowed)?;
        let off: f64 = exact.iter().zip(&wanted).map(|(a, b)| (a - b).powi(2)).sum();
        let all: f64 = exact.iter().map(|a| a * a).sum();
        assert!(
            (1e-6..1e-4).contains(&(off / all)),
            "{bits} bits in {size}: {}",
            off / all
        );
        for device in [cpu(1, Kernels::Scalar), cpu(1, Kernels::Simd)] {
            let scheme = if device == cpu(1, Kernels::Simd) {
                given.scheme
            } else {
                allowed
            };
            let found = given.product(&device, &given.x, scheme)?;
            let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-5 * largest;
            assert!(found.iter().zip(&exact).all(near), "{bits} bits in {size} on {device}");
        }
    }
    Ok(())
}
