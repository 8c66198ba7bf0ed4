//! Programs of element-wise steps.

use polygrad_core::compute::{DeviceView, Elementwise, ElementwiseProgram, Kernel, Step, Value};
use polygrad_core::{
    Backend, BinaryOp, CompareOp, DType, ErrorKind, HostTensor, Layout, Scalar, Shape, SliceRange, UnaryOp,
};
use polygrad_reference::{Reference, ReferenceDevice, ReferenceTensor};

use super::super::case::Cases;
use super::super::fixture::Fixture;
use super::super::numbers::{drawn, host, places, rounded, walked};
use super::super::outcome::CaseResult;
use crate::tolerance::{Bounds, tolerance};

pub(super) fn cases(all: &mut Cases) {
    for dtype in DType::ALL {
        all.add(format!("elementwise {dtype}: layouts"), move |fixture| {
            layouts(fixture, dtype)
        });
        all.add(format!("elementwise {dtype}: ranks and sizes"), move |fixture| {
            ranks(fixture, dtype)
        });
        all.add(format!("elementwise {dtype}: in place"), move |fixture| {
            in_place(fixture, dtype)
        });
        all.add(
            format!("elementwise {dtype}: copies, scalars, several outputs"),
            move |fixture| several(fixture, dtype),
        );
    }
    all.add("elementwise: a chain", |fixture| chain(fixture, &[257, 129]));
    all.add("elementwise: a long chain", long_chain);
    all.add("elementwise: dtypes that change on the way", changing);
    all.add("elementwise: outputs that interleave", interleaved);
    all.add("elementwise: what does not fit", misfits);
}

/// The correct results: each step computed by the reference and rounded to its dtype.
fn answers(
    program: &ElementwiseProgram,
    inputs: &[HostTensor],
    scalars: &[Scalar],
    shape: Shape,
) -> CaseResult<Vec<HostTensor>> {
    let inputs = inputs.iter().map(rounded).collect::<polygrad_core::Result<Vec<_>>>()?;
    let mut scalar_tensors = Vec::new();
    for (&scalar, &dtype) in scalars.iter().zip(program.scalars()) {
        scalar_tensors.push(Reference::full(shape, scalar, dtype, &ReferenceDevice)?);
    }
    let mut steps: Vec<ReferenceTensor> = Vec::new();
    let find = |value: Value, steps: &[ReferenceTensor]| match value {
        Value::Input(i) => inputs[usize::from(i)].clone(),
        Value::Scalar(i) => scalar_tensors[usize::from(i)].clone(),
        Value::Step(i) => steps[usize::from(i)].clone(),
    };
    for &(step, dtype) in program.steps() {
        let of = |value| find(value, &steps);
        let made = match step {
            Step::Unary(op, x) => Reference::unary(op, &of(x))?,
            Step::Binary(op, a, b) => Reference::binary(op, &of(a), &of(b))?,
            Step::Compare(op, a, b) => Reference::compare(op, &of(a), &of(b))?,
            Step::Select(c, a, b) => Reference::select(&of(c), &of(a), &of(b))?,
            _ => {
                let x = step.operands().next().map(of);
                match x {
                    Some(x) => Reference::cast(&x, dtype)?,
                    None => return super::super::outcome::wrong("a step that the suite does not know"),
                }
            }
        };
        steps.push(made);
    }
    let outputs = program.outputs().iter().map(|&value| Ok(host(&find(value, &steps))?));
    outputs.collect()
}

/// Runs a program on inputs and outputs with these layouts, and compares the results.
fn run(
    fixture: &Fixture<'_>,
    what: &str,
    program: &ElementwiseProgram,
    inputs: &[(HostTensor, Layout)],
    scalars: &[Scalar],
    outputs: &[(Vec<usize>, Layout)],
) -> CaseResult {
    let shape = *outputs[0].1.shape();
    if inputs.len() + outputs.len() > fixture.driver.capabilities().max_elementwise_views {
        return Ok(());
    }
    let (mut views, mut values) = (Vec::new(), Vec::new());
    for (base, layout) in inputs {
        views.push(fixture.put(base)?.laid(*layout));
        values.push(walked(base, layout)?);
    }
    let (mut blocks, mut targets) = (Vec::new(), Vec::new());
    for ((dims, layout), &value) in outputs.iter().zip(program.outputs()) {
        let dtype = program.dtype(value).unwrap_or(DType::F32);
        let block = fixture.out(dtype, dims)?;
        blocks.push(block);
        targets.push(block.laid(*layout));
    }
    fixture.driver.elementwise(&Elementwise {
        program,
        shape,
        inputs: &views,
        scalars,
        outputs: &targets,
    })?;
    let truths = answers(program, &values, scalars, shape)?;
    for ((block, (_, layout)), truth) in blocks.iter().zip(outputs).zip(truths) {
        fixture.check_part(what, block, &places(layout), &truth, bounds(program, block.dtype))?;
    }
    Ok(())
}

/// Each step is rounded, so their errors add up.
fn bounds(program: &ElementwiseProgram, dtype: DType) -> Bounds {
    let one = tolerance(dtype, "add");
    let steps = program.steps().len().max(1) as f64;
    Bounds {
        relative: one.relative * steps,
        absolute: one.absolute * steps,
        cap: one.cap * steps,
        ..one
    }
}

/// `a + a * b`, or for bool `(a or b) xor b`, which is defined for every dtype.
fn program(dtype: DType) -> CaseResult<ElementwiseProgram> {
    let mut program = ElementwiseProgram::default();
    let (a, b) = (program.input(dtype), program.input(dtype));
    let first = program.push(Step::Binary(BinaryOp::Mul, a, b))?;
    let second = program.push(Step::Binary(BinaryOp::Add, a, first))?;
    program.output(second);
    Ok(program)
}

/// Memory layouts for a shape: the extents of the block, and the layout within it.
fn ways(dims: &[usize]) -> CaseResult<Vec<(&'static str, Vec<usize>, Layout)>> {
    let shape = Shape::new(dims)?;
    let reversed: Vec<usize> = dims.iter().rev().copied().collect();
    let turned = Layout::contiguous(Shape::new(&reversed)?);
    let axes = polygrad_core::Axes::new((0..dims.len()).rev())?;
    let larger: Vec<usize> = dims.iter().map(|dim| 2 * dim + 1).collect();
    let every: Vec<SliceRange> = dims.iter().map(|&dim| SliceRange::new(1, dim, 2)).collect();
    let back: Vec<SliceRange> = dims
        .iter()
        .map(|&dim| SliceRange::new(dim.saturating_sub(1), dim, -1))
        .collect();
    let (wide, whole) = (Layout::contiguous(Shape::new(&larger)?), Layout::contiguous(shape));
    Ok(vec![
        ("contiguous", dims.to_vec(), whole),
        ("transposed", reversed, turned.permute(axes)),
        ("every second", larger, wide.slice(&every)),
        ("backwards", dims.to_vec(), whole.slice(&back)),
    ])
}

fn layouts(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    fixture.needs(Kernel::Elementwise, dtype)?;
    let (program, dims) = (program(dtype)?, [6, 35, 4]);
    let shape = Shape::new(&dims)?;
    let plain = (drawn(dtype, &dims, 2)?, Layout::contiguous(shape));
    for (name, block, layout) in ways(&dims)? {
        let input = (drawn(dtype, &block, 1)?, layout);
        let whole = (dims.to_vec(), Layout::contiguous(shape));
        run(
            fixture,
            &format!("an input {name}"),
            &program,
            &[input, plain.clone()],
            &[],
            &[whole],
        )?;
        run(
            fixture,
            &format!("an output {name}"),
            &program,
            &[plain.clone(), plain.clone()],
            &[],
            &[(block, layout)],
        )?;
    }
    for broadcast in [
        vec![1],
        vec![35, 1],
        vec![6, 1, 4],
        vec![6, 35, 1],
        vec![1, 1, 1],
        vec![4],
    ] {
        let layout = Layout::contiguous(Shape::new(&broadcast)?).expand(shape);
        let input = (drawn(dtype, &broadcast, 3)?, layout);
        let whole = (dims.to_vec(), Layout::contiguous(shape));
        let what = format!("{broadcast:?} broadcast");
        run(
            fixture,
            &what,
            &program,
            &[input.clone(), plain.clone()],
            &[],
            std::slice::from_ref(&whole),
        )?;
        run(fixture, &what, &program, &[plain.clone(), input], &[], &[whole])?;
    }
    Ok(())
}

fn ranks(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    fixture.needs(Kernel::Elementwise, dtype)?;
    let program = program(dtype)?;
    let sizes: [&[usize]; 14] = [
        &[],
        &[1],
        &[7],
        &[70_001],
        &[300, 301],
        &[2, 3, 4],
        &[2, 1, 3, 2],
        &[2, 2, 2, 2, 3],
        &[2, 1, 2, 1, 2, 3],
        &[2, 2, 1, 2, 2, 1, 3],
        &[2, 2, 2, 1, 2, 2, 2, 3],
        &[0],
        &[3, 0, 2],
        &[0, 0],
    ];
    for dims in sizes {
        let shape = Shape::new(dims)?;
        let whole = Layout::contiguous(shape);
        let inputs = [(drawn(dtype, dims, 1)?, whole), (drawn(dtype, dims, 2)?, whole)];
        run(
            fixture,
            &format!("{shape}"),
            &program,
            &inputs,
            &[],
            &[(dims.to_vec(), whole)],
        )?;
        if shape.numel() < 1000 {
            for (name, block, layout) in ways(dims)? {
                let inputs = [(drawn(dtype, &block, 1)?, layout), (drawn(dtype, dims, 2)?, whole)];
                run(
                    fixture,
                    &format!("{shape} {name}"),
                    &program,
                    &inputs,
                    &[],
                    &[(block, layout)],
                )?;
            }
        }
    }
    Ok(())
}

fn in_place(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    fixture.needs(Kernel::Elementwise, dtype)?;
    let program = program(dtype)?;
    for (name, block, layout) in ways(&[9, 40, 30])? {
        let (a, b) = (drawn(dtype, &block, 1)?, drawn(dtype, &block, 2)?);
        let values = [walked(&a, &layout)?, walked(&b, &layout)?];
        let truth = &answers(&program, &values, &[], *layout.shape())?[0];
        for over in 0..2 {
            let mut blocks = Vec::new();
            for (i, host) in [&a, &b].into_iter().enumerate() {
                blocks.push(if i == over {
                    fixture.put_to_change(host)?
                } else {
                    fixture.put(host)?
                });
            }
            let views: Vec<DeviceView> = blocks.iter().map(|block| block.laid(layout)).collect();
            fixture.driver.elementwise(&Elementwise {
                program: &program,
                shape: *layout.shape(),
                inputs: &views,
                scalars: &[],
                outputs: &[views[over]],
            })?;
            if !fixture.options.values {
                continue;
            }
            let answer = walked(&fixture.read(&blocks[over])?, &layout)?;
            fixture.agrees(
                &format!("over input {over}, {name}"),
                &answer,
                truth,
                bounds(&program, dtype),
            )?;
        }
    }
    Ok(())
}

fn several(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    fixture.needs(Kernel::Elementwise, dtype)?;
    let dims = [37, 70];
    let whole = Layout::contiguous(Shape::new(&dims)?);
    let x = || -> CaseResult<(HostTensor, Layout)> { Ok((drawn(dtype, &dims, 4)?, whole)) };
    let mut copy = ElementwiseProgram::default();
    let input = copy.input(dtype);
    copy.output(input);
    for (name, block, layout) in ways(&dims)? {
        run(
            fixture,
            &format!("a copy to {name}"),
            &copy,
            &[x()?],
            &[],
            &[(block, layout)],
        )?;
    }
    let mut constant = ElementwiseProgram::default();
    let scalar = constant.scalar(dtype);
    constant.output(scalar);
    run(
        fixture,
        "a scalar alone",
        &constant,
        &[],
        &[Scalar::Int(1)],
        &[(dims.to_vec(), whole)],
    )?;
    let mut many = ElementwiseProgram::default();
    let (a, s) = (many.input(dtype), many.scalar(dtype));
    let larger = many.push(Step::Binary(BinaryOp::Maximum, a, s))?;
    let least = many.push(Step::Binary(BinaryOp::Minimum, larger, a))?;
    for value in [larger, least, larger, a, s] {
        many.output(value);
    }
    let outputs: Vec<_> = (0..5).map(|_| (dims.to_vec(), whole)).collect();
    for scalar in [Scalar::Int(1), Scalar::Float(0.0), Scalar::Bool(true)] {
        run(fixture, "several outputs", &many, &[x()?], &[scalar], &outputs)?;
    }
    Ok(())
}

fn chain(fixture: &Fixture<'_>, dims: &[usize]) -> CaseResult {
    let dtype = DType::F32;
    fixture.needs(Kernel::Elementwise, dtype)?;
    let mut program = ElementwiseProgram::default();
    let (a, b, s) = (program.input(dtype), program.input(dtype), program.scalar(dtype));
    let scaled = program.push(Step::Binary(BinaryOp::Mul, a, s))?;
    let sum = program.push(Step::Binary(BinaryOp::Add, scaled, b))?;
    let relu = program.push(Step::Unary(UnaryOp::Relu, sum))?;
    let tanh = program.push(Step::Unary(UnaryOp::Tanh, relu))?;
    let back = program.push(Step::Binary(BinaryOp::Sub, tanh, a))?;
    program.output(back);
    program.output(relu);
    let whole = Layout::contiguous(Shape::new(dims)?);
    let inputs = [(drawn(dtype, dims, 1)?, whole), (drawn(dtype, dims, 2)?, whole)];
    let outputs = [(dims.to_vec(), whole), (dims.to_vec(), whole)];
    run(fixture, "a chain", &program, &inputs, &[Scalar::Float(0.3)], &outputs)
}

fn long_chain(fixture: &Fixture<'_>) -> CaseResult {
    let dtype = DType::F32;
    fixture.needs(Kernel::Elementwise, dtype)?;
    let mut program = ElementwiseProgram::default();
    let (a, b) = (program.input(dtype), program.input(dtype));
    let mut values = vec![a, b];
    for i in 0..24 {
        // Each step takes the last result and an older one, so that some must be kept for long.
        let (x, y) = (values[values.len() - 1], values[i / 2]);
        let op = if i % 3 == 0 { BinaryOp::Sub } else { BinaryOp::Maximum };
        values.push(program.push(Step::Binary(op, x, y))?);
    }
    program.output(values[values.len() - 1]);
    program.output(values[5]);
    let whole = Layout::contiguous(Shape::new(&[5001])?);
    let inputs = [(drawn(dtype, &[5001], 1)?, whole), (drawn(dtype, &[5001], 2)?, whole)];
    let outputs = [(vec![5001], whole), (vec![5001], whole)];
    run(fixture, "a long chain", &program, &inputs, &[], &outputs)
}

fn changing(fixture: &Fixture<'_>) -> CaseResult {
    for dtype in [DType::F32, DType::I64, DType::Bool] {
        fixture.needs(Kernel::Elementwise, dtype)?;
    }
    let mut program = ElementwiseProgram::default();
    let (x, n, flag) = (
        program.input(DType::F32),
        program.input(DType::I64),
        program.input(DType::Bool),
    );
    let zero = program.scalar(DType::F32);
    let real = program.push(Step::Cast(n, DType::F32))?;
    let less = program.push(Step::Compare(CompareOp::Lt, x, real))?;
    let both = program.push(Step::Binary(BinaryOp::And, less, flag))?;
    let chosen = program.push(Step::Select(both, x, zero))?;
    let whole_number = program.push(Step::Cast(chosen, DType::I64))?;
    let not = program.push(Step::Unary(UnaryOp::LogicalNot, whole_number))?;
    for value in [both, chosen, whole_number, not] {
        program.output(value);
    }
    let dims = [33, 65];
    let whole = Layout::contiguous(Shape::new(&dims)?);
    let inputs = [
        (drawn(DType::F32, &dims, 1)?, whole),
        (drawn(DType::I64, &dims, 2)?, whole),
        (drawn(DType::Bool, &dims, 3)?, whole),
    ];
    let outputs: Vec<_> = (0..4).map(|_| (dims.to_vec(), whole)).collect();
    run(
        fixture,
        "changing dtypes",
        &program,
        &inputs,
        &[Scalar::Int(0)],
        &outputs,
    )
}

fn interleaved(fixture: &Fixture<'_>) -> CaseResult {
    let dtype = DType::F32;
    fixture.needs(Kernel::Elementwise, dtype)?;
    let n = 40_000;
    let shape = Shape::new(&[n])?;
    let x = drawn(dtype, &[n], 1)?;
    let (from, to) = (fixture.put(&x)?, fixture.out(dtype, &[2 * n])?);
    let mut program = ElementwiseProgram::default();
    let input = program.input(dtype);
    let negative = program.push(Step::Unary(UnaryOp::Neg, input))?;
    program.output(input);
    program.output(negative);
    let side = |offset| to.laid(Layout::strided(shape, &[2], offset));
    fixture.driver.elementwise(&Elementwise {
        program: &program,
        shape,
        inputs: &[from.view()],
        scalars: &[],
        outputs: &[side(0), side(1)],
    })?;
    let truth = x.to_f64_vec().iter().flat_map(|&v| [v, -v]).collect();
    fixture.check(
        "two outputs",
        &to,
        &HostTensor::new(Shape::new(&[2 * n])?, truth)?,
        Bounds::EXACT,
    )
}

fn misfits(fixture: &Fixture<'_>) -> CaseResult {
    let dtype = DType::F32;
    fixture.needs(Kernel::Elementwise, dtype)?;
    let program = program(dtype)?;
    let (x, y, to) = (
        fixture.out(dtype, &[8])?,
        fixture.out(dtype, &[8])?,
        fixture.out(dtype, &[8])?,
    );
    let shape = Shape::new(&[8])?;
    let other = DeviceView::contiguous(y.ptr, dtype, Shape::new(&[4])?);
    let typed = DeviceView::contiguous(y.ptr, DType::I64, shape);
    let good = [x.view(), y.view()];
    let refused = |what: &str, inputs: &[DeviceView], scalars: &[Scalar], outputs: &[DeviceView]| {
        let call = Elementwise {
            program: &program,
            shape,
            inputs,
            scalars,
            outputs,
        };
        fixture.fails(what, ErrorKind::InvalidArgument, fixture.driver.elementwise(&call))
    };
    refused("an input too few", &good[..1], &[], &[to.view()])?;
    refused("no output", &good, &[], &[])?;
    refused("a scalar too many", &good, &[Scalar::Int(1)], &[to.view()])?;
    refused("an input of another shape", &[x.view(), other], &[], &[to.view()])?;
    refused("an input of another dtype", &[x.view(), typed], &[], &[to.view()])?;
    refused("an output of another shape", &good, &[], &[other])
}
