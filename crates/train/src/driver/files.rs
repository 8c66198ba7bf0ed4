//! The files of a run.

use polygrad_core::communicator::Communicator;
use polygrad_core::{Error, ErrorKind, Result};
use polygrad_nn::Checkpoint;

use super::shared::share;
use crate::Run;
use crate::run::{Columns, Mark, Row, Rows, RunFolder, Split, SummaryWriter, shown};

/// The files that grow during a run.
pub(super) struct Files {
    rows: Rows,
    events: SummaryWriter,
    columns: Columns,
}

impl Files {
    /// The files of a new run.
    pub(super) fn create(run: &RunFolder, columns: Columns) -> Result<Self> {
        Ok(Self {
            rows: Rows::create(&run.metrics(), columns.clone(), Vec::new())?,
            events: SummaryWriter::create(run.events())?,
            columns,
        })
    }

    /// The files of a run that continues after `step` steps, and notices for the user.
    pub(super) fn resume(run: &RunFolder, columns: Columns, step: u64, mark: &Mark) -> Result<(Self, Vec<String>)> {
        let (rows, notice) = Rows::resume(&run.metrics(), columns.clone(), step, mark)?;
        let mut notices = Vec::from_iter(notice);
        if step > 0 && !run.events().exists() {
            let path = shown(&run.events());
            notices.push(format!("{path} is gone: a new one begins after step {step}"));
        }
        let events = SummaryWriter::resume(run.events(), step)?;
        Ok((Self { rows, events, columns }, notices))
    }

    pub(super) fn mark(&self) -> Result<Mark> {
        self.rows.mark()
    }

    pub(super) fn rows(&self) -> &[Row] {
        self.rows.rows()
    }

    pub(super) fn append(&mut self, row: &Row) -> Result<()> {
        self.rows.append(row.clone())?;
        let split = self.columns.split(row.split);
        let tag = |name: &str| format!("{name}/{split}");
        let mut values = vec![(tag("loss"), row.loss)];
        values.extend(
            self.columns
                .metrics
                .iter()
                .map(|name| tag(name))
                .zip(row.metrics.iter().copied()),
        );
        if row.split == Split::Train {
            values.push(("learning_rate".to_owned(), row.learning_rate));
        }
        let values: Vec<(&str, f64)> = values.iter().map(|(tag, value)| (tag.as_str(), *value)).collect();
        self.events.add_scalars(&values, row.step)
    }
}

/// The checkpoint of a run, which only rank 0 has.
pub(super) fn load(run: Option<&Run>, group: Option<&dyn Communicator>) -> Result<Option<Checkpoint>> {
    let own = run.map(|run| Checkpoint::load(run.checkpoint())).transpose()?;
    match group {
        Some(group) => share(group, own, 0).map(Some),
        None => Ok(own),
    }
}

/// The place of the checkpoint that a run continues from, for messages.
pub(crate) fn place(run: Option<&Run>) -> String {
    match run {
        Some(run) => shown(&run.checkpoint()),
        None => "the checkpoint of another rank".to_owned(),
    }
}

/// The error for a checkpoint that training cannot continue from.
pub(crate) fn unfit(place: &str, what: &str) -> Error {
    Error::new(ErrorKind::StateDict, format!("cannot go on from {place}: {what}"))
        .with_hint("go on with the program that left it, or start a new run")
}
