//! Softmax and cross entropy.

use polygrad_core::{Backend, CrossEntropyParams, ErrorKind, Shape};

use crate::tools::{R, T, assert_close, assert_fails, assert_gradient, dims, normal, reals, tensor, vector};

#[test]
fn softmax_follows_the_formula_along_any_axis() {
    let x = normal(&[2, 3, 4], 1);
    for axis in 0..3 {
        let exp = R::exp(&x).unwrap();
        let total = R::sum_keep(&exp, polygrad_core::Axes::one(axis)).unwrap();
        let expected = reals(&R::div(&exp, &total).unwrap());
        let y = R::softmax(&x, axis).unwrap();
        assert_close(&reals(&y), &expected, 1e-15);
        let logs: Vec<f64> = expected.iter().map(|p| p.ln()).collect();
        let log = R::log_softmax(&x, axis).unwrap();
        assert_close(&reals(&log), &logs, 1e-15);

        let grad = normal(&[2, 3, 4], 2);
        let analytic = R::softmax_backward(&grad, &y, axis).unwrap();
        assert_gradient(|x| R::softmax(x, axis).unwrap(), &x, &grad, &analytic);
        let analytic = R::log_softmax_backward(&grad, &log, axis).unwrap();
        assert_gradient(|x| R::log_softmax(x, axis).unwrap(), &x, &grad, &analytic);
    }
}

#[test]
fn softmax_does_not_overflow() {
    let x = vector(&[1000.0, 0.0, f64::NEG_INFINITY]);
    assert_eq!(reals(&R::softmax(&x, 0).unwrap()), [1.0, 0.0, 0.0]);
    assert_eq!(
        reals(&R::log_softmax(&x, 0).unwrap()),
        [0.0, -1000.0, f64::NEG_INFINITY]
    );
    assert_eq!(dims(&R::softmax(&tensor([2, 0], &[] as &[f64]), 1).unwrap()), [2, 0]);
    assert_eq!(
        dims(&R::log_softmax(&tensor([0, 2], &[] as &[f64]), 1).unwrap()),
        [0, 2]
    );
}

fn losses(logits: &T, target: &[i64], params: &CrossEntropyParams) -> Vec<f64> {
    let classes = R::shape(logits)[1];
    let rows = reals(logits);
    let loss = |(row, &target): (&[f64], &i64)| {
        if target == params.ignore_index {
            return 0.0;
        }
        let logsumexp = row.iter().map(|x| x.exp()).sum::<f64>().ln();
        let shares = (0..classes).map(|class| {
            let even = params.label_smoothing / classes as f64;
            even + if class as i64 == target {
                1.0 - params.label_smoothing
            } else {
                0.0
            }
        });
        shares.zip(row).map(|(share, x)| share * (logsumexp - x)).sum()
    };
    rows.chunks(classes).zip(target).map(loss).collect()
}

#[test]
fn cross_entropy_with_smoothing_and_ignored_rows() {
    let logits = normal(&[5, 4], 3);
    for label_smoothing in [0.0, 0.1, 1.0] {
        for (target, ignore_index) in [
            ([0i64, 3, 1, 2, 3], -100),
            ([0, -100, 1, -100, 3], -100),
            ([2, 1, 0, 2, 2], 2),
        ] {
            let params = CrossEntropyParams {
                ignore_index,
                label_smoothing,
                mean: false,
            };
            let index = vector(&target);
            let (loss, logsumexp) = R::cross_entropy(&logits, &index, &params).unwrap();
            assert_eq!(R::shape(&loss), Shape::from([5]));
            assert_eq!(R::shape(&logsumexp), Shape::from([5]));
            assert_close(&reals(&loss), &losses(&logits, &target, &params), 1e-14);
            let grad = normal(&[5], 4);
            let analytic = R::cross_entropy_backward(&grad, &logits, &index, &logsumexp, &params).unwrap();
            let forward = |x: &T| R::cross_entropy(x, &index, &params).unwrap().0;
            assert_gradient(forward, &logits, &grad, &analytic);
        }
    }
}

#[test]
fn cross_entropy_holds_at_the_ends() {
    let params = CrossEntropyParams::default();
    let far = tensor([2, 2], &[1000.0, -1000.0, 3.0, f64::NEG_INFINITY]);
    let (loss, logsumexp) = R::cross_entropy(&far, &vector(&[1i64, 0]), &params).unwrap();
    assert_eq!(reals(&loss), [2000.0, 0.0]);
    let grad = R::cross_entropy_backward(&vector(&[1.0, 1.0]), &far, &vector(&[1i64, 0]), &logsumexp, &params).unwrap();
    assert_eq!(reals(&grad), [1.0, -1.0, 0.0, 0.0]);
    let none = R::cross_entropy(&tensor([0, 3], &[] as &[f64]), &vector(&[] as &[i64]), &params).unwrap();
    assert_eq!(dims(&none.0), [0]);
    for target in [-1i64, 2] {
        let result = R::cross_entropy(&far, &vector(&[0i64, target]), &params);
        assert_fails(result, ErrorKind::OutOfRange, &format!("index {target}"));
    }
}
