//! Merging of two steps: an op after a product or a convolution becomes part of it.

use polygrad_core::{Activation, AnyBackend, ConvParams, DType, Result, decompose};
use polygrad_tensor::{Tensor, inference};

use super::action::Fused;
use super::{Draft, images};
use crate::graph::{Attribute, Node};
use crate::import::ops::MICROSOFT;

impl Draft<'_> {
    /// Merges a step with the one that follows it. Returns the index of the merged step.
    pub(super) fn merge(&mut self, i: usize) -> Result<Option<usize>> {
        let (Some(fused), Some(next)) = (self.fused(i), self.sole_reader(i)) else {
            return Ok(None);
        };
        let Some(follower) = self.step(next) else {
            return Ok(None);
        };
        let node = &follower.node;
        let (is_onnx, biased) = (node.domain.is_empty(), biased(node));
        let adds = is_onnx && node.op_type == "Add";
        let norm = is_onnx && node.op_type == "BatchNormalization";
        let activation = activation(node);
        let inputs: Vec<Option<usize>> = (0..5).map(|operand| self.slot(i, operand)).collect();
        if let &Fused::Conv { params, activation } = fused
            && inputs[3].is_none()
            && let Some(number) = self.scalar(i, next)?
        {
            return self.affine(i, next, (params, activation), number);
        }
        if let (&Fused::Conv { params, activation }, Some(&Fused::MaxPool { params: pool, .. }), None) =
            (fused, self.fused(next), inputs[3])
        {
            if images::pays(self.device) {
                let fused = Fused::ConvPool {
                    params,
                    activation,
                    pool,
                };
                self.replace(next, &[i], fused, &inputs[..3]);
            }
            return Ok(None);
        }
        match (fused, activation) {
            (
                &Fused::Linear {
                    matrix,
                    packed,
                    activation: None,
                },
                Some(op),
            ) => {
                let fused = Fused::Linear {
                    matrix,
                    packed,
                    activation: Some(op),
                };
                self.replace(next, &[i], fused, &inputs[..if packed.is_some() { 5 } else { 3 }]);
            }
            (
                Fused::Conv {
                    params,
                    activation: None,
                },
                Some(op),
            ) => {
                let fused = Fused::Conv {
                    params: *params,
                    activation: Some(op),
                };
                self.replace(next, &[i], fused, &inputs[..4]);
            }
            (
                &Fused::Linear {
                    matrix,
                    packed,
                    activation: None,
                },
                None,
            ) if (adds || biased.is_some()) && inputs[2].is_none() => {
                let (Some(weight), place) = (self.tensor(i, 1)?, self.other(i, next)) else {
                    return Ok(None);
                };
                // The bias of a packed weight has the dtype of its scales.
                let dtype = match packed {
                    Some(_) => self.tensor(i, 3)?.map_or(DType::F32, |scales| scales.dtype()),
                    None => weight.dtype(),
                };
                let Some(bias) = self.bias(next, place, (weight.shape()[0], dtype))? else {
                    return Ok(None);
                };
                // A bias with two axes would give the product of a vector a second axis.
                if self.tensor(next, place)?.is_none_or(|bias| bias.rank() != 1) {
                    return Ok(None);
                }
                let bias = self.add(bias);
                let fused = Fused::Linear {
                    matrix,
                    packed,
                    activation: biased,
                };
                let all = [inputs[0], inputs[1], Some(bias), inputs[3], inputs[4]];
                self.replace(next, &[i], fused, &all[..if packed.is_some() { 5 } else { 3 }]);
            }
            (
                Fused::Conv {
                    params,
                    activation: None,
                },
                None,
            ) if adds && inputs[3].is_none() => {
                let params = *params;
                let other = self.slot(next, self.other(i, next));
                let fused = Fused::Conv {
                    params,
                    activation: None,
                };
                self.replace(next, &[i], fused, &[inputs[0], inputs[1], inputs[2], other]);
            }
            (
                Fused::Conv {
                    params,
                    activation: None,
                },
                None,
            ) if norm && inputs[3].is_none() => {
                let params = *params;
                return self.fold_norm(
                    i,
                    next,
                    Fused::Conv {
                        params,
                        activation: None,
                    },
                );
            }
            _ => return Ok(None),
        }
        Ok(Some(next))
    }

    /// The index of the operand of step `next` that is not the result of step `i`.
    pub(super) fn other(&self, i: usize, next: usize) -> usize {
        let result = self.step(i).and_then(|step| step.outputs[0]);
        usize::from(self.slot(next, 0) == result)
    }

    /// The number that step `next` adds to the result of a convolution in f32, step `i`, or multiplies it with.
    fn scalar(&self, i: usize, next: usize) -> Result<Option<Affine>> {
        let Some(node) = self.step(next).map(|step| &step.node) else {
            return Ok(None);
        };
        let affine = match (node.domain.as_str(), node.op_type.as_str()) {
            ("", "Add") => Affine::Add,
            ("", "Mul") => Affine::Mul,
            _ => return Ok(None),
        };
        let single = self.tensor(i, 1)?.is_some_and(|weight| weight.dtype() == DType::F32);
        let number = self.number(next, self.other(i, next))?;
        Ok(number.filter(|number| single && number.is_finite()).map(affine))
    }

    /// Multiplies the result of a convolution with a number, or adds one to it: in its weight and bias if nothing is
    /// between, or in its activation, if that has such numbers.
    fn affine(
        &mut self,
        i: usize,
        next: usize,
        (params, activation): (ConvParams, Option<Activation>),
        number: Affine,
    ) -> Result<Option<usize>> {
        let (Some(mut weight), Some(mut bias)) = (self.tensor(i, 1)?, self.tensor(i, 2)?) else {
            return Ok(None);
        };
        let activation = match (activation, number) {
            (None, Affine::Mul(by)) => {
                (weight, bias) = ((&weight * by)?, (&bias * by)?);
                None
            }
            (None, Affine::Add(by)) => {
                bias = (&bias + by)?;
                None
            }
            (Some(Activation::HardSwish { scale, shift }), Affine::Mul(by)) => Some(Activation::HardSwish {
                scale: scale * by,
                shift: shift * by,
            }),
            (Some(Activation::HardSwish { scale, shift }), Affine::Add(by)) => Some(Activation::HardSwish {
                scale,
                shift: shift + by,
            }),
            _ => return Ok(None),
        };
        let [weight, bias] = [weight, bias].map(|x| self.add(x));
        let x = self.slot(i, 0);
        self.replace(
            next,
            &[i],
            Fused::Conv { params, activation },
            &[x, Some(weight), Some(bias)],
        );
        Ok(Some(next))
    }

    /// Folds batch normalization in evaluation into the convolution's weight and bias.
    fn fold_norm(&mut self, i: usize, next: usize, fused: Fused) -> Result<Option<usize>> {
        let Some(step) = self.step(next) else { return Ok(None) };
        let training = !matches!(step.node.attribute("training_mode"), None | Some(Attribute::Int(0)));
        let eps = match step.node.attribute("epsilon") {
            None => 1e-5,
            Some(Attribute::Float(eps)) => f64::from(*eps),
            Some(_) => return Ok(None),
        };
        if training || step.outputs.iter().skip(1).any(Option::is_some) || self.other(i, next) != 1 {
            return Ok(None);
        }
        let (Some(weight), Some(bias)) = (self.tensor(i, 1)?, self.tensor(i, 2)?) else {
            return Ok(None);
        };
        let mut parts = Vec::with_capacity(4);
        for operand in 1..5 {
            match self.tensor(next, operand)? {
                Some(part) if part.dims() == bias.dims() && part.dtype() == bias.dtype() => parts.push(part),
                _ => return Ok(None),
            }
        }
        let [scale, shift, mean, var] = [0, 1, 2, 3].map(|place: usize| parts[place].inner());
        let convolution = [weight.inner(), bias.inner()];
        let folded =
            decompose::fold_batch_norm::<AnyBackend>(convolution, [mean, var], [Some(scale), Some(shift)], eps)?;
        let [weight, bias] = folded.map(|x| self.add(Tensor::from_inner(x)));
        let x = self.slot(i, 0);
        self.replace(next, &[i], fused, &[x, Some(weight), Some(bias)]);
        Ok(Some(next))
    }

    /// Prepacks the weights of fused steps, after all passes that change them.
    pub(super) fn prepack(&mut self) -> Result<()> {
        for i in 0..self.steps.len() {
            let Some(kind) = self.fused(i).and_then(Fused::weight) else {
                continue;
            };
            let (Some(slot), Some(weight)) = (self.slot(i, 1), self.tensor(i, 1)?) else {
                continue;
            };
            self.constants.insert(slot, inference::prepacked(&weight, kind)?.into());
        }
        Ok(())
    }
}

/// A step that adds a number, or multiplies with one.
#[derive(Clone, Copy)]
enum Affine {
    Add(f64),
    Mul(f64),
}

/// The activation function that a node applies to the sum with operand 1, if it does.
fn biased(node: &Node) -> Option<Activation> {
    match (node.domain.as_str(), node.op_type.as_str(), node.inputs.get(1)) {
        (MICROSOFT, "BiasGelu", Some(Some(_))) => Some(Activation::Gelu),
        (MICROSOFT, "FastGelu", Some(Some(_))) => Some(Activation::GeluTanh),
        _ => None,
    }
}

/// The activation function that a node computes, if it is one.
fn activation(node: &Node) -> Option<Activation> {
    let number = |name: &str, default: f64| match node.attribute(name) {
        None => Some(default),
        Some(Attribute::Float(value)) => Some(f64::from(*value)),
        Some(_) => None,
    };
    if node.domain == MICROSOFT {
        return match (node.op_type.as_str(), node.inputs.get(1)) {
            ("Gelu", _) => Some(Activation::Gelu),
            ("QuickGelu", _) if number("alpha", 1.702)? == 1.0 => Some(Activation::Silu),
            ("FastGelu", None | Some(None)) => Some(Activation::GeluTanh),
            _ => None,
        };
    }
    if !node.domain.is_empty() {
        return None;
    }
    match node.op_type.as_str() {
        "Relu" => Some(Activation::Relu),
        "Tanh" => Some(Activation::Tanh),
        "Sigmoid" => Some(Activation::Sigmoid),
        "HardSwish" => Some(Activation::HardSwish { scale: 1.0, shift: 0.0 }),
        "LeakyRelu" => Some(Activation::LeakyRelu {
            slope: number("alpha", 0.01)?,
        }),
        "Elu" => Some(Activation::Elu {
            alpha: number("alpha", 1.0)?,
        }),
        "Gelu" => match node.attribute("approximate") {
            None => Some(Activation::Gelu),
            Some(Attribute::String(text)) => match text.as_str() {
                "none" => Some(Activation::Gelu),
                "tanh" => Some(Activation::GeluTanh),
                _ => None,
            },
            Some(_) => None,
        },
        _ => None,
    }
}
