//! The `polygrad` command with the toy backend instead of Polygrad's own, and with the star as an engine for several
//! processes.

use std::process::ExitCode;

use polygrad::backend::Registry;
use polygrad::communicator;

fn main() -> ExitCode {
    let registered = Registry::global().register(polygrad_toy::entry());
    if let Err(error) = registered.and_then(|()| communicator::register(polygrad_toy::engine())) {
        eprintln!("error: {error}");
        return ExitCode::FAILURE;
    }
    polygrad_cli::main()
}
