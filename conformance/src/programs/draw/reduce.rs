//! Reductions, scans and sorting.

use polygrad_core::DType;

use super::{Draw, Way, Wish};
use crate::programs::calls::Arg;

pub(super) const WAYS: &[Way] = &[(8, reduction), (4, along), (2, whole), (3, order), (1, truth)];

fn list(axes: Vec<i64>) -> Vec<Arg> {
    vec![Arg::List(axes)]
}

fn reduction(draw: &mut Draw) -> Wish {
    let x = draw.float_of_rank(1)?;
    let axes = draw.axes(draw.values[x].rank());
    let name = draw.one_of(&[
        "sum",
        "sum_keepdim",
        "mean",
        "mean_keepdim",
        "prod",
        "amax",
        "amin_keepdim",
        "variance",
        "logsumexp",
    ]);
    let count: usize = axes.iter().map(|&axis| draw.values[x].shape[axis as usize]).product();
    if name == "variance" && count < 2 {
        return None;
    }
    // A 0 among large factors hides that other products exceed the range of the dtype.
    let (low, high) = (draw.values[x].low, draw.values[x].high);
    let largest = low.abs().max(high.abs()).max(1.0);
    if name == "prod" && count as f64 * largest.log10() > 30.0 {
        return None;
    }
    Some((name, vec![x], list(axes)))
}

fn along(draw: &mut Draw) -> Wish {
    let x = draw.float_of_rank(1)?;
    let axis = draw.axis(draw.values[x].rank())?;
    let name = draw.one_of(&["cumsum", "cumprod", "softmax", "softmax", "log_softmax", "glu"]);
    Some((name, vec![x], vec![Arg::Int(axis)]))
}

fn whole(draw: &mut Draw) -> Wish {
    let x = draw.pick(|value| !value.is_float() && value.rank() > 0)?;
    let rank = draw.values[x].rank();
    if draw.rng.chance(0.5) {
        let axes = draw.axes(rank);
        return Some((draw.one_of(&["sum", "amax", "sum_keepdim"]), vec![x], list(axes)));
    }
    let axis = draw.axis(rank)?;
    Some(("cumsum", vec![x], vec![Arg::Int(axis)]))
}

/// Positions and sorting of integers.
fn order(draw: &mut Draw) -> Wish {
    let x = draw.pick(|value| value.exact && value.rank() > 0 && value.numel() > 0)?;
    let axis = draw.axis(draw.values[x].rank())?;
    let flag = Arg::Int(draw.int(0, 1));
    let name = draw.one_of(&["max", "min", "argmax", "argmin_keepdim", "sort", "argsort", "topk"]);
    let args = match name {
        "sort" | "argsort" => vec![Arg::Int(axis), flag],
        "topk" => {
            let rank = draw.values[x].rank() as i64;
            let dim = draw.values[x].shape[axis.rem_euclid(rank) as usize];
            vec![Arg::Int(draw.int(1, dim as i64)), Arg::Int(axis), flag]
        }
        _ => vec![Arg::Int(axis)],
    };
    Some((name, vec![x], args))
}

fn truth(draw: &mut Draw) -> Wish {
    let x = draw.pick(|value| value.is(DType::Bool) && value.rank() > 0)?;
    let axes = draw.axes(draw.values[x].rank());
    Some((draw.one_of(&["any", "all"]), vec![x], list(axes)))
}
