//! Layers whose input is quantized in each run: DynamicQuantizeLinear, MatMulInteger, and the scales.

use polygrad_core::{HostTensor, Result};

use super::Quantize;
use super::layers::Layer;
use super::numbers::Weight;
use super::writer::Writer;
use crate::graph::{Attribute, ElementType, Graph, Literal, Node};

/// The graph with these layers quantized.
pub(super) fn write(options: &Quantize, graph: &Graph, layers: &[Layer]) -> Result<Graph> {
    let mut writer = Writer::new(&graph.body);
    for (i, node) in graph.body.nodes.iter().enumerate() {
        match layers.iter().find(|layer| layer.node == i) {
            Some(layer) => product(&mut writer, options.per_channel, layer, node)?,
            None => writer.nodes.push(node.clone()),
        }
    }
    Ok(Graph {
        body: writer.done(),
        ..graph.clone()
    })
}

fn product(writer: &mut Writer, per_channel: bool, layer: &Layer, node: &Node) -> Result<()> {
    let (Some(weight), Some(y)) = (writer.weight(layer, per_channel, None)?, node.outputs[0]) else {
        writer.nodes.push(node.clone());
        return Ok(());
    };
    let x = writer.once(layer.x, "rounded", |writer| {
        let quantized = writer.like(layer.x, "quantized", ElementType::U8);
        let [scale, zero] = ["scale", "zero_point"].map(|word| writer.value(layer.x, word));
        let made = vec![quantized, scale, zero];
        writer.node("DynamicQuantizeLinear", &[layer.x], &made, Vec::new());
        Ok(made)
    })?;
    let of = layer.weight;
    let key = format!("numbers along {}", layer.axis);
    let w = writer.once(of, &key, |writer| {
        let [scale, zero] = weight.literals()?;
        let numbers = matrix(&weight, layer.axis)?;
        let parts = [("quantized", numbers), ("scale", scale), ("zero_point", zero)];
        Ok(parts.map(|(word, x)| writer.constant(of, word, x)).to_vec())
    })?;
    let sums = writer.like(y, "sums", ElementType::I32);
    writer.node("MatMulInteger", &[x[0], w[0], x[2], w[2]], &[sums], Vec::new());
    let real = writer.like(y, "real", ElementType::F32);
    let to = vec![("to".to_owned(), Attribute::Int(i64::from(ElementType::F32.number())))];
    writer.node("Cast", &[sums], &[real], to);
    let scale = writer.value(y, "scale");
    writer.node("Mul", &[x[1], w[1]], &[scale], Vec::new());
    match layer.bias {
        None => writer.node("Mul", &[real, scale], &[y], Vec::new()),
        Some(bias) => {
            let scaled = writer.like(y, "scaled", ElementType::F32);
            writer.node("Mul", &[real, scale], &[scaled], Vec::new());
            writer.node("Add", &[scaled, bias], &[y], Vec::new());
        }
    }
    Ok(())
}

/// The weight in the form that MatMulInteger takes, with the outputs along the last axis.
fn matrix(weight: &Weight, axis: usize) -> Result<Literal> {
    if axis == 1 {
        return Ok(weight.numbers.clone());
    }
    let host = weight.numbers.host();
    let [rows, columns] = [host.shape()[0], host.shape()[1]];
    let numbers = host.as_slice::<i32>()?;
    let turned = (0..columns).flat_map(|column| (0..rows).map(move |row| numbers[row * columns + column]));
    let turned = HostTensor::new([columns, rows].into(), turned.collect::<Vec<i32>>())?;
    Literal::new(ElementType::I8, turned)
}
