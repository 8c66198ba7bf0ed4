//! `load` sends requests to an inference server and prints the results as one line of JSON; `axum`, `tonic` and
//! `furnace` serve an identity model to be measured with it.

mod arguments;
mod by_hand;
mod furnace;
mod grpc;
mod http1;
mod load;
mod report;

use std::process::ExitCode;

use arguments::{Load, Serve};

const USAGE: &str = "usage: polygrad-peer-serve load --url HOST:PORT/PATH --body FILE [--header 'NAME: VALUE'] [--grpc] [--clients N]
           [--rate PER_SECOND] [--seconds S] [--warmup S] [--deadline-ms MS]
       polygrad-peer-serve axum|tonic|furnace --port PORT [--width N]

load     --clients (1) connections, each with one request at a time; with --rate, arrivals of a Poisson process on at most so many
         connections, timed from the arrival. --body is what each request carries: of HTTP/1.1, or with --grpc a message of
         protobuf. --deadline-ms says by when an answer is of use (goodput). Seconds: 5, after 1 of warm-up
axum     a route written by hand for the model identity_fp32: the binary extension, HTTP/1.1
tonic    the same over gRPC
furnace  furnace-server with a model of rows of --width (64) numbers";

type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.split_first() {
        Some((word, rest)) => run(word, rest),
        None => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn run(word: &str, rest: &[String]) -> Result<(), Error> {
    // A server and its load run on one core each.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match word {
        "load" => {
            let asked = Load::read(rest)?;
            let report = tokio::task::LocalSet::new().block_on(&runtime, load::run(asked))?;
            println!("{}", serde_json::to_string(&report)?);
            Ok(())
        }
        "axum" => runtime.block_on(by_hand::axum(Serve::read(rest)?.port)),
        "tonic" => runtime.block_on(by_hand::tonic(Serve::read(rest)?.port)),
        "furnace" => runtime.block_on(furnace::serve(Serve::read(rest)?)),
        _ => Err(USAGE.into()),
    }
}
