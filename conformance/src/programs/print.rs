//! Programs in Rust: a standalone test that fails where the program does.

use std::fmt::Write as _;

use polygrad_core::{DType, HostTensor, Result};

use super::forms::Form;
use super::json::Kept;
use super::program::{Dtypes, Program, Role};
use super::run::WEIGHTS;
use super::truth::{Question, Truth};

impl Kept {
    /// A test of the public API that fails on this device as the program does. It prints the results beside the correct
    /// ones.
    ///
    /// # Errors
    /// If an argument is missing, which only happens in programs that were edited by hand.
    pub fn to_rust(&self, device: &str) -> Result<String> {
        let dtypes = Dtypes {
            tested: self.tested,
            wide: false,
        };
        let program = &self.program;
        let form = self.failure.form.unwrap_or(Form::Eager);
        let mut out = String::new();
        for line in self.failure.reason.lines() {
            let _ = writeln!(out, "// {line}");
        }
        out.push_str("use polygrad::backend::{ArgOp, BinaryOp, CompareOp, ConvParams, CrossEntropyParams, Error, PoolParams, SliceRange};\n");
        out.push_str("use polygrad::nn::loss;\n");
        out.push_str("use polygrad::tensor::{Attention, BackwardOptions, Capture, Compiled, InterpolateMode, PadMode, Resize};\n");
        out.push_str("use polygrad::{DType, Device, Result, Tensor};\n\n#[test]\nfn program() -> Result<()> {\n");
        let _ = writeln!(out, "    let device = Device::new({device:?})?;");
        let (arguments, names) = signature(program);
        let _ = writeln!(out, "    let program = |{arguments}| -> Result<Vec<Tensor>> {{");
        out.push_str(&body(program, dtypes, form)?);
        out.push_str("    };\n");
        let sets: &[u64] = match form {
            Form::Eager | Form::Exported => &[0],
            Form::Captured => &[0, 0, 1, 0],
            Form::Compiled | Form::Trained => &[0, 1],
        };
        if form == Form::Captured {
            out.push_str("    let mut capture: Capture = Capture::new();\n");
        }
        for &set in sets {
            out.push_str("    {\n");
            for (name, host) in names.iter().zip(program.numbers(set, dtypes)?) {
                let _ = writeln!(out, "        let {name} = {};", literal(&host));
            }
            let listed = names.join(", ");
            let references: Vec<String> = names.iter().map(|name| format!("&{name}")).collect();
            let call = format!("program({})", references.join(", "));
            match form {
                Form::Captured => {
                    let _ = writeln!(
                        out,
                        "        let inputs = vec![{}];\n        let (outputs, ()) = capture.run(0, inputs, || Ok(({call}?, ())))?;",
                        names
                            .iter()
                            .map(|name| format!("{name}.clone()"))
                            .collect::<Vec<_>>()
                            .join(", ")
                    );
                }
                Form::Compiled => {
                    let data = names
                        .iter()
                        .zip(&program.inputs)
                        .filter(|(_, input)| input.role == Role::Data);
                    let data: Vec<String> = data.map(|(name, _)| format!("{name}.clone()")).collect();
                    let data = data.join(", ");
                    let _ = writeln!(
                        out,
                        "        let compiled = Compiled::new(&[{data}], || {call})?;\n        let outputs = compiled.run(&[{data}])?;"
                    );
                }
                Form::Eager | Form::Trained | Form::Exported => {
                    let _ = writeln!(out, "        let outputs = {call}?; // of {listed}");
                }
            }
            out.push_str("        for output in &outputs {\n            println!(\"{output}\");\n        }\n");
            if let Ok(truth) = Truth::find(program, Question::Values(set), self.tested) {
                for (name, right) in truth.right.names.iter().zip(&truth.right.values) {
                    let numbers = right.to_f64_vec();
                    let shown = &numbers[..numbers.len().min(16)];
                    let _ = writeln!(out, "        // {name} is {shown:?}");
                }
            }
            out.push_str("    }\n");
        }
        if form == Form::Exported {
            out.push_str("    // What fails is the file that it is exported to.\n");
        }
        if let (Form::Trained, Some(trainer)) = (form, program.trainer) {
            let _ = writeln!(
                out,
                "    // What fails is TrainStep::new(…).captured() with {} on it.",
                trainer.name()
            );
        }
        out.push_str("    Ok(())\n}\n");
        Ok(out)
    }
}

fn signature(program: &Program) -> (String, Vec<String>) {
    let names: Vec<String> = (0..program.inputs.len()).map(|i| format!("v{i}")).collect();
    let arguments: Vec<String> = names.iter().map(|name| format!("{name}: &Tensor")).collect();
    (arguments.join(", "), names)
}

fn body(program: &Program, dtypes: Dtypes, form: Form) -> Result<String> {
    let mut out = String::new();
    let with_gradients = program.order > 0 && form != Form::Compiled;
    for (i, input) in program.inputs.iter().enumerate() {
        let leaf = match input.role {
            Role::Leaf if with_gradients => ".requires_grad()?",
            _ => "",
        };
        let _ = writeln!(out, "        let v{i} = v{i}.detach(){leaf};");
    }
    let first = program.first_results();
    for (i, step) in program.steps.iter().enumerate() {
        let operands: Vec<String> = step.operands.iter().map(|operand| format!("v{operand}")).collect();
        let source = step.call.source(&operands, &step.args, dtypes)?;
        let results: Vec<String> = (first[i]..first[i] + step.results)
            .map(|value| format!("v{value}"))
            .collect();
        let is_list = matches!(step.call.name, "chunk" | "unbind");
        let _ = match (&results[..], is_list) {
            ([one], false) => writeln!(out, "        let {one} = {source}?;"),
            (several, false) => writeln!(out, "        let ({}) = {source}?;", several.join(", ")),
            (several, true) => {
                let parts = several
                    .iter()
                    .enumerate()
                    .map(|(k, name)| format!("let {name} = parts[{k}].clone();"));
                let parts: Vec<String> = parts.collect();
                writeln!(out, "        let parts = {source}?;\n        {}", parts.join(" "))
            }
        };
    }
    let outputs: Vec<String> = program.outputs.iter().map(|output| format!("v{output}")).collect();
    let cloned: Vec<String> = outputs.iter().map(|output| format!("{output}.clone()")).collect();
    if !with_gradients {
        let _ = writeln!(out, "        Ok(vec![{}])", cloned.join(", "));
        return Ok(out);
    }
    let _ = writeln!(out, "        let outputs = vec![{}];", cloned.join(", "));
    let _ = write!(
        out,
        "        // Each element times a number of its own, in turn.
        let objective = |tensors: &[Tensor]| -> Result<Tensor> {{
            let mut total = Tensor::zeros((), (&device, DType::{:?}))?;
            for (i, x) in tensors.iter().enumerate().filter(|(_, x)| x.is_tracked() && x.dtype().is_float()) {{
                let weights: Vec<f64> = (0..x.numel()).map(|k| {WEIGHTS:?}[(k + i) % {}]).collect();
                let weights = Tensor::from_vec(weights, x.shape(), &device)?.to_dtype(x.dtype())?;
                total = total.add(&x.mul(&weights)?.sum_all()?.to_dtype(total.dtype())?)?;
            }}
            Ok(total)
        }};
        let gradients = objective(&outputs)?.backward_with(&BackwardOptions::default().create_graph({}))?;
",
        dtypes.tested,
        WEIGHTS.len(),
        program.order > 1
    );
    let leaves = program
        .inputs
        .iter()
        .enumerate()
        .filter(|(_, input)| input.role == Role::Leaf);
    let leaves: Vec<String> = leaves.map(|(i, _)| format!("&v{i}")).collect();
    let leaves = leaves.join(", ");
    let _ = write!(
        out,
        "        let first: Vec<Tensor> = [{leaves}].iter().filter_map(|x| gradients.get(*x).cloned()).collect();
        let mut all: Vec<Tensor> = outputs.iter().chain(&first).map(Tensor::detach).collect();
"
    );
    if program.order > 1 {
        let _ = write!(
            out,
            "        if first.iter().any(Tensor::is_tracked) {{
            let gradients = objective(&first)?.backward()?;
            all.extend([{leaves}].iter().filter_map(|x| gradients.get(*x).cloned()));
        }}
"
        );
    }
    out.push_str("        Ok(all)\n");
    Ok(out)
}

/// A tensor in Rust.
fn literal(host: &HostTensor) -> String {
    let shape: Vec<String> = host.shape().dims().iter().map(usize::to_string).collect();
    let shape = if shape.is_empty() {
        "()".to_owned()
    } else {
        format!("[{}]", shape.join(", "))
    };
    let numbers = host.to_f64_vec();
    let dtype = host.dtype();
    let values = match dtype {
        DType::Bool | DType::U8 | DType::I32 | DType::I64 => {
            let whole: Vec<i64> = numbers.iter().map(|x| *x as i64).collect();
            format!("{whole:?} as [i64; {}]", numbers.len())
        }
        _ => format!("{numbers:?} as [f64; {}]", numbers.len()),
    };
    format!("Tensor::from_slice(&({values}), {shape}, &device)?.to_dtype(DType::{dtype:?})?")
}
