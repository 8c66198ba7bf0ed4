//! The cost of one op on a small tensor: `cargo bench --bench dispatch`.
//!
//! One thread, `add` of two f32[64], the fastest of many short runs, so that other load on the machine matters as
//! little as possible. The last part shows that dropped graphs leave nothing behind.

use std::hint::black_box;
use std::time::Instant;

use polygrad::cpu::{Cpu, CpuDevice, Kernels};
use polygrad::{Backend, Device, Result, Tensor};

const RUNS: usize = 200;
const OPS: usize = 1_000;

/// Nanoseconds per call: the fastest run, and the median run.
fn measure(mut f: impl FnMut() -> Result<()>) -> Result<(f64, f64)> {
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let start = Instant::now();
        for _ in 0..OPS {
            f()?;
        }
        times.push(start.elapsed().as_nanos() as f64 / OPS as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[0], times[RUNS / 2]))
}

fn report(name: &str, (fastest, median): (f64, f64)) {
    println!("{name:<44} {fastest:>8.1} ns  (median {median:>8.1} ns)");
}

fn dispatch<B: Backend>(name: &str, device: &Device<B>) -> Result<()> {
    let a = Tensor::rand([64], device)?;
    let b = Tensor::rand([64], device)?;
    let leaf = a.clone().requires_grad()?;
    report(
        &format!("{name}: add f32[64]"),
        measure(|| a.add(&b).map(|y| drop(black_box(y))))?,
    );
    report(
        &format!("{name}: reshape f32[64] to [8, 8], a view"),
        measure(|| a.reshape([8, 8]).map(|y| drop(black_box(y))))?,
    );
    report(
        &format!("{name}: add f32[64], tracked"),
        measure(|| leaf.add(&b).map(|y| drop(black_box(y))))?,
    );
    report(
        &format!("{name}: add f32[64], tracked, and backward"),
        measure(|| {
            let y = leaf.add(&b)?;
            let options = polygrad::autograd::BackwardOptions::default().gradient(&b);
            black_box(y.backward_with(&options)?);
            Ok(())
        })?,
    );
    report(
        &format!("{name}: add, sum, backward"),
        measure(|| {
            black_box(leaf.add(&b)?.sum_all()?.backward()?);
            Ok(())
        })?,
    );
    Ok(())
}

/// The time of one backward pass of a chain, before and after 10,000 unrelated forward passes whose
/// graphs were dropped.
fn dropped_graphs(device: &Device<Cpu>) -> Result<()> {
    let x = Tensor::rand([64], device)?.requires_grad()?;
    let mut y = x.clone();
    for _ in 0..1_000 {
        y = y.add(&x)?;
    }
    let y = y.sum_all()?;
    let backward = || {
        let mut times: Vec<f64> = Vec::new();
        for _ in 0..RUNS {
            let start = Instant::now();
            black_box(y.backward()?);
            times.push(start.elapsed().as_nanos() as f64 / 1e3);
        }
        times.sort_by(f64::total_cmp);
        Ok::<_, polygrad::Error>(times[0])
    };
    backward()?;
    let before = backward()?;
    let other = Tensor::rand([64], device)?.requires_grad()?;
    for _ in 0..10_000 {
        black_box(other.exp()?.mul(&other)?.sum_all()?);
    }
    let after = backward()?;
    println!(
        "backward of 1,000 adds: {before:.1} µs; after 10,000 dropped graphs: {after:.1} µs ({:+.1} %)",
        100.0 * (after / before - 1.0)
    );
    Ok(())
}

fn main() -> Result<()> {
    let cpu = Device::<Cpu>::from_inner(CpuDevice::new(1, Kernels::Simd)?);
    dispatch("Cpu", &cpu)?;
    dispatch("AnyBackend", &cpu.clone().into_any())?;
    dropped_graphs(&cpu)
}
