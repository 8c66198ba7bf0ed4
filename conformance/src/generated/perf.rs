//! Speed measurements of a backend.

use std::fmt;
use std::time::{Duration, Instant};

use polygrad_core::{
    AdamParams, AnyTensor, Axes, Backend, BinaryOp, ConvParams, CrossEntropyParams, DType, Op, PoolParams, ReduceOp,
    Result, UnaryOp,
};
use polygrad_tensor::Device;
use serde_json::json;

use super::fill::Fill;
use super::judge;
use super::sample::{Layout, Operand, Sample};
use crate::near;
use crate::options::Options;

/// The duration of one call.
#[derive(Clone, Debug)]
pub struct Timing {
    /// The call: op, shapes and dtype.
    pub name: String,
    /// The op's name.
    pub op: String,
    /// Median time of a call in nanoseconds, including waiting for the device.
    pub ns: f64,
    /// Floating-point operations of a call: 2 for each multiply and add of a product or convolution, else 1 for each
    /// element of the largest tensor.
    pub flops: f64,
    /// Bytes of all tensors that a call reads and writes, counting each once.
    pub bytes: f64,
}

impl Timing {
    /// The timings as JSON: a list of `{"case", "op", "ns", "gflops", "gbytes"}`, the latter two per second.
    pub fn to_json(timings: &[Self]) -> String {
        let rows: Vec<_> = timings
            .iter()
            .map(
                |t| json!({"case": t.name, "op": t.op, "ns": t.ns, "gflops": t.flops / t.ns, "gbytes": t.bytes / t.ns}),
            )
            .collect();
        format!("{:#}\n", json!(rows))
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (flops, bytes) = (self.flops / self.ns, self.bytes / self.ns);
        write!(
            f,
            "{:56} {:>14.0} ns {flops:>9.2} GFLOP/s {bytes:>9.2} GB/s",
            self.name, self.ns
        )
    }
}

/// Times calls of common sizes, in f32 and f64 if the device has them. `op` and `case` of the options select some of
/// them.
///
/// # Errors
/// A call that fails; an unknown op or case, with similar names.
pub fn perf<B: Backend>(device: &Device<B>, options: &Options) -> Result<Vec<Timing>> {
    let device = device.clone().into_any();
    let dtypes = device.capabilities().dtypes;
    let dtypes: Vec<DType> = [DType::F32, DType::F64]
        .into_iter()
        .filter(|dtype| dtypes.contains(dtype))
        .collect();
    let mut calls: Vec<(String, Sample, DType, f64)> = Vec::new();
    for dtype in dtypes {
        calls.extend(samples().into_iter().map(|(sample, flops)| {
            let name = format!("{}/{}@{dtype}", sample.op.name(), sample.detail);
            (name, sample, dtype, flops)
        }));
    }
    if let Some(op) = &options.op {
        let missing = near::missing("op", op, calls.iter().map(|call| call.1.op.name()));
        calls.retain(|call| call.1.op.name() == op);
        if calls.is_empty() {
            return Err(missing);
        }
    }
    if let Some(case) = &options.case {
        let missing = near::missing("case", case, calls.iter().map(|call| call.0.as_str()));
        calls.retain(|call| call.0 == *case);
        if calls.is_empty() {
            return Err(missing);
        }
    }
    let time = |(name, sample, dtype, flops): (String, Sample, DType, f64)| {
        let op = sample.op.name().to_owned();
        let (ns, bytes) = time(&sample, dtype, &device)?;
        Ok(Timing {
            name,
            op,
            ns,
            flops,
            bytes,
        })
    };
    calls.into_iter().map(time).collect()
}

/// Median nanoseconds of a call, and the bytes that it touches.
fn time(sample: &Sample, dtype: DType, device: &Device) -> Result<(f64, f64)> {
    let (at, backend) = (device.inner(), device.inner().backend());
    let mut inputs = judge::operands(sample, dtype, Layout::Contiguous, 1, at)?;
    let mut bytes = 0.0;
    let size = |x: &AnyTensor| (x.shape().numel() * x.dtype().size()) as f64;
    for input in &inputs {
        bytes += size(input);
    }
    let grad = if judge::is_update(&sample.op) {
        inputs.pop()
    } else {
        None
    };
    let mut times = Vec::new();
    let started = Instant::now();
    while times.len() < 5 || (started.elapsed() < Duration::from_millis(60) && times.len() < 2000) {
        let start = Instant::now();
        let outputs = match &grad {
            None => Some(backend.execute(&sample.op, &inputs.iter().collect::<Vec<_>>())?),
            Some(grad) => {
                backend.update(&sample.op, &mut inputs.iter_mut().collect::<Vec<_>>(), grad)?;
                None
            }
        };
        backend.synchronize(at)?;
        times.push(start.elapsed().as_nanos() as f64);
        if times.len() == 1 {
            let written: Vec<&AnyTensor> = match &outputs {
                Some(outputs) => outputs.iter().collect(),
                None => inputs.iter().collect(),
            };
            for output in written {
                bytes += size(output);
            }
        }
    }
    times.sort_by(f64::total_cmp);
    Ok((times[times.len() / 2], bytes))
}

/// Calls and the floating-point operations of each.
fn samples() -> Vec<(Sample, f64)> {
    let reals = |dims: &[usize]| Operand::drawn(dims, Fill::Range(0.1, 2.0));
    let mut samples = Vec::new();
    let mut add =
        |op: Op, operands: Vec<Operand>, flops: usize| samples.push((Sample::new(op, operands, ""), flops as f64));
    for n in [1 << 10, 1 << 20] {
        add(Op::Binary(BinaryOp::Add), vec![reals(&[n]), reals(&[n])], n);
        add(Op::Binary(BinaryOp::Mul), vec![reals(&[n]), reals(&[n])], n);
        for op in [
            UnaryOp::Exp,
            UnaryOp::Log,
            UnaryOp::Tanh,
            UnaryOp::Sigmoid,
            UnaryOp::Sqrt,
            UnaryOp::Erf,
        ] {
            add(Op::Unary(op), vec![reals(&[n])], n);
        }
    }
    let sum = |axes| Op::Reduce {
        op: ReduceOp::Sum,
        axes,
        keepdims: false,
    };
    add(sum(Axes::one(1)), vec![reals(&[1024, 1024])], 1 << 20);
    add(sum(Axes::one(0)), vec![reals(&[512, 2048])], 1 << 20);
    for (m, k, n) in [
        (32, 10, 128),
        (128, 128, 128),
        (512, 512, 512),
        (64, 784, 128),
        (1, 1024, 1024),
    ] {
        add(Op::Matmul, vec![reals(&[m, k]), reals(&[k, n])], 2 * m * k * n);
    }
    add(
        Op::Linear { activation: None },
        vec![reals(&[64, 784]), reals(&[128, 784]), reals(&[128])],
        2 * 64 * 784 * 128,
    );
    let conv = ConvParams {
        padding: [1; 3],
        ..ConvParams::default()
    };
    for (batch, channels, out, side) in [(16, 1, 16, 28), (16, 16, 32, 14)] {
        let flops = 2 * batch * channels * out * side * side * 9;
        add(
            Op::Conv {
                activation: None,
                params: conv,
            },
            vec![reals(&[batch, channels, side, side]), reals(&[out, channels, 3, 3])],
            flops,
        );
    }
    add(
        Op::MaxPool {
            params: Box::new(PoolParams::new([2; 3])),
            positions: true,
        },
        vec![reals(&[16, 16, 28, 28])],
        16 * 16 * 28 * 28,
    );
    add(Op::Softmax { axis: 1 }, vec![reals(&[512, 512])], 1 << 18);
    add(
        Op::LayerNorm { axes: 1, eps: 1e-5 },
        vec![reals(&[512, 512]), reals(&[512]), reals(&[512])],
        1 << 18,
    );
    add(
        Op::CrossEntropy(CrossEntropyParams::default()),
        vec![reals(&[128, 1000]), Operand::index(&[128], 1000)],
        128_000,
    );
    let heads = [4, 4, 64, 32];
    add(
        Op::Attention {
            scale: 0.2,
            causal: true,
        },
        vec![reals(&heads), reals(&heads), reals(&heads)],
        4 * 16 * 64 * 64 * 32,
    );
    add(
        Op::Embedding { padding_idx: None },
        vec![reals(&[1000, 128]), Operand::index(&[512], 1000)],
        512 * 128,
    );
    let adam = AdamParams {
        lr: 1e-3,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.0,
        decoupled: false,
        step: 10,
    };
    let n = 1 << 18;
    add(
        Op::AdamStep(adam),
        vec![reals(&[n]), reals(&[n]), reals(&[n]), reals(&[n])],
        n,
    );
    samples
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<String> = samples()
            .iter()
            .map(|(sample, _)| format!("{}/{}", sample.op.name(), sample.detail))
            .collect();
        assert_eq!(names.len(), samples().len());
    }
}
