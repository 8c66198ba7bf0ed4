//! Dtypes of results: the tables are what PyTorch 2.13 gave.

use polygrad_core::{BinaryOp, Scalar};
use polygrad_tensor::DType::{self, BF16, Bool, F16, F32, F64, I32, I64, U8};
use polygrad_tensor::Result;

use super::{Tensor, device};

/// `a + b` and `a / b` for each pair, rows and columns in the order of `DType::ALL`.
const SUMS: [[DType; 8]; 8] = [
    [Bool, U8, I32, I64, F16, BF16, F32, F64],
    [U8, U8, I32, I64, F16, BF16, F32, F64],
    [I32, I32, I32, I64, F16, BF16, F32, F64],
    [I64, I64, I64, I64, F16, BF16, F32, F64],
    [F16, F16, F16, F16, F16, F32, F32, F64],
    [BF16, BF16, BF16, BF16, F32, BF16, F32, F64],
    [F32, F32, F32, F32, F32, F32, F32, F64],
    [F64, F64, F64, F64, F64, F64, F64, F64],
];
const QUOTIENTS: [[DType; 8]; 8] = [
    [F32, F32, F32, F32, F16, BF16, F32, F64],
    [F32, F32, F32, F32, F16, BF16, F32, F64],
    [F32, F32, F32, F32, F16, BF16, F32, F64],
    [F32, F32, F32, F32, F16, BF16, F32, F64],
    [F16, F16, F16, F16, F16, F32, F32, F64],
    [BF16, BF16, BF16, BF16, F32, BF16, F32, F64],
    [F32, F32, F32, F32, F32, F32, F32, F64],
    [F64, F64, F64, F64, F64, F64, F64, F64],
];
/// `x + s`, `x * s`, `x ^ s` for `True`, `2` and `1.5`.
const WITH_SCALARS: [[DType; 3]; 8] = [
    [Bool, I64, F32],
    [U8, U8, F32],
    [I32, I32, F32],
    [I64, I64, F32],
    [F16, F16, F16],
    [BF16, BF16, BF16],
    [F32, F32, F32],
    [F64, F64, F64],
];
/// `sum`, `exp`, `amax`, `cat` with f32 and `where` with i32.
const OTHERS: [[DType; 5]; 8] = [
    [I64, F32, Bool, F32, I32],
    [I64, F32, U8, F32, I32],
    [I64, F32, I32, F32, I32],
    [I64, F32, I64, F32, I64],
    [F16, F16, F16, F32, F16],
    [BF16, BF16, BF16, F32, BF16],
    [F32, F32, F32, F32, F32],
    [F64, F64, F64, F64, F64],
];

fn ones(dtype: DType) -> Tensor {
    Tensor::full([2], 1, (&device(), dtype)).unwrap()
}

#[test]
fn of_two_tensors() -> Result<()> {
    for (row, a) in DType::ALL.into_iter().enumerate() {
        for (column, b) in DType::ALL.into_iter().enumerate() {
            let (a, b) = (ones(a), ones(b));
            let shown = format!("{} and {}", a.dtype(), b.dtype());
            assert_eq!((&a + &b)?.dtype(), SUMS[row][column], "{shown}");
            assert_eq!(a.maximum(&b)?.dtype(), SUMS[row][column], "{shown}");
            assert_eq!((&a / &b)?.dtype(), QUOTIENTS[row][column], "{shown}");
            assert_eq!(a.eq(&b)?.to_vec::<bool>()?, [true; 2], "{shown}");
        }
    }
    Ok(())
}

#[test]
fn of_a_tensor_and_a_number() -> Result<()> {
    let scalars = [Scalar::Bool(true), Scalar::Int(2), Scalar::Float(1.5)];
    for (row, dtype) in DType::ALL.into_iter().enumerate() {
        for (column, scalar) in scalars.into_iter().enumerate() {
            let (x, shown) = (ones(dtype), format!("{dtype} and {scalar:?}"));
            let expected = WITH_SCALARS[row][column];
            for op in [BinaryOp::Add, BinaryOp::Mul, BinaryOp::Maximum] {
                assert_eq!(x.binary_scalar(op, scalar, false)?.dtype(), expected, "{shown}");
                assert_eq!(x.binary_scalar(op, scalar, true)?.dtype(), expected, "{shown}");
            }
            assert_eq!(
                x.binary_scalar(BinaryOp::Div, scalar, false)?.dtype(),
                expected.to_float(),
                "{shown}"
            );
        }
    }
    Ok(())
}

#[test]
fn of_other_ops() -> Result<()> {
    let condition = Tensor::new([true, false], &device())?;
    for (row, dtype) in DType::ALL.into_iter().enumerate() {
        let x = ones(dtype);
        let results = [
            x.sum(())?,
            x.exp()?,
            x.amax(())?,
            Tensor::cat(&[&x, &ones(F32)], 0)?,
            Tensor::where_(&condition, &x, &ones(I32))?,
        ];
        assert_eq!(results.map(|result| result.dtype()), OTHERS[row], "{dtype}");
        assert_eq!(x.prod(())?.dtype(), OTHERS[row][0], "{dtype}");
        assert_eq!(x.cumsum(0)?.dtype(), OTHERS[row][0], "{dtype}");
        assert_eq!(x.sigmoid()?.dtype(), OTHERS[row][1], "{dtype}");
    }
    Ok(())
}

#[test]
fn values_of_integers() -> Result<()> {
    let ints = |values: [i64; 2]| Tensor::new(values, &device());
    let (x, three) = (ints([7, -7])?, ints([3, -3])?);
    assert_eq!((&x % 3)?.to_vec::<i64>()?, [1, 2]);
    assert_eq!((&x % -3)?.to_vec::<i64>()?, [-2, -1]);
    assert_eq!((x.to_dtype(F64)? % -3.0)?.to_vec::<f64>()?, [-2.0, -1.0]);
    assert_eq!((&x / 2)?.to_vec::<f32>()?, [3.5, -3.5]);
    assert_eq!(x.pow(2)?.to_vec::<i64>()?, [49, 49]);
    assert_eq!((&x * &three)?.to_vec::<i64>()?, [21, 21]);
    let wrapped = (Tensor::new([i32::MAX], (&device(), I32))? + 1)?;
    assert_eq!(wrapped.to_vec::<i32>()?, [i32::MIN]);
    assert_eq!((Tensor::new([200u8], &device())? + 100)?.to_vec::<u8>()?, [44]);
    // Beyond 2^53, f64 would round.
    let large = Tensor::new([9_007_199_254_740_993i64], &device())?;
    assert_eq!((&large + 0)?.to_vec::<i64>()?, [9_007_199_254_740_993]);
    assert_eq!(large.sum_all()?.to_vec::<i64>()?, [9_007_199_254_740_993]);
    assert_eq!(large.gt(9_007_199_254_740_992i64)?.to_vec::<bool>()?, [true]);
    Ok(())
}
