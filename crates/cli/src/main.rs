//! The `polygrad` command with the built-in backends.

use std::process::ExitCode;

fn main() -> ExitCode {
    polygrad_cli::main()
}
