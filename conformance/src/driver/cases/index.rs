//! Reading and writing by index.

use polygrad_core::compute::{Gather, Kernel, Scatter};
use polygrad_core::{Axes, Backend, DType, ErrorKind, HostTensor, Layout, Shape, SliceRange};
use polygrad_reference::Reference;

use super::super::case::Cases;
use super::super::fixture::Fixture;
use super::super::numbers::{drawn, host, places, positions, precise, walked};
use super::super::outcome::{CaseResult, wrong};
use crate::tolerance::{Bounds, tolerance};

pub(super) fn cases(all: &mut Cases) {
    for dtype in DType::ALL {
        all.add(format!("gather {dtype}"), move |fixture| gather(fixture, dtype));
        all.add(format!("scatter {dtype}"), move |fixture| {
            scatter(fixture, dtype, false)
        });
        if dtype != DType::Bool {
            all.add(format!("scatter_add {dtype}"), move |fixture| {
                scatter(fixture, dtype, true)
            });
        }
    }
    all.add("gather: indices outside", outside_gather);
    all.add("scatter: indices outside", |fixture| outside_scatter(fixture, false));
    all.add("scatter_add: indices outside", |fixture| outside_scatter(fixture, true));
}

fn gather(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    fixture.needs(Kernel::Gather, dtype)?;
    let base = drawn(dtype, &[6, 5, 7], 1)?;
    let whole = Layout::contiguous(*base.shape());
    let back = [SliceRange::new(5, 6, -1), SliceRange::full(5), SliceRange::new(0, 4, 2)];
    let from = fixture.put(&base)?;
    for layout in [whole, whole.permute(Axes::new([2, 0, 1])?), whole.slice(&back)] {
        let x = walked(&base, &layout)?;
        for axis in 0..3 {
            for extent in [1, 3, 11, 0] {
                let dims = layout.shape().with_dim(axis, extent);
                let index = positions(&dims, x.shape()[axis], 4)?;
                let truth = host(&Reference::gather(&precise(&x)?, axis, &precise(&index)?)?)?;
                let (names, to) = (fixture.put(&index)?, fixture.out(dtype, &dims)?);
                let (input, index) = (from.laid(layout), names.view());
                fixture.driver.gather(&Gather {
                    input,
                    axis,
                    index,
                    output: to.ptr,
                })?;
                fixture.check("gather", &to, &truth, Bounds::EXACT)?;
            }
        }
    }
    // One index for each row, broadcast to all its elements.
    let index = positions(&[4], 6, 9)?;
    let names = fixture.put(&index)?;
    let spread = Layout::strided(Shape::new(&[4, 5, 7])?, &[1, 0, 0], 0);
    let truth = host(&Reference::gather(
        &precise(&base)?,
        0,
        &precise(&walked(&index, &spread)?)?,
    )?)?;
    let to = fixture.out(dtype, &[4, 5, 7])?;
    fixture.driver.gather(&Gather {
        input: from.view(),
        axis: 0,
        index: names.laid(spread),
        output: to.ptr,
    })?;
    fixture.check("gather of rows", &to, &truth, Bounds::EXACT)
}

/// Indices without repetitions along the axis.
fn distinct(dims: &[usize], axis: usize, below: usize) -> CaseResult<HostTensor> {
    let inner: usize = dims[axis + 1..].iter().product();
    let extent = dims[axis];
    let numel: usize = dims.iter().product();
    let values = (0..numel).map(|i| ((i / inner % extent * 5 + i) % below) as i64);
    let values: Vec<i64> = match extent {
        1 => values.collect(),
        _ => (0..numel)
            .map(|i| ((i / inner % extent * 5 + i / (inner * extent)) % below) as i64)
            .collect(),
    };
    Ok(HostTensor::new(Shape::new(dims)?, values)?)
}

fn scatter(fixture: &Fixture<'_>, dtype: DType, add: bool) -> CaseResult {
    fixture.needs(if add { Kernel::ScatterAdd } else { Kernel::Scatter }, dtype)?;
    let block = [7, 13, 6];
    let base = drawn(dtype, &block, 1)?;
    let whole = Layout::contiguous(*base.shape());
    let part = [SliceRange::full(7), SliceRange::new(12, 7, -2), SliceRange::full(6)];
    for layout in [whole, whole.permute(Axes::new([1, 0, 2])?), whole.slice(&part)] {
        let x = walked(&base, &layout)?;
        for axis in 0..3 {
            let below = x.shape()[axis];
            // Steps of 5 modulo 6, 7 and 13 visit each number once.
            for extent in [1, below.min(5), 20] {
                if !add && extent > below {
                    continue;
                }
                let mut dims = x.shape().with_dim(axis, extent);
                dims.dims_mut()[(axis + 1) % 3] -= 1;
                let index = if add {
                    positions(&dims, below, 4)?
                } else {
                    distinct(&dims, axis, below)?
                };
                let source = drawn(dtype, &dims, 5)?;
                let (start, names, by) = (precise(&x)?, precise(&index)?, precise(&source)?);
                let truth = match add {
                    true => Reference::scatter_add(&start, axis, &names, &by)?,
                    false => Reference::scatter(&start, axis, &names, &by)?,
                };
                let target = fixture.put_to_change(&base)?;
                let (names, by) = (fixture.put(&index)?, fixture.put(&source)?);
                let call = Scatter {
                    target: target.laid(layout),
                    axis,
                    index: names.view(),
                    source: by.view(),
                };
                match add {
                    true => fixture.driver.scatter_add(&call)?,
                    false => fixture.driver.scatter(&call)?,
                }
                if !fixture.options.values {
                    continue;
                }
                let answer = fixture.read(&target)?;
                let bounds = if add {
                    tolerance(dtype, "scatter_add")
                } else {
                    Bounds::EXACT
                };
                fixture.agrees("the target", &walked(&answer, &layout)?, &host(&truth)?, bounds)?;
                let own = places(&layout);
                let size = dtype.size();
                let differs =
                    |i: &usize| answer.bytes()[i * size..(i + 1) * size] != base.bytes()[i * size..(i + 1) * size];
                if let Some(at) = (0..base.shape().numel()).filter(|i| !own.contains(i)).find(differs) {
                    return wrong(format!("it writes element {at}, which is not the target's"));
                }
            }
        }
    }
    Ok(())
}

const BAD: [i64; 5] = [-1, 4, i64::MAX, i64::MIN, 1 << 32];

fn index_with(bad: i64) -> CaseResult<HostTensor> {
    Ok(HostTensor::new(Shape::new(&[2, 3])?, vec![0, 1, 3, 2, bad, 1])?)
}

fn outside_gather(fixture: &Fixture<'_>) -> CaseResult {
    let dtype = DType::F32;
    fixture.needs(Kernel::Gather, dtype)?;
    if !fixture.options.values {
        return Ok(());
    }
    let from = fixture.put(&drawn(dtype, &[4, 3], 1)?)?;
    for bad in BAD {
        let (names, to) = (fixture.put(&index_with(bad)?)?, fixture.out(dtype, &[2, 3])?);
        let call = Gather {
            input: from.view(),
            axis: 0,
            index: names.view(),
            output: to.ptr,
        };
        fixture.fails(
            &format!("index {bad}"),
            ErrorKind::OutOfRange,
            fixture.driver.gather(&call),
        )?;
    }
    // The driver continues to work.
    let (names, to) = (fixture.put(&index_with(0)?)?, fixture.out(dtype, &[2, 3])?);
    fixture.driver.gather(&Gather {
        input: from.view(),
        axis: 0,
        index: names.view(),
        output: to.ptr,
    })?;
    Ok(fixture.driver.synchronize()?)
}

fn outside_scatter(fixture: &Fixture<'_>, add: bool) -> CaseResult {
    let dtype = DType::F32;
    fixture.needs(if add { Kernel::ScatterAdd } else { Kernel::Scatter }, dtype)?;
    if !fixture.options.values {
        return Ok(());
    }
    let start = drawn(dtype, &[4, 3], 1)?;
    for bad in BAD {
        let target = fixture.put_to_change(&start)?;
        let (names, by) = (
            fixture.put(&index_with(bad)?)?,
            fixture.put(&drawn(dtype, &[2, 3], 2)?)?,
        );
        let call = Scatter {
            target: target.view(),
            axis: 0,
            index: names.view(),
            source: by.view(),
        };
        let result = if add {
            fixture.driver.scatter_add(&call)
        } else {
            fixture.driver.scatter(&call)
        };
        fixture.fails(&format!("index {bad}"), ErrorKind::OutOfRange, result)?;
        // Only elements named by the valid indices may have been written.
        let after = fixture.read(&target)?.to_f64_vec();
        for (i, (a, b)) in after.iter().zip(start.to_f64_vec()).enumerate() {
            let named = [(0, 0), (1, 1), (3, 2), (2, 0), (1, 2)].contains(&(i / 3, i % 3));
            if !named && *a != b {
                return wrong(format!("index {bad} writes element {i}"));
            }
        }
    }
    Ok(())
}
