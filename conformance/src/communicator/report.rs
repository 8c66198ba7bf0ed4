//! The results of the suite on one rank.

use std::fmt;

/// One case on one rank.
#[derive(Clone, Debug)]
pub struct Record {
    /// The name of the check, as in `all_reduce f32 sum`.
    pub name: String,
    /// The violations found.
    pub failures: Vec<String>,
}

/// The results of the suite on one rank.
#[derive(Clone, Debug)]
pub struct Report {
    /// The engine's name.
    pub engine: String,
    /// This rank.
    pub rank: usize,
    /// The number of ranks.
    pub size: usize,
    /// The cases that were run, in their order.
    pub records: Vec<Record>,
}

impl Report {
    /// Whether every case was run and passed.
    pub fn passed(&self) -> bool {
        self.records.iter().all(|record| record.failures.is_empty())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.records.iter().filter(|record| !record.failures.is_empty());
        let count = self.records.len();
        write!(
            f,
            "{}, rank {} of {}: {count} cases, {} failed",
            self.engine,
            self.rank,
            self.size,
            failed.clone().count()
        )?;
        for record in failed {
            for failure in &record.failures {
                write!(f, "\n  {}: {failure}", record.name)?;
            }
        }
        Ok(())
    }
}
