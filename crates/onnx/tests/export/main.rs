//! Models exported as files: the files compute what the model computes, at every size and in every opset.

mod errors;
mod graphs;
mod order;
mod resample;

use polygrad_cpu::Cpu;
use polygrad_onnx::graph::Graph;
use polygrad_onnx::{ExportOnnx, Opset};
use polygrad_tensor::{Device, Result};
use polygrad_testing::zoo;

fn cpu() -> Device {
    Device::<Cpu>::default().into_any()
}

/// Every model in an opset; the export itself compares at two sizes.
fn every_model(opset: Opset) -> Result<()> {
    let mut failures = Vec::new();
    for case in zoo::cases(&cpu())? {
        let export = case.export.clone().opset(opset);
        let outcome = case.model.record_onnx(&export, &case.run).and_then(|graph| {
            let again = Graph::from_bytes(graph.to_bytes()?)?;
            assert_eq!(again.body.nodes.len(), graph.body.nodes.len());
            Ok(())
        });
        if let Err(error) = outcome {
            failures.push(format!("{}: {error}", case.name));
        }
    }
    assert!(
        failures.is_empty(),
        "opset {}:\n{}",
        opset.version(),
        failures.join("\n")
    );
    Ok(())
}

#[test]
fn models_in_opset_17() -> Result<()> {
    every_model(Opset::V17)
}

#[test]
fn models_in_opset_18() -> Result<()> {
    every_model(Opset::V18)
}

#[test]
fn models_in_opset_20() -> Result<()> {
    every_model(Opset::V20)
}

#[test]
fn models_in_opset_23() -> Result<()> {
    every_model(Opset::V23)
}
