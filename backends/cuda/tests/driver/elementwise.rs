//! Programs of steps against the reference.

use polygrad_core::compute::{
    Binary, ComputeBackend, DevicePtr, DeviceView, Elementwise, ElementwiseProgram, Fill, Step, Unary, Value,
};
use polygrad_core::{Axes, Backend, BinaryOp, CompareOp, DType, ErrorKind, Layout, Scalar, Shape, SliceRange, UnaryOp};
use polygrad_cuda::CudaDriver;
use polygrad_reference::{Reference, ReferenceTensor};

use crate::support::{close, each, empty, filled, numbers, read, reference, samples};

/// Runs a program of many outputs over contiguous elements, and compares each output.
fn check(
    driver: &CudaDriver,
    dtype: DType,
    operands: &[Vec<f64>],
    steps: &[(&str, Step, ReferenceTensor)],
    mut program: ElementwiseProgram,
) {
    let len = operands[0].len();
    let shape = Shape::from([len]);
    let row = |ptr, dtype| DeviceView::contiguous(ptr, dtype, shape);
    let mut inputs = Vec::new();
    for (values, &dtype) in operands.iter().zip(program.inputs()) {
        inputs.push(row(filled(driver, dtype, values), dtype));
    }
    let mut outputs = Vec::new();
    for (_, step, _) in steps {
        let value = program.push(*step).unwrap();
        program.output(value);
        let result = program.dtype(value).unwrap();
        outputs.push(row(empty(driver, result, len), result));
    }
    let call = Elementwise {
        program: &program,
        shape,
        inputs: &inputs,
        scalars: &[],
        outputs: &outputs,
    };
    driver.elementwise(&call).unwrap();
    for ((name, _, wanted), output) in steps.iter().zip(&outputs) {
        let got = read(driver, output.dtype, output.ptr, len);
        close(
            output.dtype,
            &got,
            &numbers(wanted),
            4.0,
            0.0,
            &format!("{name} of {dtype}"),
        );
    }
    for view in inputs.iter().chain(&outputs) {
        driver.free(view.ptr).unwrap();
    }
}

#[test]
fn every_unary_op_of_every_dtype() {
    each(|driver| {
        for dtype in DType::ALL {
            let x = samples(dtype, 157);
            let tensor = reference(dtype, Shape::from([x.len()]), &x);
            let mut program = ElementwiseProgram::default();
            let input = program.input(dtype);
            let steps: Vec<_> = (UnaryOp::ALL.iter().filter(|op| op.accepts(dtype)))
                .map(|&op| {
                    (
                        op.name(),
                        Step::Unary(op, input),
                        Reference::unary(op, &tensor).unwrap(),
                    )
                })
                .collect();
            check(driver, dtype, &[x], &steps, program);
        }
    });
}

#[test]
fn every_binary_op_and_comparison_of_every_dtype() {
    each(|driver| {
        for dtype in DType::ALL {
            let (a, mut b) = (samples(dtype, 157), samples(dtype, 157));
            b.rotate_left(17);
            let shape = Shape::from([a.len()]);
            let (x, y) = (reference(dtype, shape, &a), reference(dtype, shape, &b));
            let mut program = ElementwiseProgram::default();
            let (left, right) = (program.input(dtype), program.input(dtype));
            let mut steps: Vec<_> = (BinaryOp::core().filter(|op| op.accepts(dtype)))
                .map(|op| {
                    (
                        op.name(),
                        Step::Binary(op, left, right),
                        Reference::binary(op, &x, &y).unwrap(),
                    )
                })
                .collect();
            for &op in CompareOp::ALL {
                steps.push((
                    op.name(),
                    Step::Compare(op, left, right),
                    Reference::compare(op, &x, &y).unwrap(),
                ));
            }
            check(driver, dtype, &[a, b], &steps, program);
        }
    });
}

#[test]
fn every_dtype_becomes_every_other() {
    each(|driver| {
        for dtype in DType::ALL {
            let mut x = samples(dtype, 61);
            if dtype.is_float() {
                x.extend([
                    1e9,
                    -1e9,
                    3e18,
                    -3e18,
                    300.7,
                    -0.3,
                    65519.0,
                    65504.0,
                    6e-8,
                    3e-8,
                    1.0009765625,
                    2049.0,
                ]);
            }
            x = numbers(&reference(dtype, Shape::from([x.len()]), &x));
            let tensor = reference(dtype, Shape::from([x.len()]), &x);
            let mut program = ElementwiseProgram::default();
            let input = program.input(dtype);
            let steps: Vec<_> = (DType::ALL.into_iter().filter(|&to| to != dtype))
                .map(|to| (to.name(), Step::Cast(input, to), Reference::cast(&tensor, to).unwrap()))
                .collect();
            check(driver, dtype, &[x], &steps, program);
        }
    });
}

#[test]
fn views_of_all_layouts_are_read_and_written() {
    each(|driver| {
        let x = filled(driver, DType::F32, &(0..120).map(f64::from).collect::<Vec<_>>());
        let y = filled(driver, DType::F32, &[100.0, 200.0, 300.0]);
        let out = filled(driver, DType::F32, &[-1.0; 120]);
        // Every second row, with columns reversed and axes exchanged.
        let layout = Layout::contiguous(Shape::from([2, 4, 3, 5]))
            .slice(&[
                SliceRange::full(2),
                SliceRange::new(1, 2, 2),
                SliceRange::full(3),
                SliceRange::new(4, 5, -1),
            ])
            .permute(Axes::new([3, 0, 2, 1]).unwrap());
        let shape = *layout.shape();
        let column = Layout::contiguous(Shape::from([3, 1])).expand(shape);
        let a = DeviceView::new(x, DType::F32, layout);
        let b = DeviceView::new(y, DType::F32, column);
        let to = DeviceView::new(out, DType::F32, layout);
        driver.binary_strided(BinaryOp::Add, &a, &b, &to).unwrap();
        let got = read(driver, DType::F32, out, 120);
        for (i, &got) in got.iter().enumerate() {
            let (row, line) = (i / 15 % 4, i / 5 % 3);
            let wanted = if row % 2 == 1 {
                i as f64 + [100.0, 200.0, 300.0][line]
            } else {
                -1.0
            };
            assert_eq!(got, wanted, "at {i}");
        }
        // Rank 8, and a scalar expanded.
        let shape = Shape::from([2, 1, 2, 3, 1, 2, 1, 2]);
        let order = Axes::new([7, 6, 5, 4, 3, 2, 1, 0]).unwrap();
        let input = DeviceView::new(x, DType::F32, Layout::contiguous(shape).permute(order));
        let output = DeviceView::contiguous(out, DType::F32, *input.shape());
        driver.copy_strided(&input, &output).unwrap();
        let wanted = numbers(
            &Reference::permute(
                &reference(DType::F32, shape, &(0..48).map(f64::from).collect::<Vec<_>>()),
                order,
            )
            .unwrap(),
        );
        assert_eq!(read(driver, DType::F32, out, 48), wanted);
        for ptr in [x, y, out] {
            driver.free(ptr).unwrap();
        }
    });
}

#[test]
fn scalars_choices_and_outputs_in_place() {
    each(|driver| {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64, DType::I64] {
            let x = filled(driver, dtype, &[-2.0, -1.0, 0.0, 1.0, 2.0]);
            let view = DeviceView::contiguous(x, dtype, Shape::from([5]));
            let mut program = ElementwiseProgram::default();
            let (a, s, zero) = (program.input(dtype), program.scalar(dtype), program.scalar(dtype));
            let scaled = program.push(Step::Binary(BinaryOp::Mul, a, s)).unwrap();
            let below = program.push(Step::Compare(CompareOp::Lt, a, zero)).unwrap();
            let chosen = program.push(Step::Select(below, scaled, a)).unwrap();
            program.output(chosen);
            let call = Elementwise {
                program: &program,
                shape: Shape::from([5]),
                inputs: &[view],
                scalars: &[Scalar::Float(3.0), Scalar::Int(0)],
                outputs: &[view],
            };
            driver.elementwise(&call).unwrap();
            assert_eq!(read(driver, dtype, x, 5), [-6.0, -3.0, 0.0, 1.0, 2.0], "{dtype}");
            driver
                .fill(&Fill {
                    dtype,
                    len: 4,
                    value: Scalar::Int(7),
                    output: x.add(dtype.size()),
                })
                .unwrap();
            assert_eq!(read(driver, dtype, x, 5), [-6.0, 7.0, 7.0, 7.0, 7.0], "{dtype}");
            driver.free(x).unwrap();
        }
    });
}

#[test]
fn no_pointer_is_believed() {
    each(|driver| {
        let x = filled(driver, DType::F32, &[1.0; 8]);
        let call = |input: DevicePtr, len| {
            let (op, dtype) = (UnaryOp::Neg, DType::F32);
            driver.unary(&Unary {
                op,
                dtype,
                len,
                input,
                output: x,
            })
        };
        call(x.add(4), 7).unwrap();
        call(DevicePtr::NULL, 0).unwrap();
        for (input, len) in [(x.add(4), 8), (x.add(2), 1), (DevicePtr::new(64), 1), (x.add(33), 1)] {
            assert_eq!(call(input, len).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        let error = driver.binary(&Binary {
            op: BinaryOp::And,
            dtype: DType::F32,
            len: 2,
            a: x,
            b: x,
            output: x,
        });
        assert_eq!(error.unwrap_err().kind(), ErrorKind::DType);
        driver.free(x).unwrap();
        assert_eq!(driver.free(x).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(call(x, 1).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(driver.alloc(usize::MAX).unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert_eq!(driver.alloc(1 << 40).unwrap_err().kind(), ErrorKind::OutOfMemory);
    });
}

#[test]
fn copies_may_overlap() {
    each(|driver| {
        let x = filled(driver, DType::U8, &(0..10).map(f64::from).collect::<Vec<_>>());
        driver.copy_dtod(x.add(2), x, 6).unwrap();
        assert_eq!(read(driver, DType::U8, x, 10), [0., 1., 0., 1., 2., 3., 4., 5., 8., 9.]);
        driver.copy_dtod(x, x.add(1), 5).unwrap();
        assert_eq!(read(driver, DType::U8, x, 10), [1., 0., 1., 2., 3., 3., 4., 5., 8., 9.]);
        driver.free(x).unwrap();
    });
}

#[test]
fn values_are_rounded_after_each_step() {
    each(|driver| {
        let dtype = DType::BF16;
        let x = filled(driver, dtype, &[1.0, 3.0]);
        let mut program = ElementwiseProgram::default();
        let a: Value = program.input(dtype);
        let third = program.push(Step::Unary(UnaryOp::Reciprocal, a)).unwrap();
        let product = program.push(Step::Binary(BinaryOp::Mul, third, a)).unwrap();
        program.output(product);
        let view = DeviceView::contiguous(x, dtype, Shape::from([2]));
        let call = Elementwise {
            program: &program,
            shape: Shape::from([2]),
            inputs: &[view],
            scalars: &[],
            outputs: &[view],
        };
        driver.elementwise(&call).unwrap();
        // 1/3 rounded to 8 digits, times 3.
        assert_eq!(read(driver, dtype, x, 2), [1.0, 1.0]);
        driver.free(x).unwrap();
    });
}
