//! Elementwise functions on a row: every op in every dtype.

use polygrad_core::compute::{Binary, ComputeBackend, DevicePtr, DeviceView, Kernel, Unary};
use polygrad_core::{Backend, BinaryOp, CompareOp, DType, HostTensor, Op, Shape, UnaryOp};
use polygrad_reference::Reference;

use super::super::case::Cases;
use super::super::fixture::Fixture;
use super::super::numbers::{drawn, host, listed, precise, special};
use super::super::outcome::CaseResult;
use crate::tolerance::{Bounds, is_exact, tolerance};

pub(super) fn cases(all: &mut Cases) {
    for dtype in DType::ALL {
        for &op in UnaryOp::ALL {
            if op.accepts(dtype) {
                all.add(format!("unary {} {dtype}", op.name()), move |fixture| {
                    unary(fixture, op, dtype)
                });
            }
        }
        for op in BinaryOp::core() {
            if op.accepts(dtype) {
                all.add(format!("binary {} {dtype}", op.name()), move |fixture| {
                    binary(fixture, op, dtype)
                });
            }
        }
        for &op in CompareOp::ALL {
            all.add(format!("compare_strided {} {dtype}", op.name()), move |fixture| {
                compare(fixture, op, dtype)
            });
        }
        all.add(format!("select_strided {dtype}"), move |fixture| select(fixture, dtype));
        for to in DType::ALL {
            all.add(format!("copy_strided {dtype} to {to}"), move |fixture| {
                cast(fixture, dtype, to)
            });
        }
    }
    all.add("unary and binary: what is not defined", undefined);
}

/// The bounds of an op on single elements.
pub(super) fn bounds(op: &Op, dtype: DType) -> Bounds {
    if !dtype.is_float() || is_exact(op) {
        return Bounds::EXACT;
    }
    tolerance(dtype, op.name())
}

fn inputs(op: UnaryOp, dtype: DType) -> CaseResult<Vec<HostTensor>> {
    let mut all = vec![special(dtype)?, drawn(dtype, &[5003], 17)?, drawn(dtype, &[1], 2)?];
    if dtype == DType::F32 && !matches!(op, UnaryOp::Sign | UnaryOp::LogicalNot | UnaryOp::Log | UnaryOp::Rsqrt) {
        // Subnormal numbers may be treated as 0 if the difference is negligible.
        all.push(listed(dtype, &[1e-40, -1e-40, 1e-45])?);
    }
    all.push(drawn(dtype, &[0], 1)?);
    Ok(all)
}

fn unary(fixture: &Fixture<'_>, op: UnaryOp, dtype: DType) -> CaseResult {
    fixture.holds(dtype)?;
    let result = if op.is_predicate() { DType::Bool } else { dtype };
    for x in inputs(op, dtype)? {
        let len = x.shape().numel();
        let truth = host(&Reference::unary(op, &precise(&x)?)?)?;
        // Predicates of a subnormal number or an overflow are evaluated in the dtype.
        let within = bounds(&Op::Unary(op), result);
        let (from, to) = (fixture.put(&x)?, fixture.out(result, &[len])?);
        let call = Unary {
            op,
            dtype,
            len,
            input: from.ptr,
            output: to.ptr,
        };
        fixture.driver.unary(&call)?;
        fixture.check(op.name(), &to, &truth, within)?;
        if result == dtype {
            let place = fixture.put_to_change(&x)?;
            fixture.driver.unary(&Unary {
                input: place.ptr,
                output: place.ptr,
                ..call
            })?;
            fixture.check(&format!("{} in place", op.name()), &place, &truth, within)?;
        }
    }
    let nowhere = DevicePtr::new(3);
    Ok(fixture.driver.unary(&Unary {
        op,
        dtype,
        len: 0,
        input: nowhere,
        output: nowhere,
    })?)
}

/// Pairs at which the op is well-defined, and random ones.
fn pairs(op: BinaryOp, dtype: DType) -> CaseResult<Vec<(HostTensor, HostTensor)>> {
    let all = special(dtype)?;
    let delicate = matches!(op, BinaryOp::Pow | BinaryOp::Remainder | BinaryOp::Atan2) && dtype.is_float();
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let n = all.shape().numel();
    let values = all.to_f64_vec();
    for i in 0..n {
        for j in 0..n {
            let (a, b) = (values[i], values[j]);
            // Infinite operands, quotients without fraction bits, and zeros whose sign matters.
            let shaky = a.is_infinite() || b.is_infinite() || a == 0.0 || b == 0.0 || (a / b).abs() > 30.0;
            let large = op == BinaryOp::Pow && (a.abs() > 8.0 || b.abs() > 3.5 || a < 0.0);
            if !(delicate && (shaky || large)) {
                left.push(i);
                right.push(j);
            }
        }
    }
    let pick = |chosen: &[usize]| {
        polygrad_core::dispatch_dtype!(dtype, T => {
            let values = all.as_slice::<T>()?;
            HostTensor::new(Shape::new(&[chosen.len()])?, chosen.iter().map(|&i| values[i]).collect::<Vec<T>>())
        })
    };
    let mut out = vec![(pick(&left)?, pick(&right)?)];
    let lift = |x: HostTensor| -> CaseResult<HostTensor> {
        // Away from points at which a power is undefined, and a remainder jumps.
        let moved = x.to_f64_vec().iter().map(|v| v.abs() + 0.25).collect();
        Ok(HostTensor::new(*x.shape(), moved)?.cast(dtype))
    };
    for n in [4099, 1, 0] {
        let (a, b) = (drawn(dtype, &[n], 3)?, drawn(dtype, &[n], 4)?);
        out.push(match delicate {
            true if op == BinaryOp::Remainder => continue,
            true => (lift(a)?, lift(b)?),
            false => (a, b),
        });
    }
    Ok(out)
}

fn binary(fixture: &Fixture<'_>, op: BinaryOp, dtype: DType) -> CaseResult {
    fixture.holds(dtype)?;
    for (a, b) in pairs(op, dtype)? {
        let len = a.shape().numel();
        let truth = host(&Reference::binary(op, &precise(&a)?, &precise(&b)?)?)?;
        let within = bounds(&Op::Binary(op), dtype);
        let (left, right, to) = (fixture.put(&a)?, fixture.put(&b)?, fixture.out(dtype, &[len])?);
        let call = Binary {
            op,
            dtype,
            len,
            a: left.ptr,
            b: right.ptr,
            output: to.ptr,
        };
        fixture.driver.binary(&call)?;
        fixture.check(op.name(), &to, &truth, within)?;
        for is_left in [true, false] {
            let place = fixture.put_to_change(if is_left { &a } else { &b })?;
            let over = if is_left {
                Binary { a: place.ptr, ..call }
            } else {
                Binary { b: place.ptr, ..call }
            };
            fixture.driver.binary(&Binary {
                output: place.ptr,
                ..over
            })?;
            fixture.check(&format!("{} in place", op.name()), &place, &truth, within)?;
        }
    }
    Ok(())
}

fn compare(fixture: &Fixture<'_>, op: CompareOp, dtype: DType) -> CaseResult {
    fixture.needs(Kernel::Elementwise, dtype)?;
    fixture.needs(Kernel::Elementwise, DType::Bool)?;
    let (a, b) = (special(dtype)?, special(dtype)?);
    let n = a.shape().numel();
    // Each with each.
    let (a, b) = (a.reshape(Shape::new(&[n, 1])?)?, b.reshape(Shape::new(&[1, n])?)?);
    let truth = host(&Reference::compare(op, &precise(&a)?, &precise(&b)?)?)?;
    let (left, right, to) = (fixture.put(&a)?, fixture.put(&b)?, fixture.out(DType::Bool, &[n, n])?);
    fixture
        .driver
        .compare_strided(op, &left.view(), &right.view(), &to.view())?;
    fixture.check(op.name(), &to, &truth, Bounds::EXACT)
}

fn select(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    fixture.needs(Kernel::Elementwise, dtype)?;
    fixture.needs(Kernel::Elementwise, DType::Bool)?;
    let condition = drawn(DType::Bool, &[7, 1, 9], 1)?;
    let (a, b) = (drawn(dtype, &[5, 9], 2)?, drawn(dtype, &[7, 5, 1], 3)?);
    let truth = host(&Reference::select(&precise(&condition)?, &precise(&a)?, &precise(&b)?)?)?;
    let [c, x, y] = [fixture.put(&condition)?, fixture.put(&a)?, fixture.put(&b)?];
    let to = fixture.out(dtype, &[7, 5, 9])?;
    fixture
        .driver
        .select_strided(&c.view(), &x.view(), &y.view(), &to.view())?;
    fixture.check("where", &to, &truth, Bounds::EXACT)
}

fn cast(fixture: &Fixture<'_>, from: DType, to: DType) -> CaseResult {
    fixture.needs(Kernel::Elementwise, from)?;
    fixture.needs(Kernel::Elementwise, to)?;
    // Conversions of values outside the other dtype's range are undefined.
    let x = match (from.is_float(), to.is_float() || to == DType::Bool) {
        (true, false) if to == DType::U8 => listed(from, &[0.0, 1.0, 2.5, 3.9, 100.25, 250.0])?,
        (true, false) => listed(from, &[0.0, 1.0, -1.0, 2.5, -2.5, 3.9, 100.25, -100.25])?,
        _ => special(from)?,
    };
    let len = x.shape().numel();
    let (source, target) = (fixture.put(&x)?, fixture.out(to, &[len])?);
    fixture.driver.copy_strided(&source.view(), &target.view())?;
    fixture.check("to_dtype", &target, &x.cast(to), Bounds::EXACT)?;
    // In reverse, to every second position.
    let spread = fixture.out(to, &[2 * len])?;
    let shape = Shape::new(&[len])?;
    let back = polygrad_core::Layout::strided(shape, &[-1], len.saturating_sub(1));
    let second = polygrad_core::Layout::strided(shape, &[2], 1);
    let truth = super::super::numbers::walked(&x, &back)?.cast(to);
    fixture.driver.copy_strided(&source.laid(back), &spread.laid(second))?;
    let places: Vec<usize> = (0..len).map(|i| 2 * i + 1).collect();
    fixture.check_part("to_dtype", &spread, &places, &truth, Bounds::EXACT)
}

fn undefined(fixture: &Fixture<'_>) -> CaseResult {
    let x = fixture.out(DType::I64, &[4])?;
    let refused = |what: &str, result: polygrad_core::Result<()>| match result {
        Ok(()) => super::super::outcome::wrong(format!("{what} goes well")),
        Err(_) => Ok(()),
    };
    let dtype = DType::I64;
    refused(
        "exp of i64",
        fixture.driver.unary(&Unary {
            op: UnaryOp::Exp,
            dtype,
            len: 4,
            input: x.ptr,
            output: x.ptr,
        }),
    )?;
    let op = BinaryOp::Atan2;
    refused(
        "atan2 of i64",
        fixture.driver.binary(&Binary {
            op,
            dtype,
            len: 4,
            a: x.ptr,
            b: x.ptr,
            output: x.ptr,
        }),
    )?;
    let f = fixture.out(DType::F32, &[4])?;
    let (op, dtype) = (BinaryOp::And, DType::F32);
    refused(
        "and of f32",
        fixture.driver.binary(&Binary {
            op,
            dtype,
            len: 4,
            a: f.ptr,
            b: f.ptr,
            output: f.ptr,
        }),
    )?;
    let other = DeviceView::contiguous(f.ptr, DType::F32, Shape::new(&[3])?);
    let driver: &dyn ComputeBackend = fixture.driver;
    refused(
        "shapes that do not broadcast",
        driver.unary_strided(UnaryOp::Neg, &f.view(), &other),
    )
}
