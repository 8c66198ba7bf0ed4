//! Times an all-reduce over Gloo between two processes of this machine; scripts/compare_gloo.py times PyTorch's own.

use std::env;
use std::net::TcpListener;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use polygrad_core::communicator::{Communicator, HostSliceMut, Reduction};
use polygrad_core::{Error, Result};
use polygrad_torch::gloo::Gloo;

/// Numbers of f32, and of repetitions.
const SIZES: [(usize, usize); 2] = [(1, 5000), (750_000, 500)];

fn main() -> ExitCode {
    let done = match env::var_os("RANK") {
        Some(_) => rank(),
        None => start().map_err(|e| Error::invalid(e.to_string())),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts both ranks.
fn start() -> std::io::Result<()> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let program = env::current_exe()?;
    let ranks: Vec<_> = ["0", "1"]
        .iter()
        .map(|rank| {
            let variables = [
                ("RANK", *rank),
                ("WORLD_SIZE", "2"),
                ("MASTER_ADDR", "127.0.0.1"),
                ("MASTER_PORT", &port),
            ];
            Command::new(&program).envs(variables).spawn()
        })
        .collect::<std::io::Result<_>>()?;
    for mut rank in ranks {
        rank.wait()?;
    }
    Ok(())
}

fn rank() -> Result<()> {
    let group = Gloo::from_env(Duration::from_secs(60))?;
    for (len, times) in SIZES {
        let mut values = vec![1f32; len];
        let mut reduce = || -> Result<f64> {
            // Resets the values, since each sum doubles them.
            values.fill(1.0);
            let begun = Instant::now();
            group.all_reduce(HostSliceMut::new(&mut values), Reduction::Sum)?;
            Ok(begun.elapsed().as_secs_f64() * 1e6)
        };
        for _ in 0..times / 10 {
            reduce()?;
        }
        group.barrier()?;
        let mut took = (0..times).map(|_| reduce()).collect::<Result<Vec<_>>>()?;
        took.sort_by(f64::total_cmp);
        if group.rank() == 0 {
            let (least, median) = (took[0], took[times / 2]);
            println!(
                "{} {len:>7} f32: median {median:8.1} us, least {least:8.1} us",
                group.name()
            );
        }
    }
    Ok(())
}
