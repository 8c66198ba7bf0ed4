//! Element-wise ops.

use polygrad_core::compute::{Binary, ComputeBackend, Unary};
use polygrad_core::{BinaryOp, DType, UnaryOp};

use crate::support::{driver, get, put};

/// Number of f32 between two numbers.
fn distance(a: f32, b: f32) -> u64 {
    if a == b || (a.is_nan() && b.is_nan()) {
        return 0;
    }
    if a.is_nan() || b.is_nan() {
        return u64::MAX;
    }
    let place = |x: f32| {
        let bits = i64::from(x.to_bits() & 0x7fff_ffff);
        if x.is_sign_negative() { -bits } else { bits }
    };
    (place(a) - place(b)).unsigned_abs()
}

/// Numbers of every exponent and sign, and special ones.
fn samples() -> Vec<f32> {
    let mut out = vec![
        0.0,
        -0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1.0,
        -1.0,
        0.5,
        2.0,
    ];
    let mut x = 12345u32;
    for _ in 0..40_000 {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        out.push(f32::from_bits(x));
        // The range in which most functions are not constant.
        out.push((f64::from(x) / f64::from(u32::MAX) * 24.0 - 12.0) as f32);
    }
    out
}

fn exact(op: UnaryOp, x: f64) -> Option<f64> {
    Some(match op {
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sign => f64::from(i8::from(x > 0.0) - i8::from(x < 0.0)),
        UnaryOp::Exp => x.exp(),
        UnaryOp::Expm1 => x.exp_m1(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Log1p => x.ln_1p(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        UnaryOp::Reciprocal => 1.0 / x,
        UnaryOp::Floor => x.floor(),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::Round => x.round_ties_even(),
        UnaryOp::Trunc => x.trunc(),
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Tan => x.tan(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        UnaryOp::Erf => libm::erf(x),
        UnaryOp::Relu => {
            if x > 0.0 || x.is_nan() {
                x
            } else {
                0.0
            }
        }
        _ => return None,
    })
}

#[test]
fn functions_are_accurate() {
    let Some(driver) = driver() else { return };
    let xs = samples();
    let (input, output) = (put(driver, &xs), driver.alloc(xs.len() * 4).unwrap());
    let mut wrong = Vec::new();
    for &op in UnaryOp::ALL {
        if exact(op, 1.0).is_none() {
            continue;
        }
        let call = Unary {
            op,
            dtype: DType::F32,
            len: xs.len(),
            input,
            output,
        };
        driver.unary(&call).unwrap();
        let ys: Vec<f32> = get(driver, output, xs.len());
        let bound = if matches!(op, UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Tan) {
            4
        } else {
            2
        };
        let errors = xs.iter().zip(&ys).map(|(&x, &y)| {
            let truth = exact(op, x.into()).unwrap() as f32;
            (distance(y, truth), x, y, truth)
        });
        // The device may flush subnormal numbers to 0.
        let tiny = |v: f32| v != 0.0 && v.abs() < f32::MIN_POSITIVE;
        let worst = errors
            .filter(|&(_, x, _, truth)| !tiny(x) && !tiny(truth))
            .max_by_key(|error| error.0)
            .unwrap();
        if std::env::var_os("SHOW").is_some() {
            println!("{} {worst:?}", op.name());
        }
        if worst.0 > bound {
            wrong.push((op.name(), worst));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn binary_functions_are_accurate() {
    let Some(driver) = driver() else { return };
    let (xs, mut ys) = (samples(), samples());
    ys.reverse();
    ys.rotate_left(7);
    let [a, b, output] = [put(driver, &xs), put(driver, &ys), driver.alloc(xs.len() * 4).unwrap()];
    let mut wrong = Vec::new();
    for op in BinaryOp::core() {
        let exact = |x: f64, y: f64| {
            Some(match op {
                BinaryOp::Add => x + y,
                BinaryOp::Sub => x - y,
                BinaryOp::Mul => x * y,
                BinaryOp::Div => x / y,
                BinaryOp::Pow => x.powf(y),
                BinaryOp::Atan2 => x.atan2(y),
                BinaryOp::Maximum => {
                    if x.is_nan() {
                        x
                    } else if y.is_nan() || y > x {
                        y
                    } else {
                        x
                    }
                }
                BinaryOp::Minimum => {
                    if x.is_nan() {
                        x
                    } else if y.is_nan() || y < x {
                        y
                    } else {
                        x
                    }
                }
                BinaryOp::Remainder => {
                    let r = x % y;
                    if r != 0.0 && (r < 0.0) != (y < 0.0) { r + y } else { r }
                }
                _ => return None,
            })
        };
        if exact(1.0, 1.0).is_none() {
            continue;
        }
        driver
            .binary(&Binary {
                op,
                dtype: DType::F32,
                len: xs.len(),
                a,
                b,
                output,
            })
            .unwrap();
        let zs: Vec<f32> = get(driver, output, xs.len());
        let tiny = |v: f32| v != 0.0 && v.abs() < f32::MIN_POSITIVE;
        let worst = xs
            .iter()
            .zip(&ys)
            .zip(&zs)
            .filter(|((x, y), _)| !tiny(**x) && !tiny(**y))
            .map(|((&x, &y), &z)| {
                let truth = exact(x.into(), y.into()).unwrap() as f32;
                (if tiny(truth) { 0 } else { distance(z, truth) }, x, y, z, truth)
            })
            .max_by_key(|error| error.0)
            .unwrap();
        if std::env::var_os("SHOW").is_some() {
            println!("{} {worst:?}", op.name());
        }
        let bound = match op {
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Maximum | BinaryOp::Minimum => 0,
            _ => 2,
        };
        if worst.0 > bound {
            wrong.push((op.name(), worst));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
