//! Common parts of Polygrad's terminal programs: output, errors, exit statuses, and groups of processes.
//!
//! ```
//! use polygrad_console::failure::{Failure, Result};
//! use polygrad_console::outcome::{Outcome, end};
//!
//! fn command(steps: usize) -> Result<Outcome> {
//!     match steps {
//!         0 => Err(Failure::new("there is nothing to do").fix("give --steps, 1 or more")),
//!         _ => Ok(Outcome::Done),
//!     }
//! }
//! assert_eq!(command(0).unwrap_err().to_string(), "there is nothing to do\n  fix: give --steps, 1 or more");
//! let _status = end(command(1));
//! ```
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod arguments;
pub mod atomic;
pub mod backend;
pub mod failure;
pub mod outcome;
pub mod progress;
pub mod team;
