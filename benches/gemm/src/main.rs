//! Our matrix products beside those of the crates `gemm` and `matrixmultiply`, on one thread, in turn (ours, gemm, matrixmultiply,
//! ours, …), best of 25 rounds. All three get C-contiguous f32 operands; ours also allocates its result.

use std::hint::black_box;
use std::time::Instant;

use polygrad_core::{Backend, HostTensor, Result, Shape};
use polygrad_cpu::{Cpu, CpuDevice, Kernels};

/// Rows, inner extent and columns: squares, then what layers of small models come to.
const SIZES: [[usize; 3]; 13] = [
    [64, 64, 64],
    [128, 128, 128],
    [256, 256, 256],
    [512, 512, 512],
    [1024, 1024, 1024],
    [1, 512, 512],
    [8, 64, 64],
    [17, 33, 65],
    [32, 10, 128],
    [64, 784, 128],
    [128, 784, 512],
    [512, 128, 10],
    [4096, 288, 32],
];

const ROUNDS: usize = 25;

/// Floating-point operations of one measurement, so that the clock's grain does not show.
const WORK: f64 = 1e8;

fn seconds(runs: usize, f: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..runs {
        f()?;
    }
    Ok(start.elapsed().as_secs_f64() / runs as f64)
}

fn main() -> Result<()> {
    let device = CpuDevice::new(1, Kernels::Simd)?;
    println!("GFLOP/s            ours    gemm  matrixmultiply   ours/gemm");
    for [m, k, n] in SIZES {
        let a: Vec<f32> = (0..m * k).map(|i| (i % 17) as f32 - 8.0).collect();
        let b: Vec<f32> = (0..k * n).map(|i| (i % 13) as f32 - 6.0).collect();
        let (mut c, mut d) = (vec![0f32; m * n], vec![0f32; m * n]);
        let x = Cpu::from_host(HostTensor::new(Shape::from([m, k]), a.clone())?, &device)?;
        let y = Cpu::from_host(HostTensor::new(Shape::from([k, n]), b.clone())?, &device)?;
        let (row_a, row_b) = (k as isize, n as isize);
        let mut ours = || Cpu::matmul(&x, &y).map(|product| drop(black_box(product)));
        let mut gemm = || {
            // SAFETY: `a`, `b` and `c` hold m × k, k × n and m × n numbers, row by row, and `c` overlaps neither.
            unsafe {
                gemm::gemm(
                    m,
                    n,
                    k,
                    c.as_mut_ptr(),
                    1,
                    row_b,
                    false,
                    a.as_ptr(),
                    1,
                    row_a,
                    b.as_ptr(),
                    1,
                    row_b,
                    0.0,
                    1.0,
                    false,
                    false,
                    false,
                    gemm::Parallelism::None,
                );
            }
            Ok(())
        };
        let mut multiply = || {
            // SAFETY: as above, with `d` for `c`.
            unsafe {
                matrixmultiply::sgemm(
                    m,
                    k,
                    n,
                    1.0,
                    a.as_ptr(),
                    row_a,
                    1,
                    b.as_ptr(),
                    row_b,
                    1,
                    0.0,
                    d.as_mut_ptr(),
                    row_b,
                    1,
                );
            }
            Ok(())
        };
        let flop = 2.0 * (m * n * k) as f64;
        let runs = (WORK / flop).ceil().max(1.0) as usize;
        let mut best = [f64::INFINITY; 3];
        for _ in 0..ROUNDS {
            best[0] = best[0].min(seconds(runs, &mut ours)?);
            best[1] = best[1].min(seconds(runs, &mut gemm)?);
            best[2] = best[2].min(seconds(runs, &mut multiply)?);
        }
        assert_eq!(c, d, "the peers disagree");
        assert_eq!(
            Cpu::to_host(&Cpu::matmul(&x, &y)?)?.as_slice::<f32>()?,
            c,
            "we disagree"
        );
        let [ours, gemm, multiply] = best.map(|seconds| flop / seconds / 1e9);
        println!(
            "{:16} {ours:6.1}  {gemm:6.1}  {multiply:14.1}  {:10.2}",
            format!("{m}x{k}x{n}"),
            ours / gemm
        );
    }
    Ok(())
}
