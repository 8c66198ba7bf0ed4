//! The tests of this crate in one program, so that code that is generic over the backend is compiled once for all of
//! them.

mod activity;
mod attention;
mod autodiff;
mod compiled;
mod display;
mod edges;
mod errors;
mod flops;
mod gradcheck;
mod hooks;
mod rotary;
mod values;
