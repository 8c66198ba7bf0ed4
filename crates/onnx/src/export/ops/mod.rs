//! The ONNX form of each op.

pub(super) mod attention;
pub(super) mod create;
pub(super) mod elementwise;
pub(super) mod index;
pub(super) mod linear;
pub(super) mod movement;
pub(super) mod norm;
pub(super) mod quantized;
pub(super) mod recurrent;
pub(super) mod reduce;
pub(super) mod resample;
pub(super) mod support;
pub(super) mod window;
