//! One small call of each kind, with the sizes of its operands, for properties that hold for every call.

use polygrad_core::compute::{
    ArgReduce, Attention, AttentionBackward, Batch, Binary, ComputeBackend, Conv2d, CrossEntropy, CumSum, DevicePtr,
    DeviceView, Elementwise, ElementwiseProgram, Fill, Gather, Gemm, Kernel, LayerNorm, Pool2d, Random, Reduce,
    ReduceAxes, Scatter, Softmax, Sort, Step, Transpose, Unary,
};
use polygrad_core::{
    ArgOp, Axes, BinaryOp, ConvParams, CrossEntropyParams, DType, Distribution, PoolParams, RandomKey, ReduceOp,
    Result, Scalar, Shape, UnaryOp,
};

type Call = Box<dyn Fn(&dyn ComputeBackend, &[DevicePtr]) -> Result<()> + Send + Sync>;

/// A call on operands that are initially zeros.
pub(super) struct Probe {
    pub(super) name: &'static str,
    /// The kernel that the driver must support for it; `None` for required methods.
    pub(super) kernel: Option<Kernel>,
    /// The size of each operand in bytes.
    pub(super) operands: Vec<usize>,
    /// The size of an element of each operand in bytes.
    pub(super) sizes: Vec<usize>,
    pub(super) call: Call,
}

fn probe(
    name: &'static str,
    kernel: Option<Kernel>,
    operands: &[(usize, DType)],
    call: impl Fn(&dyn ComputeBackend, &[DevicePtr]) -> Result<()> + Send + Sync + 'static,
) -> Probe {
    Probe {
        name,
        kernel,
        operands: operands.iter().map(|&(len, dtype)| len * dtype.size()).collect(),
        sizes: operands.iter().map(|(_, dtype)| dtype.size()).collect(),
        call: Box::new(call),
    }
}

/// A product of `[4, 5]` and `[5, 3]`.
pub(super) fn product(dtype: DType, ptrs: &[DevicePtr]) -> Gemm {
    Gemm {
        dtype,
        dtype_c: dtype,
        trans_a: Transpose::No,
        trans_b: Transpose::No,
        m: 4,
        n: 3,
        k: 5,
        alpha: 1.0,
        beta: 0.0,
        a: ptrs[0],
        lda: 5,
        b: ptrs[1],
        ldb: 3,
        c: ptrs[2],
        ldc: 3,
    }
}

/// Rows of 3 classes.
fn classified(dtype: DType, ptrs: &[DevicePtr], grad: DevicePtr) -> CrossEntropy {
    CrossEntropy {
        dtype,
        rows: 4,
        columns: 3,
        params: CrossEntropyParams::default(),
        logits: ptrs[0],
        target: ptrs[1],
        loss: ptrs[2],
        logsumexp: ptrs[3],
        grad,
    }
}

/// Attention of 3 queries and 4 keys in 2 heads, without an output.
fn attention(dtype: DType, ptrs: &[DevicePtr]) -> Attention {
    Attention {
        dtype,
        batch: 1,
        heads: 2,
        seq_q: 3,
        seq_kv: 4,
        head_dim: 4,
        value_dim: 5,
        scale: 0.5,
        causal: false,
        q: ptrs[0],
        k: ptrs[1],
        v: ptrs[2],
        output: DevicePtr::NULL,
    }
}

fn conv(dtype: DType, ptrs: &[DevicePtr]) -> Conv2d {
    Conv2d {
        dtype,
        input_shape: [1, 2, 4, 4],
        weight_shape: [3, 2, 3, 3],
        params: ConvParams::default(),
        input: ptrs[0],
        weight: ptrs[1],
        output: ptrs[2],
    }
}

fn pool(dtype: DType, ptrs: &[DevicePtr]) -> Pool2d {
    Pool2d {
        dtype,
        input_shape: [1, 2, 4, 4],
        params: PoolParams::new([2, 2, 1]),
        input: ptrs[0],
        output: ptrs[1],
        positions: ptrs.get(2).copied().unwrap_or_default(),
    }
}

fn view(ptr: DevicePtr, dtype: DType, dims: &[usize]) -> Result<DeviceView> {
    Ok(DeviceView::contiguous(ptr, dtype, Shape::new(dims)?))
}

fn scatter(dtype: DType, ptrs: &[DevicePtr]) -> Result<Scatter> {
    Ok(Scatter {
        target: view(ptrs[0], dtype, &[3, 4])?,
        axis: 0,
        index: view(ptrs[1], DType::I64, &[2, 4])?,
        source: view(ptrs[2], dtype, &[2, 4])?,
    })
}

fn rows(dtype: DType, ptrs: &[DevicePtr]) -> Softmax {
    Softmax {
        dtype,
        rows: 3,
        columns: 4,
        log: false,
        input: ptrs[0],
        saved: ptrs.get(2).copied().unwrap_or_default(),
        output: ptrs[1],
    }
}

/// The calls that are defined for a dtype. Even required ones may be unsupported for it.
pub(super) fn probes(t: DType) -> Vec<Probe> {
    let (float, number) = (t.is_float(), t != DType::Bool);
    let index = DType::I64;
    let (unary, binary, sum) = match t {
        DType::Bool => (UnaryOp::LogicalNot, BinaryOp::Or, ReduceOp::Any),
        _ => (UnaryOp::Neg, BinaryOp::Add, ReduceOp::Sum),
    };
    let mut all = vec![
        probe("unary", None, &[(12, t), (12, t)], move |d, p| {
            let (input, output) = (p[0], p[1]);
            d.unary(&Unary {
                op: unary,
                dtype: t,
                len: 12,
                input,
                output,
            })
        }),
        probe("binary", None, &[(12, t); 3], move |d, p| {
            let (a, b, output) = (p[0], p[1], p[2]);
            d.binary(&Binary {
                op: binary,
                dtype: t,
                len: 12,
                a,
                b,
                output,
            })
        }),
        probe("fill", None, &[(12, t)], move |d, p| {
            d.fill(&Fill {
                dtype: t,
                len: 12,
                value: Scalar::Int(1),
                output: p[0],
            })
        }),
        probe("reduce", None, &[(24, t), (6, t)], move |d, p| {
            let (input, output) = (p[0], p[1]);
            d.reduce(&Reduce {
                op: sum,
                dtype: t,
                outer: 2,
                len: 4,
                inner: 3,
                input,
                output,
            })
        }),
        probe("copy_dtod", None, &[(12, t); 2], move |d, p| {
            d.copy_dtod(p[1], p[0], 12 * t.size())
        }),
        probe(
            "elementwise",
            Some(Kernel::Elementwise),
            &[(12, t), (12, t)],
            move |d, p| {
                let mut program = ElementwiseProgram::default();
                let x = program.input(t);
                let y = program.push(Step::Binary(binary, x, x))?;
                program.output(y);
                d.elementwise(&Elementwise {
                    program: &program,
                    shape: Shape::new(&[3, 4])?,
                    inputs: &[view(p[0], t, &[3, 4])?],
                    scalars: &[],
                    outputs: &[view(p[1], t, &[3, 4])?],
                })
            },
        ),
        probe(
            "reduce_axes",
            Some(Kernel::ReduceAxes),
            &[(24, t), (3, t)],
            move |d, p| {
                let axes = Axes::new([0, 2])?;
                let input = view(p[0], t, &[2, 3, 4])?;
                d.reduce_axes(&ReduceAxes {
                    op: sum,
                    input,
                    axes,
                    output: p[1],
                })
            },
        ),
        probe(
            "arg_reduce",
            Some(Kernel::ArgReduce),
            &[(12, t), (4, index)],
            move |d, p| {
                let input = view(p[0], t, &[3, 4])?;
                d.arg_reduce(&ArgReduce {
                    op: ArgOp::Max,
                    input,
                    axis: 0,
                    output: p[1],
                })
            },
        ),
        probe(
            "sort",
            Some(Kernel::Sort),
            &[(12, t), (12, t), (12, index)],
            move |d, p| {
                d.sort(&Sort {
                    input: view(p[0], t, &[3, 4])?,
                    axis: 1,
                    descending: false,
                    values: p[1],
                    positions: p[2],
                })
            },
        ),
        probe(
            "gather",
            Some(Kernel::Gather),
            &[(12, t), (8, index), (8, t)],
            move |d, p| {
                d.gather(&Gather {
                    input: view(p[0], t, &[3, 4])?,
                    axis: 0,
                    index: view(p[1], index, &[2, 4])?,
                    output: p[2],
                })
            },
        ),
        probe(
            "scatter",
            Some(Kernel::Scatter),
            &[(12, t), (8, index), (8, t)],
            move |d, p| d.scatter(&scatter(t, p)?),
        ),
    ];
    if number {
        all.push(probe("random", None, &[(12, t)], move |d, p| {
            d.random(&Random {
                dtype: t,
                len: 12,
                distribution: Distribution::Uniform { low: 0.0, high: 9.0 },
                key: RandomKey { seed: 1, offset: 2 },
                output: p[0],
            })
        }));
        all.push(probe("cumsum", Some(Kernel::CumSum), &[(12, t); 2], move |d, p| {
            d.cumsum(&CumSum {
                input: view(p[0], t, &[3, 4])?,
                axis: 0,
                output: p[1],
            })
        }));
        let operands = [(12, t), (8, index), (8, t)];
        all.push(probe(
            "scatter_add",
            Some(Kernel::ScatterAdd),
            &operands,
            move |d, p| d.scatter_add(&scatter(t, p)?),
        ));
        let operands = [(32, t), (8, t), (8, index)];
        all.push(probe("max_pool2d", Some(Kernel::MaxPool2d), &operands, move |d, p| {
            d.max_pool2d(&pool(t, p))
        }));
    }
    if float {
        all.extend(of_floats(t));
    }
    all
}

fn of_floats(t: DType) -> Vec<Probe> {
    let planes = [(32, t), (54, t), (12, t)];
    let classified_rows = [(12, t), (4, DType::I64), (4, t), (4, t), (12, t)];
    vec![
        probe("gemm", None, &[(20, t), (15, t), (12, t)], move |d, p| {
            d.gemm(&product(t, p))
        }),
        probe("batched_gemm", None, &[(40, t), (15, t), (24, t)], move |d, p| {
            let batch = Batch {
                count: 2,
                stride_a: 20,
                stride_b: 0,
                stride_c: 12,
            };
            d.batched_gemm(&product(t, p), &batch)
        }),
        probe("conv2d_forward", Some(Kernel::Conv2dForward), &planes, move |d, p| {
            d.conv2d_forward(&conv(t, p))
        }),
        probe(
            "conv2d_input_grad",
            Some(Kernel::Conv2dInputGrad),
            &planes,
            move |d, p| d.conv2d_input_grad(&conv(t, p)),
        ),
        probe(
            "conv2d_weight_grad",
            Some(Kernel::Conv2dWeightGrad),
            &planes,
            move |d, p| d.conv2d_weight_grad(&conv(t, p)),
        ),
        probe(
            "avg_pool2d",
            Some(Kernel::AvgPool2d),
            &[(32, t), (8, t)],
            move |d, p| d.avg_pool2d(&pool(t, p)),
        ),
        probe(
            "attention",
            Some(Kernel::Attention),
            &[(24, t), (32, t), (40, t), (30, t)],
            move |d, p| {
                d.attention(&Attention {
                    output: p[3],
                    ..attention(t, p)
                })
            },
        ),
        probe(
            "attention_backward",
            Some(Kernel::AttentionBackward),
            &[(24, t), (32, t), (40, t), (30, t), (24, t), (32, t), (40, t)],
            move |d, p| {
                d.attention_backward(&AttentionBackward {
                    forward: attention(t, p),
                    grad: p[3],
                    to_q: p[4],
                    to_k: p[5],
                    to_v: p[6],
                })
            },
        ),
        probe("softmax", Some(Kernel::Softmax), &[(12, t); 2], move |d, p| {
            d.softmax(&rows(t, p))
        }),
        probe(
            "softmax_backward",
            Some(Kernel::SoftmaxBackward),
            &[(12, t); 3],
            move |d, p| d.softmax_backward(&rows(t, p)),
        ),
        probe(
            "cross_entropy",
            Some(Kernel::CrossEntropy),
            &classified_rows[..4],
            move |d, p| d.cross_entropy(&classified(t, p, DevicePtr::NULL)),
        ),
        probe(
            "cross_entropy_backward",
            Some(Kernel::CrossEntropyBackward),
            &classified_rows,
            move |d, p| d.cross_entropy_backward(&classified(t, p, p[4])),
        ),
        probe(
            "layer_norm",
            Some(Kernel::LayerNorm),
            &[(12, t), (4, t), (4, t), (12, t), (3, t), (3, t)],
            move |d, p| {
                d.layer_norm(&LayerNorm {
                    dtype: t,
                    rows: 3,
                    columns: 4,
                    eps: 1e-5,
                    input: p[0],
                    weight: Some(p[1]),
                    bias: Some(p[2]),
                    output: p[3],
                    mean: p[4],
                    rstd: p[5],
                })
            },
        ),
    ]
}
