//! The `polygrad` command as a function: trains, evaluates and uses models, and lists and checks the backends.
//!
//! A program with a backend of its own registers it and is the same command, with one backend more:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use polygrad::backend::{BackendEntry, Registry};
//!
//! fn main() -> ExitCode {
//!     let mine = BackendEntry::absent("mine", "a backend of my own", "it is not written yet");
//!     if let Err(error) = Registry::global().register(mine) {
//!         eprintln!("error: {error}");
//!         return ExitCode::FAILURE;
//!     }
//!     polygrad_cli::main()
//! }
//! ```
//!
//! The cargo feature `cpu`, on by default, is Polygrad's own CPU backend.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod absent;
mod args;
mod chargpt;
mod command;
#[cfg(feature = "formats")]
mod convert;
#[cfg(feature = "tui")]
mod dashboard;
#[cfg(not(feature = "tui"))]
#[path = "no_dashboard.rs"]
mod dashboard;
mod data;
mod devices;
mod evaluation;
#[cfg(feature = "text")]
mod finetune;
mod images;
mod kind;
#[cfg(feature = "lab")]
mod lab;
#[cfg(feature = "onnx")]
mod onnx;
#[cfg(feature = "rl")]
mod rl;
mod run;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "sweep")]
mod sweep;
mod table;
mod task;
mod train;
mod trained;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use polygrad_console::{backend, failure, outcome, progress, team};

use args::{Eval, Predict};
use chargpt::generate::Generate;
use command::{Cli, Command};
use failure::Result;
use kind::Kind;
use outcome::{Outcome, end};

/// Runs the command of this process's arguments with the backends in
/// [`Registry::global`](polygrad::backend::Registry::global), and writes to standard output and standard error:
/// `train`, `eval`, `predict`, `generate` or `devices`; with the feature `onnx` `run`, `show`, `export` or `quantize`,
/// with `rl` `play` or `list`, with `sweep` `sweep`, with `formats` `convert`, with `text` `finetune` or `merge`, with
/// `serve` `serve`, with `lab` `check`, `bench`, `profile`, `plan` or `returns`.
///
/// If cargo runs it, a command that is not in the build is built and run.
///
/// The exit status is 0 after success, 1 after an error, 2 for an invalid command line, 130 after Ctrl-C, 143 after
/// SIGTERM and 129 after SIGHUP. Failing to write to standard output is an error, unless its reader has closed it.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some((command, feature)) = absent::needed(&words) {
        return end(Err(absent::instead(&format!("`polygrad {command}`"), feature)));
    }
    let parsed = negatives(Cli::command()).try_get_matches();
    let command = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli.command,
        Err(error) => return refused(&error),
    };
    if words.first().is_none_or(|command| command != "serve") {
        // If no thread can be created for this, half-written files are removed the next time the folder is written to;
        // training tries again.
        let _ = polygrad::train::end_on_signals(|| ());
    }
    end(match command {
        Command::Train(line) => match train::command(&line) {
            Err(train::Refused::Line(error)) => return refused(&error),
            Err(train::Refused::Failed(failure)) => Err(failure),
            Ok(outcome) => Ok(outcome),
        },
        #[cfg(feature = "text")]
        Command::Finetune(line) => match train::command(&line.after(Kind::Finetune.name())) {
            Err(train::Refused::Line(error)) => return refused(&error),
            Err(train::Refused::Failed(failure)) => Err(failure),
            Ok(outcome) => Ok(outcome),
        },
        #[cfg(feature = "text")]
        Command::Merge(args) => finetune::merge::command(&args),
        #[cfg(feature = "sweep")]
        Command::Sweep(args) => sweep::command(&args),
        Command::Eval(args) => eval(&args),
        #[cfg(feature = "rl")]
        Command::Play(args) => rl::play::command(&args),
        Command::Predict(args) => predict(&args),
        Command::Generate(args) => generate(&args),
        #[cfg(feature = "onnx")]
        Command::Run(args) => onnx::run::command(&args),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(&args),
        #[cfg(feature = "onnx")]
        Command::Show(args) => onnx::show::command(&args),
        #[cfg(feature = "onnx")]
        Command::Export(args) => onnx::export::command(&args),
        #[cfg(feature = "onnx")]
        Command::Quantize(args) => onnx::quantize::command(&args),
        #[cfg(feature = "formats")]
        Command::Convert(args) => convert::command(&args),
        #[cfg(feature = "lab")]
        Command::Lab(command) => lab::run(&command),
        #[cfg(feature = "rl")]
        Command::List => rl::list::command(),
        Command::Devices(args) => devices::command(&args),
    })
}

/// The model of a run folder left by `train`, as a graph for [`OnnxModel`](polygrad_onnx::OnnxModel). The first extent
/// of its inputs is `batch`.
///
/// # Errors
/// No run, or one of a kind that cannot be exported; files that are damaged or do not fit together.
#[cfg(feature = "onnx")]
pub fn run_graph(folder: &std::path::Path) -> polygrad::Result<polygrad_onnx::graph::Graph> {
    Ok(onnx::export::recorded(folder)?)
}

/// Writes the whole model of a run of `finetune`: to a new folder, as the Hub has it, or the weights alone to a file
/// that ends in `.safetensors`, or all to one that ends in `.gguf` if the base is such a file.
///
/// # Errors
/// No such run, or one that is damaged; a base that has changed; a path that exists or cannot be written.
#[cfg(feature = "text")]
pub fn merge(run: &std::path::Path, out: &std::path::Path) -> polygrad::Result<()> {
    finetune::merge::merge(run, out, None)?;
    Ok(())
}

/// Lets options take negative numbers, so that `--lr -1` gets an error about the rate and not about an option `-1`.
fn negatives(command: clap::Command) -> clap::Command {
    let takes_value = |option: &clap::Arg| option.get_action().takes_values() && !option.is_positional();
    command
        .mut_args(|option| match takes_value(&option) {
            true => option.allow_negative_numbers(true),
            false => option,
        })
        .mut_subcommands(negatives)
}

/// Prints what is wrong with a command line, or the help that it requests.
fn refused(error: &clap::Error) -> ExitCode {
    let status = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1));
    if error.use_stderr() {
        // The message repeats arguments, which may be names of foreign files.
        progress::note(error.render().to_string().trim_end());
        return status;
    }
    progress::keep(error.print().and_then(|()| std::io::stdout().flush()));
    end(Ok(Outcome::Done))
}

fn eval(args: &Eval) -> Result<Outcome> {
    if args.run.is_file() {
        return onnx::eval(args);
    }
    let kind = run::kind(&args.run)?;
    kind.must_evaluate(args)?;
    match kind {
        Kind::Images => images::eval::command(args),
        Kind::Table => table::eval::command(args),
        #[cfg(feature = "rl")]
        Kind::Rl => rl::eval::command(args),
        #[cfg(feature = "text")]
        Kind::Finetune => finetune::eval::command(args),
        kind => Err(kind.unfit(&args.run, &[Kind::Images, Kind::Table, Kind::Rl, Kind::Finetune])),
    }
}

/// Replaces the functions for ONNX files in a build without them.
#[cfg(not(feature = "onnx"))]
mod onnx {
    use crate::absent;
    use crate::args::{Eval, Predict};
    use crate::failure::{Result, Shown as _};
    use crate::outcome::Outcome;

    pub(crate) fn eval(args: &Eval) -> Result<Outcome> {
        Err(absent::instead(&format!("support for {}", args.run.shown()), "onnx"))
    }

    pub(crate) fn predict(args: &Predict) -> Result<Outcome> {
        Err(absent::instead(&format!("support for {}", args.run.shown()), "onnx"))
    }
}

fn generate(args: &Generate) -> Result<Outcome> {
    if !run::is_of_others(&args.run) && run::kind(&args.run)? != Kind::Finetune {
        return chargpt::generate::command(args);
    }
    #[cfg(feature = "text")]
    return finetune::generate::command(args);
    #[cfg(not(feature = "text"))]
    Err(absent::instead("support for pretrained language models", "text"))
}

fn predict(args: &Predict) -> Result<Outcome> {
    if args.run.is_file() {
        return onnx::predict(args);
    }
    match run::kind(&args.run)? {
        Kind::Images => images::predict::command(args),
        Kind::Table => table::predict::command(args),
        kind => Err(kind.unfit(&args.run, &[Kind::Images, Kind::Table])),
    }
}
