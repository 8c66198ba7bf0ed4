//! Datasets, transforms and loaders.
//!
//! A [`Dataset`] has examples by index, a [`Stream`] yields them one after another. A [`DataLoader`] shuffles and
//! transforms them, and combines them into batches of tensors, in worker threads. It always knows its position as three
//! numbers, from which a run continues with the same batches.
//!
//! ```
//! use polygrad_data::DataLoaderConfig;
//! # use polygrad_tensor::{Device, Result};
//! # fn main() -> Result<()> {
//! let device = Device::<polygrad_cpu::Cpu>::default().into_any();
//! let examples: Vec<([f32; 2], usize)> = (0..10).map(|i| ([i as f32, -1.0], i % 3)).collect();
//! let loader = DataLoaderConfig::new(examples).batch_size(4).shuffle(0).build(&device)?;
//! for _epoch in 0..2 {
//!     for batch in &loader {
//!         let (x, y) = batch?;
//!         assert_eq!((x.dims()[1], x.dims()[0]), (2, y.dims()[0]));
//!     }
//! }
//! assert_eq!(loader.state().epoch, 2);
//! # Ok(())
//! # }
//! ```

mod collate;
mod colour;
mod dataset;
mod folder;
mod geometry;
mod idx;
mod image;
mod input;
mod json_lines;
mod loader;
mod mask;
#[cfg(feature = "tar")]
mod members;
mod order;
#[cfg(feature = "parquet")]
mod parquet_file;
mod resize;
mod stream;
mod table;
#[cfg(feature = "tar")]
mod web_dataset;

pub use collate::{Collate, pad_sequence};
pub use colour::ColorJitter;
pub use dataset::{Dataset, Mapped, Subset, Zipped, random_split};
pub use folder::ImageFolder;
pub use geometry::Affine;
pub use idx::Idx;
pub use image::{Image, Normalize};
pub use json_lines::JsonLines;
pub use loader::{Batches, DataLoader, DataLoaderConfig, LoaderState};
#[cfg(feature = "parquet")]
pub use parquet_file::{Parquet, ParquetColumn, ParquetKind, ParquetRows};
pub use polygrad_core::Rng;
pub use stream::Stream;
pub use table::{Column, CsvConfig, Table, TableEncoder};
#[cfg(feature = "tar")]
pub use web_dataset::{Sample, WebDataset};
