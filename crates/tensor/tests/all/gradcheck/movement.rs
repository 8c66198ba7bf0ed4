//! Reshaping, slicing, joining and indexing.

use polygrad_core::SliceRange;
use polygrad_tensor::{Index, PadMode};

use super::case::{Cases, Tensor, integers, mixed};

fn views(cases: &mut Cases) {
    let x = || mixed([2, 3, 1], 1);
    cases.unary("reshape", x(), |x| x.reshape([3, 2]));
    cases.unary("permute", x(), |x| x.permute([2, 0, 1]));
    cases.unary("transpose", x(), |x| x.transpose(0, -1));
    cases.unary("t", x(), Tensor::t);
    cases.unary("expand", x(), |x| x.expand([2, 2, 3, 4]));
    cases.unary("expand of a scalar", mixed((), 1), |x| x.expand([2, 2]));
    cases.unary("squeeze", x(), |x| x.squeeze(-1));
    cases.unary("squeeze_all", x(), Tensor::squeeze_all);
    cases.unary("unsqueeze", x(), |x| x.unsqueeze(1));
    cases.unary("flatten", x(), |x| x.flatten(0, 1));
    cases.unary("flip", mixed([2, 3, 2], 1), |x| x.flip([0, 2]));
    cases.unary("roll", mixed([2, 3, 2], 1), |x| x.roll(&[1, -4], &[1, 0]));
    cases.unary("repeat", mixed([2, 2], 1), |x| x.repeat(&[2, 1, 3]));
    cases.unary("repeat of none", mixed([2, 2], 1), |x| x.repeat(&[0, 1]));
    cases.unary("tile", mixed([2, 2], 1), |x| x.tile(&[2]));
    cases.unary("pad", mixed([2, 3], 1), |x| x.pad(&[(1, 0), (0, 2)], 7.0));
    for mode in [
        PadMode::Constant(0.5.into()),
        PadMode::Reflect,
        PadMode::Replicate,
        PadMode::Circular,
    ] {
        for border in [[(0, 0), (2, 1)], [(1, -1), (-2, 2)]] {
            cases.unary(format!("pad {mode:?} {border:?}"), mixed([2, 4], 1), move |x| {
                x.pad_with(&border, mode)
            });
        }
    }
    for offset in [-1, 0, 2] {
        cases.unary(format!("diagonal {offset}"), mixed([2, 3, 3], 1), move |x| {
            x.diagonal(offset, 0, 2)
        });
    }
}

fn cuts(cases: &mut Cases) {
    for (start, len, step) in [
        (0, 3, 2),
        (1, 2, 2),
        (4, 5, -1),
        (3, 2, -1),
        (4, 3, -2),
        (3, 2, -2),
        (1, 2, 3),
        (0, 0, 1),
    ] {
        let range = SliceRange::new(start, len, step);
        cases.unary(format!("slice {range:?}"), mixed([5], 1), move |x| x.slice(&[range]));
        cases.unary(
            format!("slice {range:?} of an inner axis"),
            mixed([2, 5, 2], 1),
            move |x| x.slice(&[SliceRange::new(1, 1, 1), range, SliceRange::new(1, 2, -1)]),
        );
    }
    cases.unary("slice with two steps", mixed([5, 4], 1), |x| {
        x.slice(&[SliceRange::new(4, 3, -2), SliceRange::new(1, 2, 2)])
    });
    cases.unary("narrow", mixed([2, 5], 1), |x| x.narrow(1, 1, 3));
    cases.unary("select", mixed([2, 5], 1), |x| x.select(1, -2));
    cases.unary("index", mixed([2, 5, 3], 1), |x| x.i((-1, Index::from(1..).step_by(2))));
    cases.unary("index by tensors", mixed([3, 4], 1), |x| {
        let rows = Tensor::from_vec(vec![0i64, 2, 0], [3], &x.device())?;
        x.i((&rows, &rows))?.mul(x.i(&rows)?.i((.., 1))?)
    });
    cases.unary("index by a mask", mixed([3, 4], 1), |x| x.i(&x.detach().gt(0)?));
    cases.add("index_put", [mixed([3, 4], 1), mixed([2, 1], 2)], |x| {
        x[0].index_put((1.., Index::from(..).step_by(2)), &x[1])
    });
    cases.add("index_put_accumulate", [mixed([3, 4], 1), mixed([3, 2], 2)], |x| {
        let rows = Tensor::from_vec(vec![0i64, 2, 0], [3], &x[0].device())?;
        x[0].index_put_accumulate((&rows, ..2), &x[1])
    });
    for part in [0, 1, 2] {
        cases.unary(format!("split, part {part}"), mixed([2, 5], 1), move |x| {
            Ok(x.split(2, 1)?[part].clone())
        });
    }
    for part in 0..5 {
        cases.unary(format!("unbind, slice {part}"), mixed([2, 5], 1), move |x| {
            x.unbind(-1)?[part].mul(&x.unbind(1)?[0])
        });
    }
    cases.unary("split_with_sizes", mixed([5], 1), |x| {
        let parts = x.split_with_sizes(&[1, 0, 4], 0)?;
        parts[2].mul(&parts[0])
    });
    cases.unary("chunk", mixed([5, 2], 1), |x| {
        let parts = x.chunk(2, 0)?;
        parts[0].narrow(0, 0, 2)?.mul(&parts[1])
    });
    // Products of slices of one tensor, given as `(axis, start)`, of length 2: adjacent, apart, overlapping, the same
    // slice twice, along two axes.
    for slices in [
        [(1, 0), (1, 2), (1, 4)],
        [(1, 1), (1, 3), (1, 1)],
        [(1, 4), (1, 0), (1, 0)],
        [(1, 0), (1, 1), (1, 2)],
        [(1, 3), (0, 1), (1, 1)],
        [(0, 1), (0, 0), (1, 4)],
    ] {
        let product = move |x: &Tensor| {
            let at = |i: usize| {
                let (axis, start) = slices[i];
                let part = x.narrow(axis, start, 2)?;
                if axis == 1 {
                    part.narrow(0, 0, 2)
                } else {
                    part.narrow(1, 3, 2)
                }
            };
            at(0)?.mul(&at(1)?)?.mul(&at(2)?)
        };
        cases.unary(format!("slices {slices:?}"), mixed([3, 6], 1), product);
        cases.unary(format!("slices {slices:?} and the whole"), mixed([3, 6], 1), move |x| {
            x.mul(&product(x)?.sum_all()?)
        });
    }
}

fn joins(cases: &mut Cases) {
    let parts = [mixed([0], 3), mixed([2, 1], 1), mixed([0], 3)];
    cases.add("cat with nothing", parts, |x| Tensor::cat(&[&x[0], &x[1], &x[2]], 1));
    let parts = [mixed([2, 1], 1), mixed([2, 3], 2), mixed([2, 0], 3)];
    cases.add("cat", parts, |x| Tensor::cat(&[&x[0], &x[1], &x[2]], 1));
    cases.unary("cat with itself", mixed([2, 2], 1), |x| Tensor::cat(&[x, x], 0));
    cases.unary("cat with a constant", mixed([2, 2], 1), |x| {
        Tensor::cat(&[&mixed([1, 2], 2), x], 0)
    });
    for axis in [0, 1, -1] {
        let parts = [mixed([2, 3], 1), mixed([2, 3], 2)];
        cases.add(format!("stack {axis}"), parts, move |x| {
            Tensor::stack(&[&x[0], &x[1]], axis)
        });
    }
}

fn indices(cases: &mut Cases) {
    let index = || integers(&[0, 2, 2, 1, 0, 0], [2, 3]);
    cases.unary("gather", mixed([2, 3], 1), move |x| x.gather(1, &index()));
    cases.unary("gather with a smaller index", mixed([3, 4], 1), move |x| {
        x.gather(0, &index())
    });
    cases.unary("gather from a scalar", mixed((), 1), |x| {
        x.gather(0, &integers(&[0, 0], [2]))
    });
    let places = || integers(&[0, 2, 1, 1, 0, 2], [2, 3]);
    cases.add("scatter", [mixed([2, 3], 1), mixed([2, 3], 2)], move |x| {
        x[0].scatter(1, &places(), &x[1])
    });
    cases.add(
        "scatter with a larger source",
        [mixed([3, 4], 1), mixed([3, 5], 2)],
        move |x| x[0].scatter(1, &places(), &x[1]),
    );
    cases.add("scatter_add", [mixed([2, 3], 1), mixed([2, 3], 2)], move |x| {
        x[0].scatter_add(1, &index(), &x[1])
    });
    cases.add(
        "scatter_add with a larger source",
        [mixed([3, 3], 1), mixed([4, 4], 2)],
        move |x| x[0].scatter_add(0, &index(), &x[1]),
    );
    cases.add("scatter_mul", [mixed([2, 3], 1), mixed([2, 4], 2)], move |x| {
        x[0].scatter_mul(1, &index(), &x[1])
    });
    cases.add("scatter_mul of a scalar", [mixed((), 1), mixed((), 2)], |x| {
        x[0].scatter_mul(0, &integers(&[0], ()), &x[1])
    });
    cases.unary("scatter_add of itself", mixed([2, 3], 1), move |x| {
        x.scatter_add(1, &index(), x)
    });
    let list = || integers(&[2, 0, 2, 2], [4]);
    cases.unary("index_select", mixed([3, 2], 1), move |x| x.index_select(0, &list()));
    cases.unary("index_select of an inner axis", mixed([2, 3], 1), move |x| {
        x.index_select(-1, &list())
    });
    cases.add("index_add", [mixed([3, 2], 1), mixed([4, 2], 2)], move |x| {
        x[0].index_add(0, &list(), &x[1])
    });
    cases.unary("repeat_interleave", mixed([2, 3], 1), |x| x.repeat_interleave(2, 1));
    cases.unary("repeat_interleave_each", mixed([2, 3], 1), |x| {
        x.repeat_interleave_each(&[2, 0, 3], 1)
    });
    cases.unary("embedding", mixed([4, 2], 1), move |x| index().embedding(x, None));
    cases.unary("embedding with padding elsewhere", mixed([4, 2], 1), move |x| {
        index().embedding(x, Some(3))
    });
    for descending in [false, true] {
        cases.unary(format!("sort {descending}"), mixed([2, 4], 1), move |x| {
            Ok(x.sort(1, descending)?.0)
        });
        cases.unary(format!("topk {descending}"), mixed([4, 2], 1), move |x| {
            Ok(x.topk(3, 0, descending)?.0)
        });
    }
    cases.unary("sort of a scalar", mixed((), 1), |x| Ok(x.sort(0, false)?.0));
}

pub(crate) fn cases() -> Cases {
    let mut cases = Cases::default();
    views(&mut cases);
    cuts(&mut cases);
    joins(&mut cases);
    indices(&mut cases);
    cases
}
