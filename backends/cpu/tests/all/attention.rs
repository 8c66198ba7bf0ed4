//! Attention and its gradient against the reference's decompositions, over dtypes, layouts and what queries see.

use crate::common::{View, check, cpu, floats, tensor, viewed};
use polygrad_core::{
    AnyBackend, AnyDevice, AnyTensor, Backend, DType, Error, ErrorKind, HostTensor, Result, Rng, Shape,
};
use polygrad_cpu::Kernels;

/// Leading axes, queries, keys, columns of queries and keys, columns of values.
type Dims<'a> = (&'a [usize], usize, usize, usize, usize);

/// Output and gradients.
fn all(
    d: &AnyDevice,
    dims: Dims<'_>,
    dtype: DType,
    view: View,
    mask: Option<&AnyTensor>,
    causal: bool,
) -> Result<Vec<AnyTensor>> {
    let (lead, queries, keys, width, out) = dims;
    let of = |rows, columns, seed| viewed(d, &[lead, &[rows, columns]].concat(), dtype, seed, view);
    let (q, k, v) = (of(queries, width, 1)?, of(keys, width, 2)?, of(keys, out, 3)?);
    let grad = of(queries, out, 4)?;
    let y = AnyBackend::attention(&q, &k, &v, mask, 0.3, causal)?;
    let (to_q, to_k, to_v) = AnyBackend::attention_backward(&grad, &q, &k, &v, mask, 0.3, causal)?;
    Ok(vec![y, to_q, to_k, to_v])
}

/// Of each kind, of all or fewer axes than scores have, lying in several ways; query 1 sees no key of the second.
fn masks(d: &AnyDevice, queries: usize, keys: usize, dtype: DType) -> Result<Vec<AnyTensor>> {
    let scores = Shape::from([queries, keys]);
    let seen = (0..queries * keys).map(|i| i / keys != 1 && i % 3 != 0).collect();
    Ok(vec![
        tensor(d, &[queries, keys], DType::Bool, 5)?,
        AnyBackend::from_host(HostTensor::new::<bool>(scores, seen)?, d)?,
        viewed(d, &[keys], DType::Bool, 6, View::Stepped)?,
        tensor(d, &[2, 1, queries, keys], dtype, 7)?,
        viewed(d, &[queries, keys], dtype, 8, View::Permuted)?,
        viewed(d, &[queries, 1], dtype, 9, View::Contiguous)?,
    ])
}

#[test]
fn shapes_dtypes_and_layouts_agree() {
    let few: &[Dims<'_>] = &[
        (&[2, 3], 4, 6, 8, 5),
        (&[1, 2], 1, 1, 1, 1),
        (&[], 9, 4, 3, 17),
        (&[2], 33, 50, 16, 16),
    ];
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        for &dims in few {
            for view in [View::Contiguous, View::Permuted, View::Stepped, View::Expanded] {
                for causal in [false, true] {
                    let name = format!("attention {dtype} {dims:?} {view:?} {causal}");
                    check(&name, 40.0, &|d| all(d, dims, dtype, view, None, causal));
                }
            }
        }
    }
}

/// Several blocks of queries, some of which see no key, and rows of scores that end within a register or are
/// longer than a sum's part.
#[test]
fn many_queries_and_keys_agree() {
    let many: &[Dims<'_>] = &[
        (&[3, 2], 64, 64, 32, 32),
        (&[1, 1], 70, 70, 8, 9),
        (&[2, 1], 100, 37, 4, 33),
        (&[1, 2], 45, 1100, 8, 4),
        (&[2], 5, 0, 4, 3),
        (&[2], 0, 5, 4, 3),
        (&[0], 5, 5, 4, 3),
        (&[2], 5, 5, 0, 3),
        (&[2], 5, 5, 4, 0),
    ];
    for &dims in many {
        for causal in [false, true] {
            let name = format!("attention {dims:?} {causal}");
            check(&name, 60.0, &|d| {
                all(d, dims, DType::F32, View::Contiguous, None, causal)
            });
        }
    }
}

#[test]
fn masks_agree() {
    for dtype in [DType::F16, DType::F32, DType::F64] {
        for (queries, keys) in [(4, 6), (50, 40)] {
            for causal in [false, true] {
                for i in 0..6 {
                    let name = format!("attention {dtype} [{queries}, {keys}] with mask {i}, {causal}");
                    check(&name, 60.0, &|d| {
                        let mask = &masks(d, queries, keys, dtype)?[i];
                        let dims: Dims<'_> = (&[2, 3], queries, keys, 8, 5);
                        all(d, dims, dtype, View::Contiguous, Some(mask), causal)
                    });
                }
            }
        }
    }
}

#[test]
fn what_is_no_number_spreads_as_far() {
    let infinity = f32::INFINITY;
    for odd in [
        [f32::NAN, 1.0, 2.0, 3.0],
        [1.0, infinity, 2.0, 3.0],
        [-infinity, 1.0, 2.0, 3.0],
        [-infinity; 4],
        [1.0, 2.0, 3.0, f32::NAN],
    ] {
        check(&format!("attention with a mask of {odd:?}"), 10.0, &|d| {
            let mask = AnyBackend::reshape(&floats(d, &odd)?, Shape::from([2, 2]))?;
            let dims: Dims<'_> = (&[1], 2, 2, 3, 3);
            all(d, dims, DType::F32, View::Contiguous, Some(&mask), false)
        });
    }
}

#[test]
fn leading_axes_broadcast() {
    for (k, v) in [(&[3, 1][..], &[1, 2][..]), (&[], &[2])] {
        check(&format!("attention of [3, 2] over {k:?} and {v:?}"), 40.0, &|d| {
            let of =
                |lead: &[usize], rows, columns, seed| tensor(d, &[lead, &[rows, columns]].concat(), DType::F32, seed);
            let (q, k, v) = (of(&[3, 2], 7, 4, 1)?, of(k, 9, 4, 2)?, of(v, 9, 5, 3)?);
            let grad = of(&[3, 2], 7, 5, 4)?;
            let y = AnyBackend::attention(&q, &k, &v, None, 0.3, true)?;
            let (to_q, to_k, to_v) = AnyBackend::attention_backward(&grad, &q, &k, &v, None, 0.3, true)?;
            Ok(vec![y, to_q, to_k, to_v])
        });
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    for (k, v, grad) in [
        ([5, 3], [5, 2], [6, 2]),
        ([5, 4], [7, 2], [6, 2]),
        ([5, 4], [5, 2], [6, 3]),
        ([5, 4], [5, 2], [7, 2]),
    ] {
        let of = |dims: [usize; 2]| tensor(&cpu(1, Kernels::Simd), &dims, DType::F32, 1).unwrap();
        let (q, [k, v, grad]) = (of([6, 4]), [k, v, grad].map(of));
        let check = |error: Error| {
            assert_eq!(error.kind(), ErrorKind::Shape, "{error}");
            assert!(!error.operands().is_empty(), "{error}");
        };
        check(AnyBackend::attention_backward(&grad, &q, &k, &v, None, 0.3, true).unwrap_err());
        match AnyBackend::attention(&q, &k, &v, None, 0.3, true) {
            Ok(_) => assert_eq!([k.shape().dims(), v.shape().dims()], [[5, 4], [5, 2]]),
            Err(error) => check(error),
        }
    }
}

/// Scores of up to 120, of which one often has nearly all the weight: what is then left of the gradient is small, and
/// must not be lost to the rounding of the mean. The truth is that of the same numbers in f64; what the scores' own
/// rounding may cost is 2^-24 of them.
#[test]
fn gradients_of_saturated_weights_are_exact_to_the_rounding_of_scores() {
    let d = cpu(1, Kernels::Simd);
    for seed in 0..12 {
        for (queries, keys, width) in [(8, 5, 8), (20, 33, 4)] {
            let mut rng = Rng::new(seed);
            let mut numbers = |rows: usize, columns: usize| -> Vec<f32> {
                let numbers = (0..rows * columns).map(|_| (rng.uniform() * 18.0 - 9.0) as f32);
                numbers.collect()
            };
            let shapes = [[queries, width], [queries, width], [keys, width], [keys, width]];
            let values = shapes.map(|[rows, columns]| numbers(rows, columns));
            let gradients = |dtype: DType| {
                let tensor = |i: usize| {
                    let host = HostTensor::new::<f32>(Shape::from(shapes[i]), values[i].clone()).unwrap();
                    AnyBackend::from_host(host.cast(dtype), &d).unwrap()
                };
                let scale = 1.0 / (width as f64).sqrt();
                let (q, k, v) =
                    AnyBackend::attention_backward(&tensor(0), &tensor(1), &tensor(2), &tensor(3), None, scale, false)
                        .unwrap();
                [q, k, v].map(|x| AnyBackend::to_host(&x).unwrap().to_f64_vec())
            };
            for (got, truth) in gradients(DType::F32).iter().zip(gradients(DType::F64)) {
                let largest = truth.iter().fold(0.0, |a: f64, x| a.max(x.abs()));
                let error = got.iter().zip(&truth).fold(0.0, |a: f64, (x, y)| a.max((x - y).abs()));
                assert!(
                    error <= 2f64.powi(-24) * 120.0 * largest,
                    "seed {seed}: {error:e} of {largest:e}"
                );
            }
        }
    }
}
