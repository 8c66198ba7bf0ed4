//! Attention.

use polygrad_core::compute::{Attention, AttentionBackward, DevicePtr, Kernel};
use polygrad_core::{Backend, DType, HostTensor, Shape};
use polygrad_reference::Reference;

use super::super::case::Cases;
use super::super::fixture::Fixture;
use super::super::numbers::{drawn, host, precise};
use super::super::outcome::CaseResult;

pub(super) fn cases(all: &mut Cases) {
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
        all.add(format!("attention {dtype}: sizes"), move |fixture| {
            for sizes in [[5, 5], [1, 1], [1, 9], [7, 3], [33, 70], [64, 64]] {
                run(fixture, dtype, sizes, [8, 8], 0.35, false)?;
                run(fixture, dtype, sizes, [3, 5], 1.0, false)?;
            }
            run(fixture, dtype, [4, 4], [16, 1], -0.5, false)?;
            run(fixture, dtype, [4, 4], [1, 16], 0.0, false)
        });
        all.add(
            format!("attention {dtype}: causal, as many keys as queries"),
            move |fixture| {
                run(fixture, dtype, [6, 6], [4, 4], 0.5, true)?;
                run(fixture, dtype, [65, 65], [8, 3], 0.5, true)
            },
        );
        all.add(
            format!("attention {dtype}: causal, more keys than queries"),
            move |fixture| {
                run(fixture, dtype, [3, 8], [4, 4], 0.5, true)?;
                run(fixture, dtype, [1, 40], [4, 6], 0.5, true)
            },
        );
        all.add(
            format!("attention {dtype}: causal, rows that see nothing are 0"),
            move |fixture| {
                run(fixture, dtype, [8, 3], [4, 4], 0.5, true)?;
                run(fixture, dtype, [70, 33], [4, 6], 0.5, true)
            },
        );
        all.add(format!("attention {dtype}: nothing"), move |fixture| {
            run(fixture, dtype, [4, 0], [4, 5], 0.5, false)?;
            run(fixture, dtype, [4, 0], [4, 5], 0.5, true)?;
            run(fixture, dtype, [0, 4], [4, 5], 0.5, true)?;
            run(fixture, dtype, [4, 6], [4, 0], 0.5, false)?;
            run(fixture, dtype, [4, 6], [0, 3], 0.5, true)?;
            nowhere(fixture, dtype)
        });
        all.add(format!("attention_backward {dtype}: sizes"), move |fixture| {
            for sizes in [[5, 5], [1, 9], [65, 17]] {
                backward(fixture, dtype, sizes, [16, 1], false)?;
            }
            Ok(())
        });
        all.add(
            format!("attention_backward {dtype}: causal, rows that see nothing are 0"),
            move |fixture| {
                for sizes in [[33, 70], [1, 40], [8, 3], [70, 33]] {
                    backward(fixture, dtype, sizes, [8, 3], true)?;
                }
                Ok(())
            },
        );
    }
}

fn nowhere(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    let none = DevicePtr::new(3);
    let call = Attention {
        dtype,
        batch: 0,
        heads: 3,
        seq_q: 4,
        seq_kv: 4,
        head_dim: 4,
        value_dim: 4,
        scale: 1.0,
        causal: true,
        q: none,
        k: none,
        v: none,
        output: none,
    };
    Ok(fixture.driver.attention(&call)?)
}

fn run(
    fixture: &Fixture<'_>,
    dtype: DType,
    [seq_q, seq_kv]: [usize; 2],
    [head_dim, value_dim]: [usize; 2],
    scale: f64,
    causal: bool,
) -> CaseResult {
    fixture.needs(Kernel::Attention, dtype)?;
    let (batch, heads) = (2, 3);
    let q = drawn(dtype, &[batch, heads, seq_q, head_dim], 1)?;
    let k = drawn(dtype, &[batch, heads, seq_kv, head_dim], 2)?;
    let v = drawn(dtype, &[batch, heads, seq_kv, value_dim], 3)?;
    let (x, y, z) = (q.to_f64_vec(), k.to_f64_vec(), v.to_f64_vec());
    let mut truth = Vec::new();
    for head in 0..batch * heads {
        for i in 0..seq_q {
            let seen = match causal {
                true => (i + 1 + seq_kv).saturating_sub(seq_q).min(seq_kv),
                false => seq_kv,
            };
            let score = |j: usize| {
                let (row, key) = ((head * seq_q + i) * head_dim, (head * seq_kv + j) * head_dim);
                scale * (0..head_dim).map(|d| x[row + d] * y[key + d]).sum::<f64>()
            };
            let scores: Vec<f64> = (0..seen).map(score).collect();
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
            let total: f64 = weights.iter().sum();
            for d in 0..value_dim {
                let sum: f64 = (0..seen)
                    .map(|j| weights[j] * z[(head * seq_kv + j) * value_dim + d])
                    .sum();
                truth.push(if seen == 0 { 0.0 } else { sum / total });
            }
        }
    }
    let dims = [batch, heads, seq_q, value_dim];
    let [from_q, from_k, from_v] = [fixture.put(&q)?, fixture.put(&k)?, fixture.put(&v)?];
    let to = fixture.out(dtype, &dims)?;
    fixture.driver.attention(&Attention {
        dtype,
        batch,
        heads,
        seq_q,
        seq_kv,
        head_dim,
        value_dim,
        scale,
        causal,
        q: from_q.ptr,
        k: from_k.ptr,
        v: from_v.ptr,
        output: to.ptr,
    })?;
    let truth = HostTensor::new(Shape::new(&dims)?, truth)?;
    fixture.check_op("nn.functional.scaled_dot_product_attention", &to, &truth)
}

fn backward(
    fixture: &Fixture<'_>,
    dtype: DType,
    [seq_q, seq_kv]: [usize; 2],
    [head_dim, value_dim]: [usize; 2],
    causal: bool,
) -> CaseResult {
    fixture.needs(Kernel::AttentionBackward, dtype)?;
    let (batch, heads, scale) = (1, 2, 0.35);
    let dims = |rows, columns| [batch, heads, rows, columns];
    let shapes = [dims(seq_q, head_dim), dims(seq_kv, head_dim), dims(seq_kv, value_dim)];
    let [q, k, v] = [0, 1, 2].map(|i| drawn(dtype, &shapes[i], i as u64 + 1));
    let [q, k, v, grad] = [q?, k?, v?, drawn(dtype, &dims(seq_q, value_dim), 4)?];
    let truth = Reference::attention_backward(
        &precise(&grad)?,
        &precise(&q)?,
        &precise(&k)?,
        &precise(&v)?,
        None,
        scale,
        causal,
    )?;
    let [from_q, from_k, from_v] = [fixture.put(&q)?, fixture.put(&k)?, fixture.put(&v)?];
    let from = fixture.put(&grad)?;
    let [to_q, to_k, to_v] = shapes.map(|shape| fixture.out(dtype, &shape));
    let to = [to_q?, to_k?, to_v?];
    fixture.driver.attention_backward(&AttentionBackward {
        forward: Attention {
            dtype,
            batch,
            heads,
            seq_q,
            seq_kv,
            head_dim,
            value_dim,
            scale,
            causal,
            q: from_q.ptr,
            k: from_k.ptr,
            v: from_v.ptr,
            output: DevicePtr::NULL,
        },
        grad: from.ptr,
        to_q: to[0].ptr,
        to_k: to[1].ptr,
        to_v: to[2].ptr,
    })?;
    for (to, truth) in to.iter().zip([&truth.0, &truth.1, &truth.2]) {
        fixture.check_op("nn.functional.scaled_dot_product_attention", to, &host(truth)?)?;
    }
    Ok(())
}
