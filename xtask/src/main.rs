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

const USAGE: &str = "usage: cargo xtask test | environment | setup torch | setup nvrtc | setup onnxruntime | setup
             mpi | setup gymnasium | setup pytorch | setup peers | setup judges | bench | instructions | budget | ulp
             | cross | onnx-judges | gpu-bundle | check-apple | check-wasm | book | every-backend | wheel

test         tests everything in one build: the default members, the other engines, and the parts that need more
             than a Rust toolchain. Parts that cannot be set up here are skipped, listed and counted; with CI=true
             they are failures. Engines whose inputs have not changed since their suites passed (xtask/green.txt)
             are left out, listed and counted, unless --all is given; --record tests all of them and writes that
             file
environment  prints, for a shell, what `test` would set: variables, features and members that are left out; with
             --all, of all parts
setup torch  downloads LibTorch without CUDA, for the feature `torch`, to the cache folder (~/.cache/polygrad),
             unless LIBTORCH or LIBTORCH_USE_PYTORCH is set; prints what to export
setup nvrtc  downloads NVIDIA's compiler, with which the tests of the CUDA driver compile its kernels on a machine
             without a GPU, to the cache folder; prints what to export
setup onnxruntime
             downloads the ONNX Runtime library, which the engine `ort` loads at run time, to the cache folder,
             unless ORT_DYLIB_PATH is set; prints what to export
setup mpi    sets up Open MPI 5 and MPICH 5, with which `polygrad-mpi` is tested besides Debian's Open MPI 4, in the
             cache folder; prints what to export
setup gymnasium
             sets up a Python with Gymnasium, for the environments of the tests, in the cache folder, unless
             POLYGRAD_PYTHON is set; prints what to export
setup pytorch
             sets up Python packages for `onnx-judges` (PyTorch for the CPU, ONNX, ONNX Runtime and their
             dependencies) for Python 3.11 in the cache folder, unless PYTHON is set; prints what to export
setup peers  sets up the peers of `polygrad bench --against` in the cache folder: torch, torch-compile, jax, candle,
             burn, tch and floor, or only those named
setup judges sets up the judges of the inference server (scripts/serve) in the cache folder: clients of the Open
             Inference Protocol, schemathesis, Triton, MLServer, FastAPI, a load generator, and promtool; prints
             what to export
bench        sets up the peers, times everything against all of them on one and on two threads (an hour), and writes
             docs/benchmarks.md; with names, such as `bench mlp-rl build`, times only these workloads and writes
             target/benchmarks.md; --against PEERS selects peers, --seconds S sets the time per case
instructions counts the instructions of a step of small cases with valgrind, on one thread with AVX2, and fails if
             there are over 3 % more than in benches/workloads/instructions.txt; with --record, writes that file
budget       counts the lines of LLVM IR, before optimization, of each crate of the default command, and fails if
             there are over 3 % more than in benches/workloads/budget.txt; with --record, writes that file
ulp          tests the vector maths of the CPU backend on all 2^32 values of f32 (minutes)
cross        exchanges weights between Polygrad and PyTorch, both ways; needs a Python with torch, torchvision and
             transformers, named by the environment variable PYTHON (default: python3)
onnx-judges  tests our ONNX files with onnx.checker, ONNX Runtime, RTen and tract, PyTorch's files with
             polygrad-onnx and the same engines, and state dicts both ways between PyTorch and Polygrad; uses the
             Python of `setup pytorch`, and builds tract once (about 5 minutes)
gpu-bundle   writes target/gpu-bundle, which tests Polygrad on a machine with a graphics card, without a network or
             a toolchain (docs/gpu.md); with --try, also runs it in chroots of Debian and Ubuntu, which needs
             debootstrap and root
check-apple  type-checks everything except third-party engines for aarch64-apple-darwin
check-wasm   builds for wasm32-unknown-unknown and trains an MLP under Node; both checks use rustup's target if it
             is installed, else Debian's compiler, downloaded once to the cache folder
book         builds the book of docs/ in target/book/html with mdBook, which is installed once from crates.io to the
             cache folder
every-backend
             writes docs/every-backend.png: the losses of examples/every_backend.rs on every engine that can be
             built here
wheel        builds the Python package in target/wheels, and tests the wheel in a new environment unless --build is
             given; downloads what that needs from PyPI once";

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
        ["wheel"] => wheel::run(false),
        ["wheel", "--build"] => wheel::run(true),
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
