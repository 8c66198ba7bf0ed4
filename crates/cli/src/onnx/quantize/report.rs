//! The output of `polygrad quantize`.

use std::fmt::Write as _;

use polygrad::backend::printable;
use polygrad_onnx::graph::Graph;
use polygrad_onnx::{LayerReport, Quantized};

/// A line for each layer: its op, and the noise in its result.
pub(super) fn layers(made: &Quantized) -> String {
    let names = made.layers.iter().map(|layer| printable(&layer.name).chars().count());
    let width = names.max().unwrap_or(0).max(5);
    let mut text = format!(
        "{:width$}  op      signal to noise if only this layer is in int8",
        "layer"
    );
    for layer in &made.layers {
        let error = match layer.snr {
            snr if snr.is_nan() => "not measured: there are no rows".to_owned(),
            snr if snr.is_infinite() => "-".to_owned(),
            snr => format!("{snr:.1} dB"),
        };
        let left = layer.left_out.as_ref().map(|why| format!("  left in f32 for {why}"));
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n{:width$}  {:<6}  {error}{}",
            printable(&layer.name),
            layer.op,
            left.unwrap_or_default()
        );
    }
    text
}

/// The differences of the outputs from those in f32.
pub(super) fn outputs(made: &Quantized) -> String {
    let mut text = "no targets are known, so accuracy is not measured".to_owned();
    for output in &made.outputs {
        let _ = write!(
            text,
            "\n{}: relative error {:.5}, cosine {:.6} to f32",
            printable(&output.name),
            output.relative_error,
            output.cosine
        );
    }
    text
}

/// The number of quantized layers, and the size of the constants.
pub(super) fn size(graph: &Graph, made: &Quantized, per_channel: bool) -> String {
    let quantized = made.layers.iter().filter(|layer| layer.left_out.is_none()).count();
    let [before, after] = [graph, &made.graph].map(|graph| {
        let lengths = graph.body.initializers.iter().map(|each| each.tensor.to_wire().len());
        lengths.sum::<usize>() as f64
    });
    format!(
        "{quantized} of {} layers {}, op set {}; constants {:.1} kB, {:.3} of f32",
        made.layers.len(),
        if per_channel { "per channel" } else { "per tensor" },
        made.graph.opsets.get("").copied().unwrap_or(0),
        after / 1e3,
        after / before
    )
}

/// The quantized layer with the most noise.
pub(super) fn worst(made: &Quantized) -> Option<&str> {
    let quantized = made.layers.iter().filter(|layer| layer.left_out.is_none());
    let worst: Option<&LayerReport> = quantized.min_by(|a, b| a.snr.total_cmp(&b.snr));
    worst.map(|layer| layer.name.as_str())
}
