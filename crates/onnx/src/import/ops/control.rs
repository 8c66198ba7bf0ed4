//! Bodies that run conditionally or repeatedly, and sequences and optionals.

use polygrad_core::{DType, Error, HostTensor, Result};
use polygrad_tensor::Tensor;
use smallvec::smallvec;

use super::row::{Row, rows};
use crate::graph::malformed;
use crate::import::call::{Call, HANDLE, List, Operands, Results, axis, sizes};
use crate::import::value::Value;

rows! {
    Row::new("If", 1, branch);
    Row::new("Loop", 1, repeat);
    Row::new("Scan", 8, |c| if c.version < 9 { scan_batches(c) } else { scan(c) });
    Row::new("SequenceMap", 17, sequence_map);
    Row::new("SequenceConstruct", 11, |c| Ok(smallvec![Value::sequence(c.inputs.iter().flatten().cloned().collect())]));
    Row::new("SequenceEmpty", 11, |_| Ok(smallvec![Value::sequence(Vec::new())]));
    Row::new("SequenceLength", 11, |c| Ok(smallvec![c.known(vec![list(c, 0)?.len() as i64], &[])?]));
    Row::new("SequenceAt", 11, |c| {
        let values = list(c, 0)?;
        Ok(smallvec![values[place(c, 1, values.len())?].clone()])
    });
    Row::new("SequenceInsert", 11, |c| {
        let mut values = list(c, 0)?.to_vec();
        let at = if c.has(2) { place(c, 2, values.len() + 1)? } else { values.len() };
        values.insert(at, c.need(1)?.clone());
        Ok(smallvec![Value::sequence(values)])
    });
    Row::new("SequenceErase", 11, |c| {
        let mut values = list(c, 0)?.to_vec();
        let at = if c.has(1) { place(c, 1, values.len())? } else { values.len().wrapping_sub(1) };
        if at >= values.len() {
            return Err(malformed("there is nothing to take out of an empty sequence"));
        }
        values.remove(at);
        Ok(smallvec![Value::sequence(values)])
    });
    Row::new("SplitToSequence", 11, split_to_sequence);
    Row::new("ConcatFromSequence", 11, concat_from_sequence);
    Row::new("Optional", 15, |c| Ok(smallvec![c.value(0).cloned().unwrap_or_else(Value::absent)]));
    Row::new("OptionalHasElement", 15, |c| {
        let has = c.value(0).is_some_and(|value| !value.is_absent());
        Ok(smallvec![HostTensor::scalar(has).into()])
    });
    Row::new("OptionalGetElement", 15, |c| match c.need(0)? {
        value if value.is_absent() => Err(malformed("an empty optional was asked for its value")),
        value => Ok(smallvec![value.clone()]),
    });
}

fn list<'c>(c: &'c Call<'_>, i: usize) -> Result<&'c [Value]> {
    c.need(i)?
        .as_sequence()
        .ok_or_else(|| malformed(format!("operand {i} is no sequence")))
}

/// The position in an operand, counted from the front.
fn place(c: &Call<'_>, i: usize, len: usize) -> Result<usize> {
    let at = c.int_scalar(i)?;
    let front = if at < 0 { at.checked_add(len as i64) } else { Some(at) };
    let found = front.and_then(|at| usize::try_from(at).ok()).filter(|&at| at < len);
    found.ok_or_else(|| Error::out_of_range(format!("position {at} of a sequence with {len} places")))
}

fn truth(value: &Value) -> Result<bool> {
    let host = value.host()?;
    if host.shape().numel() != 1 {
        return Err(Error::shape(format!("a condition of shape {}", host.shape())));
    }
    let mut truth = false;
    host.each_f64(|value| truth = value != 0.0);
    Ok(truth)
}

fn branch(c: &Call<'_>) -> Results {
    let name = if truth(c.need(0)?)? {
        "then_branch"
    } else {
        "else_branch"
    };
    c.bodies.run(name, Operands::new())
}

/// The tensors of all iterations, stacked along a new axis.
fn stacked(c: &Call<'_>, turns: Vec<Value>, axis: isize) -> Result<Value> {
    let Some(first) = turns.first() else {
        // Without an iteration the shape is unknown.
        return Ok(c.full(&[0], 0.0, DType::F32)?.into());
    };
    let element = first.element();
    let bytes = turns.iter().map(Value::bytes).fold(0, usize::saturating_add);
    c.limits.check_bytes(bytes)?;
    let tensors: Vec<Tensor> = turns
        .iter()
        .map(|value| value.tensor(c.device))
        .collect::<Result<_>>()?;
    let stack: Value = Tensor::stack(&tensors.iter().collect::<Vec<_>>(), axis)?.into();
    Ok(match element {
        Some(element) => stack.with_element(element),
        None => stack,
    })
}

fn repeat(c: &Call<'_>) -> Results {
    let turns = match c.value(0) {
        Some(_) => c.int_scalar(0)?,
        None => i64::MAX,
    };
    let mut go_on = match c.value(1) {
        Some(value) => truth(value)?,
        None => true,
    };
    let missing = || malformed("a value that the loop starts with is missing");
    let start = c.inputs.get(2..).unwrap_or(&[]).iter();
    let mut carried: Vec<Value> = start
        .map(|value| value.clone().ok_or_else(missing))
        .collect::<Result<_>>()?;
    let count = carried.len();
    let mut collected: Vec<Vec<Value>> = vec![Vec::new(); c.node.outputs.len().saturating_sub(count)];
    let (mut turn, mut collected_bytes) = (0i64, 0usize);
    let mut held = c.limits.hold();
    while go_on && turn < turns {
        c.limits.step()?;
        let mut inputs = vec![HostTensor::scalar(turn).into(), HostTensor::scalar(go_on).into()];
        inputs.append(&mut carried);
        let mut results = c.bodies.run("body", inputs.into())?.into_iter();
        go_on = truth(&results.next().ok_or_else(|| malformed("the body gives no condition"))?)?;
        carried = results.by_ref().take(count).collect();
        if carried.len() != count {
            return Err(malformed(format!(
                "the body gives {} values, not the {count} that it takes",
                carried.len()
            )));
        }
        for (list, value) in collected.iter_mut().zip(results) {
            collected_bytes = collected_bytes.saturating_add(value.bytes());
            list.push(value);
        }
        let lists = carried.iter().filter(|value| value.as_sequence().is_some());
        c.limits
            .check_bytes(lists.map(Value::bytes).fold(collected_bytes, usize::saturating_add))?;
        held.set(
            carried
                .iter()
                .map(Value::bytes)
                .fold(collected_bytes, usize::saturating_add),
        )?;
        turn += 1;
    }
    let stacks = collected
        .into_iter()
        .map(|turns| stacked(c, turns, 0))
        .collect::<Result<Vec<_>>>()?;
    Ok(carried.into_iter().chain(stacks).collect())
}

fn scan(c: &Call<'_>) -> Results {
    let scanned = c.count("num_scan_inputs", 1)?;
    let states = c
        .inputs
        .len()
        .checked_sub(scanned)
        .ok_or_else(|| malformed("there are too few operands"))?;
    let mut carried: Vec<Value> = (0..states).map(|i| c.need(i).cloned()).collect::<Result<_>>()?;
    let numbers = |name: &str, count: usize| match c.int_list(name)? {
        None => Ok(vec![0; count]),
        Some(list) if list.len() == count => Ok(list.to_vec()),
        Some(list) => Err(malformed(format!("{name} {list:?} for {count} operands or results"))),
    };
    let outputs = c.node.outputs.len().saturating_sub(states);
    let (in_axes, in_directions) = (
        numbers("scan_input_axes", scanned)?,
        numbers("scan_input_directions", scanned)?,
    );
    let (out_axes, out_directions) = (
        numbers("scan_output_axes", outputs)?,
        numbers("scan_output_directions", outputs)?,
    );
    let mut inputs = Vec::with_capacity(scanned);
    let mut turns = None;
    for (i, &along) in in_axes.iter().enumerate() {
        let x = c.x(states + i)?;
        let axis = axis(along, x.rank())?;
        let extent = x.shape()[axis];
        if *turns.get_or_insert(extent) != extent {
            return Err(Error::shape("what is scanned is not equally long"));
        }
        inputs.push((x, axis as isize, c.element(states + i)?));
    }
    let turns = turns.unwrap_or(0);
    let mut collected: Vec<Vec<Value>> = vec![Vec::new(); outputs];
    let mut collected_bytes = 0usize;
    let mut held = c.limits.hold();
    for turn in 0..turns {
        c.limits.step()?;
        let mut now = std::mem::take(&mut carried);
        for ((x, axis, element), &backwards) in inputs.iter().zip(&in_directions) {
            let at = if backwards != 0 { turns - 1 - turn } else { turn };
            now.push(Value::from(x.select(*axis, at as isize)?).with_element(*element));
        }
        let mut results = c.bodies.run("body", now.into())?.into_iter();
        carried = results.by_ref().take(states).collect();
        if carried.len() != states {
            return Err(malformed(format!(
                "the body gives {} states, not {states}",
                carried.len()
            )));
        }
        for (list, value) in collected.iter_mut().zip(results) {
            collected_bytes = collected_bytes.saturating_add(value.bytes());
            list.push(value);
        }
        c.limits.check_bytes(collected_bytes)?;
        held.set(
            carried
                .iter()
                .map(Value::bytes)
                .fold(collected_bytes, usize::saturating_add),
        )?;
    }
    let mut results = carried;
    for (i, mut turns) in collected.into_iter().enumerate() {
        if out_directions[i] != 0 {
            turns.reverse();
        }
        results.push(stacked(c, turns, out_axes[i] as isize)?);
    }
    Ok(results.into())
}

/// Scan of version 8: each sample of a batch separately, with states `[N, …]` and sequences `[N, T, …]`.
fn scan_batches(c: &Call<'_>) -> Results {
    let scanned = c.count("num_scan_inputs", 1)?;
    if c.has(0)
        || c.int_list("directions")?
            .is_some_and(|list| list.iter().any(|&backwards| backwards != 0))
    {
        return Err(Error::unsupported("Scan of version 8 with lengths or directions")
            .with_hint("convert the model to version 9"));
    }
    let operands = (1..c.inputs.len()).map(|i| c.x(i)).collect::<Result<Vec<_>>>()?;
    let states = operands
        .len()
        .checked_sub(scanned)
        .ok_or_else(|| malformed("there are too few operands"))?;
    let short = |rank: usize| operands.iter().any(|x| x.rank() < rank);
    if operands.is_empty() || short(1) || operands[states..].iter().any(|x| x.rank() < 2) {
        return Err(Error::shape("an operand of Scan has no batch axis or no sequence axis"));
    }
    let (samples, turns) = (operands[0].shape()[0], operands.last().map_or(0, |x| x.shape()[1]));
    let same = operands.iter().all(|x| x.shape()[0] == samples);
    if !same || operands[states..].iter().any(|x| x.shape()[1] != turns) {
        return Err(Error::shape("what is scanned is not equally long"));
    }
    let mut collected: Vec<Vec<Value>> = vec![Vec::new(); c.node.outputs.len()];
    let (mut held, mut bytes) = (c.limits.hold(), 0usize);
    for sample in 0..samples {
        let at = sample as isize;
        let mut carried = operands[..states]
            .iter()
            .map(|x| Ok(x.select(0, at)?.into()))
            .collect::<Result<Vec<Value>>>()?;
        let mut stacks: Vec<Vec<Value>> = vec![Vec::new(); collected.len().saturating_sub(states)];
        for turn in 0..turns {
            c.limits.step()?;
            let mut now = std::mem::take(&mut carried);
            for x in &operands[states..] {
                now.push(x.select(0, at)?.select(0, turn as isize)?.into());
            }
            let mut results = c.bodies.run("body", now.into())?.into_iter();
            carried = results.by_ref().take(states).collect();
            for (list, value) in stacks.iter_mut().zip(results) {
                bytes = bytes.saturating_add(value.bytes());
                list.push(value);
            }
            held.set(bytes)?;
        }
        let stacks = stacks
            .into_iter()
            .map(|turns| stacked(c, turns, 0))
            .collect::<Result<Vec<_>>>()?;
        for (list, value) in collected.iter_mut().zip(carried.into_iter().chain(stacks)) {
            list.push(value);
        }
    }
    collected.into_iter().map(|samples| stacked(c, samples, 0)).collect()
}

fn sequence_map(c: &Call<'_>) -> Results {
    let count = list(c, 0)?.len();
    let mut collected: Vec<Vec<Value>> = vec![Vec::new(); c.node.outputs.len()];
    let (mut held, mut bytes) = (c.limits.hold(), 0usize);
    for turn in 0..count {
        c.limits.step()?;
        // Sequences are iterated in step; other values are passed to every iteration.
        let at_turn = |value: &Option<Value>| {
            let value = value.as_ref().ok_or_else(|| malformed("an operand is missing"))?;
            match value.as_sequence() {
                Some(values) => values
                    .get(turn)
                    .cloned()
                    .ok_or_else(|| malformed("the sequences are not equally long")),
                None => Ok(value.clone()),
            }
        };
        let inputs = c.inputs.iter().map(at_turn).collect::<Result<Vec<_>>>()?;
        for (list, value) in collected.iter_mut().zip(c.bodies.run("body", inputs.into())?) {
            bytes = bytes.saturating_add(value.bytes());
            list.push(value);
        }
        held.set(bytes)?;
    }
    Ok(collected.into_iter().map(Value::sequence).collect())
}

fn split_to_sequence(c: &Call<'_>) -> Results {
    let (x, element) = (c.x(0)?, c.element(0)?);
    let axis = c.axis("axis", 0, x.rank())?;
    let extent = x.shape()[axis];
    c.limits.check_bytes(extent.saturating_mul(HANDLE))?;
    let (parts, flat) = match c.opt_ints(1)? {
        None => (List::from_elem(1, extent), !c.flag("keepdims", true)?),
        Some(split) if c.shape(1)?.rank() == 0 => {
            let each = sizes(&split)?[0];
            if each == 0 {
                return Err(malformed("parts of size 0 never end"));
            }
            (
                (0..extent)
                    .step_by(each)
                    .map(|start| each.min(extent - start))
                    .collect(),
                false,
            )
        }
        Some(split) => (sizes(&split)?, false),
    };
    let at = axis as isize;
    let parts = x.split_with_sizes(&parts, at)?.into_iter().map(|part| {
        let part = if flat { part.squeeze(at)? } else { part };
        Ok(Value::from(part).with_element(element))
    });
    Ok(smallvec![Value::sequence(parts.collect::<Result<_>>()?)])
}

fn concat_from_sequence(c: &Call<'_>) -> Results {
    let values = list(c, 0)?;
    let tensors: Vec<Tensor> = values
        .iter()
        .map(|value| value.tensor(c.device))
        .collect::<Result<_>>()?;
    let first = tensors
        .first()
        .ok_or_else(|| malformed("there is nothing to join in an empty sequence"))?;
    let bytes = values.iter().map(Value::bytes).fold(0, usize::saturating_add);
    c.limits.check_bytes(bytes)?;
    let parts: Vec<&Tensor> = tensors.iter().collect();
    let new = c.flag("new_axis", false)?;
    let axis = c.axis("axis", 0, first.rank() + usize::from(new))? as isize;
    let joined: Value = if new {
        Tensor::stack(&parts, axis)?.into()
    } else {
        Tensor::cat(&parts, axis)?.into()
    };
    Ok(smallvec![match values.first().and_then(Value::element) {
        Some(element) => joined.with_element(element),
        None => joined,
    }])
}
