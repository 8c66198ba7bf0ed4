//! Gather, scatter, index_select, index_add.

use polygrad_core::{Backend, ErrorKind};

use crate::tools::{R, assert_fails, dims, elements, reals, tensor, vector};

#[test]
fn gathers_along_an_axis() {
    let x = tensor([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let index = tensor([2, 2], &[2i64, 0, 1, 1]);
    assert_eq!(reals(&R::gather(&x, 1, &index).unwrap()), [3.0, 1.0, 5.0, 5.0]);
    let rows = tensor([1, 2], &[1i64, 0]);
    assert_eq!(reals(&R::gather(&x, 0, &rows).unwrap()), [4.0, 2.0]);
}

#[test]
fn scatters_along_an_axis() {
    let x = tensor([2, 3], &[0i32; 6]);
    let (index, src) = (tensor([2, 1], &[2i64, 0]), tensor([2, 2], &[7i32, 8, 9, 10]));
    assert_eq!(
        elements::<i32>(&R::scatter(&x, 1, &index, &src).unwrap()),
        [0, 0, 7, 9, 0, 0]
    );
    let twice = tensor([2, 2], &[1i64, 1, 0, 1]);
    let one = tensor([2, 3], &[1i32; 6]);
    assert_eq!(
        elements::<i32>(&R::scatter_add(&one, 1, &twice, &src).unwrap()),
        [1, 16, 1, 10, 11, 1]
    );
    let rows = tensor([1, 3], &[1i64, 0, 1]);
    let real = R::scatter_add(&tensor([2, 3], &[0.5; 6]), 0, &rows, &tensor([1, 3], &[1.0, 2.0, 3.0])).unwrap();
    assert_eq!(reals(&real), [0.5, 2.5, 0.5, 1.5, 0.5, 3.5]);
    let wrapped = R::scatter_add(&vector(&[250u8]), 0, &vector(&[0i64, 0]), &vector(&[3u8, 4])).unwrap();
    assert_eq!(elements::<u8>(&wrapped), [1]);
}

#[test]
fn selects_and_adds_whole_slices() {
    let x = tensor([3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let index = vector(&[2i64, 0, 2, 1]);
    let rows = R::index_select(&x, 0, &index).unwrap();
    assert_eq!(dims(&rows), [4, 2]);
    assert_eq!(reals(&rows), [5.0, 6.0, 1.0, 2.0, 5.0, 6.0, 3.0, 4.0]);
    let columns = R::index_select(&x, 1, &vector(&[1i64])).unwrap();
    assert_eq!(reals(&columns), [2.0, 4.0, 6.0]);
    let added = R::index_add(&x, 1, &vector(&[1i64, 1]), &tensor([3, 2], &[10.0; 6])).unwrap();
    assert_eq!(reals(&added), [1.0, 22.0, 3.0, 24.0, 5.0, 26.0]);
    assert_eq!(dims(&R::index_select(&x, 0, &vector(&[] as &[i64])).unwrap()), [0, 2]);
}

#[test]
fn indices_outside_are_errors() {
    let x = tensor([2, 2], &[1.0; 4]);
    for bad in [-1i64, 2, i64::MIN] {
        let index = tensor([1, 1], &[bad]);
        let said = format!("index {bad} is outside 0..2 of axis 1");
        assert_fails(R::gather(&x, 1, &index), ErrorKind::OutOfRange, &said);
        assert_fails(R::scatter(&x, 1, &index, &x), ErrorKind::OutOfRange, &said);
        assert_fails(R::scatter_add(&x, 1, &index, &x), ErrorKind::OutOfRange, &said);
        assert_fails(R::index_select(&x, 1, &vector(&[bad])), ErrorKind::OutOfRange, &said);
    }
    assert_fails(
        R::gather(&x, 1, &tensor([1, 1], &[0i32])),
        ErrorKind::DType,
        "takes i64 here, got i32",
    );
    let flags = tensor([1, 1], &[true]);
    let added = R::scatter_add(&flags, 0, &tensor([1, 1], &[0i64]), &flags);
    assert_fails(added, ErrorKind::DType, "scatter_add: not defined for bool");
    let mixed = R::scatter(&x, 0, &tensor([1, 1], &[0i64]), &tensor([1, 1], &[1.0f32]));
    assert_fails(mixed, ErrorKind::DType, "takes f64 here, got f32");
}
