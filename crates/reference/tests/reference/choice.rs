//! The backend chosen at run time, and what it claims to support.

use polygrad_core::{
    AnyBackend, ArgOp, Axes, Backend, BinaryOp, CompareOp, ConvParams, DType, ErrorKind, Op, OpDesc, PoolParams,
    ReduceOp, Registry, Scalar, Shape, UnaryOp,
};
use polygrad_reference::{ReferenceDevice, entry};

use crate::tools::{R, T, assert_fails, tensor};

#[test]
fn opens_by_name_and_computes_erased() {
    let registry = Registry::default();
    registry.register(entry()).unwrap();
    let device = registry.open("reference").unwrap();
    assert_eq!(device.to_string(), "reference");
    let x = AnyBackend::full(Shape::from([2]), Scalar::Float(1.5), DType::F32, &device).unwrap();
    let y = AnyBackend::softmax(&AnyBackend::add(&x, &x).unwrap(), 0).unwrap();
    assert_eq!(AnyBackend::to_host(&y).unwrap().to_vec::<f32>().unwrap(), [0.5, 0.5]);
    assert_fails(registry.open("reference:threads=2"), ErrorKind::Device, "no option");
    assert_fails(
        registry.open("auto"),
        ErrorKind::BackendUnavailable,
        "no backend lets itself be chosen",
    );
}

/// Checks that what the backend claims about an op is true.
fn claims_truly<V>(op: Op, dtype: DType, result: polygrad_core::Result<V>) {
    let claim = R::supports(&ReferenceDevice, &OpDesc { op: &op, dtype });
    match (&claim, &result) {
        (Err(reason), Err(error)) => {
            let reason = reason.to_string();
            // A decomposed op fails in one of its parts.
            assert!(
                error.to_string().contains(&format!("not defined for {dtype}")),
                "{error}"
            );
            assert!(reason.contains(op.name()) && reason.contains(dtype.name()), "{reason}");
        }
        (Ok(()), Ok(_)) => {}
        _ => panic!(
            "{op:?} on {dtype}: claimed {claim:?}, but success is {}",
            result.is_ok()
        ),
    }
}

fn ones(dims: &[usize], dtype: DType) -> T {
    R::full(Shape::new(dims).unwrap(), Scalar::Int(1), dtype, &ReferenceDevice).unwrap()
}

#[test]
fn supports_what_it_computes_and_nothing_else() {
    let axis = 0;
    let index = tensor([1], &[0i64]);
    for dtype in DType::ALL {
        let x = ones(&[1], dtype);
        for &op in UnaryOp::ALL {
            claims_truly(Op::Unary(op), dtype, R::unary(op, &x));
        }
        for &op in BinaryOp::ALL {
            claims_truly(Op::Binary(op), dtype, R::binary(op, &x, &x));
            let (scalar, reverse) = (Scalar::Int(1), false);
            let result = R::binary_scalar(op, &x, scalar, reverse);
            claims_truly(Op::BinaryScalar { op, scalar, reverse }, dtype, result);
        }
        for &op in CompareOp::ALL {
            claims_truly(Op::Compare(op), dtype, R::compare(op, &x, &x));
        }
        for &op in ReduceOp::ALL {
            let (axes, keepdims) = (Axes::one(0), true);
            claims_truly(
                Op::Reduce { op, axes, keepdims },
                dtype,
                R::reduce(op, &x, axes, keepdims),
            );
        }
        for &op in ArgOp::ALL {
            let result = R::arg_reduce(op, &x, axis, false);
            claims_truly(
                Op::ArgReduce {
                    op,
                    axis,
                    keepdims: false,
                },
                dtype,
                result,
            );
        }
        claims_truly(Op::CumSum { axis }, dtype, R::cumsum(&x, axis));
        claims_truly(Op::Gather { axis }, dtype, R::gather(&x, axis, &index));
        claims_truly(Op::Scatter { axis }, dtype, R::scatter(&x, axis, &index, &x));
        claims_truly(Op::ScatterAdd { axis }, dtype, R::scatter_add(&x, axis, &index, &x));
        claims_truly(Op::IndexSelect { axis }, dtype, R::index_select(&x, axis, &index));
        claims_truly(Op::IndexAdd { axis }, dtype, R::index_add(&x, axis, &index, &x));
        claims_truly(Op::Sort { axis, descending: true }, dtype, R::sort(&x, axis, true));
        claims_truly(Op::AccumulateGrad, dtype, R::accumulate_grad(x.clone(), &x));
        claims_truly(Op::SumTo(Shape::SCALAR), dtype, R::sum_to(&x, Shape::SCALAR));
        let matrix = ones(&[1, 1], dtype);
        claims_truly(Op::Matmul, dtype, R::matmul(&matrix, &matrix));
        let (signal, params) = (ones(&[1, 1, 2], dtype), ConvParams::default());
        let call = Op::Conv {
            activation: None,
            params,
        };
        claims_truly(call, dtype, R::conv(&signal, &signal, None, None, None, &params));
        let pool = PoolParams::new([2; 3]);
        let call = Op::MaxPool {
            params: Box::new(pool),
            positions: true,
        };
        claims_truly(call, dtype, R::max_pool(&signal, &pool, true));
        claims_truly(Op::AvgPool(Box::new(pool)), dtype, R::avg_pool(&signal, &pool));
        for target in DType::ALL {
            claims_truly(Op::Cast(target), dtype, R::cast(&x, target));
        }
    }
}

#[test]
fn says_what_it_is() {
    let capabilities = R::capabilities(&ReferenceDevice);
    assert_eq!(capabilities.dtypes, DType::ALL);
    assert!(!capabilities.asynchronous);
    let op = Op::Softmax { axis: 0 };
    let supports = |dtype| R::supports(&ReferenceDevice, &OpDesc { op: &op, dtype });
    assert!(supports(DType::F16).is_ok());
    assert_fails(supports(DType::I32), ErrorKind::DType, "softmax");
}
