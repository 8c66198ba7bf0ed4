//! Reading and writing by index.

use polygrad_core::compute::{Gather, Kernel, Scatter};
use polygrad_core::{Axes, Backend, DType, ErrorKind, HostTensor, Layout, Shape, SliceRange};
use polygrad_reference::Reference;

use super::super::case::Cases;
use super::super::lab::Lab;
use super::super::numbers::{drawn, host, places, positions, precise, walked};
use super::super::outcome::{Done, wrong};
use crate::tolerance::{Bounds, tolerance};

pub(super) fn cases(all: &mut Cases) {
    for dtype in DType::ALL {
        all.add(format!("gather {dtype}"), move |lab| gather(lab, dtype));
        all.add(format!("scatter {dtype}"), move |lab| scatter(lab, dtype, false));
        if dtype != DType::Bool {
            all.add(format!("scatter_add {dtype}"), move |lab| scatter(lab, dtype, true));
        }
    }
    all.add("gather: indices outside", outside_gather);
    all.add("scatter: indices outside", |lab| outside_scatter(lab, false));
    all.add("scatter_add: indices outside", |lab| outside_scatter(lab, true));
}

fn gather(lab: &Lab<'_>, dtype: DType) -> Done {
    lab.needs(Kernel::Gather, dtype)?;
    let base = drawn(dtype, &[6, 5, 7], 1)?;
    let whole = Layout::contiguous(*base.shape());
    let back = [SliceRange::new(5, 6, -1), SliceRange::full(5), SliceRange::new(0, 4, 2)];
    let from = lab.put(&base)?;
    for layout in [whole, whole.permute(Axes::new([2, 0, 1])?), whole.slice(&back)] {
        let x = walked(&base, &layout)?;
        for axis in 0..3 {
            for extent in [1, 3, 11, 0] {
                let dims = layout.shape().with_dim(axis, extent);
                let index = positions(&dims, x.shape()[axis], 4)?;
                let truth = host(&Reference::gather(&precise(&x)?, axis, &precise(&index)?)?)?;
                let (names, to) = (lab.put(&index)?, lab.out(dtype, &dims)?);
                let (input, index) = (from.laid(layout), names.view());
                lab.driver.gather(&Gather {
                    input,
                    axis,
                    index,
                    output: to.ptr,
                })?;
                lab.check("gather", &to, &truth, Bounds::EXACT)?;
            }
        }
    }
    // One index for each row, seen by all its elements.
    let index = positions(&[4], 6, 9)?;
    let names = lab.put(&index)?;
    let spread = Layout::strided(Shape::new(&[4, 5, 7])?, &[1, 0, 0], 0);
    let truth = host(&Reference::gather(
        &precise(&base)?,
        0,
        &precise(&walked(&index, &spread)?)?,
    )?)?;
    let to = lab.out(dtype, &[4, 5, 7])?;
    lab.driver.gather(&Gather {
        input: from.view(),
        axis: 0,
        index: names.laid(spread),
        output: to.ptr,
    })?;
    lab.check("gather of rows", &to, &truth, Bounds::EXACT)
}

/// An index that names no place twice along the axis.
fn distinct(dims: &[usize], axis: usize, below: usize) -> Done<HostTensor> {
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

fn scatter(lab: &Lab<'_>, dtype: DType, add: bool) -> Done {
    lab.needs(if add { Kernel::ScatterAdd } else { Kernel::Scatter }, dtype)?;
    let block = [7, 13, 6];
    let base = drawn(dtype, &block, 1)?;
    let whole = Layout::contiguous(*base.shape());
    let part = [SliceRange::full(7), SliceRange::new(12, 7, -2), SliceRange::full(6)];
    for layout in [whole, whole.permute(Axes::new([1, 0, 2])?), whole.slice(&part)] {
        let x = walked(&base, &layout)?;
        for axis in 0..3 {
            let below = x.shape()[axis];
            // 5 goes around 6, 7 and 13 without meeting itself.
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
                let target = lab.put_to_change(&base)?;
                let (names, by) = (lab.put(&index)?, lab.put(&source)?);
                let call = Scatter {
                    target: target.laid(layout),
                    axis,
                    index: names.view(),
                    source: by.view(),
                };
                match add {
                    true => lab.driver.scatter_add(&call)?,
                    false => lab.driver.scatter(&call)?,
                }
                if !lab.options.values {
                    continue;
                }
                let answer = lab.read(&target)?;
                let bounds = if add {
                    tolerance(dtype, "scatter_add")
                } else {
                    Bounds::EXACT
                };
                lab.agrees("the target", &walked(&answer, &layout)?, &host(&truth)?, bounds)?;
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

fn index_with(bad: i64) -> Done<HostTensor> {
    Ok(HostTensor::new(Shape::new(&[2, 3])?, vec![0, 1, 3, 2, bad, 1])?)
}

fn outside_gather(lab: &Lab<'_>) -> Done {
    let dtype = DType::F32;
    lab.needs(Kernel::Gather, dtype)?;
    if !lab.options.values {
        return Ok(());
    }
    let from = lab.put(&drawn(dtype, &[4, 3], 1)?)?;
    for bad in BAD {
        let (names, to) = (lab.put(&index_with(bad)?)?, lab.out(dtype, &[2, 3])?);
        let call = Gather {
            input: from.view(),
            axis: 0,
            index: names.view(),
            output: to.ptr,
        };
        lab.fails(&format!("index {bad}"), ErrorKind::OutOfRange, lab.driver.gather(&call))?;
    }
    // It goes on.
    let (names, to) = (lab.put(&index_with(0)?)?, lab.out(dtype, &[2, 3])?);
    lab.driver.gather(&Gather {
        input: from.view(),
        axis: 0,
        index: names.view(),
        output: to.ptr,
    })?;
    Ok(lab.driver.synchronize()?)
}

fn outside_scatter(lab: &Lab<'_>, add: bool) -> Done {
    let dtype = DType::F32;
    lab.needs(if add { Kernel::ScatterAdd } else { Kernel::Scatter }, dtype)?;
    if !lab.options.values {
        return Ok(());
    }
    let start = drawn(dtype, &[4, 3], 1)?;
    for bad in BAD {
        let target = lab.put_to_change(&start)?;
        let (names, by) = (lab.put(&index_with(bad)?)?, lab.put(&drawn(dtype, &[2, 3], 2)?)?);
        let call = Scatter {
            target: target.view(),
            axis: 0,
            index: names.view(),
            source: by.view(),
        };
        let result = if add {
            lab.driver.scatter_add(&call)
        } else {
            lab.driver.scatter(&call)
        };
        lab.fails(&format!("index {bad}"), ErrorKind::OutOfRange, result)?;
        // Those that the other indices name may have been written, and no more.
        let after = lab.read(&target)?.to_f64_vec();
        for (i, (a, b)) in after.iter().zip(start.to_f64_vec()).enumerate() {
            let named = [(0, 0), (1, 1), (3, 2), (2, 0), (1, 2)].contains(&(i / 3, i % 3));
            if !named && *a != b {
                return wrong(format!("index {bad} writes element {i}"));
            }
        }
    }
    Ok(())
}
