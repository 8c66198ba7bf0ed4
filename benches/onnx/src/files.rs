//! Files of anybody, each beside the first: by Polygrad and by ONNX Runtime, or where Polygrad's time goes.

use std::path::PathBuf;

use polygrad_core::{DType, Distribution, Error, HostTensor, RandomKey, Result, Shape, random_host};
use polygrad_nn::profile::Profiler;
use polygrad_onnx::OnnxModel;
use polygrad_onnx::graph::{Dim, TensorType, ValueType};
use polygrad_tensor::Device;

use crate::engines::{Engine, Native, OnnxRuntime};
use crate::{Arguments, difference, measure, turn};

/// Extents that a file leaves open, apart from the first, which is the batch.
const LENGTH: usize = 64;
/// Ids of tokens are below it.
const TOKENS: i64 = 1000;
/// Runs that a profile counts.
const RUNS: usize = 20;

/// Prints a table: times, and how much of the first file's time each file takes here, and of ONNX Runtime's.
pub fn all(arguments: &Arguments, device: &Device) -> Result<()> {
    if !arguments.profile {
        println!("| file | batch | ours, µs | ort, µs | ours / the first | ours / ort | off by |");
        println!("|---|---|---|---|---|---|---|");
    }
    let clock = arguments.clock;
    for &batch in &arguments.batches {
        let mut first = None;
        for path in &arguments.files {
            let inputs = inputs(path, batch, device)?;
            let mut native = Native::load(path, &inputs, device)?;
            if arguments.profile {
                profile(path, &mut native)?;
                continue;
            }
            let mut ort = OnnxRuntime::load(path, &inputs)?;
            let off = difference(&ort.logits()?, &native.logits()?);
            let times = measure(vec![turn(&mut native, clock), turn(&mut ort, clock)], arguments.seconds)?;
            let [ours, theirs] = [0, 1].map(|i| clock.typical(&times[i]));
            let one = *first.get_or_insert(ours);
            let (name, share, beside) = (path.display(), ours / one, ours / theirs);
            println!("| {name} | {batch} | {ours:.0} | {theirs:.0} | {share:.2} | {beside:.2} | {off:.0e} |");
        }
    }
    Ok(())
}

fn profile(path: &PathBuf, native: &mut Native) -> Result<()> {
    (0..RUNS).try_for_each(|_| native.run())?;
    let mut profiler = Profiler::new();
    (0..RUNS).try_for_each(|_| profiler.step(|| native.run()))?;
    println!("{}\n{}", path.display(), profiler.finish().ops(30));
    Ok(())
}

/// Random inputs of the types that a file gives: normal floats, tokens, masks without padding, one segment.
fn inputs(path: &PathBuf, batch: usize, device: &Device) -> Result<Vec<(String, HostTensor)>> {
    let model = OnnxModel::load(path, device)?;
    let made = model.inputs().enumerate().map(|(i, (name, ty))| {
        let Some(ValueType::Tensor(TensorType {
            element,
            shape: Some(dims),
        })) = ty
        else {
            return Err(Error::invalid(format!(
                "{} gives no type of its input {name:?}",
                path.display()
            )));
        };
        let extent = |(axis, dim): (usize, &Dim)| match dim {
            Dim::Fixed(extent) => *extent,
            _ if axis == 0 => batch,
            _ => LENGTH,
        };
        let shape = Shape::new(&dims.iter().enumerate().map(extent).collect::<Vec<_>>())?;
        let key = RandomKey {
            seed: 100 + i as u64,
            offset: 0,
        };
        let (low, high) = match name {
            _ if name.contains("mask") => (1, 2),
            _ if name.contains("type") => (0, 1),
            _ => (0, TOKENS),
        };
        let distribution = match element.dtype()? {
            DType::I64 => Distribution::Integers { low, high },
            DType::F32 => Distribution::Normal { mean: 0.0, std: 1.0 },
            other => {
                return Err(Error::invalid(format!(
                    "input {name:?} is {other}, neither i64 nor f32"
                )));
            }
        };
        Ok((
            name.to_owned(),
            random_host(shape, distribution, element.dtype()?, key)?,
        ))
    });
    made.collect()
}
