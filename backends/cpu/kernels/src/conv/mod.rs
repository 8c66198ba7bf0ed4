//! Convolutions of images that lie in memory row by row.

pub mod direct;
mod epilogue;
pub mod few;
pub mod filters;
pub mod geometry;
pub mod winograd;

pub use epilogue::Epilogue;
pub use filters::Filters;
