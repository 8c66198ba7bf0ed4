//! Files exported by both exporters of PyTorch 2.13, compared with PyTorch's own results, each at two batch sizes and
//! two lengths.
//!
//! scripts/pytorch_exports.py makes the archive. Each file is run with and without constant folding.

use polygrad_cpu::Cpu;
use polygrad_onnx::graph::{Dim, Graph, ValueType};
use polygrad_onnx::{OnnxModel, Options, Value};
use polygrad_tensor::{Device, Error, Result};
use polygrad_testing::node_cases::{Archive, Case, compare};

/// The archive must contain every one of these.
const MODELS: [&str; 9] = [
    "mlp",
    "cnn",
    "resnet18",
    "lstm",
    "gru",
    "bert",
    "gpt2",
    "causal_attention",
    "lstm_policy",
];

#[test]
fn exports_of_pytorch_compute_what_pytorch_computes() {
    let archive = Archive::read("pytorch_cases.bin.gz");
    let failures: Vec<String> = archive
        .cases
        .iter()
        .filter_map(|case| {
            let error = check(&archive, case).err()?;
            Some(format!("{}: {error}", case.name))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(archive.cases.iter().all(|case| case.ordinary && case.sets.len() == 2));
}

#[test]
fn both_exporters_are_there() {
    let archive = Archive::read("pytorch_cases.bin.gz");
    let count = |start: &str| archive.cases.iter().filter(|case| case.name.starts_with(start)).count();
    for model in MODELS {
        assert!(count(&format!("{model}_dynamo")) > 0, "{model}");
        assert!(
            model == "causal_attention" || count(&format!("{model}_torchscript")) == 2,
            "{model}"
        );
    }
}

fn check(archive: &Archive, case: &Case) -> Result<()> {
    let graph = Graph::from_bytes(case.model.clone())?;
    for fold_constants in [true, false] {
        let options = Options {
            fold_constants,
            ..Options::default()
        };
        let model = OnnxModel::from_graph(&graph, &Device::<Cpu>::default().into_any(), options)?;
        let named = |ty: Option<&ValueType>| {
            let shape = ty.and_then(ValueType::as_tensor).and_then(|ty| ty.shape.as_deref());
            shape.is_some_and(|shape| shape.iter().any(|dim| matches!(dim, Dim::Named(_))))
        };
        if !model.inputs().all(|(_, ty)| named(ty)) {
            return Err(Error::invalid("an input has no extent with a name"));
        }
        let names: Vec<String> = model.inputs().map(|(name, _)| name.to_owned()).collect();
        for (inputs, outputs) in &case.sets {
            let values = inputs.iter().map(|item| archive.value(item));
            let values = values.collect::<Result<Vec<Value>>>()?;
            let found = model.run(names.iter().cloned().zip(values))?;
            if found.len() != outputs.len() {
                return Err(Error::invalid(format!(
                    "{} outputs, not {}",
                    found.len(),
                    outputs.len()
                )));
            }
            let types = model.outputs().map(|(_, ty)| ty);
            for ((item, (name, value)), ty) in outputs.iter().zip(found.iter()).zip(types) {
                let wanted = archive.value(item)?;
                compare::close(value, &wanted, case.rtol, case.atol)
                    .and_then(|()| compare::fits(value, ty))
                    .map_err(|e| e.in_module(format!("output {name}")))?;
            }
        }
    }
    Ok(())
}
