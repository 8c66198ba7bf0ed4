//! `graphs`: the cost of launching a kernel, one by one and recorded as a CUDA graph.

/// The number of kernel launches per run.
#[cfg(feature = "cuda")]
const KERNELS: usize = 1000;

/// Prints the times.
///
/// # Errors
/// If there is no device, or a result is wrong.
#[cfg(feature = "cuda")]
pub(crate) fn command() -> Result<(), String> {
    use std::time::Instant;

    use polygrad_core::compute::{Binary, ComputeBackend};
    use polygrad_core::{BinaryOp, DType};

    let run = || -> polygrad_core::Result<(f32, f64, f64)> {
        let driver = polygrad_cuda::CudaDriver::open(&"cuda".parse()?)?;
        driver.init()?;
        let (x, one) = (driver.alloc(4096)?, driver.alloc(4096)?);
        driver.copy_htod(x, &[0; 4096])?;
        driver.copy_htod(one, &1f32.to_ne_bytes().repeat(1024))?;
        let kernels = || {
            (0..KERNELS).try_for_each(|_| {
                driver.binary(&Binary {
                    op: BinaryOp::Add,
                    dtype: DType::F32,
                    len: 1024,
                    a: x,
                    b: one,
                    output: x,
                })
            })
        };
        let timed = |run: &dyn Fn() -> polygrad_core::Result<()>| -> polygrad_core::Result<f64> {
            let mut best = f64::INFINITY;
            for _ in 0..20 {
                let start = Instant::now();
                run()?;
                driver.synchronize()?;
                best = best.min(start.elapsed().as_secs_f64() * 1e6 / KERNELS as f64);
            }
            Ok(best)
        };
        // Compiles the kernel, since compilation cannot be recorded.
        kernels()?;
        driver.synchronize()?;
        let alone = timed(&kernels)?;
        let graph = driver.record(&mut || kernels())?;
        let recorded = timed(&|| driver.replay(&graph))?;
        let mut first = [0; 4];
        driver.copy_dtoh(&mut first, x)?;
        driver.free(x)?;
        driver.free(one)?;
        Ok((f32::from_ne_bytes(first), alone, recorded))
    };
    let (sum, alone, recorded) = run().map_err(|error| error.to_string())?;
    println!("microseconds per kernel, least of 20 runs of {KERNELS}: one by one {alone:.2}, as a graph {recorded:.2}");
    // One run to compile, and 20 runs each way.
    let right = (41 * KERNELS) as f32;
    if sum == right {
        return Ok(());
    }
    Err(format!("{KERNELS} additions of 1, 41 times, give {sum}, not {right}"))
}

/// The same without CUDA.
///
/// # Errors
/// Always.
#[cfg(not(feature = "cuda"))]
pub(crate) fn command() -> Result<(), String> {
    Err("this program was built without the feature cuda".to_owned())
}
