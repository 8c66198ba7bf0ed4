//! The tests of this crate that share a process, in one program.

mod common;

mod attention;
mod conv;
mod elementwise;
mod fused;
mod large;
mod quantized;
mod shape_and_index;
