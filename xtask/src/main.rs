//! Set-up and the long test runs: `cargo xtask test`, `cargo xtask setup torch`, `cargo xtask setup nvrtc`, `cargo xtask ulp`, `cargo xtask cross`.

mod blas;
mod cargo;
mod cross;
mod nvrtc;
mod packages;
mod tests;
mod torch;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask test | setup torch | setup nvrtc | ulp | cross

test         everything: the default members, the other engines, and what needs more than a Rust toolchain. What cannot be set up
             here is skipped by name and counted; with CI=true it is a failure.
setup torch  a LibTorch without CUDA for the feature `torch`, in the cache folder (~/.cache/polygrad), unless LIBTORCH or
             LIBTORCH_USE_PYTORCH names one; prints what to export
setup nvrtc  NVIDIA's compiler, which the tests of the CUDA driver compile its kernels with on a machine without a GPU, in the cache
             folder; prints what to export
ulp          the vector maths of the CPU backend over all 2^32 values of f32 (minutes)
cross        weights go from Polygrad to PyTorch and back; needs a Python with torch, torchvision and transformers, named by the
             environment variable PYTHON (python3 without it)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["test"] => tests::run(),
        ["setup", "torch"] => torch::command(),
        ["setup", "nvrtc"] => nvrtc::command(),
        ["ulp"] => ulp(),
        ["cross"] => cross::run(),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn ulp() -> Result<(), String> {
    let line = "test --release -p polygrad-cpu --lib -- --ignored --nocapture every_number";
    cargo::run(&line.split(' ').collect::<Vec<_>>(), &[])
}
