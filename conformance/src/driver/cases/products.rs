//! Matrix products.

use polygrad_core::compute::{Batch, DevicePtr, Gemm, Transpose};
use polygrad_core::{DType, HostTensor, Shape};

use super::super::case::Cases;
use super::super::fixture::Fixture;
use super::super::numbers::drawn;
use super::super::outcome::CaseResult;
use crate::tolerance::tolerance;

/// A product under test: the arguments of a call without pointers, and the gaps between rows and matrices.
#[derive(Clone, Copy)]
struct Trial {
    dtype: DType,
    dtype_c: DType,
    trans: [Transpose; 2],
    dims: [usize; 3],
    alpha: f64,
    beta: f64,
    /// The elements after each row of A, B and C.
    gaps: [usize; 3],
    /// For a batch, the number of matrices, and for each operand the gap between two matrices; `None` if one matrix is
    /// used for all.
    batch: Option<(usize, [Option<usize>; 3])>,
}

const fn trial(dtype: DType, dims: [usize; 3]) -> Trial {
    Trial {
        dtype,
        dtype_c: dtype,
        trans: [Transpose::No; 2],
        dims,
        alpha: 1.0,
        beta: 0.0,
        gaps: [0; 3],
        batch: None,
    }
}

const DENSE: [Option<usize>; 3] = [Some(0); 3];

pub(super) fn cases(all: &mut Cases) {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for a in Transpose::ALL {
            for b in Transpose::ALL {
                all.add(format!("gemm {dtype}: transposed {a:?} {b:?}"), move |fixture| {
                    for dims in [[5, 5, 5], [3, 4, 6], [17, 9, 33], [1, 7, 4], [7, 1, 4]] {
                        let trans = [a, b];
                        run(
                            fixture,
                            Trial {
                                trans,
                                gaps: [2, 0, 3],
                                ..trial(dtype, dims)
                            },
                        )?;
                        run(
                            fixture,
                            Trial {
                                trans,
                                batch: Some((2, [Some(1); 3])),
                                ..trial(dtype, dims)
                            },
                        )?;
                    }
                    Ok(())
                });
            }
        }
        all.add(format!("gemm {dtype}: shapes"), move |fixture| shapes(fixture, dtype));
        all.add(format!("gemm {dtype}: beta 0 over NaN"), move |fixture| {
            beta_zero(fixture, dtype)
        });
        all.add(format!("gemm {dtype}: alpha and beta"), move |fixture| {
            factors(fixture, dtype)
        });
        all.add(format!("gemm {dtype}: nothing to do"), move |fixture| {
            nothing(fixture, dtype)
        });
        all.add(format!("gemm {dtype}: leading dimensions"), move |fixture| {
            leading(fixture, dtype)
        });
        all.add(format!("batched_gemm {dtype}: strides"), move |fixture| {
            strides(fixture, dtype)
        });
    }
    for dtype in [DType::F16, DType::BF16] {
        all.add(format!("gemm {dtype} into f32"), move |fixture| mixed(fixture, dtype));
    }
}

fn shapes(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    let all = [
        [1, 1, 1],
        [1, 1, 300],
        [64, 64, 64],
        [65, 33, 70],
        [1, 130, 40],
        [130, 1, 40],
        [2, 2, 1000],
        [32, 10, 128],
    ];
    all.into_iter().try_for_each(|dims| run(fixture, trial(dtype, dims)))
}

fn beta_zero(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    // The output is NaN at first, if beta is 0.
    run(fixture, trial(dtype, [6, 7, 8]))?;
    run(
        fixture,
        Trial {
            alpha: 0.5,
            gaps: [1, 1, 1],
            ..trial(dtype, [6, 7, 8])
        },
    )?;
    run(
        fixture,
        Trial {
            alpha: 0.0,
            ..trial(dtype, [3, 3, 3])
        },
    )?;
    run(
        fixture,
        Trial {
            batch: Some((3, DENSE)),
            ..trial(dtype, [6, 7, 8])
        },
    )?;
    run(fixture, trial(dtype, [4, 4, 0]))
}

fn factors(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    for alpha in [1.0, 0.0, -1.5] {
        for beta in [0.0, 1.0, 0.5, -2.0] {
            for dims in [[6, 7, 8], [1, 9, 5], [5, 1, 3], [40, 36, 20]] {
                run(
                    fixture,
                    Trial {
                        alpha,
                        beta,
                        ..trial(dtype, dims)
                    },
                )?;
            }
            run(
                fixture,
                Trial {
                    alpha,
                    beta,
                    batch: Some((2, DENSE)),
                    ..trial(dtype, [4, 3, 5])
                },
            )?;
        }
    }
    Ok(())
}

fn nothing(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    for beta in [0.0, 1.0, 0.5] {
        for dims in [[0, 4, 5], [4, 0, 5], [0, 0, 0], [4, 3, 0]] {
            let one = Trial {
                beta,
                ..trial(dtype, dims)
            };
            run(fixture, one)?;
            run(
                fixture,
                Trial {
                    batch: Some((2, DENSE)),
                    ..one
                },
            )?;
            run(
                fixture,
                Trial {
                    batch: Some((0, DENSE)),
                    ..one
                },
            )?;
        }
    }
    // Pointers to empty operands are not read, nor are unused strides.
    let c = fixture.put_to_change(&drawn(dtype, &[3, 4], 3)?)?;
    let call = Gemm {
        dtype,
        dtype_c: dtype,
        trans_a: Transpose::No,
        trans_b: Transpose::Yes,
        m: 3,
        n: 4,
        k: 0,
        alpha: 1.0,
        beta: 0.0,
        a: DevicePtr::NULL,
        lda: 0,
        b: DevicePtr::new(12345),
        ldb: usize::MAX,
        c: c.ptr,
        ldc: 4,
    };
    fixture.driver.gemm(&call)?;
    let zeros = HostTensor::new(Shape::new(&[3, 4])?, vec![0f64; 12])?;
    fixture.check_op("matmul", &c, &zeros)?;
    let nowhere = Gemm {
        m: 0,
        c: DevicePtr::NULL,
        ..call
    };
    fixture.driver.gemm(&nowhere)?;
    let batch = Batch {
        count: 2,
        stride_a: usize::MAX,
        stride_b: 0,
        stride_c: 0,
    };
    Ok(fixture.driver.batched_gemm(&nowhere, &batch)?)
}

fn leading(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    for gaps in [[1, 0, 0], [0, 5, 0], [0, 0, 7], [3, 2, 1], [64, 64, 64]] {
        for trans in [[Transpose::No; 2], [Transpose::Yes; 2]] {
            for dims in [[6, 7, 8], [33, 17, 9], [1, 5, 6], [5, 1, 6]] {
                run(
                    fixture,
                    Trial {
                        gaps,
                        trans,
                        beta: 1.0,
                        ..trial(dtype, dims)
                    },
                )?;
            }
        }
    }
    Ok(())
}

fn strides(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    let some = [
        [None, Some(0), Some(0)],
        [Some(0), None, Some(0)],
        [None, None, Some(0)],
        [Some(3), Some(5), Some(7)],
        [Some(0), Some(0), Some(1)],
    ];
    for between in some {
        for count in [1, 2, 5, 40] {
            for dims in [[4, 5, 6], [1, 3, 2], [3, 1, 2]] {
                let one = Trial {
                    batch: Some((count, between)),
                    ..trial(dtype, dims)
                };
                run(fixture, one)?;
                run(
                    fixture,
                    Trial {
                        beta: 0.5,
                        gaps: [1, 2, 3],
                        ..one
                    },
                )?;
            }
        }
    }
    Ok(())
}

fn mixed(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    for dims in [[6, 7, 8], [33, 20, 300], [1, 5, 6], [4, 4, 0]] {
        let one = Trial {
            dtype_c: DType::F32,
            ..trial(dtype, dims)
        };
        run(fixture, one)?;
        run(
            fixture,
            Trial {
                beta: 1.0,
                gaps: [1, 1, 1],
                trans: [Transpose::Yes, Transpose::No],
                ..one
            },
        )?;
        run(
            fixture,
            Trial {
                batch: Some((3, DENSE)),
                beta: 0.5,
                ..one
            },
        )?;
    }
    Ok(())
}

fn run(fixture: &Fixture<'_>, trial: Trial) -> CaseResult {
    fixture.holds(trial.dtype)?;
    fixture.holds(trial.dtype_c)?;
    let Trial {
        dtype,
        dtype_c,
        dims: [m, n, k],
        alpha,
        beta,
        ..
    } = trial;
    let [swap_a, swap_b] = trial.trans.map(Transpose::swaps);
    let lying = |rows, columns, swapped| if swapped { [columns, rows] } else { [rows, columns] };
    let shapes = [lying(m, k, swap_a), lying(k, n, swap_b), [m, n]];
    let (count, between) = trial.batch.unwrap_or((1, DENSE));
    let lds: [usize; 3] = std::array::from_fn(|i| shapes[i][1] + trial.gaps[i]);
    let matrices: [usize; 3] = std::array::from_fn(|i| match shapes[i][0] * shapes[i][1] {
        0 => 0,
        _ => (shapes[i][0] - 1) * lds[i] + shapes[i][1],
    });
    let strides: [usize; 3] = std::array::from_fn(|i| between[i].map_or(0, |gap| matrices[i] + gap));
    let len = |i: usize| match count {
        0 => 0,
        _ => (count - 1) * strides[i] + matrices[i],
    };
    // The gaps between rows and matrices are NaN, which shows if they are read.
    let place = |i: usize, b: usize, r: usize, c: usize| b * strides[i] + r * lds[i] + c;
    let operand = |i: usize, dtype: DType| -> CaseResult<(Vec<f64>, HostTensor)> {
        let values = drawn(dtype, &[len(i)], i as u64 + 5)?.to_f64_vec();
        let mut lain = vec![f64::NAN; len(i)];
        for b in 0..count {
            for r in 0..shapes[i][0] {
                for c in 0..shapes[i][1] {
                    lain[place(i, b, r, c)] = values[place(i, b, r, c)];
                }
            }
        }
        let host = HostTensor::new(Shape::new(&[len(i)])?, lain)?.cast(dtype);
        Ok((values, host))
    };
    let ((a, host_a), (b, host_b)) = (operand(0, dtype)?, operand(1, dtype)?);
    let (old, host_c) = operand(2, dtype_c)?;
    let (block_a, block_b) = (fixture.put(&host_a)?, fixture.put(&host_b)?);
    let block_c = match beta == 0.0 {
        true => fixture.out(dtype_c, &[len(2)])?,
        // NaN with all bits set between the rows, as in memory that is to be written.
        false => {
            let block = fixture.out(dtype_c, &[len(2)])?;
            let size = dtype_c.size();
            for b in 0..count {
                for r in 0..m {
                    let at = place(2, b, r, 0) * size;
                    let row = &host_c.bytes()[at..at + n * size];
                    fixture.driver.copy_htod(block.ptr.add(at), row)?;
                }
            }
            block
        }
    };
    let call = Gemm {
        dtype,
        dtype_c,
        trans_a: trial.trans[0],
        trans_b: trial.trans[1],
        m,
        n,
        k,
        alpha,
        beta,
        a: block_a.ptr,
        lda: lds[0],
        b: block_b.ptr,
        ldb: lds[1],
        c: block_c.ptr,
        ldc: lds[2],
    };
    match trial.batch {
        None => fixture.driver.gemm(&call)?,
        Some((count, _)) => {
            let [stride_a, stride_b, stride_c] = strides;
            let batch = Batch {
                count,
                stride_a,
                stride_b,
                stride_c,
            };
            fixture.driver.batched_gemm(&call, &batch)?;
        }
    }
    let (mut places, mut truth) = (Vec::new(), Vec::new());
    for batch in 0..count {
        for i in 0..m {
            for j in 0..n {
                let term = |p: usize| {
                    let (row, column) = if swap_a { (p, i) } else { (i, p) };
                    let left = a[place(0, batch, row, column)];
                    let (row, column) = if swap_b { (j, p) } else { (p, j) };
                    left * b[place(1, batch, row, column)]
                };
                let sum: f64 = (0..k).map(term).sum();
                let at = place(2, batch, i, j);
                truth.push(alpha * sum + if beta == 0.0 { 0.0 } else { beta * old[at] });
                places.push(at);
            }
        }
    }
    let truth = HostTensor::new(Shape::new(&[truth.len()])?, truth)?;
    let what = format!(
        "{m}×{n}×{k} α {alpha} β {beta} {:?} gaps {:?} batch {:?}",
        trial.trans, trial.gaps, trial.batch
    );
    fixture.check_part(&what, &block_c, &places, &truth, tolerance(dtype_c, "matmul"))
}
