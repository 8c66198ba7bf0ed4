//! Estimates the memory of a message before it is parsed.
//!
//! An empty message takes two bytes of a file but some hundred bytes of memory, so a small file could fill the memory
//! of a large machine. Real content takes little more in memory than in the file.

use polygrad_core::{Error, ErrorKind, Result};

use super::{Attribute, Body, Function, Initializer, Node, malformed};
use crate::proto::{AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto};

/// The content of a field.
#[derive(Clone, Copy)]
enum Kind {
    /// A message of another sort.
    Message(Sort),
    /// A piece of text or bytes in a list.
    Item,
}

#[derive(Clone, Copy)]
enum Sort {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    Sparse,
    Function,
    /// Value infos, types and entries, whose own fields are small messages or text.
    Small,
}

/// A string in a list.
const ITEM: usize = 64;
/// What a file may take beyond a multiple of its own size, in bytes.
const ALLOWANCE: usize = 1 << 28;
/// That multiple: names and small nodes take several times their size.
const FACTOR: usize = 24;
/// The depth limit of the protobuf reader.
const DEPTH: usize = 100;

impl Sort {
    /// The memory of an empty message, in a list that has grown to twice its length.
    fn weight(self) -> usize {
        2 * match self {
            Self::Model => size_of::<ModelProto>(),
            Self::Graph => size_of::<GraphProto>() + size_of::<Body>(),
            Self::Node => size_of::<NodeProto>() + size_of::<Node>(),
            Self::Attribute => size_of::<AttributeProto>() + size_of::<Attribute>(),
            Self::Tensor => size_of::<TensorProto>() + size_of::<Initializer>(),
            Self::Sparse => size_of::<SparseTensorProto>(),
            Self::Function => size_of::<FunctionProto>() + size_of::<Function>(),
            Self::Small => 32,
        }
    }

    fn field(self, number: u64) -> Option<Kind> {
        use Kind::{Item, Message};
        Some(match (self, number) {
            (Self::Model, 7) => Message(Self::Graph),
            (Self::Model, 25) => Message(Self::Function),
            (Self::Model, 8 | 14) => Message(Self::Small),
            (Self::Graph, 1) | (Self::Function, 7) => Message(Self::Node),
            (Self::Graph, 5) => Message(Self::Tensor),
            (Self::Graph, 15) => Message(Self::Sparse),
            (Self::Graph, 11..=13) => Message(Self::Small),
            (Self::Function, 4..=6) => Item,
            (Self::Function, 9) => Message(Self::Small),
            (Self::Function, 11) => Message(Self::Attribute),
            (Self::Node, 1 | 2) => Item,
            (Self::Node, 5) => Message(Self::Attribute),
            (Self::Attribute, 5 | 10) => Message(Self::Tensor),
            (Self::Attribute, 6 | 11) => Message(Self::Graph),
            (Self::Attribute, 22) => Message(Self::Sparse),
            (Self::Attribute, 14) => Message(Self::Small),
            (Self::Attribute, 9) => Item,
            (Self::Tensor, 13) => Message(Self::Small),
            (Self::Tensor, 6) => Item,
            (Self::Sparse, 1 | 2) => Message(Self::Tensor),
            (Self::Small, 1 | 2 | 4 | 5 | 8 | 9) => Message(Self::Small),
            _ => return None,
        })
    }
}

/// Fails if the message of a model would take far more memory than its own size.
pub(super) fn check(bytes: &[u8]) -> Result<()> {
    let allowed = ALLOWANCE.saturating_add(bytes.len().saturating_mul(FACTOR));
    let mut left = allowed;
    weigh(Sort::Model, bytes, DEPTH, &mut left).map_err(|stop| match stop {
        Refusal::Heavy => {
            let message = format!(
                "a file of {} bytes would take more than {allowed} of memory",
                bytes.len()
            );
            Error::new(ErrorKind::OutOfMemory, message)
                .with_hint("it is made of many empty entries: check where it comes from")
        }
        Refusal::Malformed => malformed("this is no ONNX model, or a damaged one"),
    })
}

enum Refusal {
    Heavy,
    Malformed,
}

fn weigh(sort: Sort, mut bytes: &[u8], depth: usize, left: &mut usize) -> std::result::Result<(), Refusal> {
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let length = match key & 7 {
            0 => {
                varint(&mut bytes)?;
                continue;
            }
            1 => 8,
            5 => 4,
            2 => usize::try_from(varint(&mut bytes)?).map_err(|_| Refusal::Malformed)?,
            _ => return Err(Refusal::Malformed),
        };
        let content = bytes.get(..length).ok_or(Refusal::Malformed)?;
        bytes = &bytes[length..];
        let weight = match sort.field(key >> 3) {
            Some(Kind::Message(inner)) if key & 7 == 2 => {
                // A small field may be text or a message; text has no inner messages.
                let inside = depth.checked_sub(1).map(|depth| weigh(inner, content, depth, left));
                match (inside, inner) {
                    (Some(Err(Refusal::Heavy)), _) => return Err(Refusal::Heavy),
                    (Some(Err(Refusal::Malformed)) | None, Sort::Small) | (Some(Ok(())), _) => {}
                    _ => return Err(Refusal::Malformed),
                }
                inner.weight()
            }
            Some(Kind::Item) => ITEM,
            _ => 0,
        };
        *left = left.checked_sub(weight).ok_or(Refusal::Heavy)?;
    }
    Ok(())
}

fn varint(bytes: &mut &[u8]) -> std::result::Result<u64, Refusal> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(Refusal::Malformed)?;
        *bytes = rest;
        value |= u64::from(byte & 127).checked_shl(shift).unwrap_or(0);
        if byte < 128 {
            return Ok(value);
        }
    }
    Err(Refusal::Malformed)
}
