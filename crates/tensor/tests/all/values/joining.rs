//! Joining, splitting and repeating.

use polygrad_tensor::Result;

use super::{Tensor, counted, same};

#[test]
fn joins() -> Result<()> {
    let (a, b) = (counted(&[2, 2]), counted(&[2, 1]));
    same(Tensor::cat(&[&a, &b], 1)?, &[2, 3], &[0, 1, 0, 2, 3, 1]);
    same(Tensor::cat(&[&a, &a], -2)?, &[4, 2], &[0, 1, 2, 3, 0, 1, 2, 3]);
    same(Tensor::stack(&[&b, &b], 0)?, &[2, 2, 1], &[0, 1, 0, 1]);
    same(Tensor::stack(&[&b, &b], -1)?, &[2, 1, 2], &[0, 0, 1, 1]);
    let scalar = counted(&[]);
    same(Tensor::stack(&[&scalar, &scalar], 0)?, &[2], &[0, 0]);
    Ok(())
}

#[test]
fn parts_as_pytorch_cuts_them() -> Result<()> {
    let sizes = |parts: Vec<Tensor>| parts.iter().map(|part| part.dims()[0]).collect::<Vec<_>>();
    let x = counted(&[7]);
    assert_eq!(sizes(x.split(3, 0)?), [3, 3, 1]);
    assert_eq!(sizes(x.split(10, 0)?), [7]);
    assert_eq!(sizes(x.split_with_sizes(&[0, 5, 2], 0)?), [0, 5, 2]);
    assert_eq!(sizes(x.chunk(3, 0)?), [3, 3, 1]);
    assert_eq!(sizes(x.chunk(5, 0)?), [2, 2, 2, 1]);
    assert_eq!(sizes(x.chunk(9, 0)?), [1; 7]);
    assert_eq!(sizes(counted(&[0]).split(2, 0)?), [0]);
    same(x.split(3, 0)?[1].clone(), &[3], &[3, 4, 5]);
    let rows = counted(&[5, 2]).unbind(0)?;
    for (i, row) in rows.iter().enumerate() {
        let first = 2 * i as i64;
        same(row.clone(), &[2], &[first, first + 1]);
    }
    assert_eq!(rows.len(), 5);
    same(counted(&[2, 3]).unbind(-1)?[2].clone(), &[2], &[2, 5]);
    assert!(counted(&[2, 0]).unbind(1)?.is_empty());
    Ok(())
}

#[test]
fn rolls_and_repetitions() -> Result<()> {
    let x = counted(&[2, 3]);
    same(x.roll(&[1], &[1])?, &[2, 3], &[2, 0, 1, 5, 3, 4]);
    same(x.roll(&[-1, 5], &[1, 0])?, &[2, 3], &[4, 5, 3, 1, 2, 0]);
    same(x.roll(&[isize::MIN], &[0])?, &[2, 3], &[0, 1, 2, 3, 4, 5]);
    let y = counted(&[2]);
    same(y.repeat(&[2, 2])?, &[2, 4], &[0, 1, 0, 1, 0, 1, 0, 1]);
    same(y.repeat(&[0])?, &[0], &[]);
    same(x.tile(&[2])?, &[2, 6], &[0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]);
    same(y.repeat_interleave(2, 0)?, &[4], &[0, 0, 1, 1]);
    same(x.repeat_interleave_each(&[1, 0, 2], 1)?, &[2, 3], &[0, 2, 2, 3, 5, 5]);
    same(
        x.pad(&[(0, 1), (1, 0)], 9)?,
        &[3, 4],
        &[9, 0, 1, 2, 9, 3, 4, 5, 9, 9, 9, 9],
    );
    Ok(())
}
