//! Set-up, the long test runs and the benchmarks: `cargo xtask test`, `cargo xtask environment`,
//! `cargo xtask setup torch`, `cargo xtask setup nvrtc`, `cargo xtask setup onnxruntime`, `cargo xtask setup mpi`,
//! `cargo xtask setup gymnasium`, `cargo xtask setup pytorch`, `cargo xtask setup peers`, `cargo xtask setup judges`,
//! `cargo xtask bench`, `cargo xtask instructions`, `cargo xtask budget`, `cargo xtask ulp`, `cargo xtask cross`,
//! `cargo xtask onnx-judges`, `cargo xtask gpu-bundle`, `cargo xtask check-apple`, `cargo xtask check-wasm`,
//! `cargo xtask book`, `cargo xtask every-backend`, `cargo xtask wheel`.

mod bench;
mod blas;
mod book;
mod budget;
mod cache;
mod cargo;
mod chromium;
mod cross;
mod debian;
mod every_backend;
mod gpu_bundle;
mod green;
mod gymnasium;
mod instructions;
#[cfg(test)]
mod modules;
mod mpi;
mod nvrtc;
mod onnx_judges;
mod onnxruntime;
mod packages;
mod pytorch;
mod serve_judges;
mod table;
mod targets;
mod tests;
mod torch;
mod vulkan;
mod wheel;
#[cfg(test)]
mod width;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask test | environment | setup torch | setup nvrtc | setup onnxruntime | setup mpi | setup gymnasium | setup pytorch | setup peers | setup judges | bench | instructions | budget | ulp | cross | onnx-judges | gpu-bundle | check-apple | check-wasm | book | every-backend | wheel

test         everything in one build: the default members, the other engines, and what needs more than a Rust toolchain. What cannot
             be set up here is skipped by name and counted; with CI=true it is a failure. Engines whose suites passed with the inputs that
             they have now (xtask/green.txt) are left out, by name and counted, but with --all; --record tests all and writes that file
environment  prints for a shell what `test` would set: variables, features and members left out; with --all, of all parts
setup torch  a LibTorch without CUDA for the feature `torch`, in the cache folder (~/.cache/polygrad), unless LIBTORCH or
             LIBTORCH_USE_PYTORCH names one; prints what to export
setup nvrtc  NVIDIA's compiler, which the tests of the CUDA driver compile its kernels with on a machine without a GPU, in the cache
             folder; prints what to export
setup onnxruntime
             the library of ONNX Runtime, which the engine `ort` loads at run time, in the cache folder, unless ORT_DYLIB_PATH names
             one; prints what to export
setup mpi    Open MPI 5 and MPICH 5, which `polygrad-mpi` is tested under besides Debian's Open MPI 4, in the cache folder; prints what to
             export
setup gymnasium
             a Python with Gymnasium, in which environments of the tests step, in the cache folder, unless POLYGRAD_PYTHON names one; prints
             what to export
setup pytorch
             Python packages for `onnx-judges` (PyTorch for the CPU, ONNX, ONNX Runtime and what they need) for Python 3.11, in the cache
             folder, unless PYTHON names a Python; prints what to export
setup peers  whom `polygrad bench --against` is timed against, in the cache folder: torch, torch-compile, jax, candle, burn, tch
             and floor, or those that are named
setup judges who judges an inference server (scripts/serve), in the cache folder: clients of the Open Inference Protocol, schemathesis, Triton,
             MLServer, FastAPI, a program that sends load, and promtool; prints what to export
bench        sets the peers up, times everything beside all of them on one and on two threads (an hour), and writes docs/benchmarks.md;
             with names, such as `bench mlp-rl build`, only these workloads, and the page goes to target/benchmarks.md; --against PEERS
             for these alone, --seconds S for each case
instructions counts the instructions of a step of small cases with valgrind, one thread, on AVX2, and fails where there are more than 3 %
             more than benches/workloads/instructions.txt says; with --record, writes that file
budget       counts the lines of LLVM's code, before optimization, of each crate of the default command, and fails where there are more than
             3 % more than benches/workloads/budget.txt says; with --record, writes that file
ulp          the vector maths of the CPU backend over all 2^32 values of f32 (minutes)
cross        weights go from Polygrad to PyTorch and back; needs a Python with torch, torchvision and transformers, named by the
             environment variable PYTHON (python3 without it)
onnx-judges  our ONNX files before onnx.checker, ONNX Runtime, RTen and tract, PyTorch's before polygrad-onnx and the same engines, and state
             dicts both ways between PyTorch and Polygrad; uses the Python of `setup pytorch`, and builds tract once (about 5 minutes)
gpu-bundle   target/gpu-bundle: what proves Polygrad on a machine with a graphics card, without a network or a toolchain (docs/gpu.md); with
             --try, runs it in chroots of Debian and Ubuntu too, which needs debootstrap and root
check-apple  type-checks everything but the engines of others for aarch64-apple-darwin
check-wasm   builds for wasm32-unknown-unknown and trains an MLP under Node; both take rustup's target where it was added, else Debian's
             compiler, fetched once into the cache folder
book         target/book/html: the book of docs/, by mdBook, which is installed once into the cache folder from crates.io
every-backend
             docs/every-backend.png: the losses of examples/every_backend.rs on every engine that can be built here
wheel        the Python package: builds target/wheels, and tests the wheel in a new environment; what that needs is fetched from PyPI once";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["test"] => tests::run(false, false),
        ["test", "--all"] => tests::run(true, false),
        ["test", "--record"] => tests::run(true, true),
        ["environment"] => tests::environment(false),
        ["environment", "--all"] => tests::environment(true),
        ["setup", "torch"] => torch::command(),
        ["setup", "nvrtc"] => nvrtc::command(),
        ["setup", "onnxruntime"] => onnxruntime::command(),
        ["setup", "mpi"] => mpi::command(),
        ["setup", "gymnasium"] => gymnasium::command(),
        ["setup", "pytorch"] => pytorch::command(),
        ["setup", "judges"] => serve_judges::command(),
        ["setup", "peers", names @ ..] => bench::setup(names).map(drop),
        ["bench", arguments @ ..] => bench::run(arguments),
        ["instructions"] => instructions::run(false),
        ["instructions", "--record"] => instructions::run(true),
        ["budget"] => budget::run(false),
        ["budget", "--record"] => budget::run(true),
        ["ulp"] => ulp(),
        ["gpu-bundle", arguments @ ..] => gpu_bundle::run(arguments),
        ["cross"] => cross::run(),
        ["onnx-judges"] => onnx_judges::run(),
        ["check-apple"] => targets::check_apple(),
        ["check-wasm"] => targets::check_wasm(),
        ["book"] => book::run(),
        ["every-backend"] => every_backend::run(),
        ["wheel"] => wheel::run(),
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
    let line = "test --release -p polygrad-cpu-kernels --lib -- --ignored --nocapture every_number";
    cargo::run(&line.split(' ').collect::<Vec<_>>(), &[])
}
