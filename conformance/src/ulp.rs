//! The elementary functions compared with exactly rounded values: NumPy's tables, which `scripts/make_ulp_tables.py`
//! compacts.

use polygrad_core::{DType, Error, HostTensor, Op, Result, Shape, UnaryOp};
use polygrad_tensor::{AnyBackend, Device};

use crate::case::{Case, Outcome, Source, Status};
use crate::tolerance::ulp_bound;

/// The tables: an op, and lines of input and output as hexadecimal bits.
const TABLES: [(UnaryOp, &str); 8] = [
    (UnaryOp::Exp, include_str!("../data/ulp/exp.txt")),
    (UnaryOp::Expm1, include_str!("../data/ulp/expm1.txt")),
    (UnaryOp::Log, include_str!("../data/ulp/log.txt")),
    (UnaryOp::Log1p, include_str!("../data/ulp/log1p.txt")),
    (UnaryOp::Sin, include_str!("../data/ulp/sin.txt")),
    (UnaryOp::Cos, include_str!("../data/ulp/cos.txt")),
    (UnaryOp::Tan, include_str!("../data/ulp/tan.txt")),
    (UnaryOp::Tanh, include_str!("../data/ulp/tanh.txt")),
];

/// One case for each table in f32 and f64, if the device has them.
pub(crate) fn cases(dtypes: &[DType]) -> Vec<Case> {
    let tested = dtypes.iter().copied().filter(|dtype| digits(*dtype).is_some());
    let pairs = tested.flat_map(|dtype| TABLES.iter().map(move |&(op, table)| (dtype, op, table)));
    pairs
        .map(|(dtype, op, table)| {
            let run = move |device: &Device<AnyBackend>| {
                Outcome::forward(run(op, table, dtype, device).unwrap_or_else(|error| Status::Fail(error.to_string())))
            };
            Case::new(Source::Ulp, format!("{}/ulp", op.name()), op.name(), dtype, run)
        })
        .collect()
}

/// The number of hexadecimal digits of a number of a dtype in the tables.
fn digits(dtype: DType) -> Option<usize> {
    match dtype {
        DType::F32 => Some(8),
        DType::F64 => Some(16),
        _ => None,
    }
}

/// Inputs and outputs in a dtype, as bits.
fn rows(table: &str, dtype: DType) -> Result<Vec<(u64, u64)>> {
    let read = |text: &str| u64::from_str_radix(text, 16);
    let lines = table.lines().filter_map(|line| line.split_once(' '));
    let of_dtype = lines.filter(|(input, _)| Some(input.len()) == digits(dtype));
    let pairs: std::result::Result<_, _> = of_dtype.map(|(x, y)| Ok((read(x)?, read(y)?))).collect();
    pairs.map_err(|error: std::num::ParseIntError| Error::invalid(format!("a table of values: {error}")))
}

fn run(op: UnaryOp, table: &str, dtype: DType, device: &Device<AnyBackend>) -> Result<Status> {
    let rows = rows(table, dtype)?;
    let shape = Shape::new(&[rows.len()])?;
    let inputs = match dtype {
        DType::F32 => HostTensor::new(shape, rows.iter().map(|row| f32::from_bits(row.0 as u32)).collect())?,
        _ => HostTensor::new(shape, rows.iter().map(|row| f64::from_bits(row.0)).collect())?,
    };
    let backend = device.inner().backend();
    let x = backend.from_host(inputs.clone(), device.inner())?;
    let y = backend.execute(&Op::Unary(op), &[&x])?.take(0)?;
    let y = backend.to_host(&y)?;
    let answers: Vec<u64> = match dtype {
        DType::F32 => y.to_vec::<f32>()?.into_iter().map(|v| u64::from(v.to_bits())).collect(),
        _ => y.to_vec::<f64>()?.into_iter().map(f64::to_bits).collect(),
    };
    let bound = ulp_bound(op, dtype);
    let errors = rows
        .iter()
        .zip(&answers)
        .map(|(row, &answer)| distance(answer, row.1, dtype));
    let worst = errors.enumerate().max_by_key(|&(_, error)| error);
    Ok(match worst {
        Some((i, error)) if error > bound => {
            let x = inputs.to_f64_vec()[i];
            let right = real(rows[i].1, dtype);
            Status::Fail(format!(
                "at {x:e} it gives {:e}, {error} ulp from {right:e}; {bound} are allowed",
                real(answers[i], dtype)
            ))
        }
        _ => Status::Pass,
    })
}

fn real(bits: u64, dtype: DType) -> f64 {
    match dtype {
        DType::F32 => f64::from(f32::from_bits(bits as u32)),
        _ => f64::from_bits(bits),
    }
}

/// The number of values of the dtype between two numbers.
fn distance(a: u64, b: u64, dtype: DType) -> u64 {
    let (x, y) = (real(a, dtype), real(b, dtype));
    if x == y || (x.is_nan() && y.is_nan()) {
        return 0;
    }
    if x.is_nan() || y.is_nan() {
        return u64::MAX;
    }
    // The bits of numbers of one sign are ordered like the numbers; those of negative ones are mirrored.
    let sign = if dtype == DType::F32 { 1 << 31 } else { 1 << 63 };
    let place = |bits: u64| {
        if bits & sign == 0 {
            i128::from(bits)
        } else {
            -i128::from(bits ^ sign)
        }
    };
    u64::try_from((place(a) - place(b)).unsigned_abs()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_the_numbers_between() {
        let bits = |x: f64| x.to_bits();
        assert_eq!(distance(bits(1.0), bits(1.0 + f64::EPSILON), DType::F64), 1);
        assert_eq!(distance(bits(0.0), bits(-0.0), DType::F64), 0);
        assert_eq!(distance(bits(5e-324), bits(-5e-324), DType::F64), 2);
        assert_eq!(distance(bits(f64::NAN), bits(1.0), DType::F64), u64::MAX);
        let f32s = |x: f32| u64::from(x.to_bits());
        assert_eq!(distance(f32s(f32::MAX), f32s(f32::INFINITY), DType::F32), 1);
    }

    #[test]
    fn every_table_has_rows_in_both_dtypes() {
        for (op, table) in TABLES {
            for dtype in [DType::F32, DType::F64] {
                assert!(rows(table, dtype).unwrap().len() > 100, "{} {dtype}", op.name());
            }
        }
    }
}
