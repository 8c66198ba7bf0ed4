//! Models as ONNX files, and files of other kinds that hold one.

mod arrays;
pub(crate) mod export;
mod extents;
mod flops;
mod input;
mod npy;
pub(crate) mod run;
pub(crate) mod show;

pub(crate) use input::Given;
