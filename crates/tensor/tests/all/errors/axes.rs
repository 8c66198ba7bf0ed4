//! Axes and shapes.

use polygrad_tensor::ErrorKind::{InvalidArgument, OutOfRange, Shape};
use polygrad_tensor::{CrossEntropyParams, Result};

use super::{Tensor, device, f32, fails, list};

#[test]
fn axes() {
    let x = f32(&[2, 3]);
    let outside = ["axis 2 is outside -2..2", "[2, 3]"];
    let check = |op: &str, result: Result<()>| fails(result, OutOfRange, &[&[op], &outside[..]].concat());
    check("sum", x.sum(2).map(drop));
    check("amax", x.amax([0, 2]).map(drop));
    check("variance", x.variance(2, 1).map(drop));
    check("logsumexp", x.logsumexp(2).map(drop));
    check("norm", x.norm(2.0, 2).map(drop));
    check("argmax", x.argmax(2).map(drop));
    check("cosine_similarity", x.cosine_similarity(&x, 2, 1e-8).map(drop));
    check("cumsum", x.cumsum(2).map(drop));
    check("softmax", x.softmax(2).map(drop));
    check("log_softmax", x.log_softmax(2).map(drop));
    check("sort", x.sort(2, false).map(drop));
    check("topk", x.topk(1, 2, true).map(drop));
    check("transpose", x.transpose(0, 2).map(drop));
    check("squeeze", x.squeeze(2).map(drop));
    check("flatten", x.flatten(0, 2).map(drop));
    check("narrow", x.narrow(2, 0, 1).map(drop));
    check("select", x.select(2, 0).map(drop));
    check("flip", x.flip(2).map(drop));
    check("roll", x.roll(&[1], &[2]).map(drop));
    check("cat", Tensor::cat(&[&x, &x], 2).map(drop));
    check("split", x.split(1, 2).map(drop));
    check("unbind", x.unbind(2).map(drop));
    check("split", x.split_with_sizes(&[1], 2).map(drop));
    check("chunk", x.chunk(1, 2).map(drop));
    check("gather", x.gather(2, &list(&[0])).map(drop));
    check("scatter", x.scatter(2, &list(&[0]), &x).map(drop));
    check("scatter_mul", x.scatter_mul(2, &list(&[0]), &x).map(drop));
    check("index_select", x.index_select(2, &list(&[0])).map(drop));
    check("index_add", x.index_add(2, &list(&[0]), &x).map(drop));
    check("repeat_interleave", x.repeat_interleave(2, 2).map(drop));
    check("diagonal", x.diagonal(0, 0, 2).map(drop));
    fails(x.unsqueeze(4), OutOfRange, &["unsqueeze", "axis 4 is outside -3..=2"]);
    fails(Tensor::stack(&[&x], 4), OutOfRange, &["unsqueeze", "axis 4"]);
    fails(x.sum([0, -2]), InvalidArgument, &["sum", "axis 0 is given twice"]);
    fails(
        x.permute([1]),
        InvalidArgument,
        &["permute", "no permutation of 2 axes"],
    );
    fails(x.permute([0, 0]), InvalidArgument, &["permute", "twice"]);
    fails(x.flatten(1, 0), InvalidArgument, &["flatten", "lies behind"]);
    fails(
        x.diagonal(0, 1, -1),
        InvalidArgument,
        &["diagonal", "axis 1 is given twice"],
    );
    fails(x.roll(&[1, 2], &[0]), InvalidArgument, &["roll", "2 shifts for 1 axes"]);
    fails(f32(&[]).sum(1), OutOfRange, &["sum", "axis 1 of a tensor of rank 0"]);
    fails(f32(&[2]).t(), OutOfRange, &["transpose", "axis -2"]);
    fails(f32(&[3]).tril(0), Shape, &["tril", "no two axes"]);
}

#[test]
fn reductions_of_nothing() {
    let empty = f32(&[2, 0]);
    for (name, result) in [
        ("mean", empty.mean(1)),
        ("amax", empty.amax(())),
        ("amin", empty.amin_keepdim(1)),
        ("argmax", empty.argmax(1)),
        ("argmin", empty.argmin(1)),
    ] {
        fails(result, Shape, &[name, "axis 1 has no elements", "f32[2, 0]"]);
    }
    fails(empty.max(1), Shape, &["argmax", "axis 1"]);
    fails(empty.min(-1), Shape, &["argmin", "axis 1"]);
    fails(
        empty.layer_norm(None, None, 1, 1e-5),
        Shape,
        &["layer_norm", "no values"],
    );
    fails(empty.batch_norm(None, None, 1e-5), Shape, &["batch_norm", "no values"]);
    fails(
        empty.cross_entropy(&list(&[0, 0]), &CrossEntropyParams::default()),
        Shape,
        &["cross_entropy", "no classes"],
    );
    // Along the other axis there is nothing to reduce, which is no error.
    assert_eq!(empty.amax(0).unwrap().dims(), [0]);
    assert_eq!(empty.sum(1).unwrap().to_vec::<f32>().unwrap(), [0.0; 2]);
    assert_eq!(empty.prod(1).unwrap().to_vec::<f32>().unwrap(), [1.0; 2]);
    assert_eq!(empty.all(1).unwrap().to_vec::<bool>().unwrap(), [true; 2]);
}

#[test]
fn shapes() {
    let x = f32(&[2, 3]);
    fails(x.reshape([4]), Shape, &["reshape", "6 elements", "[4]", "f32[2, 3]"]);
    fails(
        x.reshape([1; 9].as_slice()),
        Shape,
        &["reshape", "rank 9", "limit of 8"],
    );
    fails(x.squeeze(0), Shape, &["squeeze", "extent 2, not 1"]);
    fails(f32(&[1; 8]).unsqueeze(0), Shape, &["rank 9"]);
    fails(x.repeat(&[2]), Shape, &["repeat", "1 counts for 2 axes"]);
    fails(
        x.repeat(&[usize::MAX, 2]),
        Shape,
        &["repeat", "more elements than memory"],
    );
    fails(x.tile(&[1; 9]), Shape, &["rank 9"]);
    fails(x.repeat_interleave(usize::MAX, 0), Shape, &["repeat_interleave"]);
    fails(
        x.repeat_interleave_each(&[1], 0),
        Shape,
        &["repeat_interleave", "1 counts for 2 slices"],
    );
    fails(
        x.repeat_interleave_each(&[usize::MAX, 1], 0),
        Shape,
        &["repeat_interleave"],
    );
    fails(x.pad(&[(1, 1)], 0.0), Shape, &["pad", "1 borders for 2 axes"]);
    fails(x.pad(&[(usize::MAX, 1), (0, 0)], 0.0), Shape, &["pad", "more elements"]);
    fails(
        Tensor::cat(&[&x, &f32(&[3, 3])], 1),
        Shape,
        &["cat", "[2, 3] and [3, 3] differ outside axis 1"],
    );
    fails(Tensor::cat(&[&x, &f32(&[2])], 0), Shape, &["cat", "[2]"]);
    fails(Tensor::cat::<Tensor>(&[], 0), InvalidArgument, &["cat", "no tensors"]);
    fails(
        Tensor::stack::<Tensor>(&[], 0),
        InvalidArgument,
        &["stack", "no tensors"],
    );
    fails(
        Tensor::stack(&[&x, &f32(&[2])], 0),
        Shape,
        &["stack", "[2, 3] and [2] differ"],
    );
    fails(x.split(0, 0), InvalidArgument, &["split", "size 0"]);
    fails(x.split_with_sizes(&[1, 2], 0), Shape, &["split", "[1, 2]", "2"]);
    fails(x.split_with_sizes(&[usize::MAX, 3], 0), Shape, &["split"]);
    fails(x.chunk(0, 0), InvalidArgument, &["chunk"]);
    fails(x.item(), Shape, &["item", "6 elements, not one", "to_vec"]);
    fails(
        Tensor::from_vec(vec![1.0f32], [2], &device()),
        Shape,
        &["from_vec", "[2]"],
    );
    fails(Tensor::zeros([usize::MAX, 2], &device()), Shape, &["more elements"]);
    // Any offset outside the tensor gives an empty diagonal.
    assert_eq!(x.diagonal(isize::MIN, 0, 1).unwrap().dims(), [0]);
    assert_eq!(x.diagonal(isize::MAX, 0, 1).unwrap().dims(), [0]);
}
