//! Requests and answers, independent of the protocol.

use std::time::Instant;

use crate::Value;

/// A request for an inference.
#[derive(Clone, Debug, Default)]
pub struct InferRequest {
    /// The values, by the names of the model's inputs.
    pub inputs: Vec<NamedValue>,
    /// From 1, the most urgent, to the model's number of levels; 0 stands for its default.
    pub priority: u64,
    /// The time after which the answer is no longer useful.
    pub deadline: Option<Instant>,
    /// The step of a sequence, for a model with states.
    pub sequence: Option<SequenceStep>,
}

/// An input or output.
#[derive(Clone, Debug)]
pub struct NamedValue {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Value,
}

/// A step of a sequence, whose state is kept between its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceStep {
    /// The id of the sequence.
    pub id: SequenceId,
    /// Whether it begins, with states of zeros.
    pub start: bool,
    /// Whether it ends, and its states are freed.
    pub end: bool,
}

/// Which sequence a request belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SequenceId {
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

/// The outputs, in the model's order, without states of sequences.
#[derive(Clone, Debug)]
pub struct InferResponse {
    /// The version that computed all of them.
    pub version: u64,
    /// Values by the names of the model's outputs.
    pub outputs: Vec<NamedValue>,
}
