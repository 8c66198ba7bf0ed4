//! Linear ops after a convolution become part of it.

use polygrad_core::{Backend, DType, Error, HostTensor, Result, decompose};
use polygrad_reference::{Reference, ReferenceDevice, ReferenceTensor};

use super::{free_name, producers, remove, uses};
use crate::export::recording::State;
use crate::graph::{Attribute, Node, ValueId};

/// `Conv(x, w) + b`, with one number for each channel, as `Conv(x, w, b)`; likewise for transposed convolutions.
pub(super) fn take_biases(state: &mut State, outputs: &[ValueId]) {
    let (uses, producers) = (uses(state, outputs), producers(state));
    let mut removed = Vec::new();
    for i in 0..state.nodes.len() {
        let node = &state.nodes[i];
        if node.op_type != "Add" {
            continue;
        }
        let &[Some(a), Some(b)] = &node.inputs[..] else {
            continue;
        };
        let found = [(a, b), (b, a)].into_iter().find_map(|(conv, bias)| {
            let place = *producers.get(&conv)?;
            let convolution = &state.nodes[place];
            let is_convolution = matches!(&*convolution.op_type, "Conv" | "ConvTranspose");
            let fits = is_convolution && convolution.inputs.len() == 2 && uses.get(&conv) == Some(&1);
            fits.then_some((place, channel_bias(state, &producers, conv, bias)?))
        });
        if let Some((place, bias)) = found {
            let outputs = std::mem::take(&mut state.nodes[i].outputs);
            state.nodes[place].inputs.push(Some(bias));
            state.nodes[place].outputs = outputs;
            removed.push(i);
        }
    }
    remove(state, &removed);
}

/// The constant `[C]` behind an operand `[1, C, 1, …]` that is added to a value with C channels.
fn channel_bias(
    state: &State,
    producers: &std::collections::HashMap<ValueId, usize>,
    conv: ValueId,
    bias: ValueId,
) -> Option<ValueId> {
    let (output, column) = (state.values[conv.index()].shape, state.values[bias.index()].shape);
    let wanted: Vec<usize> = (0..output.rank())
        .map(|axis| if axis == 1 { output[1] } else { 1 })
        .collect();
    let node = &state.nodes[*producers.get(&bias)?];
    let source = node.inputs[0]?;
    let value = &state.values[source.index()];
    let fits = matches!(&*node.op_type, "Unsqueeze" | "Reshape")
        && column.dims() == wanted
        && value.constant.is_some()
        && value.shape.dims() == [output[1]];
    fits.then_some(source)
}

/// Replaces a convolution and the BatchNormalization of its output by one convolution, if that output has no other use.
pub(super) fn fold_batch_norm(state: &mut State, outputs: &[ValueId]) -> Result<()> {
    let (uses, producers) = (uses(state, outputs), producers(state));
    let mut removed = Vec::new();
    for i in 0..state.nodes.len() {
        if state.nodes[i].op_type != "BatchNormalization" {
            continue;
        }
        let Some(conv) = state.nodes[i].inputs[0] else {
            continue;
        };
        let place = producers.get(&conv).copied().filter(|_| uses.get(&conv) == Some(&1));
        let Some(place) = place.filter(|&place| state.nodes[place].op_type == "Conv") else {
            continue;
        };
        if let Some((weight, bias)) = folded(state, &state.nodes[place], &state.nodes[i])? {
            let names = [weight.0, bias.0];
            let [weight, bias] = [(&names[0], weight.1), (&names[1], bias.1)].map(|(name, host)| {
                let name = free_name(state, name);
                state.named_constant(name, host)
            });
            let outputs = std::mem::take(&mut state.nodes[i].outputs);
            state.nodes[place].inputs.truncate(1);
            state.nodes[place].inputs.extend([Some(weight), Some(bias)]);
            state.nodes[place].outputs = outputs;
            removed.push(i);
        }
    }
    remove(state, &removed);
    Ok(())
}

type Named = (String, HostTensor);

/// Weight and bias of the convolution that replaces both, if all constants are known.
fn folded(state: &State, conv: &Node, norm: &Node) -> Result<Option<(Named, Named)>> {
    let constant = |id: Option<ValueId>| state.values[id?.index()].constant.as_ref();
    let operand = |node: &Node, place: usize| node.inputs.get(place).copied().and_then(constant).cloned();
    let [scale, shift, mean, var] = [1, 2, 3, 4].map(|place| operand(norm, place));
    let (Some(scale), Some(shift), Some(mean), Some(var), Some(weight)) = (scale, shift, mean, var, operand(conv, 1))
    else {
        return Ok(None);
    };
    let bias = operand(conv, 2);
    let is_known = conv.inputs.len() == 2 || bias.is_some();
    if !is_known || !matches!(weight.dtype(), DType::F32 | DType::F64) {
        return Ok(None);
    }
    let eps = match norm.attribute("epsilon") {
        Some(Attribute::Float(eps)) => f64::from(*eps),
        _ => 1e-5,
    };
    let [folded_weight, folded_bias] = fold_statistics(&weight, bias.as_ref(), [&scale, &shift, &mean, &var], eps)?;
    let named = |id: Option<ValueId>| id.and_then(|id| state.values[id.index()].name.clone());
    let weight_name = named(conv.inputs[1]).unwrap_or_else(|| "weight".to_owned());
    let bias_name =
        named(conv.inputs.get(2).copied().flatten()).unwrap_or_else(|| match weight_name.strip_suffix("weight") {
            Some(layer) => format!("{layer}bias"),
            None => format!("{weight_name}.bias"),
        });
    Ok(Some((
        (format!("{weight_name}.folded"), folded_weight),
        (format!("{bias_name}.folded"), folded_bias),
    )))
}

/// Weight and bias of the convolution that replaces a convolution and the batch normalization of its output, which has
/// a scale, a shift, a mean and a variance.
///
/// # Errors
/// Shapes that do not fit together.
pub(crate) fn fold_statistics(
    weight: &HostTensor,
    bias: Option<&HostTensor>,
    [scale, shift, mean, var]: [&HostTensor; 4],
    eps: f64,
) -> Result<[HostTensor; 2]> {
    // In f64, so that each number is rounded once.
    let wide = |host: &HostTensor| Reference::from_host(host.cast(DType::F64), &ReferenceDevice);
    let bias = match bias {
        Some(bias) => wide(bias)?,
        None => wide(&HostTensor::new(*scale.shape(), vec![0.0; scale.shape().numel()])?)?,
    };
    let (convolution, statistics) = ([&wide(weight)?, &bias], [&wide(mean)?, &wide(var)?]);
    let affine = [Some(&wide(scale)?), Some(&wide(shift)?)];
    let [folded, shifted] = decompose::fold_batch_norm::<Reference>(convolution, statistics, affine, eps)?;
    let host = |x: &ReferenceTensor| Ok::<_, Error>(Reference::to_host(x)?.cast(weight.dtype()));
    Ok([host(&folded)?, host(&shifted)?])
}
