//! Convolutions of images that lie in memory row by row.

pub mod direct;
mod epilogue;
pub mod few;
pub mod filters;
pub mod geometry;
pub mod lanes;
pub mod winograd;

pub use epilogue::Epilogue;
pub use filters::Filters;

/// The most elements of a window whose products are added to one sum, where sums along lines and by lanes must agree:
/// further ones have a sum of their own, which is added to the total.
const MAX_ROWS: usize = 320;
