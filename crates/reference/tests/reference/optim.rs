//! Optimizer steps against PyTorch's published algorithms, on one number at a time.

use polygrad_core::{AdamParams, Backend, SgdParams};

use crate::tools::{R, assert_close, normal, reals, vector};

#[test]
fn accumulates() {
    let sum = R::accumulate_grad(vector(&[1.0, 2.0]), &vector(&[10.0, 20.0])).unwrap();
    assert_eq!(reals(&sum), [11.0, 22.0]);
}

#[test]
fn sgd_in_all_its_forms() {
    let forms = [
        (0.0, 0.0, 0.0, false),
        (0.0, 0.0, 0.1, false),
        (0.9, 0.0, 0.0, false),
        (0.9, 0.5, 0.1, false),
        (0.9, 0.0, 0.1, true),
    ];
    for (momentum, dampening, weight_decay, nesterov) in forms {
        let mut param = normal(&[6], 1);
        let mut buffer = vector(&[0.0; 6]);
        let (mut p, mut b) = (reals(&param), vec![0.0; 6]);
        for step in 0..4 {
            let grad = normal(&[6], 10 + step);
            let params = SgdParams {
                lr: 0.05,
                momentum,
                dampening,
                weight_decay,
                nesterov,
                first: step == 0,
            };
            let shared = param.clone();
            let before = reals(&shared);
            R::sgd_step(&mut param, &grad, (momentum != 0.0).then_some(&mut buffer), &params).unwrap();
            assert_eq!(reals(&shared), before, "a value that somebody else sees has changed");
            for (i, g) in reals(&grad).into_iter().enumerate() {
                let mut g = g + weight_decay * p[i];
                if momentum != 0.0 {
                    b[i] = if step == 0 {
                        g
                    } else {
                        momentum * b[i] + (1.0 - dampening) * g
                    };
                    g = if nesterov { g + momentum * b[i] } else { b[i] };
                }
                p[i] -= 0.05 * g;
            }
            assert_close(&reals(&param), &p, 1e-14);
            assert_close(&reals(&buffer), &b, 1e-14);
        }
    }
}

#[test]
fn adam_adamw_and_amsgrad() {
    for (decoupled, weight_decay, amsgrad) in [
        (false, 0.0, false),
        (false, 0.1, false),
        (true, 0.1, false),
        (true, 0.1, true),
        (false, 0.1, true),
    ] {
        let (lr, beta1, beta2, eps) = (0.01, 0.9, 0.99, 1e-8);
        let mut param = normal(&[5], 1);
        let [mut first, mut second, mut largest] = [(); 3].map(|()| vector(&[0.0; 5]));
        let mut p = reals(&param);
        let [mut m, mut v, mut top] = [[0.0f64; 5]; 3];
        for step in 1..=5 {
            // Shrinking gradients, so that the largest second moment is an old one.
            let grad = R::mul_scalar(&normal(&[5], 20 + step), 1.0 / (step * step) as f64).unwrap();
            let params = AdamParams {
                lr,
                beta1,
                beta2,
                eps,
                weight_decay,
                decoupled,
                step,
            };
            let max_second = amsgrad.then_some(&mut largest);
            R::adam_step(&mut param, &grad, &mut first, &mut second, max_second, &params).unwrap();
            for (i, mut g) in reals(&grad).into_iter().enumerate() {
                if decoupled {
                    p[i] -= lr * weight_decay * p[i];
                } else {
                    g += weight_decay * p[i];
                }
                m[i] = beta1 * m[i] + (1.0 - beta1) * g;
                v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
                top[i] = top[i].max(v[i]);
                let m_hat = m[i] / (1.0 - beta1.powi(step as i32));
                let v_hat = if amsgrad { top[i] } else { v[i] } / (1.0 - beta2.powi(step as i32));
                p[i] -= lr * m_hat / (v_hat.sqrt() + eps);
            }
            assert_close(&reals(&param), &p, 1e-13);
            assert_close(&reals(&first), &m, 1e-14);
            assert_close(&reals(&second), &v, 1e-14);
            assert_close(&reals(&largest), &if amsgrad { top } else { [0.0; 5] }, 1e-14);
        }
    }
}
