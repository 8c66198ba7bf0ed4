//! Positions outside their axis.

use polygrad_core::SliceRange;
use polygrad_tensor::ErrorKind::{InvalidArgument, OutOfRange, Shape};
use polygrad_tensor::{CrossEntropyParams, DType, Index};

use super::{f32, fails, list};

#[test]
fn indices() {
    let x = f32(&[2, 3]);
    fails(x.i(2), OutOfRange, &["index 2 is outside axis 0 of extent 2"]);
    fails(x.i((0, -4)), OutOfRange, &["index", "-4", "axis 1 of extent 3"]);
    fails(x.i((0, 0, 0)), OutOfRange, &["3 indices for 2 axes"]);
    fails(
        x.i(list(&[0, 2])),
        OutOfRange,
        &["index 2 is outside axis 0 of extent 2"],
    );
    fails(
        x.i((.., list(&[-5]))),
        OutOfRange,
        &["index -5 is outside axis 1 of extent 3"],
    );
    fails(
        x.i((&list(&[0, 1]), &list(&[0, 3]))),
        OutOfRange,
        &["index 3 is outside axis 1 of extent 3"],
    );
    fails(x.i((&list(&[0, 1]), &list(&[0, 1, 2]))), Shape, &["index"]);
    fails(x.i(&x), polygrad_tensor::ErrorKind::DType, &["index", "i64, i32 or u8"]);
    fails(x.i((.., &x.gt(0).unwrap())), OutOfRange, &["3 indices for 2 axes"]);
    fails(
        x.i(x.i(0).unwrap().gt(0).unwrap()),
        Shape,
        &["mask of shape [3]", "[2]"],
    );
    fails(
        x.i((Index::Ellipsis, Index::Ellipsis)),
        InvalidArgument,
        &["more than one ellipsis"],
    );
    fails(x.index_put((0, 5), 1), OutOfRange, &["index_put", "index 5"]);
    fails(
        x.index_put((&list(&[0]), &list(&[3])), 1),
        OutOfRange,
        &["index_put", "index 3 is outside axis 1"],
    );
    fails(x.index_put(0, f32(&[2])), Shape, &["index_put"]);
    let mut leaf = f32(&[2]).requires_grad().unwrap();
    fails(leaf.set_i(0, 1), InvalidArgument, &["set_i", "leaf", "no_grad"]);
    polygrad_tensor::no_grad(|| leaf.set_i(0, 1)).unwrap();
    assert!(leaf.is_leaf());
    fails(x.i(Index::from(..).step_by(0)), InvalidArgument, &["step of 0"]);
    // As with Rust's slices, and unlike in Python, bounds are not clamped silently.
    let mut y = x.clone();
    for (range, words) in [
        (Index::from(0..9), "range 0..9 is not within axis 1 of extent 3"),
        (Index::from(4..), "range 4.. is not within axis 1 of extent 3"),
        (Index::from(..=3), "range ..4 is not within axis 1 of extent 3"),
        (Index::from(-4..2), "range -4..2 is not within axis 1 of extent 3"),
        (Index::from(..-4), "range ..-4 is not within axis 1 of extent 3"),
        (
            Index::from(1..9).step_by(2),
            "range 1..9 is not within axis 1 of extent 3",
        ),
        (Index::from(isize::MIN..isize::MAX), "is not within axis 1 of extent 3"),
        (Index::from(u64::MAX..), "is not within axis 1 of extent 3"),
        (
            Index::from(-1..1),
            "range -1..1 ends before it begins on axis 1 of extent 3",
        ),
    ] {
        fails(x.i((.., range.clone())), OutOfRange, &["index", words]);
        fails(x.index_put((.., range.clone()), 1), OutOfRange, &["index_put", words]);
        fails(y.set_i((.., range), 1), OutOfRange, &["set_i", words]);
    }
    fails(
        x.select(1, 3),
        OutOfRange,
        &["select", "index 3 is outside axis 1 of extent 3"],
    );
    fails(
        x.narrow(1, 2, 2),
        OutOfRange,
        &["slice", "2 elements from 2 by 1 leave axis 1 of extent 3"],
    );
    fails(x.narrow(1, usize::MAX, 2), OutOfRange, &["axis 1"]);
    fails(x.narrow(1, 1, usize::MAX), OutOfRange, &["axis 1"]);
    fails(
        x.slice(&[SliceRange::full(2)]),
        Shape,
        &["slice", "1 ranges for 2 axes"],
    );
    fails(
        x.slice(&[SliceRange::new(0, 2, 0), SliceRange::full(3)]),
        OutOfRange,
        &["slice", "axis 0"],
    );
    fails(x.index_select(1, &list(&[0, 3])), OutOfRange, &["index_select", "3"]);
    fails(x.index_select(1, &list(&[-1])), OutOfRange, &["index_select", "-1"]);
    fails(
        x.index_select(1, &x.to_dtype(DType::I64).unwrap()),
        Shape,
        &["index_select", "rank 1", "[2, 3]"],
    );
    fails(
        x.gather(1, &list(&[5]).reshape([1, 1]).unwrap()),
        OutOfRange,
        &["gather", "5"],
    );
    fails(
        x.gather(1, &list(&[0])),
        Shape,
        &["gather", "index of shape [1]", "[2, 3]"],
    );
    fails(
        x.gather(1, &list(&[0; 3]).reshape([3, 1]).unwrap()),
        Shape,
        &["gather", "[3, 1]"],
    );
    fails(
        x.scatter(1, &list(&[]), &x),
        Shape,
        &["scatter", "index of shape [0]", "[2, 3]"],
    );
    let places = list(&[0, 7]).reshape([2, 1]).unwrap();
    fails(x.scatter(1, &places, &x), OutOfRange, &["scatter", "7"]);
    fails(x.scatter_add(1, &places, &x), OutOfRange, &["scatter_add", "7"]);
    fails(
        x.scatter(1, &list(&[0; 2]).reshape([2, 1]).unwrap(), &f32(&[1, 1])),
        Shape,
        &["scatter", "[2, 1]", "[1, 1]"],
    );
    fails(x.index_add(0, &list(&[0, 2]), &x), OutOfRange, &["index_add", "2"]);
    fails(x.index_add(0, &list(&[0]), &x), Shape, &["index_add", "f32[1, 3]"]);
    fails(
        list(&[4]).embedding(&f32(&[4, 2]), None),
        OutOfRange,
        &["embedding (in index_select)", "index 4", "i64[1], f32[4, 2]"],
    );
    fails(
        list(&[0]).embedding(&f32(&[4]), None),
        Shape,
        &["embedding", "[num, dim]"],
    );
    fails(
        list(&[0]).embedding(&f32(&[4, 2]), Some(4)),
        OutOfRange,
        &["embedding", "padding_idx 4"],
    );
    fails(list(&[3]).one_hot(3), OutOfRange, &["3"]);
    fails(
        x.cross_entropy(&list(&[0, 3]), &CrossEntropyParams::default()),
        OutOfRange,
        &["index 3 is outside 0..3", "f32[2, 3], i64[2]"],
    );
    fails(x.topk(4, 1, true), OutOfRange, &["topk", "4 of 3"]);
    fails(f32(&[]).topk(2, 0, true), OutOfRange, &["topk", "2 of 1"]);
}
