//! Ops of `ai.onnx.ml`, written by scikit-learn's converter.

mod attributes;
mod encode;
mod linear;
mod scale;
mod scores;
mod support;
mod tree;

pub(super) use attributes::ATTRIBUTES;
pub(crate) use tree::Forest;

use super::row::{Kernel, Row};

pub(crate) const DOMAIN: &str = "ai.onnx.ml";

/// The newest supported version of the domain.
pub(super) const NEWEST: i64 = 5;

/// All rows, family by family.
pub(super) const FAMILIES: [&[Row]; 5] = [scale::ROWS, encode::ROWS, linear::ROWS, support::ROWS, tree::ROWS];

const fn ml(op_type: &'static str, since: i64, kernel: Kernel) -> Row {
    Row::new(op_type, since, kernel).of(DOMAIN)
}
