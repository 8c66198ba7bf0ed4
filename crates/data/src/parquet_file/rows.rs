//! The rows of Parquet files, one at a time.

use std::fs::File;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::record::Field;
use parquet::record::reader::{ReaderIter, TreeBuilder};
use parquet::schema::types::SchemaDescPtr;
use polygrad_core::{Error, Result};
use serde::de::DeserializeOwned;
use serde::de::value::MapAccessDeserializer;

use super::cell::Cells;
use super::pages::Group;
use super::{Opened, Parquet, damaged};
use crate::image::bad;
use crate::order::shuffled;
use crate::stream::Stream;

/// Rows of Parquet files as a stream; made by [`Parquet::rows`]. Only one page of each column is in memory. Skipping
/// rows does not read row groups that are skipped completely.
#[derive(Clone, Debug)]
pub struct ParquetRows<T> {
    parquet: Parquet,
    seed: Option<u64>,
    row: PhantomData<fn() -> T>,
}

impl<T> ParquetRows<T> {
    pub(super) fn new(parquet: Parquet) -> Self {
        Self {
            parquet,
            seed: None,
            row: PhantomData,
        }
    }

    /// Shuffles the row groups of all files anew in each epoch, depending only on the seed and the epoch. Default: the
    /// files' order.
    #[must_use]
    pub fn shuffle_groups(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }
}

impl<T: DeserializeOwned + Send + 'static> Stream for ParquetRows<T> {
    type Item = T;

    fn examples(&self, epoch: u64) -> Result<Box<dyn Iterator<Item = Result<T>> + Send>> {
        let order = self.seed.map(|seed| (seed, epoch));
        Ok(Box::new(Typed {
            rows: Rows::new(&self.parquet, order),
            row: PhantomData,
        }))
    }
}

struct Typed<T> {
    rows: Rows,
    row: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Iterator for Typed<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let row = self.rows.next_row()?;
        Some(row.and_then(|(path, number, cells)| {
            T::deserialize(MapAccessDeserializer::new(Cells::new(cells)))
                .map_err(|e| bad(&path, &format!("has a row {number} that does not fit: {e}")))
        }))
    }

    fn nth(&mut self, n: usize) -> Option<Result<T>> {
        match self.rows.pass(n as u64) {
            Ok(()) => self.next(),
            Err(error) => Some(Err(error)),
        }
    }
}

/// A row, with its file and its number in it.
type Row = (Arc<Path>, u64, Vec<(String, Field)>);

/// All rows; an error ends the iteration.
pub(super) struct Rows {
    parquet: Parquet,
    /// The remaining files and row groups.
    groups: std::vec::IntoIter<(usize, usize)>,
    running: Option<Running>,
}

/// The row group that is being read.
struct Running {
    file: Arc<Opened>,
    rows: ReaderIter,
    /// The number of the next row in its file, and the number of rows left in the group.
    number: u64,
    left: u64,
}

impl Rows {
    pub(super) fn new(parquet: &Parquet, order: Option<(u64, u64)>) -> Self {
        let counts = parquet.files.iter().map(|file| file.metadata.num_row_groups());
        let mut groups: Vec<(usize, usize)> = counts
            .enumerate()
            .flat_map(|(file, count)| (0..count).map(move |group| (file, group)))
            .collect();
        if let Some((seed, epoch)) = order {
            let order = shuffled(seed, epoch, groups.len());
            groups = order.iter().map(|&at| groups[at as usize]).collect();
        }
        Self {
            parquet: parquet.clone(),
            groups: groups.into_iter(),
            running: None,
        }
    }

    pub(super) fn next_row(&mut self) -> Option<Result<Row>> {
        let row = self.row().transpose();
        if !matches!(row, Some(Ok(_))) {
            self.end();
        }
        row
    }

    /// Skips rows.
    fn pass(&mut self, mut count: u64) -> Result<()> {
        while count > 0 {
            if self.running.is_none()
                && let [(file, group), ..] = *self.groups.as_slice()
            {
                let rows = self.parquet.files[file].metadata.row_group(group).num_rows() as u64;
                if rows <= count {
                    self.groups.next();
                    count -= rows;
                    continue;
                }
            }
            match self.next_row() {
                Some(Ok(_)) => count -= 1,
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            }
        }
        Ok(())
    }

    fn row(&mut self) -> Result<Option<Row>> {
        loop {
            let running = match &mut self.running {
                Some(running) => running,
                None => match self.groups.next() {
                    Some((file, group)) => self.running.insert(Running::start(&self.parquet, file, group)?),
                    None => return Ok(None),
                },
            };
            match running.row()? {
                Some(row) => return Ok(Some(row)),
                None => self.running = None,
            }
        }
    }

    fn end(&mut self) {
        (self.running, self.groups) = (None, Vec::new().into_iter());
    }
}

impl Running {
    fn start(parquet: &Parquet, file: usize, group: usize) -> Result<Self> {
        parquet.supported()?;
        let opened = Arc::clone(&parquet.files[file]);
        let file = File::open(&opened.path).map_err(|e| Error::io("read", &opened.path, e))?;
        let groups = opened.metadata.row_groups();
        let number = groups[..group].iter().map(|group| group.num_rows() as u64).sum();
        let source = Group::new(file, opened.length, Arc::clone(&opened.metadata), group);
        let rows = guarded(|| {
            let schema: SchemaDescPtr = parquet.schema(&opened)?;
            // Reading more rows at a time would keep all pages that contain their cells.
            TreeBuilder::new().with_batch_size(1).as_iter(schema, &source)
        });
        Ok(Self {
            rows: rows.map_err(|e| damaged(&opened.path, &e))?,
            left: groups[group].num_rows() as u64,
            file: opened,
            number,
        })
    }

    fn row(&mut self) -> Result<Option<Row>> {
        if self.left == 0 {
            return Ok(None);
        }
        let row = guarded(|| self.rows.next().transpose()).map_err(|e| damaged(&self.file.path, &e))?;
        let number = self.number;
        self.number += 1;
        self.left -= 1;
        Ok(row.map(|row| (Arc::clone(&self.file.path), number, row.into_columns())))
    }
}

/// Runs the parquet crate on untrusted bytes. Contradictory ones make it panic in places that cannot be checked from
/// outside; such a panic becomes an error. Everything that it worked on is dropped with the panic, or with the rows,
/// which end at an error.
pub(super) fn guarded<T>(f: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| {
        let what = "values that contradict what is said of them";
        Err(ParquetError::General(what.to_owned()))
    })
}
