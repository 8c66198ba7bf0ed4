//! The program of the bundle that `cargo xtask gpu-bundle` makes: the `polygrad` command with `cuda` and `wgpu`, and
//! tests of them on a graphics card.
//!
//! `polygrad-gpu report` runs everything and writes one report; `drivers`, `losses`, `memory`, `nccl` and `graphs` are
//! parts of it that the `polygrad` command lacks. Any other word is passed to the `polygrad` command.

mod drivers;
mod graphs;
mod libraries;
mod losses;
mod memory;
mod nccl;
mod report;
mod trainer;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["libraries", bundle, work] => libraries::command(bundle.as_ref(), work.as_ref()),
        ["report", bundle, work, minutes, parts @ ..] => {
            report::command(bundle.as_ref(), work.as_ref(), minutes, parts)
        }
        ["drivers", device] => drivers::command(device),
        ["losses", device, cases @ ..] => losses::command(device, cases),
        ["memory", peers @ ..] => memory::command(peers),
        ["graphs"] => graphs::command(),
        ["nccl"] => nccl::command(),
        _ => return polygrad_cli::main(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}
