//! The `polygrad` command with the built-in backends.

use std::process::ExitCode;

#[cfg(feature = "serve")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    polygrad_cli::main()
}
