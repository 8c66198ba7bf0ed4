//! Activation functions: values against their formulas, gradients against finite differences.

use polygrad_core::{Activation, Backend};

use crate::tools::{R, T, assert_close, assert_gradient, normal, reals, vector};

const ALL: [Activation; 12] = [
    Activation::Relu,
    Activation::Tanh,
    Activation::Sigmoid,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Silu,
    Activation::Softplus {
        beta: 1.0,
        threshold: 20.0,
    },
    Activation::Softplus {
        beta: 2.5,
        threshold: 0.75,
    },
    Activation::Elu { alpha: 1.0 },
    Activation::Elu { alpha: 0.3 },
    Activation::LeakyRelu { slope: 0.01 },
    Activation::LeakyRelu { slope: -0.5 },
];

fn formula(op: Activation, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match op {
        Activation::Relu => x.max(0.0),
        Activation::Tanh => x.tanh(),
        Activation::Sigmoid => sigmoid(x),
        Activation::Gelu => 0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt())),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
        }
        Activation::Silu => x * sigmoid(x),
        Activation::Softplus { beta, threshold } if beta * x <= threshold => (1.0 + (beta * x).exp()).ln() / beta,
        Activation::Elu { alpha } if x <= 0.0 => alpha * (x.exp() - 1.0),
        Activation::LeakyRelu { slope } if x <= 0.0 => slope * x,
        Activation::Softplus { .. } | Activation::Elu { .. } | Activation::LeakyRelu { .. } => x,
        _ => panic!("an activation without a formula here: {op:?}"),
    }
}

fn apply(op: Activation, x: &T) -> T {
    R::activation(op, x).unwrap()
}

#[test]
fn values_follow_the_formulas() {
    let x = R::mul_scalar(&normal(&[300], 1), 2.0).unwrap();
    for op in ALL {
        let expected: Vec<f64> = reals(&x).iter().map(|&x| formula(op, x)).collect();
        assert_close(&reals(&apply(op, &x)), &expected, 1e-14);
    }
}

#[test]
fn gradients_are_the_derivatives() {
    // Away from the kinks at 0 and at the threshold 0.75 / 2.5.
    let x = vector(&[-6.0, -3.1, -1.4, -0.7, -0.05, 0.05, 0.2, 0.4, 0.9, 1.7, 3.3, 6.5]);
    let grad = normal(&[12], 2);
    for op in ALL {
        let saved = if op.saves_output() { apply(op, &x) } else { x.clone() };
        let analytic = R::activation_backward(op, &grad, &saved).unwrap();
        assert_gradient(|x| apply(op, x), &x, &grad, &analytic);
    }
}

#[test]
fn at_zero_and_at_the_ends_as_pytorch_has_it() {
    let (inf, one) = (f64::INFINITY, vector(&[1.0; 4]));
    let x = vector(&[0.0, -800.0, 800.0, inf]);
    let cases = [
        (Activation::Relu, [0.0, 0.0, 800.0, inf], [0.0, 0.0, 1.0, 1.0]),
        (Activation::Sigmoid, [0.5, 0.0, 1.0, 1.0], [0.25, 0.0, 0.0, 0.0]),
        (
            Activation::Softplus {
                beta: 1.0,
                threshold: 20.0,
            },
            [2f64.ln(), 0.0, 800.0, inf],
            [0.5, 0.0, 1.0, 1.0],
        ),
        (
            Activation::Elu { alpha: 2.0 },
            [0.0, -2.0, 800.0, inf],
            [2.0, 0.0, 1.0, 1.0],
        ),
        (
            Activation::LeakyRelu { slope: 0.1 },
            [0.0, -80.0, 800.0, inf],
            [0.1, 0.1, 1.0, 1.0],
        ),
    ];
    for (op, values, slopes) in cases {
        let y = apply(op, &x);
        assert_close(&reals(&y), &values, 1e-15);
        let saved = if op.saves_output() { &y } else { &x };
        assert_close(
            &reals(&R::activation_backward(op, &one, saved).unwrap()),
            &slopes,
            1e-15,
        );
    }
}

#[test]
fn nan_goes_through() {
    let nan = vector(&[f64::NAN]);
    for op in ALL {
        assert!(reals(&apply(op, &nan))[0].is_nan(), "{op:?}");
    }
}
