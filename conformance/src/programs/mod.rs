//! Random whole programs: each is run on a device in several forms, and compared with the reference in f64. See
//! `docs/conformance.md`.

mod calls;
mod check;
mod draw;
mod forms;
mod json;
mod noise;
mod print;
mod program;
mod reduce;
mod run;
mod search;
mod steps;
mod truth;

pub use calls::{Arg, CALLS, Call, Nature};
pub use check::{Failure, Live};
pub use draw::draw;
pub use forms::{Engine, Form};
pub use json::Kept;
pub use program::{Dtypes, Fill, Input, Kind, Program, Role, Step, Trainer};
pub use search::{Found, Programs, replay, search};
