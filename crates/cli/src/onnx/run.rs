//! `polygrad run`: what a model in an ONNX file computes.

use std::time::Instant;

use polygrad::backend::HostTensor;
use polygrad::{Device, no_grad};
use polygrad_onnx::{Engine, OnnxModel, Options, Value};

use super::extents::Extents;
use super::{about_file, arrays, must_exist};
use crate::args::Run;
use crate::failure::{Failure, Result};
use crate::progress::say;
use crate::{Outcome, backend};

/// Runs a model on the given inputs; says what comes out, or writes it to a file.
///
/// # Errors
/// A model, an engine or inputs that are missing or damaged, or do not fit together; those of the device.
pub(crate) fn command(args: &Run) -> Result<Outcome> {
    if let Some(output) = args.output.as_ref().filter(|output| !arrays::is_npz(output)) {
        return Err(Failure::new(format!("--output {} is no .npz file", output.display()))
            .fix("outputs are several arrays by name: give a path that ends in .npz"));
    }
    let engine: Engine = args.engine.parse()?;
    let on_device = if engine == Engine::Native { args.threads } else { None };
    let device = backend::open(&args.backend, on_device)?;
    let options = Options {
        engine,
        threads: args.threads,
        ..Options::default()
    };
    must_exist(&args.model)?;
    let model = OnnxModel::load_with(&args.model, &device, options).map_err(about_file)?;
    let inputs = inputs(args, &model)?;
    let outputs = no_grad(|| forward(&model, &inputs))?;
    for (name, host) in &outputs {
        say(&summary(name, host));
    }
    if let Some(path) = &args.output {
        arrays::save(path, &outputs)?;
        say(&format!("written: {}", path.display()));
    }
    if let Some(times) = args.time {
        no_grad(|| time(&model, &inputs, times, engine, &device))?;
    }
    Ok(Outcome::Done)
}

fn inputs(args: &Run, model: &OnnxModel) -> Result<Vec<(String, Value)>> {
    let extents = Extents::new(&args.dim);
    let mut values = Vec::with_capacity(args.input.len());
    for (i, given) in args.input.iter().enumerate() {
        let name = &given.name;
        if args.input[..i].iter().any(|earlier| earlier.name == *name) {
            return Err(Failure::new(format!("the input {name:?} is given twice")).fix("give it once"));
        }
        let known = model.inputs().find(|(known, _)| known == name);
        let Some((_, ty)) = known else {
            let names: Vec<&str> = model.inputs().map(|(name, _)| name).collect();
            return Err(Failure::new(format!("the model has no input {name:?}"))
                .fix(format!("its inputs are {}", names.join(", "))));
        };
        let ty = ty.and_then(|ty| ty.as_tensor()).ok_or_else(|| {
            Failure::new(format!("the input {name:?} is no tensor"))
                .fix("run this model from Rust, with OnnxModel::run")
        })?;
        // On the device before the clock starts.
        let host = given.values(ty, &extents, i as u64)?;
        let value = match model.engine() {
            Engine::Native => Value::from(polygrad::Tensor::from_host(host, model.device())?),
            _ => Value::from(host),
        };
        values.push((name.clone(), value));
    }
    Ok(values)
}

fn forward(model: &OnnxModel, inputs: &[(String, Value)]) -> Result<Vec<(String, HostTensor)>> {
    let outputs = model.run(inputs.iter().cloned()).map_err(about_run)?;
    let outputs = outputs.iter().map(|(name, value)| Ok((name.to_owned(), value.host()?)));
    outputs.collect()
}

/// What is left to do when the model does not run on what it was given.
fn about_run(error: polygrad::Error) -> Failure {
    let known = error.hint().is_some();
    let failure = Failure::from(error);
    match known {
        true => failure,
        false => failure.fix("see with `polygrad show` what the model takes, or try another --engine"),
    }
}

fn summary(name: &str, host: &HostTensor) -> String {
    let values = host.to_f64_vec();
    let line = format!("{name}: {}{}", host.dtype(), host.shape());
    if values.is_empty() {
        return line;
    }
    let (low, high) = values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &v| {
            (low.min(v), high.max(v))
        });
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let strange = values.iter().filter(|v| !v.is_finite()).count();
    let strange = if strange == 0 {
        String::new()
    } else {
        format!(", {strange} not finite")
    };
    format!("{line}  {low:.6} to {high:.6}, mean {mean:.6}{strange}")
}

/// The first run is behind us: what is done once has been done.
fn time(model: &OnnxModel, inputs: &[(String, Value)], times: usize, engine: Engine, device: &Device) -> Result<()> {
    let mut taken = Vec::with_capacity(times);
    for _ in 0..times {
        let start = Instant::now();
        forward(model, inputs)?;
        taken.push(start.elapsed().as_secs_f64() * 1e3);
    }
    taken.sort_by(f64::total_cmp);
    let place = match engine {
        Engine::Native => device.to_string(),
        other => other.title().to_owned(),
    };
    say(&format!(
        "{times} runs on {place}: median {:.3} ms, fastest {:.3} ms, slowest {:.3} ms",
        taken[times / 2],
        taken[0],
        taken[times - 1]
    ));
    Ok(())
}
