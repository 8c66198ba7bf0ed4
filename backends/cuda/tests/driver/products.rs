//! Products and attention, compared with plain loops.

use polygrad_core::compute::{Attention, Batch, ComputeBackend, Gemm, Transpose};
use polygrad_core::{Backend, DType, Shape};
use polygrad_reference::Reference;

use crate::support::{close, each, empty, filled, numbers, read, reference};

#[test]
fn products_of_all_orders_batches_and_factors() {
    each(|driver| {
        let (m, n, k, count) = (3, 4, 5, 2);
        let values = |len: usize, by: usize| -> Vec<f64> { (0..len).map(|i| ((i * by) % 13) as f64 - 6.0).collect() };
        for (dtype, dtype_c) in [
            (DType::F32, DType::F32),
            (DType::F64, DType::F64),
            (DType::F16, DType::F16),
            (DType::BF16, DType::F32),
        ] {
            for trans_a in Transpose::ALL {
                for trans_b in Transpose::ALL {
                    for (alpha, beta) in [(1.0, 0.0), (0.5, 2.0)] {
                        // Rows longer than needed, and gaps between products.
                        let (lda, ldb, ldc) = (7, 8, 6);
                        let (a, b) = (values(200, 5), values(200, 7));
                        let c = if beta == 0.0 {
                            vec![f64::NAN; 100]
                        } else {
                            values(100, 3)
                        };
                        let [pa, pb] = [&a, &b].map(|x| filled(driver, dtype, x));
                        let pc = filled(driver, dtype_c, &c);
                        let gemm = Gemm {
                            dtype,
                            dtype_c,
                            trans_a,
                            trans_b,
                            m,
                            n,
                            k,
                            alpha,
                            beta,
                            a: pa,
                            lda,
                            b: pb,
                            ldb,
                            c: pc,
                            ldc,
                        };
                        let batch = Batch {
                            count,
                            stride_a: 60,
                            stride_b: 0,
                            stride_c: 40,
                        };
                        driver.batched_gemm(&gemm, &batch).unwrap();
                        let got = read(driver, dtype_c, pc, 100);
                        let mut wanted = c.clone();
                        for i in 0..count {
                            for row in 0..m {
                                for column in 0..n {
                                    let sum: f64 = (0..k)
                                        .map(|t| {
                                            let x = if trans_a.swaps() { t * lda + row } else { row * lda + t };
                                            let y = if trans_b.swaps() {
                                                column * ldb + t
                                            } else {
                                                t * ldb + column
                                            };
                                            a[i * 60 + x] * b[y]
                                        })
                                        .sum();
                                    let at = i * 40 + row * ldc + column;
                                    let before = if beta == 0.0 { 0.0 } else { beta * c[at] };
                                    wanted[at] = alpha * sum + before;
                                }
                            }
                        }
                        close(dtype_c, &got, &wanted, 1.0, 0.0, "gemm");
                        for ptr in [pa, pb, pc] {
                            driver.free(ptr).unwrap();
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn products_without_terms_scale_what_is_there() {
    each(|driver| {
        for beta in [0.0, 3.0] {
            let c = filled(driver, DType::F32, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
            let gemm = Gemm {
                dtype: DType::F32,
                dtype_c: DType::F32,
                trans_a: Transpose::No,
                trans_b: Transpose::No,
                m: 2,
                n: 2,
                k: 0,
                alpha: 1.0,
                beta,
                a: Default::default(),
                lda: 0,
                b: Default::default(),
                ldb: 2,
                c,
                ldc: 3,
            };
            driver.gemm(&gemm).unwrap();
            let wanted = [beta, 2.0 * beta, 3.0, 4.0 * beta, 5.0 * beta, 6.0];
            assert_eq!(read(driver, DType::F32, c, 6), wanted);
            driver.gemm(&Gemm { n: 0, ..gemm }).unwrap();
            driver.free(c).unwrap();
        }
    });
}

#[test]
fn attention_of_all_shapes() {
    each(|driver| {
        let (batch, heads) = (2, 2);
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            for (seq_q, seq_kv, head_dim, value_dim) in [
                (1, 1, 1, 1),
                (5, 70, 8, 3),
                (40, 33, 16, 16),
                (7, 3, 4, 5),
                (3, 0, 4, 2),
                (70, 75, 32, 40),
                (17, 20, 100, 36),
                (2, 9, 600, 5),
            ] {
                for causal in [false, true] {
                    let values = |len: usize, by: usize| -> Vec<f64> {
                        (0..len).map(|i| ((i * by) % 13) as f64 / 8.0 - 0.75).collect()
                    };
                    let lens = [seq_q * head_dim, seq_kv * head_dim, seq_kv * value_dim].map(|x| x * batch * heads);
                    let [q, k, v] = [(lens[0], 5), (lens[1], 7), (lens[2], 11)].map(|(len, by)| values(len, by));
                    let [pq, pk, pv] = [&q, &k, &v].map(|x| filled(driver, dtype, x));
                    let len = batch * heads * seq_q * value_dim;
                    let output = empty(driver, dtype, len);
                    let call = Attention {
                        dtype,
                        batch,
                        heads,
                        seq_q,
                        seq_kv,
                        head_dim,
                        value_dim,
                        scale: 0.7,
                        causal,
                        q: pq,
                        k: pk,
                        v: pv,
                        output,
                    };
                    driver.attention(&call).unwrap();
                    let got = read(driver, dtype, output, len);
                    let wanted = match seq_kv {
                        0 => vec![0.0; len],
                        _ => {
                            let tensor = |x: &[f64], rows, columns| {
                                reference(DType::F64, Shape::from([batch, heads, rows, columns]), x)
                            };
                            let (q, k, v) = (
                                tensor(&q, seq_q, head_dim),
                                tensor(&k, seq_kv, head_dim),
                                tensor(&v, seq_kv, value_dim),
                            );
                            numbers(&Reference::attention(&q, &k, &v, None, 0.7, causal).unwrap())
                        }
                    };
                    let slack = if dtype == DType::F64 { 1e-12 } else { 1e-6 };
                    close(
                        dtype,
                        &got,
                        &wanted,
                        2.0,
                        slack,
                        &format!("attention {seq_q} {seq_kv} {causal}"),
                    );
                    for ptr in [pq, pk, pv, output] {
                        driver.free(ptr).unwrap();
                    }
                }
            }
        }
    });
}

#[test]
fn a_value_that_a_query_does_not_see_may_be_infinite() {
    each(|driver| {
        let (len, width) = (70, 8);
        for dtype in [DType::F16, DType::BF16, DType::F32] {
            let values =
                |by: usize| -> Vec<f64> { (0..len * width).map(|i| ((i * by) % 13) as f64 / 8.0 - 0.75).collect() };
            let attended = |v: &[f64]| {
                let [q, k, v] = [&values(5)[..], &values(7), v].map(|x| filled(driver, dtype, x));
                let output = empty(driver, dtype, len * width);
                let call = Attention {
                    dtype,
                    batch: 1,
                    heads: 1,
                    seq_q: len,
                    seq_kv: len,
                    head_dim: width,
                    value_dim: width,
                    scale: 0.7,
                    causal: true,
                    q,
                    k,
                    v,
                    output,
                };
                driver.attention(&call).unwrap();
                let got = read(driver, dtype, output, len * width);
                for ptr in [q, k, v, output] {
                    driver.free(ptr).unwrap();
                }
                got
            };
            let finite = values(11);
            let plain = attended(&finite);
            for (key, value) in [(10, f64::INFINITY), (67, f64::NEG_INFINITY), (69, f64::NAN)] {
                let mut v = finite.clone();
                v[key * width + 3] = value;
                for (i, (&got, &before)) in attended(&v).iter().zip(&plain).enumerate() {
                    let wanted = if i / width >= key && i % width == 3 {
                        value
                    } else {
                        before
                    };
                    let same = got == wanted || got.is_nan() && wanted.is_nan();
                    assert!(same, "{dtype}, key {key}, query {}: {got} is not {wanted}", i / width);
                }
            }
        }
    });
}
