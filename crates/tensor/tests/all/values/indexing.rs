//! `x.i(…)` and slices, as in Python.

use polygrad_core::SliceRange;
use polygrad_tensor::{Index, Result};

use super::{Tensor, counted, device, same};

#[test]
fn positions_take_their_axis_out() -> Result<()> {
    let x = counted(&[2, 3, 2]);
    same(x.i(1)?, &[3, 2], &[6, 7, 8, 9, 10, 11]);
    same(x.i(-2)?, &[3, 2], &[0, 1, 2, 3, 4, 5]);
    same(x.i((0, 2))?, &[2], &[4, 5]);
    same(x.i((1, -1, 0))?, &[], &[10]);
    same(x.i((.., 1))?, &[2, 2], &[2, 3, 8, 9]);
    same(x.i((.., .., -1))?, &[2, 3], &[1, 3, 5, 7, 9, 11]);
    same(counted(&[]).i([].as_slice())?, &[], &[0]);
    Ok(())
}

#[test]
fn ranges_count_from_both_ends() -> Result<()> {
    let x = counted(&[6]);
    same(x.i(1..3)?, &[2], &[1, 2]);
    same(x.i(1..=3)?, &[3], &[1, 2, 3]);
    same(x.i(4..)?, &[2], &[4, 5]);
    same(x.i(..2)?, &[2], &[0, 1]);
    same(x.i(..-4)?, &[2], &[0, 1]);
    same(x.i(-2..)?, &[2], &[4, 5]);
    same(x.i(-3..-1)?, &[2], &[3, 4]);
    same(x.i(-3..=-1)?, &[3], &[3, 4, 5]);
    same(x.i(..)?, &[6], &[0, 1, 2, 3, 4, 5]);
    same(x.i(6..)?, &[0], &[]);
    same(x.i(2..2)?, &[0], &[]);
    same(x.i(-6..6)?, &[6], &[0, 1, 2, 3, 4, 5]);
    Ok(())
}

#[test]
fn steps() -> Result<()> {
    let x = counted(&[7]);
    same(x.i(Index::from(..).step_by(3))?, &[3], &[0, 3, 6]);
    same(x.i(Index::from(1..6).step_by(2))?, &[3], &[1, 3, 5]);
    same(x.i(Index::from(5..).step_by(100))?, &[1], &[5]);
    same(x.i(Index::from(..).step_by(usize::MAX))?, &[1], &[0]);
    same(x.slice(&[SliceRange::new(6, 4, -2)])?, &[4], &[6, 4, 2, 0]);
    let grid = counted(&[3, 4]);
    same(
        grid.i((Index::from(..).step_by(2), Index::from(1..).step_by(2)))?,
        &[2, 2],
        &[1, 3, 9, 11],
    );
    let entries = [Index::At(-1), Index::Range(None, Some(-1), 2)];
    same(grid.i(entries.as_slice())?, &[2], &[8, 10]);
    Ok(())
}

#[test]
fn cuts_of_cuts() -> Result<()> {
    let x = counted(&[4, 5])
        .transpose(0, 1)?
        .i((1..5, Index::from(..).step_by(2)))?;
    same(x.clone(), &[4, 2], &[1, 11, 2, 12, 3, 13, 4, 14]);
    same(x.flip(0)?.narrow(0, 1, 2)?.select(1, -1)?, &[2], &[13, 12]);
    same(x.flip(())?.reshape([8])?, &[8], &[14, 4, 13, 3, 12, 2, 11, 1]);
    Ok(())
}

#[test]
fn a_scalar_has_an_axis_where_pytorch_gives_it_one() -> Result<()> {
    let x = counted(&[1]).reshape(())?;
    for axis in [0, -1] {
        same(x.sum_keepdim(axis)?, &[], &[0]);
        same(x.cumsum(axis)?, &[], &[0]);
        same(x.argmax_keepdim(axis)?, &[], &[0]);
        same(x.max(axis)?.0, &[], &[0]);
        same(x.sort(axis, true)?.1, &[], &[0]);
        same(x.topk(1, axis, true)?.0, &[], &[0]);
        same(x.flip(axis)?, &[], &[0]);
        same(x.transpose(axis, 0)?, &[], &[0]);
        same(x.gather(axis, &counted(&[1]))?, &[1], &[0]);
        same(x.index_select(axis, &counted(&[1]))?, &[], &[0]);
    }
    Ok(())
}

fn list(values: &[i64], shape: &[usize]) -> Tensor {
    Tensor::from_slice(values, shape, &device()).unwrap()
}

#[test]
fn integers_of_every_type_are_positions_and_bounds() -> Result<()> {
    let x = counted(&[3, 4]);
    let rows = x.dims()[0];
    same(x.i(rows - 1)?, &[4], &[8, 9, 10, 11]);
    same(x.i((1..rows, 0u8))?, &[2], &[4, 8]);
    same(x.i((..=1i64, 2..3usize))?, &[2, 1], &[2, 6]);
    same(x.i((2i32.., ..=-2))?, &[1, 3], &[8, 9, 10]);
    assert!(x.i(usize::MAX).is_err());
    Ok(())
}

// What PyTorch 2.13 gives for the same index.
#[test]
fn tensors_pick_as_in_pytorch() -> Result<()> {
    let x = counted(&[2, 3, 4]);
    let rows = list(&[1, -1, 0], &[3]);
    let pair = list(&[0, 1], &[2]);
    same(x.i((.., &rows))?.i((0, 0))?, &[4], &[4, 5, 6, 7]);
    same(
        x.i((1, &rows))?,
        &[3, 4],
        &[16, 17, 18, 19, 20, 21, 22, 23, 12, 13, 14, 15],
    );
    same(
        x.i((.., &rows, &list(&[0, 1, -1], &[3])))?,
        &[2, 3],
        &[4, 9, 3, 16, 21, 15],
    );
    same(
        x.i((&pair, .., &list(&[3, 0], &[2])))?,
        &[2, 3],
        &[3, 7, 11, 12, 16, 20],
    );
    let (column, inner) = (list(&[0, 3], &[2, 1]), list(&[0, 2], &[2]));
    same(x.i((.., &inner, &column))?, &[2, 2, 2], &[0, 8, 3, 11, 12, 20, 15, 23]);
    same(x.i(&x.remainder(5)?.eq(0)?)?, &[5], &[0, 5, 10, 15, 20]);
    let kept = Tensor::new([true, false, true], &device())?;
    same(x.i((.., &kept, 0))?, &[2, 2], &[0, 8, 12, 20]);
    let mask = Tensor::new([[true, false, true], [false, true, false]], &device())?;
    same(x.i((&mask, 1..3))?, &[3, 2], &[1, 2, 9, 10, 17, 18]);
    same(x.i((Index::Ellipsis, 1))?, &[2, 3], &[1, 5, 9, 13, 17, 21]);
    same(
        x.i((Index::NewAxis, 0, Index::Ellipsis, Index::NewAxis, 1..3))?,
        &[1, 3, 1, 2],
        &[1, 2, 5, 6, 9, 10],
    );
    same(x.i((0, .., &list(&[1, 2], &[2])))?, &[3, 2], &[1, 2, 5, 6, 9, 10]);
    same(x.i((.., Index::NewAxis, &rows, 0))?, &[2, 1, 3], &[4, 8, 0, 16, 20, 12]);
    same(x.i((&list(&[1], &[]), 0))?, &[4], &[12, 13, 14, 15]);
    same(
        x.i((&pair, Index::NewAxis, &list(&[2, 0], &[2])))?,
        &[2, 1, 4],
        &[8, 9, 10, 11, 12, 13, 14, 15],
    );
    same(x.i(list(&[], &[0]))?, &[0, 3, 4], &[]);
    same(counted(&[3]).masked_select(&mask)?, &[3], &[0, 2, 1]);
    same(
        x.remainder(7)?.eq(0)?.nonzero()?,
        &[4, 3],
        &[0, 0, 0, 0, 1, 3, 1, 0, 2, 1, 2, 1],
    );
    same(counted(&[2]).sum_all()?.nonzero()?, &[1, 0], &[]);
    Ok(())
}

#[test]
fn assignment_is_that_of_pytorch() -> Result<()> {
    let x = counted(&[2, 3, 4]);
    let rows = list(&[1, -1, 0], &[3]);
    let row_after = |y: &Tensor, i: usize| y.i((i / 3, i % 3)).unwrap();
    let mut y = x.clone();
    y.set_i((0, 1..3), -1)?;
    same(row_after(&y, 0), &[4], &[0, 1, 2, 3]);
    same(y.i((0, 1..))?, &[2, 4], &[-1; 8]);
    same(y.i(1)?, &[3, 4], &x.i(1)?.to_vec::<i64>()?);
    same(x.i((0, 1, 0))?, &[], &[4]);

    let y = x.index_put((.., &rows), list(&[100, 200, 300, 400], &[4]))?;
    same(y.flatten(0, 1)?, &[6, 4], &[100, 200, 300, 400].repeat(6));
    let y = x.index_put((.., &rows, &list(&[0, 1, -1], &[3])), list(&[7, 8, 9], &[3]))?;
    same(row_after(&y, 0), &[4], &[0, 1, 2, 9]);
    same(y.i(1)?, &[3, 4], &[12, 13, 14, 9, 7, 17, 18, 19, 20, 8, 22, 23]);
    let apart = (&list(&[0, 1], &[2]), .., &list(&[3, 0], &[2]));
    let y = x.index_put(apart, list(&[1, 2, 3, 4, 5, 6], &[2, 3]))?;
    same(y.i((0, .., 3))?, &[3], &[1, 2, 3]);
    same(y.i((1, .., 0))?, &[3], &[4, 5, 6]);
    same(x.index_put(&x.gt(20)?, -5)?.i((1, 2))?, &[4], &[20, -5, -5, -5]);
    let stepped = (.., Index::NewAxis, &rows, Index::from(0..4).step_by(2));
    let y = x.index_put(stepped, list(&[-1, -2, -3, -4], &[2, 1, 1, 2]))?;
    same(y.i((0, 2))?, &[4], &[-1, 9, -2, 11]);
    same(y.i((1, 0))?, &[4], &[-3, 13, -4, 15]);
    let twice = counted(&[3]).index_put_accumulate(list(&[0, 2, 0], &[3]), list(&[1, 2, 3], &[3]))?;
    same(twice, &[3], &[4, 1, 4]);
    same(counted(&[3]).index_put(..0, 7)?, &[3], &[0, 1, 2]);
    Ok(())
}
