//! Operands that do not fit each other.

use polygrad_core::BinaryOp;
use polygrad_tensor::ErrorKind::{DType as WrongDType, InvalidArgument, Shape};
use polygrad_tensor::{ConvParams, CrossEntropyParams, DType, PoolParams};

use super::{Tensor, f32, fails, list, of};

#[test]
fn shapes_that_do_not_broadcast() {
    let (a, b) = (f32(&[2, 3]), f32(&[4]));
    let shapes = ["f32[2, 3]", "f32[4]", "reference"];
    fails(&a + &b, Shape, &[&["add"], &shapes[..]].concat());
    fails(a.maximum(&b), Shape, &[&["maximum"], &shapes[..]].concat());
    fails(a.lt(&b), Shape, &[&["lt"], &shapes[..]].concat());
    fails(a.logical_and(&b), Shape, &["bool[2, 3]", "bool[4]"]);
    let condition = of(DType::Bool, &[5]);
    fails(
        Tensor::where_(&condition, &a, &a),
        Shape,
        &["where", "bool[5]", "f32[2, 3]"],
    );
    fails(a.masked_fill(&condition, 1.0), Shape, &["where", "bool[5]"]);
    fails(
        b.expand([2, 3]),
        Shape,
        &["expand", "[4] does not expand to [2, 3]", "extents must be equal, or 1"],
    );
    fails(f32(&[2, 1]).expand([3]), Shape, &["expand", "[2, 1]"]);
}

#[test]
fn matrix_products() {
    let a = f32(&[2, 3]);
    fails(
        a.matmul(&f32(&[4, 5])),
        Shape,
        &["matmul", "3 and 4 differ", "f32[2, 3]", "f32[4, 5]"],
    );
    fails(a.matmul(&f32(&[4])), Shape, &["matmul", "3 and 4"]);
    fails(f32(&[4]).matmul(&a), Shape, &["matmul", "4 and 2"]);
    fails(f32(&[4]).matmul(&f32(&[3])), Shape, &["matmul", "4 and 3"]);
    fails(a.matmul(&f32(&[])), Shape, &["matmul", "rank 0", "use mul"]);
    fails(
        f32(&[2, 2, 3]).matmul(&f32(&[3, 3, 2])),
        Shape,
        &["matmul", "do not broadcast"],
    );
    let bools = of(DType::Bool, &[3, 3]);
    fails(bools.matmul(&bools), WrongDType, &["matmul", "bool", "to_dtype"]);
    let ints = of(DType::I64, &[3, 3]);
    fails(
        ints.addmm(&ints, &ints, 0.5, 1),
        WrongDType,
        &["addmm", "i64", "integers"],
    );
    fails(a.mm(&f32(&[1, 3, 2])), Shape, &["mm", "rank 2", "use matmul"]);
    fails(
        f32(&[1, 2, 3]).bmm(&f32(&[2, 3, 2])),
        Shape,
        &["bmm", "batches differ", "matmul broadcasts"],
    );
    fails(
        f32(&[5]).addmm(&a, &f32(&[3, 2]), 1.0, 1.0),
        Shape,
        &["addmm", "f32[5]", "[5] does not broadcast to [2, 2]"],
    );
    fails(a.linear(&f32(&[4, 2]), None), Shape, &["linear", "3 and 2 differ"]);
    fails(
        a.linear(&f32(&[4, 3]), Some(&f32(&[3]))),
        Shape,
        &["linear", "bias", "[4]", "[3]"],
    );
    fails(a.linear(&f32(&[3]), None), Shape, &["linear", "weight [out, in]"]);
    fails(
        a.linear(&of(DType::F64, &[4, 3]), None),
        WrongDType,
        &["linear", "f64[4, 3]", "to_dtype"],
    );
    fails(
        Tensor::einsum("ij,jk->ik", &[&a]),
        InvalidArgument,
        &["einsum", "names 2 operands, 1"],
    );
    fails(
        Tensor::einsum("i->i", &[&a]),
        Shape,
        &["einsum", "names 1 axes", "rank 2"],
    );
    fails(Tensor::einsum("ijk...", &[&a]), Shape, &["einsum", "names 3 axes"]);
    fails(
        Tensor::einsum("ij->k", &[&a]),
        InvalidArgument,
        &["einsum", "'k' names no axis"],
    );
    fails(
        Tensor::einsum("ij->ii", &[&a]),
        InvalidArgument,
        &["einsum", "'i' stands twice"],
    );
    fails(
        Tensor::einsum("i1->i", &[&a]),
        InvalidArgument,
        &["einsum", "'1'", "ij,jk->ik"],
    );
    fails(
        Tensor::einsum("..i..", &[&f32(&[2; 5])]),
        InvalidArgument,
        &["einsum", "'.'"],
    );
    fails(
        Tensor::einsum("ij,jk", &[&a, &a]),
        Shape,
        &["einsum", "'j' has extent 3 in one operand and 2"],
    );
    fails(Tensor::einsum("ii", &[&a]), Shape, &["einsum", "f32[2, 3]"]);
    fails(
        Tensor::einsum("...i,...i", &[&a, &f32(&[5, 3])]),
        Shape,
        &["einsum", "axis -1 of ...", "2", "5"],
    );
    fails(Tensor::einsum::<Tensor>("", &[]), InvalidArgument, &["einsum"]);
}

#[test]
fn dtypes() {
    let (bools, ints, floats) = (of(DType::Bool, &[2]), of(DType::I64, &[2]), f32(&[2]));
    fails(&bools - &bools, WrongDType, &["sub", "bool", "logical_not"]);
    fails(
        floats.bitwise_and(&floats),
        WrongDType,
        &["bitwise_and", "f32", "logical_and"],
    );
    fails(
        floats.binary_scalar(BinaryOp::Xor, 1i64, false),
        WrongDType,
        &["bitwise_xor", "f32"],
    );
    fails(bools.neg(), WrongDType, &["neg", "bool"]);
    fails(ints.mean(0), WrongDType, &["mean", "i64", "to_dtype"]);
    fails(ints.softmax(0), WrongDType, &["softmax", "i64", "to_dtype"]);
    fails(ints.log_softmax(0), WrongDType, &["log_softmax", "i64"]);
    fails(
        Tensor::where_(&floats, &floats, &floats),
        WrongDType,
        &["where", "f32, not bool", "ne(0)"],
    );
    fails(
        floats.gather(0, &floats),
        WrongDType,
        &["gather", "index must be i64, i32 or u8, not f32", "to_dtype"],
    );
    fails(
        floats.index_select(0, &bools),
        WrongDType,
        &["index_select", "not bool"],
    );
    fails(
        floats.embedding(&f32(&[3, 2]), None),
        WrongDType,
        &["embedding", "not f32"],
    );
    fails(floats.one_hot(3), WrongDType, &["one_hot", "not f32"]);
    fails(
        floats.scatter(0, &list(&[0, 1]), &ints),
        WrongDType,
        &["scatter", "source is i64, the tensor f32"],
    );
    fails(
        ints.clone().requires_grad(),
        WrongDType,
        &["i64 cannot require a gradient", "to_dtype"],
    );
    fails(Tensor::var("n", ints.clone()), WrongDType, &["i64"]);
    fails(
        floats.to_vec::<f64>(),
        WrongDType,
        &["to_vec", "f32 was read as f64", "to_dtype"],
    );
    fails(
        of(DType::I64, &[3, 2]).layer_norm(None, None, 1, 1e-5),
        WrongDType,
        &["layer_norm", "i64"],
    );
    fails(
        f32(&[3, 2]).cross_entropy(&f32(&[3]), &CrossEntropyParams::default()),
        WrongDType,
        &["cross_entropy", "integer class"],
    );
    fails(
        of(DType::I64, &[1, 1, 4]).avg_pool(&PoolParams::new([2; 3])),
        WrongDType,
        &["avg_pool", "the mean of i64 is no i64", "to_dtype"],
    );
    fails(
        f32(&[1, 1, 4]).conv(&of(DType::F64, &[1, 1, 2]), None, &ConvParams::default()),
        WrongDType,
        &["conv", "one dtype", "to_dtype"],
    );
}
