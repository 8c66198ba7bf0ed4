//! Convolution and its gradients against loops that follow the definition.

use polygrad_core::{Backend, ConvParams, Shape};

use crate::tools::{R, T, normal, reals};

/// One convolution in three spatial axes, by the definition; axes that a case lacks have extent 1.
struct Direct {
    x: [usize; 5],
    weight: [usize; 5],
    out: [usize; 5],
    params: ConvParams,
}

fn flat(at: [usize; 5], dims: [usize; 5]) -> usize {
    (0..5).fold(0, |sum, axis| sum * dims[axis] + at[axis])
}

fn five(shape: &Shape) -> [usize; 5] {
    std::array::from_fn(|axis| shape.get(axis).copied().unwrap_or(1))
}

impl Direct {
    fn new(x: &Shape, weight: &Shape, params: ConvParams) -> Self {
        let out = params.output_shape(x, weight).unwrap();
        let mut params = params;
        for axis in x.rank() - 2..3 {
            (params.stride[axis], params.padding[axis], params.dilation[axis]) = (1, 0, 1);
        }
        Self {
            x: five(x),
            weight: five(weight),
            out: five(&out),
            params,
        }
    }

    /// Calls `f` with the positions in input, weight and output of each product.
    fn products(&self, mut f: impl FnMut(usize, usize, usize)) {
        let [n, o, d, h, w] = self.out;
        let [_, c, kd, kh, kw] = self.weight;
        let outputs = o / self.params.groups;
        let place = |axis: usize, out: usize, k: usize| {
            (out * self.params.stride[axis] + k * self.params.dilation[axis])
                .checked_sub(self.params.padding[axis])
                .filter(|&i| i < self.x[axis + 2])
        };
        for out in 0..n * o * d * h * w {
            let at = [
                out / (o * d * h * w),
                out / (d * h * w) % o,
                out / (h * w) % d,
                out / w % h,
                out % w,
            ];
            for tap in 0..c * kd * kh * kw {
                let k = [tap / (kd * kh * kw), tap / (kh * kw) % kd, tap / kw % kh, tap % kw];
                let places = [place(0, at[2], k[1]), place(1, at[3], k[2]), place(2, at[4], k[3])];
                if let [Some(z), Some(y), Some(x)] = places {
                    let channel = at[1] / outputs * c + k[0];
                    let source = flat([at[0], channel, z, y, x], self.x);
                    f(source, flat([at[1], k[0], k[1], k[2], k[3]], self.weight), out);
                }
            }
        }
    }
}

fn check(x_dims: &[usize], weight_dims: &[usize], params: ConvParams) {
    let (x_shape, weight_shape) = (Shape::new(x_dims).unwrap(), Shape::new(weight_dims).unwrap());
    let direct = Direct::new(&x_shape, &weight_shape, params);
    let out_shape = params.output_shape(&x_shape, &weight_shape).unwrap();
    let (x, weight, grad) = (normal(x_dims, 1), normal(weight_dims, 2), normal(&out_shape, 3));
    let (xs, ws, gs) = (reals(&x), reals(&weight), reals(&grad));

    let mut y = vec![0.0; gs.len()];
    let (mut to_x, mut to_weight) = (vec![0.0; xs.len()], vec![0.0; ws.len()]);
    direct.products(|i, k, o| {
        y[o] += xs[i] * ws[k];
        to_x[i] += gs[o] * ws[k];
        to_weight[k] += gs[o] * xs[i];
    });
    let agree = |what: &str, found: T, shape: Shape, expected: &[f64]| {
        let case = format!("{what} of x {x_shape} weight {weight_shape} {params:?}");
        assert_eq!(R::shape(&found), shape, "{case}");
        let close = reals(&found)
            .iter()
            .zip(expected)
            .all(|(f, e)| (f - e).abs() <= 1e-12 * (1.0 + e.abs()));
        assert!(close, "{case}: {:?} instead of {expected:?}", reals(&found));
    };
    let output = R::conv(&x, &weight, None, None, None, &params).unwrap();
    agree("output", output, out_shape, &y);
    agree(
        "input gradient",
        R::conv_input_grad(&grad, &weight, x_shape, &params).unwrap(),
        x_shape,
        &to_x,
    );
    let found = R::conv_weight_grad(&grad, &x, weight_shape, &params).unwrap();
    agree("weight gradient", found, weight_shape, &to_weight);
}

fn fits(dim: usize, kernel: usize, padding: usize, dilation: usize) -> bool {
    dim + 2 * padding > (kernel - 1) * dilation
}

#[test]
fn one_axis_in_every_combination() {
    let mut cases = 0;
    for dim in 1..=6 {
        for kernel in 1..=3 {
            for stride in 1..=3 {
                for padding in [0, 1, 2, 5] {
                    for dilation in 1..=3 {
                        if fits(dim, kernel, padding, dilation) {
                            let params = ConvParams {
                                stride: [stride, 9, 9],
                                padding: [padding, 9, 9],
                                dilation: [dilation, 9, 9],
                                groups: 1 + cases % 2,
                            };
                            let groups = params.groups;
                            check(&[2, 2 * groups, dim], &[3 * groups, 2, kernel], params);
                            cases += 1;
                        }
                    }
                }
            }
        }
    }
    assert_eq!(cases, 567);
}

/// Numbers below `bound`, the same on every run.
fn numbers(seed: &mut u64, bound: usize) -> usize {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize % bound
}

fn check_random(spatial: usize, cases: usize, largest: usize) {
    let mut seed = spatial as u64;
    let mut left = cases;
    while left > 0 {
        let mut draw = |bound| numbers(&mut seed, bound);
        let groups = 1 + draw(3);
        let mut x = vec![1 + draw(2), groups * (1 + draw(2))];
        let mut weight = vec![groups * (1 + draw(2)), x[1] / groups];
        let mut params = ConvParams {
            groups,
            ..ConvParams::default()
        };
        for axis in 0..spatial {
            x.push(1 + draw(largest));
            weight.push(1 + draw(3));
            params.stride[axis] = 1 + draw(3);
            params.padding[axis] = draw(4);
            params.dilation[axis] = 1 + draw(2);
        }
        if (0..spatial).all(|axis| {
            fits(
                x[axis + 2],
                weight[axis + 2],
                params.padding[axis],
                params.dilation[axis],
            )
        }) {
            check(&x, &weight, params);
            left -= 1;
        }
    }
}

#[test]
fn two_axes_with_settings_of_their_own() {
    check_random(2, 120, 6);
}

#[test]
fn three_axes_with_settings_of_their_own() {
    check_random(3, 40, 4);
}

#[test]
fn depthwise_and_empty() {
    let depthwise = ConvParams {
        groups: 4,
        padding: [1; 3],
        ..ConvParams::default()
    };
    check(&[2, 4, 5, 5], &[8, 1, 3, 3], depthwise);
    check(&[0, 4, 5, 5], &[8, 1, 3, 3], depthwise);
    check(&[2, 0, 5], &[3, 0, 2], ConvParams::default());
    check(&[2, 3, 5], &[0, 3, 2], ConvParams::default());
}
