//! In place of the server, in a build without the feature `serve`.

pub(crate) use crate::absent::Words as Serve;
use crate::failure::Result;
use crate::outcome::Outcome;

/// # Errors
/// Always.
pub(crate) fn run(args: &Serve) -> Result<Outcome> {
    Err(args.refused("serve", "serve"))
}
