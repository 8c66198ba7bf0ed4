//! `--int8`: compares each file with its quantized form, in Polygrad and in ONNX Runtime.

use std::path::Path;

use polygrad_core::Result;
use polygrad_onnx::Quantize;
use polygrad_onnx::graph::Graph;
use polygrad_tensor::{Device, Tensor};

use crate::engines::{Native, OnnxRuntime};
use crate::{Arguments, measure, models, turn};

/// The rows used for calibration.
const ROWS: usize = 64;

/// Prints a table: times, and the speedup of int8 over f32 here, and over int8 in ONNX Runtime.
pub fn all(arguments: &Arguments, folder: &Path, device: &Device) -> Result<()> {
    println!("| model | batch | f32, µs | int8, µs | ort f32, µs | ort int8, µs | f32 / int8 | ort int8 / int8 |");
    println!("|---|---|---|---|---|---|---|---|");
    let clock = arguments.clock;
    for name in &arguments.models {
        let exported = models::export(name, folder, device)?;
        let rows = exported.inputs(ROWS)?;
        let rows = rows.into_iter().map(|(_, host)| Tensor::from_host(host, device));
        let rows = vec![rows.collect::<Result<Vec<_>>>()?];
        let graph = Graph::load(&exported.onnx)?;
        let bytes = exported.onnx.with_extension("int8.onnx");
        let made = Quantize::new().per_channel(true).run(&graph, &rows, device)?;
        made.graph.save(&bytes)?;
        for &batch in &arguments.batches {
            let inputs = exported.inputs(batch)?;
            let mut native = [
                Native::load(&exported.onnx, &inputs, device)?,
                Native::load(&bytes, &inputs, device)?,
            ];
            let mut ort = [
                OnnxRuntime::load(&exported.onnx, &inputs)?,
                OnnxRuntime::load(&bytes, &inputs)?,
            ];
            let turns = native.iter_mut().map(|engine| turn(engine, clock));
            let turns = turns.chain(ort.iter_mut().map(|engine| turn(engine, clock))).collect();
            let times = measure(turns, arguments.seconds)?;
            let times: Vec<f64> = times.iter().map(|times| clock.typical(times)).collect();
            let cells: String = times.iter().map(|time| format!(" {time:.0} |")).collect();
            println!(
                "| {name} | {batch} |{cells} {:.2} | {:.2} |",
                times[0] / times[1],
                times[3] / times[1]
            );
        }
    }
    Ok(())
}
