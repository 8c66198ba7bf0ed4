//! The `polygrad` command with the toy backend in place of Polygrad's own.

use std::process::ExitCode;

use polygrad::backend::Registry;

fn main() -> ExitCode {
    if let Err(error) = Registry::global().register(polygrad_toy::entry()) {
        eprintln!("error: {error}");
        return ExitCode::FAILURE;
    }
    polygrad_cli::main()
}
