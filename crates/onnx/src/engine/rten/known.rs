//! Known cases where RTen silently computes something other than ONNX specifies. Files with such nodes are rejected by
//! name.
//!
//! The tests require a graph for each row that shows that RTen still deviates. The official ONNX cases show that no row
//! is missing.

use polygrad_core::{DType, Error, ErrorKind, HostTensor, Result};

use crate::engine::{Engine, failed};
use crate::graph::{Attribute, Body, Dim, ElementType, Graph, Node, ValueId};
use crate::import::{inline, row_of};

/// A deviation.
pub(super) struct Deviation {
    /// The affected ops; empty if any op may be affected.
    ops: &'static [&'static str],
    /// What RTen does, and what ONNX specifies.
    pub(super) what: &'static str,
    applies: Applies,
}

/// The condition under which an op of a row deviates.
enum Applies {
    /// Its attributes and operands meet this condition.
    To(fn(&Site<'_>) -> bool),
    /// An operand has a NaN.
    Nan,
}

use Applies::{Nan, To};

/// All known deviations of RTen 0.27.
pub(super) const DEVIATIONS: &[Deviation] = &[
    Deviation {
        ops: &[],
        what: "it pads SAME_LOWER as SAME_UPPER",
        applies: To(|s| s.text("auto_pad") == Some("SAME_LOWER")),
    },
    Deviation {
        ops: &["Softmax", "LogSoftmax"],
        what: "it normalizes one axis, where op sets below 13 flatten all from that axis on",
        applies: To(|s| s.opset < 13 && !s.is_last_axis(s.int("axis").unwrap_or(1))),
    },
    Deviation {
        ops: &["LSTM", "GRU", "RNN"],
        what: "it ignores sequence_lens",
        applies: To(|s| s.input(4).is_some()),
    },
    Deviation {
        ops: &["Resize", "Upsample"],
        what: "it takes cubic for linear",
        applies: To(|s| s.text("mode") == Some("cubic")),
    },
    Deviation {
        ops: &["ArgMax", "ArgMin"],
        what: "of equal values it takes the last, where ONNX takes the first",
        applies: To(|_| true),
    },
    Deviation {
        ops: &["NonMaxSuppression"],
        what: "it compares boxes of all classes with the box around both, and drops those at the threshold",
        applies: To(|_| true),
    },
    Deviation {
        ops: &["MatMulInteger"],
        what: "it subtracts the zero point of constant int8 weights wrongly once they are packed",
        applies: To(|s| s.input(3).is_some() && s.constant(1).is_some_and(|_| s.element(1) == Some(ElementType::I8))),
    },
    Deviation {
        ops: &["Cast"],
        what: "it cuts floats off to integers and keeps integers, where a bool is 0 or 1",
        applies: To(|s| s.int("to") == Some(ElementType::Bool.number().into()) && !s.is_truth()),
    },
    Deviation {
        ops: &["Sign"],
        what: "it gives 1 for 0",
        applies: To(|_| true),
    },
    Deviation {
        ops: &["MatMul"],
        what: "it keeps an axis of the product of more than three axes and a vector",
        applies: To(|s| s.rank(1) == Some(1) && s.rank(0).is_none_or(|rank| rank > 3)),
    },
    Deviation {
        ops: &["ReduceMax"],
        what: "the largest of no bools is true",
        applies: To(|s| s.element(0) == Some(ElementType::Bool)),
    },
    Deviation {
        ops: &["Resize"],
        what: "it rounds the new extent before it aligns the corners",
        applies: To(|s| s.text("coordinate_transformation_mode") == Some("align_corners") && !s.has_whole_scales()),
    },
    Deviation {
        ops: &["Reshape"],
        what: "it repeats each element where Unsqueeze, Expand and Reshape repeat all of them in turn",
        applies: To(|s| s.is_tiled()),
    },
    Deviation {
        ops: &["Div", "Pow"],
        what: "it gives the rank of the first operand where a second one of one element has more axes",
        applies: To(|s| s.rank(0).is_some() && s.rank(1) > s.rank(0) && s.may_be_single(1)),
    },
    Deviation {
        ops: &["Softplus"],
        what: "it is infinite above 88, which is mended from op set 9 on",
        applies: To(|s| s.opset < 9),
    },
    Deviation {
        ops: &["Relu"],
        what: "it makes 0 of NaN",
        applies: Nan,
    },
];

/// A node and its surroundings.
struct Site<'a> {
    node: &'a Node,
    body: &'a Body,
    opset: i64,
}

impl Site<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        match self.node.attribute(name) {
            Some(Attribute::String(text)) => Some(text),
            _ => None,
        }
    }

    fn int(&self, name: &str) -> Option<i64> {
        match self.node.attribute(name) {
            Some(Attribute::Int(value)) => Some(*value),
            _ => None,
        }
    }

    fn input(&self, i: usize) -> Option<ValueId> {
        self.node.inputs.get(i).copied().flatten()
    }

    fn constant(&self, i: usize) -> Option<&HostTensor> {
        Some(self.body.initializer(self.input(i)?)?.tensor.host())
    }

    fn element(&self, i: usize) -> Option<ElementType> {
        element(self.body, self.input(i)?)
    }

    fn rank(&self, i: usize) -> Option<usize> {
        let id = self.input(i)?;
        Some(self.body.value(id).ty.as_ref()?.as_tensor()?.shape.as_ref()?.len())
    }

    /// Whether an axis is known to be the last of operand 0.
    fn is_last_axis(&self, axis: i64) -> bool {
        axis == -1 || self.rank(0).is_some_and(|rank| axis == rank as i64 - 1)
    }

    /// Whether a Resize has no scales, or only scales that are whole numbers.
    fn has_whole_scales(&self) -> bool {
        let is_whole = |host: &HostTensor| host.to_f64_vec().iter().all(|scale| scale.fract() == 0.0);
        self.input(2).is_none() || self.constant(2).is_some_and(is_whole)
    }

    /// The node that produces a value.
    fn maker(&self, id: ValueId) -> Option<&Node> {
        self.body.nodes.iter().find(|node| node.outputs.contains(&Some(id)))
    }

    fn dims(&self, id: ValueId) -> Option<&[Dim]> {
        self.body.value(id).ty.as_ref()?.as_tensor()?.shape.as_deref()
    }

    /// Whether an operand may have a single element, as far as its extents are known.
    fn may_be_single(&self, i: usize) -> bool {
        let dims = self.input(i).and_then(|id| self.dims(id)).unwrap_or_default();
        !dims.iter().any(|dim| matches!(dim, Dim::Fixed(extent) if *extent != 1))
    }

    /// Whether a Reshape ends a chain that RTen takes for `repeat_interleave`, as far as extents are known, but whose
    /// repeated axis is not the one directly after the growing axis.
    fn is_tiled(&self) -> bool {
        let operand = |node: &Node, i: usize| node.inputs.get(i).copied().flatten();
        let made_by = |node: &Node, op: &str| self.maker(operand(node, 0)?).filter(|maker| maker.op_type == op);
        let Some(unsqueeze) = made_by(self.node, "Expand").and_then(|expand| made_by(expand, "Unsqueeze")) else {
            return false;
        };
        let constant = operand(unsqueeze, 1).and_then(|id| self.body.initializer(id));
        let (Some(axes), Some(x), Some(&Some(y))) = (constant, operand(unsqueeze, 0), self.node.outputs.first()) else {
            return false;
        };
        let (Some(before), Some(after)) = (self.dims(x), self.dims(y)) else {
            return true;
        };
        let is_told = |dim: &Dim| *dim != Dim::Unknown;
        if before.len() != after.len() || !before.iter().chain(after).all(is_told) {
            return before.len() == after.len();
        }
        let grown: Vec<usize> = (0..before.len()).filter(|&axis| before[axis] != after[axis]).collect();
        let rank = before.len() as i64 + 1;
        let axes = axes.tensor.host().to_f64_vec();
        match (&grown[..], &axes[..]) {
            ([axis], [new]) => (*new as i64).rem_euclid(rank) != *axis as i64 + 1,
            ([_], _) => true,
            _ => false,
        }
    }

    /// Whether operand 0 is a bool, or an integer of whose cast result only the truth value is used.
    fn is_truth(&self) -> bool {
        let asks_for_truth = |reader: &Node, at: usize| match reader.op_type.as_str() {
            "Not" | "And" | "Or" | "Xor" | "If" => true,
            "Where" => at == 0,
            _ => false,
        };
        match self.element(0) {
            Some(ElementType::Bool) => true,
            Some(ElementType::F32) | None => false,
            Some(_) => {
                let Some(y) = self.node.outputs.first().copied().flatten() else {
                    return true;
                };
                let readers = self.body.nodes.iter().flat_map(|reader| {
                    let places = reader.inputs.iter().enumerate();
                    places
                        .filter(|(_, id)| **id == Some(y))
                        .map(move |(at, _)| (reader, at))
                });
                !self.body.outputs.contains(&y) && readers.into_iter().all(|(reader, at)| asks_for_truth(reader, at))
            }
        }
    }
}

/// The element type of a value, if the file says it.
fn element(body: &Body, id: ValueId) -> Option<ElementType> {
    if let Some(ty) = body.value(id).ty.as_ref().and_then(|ty| ty.as_tensor()) {
        return Some(ty.element);
    }
    if let Some(initializer) = body.initializer(id) {
        return Some(initializer.tensor.element());
    }
    // Nodes are in execution order, so the recursion ends.
    let node = body.nodes.iter().find(|node| node.outputs.first() == Some(&Some(id)))?;
    match (node.op_type.as_str(), node.attribute("to")) {
        ("Cast", Some(Attribute::Int(to))) => ElementType::from_number(i32::try_from(*to).ok()?).ok(),
        ("Equal" | "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" | "Not" | "And" | "Or" | "Xor", _) => {
            Some(ElementType::Bool)
        }
        ("Shape" | "Size", _) => Some(ElementType::I64),
        _ => {
            let like = row_of(&node.domain, &node.op_type)?.like?;
            element(body, node.inputs.get(like).copied().flatten()?)
        }
    }
}

/// Nodes that are correct only as long as no operand has a NaN.
#[derive(Default)]
pub(super) struct NanSites(Option<String>);

impl NanSites {
    /// Fails if an input that may reach such a node has a NaN.
    pub(super) fn check<'a>(&self, values: impl IntoIterator<Item = (&'a str, &'a HostTensor)>) -> Result<()> {
        let Some(site) = &self.0 else { return Ok(()) };
        match values.into_iter().find(|(_, host)| has_nan(host)) {
            None => Ok(()),
            Some((name, _)) => Err(failed(
                Engine::Rten,
                ErrorKind::Unsupported,
                format_args!("{site}, and {name:?} has one"),
            )),
        }
    }
}

fn has_nan(host: &HostTensor) -> bool {
    host.dtype() == DType::F32
        && host
            .as_slice::<f32>()
            .is_ok_and(|values| values.iter().any(|v| v.is_nan()))
}

/// Fails at the first node that RTen is known to compute differently. Returns the nodes for which that depends on the
/// values.
///
/// # Errors
/// [`ErrorKind::Unsupported`], with the node, its op and the deviation.
pub(super) fn refuse(graph: &Graph) -> Result<NanSites> {
    let mut nan = NanSites::default();
    let opset = graph.opsets.get("").copied().unwrap_or(0);
    let body = inline(graph)?;
    check(&body, opset, &mut nan)?;
    let constants = body
        .initializers
        .iter()
        .map(|i| (body.name_of(i.value), i.tensor.host()));
    nan.check(constants)?;
    Ok(nan)
}

fn check(body: &Body, opset: i64, nan: &mut NanSites) -> Result<()> {
    for node in &body.nodes {
        let site = Site { node, body, opset };
        let known = DEVIATIONS
            .iter()
            .filter(|row| row.ops.is_empty() || row.ops.contains(&node.op_type.as_str()));
        for row in known.filter(|_| node.domain.is_empty()) {
            let words = || format!("{} (node {:?}): {}", node.op_type, node.name, row.what);
            match row.applies {
                To(applies) if applies(&site) => return Err(differs(&words())),
                Nan if nan.0.is_none() => nan.0 = Some(words()),
                _ => {}
            }
        }
        for (_, attribute) in &node.attributes {
            attribute.bodies().iter().try_for_each(|body| check(body, opset, nan))?;
        }
    }
    Ok(())
}

fn differs(words: &str) -> Error {
    failed(
        Engine::Rten,
        ErrorKind::Unsupported,
        format_args!("it computes this otherwise than ONNX says: {words}"),
    )
}
