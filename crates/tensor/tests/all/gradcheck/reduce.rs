//! Reductions, scans and matrix products.

use polygrad_core::{Activation, ReduceOp};
use polygrad_tensor::inference;

use super::case::{Cases, Tensor, between, mixed, reals};

fn reductions(cases: &mut Cases) {
    let axes: [&[isize]; 6] = [&[0, 1, 2], &[0], &[-1], &[0, 2], &[2, 1], &[]];
    let logic = [ReduceOp::Any, ReduceOp::All];
    for &op in ReduceOp::ALL.iter().filter(|op| !logic.contains(op)) {
        for axes in axes {
            for keepdims in [false, true] {
                let name = format!("{} over {axes:?}, keepdims: {keepdims}", op.name());
                cases.unary(name, mixed([2, 3, 2], 1), move |x| x.reduce(op, axes, keepdims));
            }
        }
        cases.unary(format!("{} of a scalar", op.name()), mixed((), 1), move |x| {
            x.reduce(op, 0, false)
        });
    }
    for (name, values) in [("one zero", [0.0, 2.0, -3.0, 1.5]), ("two zeros", [0.0, 2.0, 0.0, 1.5])] {
        cases.unary(format!("prod with {name}"), reals(&values, [2, 2]), |x| x.prod(()));
        cases.unary(format!("prod along an axis with {name}"), reals(&values, [2, 2]), |x| {
            x.prod_keepdim(1)
        });
    }
    cases.unary("prod of nothing", mixed([2, 0], 1), |x| x.prod(1));
    cases.unary("sum of nothing", mixed([2, 0], 1), |x| x.sum(1));
    cases.unary("sum_all", mixed([2, 2], 1), Tensor::sum_all);
    cases.unary("mean_all", mixed([2, 2], 1), Tensor::mean_all);
    cases.unary("max", mixed([2, 4], 1), |x| Ok(x.max(1)?.0));
    cases.unary("max_keepdim", mixed([2, 4], 1), |x| Ok(x.max_keepdim(1)?.0));
    cases.unary("min", mixed([2, 4], 1), |x| Ok(x.min(0)?.0));
    cases.unary("min_keepdim", mixed([2, 4], 1), |x| Ok(x.min_keepdim(0)?.0));
    for axis in [0, 1, -1] {
        cases.unary(format!("cumsum {axis}"), mixed([2, 3, 2], 1), move |x| x.cumsum(axis));
    }
}

fn statistics(cases: &mut Cases) {
    for correction in [0.0, 1.0, 1.5] {
        cases.unary(format!("variance {correction}"), mixed([2, 4], 1), move |x| {
            x.variance(1, correction)
        });
        cases.unary(format!("std {correction}"), mixed([2, 4], 1), move |x| {
            x.std_keepdim((), correction)
        });
    }
    cases.unary("logsumexp", mixed([2, 3, 2], 1), |x| x.logsumexp([0, 2]));
    cases.unary("logsumexp_keepdim", mixed([2, 3, 2], 1), |x| {
        x.logsumexp_keepdim([0, 2])
    });
    cases.unary("logsumexp of -inf", reals(&[0.3], [1]), |x| {
        Tensor::cat(&[x, &reals(&[f64::NEG_INFINITY], [1])], 0)?.logsumexp(())
    });
    for axes in [[0, 1], [2, 0], [-1, 1]] {
        cases.unary(format!("nuclear_norm over {axes:?}"), mixed([2, 3, 2], 3), move |x| {
            x.nuclear_norm_keepdim(axes)
        });
    }
    cases.unary("variance of nothing", mixed([2, 0], 1), |x| x.variance(1, 1));
    cases.unary("logsumexp of nothing", mixed([2, 0], 1), |x| x.logsumexp(1));
    for axis in [0, -1] {
        for eps in [1e-8, 0.1] {
            let inputs = [mixed([2, 1, 3], 1), mixed([2, 3], 2)];
            cases.add(format!("cosine_similarity {axis}, eps {eps}"), inputs, move |x| {
                x[0].cosine_similarity(&x[1], axis, eps)
            });
        }
    }
    for p in [-2.0, -1.0, 0.5, 1.0, 1.5, 2.0, 3.0, f64::INFINITY, f64::NEG_INFINITY] {
        cases.unary(format!("norm {p}"), mixed([2, 3], 1), move |x| x.norm(p, 1));
        cases.unary(format!("norm {p} of all"), mixed([2, 3], 2), move |x| {
            x.norm_keepdim(p, ())
        });
    }
}

fn medians_and_running_products(cases: &mut Cases) {
    for (shape, axis) in [(&[5][..], 0), (&[2, 3], 1), (&[3, 2], 0), (&[2, 1], 1), (&[2, 0], 1)] {
        cases.unary(format!("cumprod {shape:?} {axis}"), mixed(shape, 1), move |x| {
            x.cumprod(axis)
        });
    }
    let zeros = reals(&[2.0, 0.0, 3.0, 0.0, 0.0, 1.5, -2.0, 0.7], [2, 4]);
    cases.unary("cumprod with zeros", zeros, |x| x.cumprod(1));
    for axis in [0, -1] {
        cases.unary(format!("median {axis}"), mixed([3, 4], 1), move |x| {
            Ok(x.median(axis)?.0)
        });
        cases.unary(format!("median_keepdim {axis}"), mixed([3, 4], 2), move |x| {
            Ok(x.median_keepdim(axis)?.0)
        });
    }
    cases.unary("median of all", mixed([2, 3], 1), Tensor::median_all);
}

fn products(cases: &mut Cases) {
    let shapes: [(&[usize], &[usize]); 10] = [
        (&[3], &[3]),
        (&[3], &[3, 2]),
        (&[2, 3], &[3]),
        (&[2, 3], &[3, 2]),
        (&[2, 2, 3], &[2, 3, 1]),
        (&[2, 1, 2, 3], &[3, 3, 1]),
        (&[2, 3], &[2, 3, 2]),
        (&[2, 2, 3], &[3]),
        (&[3], &[2, 3, 2]),
        (&[2, 0], &[0, 3]),
    ];
    for (left, right) in shapes {
        let name = format!("matmul {left:?} {right:?}");
        cases.add(name, [mixed(left, 1), mixed(right, 2)], |x| x[0].matmul(&x[1]));
    }
    cases.unary("matmul with itself", mixed([2, 2], 1), |x| x.matmul(x));
    cases.unary("matmul with its transpose", mixed([2, 3], 1), |x| x.matmul(&x.t()?));
    cases.add("mm", [mixed([2, 3], 1), mixed([3, 2], 2)], |x| x[0].mm(&x[1]));
    cases.add("bmm", [mixed([2, 2, 3], 1), mixed([2, 3, 2], 2)], |x| x[0].bmm(&x[1]));
    let addmm = [mixed([2], 3), mixed([2, 3], 1), mixed([3, 2], 2)];
    cases.add("addmm", addmm, |x| x[0].addmm(&x[1], &x[2], 0.3, -1.5));
    for shape in [&[3][..], &[2, 3], &[2, 1, 3], &[0, 3]] {
        let inputs = [mixed(shape, 1), mixed([2, 3], 2), mixed([2], 3)];
        cases.add(format!("linear {shape:?}"), inputs, |x| x[0].linear(&x[1], Some(&x[2])));
        let inputs = [mixed(shape, 1), mixed([2, 3], 2)];
        cases.add(format!("linear {shape:?} without bias"), inputs, |x| {
            x[0].linear(&x[1], None)
        });
        for &op in Activation::ALL {
            let inputs = [mixed(shape, 1), mixed([2, 3], 2), mixed([2], 3)];
            cases.add(format!("linear {shape:?} and {}", op.name()), inputs, move |x| {
                inference::linear(&x[0], &x[1], Some(&x[2]), Some(op))
            });
        }
    }
    for equation in [
        "ij,jk->ik",
        "ij,kj",
        "ij,jk->",
        "ij,kl->jl",
        "ij,jk->kij",
        "...j,jk->...k",
    ] {
        cases.add(equation, [mixed([2, 3], 1), mixed([3, 3], 2)], move |x| {
            Tensor::einsum(equation, &[&x[0], &x[1]])
        });
    }
    for equation in ["ii->", "ii->i", "ij->ji", "ij->j", "...->...", "i...->..."] {
        cases.unary(equation, mixed([3, 3], 1), move |x| Tensor::einsum(equation, &[x]));
    }
    let three = [mixed([2, 3], 1), mixed([3, 2], 2), mixed([2], 3)];
    cases.add("ij,jk,k->i", three, |x| {
        Tensor::einsum("ij,jk,k->i", &[&x[0], &x[1], &x[2]])
    });
    let batch = [mixed([2, 1, 2], 1), mixed([1, 3, 2], 2)];
    cases.add("bij,bkj->bik", batch, |x| {
        Tensor::einsum("bij,bkj->bik", &[&x[0], &x[1]])
    });
    cases.unary("a constant on the left", between(-1.0, 1.0, [2, 2], 1), |x| {
        mixed([3, 2], 1).matmul(x)
    });
}

pub(crate) fn cases() -> Cases {
    let mut cases = Cases::default();
    reductions(&mut cases);
    statistics(&mut cases);
    medians_and_running_products(&mut cases);
    products(&mut cases);
    cases
}
