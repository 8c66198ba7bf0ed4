//! `polygrad run`: runs a model in an ONNX file.

use std::time::Instant;

use polygrad::backend::printable;
use polygrad::{Device, ErrorKind, no_grad};
use polygrad_onnx::graph::{Literal, ValueType};
use polygrad_onnx::{Engine, OnnxModel, Options, Value};

use super::args::Run;
use super::extents::Extents;
use super::input::Wanted;
use super::{about_file, arrays, must_exist, told};
use crate::backend;
use crate::failure::{Failure, Result};
use crate::outcome::Outcome;
use crate::progress::say;

/// Runs a model on the given inputs, and prints the outputs or writes them to a file.
///
/// # Errors
/// A model, an engine or inputs that are missing or damaged, or do not fit together; errors of the device.
pub(crate) fn command(args: &Run) -> Result<Outcome> {
    if let Some(output) = args.output.as_ref().filter(|output| !arrays::is_npz(output)) {
        return Err(Failure::new(format!("--output {} is no .npz file", output.display()))
            .fix("outputs are several arrays by name: give a path that ends in .npz"));
    }
    let engine: Engine = args.engine.parse()?;
    let on_device = if engine == Engine::Native { args.threads } else { None };
    let device = backend::open(&args.backend, on_device)?;
    let mut options = Options {
        engine,
        threads: args.threads,
        ..Options::default()
    };
    if let Some(bytes) = args.max_memory {
        // A single tensor may take as much as all together.
        (options.max_memory_bytes, options.max_tensor_bytes) = (bytes, bytes);
    }
    options.max_steps = args.max_steps.unwrap_or(options.max_steps);
    must_exist(&args.model)?;
    let model = OnnxModel::load_with(&args.model, &device, options).map_err(about_file)?;
    if let Some(path) = &args.output {
        arrays::check_names(path, model.outputs().map(|(name, _)| name))?;
    }
    let inputs = inputs(args, &model, options.max_memory_bytes)?;
    let outputs = no_grad(|| forward(&model, &inputs))?;
    if let Some(path) = &args.output {
        arrays::check_names(path, outputs.iter().map(|(name, _)| name.as_str()))?;
    }
    for (name, literal) in &outputs {
        say(&printable(&summary(name, literal)));
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

fn inputs(args: &Run, model: &OnnxModel, most: usize) -> Result<Vec<(String, Value)>> {
    let known = || {
        model
            .inputs()
            .chain(model.optional_inputs().map(|(name, ty, _)| (name, ty)))
    };
    let types = known().filter_map(|(_, ty)| ty?.as_tensor());
    let extents = Extents::given(&args.dim, types, None)?;
    let mut values: Vec<(String, Value)> = Vec::with_capacity(args.input.len());
    for (i, given) in args.input.iter().enumerate() {
        let (name, source) = given.parts(|name| known().any(|(known, _)| known == name));
        if values.iter().any(|(earlier, _)| earlier == name) {
            return Err(Failure::new(format!("the input {name:?} is given twice")).fix("give it once"));
        }
        let Some((_, ty)) = known().find(|(known, _)| *known == name) else {
            let names: Vec<&str> = known().map(|(name, _)| name).collect();
            return Err(Failure::new(format!("the model has no input {name:?}"))
                .fix(format!("its inputs are {}", printable(&names.join(", ")))));
        };
        let ty = ty.and_then(ValueType::as_tensor).ok_or_else(|| {
            Failure::new(format!("the input {name:?} is no tensor"))
                .fix("run this model from Rust, with OnnxModel::run")
        })?;
        let wanted = Wanted {
            name,
            ty,
            extents: &extents,
            most,
        };
        // Moved to the device before the clock starts.
        let host = wanted.values(source, i as u64)?;
        let value = match model.engine() {
            Engine::Native => Value::from(polygrad::Tensor::from_host(host, model.device())?),
            _ => Value::from(host),
        };
        values.push((name.to_owned(), value));
    }
    Ok(values)
}

fn forward(model: &OnnxModel, inputs: &[(String, Value)]) -> Result<Vec<(String, Literal)>> {
    let outputs = model.run(inputs.iter().cloned()).map_err(about_run)?;
    let mut all = Vec::with_capacity(outputs.len());
    outputs
        .iter()
        .try_for_each(|(name, value)| arrays_of(name, value, &mut all))?;
    Ok(all)
}

/// Adds an output. Elements of a sequence are arrays with their number behind the name, and maps are a table and its
/// `keys`.
fn arrays_of(name: &str, value: &Value, all: &mut Vec<(String, Literal)>) -> Result<()> {
    if let Some(values) = value.as_sequence() {
        let mut values = values.iter().enumerate();
        return values.try_for_each(|(i, value)| arrays_of(&format!("{name}.{i}"), value, all));
    }
    all.push((name.to_owned(), value.literal()?));
    all.extend(value.keys().map(|keys| (format!("{name}.keys"), keys.clone())));
    Ok(())
}

/// A hint if the model fails on its inputs.
fn about_run(error: polygrad::Error) -> Failure {
    let fix = match error.kind() {
        ErrorKind::OutOfMemory => "free some memory, or run the model on less at a time",
        _ => "see with `polygrad show` what the model takes, or try another --engine",
    };
    told(error, fix)
}

fn summary(name: &str, literal: &Literal) -> String {
    let host = literal.host();
    if let Some(texts) = literal.texts() {
        let first: Vec<&str> = texts.iter().take(4).map(|text| &**text).collect();
        let more = if texts.len() > first.len() { ", …" } else { "" };
        return format!("{name}: string{}  {}{more}", host.shape(), first.join(", "));
    }
    let line = match literal.element() {
        element if element.is_widened() => format!("{name}: {element}{}", host.shape()),
        _ => format!("{name}: {}{}", host.dtype(), host.shape()),
    };
    let count = host.shape().numel();
    if count == 0 {
        return line;
    }
    let (mut low, mut high, mut sum, mut strange) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0usize);
    host.each_f64(|v| {
        (low, high, sum) = (low.min(v), high.max(v), sum + v);
        strange += usize::from(!v.is_finite());
    });
    let mean = sum / count as f64;
    let strange = if strange == 0 {
        String::new()
    } else {
        format!(", {strange} not finite")
    };
    // Not through f64, which rounds beyond 2⁵³.
    let extremes = host.as_slice::<i64>().ok();
    let extremes = extremes.and_then(|values| Some((values.iter().min()?, values.iter().max()?)));
    match extremes {
        Some((low, high)) => format!("{line}  {low} to {high}, mean {mean:.6}"),
        None => format!("{line}  {low:.6} to {high:.6}, mean {mean:.6}{strange}"),
    }
}

/// Called after a first run, so that one-time work is done.
fn time(model: &OnnxModel, inputs: &[(String, Value)], times: usize, engine: Engine, device: &Device) -> Result<()> {
    let mut taken = Vec::new();
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

#[cfg(test)]
mod tests {
    use polygrad::Shape;
    use polygrad::backend::HostTensor;

    use super::*;

    #[test]
    fn large_integers_are_shown_as_they_are() {
        let values = vec![(1i64 << 53) + 1, i64::MAX];
        let text = summary("y", &HostTensor::new(Shape::from([2]), values).unwrap().into());
        assert!(text.contains("9007199254740993 to 9223372036854775807"), "{text}");
    }
}
