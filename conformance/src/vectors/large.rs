//! More elements than f16 can count, with a mean that is known without a table.

use std::collections::BTreeMap;

use polygrad_core::{HostTensor, Result, Shape};
use serde_json::{Map, json};

use super::set::{Vector, VectorSet};

/// Above f16's largest number, 65,504.
const ELEMENTS: usize = 66_000;

/// The factor of `Σ output · cotangent`: exact in every dtype.
const COTANGENT: f64 = 1.5;

/// A mean and losses that average, with their gradients: computed here, in f64.
pub(super) fn set() -> Result<VectorSet> {
    // Multiples of 1/32 below 4, which every dtype represents.
    let number = |i: usize, step: usize| (i * step % 127) as f64 / 32.0;
    let x: Vec<f64> = (0..ELEMENTS).map(|i| number(i, 37)).collect();
    let target: Vec<f64> = (0..ELEMENTS).map(|i| number(i, 50)).collect();
    type Pair = fn(f64, f64) -> f64;
    let cases: [(&str, bool, Pair, Pair); 4] = [
        ("mean", false, |x, _| x, |_, _| 1.0),
        (
            "nn.functional.mse_loss",
            true,
            |x, t| (x - t).powi(2),
            |x, t| 2.0 * (x - t),
        ),
        (
            "nn.functional.l1_loss",
            true,
            |x, t| (x - t).abs(),
            |x, t| if x == t { 0.0 } else { (x - t).signum() },
        ),
        (
            "nn.functional.smooth_l1_loss",
            true,
            |x, t| {
                if (x - t).abs() < 1.0 {
                    (x - t).powi(2) / 2.0
                } else {
                    (x - t).abs() - 0.5
                }
            },
            |x, t| (x - t).clamp(-1.0, 1.0),
        ),
    ];
    let mut tensors = BTreeMap::new();
    let mut vectors = Vec::new();
    let row = Shape::new(&[ELEMENTS])?;
    for (op, loss, value, slope) in cases {
        let k = format!("{op}.large/0");
        let mut put = |key: String, shape: Shape, values: Vec<f64>| {
            HostTensor::new(shape, values).map(|host| drop(tensors.insert(key, host)))
        };
        let n = ELEMENTS as f64;
        let pairs = || x.iter().zip(&target);
        let mean = pairs().map(|(&x, &t)| value(x, t)).sum::<f64>() / n;
        put(format!("{k}/o.0"), Shape::SCALAR, vec![mean])?;
        put(format!("{k}/ct.0"), Shape::SCALAR, vec![COTANGENT])?;
        put(format!("{k}/a.0"), row, x.clone())?;
        let gradient = |sign: f64| pairs().map(|(&x, &t)| sign * COTANGENT * slope(x, t) / n).collect();
        put(format!("{k}/a.0/g"), row, gradient(1.0))?;
        let mut args = vec![json!({ "t": format!("{k}/a.0") })];
        if loss {
            put(format!("{k}/a.1"), row, target.clone())?;
            put(format!("{k}/a.1/g"), row, gradient(-1.0))?;
            args.push(json!({ "t": format!("{k}/a.1") }));
        }
        vectors.push(Vector {
            k,
            op: op.to_owned(),
            variant: "large".to_owned(),
            args,
            kwargs: Map::new(),
            outputs: 1,
            special: String::new(),
            refused: false,
        });
    }
    Ok(VectorSet::new(vectors, tensors))
}
