//! Reductions, positions of extremes, running sums, sorting.

use polygrad_core::compute::{ArgReduce, CumSum, DevicePtr, Kernel, Reduce, ReduceAxes, Sort};
use polygrad_core::{ArgOp, Axes, Backend, DType, ErrorKind, HostTensor, Layout, Op, ReduceOp, Shape, SliceRange};
use polygrad_reference::Reference;

use super::super::case::Cases;
use super::super::fixture::Fixture;
use super::super::numbers::{drawn, host, listed, precise, walked};
use super::super::outcome::{CaseResult, wrong};
use super::maps::bounds;
use crate::tolerance::Bounds;

pub(super) fn cases(all: &mut Cases) {
    for dtype in DType::ALL {
        for &op in ReduceOp::ALL {
            if op.accepts(dtype) {
                all.add(format!("reduce {} {dtype}", op.name()), move |fixture| {
                    reduce(fixture, op, dtype)
                });
                all.add(format!("reduce_axes {} {dtype}", op.name()), move |fixture| {
                    axes(fixture, op, dtype)
                });
            }
        }
        for op in [ArgOp::Max, ArgOp::Min] {
            all.add(format!("arg_reduce {} {dtype}", op.name()), move |fixture| {
                arg(fixture, op, dtype)
            });
        }
        if dtype != DType::Bool {
            all.add(format!("cumsum {dtype}"), move |fixture| cumsum(fixture, dtype));
        }
        all.add(format!("sort {dtype}"), move |fixture| sort(fixture, dtype));
    }
    all.add("reduce: NaN", not_a_number);
    all.add("reduce: over nothing", nothing);
    all.add("reduce: a long sum", long);
}

/// Random numbers; those for products of floats are near 1, since the products would overflow otherwise.
fn values(op: ReduceOp, dtype: DType, dims: &[usize]) -> CaseResult<HostTensor> {
    let drawn = drawn(dtype, dims, 9)?;
    if op != ReduceOp::Prod || !dtype.is_float() {
        return Ok(drawn);
    }
    let near_one = drawn.to_f64_vec().iter().map(|x| 1.0 + x / 40.0).collect();
    Ok(HostTensor::new(*drawn.shape(), near_one)?.cast(dtype))
}

fn within(op: ReduceOp, dtype: DType) -> Bounds {
    let axes = Axes::one(0);
    bounds(
        &Op::Reduce {
            op,
            axes,
            keepdims: false,
        },
        dtype,
    )
}

fn reduce(fixture: &Fixture<'_>, op: ReduceOp, dtype: DType) -> CaseResult {
    fixture.holds(dtype)?;
    let sizes = [
        [1, 7, 1],
        [3, 4, 5],
        [1, 1000, 1],
        [1, 1, 9],
        [130, 3, 1],
        [1, 65, 300],
        [2, 257, 3],
        [1, 70_000, 1],
        [700, 70, 1],
    ];
    for [outer, len, inner] in sizes {
        if op == ReduceOp::Prod && len > 300 {
            continue;
        }
        let x = values(op, dtype, &[outer, len, inner])?;
        let truth = host(&Reference::reduce(op, &precise(&x)?, Axes::one(1), false)?)?;
        let (from, to) = (fixture.put(&x)?, fixture.out(dtype, &[outer, inner])?);
        let (input, output) = (from.ptr, to.ptr);
        fixture.driver.reduce(&Reduce {
            op,
            dtype,
            outer,
            len,
            inner,
            input,
            output,
        })?;
        let mut within = within(op, dtype);
        if dtype.is_float() && len > 1000 {
            // Terms of both signs cancel.
            within.absolute *= 10.0;
        }
        fixture.check(
            &format!("{} of {outer}, {len}, {inner}", op.name()),
            &to,
            &truth,
            within,
        )?;
    }
    Ok(())
}

fn axes(fixture: &Fixture<'_>, op: ReduceOp, dtype: DType) -> CaseResult {
    fixture.needs(Kernel::ReduceAxes, dtype)?;
    let block = [5, 8, 7, 6];
    let base = values(op, dtype, &block)?;
    let whole = Layout::contiguous(Shape::new(&block)?);
    let few = [
        SliceRange::new(4, 5, -1),
        SliceRange::new(1, 3, 2),
        SliceRange::full(7),
        SliceRange::new(0, 3, 2),
    ];
    let single = Layout::contiguous(Shape::new(&[8, 1, 6])?).expand(Shape::new(&[5, 8, 2, 6])?);
    let turned = whole.permute(Axes::new([2, 0, 3, 1])?);
    let from = fixture.put(&base)?;
    for (name, layout) in [
        ("contiguous", whole),
        ("turned", turned),
        ("sliced", whole.slice(&few)),
        ("expanded", single),
    ] {
        let input = from.laid(layout);
        let x = walked(&base, &layout)?;
        for list in [
            &[0][..],
            &[1],
            &[3],
            &[0, 1],
            &[1, 3],
            &[2, 3],
            &[0, 2, 3],
            &[0, 1, 2, 3],
            &[],
        ] {
            if op == ReduceOp::Prod && list.len() > 2 {
                continue;
            }
            let axes = Axes::new(list.iter().copied())?;
            let truth = host(&Reference::reduce(op, &precise(&x)?, axes, false)?)?;
            let to = fixture.out(dtype, truth.shape())?;
            fixture.driver.reduce_axes(&ReduceAxes {
                op,
                input,
                axes,
                output: to.ptr,
            })?;
            fixture.check(
                &format!("{} {name} over {list:?}", op.name()),
                &to,
                &truth,
                within(op, dtype),
            )?;
        }
    }
    Ok(())
}

fn arg(fixture: &Fixture<'_>, op: ArgOp, dtype: DType) -> CaseResult {
    fixture.needs(Kernel::ArgReduce, dtype)?;
    // Few different values, so that there are ties.
    let dims = [4, 70, 5];
    let base = drawn(dtype, &dims, 5)?;
    let mut values: Vec<f64> = base.to_f64_vec().iter().map(|x| x.round()).collect();
    if dtype.is_float() {
        values[37] = f64::NAN;
        values[150] = f64::NAN;
    }
    let base = HostTensor::new(*base.shape(), values)?.cast(dtype);
    let whole = Layout::contiguous(*base.shape());
    let from = fixture.put(&base)?;
    for layout in [whole, whole.permute(Axes::new([2, 0, 1])?)] {
        let x = precise(&walked(&base, &layout)?)?;
        for axis in 0..3 {
            let truth = host(&Reference::arg_reduce(op, &x, axis, false)?)?;
            let to = fixture.out(DType::I64, truth.shape())?;
            let input = from.laid(layout);
            fixture.driver.arg_reduce(&ArgReduce {
                op,
                input,
                axis,
                output: to.ptr,
            })?;
            fixture.check(&format!("{} along {axis}", op.name()), &to, &truth, Bounds::EXACT)?;
        }
    }
    let none = fixture.out(dtype, &[0, 3])?;
    let to = fixture.out(DType::I64, &[3])?;
    let call = ArgReduce {
        op,
        input: none.view(),
        axis: 0,
        output: to.ptr,
    };
    fixture.fails(
        "an extreme of nothing",
        ErrorKind::InvalidArgument,
        fixture.driver.arg_reduce(&call),
    )?;
    let call = ArgReduce {
        op,
        input: none.view(),
        axis: 1,
        output: DevicePtr::NULL,
    };
    Ok(fixture.driver.arg_reduce(&call)?)
}

fn cumsum(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    fixture.needs(Kernel::CumSum, dtype)?;
    for dims in [vec![3, 40, 5], vec![1000], vec![0, 3], vec![1, 1]] {
        let base = drawn(dtype, &dims, 5)?;
        let from = fixture.put(&base)?;
        let whole = Layout::contiguous(*base.shape());
        let turned = whole.permute(Axes::new((0..dims.len()).rev())?);
        for layout in [whole, turned] {
            let x = precise(&walked(&base, &layout)?)?;
            for axis in 0..dims.len() {
                let truth = host(&Reference::cumsum(&x, axis)?)?;
                let to = fixture.out(dtype, truth.shape())?;
                let input = from.laid(layout);
                fixture.driver.cumsum(&CumSum {
                    input,
                    axis,
                    output: to.ptr,
                })?;
                fixture.check_op("cumsum", &to, &truth)?;
            }
        }
    }
    Ok(())
}

fn sort(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    fixture.needs(Kernel::Sort, dtype)?;
    for dims in [vec![4, 50, 3], vec![300], vec![2, 0], vec![1]] {
        let base = drawn(dtype, &dims, 5)?;
        let mut values: Vec<f64> = base.to_f64_vec().iter().map(|x| x.round()).collect();
        if dtype.is_float() {
            values.iter_mut().skip(3).step_by(41).for_each(|x| *x = f64::NAN);
        }
        let base = HostTensor::new(*base.shape(), values)?.cast(dtype);
        let from = fixture.put(&base)?;
        let whole = Layout::contiguous(*base.shape());
        let turned = whole.permute(Axes::new((0..dims.len()).rev())?);
        for layout in [whole, turned] {
            let x = precise(&walked(&base, &layout)?)?;
            for axis in 0..dims.len() {
                for descending in [false, true] {
                    let (values, positions) = Reference::sort(&x, axis, descending)?;
                    let (values, positions) = (host(&values)?, host(&positions)?);
                    let (to, to_positions) = (
                        fixture.out(dtype, values.shape())?,
                        fixture.out(DType::I64, values.shape())?,
                    );
                    let input = from.laid(layout);
                    let (values_ptr, positions_ptr) = (to.ptr, to_positions.ptr);
                    fixture.driver.sort(&Sort {
                        input,
                        axis,
                        descending,
                        values: values_ptr,
                        positions: positions_ptr,
                    })?;
                    fixture.check("sorted values", &to, &values, Bounds::EXACT)?;
                    fixture.check("positions", &to_positions, &positions, Bounds::EXACT)?;
                }
            }
        }
    }
    Ok(())
}

fn not_a_number(fixture: &Fixture<'_>) -> CaseResult {
    let dtype = DType::F32;
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    for op in [
        ReduceOp::Sum,
        ReduceOp::Mean,
        ReduceOp::Prod,
        ReduceOp::Max,
        ReduceOp::Min,
    ] {
        for len in [3, 100, 5000] {
            for at in [0, len / 2, len - 1] {
                for special in [nan, inf, -inf] {
                    let mut values = vec![1.0; len];
                    values[at] = special;
                    let x = listed(dtype, &values)?;
                    let truth = host(&Reference::reduce(op, &precise(&x)?, Axes::one(0), false)?)?;
                    let (from, to) = (fixture.put(&x)?, fixture.out(dtype, &[1])?);
                    let (input, output) = (from.ptr, to.ptr);
                    fixture.driver.reduce(&Reduce {
                        op,
                        dtype,
                        outer: 1,
                        len,
                        inner: 1,
                        input,
                        output,
                    })?;
                    fixture.check(
                        &format!("{} of {special} at {at} of {len}", op.name()),
                        &to,
                        &truth,
                        within(op, dtype),
                    )?;
                }
            }
        }
    }
    Ok(())
}

fn nothing(fixture: &Fixture<'_>) -> CaseResult {
    let dtype = DType::F32;
    for (op, identity) in [(ReduceOp::Sum, 0.0), (ReduceOp::Prod, 1.0)] {
        let to = fixture.out(dtype, &[6])?;
        let input = DevicePtr::new(77);
        fixture.driver.reduce(&Reduce {
            op,
            dtype,
            outer: 2,
            len: 0,
            inner: 3,
            input,
            output: to.ptr,
        })?;
        fixture.check(op.name(), &to, &listed(dtype, &[identity; 6])?, Bounds::EXACT)?;
        if fixture.driver.supports(Kernel::ReduceAxes, dtype) {
            let (none, to) = (fixture.out(dtype, &[2, 0, 3])?, fixture.out(dtype, &[3])?);
            let axes = Axes::new([0, 1])?;
            fixture.driver.reduce_axes(&ReduceAxes {
                op,
                input: none.view(),
                axes,
                output: to.ptr,
            })?;
            fixture.check(op.name(), &to, &listed(dtype, &[identity; 3])?, Bounds::EXACT)?;
        }
    }
    for op in [ReduceOp::Max, ReduceOp::Min, ReduceOp::Mean] {
        let to = fixture.out(dtype, &[6])?;
        let call = Reduce {
            op,
            dtype,
            outer: 2,
            len: 0,
            inner: 3,
            input: to.ptr,
            output: to.ptr,
        };
        fixture.fails(op.name(), ErrorKind::InvalidArgument, fixture.driver.reduce(&call))?;
        if fixture.driver.supports(Kernel::ReduceAxes, dtype) {
            let none = fixture.out(dtype, &[2, 0, 3])?;
            let call = ReduceAxes {
                op,
                input: none.view(),
                axes: Axes::one(1),
                output: to.ptr,
            };
            fixture.fails(op.name(), ErrorKind::InvalidArgument, fixture.driver.reduce_axes(&call))?;
        }
        // Empty reductions need no memory.
        let nowhere = DevicePtr::NULL;
        fixture.driver.reduce(&Reduce {
            outer: 0,
            input: nowhere,
            output: nowhere,
            ..call
        })?;
    }
    Ok(())
}

fn long(fixture: &Fixture<'_>) -> CaseResult {
    let dtype = DType::F32;
    let len = fixture.options.long;
    let x = fixture.driver.alloc(len * 4)?;
    let value = polygrad_core::Scalar::Float(0.1);
    fixture.driver.fill(&polygrad_core::compute::Fill {
        dtype,
        len,
        value,
        output: x,
    })?;
    let to = fixture.out(dtype, &[1])?;
    for (op, right) in [
        (ReduceOp::Sum, len as f64 * f64::from(0.1f32)),
        (ReduceOp::Mean, f64::from(0.1f32)),
    ] {
        fixture.driver.reduce(&Reduce {
            op,
            dtype,
            outer: 1,
            len,
            inner: 1,
            input: x,
            output: to.ptr,
        })?;
        let answer = fixture.read(&to)?.to_f64_vec()[0];
        if fixture.options.values && (answer / right - 1.0).abs() > 1e-5 {
            return wrong(format!("the {} of {len} times 0.1 is {answer}, not {right}", op.name()));
        }
    }
    Ok(fixture.driver.free(x)?)
}
