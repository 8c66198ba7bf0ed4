//! Matrix products.

use polygrad_core::DType;
use polygrad_core::compute::{Batch, ComputeBackend, DevicePtr, Gemm, Transpose};

use crate::support::{driver, get, noise, put};

fn form(m: usize, n: usize, k: usize, trans_a: Transpose, trans_b: Transpose) -> Gemm {
    Gemm {
        dtype: DType::F32,
        dtype_c: DType::F32,
        trans_a,
        trans_b,
        m,
        n,
        k,
        alpha: 1.5,
        beta: 0.5,
        a: DevicePtr::NULL,
        lda: if trans_a.swaps() { m } else { k } + 3,
        b: DevicePtr::NULL,
        ldb: if trans_b.swaps() { k } else { n } + 1,
        c: DevicePtr::NULL,
        ldc: n + 2,
    }
}

/// The expected C, and the sum of the terms' magnitudes.
fn expected(call: &Gemm, a: &[f32], b: &[f32], c: &[f32]) -> Vec<f64> {
    let mut out: Vec<f64> = c.iter().map(|&x| x.into()).collect();
    for i in 0..call.m {
        for j in 0..call.n {
            let sum: f64 = (0..call.k)
                .map(|k| {
                    let x = if call.trans_a.swaps() {
                        a[k * call.lda + i]
                    } else {
                        a[i * call.lda + k]
                    };
                    let y = if call.trans_b.swaps() {
                        b[j * call.ldb + k]
                    } else {
                        b[k * call.ldb + j]
                    };
                    f64::from(x) * f64::from(y)
                })
                .sum();
            let at = i * call.ldc + j;
            let old = if call.beta == 0.0 { 0.0 } else { call.beta * out[at] };
            out[at] = call.alpha * sum + old;
        }
    }
    out
}

fn close(got: &[f32], truth: &[f64], bound: f64) {
    assert_eq!(got.len(), truth.len());
    for (i, (&x, &y)) in got.iter().zip(truth).enumerate() {
        assert!(
            (f64::from(x) - y).abs() <= bound || (x.is_nan() && y.is_nan()),
            "{x} is not {y} at {i}"
        );
    }
}

#[test]
fn all_transposes_and_shapes() {
    let Some(driver) = driver() else { return };
    let shapes = [
        (33, 40, 17),
        (1, 100, 64),
        (100, 3, 65),
        (1, 1, 1),
        (3, 5, 7),
        (70, 65, 50),
        (5, 130, 100),
        (4, 4, 0),
    ];
    for (i, (m, n, k)) in shapes.into_iter().enumerate() {
        for trans_a in Transpose::ALL {
            for trans_b in Transpose::ALL {
                // All pairs for one shape of each kind, only one pair for the others.
                if i > 2 && (trans_a, trans_b) != (Transpose::No, Transpose::No) {
                    continue;
                }
                let call = form(m, n, k, trans_a, trans_b);
                let (a, b) = (noise(2 + (m + k) * (m + k + 3), 1), noise((n + k) * (n + k + 1) + 1, 2));
                let c = noise(m * call.ldc, 3);
                let (pa, pb, pc) = (put(driver, &a), put(driver, &b), put(driver, &c));
                // Interior pointers.
                let call = Gemm {
                    a: pa.add(8),
                    b: pb.add(4),
                    c: pc,
                    ..call
                };
                driver.gemm(&call).unwrap();
                let got: Vec<f32> = get(driver, pc, c.len());
                close(&got, &expected(&call, &a[2..], &b[1..], &c), 1e-4);
                for ptr in [pa, pb, pc] {
                    driver.free(ptr).unwrap();
                }
            }
        }
    }
}

#[test]
fn beta_zero_reads_no_nan_and_batches_stride() {
    let Some(driver) = driver() else { return };
    let call = Gemm {
        beta: 0.0,
        ..form(10, 6, 9, Transpose::No, Transpose::No)
    };
    let batch = Batch {
        count: 3,
        stride_a: 0,
        stride_b: 100,
        stride_c: 90,
    };
    let (a, b, c) = (noise(150, 1), noise(300, 2), vec![f32::NAN; 270]);
    let call = Gemm {
        a: put(driver, &a),
        b: put(driver, &b),
        c: put(driver, &c),
        ..call
    };
    driver.batched_gemm(&call, &batch).unwrap();
    let got: Vec<f32> = get(driver, call.c, c.len());
    for i in 0..3 {
        let truth = expected(&call, &a, &b[i * 100..], &c[..call.ldc * 10]);
        close(&got[i * 90..i * 90 + 80], &truth[..80], 1e-5);
    }
}

#[test]
fn half_precision_rounds_once() {
    let Some(driver) = driver() else { return };
    let (m, n, k) = (20, 9, 40);
    let call = Gemm {
        dtype: DType::F16,
        dtype_c: DType::F16,
        lda: k,
        ldb: n,
        ldc: n,
        beta: 0.0,
        ..form(m, n, k, Transpose::No, Transpose::No)
    };
    let (a, b) = (noise(m * k, 1), noise(k * n, 2));
    let halves = |x: &[f32]| x.iter().map(|&x| half::f16::from_f32(x)).collect::<Vec<_>>();
    let floats = |x: &[half::f16]| x.iter().map(|x| x.to_f32()).collect::<Vec<_>>();
    let (a, b) = (halves(&a), halves(&b));
    let c = vec![half::f16::NAN; m * n];
    let call = Gemm {
        a: put(driver, &a),
        b: put(driver, &b),
        c: put(driver, &c),
        ..call
    };
    driver.gemm(&call).unwrap();
    let got: Vec<half::f16> = get(driver, call.c, m * n);
    let truth = expected(&call, &floats(&a), &floats(&b), &floats(&c));
    close(&floats(&got), &truth, 5e-3);
    let wide = Gemm {
        dtype_c: DType::F32,
        c: put(driver, &vec![0f32; m * n]),
        ..call
    };
    driver.gemm(&wide).unwrap();
    close(&get::<f32>(driver, wide.c, m * n), &truth, 1e-5);
}
