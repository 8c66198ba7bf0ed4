//! Making tensors, views, padding, joining.

use polygrad_core::{Axes, Backend, DType, Distribution, ErrorKind, RandomKey, Scalar, Shape, SliceRange, random_host};
use polygrad_reference::ReferenceDevice;

use crate::tools::{R, assert_fails, dims, elements, reals, tensor, vector};

const HERE: ReferenceDevice = ReferenceDevice;

#[test]
fn values_come_in_and_go_out_unchanged() {
    assert_eq!(elements::<bool>(&vector(&[true, false])), [true, false]);
    assert_eq!(elements::<i64>(&vector(&[i64::MIN, i64::MAX])), [i64::MIN, i64::MAX]);
    assert_eq!(
        elements::<f32>(&vector(&[0.1f32, f32::MIN_POSITIVE / 2.0])),
        [0.1, f32::MIN_POSITIVE / 2.0]
    );
    assert_eq!(elements::<f64>(&tensor([], &[0.1])), [0.1]);
    assert_eq!(R::dtype(&vector(&[1u8])), DType::U8);
}

#[test]
fn full_and_iota() {
    let x = R::full(Shape::from([2]), Scalar::Float(0.1), DType::F32, &HERE).unwrap();
    assert_eq!(elements::<f32>(&x), [0.1, 0.1]);
    let x = R::full(Shape::SCALAR, Scalar::Int(-1), DType::U8, &HERE).unwrap();
    assert_eq!(elements::<u8>(&x), [255]);
    let x = R::iota(3, Scalar::Int(5), Scalar::Int(-2), DType::I64, &HERE).unwrap();
    assert_eq!(elements::<i64>(&x), [5, 3, 1]);
    let x = R::iota(4, Scalar::Float(0.0), Scalar::Float(0.1), DType::F64, &HERE).unwrap();
    assert_eq!(reals(&x), [0.0, 0.1, 0.2, 3.0 * 0.1]);
    let x = R::iota(4, Scalar::Int(0), Scalar::Float(0.5), DType::I32, &HERE).unwrap();
    assert_eq!(elements::<i32>(&x), [0, 0, 1, 1]);
    assert_eq!(
        dims(&R::iota(0, Scalar::Int(0), Scalar::Int(1), DType::F32, &HERE).unwrap()),
        [0]
    );
    let huge = R::full(Shape::from([1 << 59]), Scalar::Int(0), DType::U8, &HERE);
    assert_fails(huge, ErrorKind::OutOfMemory, "no memory");
}

#[test]
fn random_numbers_are_cores() {
    let (distribution, key) = (
        Distribution::Uniform { low: -1.0, high: 2.0 },
        RandomKey { seed: 3, offset: 9 },
    );
    let shape = Shape::from([4, 5]);
    let ours = R::random(shape, distribution, DType::F32, key, &HERE).unwrap();
    let host = random_host(shape, distribution, DType::F32, key).unwrap();
    assert_eq!(elements::<f32>(&ours), host.to_vec::<f32>().unwrap());
}

#[test]
fn views_take_the_right_elements() {
    let x = tensor([2, 3], &[1i32, 2, 3, 4, 5, 6]);
    let transposed = R::permute(&x, Axes::new([1, 0]).unwrap()).unwrap();
    assert_eq!(dims(&transposed), [3, 2]);
    assert_eq!(elements::<i32>(&transposed), [1, 4, 2, 5, 3, 6]);
    let turned = R::permute(
        &R::reshape(&x, Shape::from([1, 2, 3])).unwrap(),
        Axes::new([2, 0, 1]).unwrap(),
    )
    .unwrap();
    assert_eq!(dims(&turned), [3, 1, 2]);
    assert_eq!(elements::<i32>(&turned), [1, 4, 2, 5, 3, 6]);
    let merged = R::reshape(&transposed, Shape::from([6])).unwrap();
    assert_eq!(elements::<i32>(&merged), [1, 4, 2, 5, 3, 6]);
    let flipped = R::slice(&x, &[SliceRange::new(1, 1, 1), SliceRange::new(2, 2, -2)]).unwrap();
    assert_eq!(elements::<i32>(&flipped), [6, 4]);
    let wide = R::expand(&tensor([2, 1], &[1i32, 2]), Shape::from([2, 2, 2])).unwrap();
    assert_eq!(elements::<i32>(&wide), [1, 1, 2, 2, 1, 1, 2, 2]);
}

#[test]
fn pads_and_joins() {
    let x = tensor([1, 2], &[1.0, 2.0]);
    let padded = R::pad(&x, &[(1, 0), (0, 2)], Scalar::Float(7.0)).unwrap();
    assert_eq!(dims(&padded), [2, 4]);
    assert_eq!(reals(&padded), [7.0, 7.0, 7.0, 7.0, 1.0, 2.0, 7.0, 7.0]);
    let flags = R::pad(&vector(&[false]), &[(1, 1)], Scalar::Bool(true)).unwrap();
    assert_eq!(elements::<bool>(&flags), [true, false, true]);
    let (a, b) = (tensor([2, 1], &[1i64, 2]), tensor([2, 2], &[3i64, 4, 5, 6]));
    let joined = R::concat(&[&a, &tensor([2, 0], &[] as &[i64]), &b], 1).unwrap();
    assert_eq!(dims(&joined), [2, 3]);
    assert_eq!(elements::<i64>(&joined), [1, 3, 4, 2, 5, 6]);
    let stacked = R::concat(&[&b, &b], 0).unwrap();
    assert_eq!(elements::<i64>(&stacked), [3, 4, 5, 6, 3, 4, 5, 6]);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let x = tensor([2, 3], &[1i32, 2, 3, 4, 5, 6]);
    assert_fails(R::reshape(&x, Shape::from([4])), ErrorKind::Shape, "reshape");
    assert_fails(R::expand(&x, Shape::from([2, 4])), ErrorKind::Shape, "expand");
    let ranges = [SliceRange::full(2), SliceRange::new(1, 3, 1)];
    assert_fails(R::slice(&x, &ranges), ErrorKind::OutOfRange, "slice");
    assert_fails(
        R::pad(&x, &[(0, 0), (0, usize::MAX)], Scalar::Int(0)),
        ErrorKind::Shape,
        "pad",
    );
    assert_fails(R::concat(&[], 0), ErrorKind::InvalidArgument, "cat");
    assert_fails(
        R::concat(&[&x, &tensor([2, 2], &[1i32; 4])], 0),
        ErrorKind::Shape,
        "i32[2, 2]",
    );
}
