//! A simulated chip, made of host memory and plain loops: the smallest driver that fulfils all requirements.
//! docs/driver.md explains it.

mod memory;
mod numbers;

use std::sync::{Mutex, PoisonError};

use memory::{Memory, whole};
use numbers::{as_real, binary, compare, reduce, round, unary};
use polygrad_core::compute::{
    Attention, Batch, Binary, ComputeBackend, Conv2d, DevicePtr, Driver, DriverCapabilities, Elementwise, Gemm, Kernel,
    Reduce, Step, Unary, Value,
};
use polygrad_core::{DType, Error, ErrorKind, Result, Scalar};

/// The required minimum of dtypes.
const DTYPES: [DType; 3] = [DType::F32, DType::I64, DType::Bool];

/// The driver. Everything is behind one lock, so that only one thread uses it at a time.
#[derive(Debug, Default)]
pub struct ToyDriver(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    open: bool,
    memory: Memory,
}

impl ToyDriver {
    /// Runs a call on the memory; fails before `open`.
    fn call<T>(&self, op: &'static str, run: impl FnOnce(&mut Memory) -> Result<T>) -> Result<T> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let result = match state.open {
            true => run(&mut state.memory),
            false => Err(Error::new(ErrorKind::NotInitialized, "the driver is not open").with_hint("call init first")),
        };
        result.map_err(|error| error.with_op(op).with_device(self.name()))
    }
}

impl Driver for ToyDriver {
    const NAME: &'static str = "toy";
}

impl ComputeBackend for ToyDriver {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn init(&self) -> Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).open = true;
        Ok(())
    }

    fn is_initialized(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).open
    }

    fn capabilities(&self) -> DriverCapabilities {
        DriverCapabilities::new("plain loops", DTYPES)
    }

    fn supports(&self, kernel: Kernel, dtype: DType) -> bool {
        match kernel {
            Kernel::Elementwise => DTYPES.contains(&dtype),
            Kernel::Conv2dForward | Kernel::Attention => dtype == DType::F32,
            _ => false,
        }
    }

    fn alloc(&self, bytes: usize) -> Result<DevicePtr> {
        self.call("alloc", |memory| memory.alloc(bytes))
    }

    fn free(&self, ptr: DevicePtr) -> Result<()> {
        self.call("free", |memory| memory.free(ptr))
    }

    fn copy_htod(&self, dst: DevicePtr, src: &[u8]) -> Result<()> {
        self.call("copy_htod", |memory| {
            memory.bytes_mut(dst, src.len())?.copy_from_slice(src);
            Ok(())
        })
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: DevicePtr) -> Result<()> {
        self.call("copy_dtoh", |memory| {
            dst.copy_from_slice(memory.bytes(src, dst.len())?);
            Ok(())
        })
    }

    fn synchronize(&self) -> Result<()> {
        self.call("synchronize", |_| Ok(()))
    }

    fn gemm(&self, call: &Gemm) -> Result<()> {
        self.batched_gemm(call, &Batch::ONE)
    }

    fn batched_gemm(&self, call: &Gemm, batch: &Batch) -> Result<()> {
        self.call("gemm", |memory| {
            let [a, b, c] = batch.spans(call)?;
            let size = supported(call.dtype)?.size();
            let a = reals(&memory.read(&whole(call.a, call.dtype, &[a / size])?)?);
            let b = reals(&memory.read(&whole(call.b, call.dtype, &[b / size])?)?);
            // All of C is checked before any of it is written, and its values are read only if they are used.
            let old = reals(&memory.read(&whole(call.c, call.dtype, &[c / size])?)?);
            if call.is_empty() {
                return Ok(());
            }
            let at = |swaps: bool, ld: usize, row: usize, column: usize| {
                if swaps { column * ld + row } else { row * ld + column }
            };
            for matrix in 0..batch.count {
                for i in 0..call.m {
                    let start = matrix * batch.stride_c + i * call.ldc;
                    let row = (0..call.n).map(|j| {
                        let term = |p: usize| {
                            a[matrix * batch.stride_a + at(call.trans_a.swaps(), call.lda, i, p)]
                                * b[matrix * batch.stride_b + at(call.trans_b.swaps(), call.ldb, p, j)]
                        };
                        let sum = call.alpha * (0..call.k).map(term).sum::<f64>();
                        Scalar::Float(if call.beta == 0.0 {
                            sum
                        } else {
                            sum + call.beta * old[start + j]
                        })
                    });
                    let row: Vec<_> = row.collect();
                    memory.write(&whole(call.c.add(start * size), call.dtype, &[call.n])?, &row)?;
                }
            }
            Ok(())
        })
    }

    fn conv2d_forward(&self, call: &Conv2d) -> Result<()> {
        self.call("conv2d_forward", |memory| {
            let ([_, c, h, w], [o, per_group, r, s]) = (call.input_shape, call.weight_shape);
            let dims = call.output_shape()?;
            let x = reals(&memory.read(&whole(call.input, call.dtype, &call.input_shape)?)?);
            let weight = reals(&memory.read(&whole(call.weight, call.dtype, &call.weight_shape)?)?);
            let output = whole(call.output, supported(call.dtype)?, &dims)?;
            let params = &call.params;
            // The input position of a window's tap on an axis; `None` in the padding.
            let on = |axis: usize, at: usize, tap: usize, dim: usize| {
                (at * params.stride[axis] + tap * params.dilation[axis])
                    .checked_sub(params.padding[axis])
                    .filter(|&i| i < dim)
            };
            let mut out = Vec::with_capacity(output.shape().numel());
            for n in 0..dims[0] {
                for k in 0..o {
                    let first = k / (o / params.groups) * per_group;
                    for y in 0..dims[2] {
                        for z in 0..dims[3] {
                            let mut sum = 0.0;
                            for channel in 0..per_group {
                                for i in 0..r {
                                    for j in 0..s {
                                        if let (Some(row), Some(column)) = (on(0, y, i, h), on(1, z, j, w)) {
                                            sum += x[((n * c + first + channel) * h + row) * w + column]
                                                * weight[((k * per_group + channel) * r + i) * s + j];
                                        }
                                    }
                                }
                            }
                            out.push(Scalar::Float(sum));
                        }
                    }
                }
            }
            memory.write(&output, &out)
        })
    }

    fn attention(&self, call: &Attention) -> Result<()> {
        self.call("attention", |memory| {
            let dtype = supported(call.dtype)?;
            let Attention {
                seq_q,
                seq_kv,
                head_dim,
                value_dim,
                ..
            } = *call;
            let of = |ptr, rows, columns| whole(ptr, dtype, &[call.batch, call.heads, rows, columns]);
            let q = reals(&memory.read(&of(call.q, seq_q, head_dim)?)?);
            let k = reals(&memory.read(&of(call.k, seq_kv, head_dim)?)?);
            let v = reals(&memory.read(&of(call.v, seq_kv, value_dim)?)?);
            let output = of(call.output, seq_q, value_dim)?;
            let mut out = Vec::with_capacity(output.shape().numel());
            for row in 0..if value_dim == 0 {
                0
            } else {
                call.batch * call.heads * seq_q
            } {
                let (head, i) = (row / seq_q, row % seq_q);
                let seen = if call.causal {
                    (i + 1 + seq_kv).saturating_sub(seq_q).min(seq_kv)
                } else {
                    seq_kv
                };
                let score = |j: usize| {
                    let key = (head * seq_kv + j) * head_dim;
                    call.scale * (0..head_dim).map(|d| q[row * head_dim + d] * k[key + d]).sum::<f64>()
                };
                let scores: Vec<f64> = (0..seen).map(score).collect();
                let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - top).exp()).collect();
                let total: f64 = weights.iter().sum();
                for d in 0..value_dim {
                    let sum: f64 = (0..seen)
                        .map(|j| weights[j] * v[(head * seq_kv + j) * value_dim + d])
                        .sum();
                    out.push(Scalar::Float(if seen == 0 { 0.0 } else { sum / total }));
                }
            }
            memory.write(&output, &out)
        })
    }

    fn unary(&self, call: &Unary) -> Result<()> {
        call.by_elementwise(self)
    }

    fn binary(&self, call: &Binary) -> Result<()> {
        call.by_elementwise(self)
    }

    fn elementwise(&self, call: &Elementwise<'_>) -> Result<()> {
        self.call("elementwise", |memory| elementwise(memory, call))
    }

    fn reduce(&self, call: &Reduce) -> Result<()> {
        self.call("reduce", |memory| {
            let dtype = supported(call.dtype)?;
            call.spans()?;
            let x = memory.read(&whole(call.input, dtype, &[call.outer, call.len, call.inner])?)?;
            let output = whole(call.output, dtype, &[call.outer, call.inner])?;
            let fold = |i: usize| {
                let first = i / call.inner * call.len * call.inner + i % call.inner;
                reduce(call.op, dtype, (0..call.len).map(|j| x[first + j * call.inner]))
            };
            let out = (0..output.shape().numel()).map(fold).collect::<Result<Vec<_>>>()?;
            memory.write(&output, &out)
        })
    }
}

fn supported(dtype: DType) -> Result<DType> {
    match DTYPES.contains(&dtype) {
        true => Ok(dtype),
        false => Err(Error::unsupported(format!("the toy computes with no {dtype}"))),
    }
}

fn reals(x: &[Scalar]) -> Vec<f64> {
    x.iter().map(|&x| as_real(x)).collect()
}

/// Runs all steps for one element after another; each result is rounded to its dtype.
fn elementwise(memory: &mut Memory, call: &Elementwise<'_>) -> Result<()> {
    call.check()?;
    let program = call.program;
    for &dtype in program
        .inputs()
        .iter()
        .chain(program.steps().iter().map(|(_, dtype)| dtype))
    {
        supported(dtype)?;
    }
    let inputs = call
        .inputs
        .iter()
        .map(|view| memory.read(view))
        .collect::<Result<Vec<_>>>()?;
    let scalars: Vec<_> = call
        .scalars
        .iter()
        .zip(program.scalars())
        .map(|(&x, &dtype)| round(x, dtype))
        .collect();
    let mut outputs = vec![Vec::new(); call.outputs.len()];
    let mut steps: Vec<Scalar> = Vec::new();
    let input = |k: u16, element: usize| inputs[usize::from(k)][element];
    for element in 0..call.shape.numel() {
        steps.clear();
        let find = |value: Value, steps: &[Scalar]| match value {
            Value::Input(k) => input(k, element),
            Value::Scalar(k) => scalars[usize::from(k)],
            Value::Step(k) => steps[usize::from(k)],
        };
        for &(step, dtype) in program.steps() {
            let of = |value| find(value, &steps);
            let value = match step {
                Step::Unary(op, x) => unary(op, of(x))?,
                Step::Binary(op, a, b) => binary(op, of(a), of(b))?,
                Step::Compare(op, a, b) => compare(op, of(a), of(b))?,
                Step::Select(condition, a, b) => of(if of(condition) == Scalar::Bool(true) { a } else { b }),
                Step::Cast(x, _) => of(x),
                _ => return Err(Error::unsupported(format!("the toy knows no {}", step.name()))),
            };
            steps.push(round(value, dtype));
        }
        for (output, &value) in outputs.iter_mut().zip(program.outputs()) {
            output.push(find(value, &steps));
        }
    }
    // All outputs are checked before the first is written.
    call.outputs.iter().try_for_each(|view| memory.find(view).map(drop))?;
    call.outputs
        .iter()
        .zip(outputs)
        .try_for_each(|(view, values)| memory.write(view, &values))
}
