//! Loads state dicts written by PyTorch into our own models, and compares with PyTorch's answers:
//! `cargo run -p polygrad-judging --bin loaded -- FOLDER`, with a folder written by scripts/pytorch_exports.py.
//! scripts/pytorch_judge.py does the reverse.

use std::path::Path;
use std::process::ExitCode;

use polygrad_cpu::Cpu;
use polygrad_judging::{TOLERANCE, folder, tell, tensors};
use polygrad_nn::StateDict;
use polygrad_tensor::{Device, Error, Result, Tensor, no_grad};
use polygrad_testing::zoo;

fn main() -> ExitCode {
    match judge() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether all agree; models without files of PyTorch are skipped.
fn judge() -> Result<bool> {
    let (folder, device) = (folder()?, Device::<Cpu>::default().into_any());
    let (mut agree, mut count) = (true, 0);
    for case in zoo::cases(&device)? {
        let file = folder.join(case.name).join("model.safetensors");
        if !file.exists() {
            continue;
        }
        count += 1;
        let worst = difference(&case, &file, &device);
        agree &= worst.as_ref().is_ok_and(|worst| *worst <= TOLERANCE);
        let verdict = match worst {
            Ok(worst) => format!("{worst:e}"),
            Err(error) => format!(
                "x\t{}",
                error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
            ),
        };
        tell(case.name, "model", "Polygrad", &verdict);
    }
    match count {
        0 => Err(Error::invalid(format!("{} holds no state dict", folder.display()))),
        _ => Ok(agree),
    }
}

/// The largest difference in both rounds.
fn difference(case: &zoo::Case, file: &Path, device: &Device) -> Result<f64> {
    case.model.load_state_dict(&StateDict::load(file)?, true)?;
    case.model.eval();
    let mut worst = 0f64;
    for round in 0..2 {
        let inputs = tensors(file, "input", round)?;
        let inputs = inputs
            .iter()
            .map(|input| Tensor::from_host(input.host().clone(), device));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let outputs = no_grad(|| (case.run)(&inputs))?;
        let found = outputs.iter().map(Tensor::to_host).collect::<Result<Vec<_>>>()?;
        worst = worst.max(polygrad_judging::difference(&found, &tensors(file, "output", round)?)?);
    }
    Ok(worst)
}
