//! Layers with their weights, and losses.

use super::{Draw, Way, Wish};
use crate::programs::calls::Arg;
use crate::programs::program::{Fill, Kind, Role};

pub(super) const WAYS: &[Way] = &[
    (6, product),
    (6, linear),
    (5, convolution),
    (3, pooling),
    (4, norm),
    (2, resized),
    (2, attention),
    (2, cell),
    (2, loss),
];

impl Draw {
    /// Images: of rank 3 to 5, with more than one element along the last axis. Created from another value if there are
    /// none.
    fn images(&mut self) -> Option<usize> {
        let fits =
            |value: &super::Value| value.kind == Kind::Tested && (3..=5).contains(&value.rank()) && value.numel() > 0;
        if let Some(x) = self.pick(fits)
            && self.rng.chance(0.8)
        {
            return Some(x);
        }
        let shape: Vec<usize> = match self.rng.below(4) {
            0 => vec![2, 3, 7],
            1 => vec![1, 2, 3, 4, 3],
            2 => vec![2, 4, 5, 4],
            _ => vec![1, 2, 6, 6],
        };
        Some(self.float_input(shape))
    }

    /// An activation directly after a layer, as in models.
    fn activated(&mut self, wish: (&'static str, Vec<usize>, Vec<Arg>)) -> Wish {
        if self.rng.chance(0.5) {
            return Some(wish);
        }
        let (name, operands, args) = wish;
        let x = self.step(name, operands, args)?;
        Some((
            self.one_of(&["relu", "tanh", "gelu", "silu", "sigmoid"]),
            vec![x],
            Vec::new(),
        ))
    }
}

fn int(value: usize) -> Arg {
    Arg::Int(value as i64)
}

fn product(draw: &mut Draw) -> Wish {
    let x = draw.float_of_rank(2)?;
    let shape = draw.values[x].shape.clone();
    let inner = shape[shape.len() - 1];
    let fits = |value: &super::Value| {
        let rank = value.rank();
        value.kind == Kind::Tested
            && rank >= 2
            && value.shape[rank - 2] == inner
            && super::broadcasts(&value.shape[..rank - 2], &shape[..shape.len() - 2])
    };
    let y = match draw.pick(fits) {
        Some(y) if draw.rng.chance(0.6) => y,
        _ => {
            let columns = draw.extent();
            draw.weight(&[inner, columns])
        }
    };
    if shape.len() == 3 && draw.rng.chance(0.2) {
        let fits = |value: &super::Value| {
            value.kind == Kind::Tested && value.rank() == 3 && value.shape[0] == shape[0] && value.shape[2] == inner
        };
        if let Some(y) = draw.pick(fits) {
            return Some(("einsum", vec![x, y], Vec::new()));
        }
    }
    Some(("matmul", vec![x, y], Vec::new()))
}

fn linear(draw: &mut Draw) -> Wish {
    let x = draw.float_of_rank(1)?;
    let inner = *draw.values[x].shape.last()?;
    let outer = 1 + draw.rng.below(6);
    let weight = draw.weight(&[outer, inner]);
    if draw.rng.chance(0.3) {
        return draw.activated(("linear", vec![x, weight], Vec::new()));
    }
    let bias = draw.weight(&[outer]);
    draw.activated(("linear_bias", vec![x, weight, bias], Vec::new()))
}

fn convolution(draw: &mut Draw) -> Wish {
    let x = draw.images()?;
    let shape = draw.values[x].shape.clone();
    let channels = shape[1];
    let smallest = *shape[2..].iter().min()?;
    let kernel = 1 + draw.rng.below(3.min(smallest));
    let (stride, padding) = (1 + draw.rng.below(2), draw.rng.below(kernel));
    if draw.rng.chance(0.2) {
        let outer = 1 + draw.rng.below(3);
        let mut dims = vec![channels, outer];
        dims.extend(vec![kernel; shape.len() - 2]);
        let weight = draw.weight(&dims);
        return Some((
            "conv_transpose",
            vec![x, weight],
            vec![int(stride), int(padding.min(kernel / 2))],
        ));
    }
    let groups = if draw.rng.chance(0.3) { channels } else { 1 };
    let outer = groups * (1 + draw.rng.below(3));
    let mut dims = vec![outer, channels / groups.max(1)];
    dims.extend(vec![kernel; shape.len() - 2]);
    let weight = draw.weight(&dims);
    let dilation = if draw.rng.chance(0.2) { 2 } else { 1 };
    let args = vec![int(stride), int(padding), int(dilation), int(groups)];
    if draw.rng.chance(0.4) {
        return draw.activated(("conv", vec![x, weight], args));
    }
    let bias = draw.weight(&[outer]);
    draw.activated(("conv_bias", vec![x, weight, bias], args))
}

fn pooling(draw: &mut Draw) -> Wish {
    let x = draw.images()?;
    let kernel = 1 + draw.rng.below(3);
    let (stride, padding) = (1 + draw.rng.below(2), draw.rng.below(kernel / 2 + 1));
    let args = vec![int(kernel), int(stride), int(padding)];
    match draw.rng.below(4) {
        0 if draw.values[x].exact => Some(("max_pool", vec![x], args)),
        0 | 1 => Some(("max_pool_values", vec![x], vec![int(kernel)])),
        2 => {
            let spatial = draw.values[x].rank() - 2;
            let size = (0..spatial).map(|_| draw.int(1, 3)).collect();
            Some(("adaptive_avg_pool", vec![x], vec![Arg::List(size)]))
        }
        _ => Some(("avg_pool", vec![x], args)),
    }
}

fn norm(draw: &mut Draw) -> Wish {
    let x = draw.float_of_rank(2)?;
    let shape = draw.values[x].shape.clone();
    let channels = shape[1];
    match draw.rng.below(6) {
        0 => {
            let axes = 1 + draw.rng.below(shape.len() - 1);
            let inner = &shape[shape.len() - axes..];
            let (weight, bias) = (draw.weight(inner), draw.weight(inner));
            Some(("layer_norm", vec![x, weight, bias], vec![int(axes)]))
        }
        1 => Some(("layer_norm_plain", vec![x], vec![int(1)])),
        2 => {
            let weight = draw.weight(&shape[shape.len() - 1..]);
            Some(("rms_norm", vec![x, weight], vec![int(1)]))
        }
        3 => {
            let groups = if channels.is_multiple_of(2) { 2 } else { 1 };
            let (weight, bias) = (draw.weight(&[channels]), draw.weight(&[channels]));
            Some(("group_norm", vec![x, weight, bias], vec![int(groups)]))
        }
        4 => {
            let (weight, bias) = (draw.weight(&[channels]), draw.weight(&[channels]));
            Some(("batch_norm", vec![x, weight, bias], Vec::new()))
        }
        _ => {
            let (weight, bias, mean) = (
                draw.weight(&[channels]),
                draw.weight(&[channels]),
                draw.weight(&[channels]),
            );
            let variance = draw.input(vec![channels], Kind::Tested, Fill::Uniform(0.25, 2.0), Role::Data);
            draw.activated(("batch_norm_running", vec![x, mean, variance, weight, bias], Vec::new()))
        }
    }
}

fn resized(draw: &mut Draw) -> Wish {
    let x = draw.images()?;
    let spatial = draw.values[x].rank() - 2;
    let size = (0..spatial).map(|_| draw.int(1, 5)).collect();
    Some((
        draw.one_of(&["interpolate", "interpolate_nearest"]),
        vec![x],
        vec![Arg::List(size)],
    ))
}

fn attention(draw: &mut Draw) -> Wish {
    let query = draw.float_of_rank(2)?;
    let shape = draw.values[query].shape.clone();
    if shape.len() > 4 {
        return None;
    }
    let (rank, keys) = (shape.len(), 1 + draw.rng.below(5));
    let (mut of_keys, mut of_values) = (shape.clone(), shape.clone());
    of_keys[rank - 2] = keys;
    of_values[rank - 2] = keys;
    of_values[rank - 1] = 1 + draw.rng.below(4);
    let (key, value) = (draw.weight(&of_keys), draw.weight(&of_values));
    if draw.rng.chance(0.3) {
        let mask = draw.weight(&[shape[rank - 2], keys]);
        return Some(("attention_masked", vec![query, key, value, mask], Vec::new()));
    }
    let causal = Arg::Int(draw.int(0, 1));
    Some(("attention", vec![query, key, value], vec![causal]))
}

/// A step of a recurrent layer.
fn cell(draw: &mut Draw) -> Wish {
    let x = draw.pick(|value| value.kind == Kind::Tested && value.rank() == 2 && value.numel() > 0)?;
    let &[rows, inner] = draw.values[x].shape.as_slice() else {
        return None;
    };
    let hidden = 1 + draw.rng.below(3);
    let state = draw.weight(&[rows, hidden]);
    if draw.rng.chance(0.5) {
        let weight = draw.weight(&[4 * hidden, inner]);
        let gates = draw.step("linear", vec![x, weight], Vec::new())?;
        return Some(("lstm_cell", vec![gates, state], Vec::new()));
    }
    let (weight, recurrent) = (draw.weight(&[3 * hidden, inner]), draw.weight(&[3 * hidden, hidden]));
    let gates = draw.step("linear", vec![x, weight], Vec::new())?;
    let of_hidden = draw.step("linear", vec![state, recurrent], Vec::new())?;
    Some(("gru_cell", vec![gates, of_hidden, state], Vec::new()))
}

fn loss(draw: &mut Draw) -> Wish {
    let x = draw.float_of_rank(1)?;
    let shape = draw.values[x].shape.clone();
    if shape.len() == 2 && draw.rng.chance(0.6) {
        let classes = draw.positions(&shape[..1], shape[1]);
        if draw.rng.chance(0.5) {
            return Some(("cross_entropy_mean", vec![x, classes], Vec::new()));
        }
        let smoothing = draw.one_of(&[0.0, 0.125]);
        return Some(("cross_entropy", vec![x, classes], vec![Arg::Number(smoothing)]));
    }
    let name = draw.one_of(&["mse_loss", "l1_loss", "bce_with_logits", "cosine_similarity"]);
    let fill = if name == "bce_with_logits" {
        Fill::Uniform(0.0, 1.0)
    } else {
        Fill::Uniform(-1.0, 1.0)
    };
    let y = draw.input(shape, Kind::Tested, fill, Role::Data);
    let args = if name == "cosine_similarity" {
        vec![Arg::Int(-1)]
    } else {
        Vec::new()
    };
    Some((name, vec![x, y], args))
}
