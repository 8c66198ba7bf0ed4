//! `x.i(…)` and the cuts, as Python has them.

use polygrad_core::SliceRange;
use polygrad_tensor::{Index, Result};

use super::{counted, same};

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
fn ranges_are_those_of_python() -> Result<()> {
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
    // Bounds outside move to the ends, and what is the wrong way round is empty.
    same(x.i(-100..2)?, &[2], &[0, 1]);
    same(x.i(4..100)?, &[2], &[4, 5]);
    same(x.i(Index::Range(Some(4), Some(2), 1))?, &[0], &[]);
    same(x.i(100..)?, &[0], &[]);
    same(x.i(isize::MIN..isize::MAX)?, &[6], &[0, 1, 2, 3, 4, 5]);
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
