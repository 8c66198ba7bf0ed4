//! Cases that need larger numbers than the official cases, and must be correct even on devices without f64.

use polygrad_onnx::graph::{Attribute, Body, ElementType, Graph, Node, ValueId};
use polygrad_onnx::{OnnxModel, Options, Value};
use polygrad_tensor::{DType, Device, Error, HostTensor, Result, Shape};

/// The result of a model of one node on these operands.
fn run(device: &Device, op: &str, operands: &[HostTensor], attributes: &[(&str, Attribute)]) -> Result<HostTensor> {
    let mut body = Body::default();
    let inputs: Vec<ValueId> = (0..operands.len())
        .map(|i| body.add_value(format!("x{i}"), None))
        .collect();
    let y = body.add_value("y", None);
    body.nodes = vec![Node {
        op_type: op.into(),
        inputs: inputs.iter().copied().map(Some).collect(),
        outputs: vec![Some(y)],
        attributes: attributes
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect(),
        ..Node::default()
    }];
    body.inputs = inputs;
    body.outputs = vec![y];
    let graph = Graph {
        opsets: [(String::new(), 20)].into(),
        body,
        ..Graph::default()
    };
    let model = OnnxModel::from_graph(&graph, device, Options::default())?;
    let names = (0..operands.len()).map(|i| format!("x{i}"));
    let outputs = model.run(names.zip(operands.iter().cloned().map(Value::from)))?;
    let (_, y) = outputs
        .iter()
        .next()
        .ok_or_else(|| Error::invalid("there is no result"))?;
    y.host()
}

fn same(what: &str, found: &HostTensor, wanted: &HostTensor) -> Result<()> {
    if found.dtype() != wanted.dtype() || found.shape() != wanted.shape() {
        return Err(Error::dtype(format!("{what}: {found:?} instead of {wanted:?}")));
    }
    let (found, wanted) = (found.cast(DType::I64), wanted.cast(DType::I64));
    if found.as_slice::<i64>()? != wanted.as_slice::<i64>()? {
        return Err(Error::invalid(format!("{what}: {found:?} instead of {wanted:?}")));
    }
    Ok(())
}

fn host<T: polygrad_tensor::Element>(values: Vec<T>, dims: &[usize]) -> Result<HostTensor> {
    HostTensor::new(Shape::new(dims)?, values)
}

/// Sums of products of 8 bits that exceed f32's exact range, products of integers of 64 bits, and f64 that is cast
/// before use.
pub(crate) fn check(device: &Device) -> Result<()> {
    const TERMS: usize = 1350;
    let a: Vec<u8> = (0..2 * TERMS).map(|i| 255 - (i * i % 61) as u8).collect();
    let b: Vec<u8> = (0..3 * TERMS).map(|i| 255 - (i * 7 % 53) as u8).collect();
    // The rows of `b` are the columns of the matrix, or the weights of the convolution.
    let dot = |row: usize, column: usize| -> i32 {
        let pairs = a[row * TERMS..][..TERMS].iter().zip(&b[column * TERMS..]);
        pairs.map(|(&a, &b)| (i32::from(a) - 2) * (i32::from(b) - 1)).sum()
    };
    let dots: Vec<i32> = (0..6).map(|i| dot(i / 3, i % 3)).collect();
    let zeros = [HostTensor::scalar(2u8), HostTensor::scalar(1u8)];
    let columns: Vec<u8> = (0..TERMS)
        .flat_map(|k| (0..3).map(move |column| column * TERMS + k))
        .map(|i| b[i])
        .collect();
    let product = [
        &[host(a.clone(), &[2, TERMS])?, host(columns, &[TERMS, 3])?][..],
        &zeros,
    ]
    .concat();
    same(
        "MatMulInteger",
        &run(device, "MatMulInteger", &product, &[])?,
        &host(dots.clone(), &[2, 3])?,
    )?;
    let window = [&[host(a, &[2, 150, 3, 3])?, host(b, &[3, 150, 3, 3])?][..], &zeros].concat();
    same(
        "ConvInteger",
        &run(device, "ConvInteger", &window, &[])?,
        &host(dots, &[2, 3, 1, 1])?,
    )?;
    let wide = host(vec![(1i64 << 51) - 1, -5, 3, 1 << 40], &[2, 2])?;
    same(
        "MatMul",
        &run(device, "MatMul", &[wide, host(vec![3i64, -2], &[2])?], &[])?,
        &host(vec![3 * (1i64 << 51) + 7, 9 - (1 << 41)], &[2])?,
    )?;
    let to = Attribute::Int(i64::from(ElementType::I32.number()));
    same(
        "Cast",
        &run(device, "Cast", &[host(vec![2.0f64, -70_000.5], &[2])?], &[("to", to)])?,
        &host(vec![2i32, -70_000], &[2])?,
    )
}
