//! Attention: in one kernel, and if queries are too long for that.

use polygrad_core::DType;
use polygrad_core::compute::{Attention, ComputeBackend};

use crate::support::{driver, get, noise, put};

#[test]
fn both_ways_agree_with_the_plain_sum() {
    let Some(driver) = driver() else { return };
    for (head_dim, value_dim, causal) in [(5, 7, false), (20, 33, true), (130, 9, true), (8, 140, false)] {
        for (seq_q, seq_kv) in [(3, 20), (35, 18), (17, 17)] {
            let heads = 3;
            let q = noise(heads * seq_q * head_dim, 1);
            let k = noise(heads * seq_kv * head_dim, 2);
            let v = noise(heads * seq_kv * value_dim, 3);
            let len = heads * seq_q * value_dim;
            let call = Attention {
                dtype: DType::F32,
                batch: 1,
                heads,
                seq_q,
                seq_kv,
                head_dim,
                value_dim,
                scale: 0.7,
                causal,
                q: put(driver, &q),
                k: put(driver, &k),
                v: put(driver, &v),
                output: put(driver, &vec![f32::NAN; len]),
            };
            driver.attention(&call).unwrap();
            let got: Vec<f32> = get(driver, call.output, len);
            for h in 0..heads {
                for i in 0..seq_q {
                    let seen = match causal {
                        true => (i + seq_kv + 1).saturating_sub(seq_q).min(seq_kv),
                        false => seq_kv,
                    };
                    let score = |j: usize| -> f64 {
                        let dot: f64 = (0..head_dim)
                            .map(|d| {
                                let (a, b) = ((h * seq_q + i) * head_dim + d, (h * seq_kv + j) * head_dim + d);
                                f64::from(q[a]) * f64::from(k[b])
                            })
                            .sum();
                        (dot * 0.7).exp()
                    };
                    let weights: Vec<f64> = (0..seen).map(score).collect();
                    let total: f64 = weights.iter().sum();
                    for d in 0..value_dim {
                        let sum: f64 = (weights.iter().enumerate())
                            .map(|(j, w)| w * f64::from(v[(h * seq_kv + j) * value_dim + d]))
                            .sum();
                        let truth = if seen == 0 { 0.0 } else { sum / total };
                        let y = f64::from(got[(h * seq_q + i) * value_dim + d]);
                        assert!((y - truth).abs() < 1e-5, "{y} is not {truth}: {call:?}");
                    }
                }
            }
        }
    }
}
