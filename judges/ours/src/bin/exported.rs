//! Writes one model of each kind in every opset, with its state dict, and with inputs and outputs at two sizes, in the
//! judges' format: `cargo run -p polygrad-judging --bin exported -- FOLDER`.

use std::path::Path;

use polygrad_core::{Distribution, ErrorKind, RandomKey, random_host};
use polygrad_cpu::Cpu;
use polygrad_onnx::graph::{Dim, Literal};
use polygrad_onnx::{ExportOnnx, Opset};
use polygrad_tensor::{DType, Device, Error, Result, Shape, Tensor, no_grad};
use polygrad_testing::zoo;

fn main() -> Result<()> {
    let folder = std::env::args().nth(1);
    let folder = folder.ok_or_else(|| Error::invalid("say in which folder the files go"))?;
    let device = Device::<Cpu>::default().into_any();
    for case in zoo::cases(&device)? {
        let folder = Path::new(&folder).join(case.name);
        let made = std::fs::create_dir_all(&folder);
        made.map_err(|e| Error::io("create", &folder, e))?;
        for opset in Opset::ALL {
            let path = folder.join(format!("opset{}.onnx", opset.version()));
            let outcome = case
                .model
                .export_onnx(&path, &case.export.clone().opset(opset), &case.run);
            if let Err(error) = outcome {
                println!("{} in opset {}: {error}", case.name, opset.version());
            }
        }
        case.model.eval();
        case.model.state_dict()?.save(folder.join("model.safetensors"))?;
        for round in 0..2 {
            let inputs = inputs(&case, round, &device)?;
            let outputs = no_grad(|| (case.run)(&inputs))?;
            for (kind, tensors) in [("input", inputs), ("output", outputs)] {
                for (i, tensor) in tensors.iter().enumerate() {
                    let path = folder.join(format!("{kind}_{round}_{i}.pb"));
                    let bytes = Literal::from(tensor.to_host()?).encode("");
                    std::fs::write(&path, bytes).map_err(|e| Error::io("write", &path, e))?;
                }
            }
        }
    }
    Ok(())
}

/// Random inputs: batches of 2 and 5, and other extents of 11 and 17.
fn inputs(case: &zoo::Case, round: u64, device: &Device) -> Result<Vec<Tensor>> {
    let input = |(i, input): (usize, &polygrad_onnx::Input)| {
        let extent = |dim: &Dim| match dim {
            Dim::Fixed(extent) => Ok(*extent),
            Dim::Named(name) if name == "batch" => Ok([2, 5][round as usize]),
            Dim::Named(_) => Ok([11, 17][round as usize]),
            Dim::Unknown => Err(Error::new(ErrorKind::InvalidArgument, "an extent without a name")),
        };
        let shape = Shape::new(&input.dims().iter().map(extent).collect::<Result<Vec<_>>>()?)?;
        let key = RandomKey {
            seed: 100 + i as u64,
            offset: round << 32,
        };
        let (low, high) = (0, 2);
        let host = match input.dtype() {
            DType::F32 => random_host(shape, Distribution::Normal { mean: 0.0, std: 1.0 }, DType::F32, key)?,
            dtype => random_host(shape, Distribution::Integers { low, high }, DType::I64, key)?.cast(dtype),
        };
        Tensor::from_host(host, device)
    };
    case.export.inputs().iter().enumerate().map(input).collect()
}
