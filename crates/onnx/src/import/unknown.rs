//! Unknown ops of a file, all reported before anything is computed.

use std::fmt::Write as _;

use polygrad_core::printable;

use super::ops;
use super::planner::needed;
use crate::graph::Body;

/// An unknown op, and the number of nodes that call it.
struct Unknown<'a> {
    domain: &'a str,
    op_type: &'a str,
    count: usize,
}

/// Lists in words the unknown ops that contribute to some output, including those in inner bodies; `None` if all are
/// known.
pub(super) fn unknown_ops(body: &Body) -> Option<String> {
    let mut found = Vec::new();
    collect(body, &mut found);
    let one = |op: &Unknown<'_>| {
        let times = match op.count {
            1 => String::new(),
            count => format!(", {count} times"),
        };
        let advice = advice(op).map(|words| format!(" ({words})")).unwrap_or_default();
        format!(
            "{} of {}{times}{advice}",
            printable(op.op_type),
            printable(name_of(op.domain))
        )
    };
    match found.as_slice() {
        [] => None,
        [op] => Some(format!("an op is not known here: {}", one(op))),
        [first, rest @ ..] => {
            let mut words = format!("{} ops are not known here: {}", found.len(), one(first));
            for op in rest {
                // Writing to a string cannot fail.
                let _ = write!(words, "; {}", one(op));
            }
            Some(words)
        }
    }
}

fn collect<'a>(body: &'a Body, found: &mut Vec<Unknown<'a>>) {
    for (node, _) in body
        .nodes
        .iter()
        .zip(needed(body, &body.nodes))
        .filter(|(_, needed)| *needed)
    {
        if ops::row(&node.domain, &node.op_type).is_none() {
            match found
                .iter_mut()
                .find(|op| (op.domain, op.op_type) == (&*node.domain, &*node.op_type))
            {
                Some(op) => op.count += 1,
                None => found.push(Unknown {
                    domain: &node.domain,
                    op_type: &node.op_type,
                    count: 1,
                }),
            }
        }
        let bodies = node.attributes.iter().flat_map(|(_, attribute)| attribute.bodies());
        bodies.for_each(|body| collect(body, found));
    }
}

/// How to get a file without an op, if the program that writes it has an option for that.
fn advice(op: &Unknown<'_>) -> Option<&'static str> {
    match (op.domain, op.op_type) {
        ("ai.onnx.ml", "CastMap" | "DictVectorizer") => {
            Some("maps are no inputs here: convert the model for a tensor of features")
        }
        ("com.microsoft.nchwc", _) => {
            Some("it is laid out for one kind of CPU: optimize the file at the level ORT_ENABLE_EXTENDED")
        }
        _ => None,
    }
}

/// The name of a domain in messages.
pub(super) fn name_of(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}
