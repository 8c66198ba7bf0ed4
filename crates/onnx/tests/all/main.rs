//! The tests of this crate that share a process, in one program, so that code generic over the backend is compiled once
//! for all of them.

mod added;
#[cfg(feature = "ort")]
mod beside;
mod byte_files;
mod bytes;
mod engines;
mod exact;
mod fusion;
mod hostile;
mod lora;
mod meaning;
mod model;
mod products;
mod pytorch;
mod qat;
mod quantize;
mod replay;
mod types;
