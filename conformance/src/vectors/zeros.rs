//! Checks whether the suite detects zeros in place of correct numbers.

use std::collections::BTreeMap;
use std::fmt;

use polygrad_core::{DType, Error, Result};

use super::{built_in, check};
use crate::case::Status;

/// The suite's verdicts on zeros in place of PyTorch's recorded results, in one dtype.
#[derive(Clone, Debug)]
pub struct Blind {
    /// The dtype.
    pub dtype: DType,
    /// The number of recorded outputs and gradients that are not all 0 in the dtype.
    pub recorded: usize,
    /// The number of those for which zeros are wrong.
    pub fail: usize,
    /// Those that the dtype cannot represent, proven by PyTorch's own result or a rounded run: key and reason.
    pub not_carried: BTreeMap<String, String>,
    /// The keys of those for which zeros pass: the suite is blind there.
    pub pass: Vec<String>,
}

/// The suite's verdicts on zeros, in each float dtype, in place of each tensor recorded in the built-in sets.
///
/// # Errors
/// If the built-in sets are malformed.
pub fn blind() -> Result<Vec<Blind>> {
    let sets = built_in()?;
    let dtypes = DType::ALL.into_iter().filter(|dtype| dtype.is_float());
    let of_dtype = |dtype| {
        let mut blind = Blind {
            dtype,
            recorded: 0,
            fail: 0,
            not_carried: BTreeMap::new(),
            pass: Vec::new(),
        };
        for set in &sets {
            for case in &set.cases {
                for (key, status) in check::zeros(set, case, dtype).map_err(Error::invalid)? {
                    blind.add(key, status);
                }
            }
        }
        Ok(blind)
    };
    // Each dtype on its own thread.
    std::thread::scope(|scope| {
        let threads: Vec<_> = dtypes.map(|dtype| scope.spawn(move || of_dtype(dtype))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Blind>>| match thread.join() {
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    })
}

impl Blind {
    fn add(&mut self, key: String, status: Status) {
        self.recorded += 1;
        match status {
            Status::Pass => self.pass.push(key),
            Status::Fail(_) => self.fail += 1,
            Status::Unsupported(why) => drop(self.not_carried.insert(key, why)),
        }
    }
}

/// A row of the table in `docs/conformance.md`.
impl fmt::Display for Blind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (not_carried, pass) = (self.not_carried.len(), self.pass.len());
        write!(
            f,
            "| {} | {} | {} | {not_carried} | {pass} |",
            self.dtype, self.recorded, self.fail
        )
    }
}
