//! Checks that replayed runs give the same bits and errors as the plan, also on values that were not recorded.

use polygrad_onnx::graph::{Graph, Literal};
use polygrad_onnx::{OnnxModel, Options, Value};
use polygrad_tensor::{Device, Result, Tensor, manual_seed};

use super::{Archive, Case};

/// The fewest runs that must be replayed. It is low, since a device may lack dtypes.
const LEAST_REPLAYED: usize = 400;

pub(super) fn check(archive: &Archive, device: &Device) -> std::result::Result<(), String> {
    let (mut replayed, mut wrong) = (0, Vec::new());
    for case in &archive.cases {
        for on_device in [false, true] {
            match compare(archive, case, device, on_device) {
                Ok(ready) => replayed += usize::from(ready),
                Err(error) => wrong.push(format!("{}, on the device {on_device}: {error}", case.name)),
            }
        }
    }
    if replayed < LEAST_REPLAYED {
        wrong.push(format!("only {replayed} of {} are replayed", 2 * archive.cases.len()));
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n")),
    }
}

/// Returns whether there was a replay.
fn compare(archive: &Archive, case: &Case, device: &Device, on_device: bool) -> std::result::Result<bool, String> {
    let load = |replay| {
        let options = Options {
            replay,
            max_steps: 1 << 20,
            max_tensor_bytes: 1 << 28,
            ..Options::default()
        };
        Graph::from_bytes(case.model.clone()).and_then(|graph| OnnxModel::from_graph(&graph, device, options))
    };
    let (Ok(plan), Ok(model)) = (load(false), load(true)) else {
        return Ok(false);
    };
    let mut ready = false;
    for (inputs, _) in &case.sets {
        let place = |value: Value| match value.shape() {
            Some(_) if on_device && value.texts().is_none() => value.tensor(device).map(Value::from),
            _ => Ok(value),
        };
        let given = inputs.iter().map(|item| place(archive.value(item)?));
        let Ok(given) = given.collect::<Result<Vec<Value>>>() else {
            continue;
        };
        let turned = given.iter().map(|value| turned(value).and_then(place));
        let turned = turned.collect::<Result<Vec<Value>>>().map_err(|e| e.to_string())?;
        for values in [&given, &given, &given, &turned, &given] {
            let run = |model: &OnnxModel| {
                manual_seed(3);
                model.run_ordered(values.iter().cloned())
            };
            match (run(&plan), run(&model)) {
                (Ok(a), Ok(b)) => {
                    for ((name, a), (_, b)) in a.iter().zip(b.iter()) {
                        same(a, b).map_err(|e| format!("output {name}: {e}"))?;
                    }
                }
                (Err(a), Err(b)) if a.to_string() == b.to_string() => {}
                (a, b) => return Err(format!("{:?} and not {:?}", b.map(|_| ()), a.map(|_| ()))),
            }
        }
        ready |= model.replays() > 0;
    }
    Ok(ready)
}

/// The same elements in reverse order: masks, indices and extents stay valid.
fn turned(value: &Value) -> Result<Value> {
    if value.shape().is_none() {
        return Ok(value.clone());
    }
    let literal = value.literal()?;
    if let Some(texts) = literal.texts() {
        let texts = texts.iter().rev().cloned().collect();
        return Ok(Literal::text(*literal.host().shape(), texts)?.into());
    }
    let nowhere = Device::<polygrad_reference::Reference>::default().into_any();
    let x = Tensor::from_host(literal.host().clone(), &nowhere)?;
    let turned = x.reshape([x.numel()])?.flip([0])?.reshape(x.shape())?;
    Ok(Literal::new(literal.element(), turned.to_host()?)?.into())
}

fn same(a: &Value, b: &Value) -> std::result::Result<(), String> {
    if let (Some(a), Some(b)) = (a.as_sequence(), b.as_sequence()) {
        let pairs = a.iter().zip(b);
        return pairs.into_iter().try_for_each(|(a, b)| same(a, b));
    }
    let told = |value: &Value| (value.shape(), value.element());
    if told(a) != told(b) {
        return Err(format!("{:?} became {:?}", told(a), told(b)));
    }
    if a.shape().is_none() {
        return Ok(());
    }
    if a.texts().is_some() {
        return match a.texts() == b.texts() {
            true => Ok(()),
            false => Err(format!("{a:?} became {b:?}")),
        };
    }
    let host = |value: &Value| value.host().map_err(|e| e.to_string());
    match host(a)?.bytes() == host(b)?.bytes() {
        true => Ok(()),
        false => Err(format!("{:?} became {:?}", host(a)?, host(b)?)),
    }
}
