//! Calls with random shapes, arguments, dtypes and layouts. A call that fails is reduced to a small one that also
//! fails.

use std::cell::RefCell;
use std::fmt;

use polygrad_core::{
    ArgOp, Axes, BinaryOp, CompareOp, ConvParams, DType, Op, PoolParams, ReduceOp, Scalar, Shape, SliceRange, UnaryOp,
};
use polygrad_tensor::{AnyBackend, Device};
use proptest::collection::vec;
use proptest::prelude::{BoxedStrategy, Just, Strategy, any};
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use super::fill::Fill;
use super::judge;
use super::sample::{Layout, Operand, Sample};
use crate::case::Status;

/// Calls of one family of ops.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    calls: fn() -> BoxedStrategy<Sample>,
}

/// One call with its dtype and layout.
#[derive(Clone)]
struct Trial {
    sample: Sample,
    dtype: DType,
    layout: Layout,
    seed: u64,
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sample,
            dtype,
            layout,
            seed,
        } = self;
        write!(
            f,
            "{:?} of {}, {} {dtype}, seed {seed}",
            sample.op,
            sample.detail,
            layout.name()
        )
    }
}

impl Family {
    /// Runs calls until one fails: `PROPTEST_CASES` of them, or 256, always the same ones. A call that the backend does
    /// not support passes here; the other cases report it.
    ///
    /// # Errors
    /// The smallest call found that fails, and how.
    pub(crate) fn hold(&self, dtypes: &[DType], device: &Device<AnyBackend>) -> Result<(), String> {
        let config = Config {
            failure_persistence: None,
            ..Config::default()
        };
        let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        let trials = (
            (self.calls)(),
            select(dtypes.to_vec()),
            select(Layout::ALL.to_vec()),
            any::<u32>(),
        );
        let trials = trials.prop_map(|(sample, dtype, layout, seed)| Trial {
            sample,
            dtype,
            layout,
            seed: seed.into(),
        });
        let reason = RefCell::new(String::new());
        let outcome = runner.run(&trials, |trial| {
            let status = trial.run(device);
            match status {
                Status::Fail(text) => {
                    reason.replace(text.clone());
                    Err(TestCaseError::fail(text))
                }
                Status::Pass | Status::Unsupported(_) => Ok(()),
            }
        });
        match outcome {
            Ok(()) => Ok(()),
            Err(TestError::Fail(_, trial)) => Err(format!("{trial:?}: {}", reason.borrow())),
            Err(TestError::Abort(why)) => Err(format!("no calls could be drawn: {why}")),
        }
    }
}

impl Trial {
    fn run(&self, device: &Device<AnyBackend>) -> Status {
        let first = self.sample.operands.first();
        let first = first.map_or(self.dtype, |operand| operand.dtype(self.dtype));
        if !self.sample.op.accepts(first) {
            return Status::Pass;
        }
        let outcome = judge::run(&self.sample, self.dtype, self.layout, self.seed, device);
        let status = outcome.forward.unwrap_or(Status::Pass);
        match device.synchronize() {
            Ok(()) => status,
            Err(error) => Status::Fail(format!("the device fails afterwards: {error}")),
        }
    }
}

/// Every family.
pub(crate) const FAMILIES: [Family; 11] = [
    Family {
        name: "unary",
        calls: unary,
    },
    Family {
        name: "binary",
        calls: binary,
    },
    Family {
        name: "where",
        calls: choice,
    },
    Family {
        name: "reduce",
        calls: reduce,
    },
    Family {
        name: "scan",
        calls: scan,
    },
    Family {
        name: "matmul",
        calls: matmul,
    },
    Family {
        name: "views",
        calls: views,
    },
    Family {
        name: "joins",
        calls: joins,
    },
    Family {
        name: "index",
        calls: index,
    },
    Family {
        name: "conv",
        calls: conv,
    },
    Family {
        name: "pool",
        calls: pool,
    },
];

fn reals(dims: &[usize]) -> Operand {
    Operand::drawn(dims, Fill::Range(-3.0, 3.0))
}

/// Rank 0 to 4; occasionally with an axis without elements, or one longer than any vector register.
fn dims() -> impl Strategy<Value = Vec<usize>> {
    vec(extent(), 0..=4)
}

fn extent() -> impl Strategy<Value = usize> {
    proptest::prop_oneof![1 => Just(0usize), 12 => 1..6usize, 1 => 6..40usize]
}

/// A shape of rank 1 at least, and one of its axes.
fn dims_and_axis() -> impl Strategy<Value = (Vec<usize>, usize)> {
    vec(extent(), 1..=4).prop_flat_map(|dims| {
        let rank = dims.len();
        (Just(dims), 0..rank)
    })
}

/// A shape, and another that broadcasts with it: some axes are 1, and some leading ones are missing.
fn broadcasting() -> impl Strategy<Value = (Vec<usize>, Vec<usize>)> {
    dims().prop_flat_map(|dims| {
        let rank = dims.len();
        let ones = (vec(any::<bool>(), rank), vec(any::<bool>(), rank), 0..=rank);
        (Just(dims), ones).prop_map(|(dims, (left, right, missing))| {
            let shrunk = |ones: &[bool]| -> Vec<usize> {
                dims.iter()
                    .zip(ones)
                    .map(|(&dim, &one)| if one { 1 } else { dim })
                    .collect()
            };
            (shrunk(&left), shrunk(&right).split_off(missing))
        })
    })
}

fn sample(op: Op, operands: Vec<Operand>) -> Sample {
    Sample::new(op, operands, "")
}

fn unary() -> BoxedStrategy<Sample> {
    let ops = select(vec![
        UnaryOp::Neg,
        UnaryOp::Abs,
        UnaryOp::Sign,
        UnaryOp::Exp,
        UnaryOp::Tanh,
        UnaryOp::Sigmoid,
        UnaryOp::Floor,
        UnaryOp::Sqrt,
    ]);
    (ops, dims())
        .prop_map(|(op, dims)| sample(Op::Unary(op), vec![reals(&dims)]))
        .boxed()
}

fn binary() -> BoxedStrategy<Sample> {
    let ops = select(vec![
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::Maximum,
    ]);
    let arithmetic = (ops.clone(), broadcasting()).prop_map(|(op, (a, b))| {
        let right = Operand::drawn(&b, Fill::Away(1.0, 4.0));
        sample(Op::Binary(op), vec![reals(&a), right])
    });
    let comparisons = (select(CompareOp::ALL.to_vec()), broadcasting())
        .prop_map(|(op, (a, b))| sample(Op::Compare(op), vec![reals(&a), reals(&b)]));
    let with_number = (ops, dims(), 1..9i64, any::<bool>()).prop_map(|(op, dims, scalar, reverse)| {
        let call = Op::BinaryScalar {
            op,
            scalar: Scalar::Int(scalar),
            reverse,
        };
        sample(call, vec![Operand::drawn(&dims, Fill::Away(1.0, 4.0))])
    });
    proptest::prop_oneof![arithmetic, comparisons, with_number].boxed()
}

fn choice() -> BoxedStrategy<Sample> {
    (broadcasting(), any::<bool>())
        .prop_map(|((a, b), full)| {
            let mask = Operand::mask(if full { &a } else { &b });
            sample(Op::Select, vec![mask, reals(&a), reals(&b)])
        })
        .boxed()
}

fn reduce() -> BoxedStrategy<Sample> {
    let ops = select(vec![ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min]);
    let over_axes = (ops, dims(), any::<u8>(), any::<bool>()).prop_filter_map(
        "a reduction of nothing",
        |(op, dims, chosen, keepdims)| {
            let axes: Vec<usize> = (0..dims.len()).filter(|axis| chosen >> axis & 1 == 1).collect();
            let empty = axes.iter().any(|&axis| dims[axis] == 0);
            if empty && op.needs_elements() {
                return None;
            }
            let axes = Axes::new(axes).ok()?;
            Some(sample(Op::Reduce { op, axes, keepdims }, vec![reals(&dims)]))
        },
    );
    let to_shape = broadcasting().prop_filter_map("no broadcast", |(a, b)| {
        let (a, b) = (Shape::new(&a).ok()?, Shape::new(&b).ok()?);
        let from = a.broadcast(&b).ok()?;
        Some(sample(Op::SumTo(b), vec![reals(from.dims())]))
    });
    proptest::prop_oneof![over_axes, to_shape].boxed()
}

fn scan() -> BoxedStrategy<Sample> {
    (dims_and_axis(), 0..6u8, any::<bool>())
        .prop_filter_map("the largest of nothing", |((dims, axis), which, flag)| {
            let op = match which {
                0 => Op::CumSum { axis },
                1 => Op::Softmax { axis },
                2 => Op::LogSoftmax { axis },
                3 => Op::Sort { axis, descending: flag },
                _ if dims[axis] == 0 => return None,
                _ => Op::ArgReduce {
                    op: ArgOp::ALL[usize::from(which == 5)],
                    axis,
                    keepdims: flag,
                },
            };
            Some(sample(op, vec![reals(&dims)]))
        })
        .boxed()
}

fn matmul() -> BoxedStrategy<Sample> {
    let sizes = (extent(), extent(), extent());
    let products = (broadcasting(), sizes).prop_filter_map("too many axes", |((mut a, mut b), (m, k, n))| {
        a.extend([m, k]);
        b.extend([k, n]);
        (a.iter().product::<usize>() < 4000 && b.iter().product::<usize>() < 4000)
            .then(|| sample(Op::Matmul, vec![reals(&a), reals(&b)]))
    });
    let linear = (vec(1..4usize, 0..3), 1..40usize, 1..20usize, any::<bool>()).prop_map(|(mut x, k, n, bias)| {
        x.push(k);
        let mut operands = vec![reals(&x), reals(&[n, k])];
        operands.extend(bias.then(|| reals(&[n])));
        sample(Op::Linear { activation: None }, operands)
    });
    proptest::prop_oneof![products, linear].boxed()
}

fn views() -> BoxedStrategy<Sample> {
    let permute = dims().prop_flat_map(|dims| {
        let order: Vec<usize> = (0..dims.len()).collect();
        (Just(dims), Just(order).prop_shuffle())
    });
    let permute = permute.prop_filter_map("too many axes", |(dims, order)| {
        Some(sample(Op::Permute(Axes::new(order).ok()?), vec![reals(&dims)]))
    });
    let reshape = dims().prop_flat_map(|dims| {
        let order: Vec<usize> = (0..dims.len()).collect();
        (Just(dims), Just(order).prop_shuffle(), any::<bool>())
    });
    // The same extents in another order, and sometimes flattened.
    let reshape = reshape.prop_filter_map("too many axes", |(dims, order, flat)| {
        let to: Vec<usize> = if flat {
            vec![dims.iter().product()]
        } else {
            order.iter().map(|&axis| dims[axis]).collect()
        };
        Some(sample(Op::Reshape(Shape::new(&to).ok()?), vec![reals(&dims)]))
    });
    let expand = broadcasting().prop_filter_map("no broadcast", |(a, b)| {
        let to = Shape::new(&a).ok()?.broadcast(&Shape::new(&b).ok()?).ok()?;
        Some(sample(Op::Expand(to), vec![reals(&b)]))
    });
    let slice = vec((extent(), any::<[u8; 3]>(), any::<bool>()), 0..=4).prop_map(|axes| {
        let dims: Vec<usize> = axes.iter().map(|axis| axis.0).collect();
        let ranges = axes.iter().map(|&(dim, cut, back)| range(dim, cut, back)).collect();
        sample(Op::Slice(ranges), vec![reals(&dims)])
    });
    let pad = vec((extent(), 0..3usize, 0..3usize), 0..=4).prop_map(|axes| {
        let dims: Vec<usize> = axes.iter().map(|axis| axis.0).collect();
        let call = Op::Pad {
            padding: axes.iter().map(|axis| (axis.1, axis.2)).collect(),
            value: Scalar::Int(7),
        };
        sample(call, vec![reals(&dims)])
    });
    proptest::prop_oneof![permute, reshape, expand, slice, pad].boxed()
}

/// A slice of an axis, forwards or backwards, with a step.
fn range(dim: usize, [start, len, step]: [u8; 3], back: bool) -> SliceRange {
    if dim == 0 {
        return SliceRange::new(0, 0, 1);
    }
    let start = usize::from(start) % dim;
    let step = 1 + usize::from(step) % 3;
    let room = if back { start } else { dim - 1 - start };
    let len = usize::from(len) % (room / step + 2);
    let step = step as isize;
    SliceRange::new(start, len, if back { -step } else { step })
}

fn joins() -> BoxedStrategy<Sample> {
    (dims_and_axis(), vec(extent(), 1..=4))
        .prop_map(|((dims, axis), lengths)| {
            let part = |&length: &usize| {
                let mut dims = dims.clone();
                dims[axis] = length;
                reals(&dims)
            };
            sample(Op::Concat { axis }, lengths.iter().map(part).collect())
        })
        .boxed()
}

fn index() -> BoxedStrategy<Sample> {
    (dims_and_axis(), extent(), 0..4u8)
        .prop_map(|((mut dims, axis), count, which)| {
            // There must be an element to index.
            dims[axis] = dims[axis].max(1);
            let mut picked = dims.clone();
            picked[axis] = count;
            let line = || Operand::index(&[count], dims[axis]);
            let all = || Operand::index(&picked, dims[axis]);
            match which {
                0 => sample(Op::Gather { axis }, vec![reals(&dims), all()]),
                1 => sample(Op::ScatterAdd { axis }, vec![reals(&dims), all(), reals(&picked)]),
                2 => sample(Op::IndexSelect { axis }, vec![reals(&dims), line()]),
                _ => sample(Op::IndexAdd { axis }, vec![reals(&dims), line(), reals(&picked)]),
            }
        })
        .boxed()
}

/// One number for each of three axes.
fn each(range: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = [usize; 3]> {
    [range.clone(), range.clone(), range]
}

fn conv() -> BoxedStrategy<Sample> {
    let counts = (0..3usize, 1..4usize, 1..4usize, select(vec![1usize, 2, 3]), 1..=3usize);
    (
        counts,
        each(1..=3),
        each(1..=9),
        each(1..=3),
        each(0..=2),
        each(1..=2),
        0..3u8,
    )
        .prop_filter_map(
            "the window does not fit",
            |((batch, inputs, outputs, groups, rank), kernel, size, stride, padding, dilation, which)| {
                let params = ConvParams {
                    stride,
                    padding,
                    dilation,
                    groups,
                };
                let with = |first: usize, second: usize, rest: [usize; 3]| {
                    let mut dims = vec![first, second];
                    dims.extend(&rest[..rank]);
                    dims
                };
                let x = with(batch, inputs * groups, size);
                let weight = with(outputs * groups, inputs, kernel);
                let (x_shape, weight_shape) = (Shape::new(&x).ok()?, Shape::new(&weight).ok()?);
                let out = params.output_shape(&x_shape, &weight_shape).ok()?;
                let (activation, boxed) = (None, Box::new(params));
                Some(match which {
                    0 => sample(Op::Conv { activation, params }, vec![reals(&x), reals(&weight)]),
                    1 => {
                        let call = Op::ConvInputGrad {
                            input_shape: x_shape,
                            params: boxed,
                        };
                        sample(call, vec![reals(out.dims()), reals(&weight)])
                    }
                    _ => {
                        let call = Op::ConvWeightGrad {
                            weight_shape,
                            params: boxed,
                        };
                        sample(call, vec![reals(out.dims()), reals(&x)])
                    }
                })
            },
        )
        .boxed()
}

fn pool() -> BoxedStrategy<Sample> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (
        0..3usize,
        1..4usize,
        1..=3usize,
        each(1..=3),
        each(1..=9),
        each(1..=3),
        each(0..=1),
        flags,
    )
        .prop_filter_map(
            "the window does not fit",
            |(batch, channels, rank, kernel, size, stride, padding, (ceil_mode, count_include_pad, max))| {
                // PyTorch's limit, too.
                let padding = std::array::from_fn(|axis| padding[axis].min(kernel[axis] / 2));
                let params = PoolParams {
                    stride,
                    padding,
                    ceil_mode,
                    count_include_pad,
                    ..PoolParams::new(kernel)
                };
                let mut dims = vec![batch, channels];
                dims.extend(&size[..rank]);
                params.output_shape(&Shape::new(&dims).ok()?).ok()?;
                let params = Box::new(params);
                let positions = true;
                let call = if max {
                    Op::MaxPool { params, positions }
                } else {
                    Op::AvgPool(params)
                };
                Some(sample(call, vec![reals(&dims)]))
            },
        )
        .boxed()
}
