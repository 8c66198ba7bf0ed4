//! All tests of this crate in one program, so that code generic over the backend is compiled only once.

#[macro_use(on_backends, on_cpu)]
extern crate polygrad_testing;

mod common;

mod attention;
mod autocast;
mod autocast_models;
mod captured;
mod compiled;
mod derive;
mod differences;
mod distributions;
mod ema;
mod errors;
mod files;
mod generation;
mod grad_scaler;
mod gradients;
mod images;
mod init;
mod language;
mod llama;
mod lora;
mod lora_files;
mod losses;
mod min_gru;
mod models;
mod narrow;
mod optimizers;
mod profile;
mod qat;
mod quantized;
mod recurrent;
mod resume;
mod segmentation;
mod served;
mod skip_init;
mod state;
mod sync_batch_norm;
mod trajectories;
mod watch;
mod wrapped;
