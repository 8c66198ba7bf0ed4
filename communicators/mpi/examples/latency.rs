//! Measures the latency of all_reduce: `mpirun -n 2 target/release/examples/latency`.

use std::time::Instant;

use polygrad_core::communicator::{Communicator, DEFAULT_TIMEOUT, HostSliceMut, Reduction};
use polygrad_mpi::Mpi;

fn main() -> polygrad_core::Result<()> {
    let comm = Mpi::init(DEFAULT_TIMEOUT)?;
    for (len, turns) in [(1, 5000), (1000, 5000), (750_000, 300), (6_250_000, 40)] {
        let mut values = vec![0f32; len];
        let mut times: Vec<f64> = Vec::new();
        for _ in 0..turns {
            comm.barrier()?;
            let begun = Instant::now();
            comm.all_reduce(HostSliceMut::new(&mut values), Reduction::Sum)?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        if comm.rank() == 0 {
            let (name, size) = (comm.name(), comm.size());
            let (median, best) = (times[turns / 2], times[0]);
            println!("{name}, {size} ranks, {len} f32: median {median:.1} us, best {best:.1} us");
        }
    }
    Ok(())
}
