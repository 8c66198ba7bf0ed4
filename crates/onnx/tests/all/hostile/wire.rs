//! Model files written by hand, so that they can be wrong.

/// Protobuf by hand: a number, and bytes or another message.
pub(crate) fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

pub(crate) fn bytes(field: u64, content: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 128 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// A model around a GraphProto.
pub(crate) fn model(graph: &[u8]) -> Vec<u8> {
    [number(1, 10), bytes(8, &number(2, 20)), bytes(7, graph)].concat()
}

pub(crate) fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> Vec<u8> {
    let inputs = inputs.iter().flat_map(|name| bytes(1, name.as_bytes()));
    let outputs = outputs.iter().flat_map(|name| bytes(2, name.as_bytes()));
    let content: Vec<u8> = inputs.chain(outputs).chain(bytes(4, op.as_bytes())).collect();
    bytes(1, &content)
}

pub(crate) fn output(name: &str) -> Vec<u8> {
    bytes(12, &bytes(1, name.as_bytes()))
}

pub(crate) fn tensor(dims: &[i64], element: u64, raw: &[u8]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|&dim| number(1, dim as u64)).collect();
    [dims, number(2, element), bytes(8, b"w"), bytes(9, raw)].concat()
}
