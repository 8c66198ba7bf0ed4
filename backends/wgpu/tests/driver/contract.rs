//! Behaviour specific to this driver: submissions, one buffer for several operands, limits, errors.

use polygrad_core::compute::{
    Binary, ComputeBackend, DevicePtr, DeviceView, Elementwise, ElementwiseProgram, Fill, Gather, Reduce, Step, Unary,
};
use polygrad_core::{BinaryOp, DType, ErrorKind, ReduceOp, Scalar, Shape, UnaryOp};
use polygrad_wgpu::WgpuDriver;

use crate::support::{driver, get, noise, own_driver, put};

#[test]
fn nothing_works_before_init_and_nothing_is_lost_after() {
    let driver = WgpuDriver::open(None);
    assert_eq!((driver.name(), driver.is_initialized()), ("wgpu", false));
    assert_eq!(driver.alloc(4).unwrap_err().kind(), ErrorKind::NotInitialized);
    assert_eq!(driver.synchronize().unwrap_err().kind(), ErrorKind::NotInitialized);
    let far = WgpuDriver::open(Some(99));
    assert_eq!(far.init().unwrap_err().kind(), ErrorKind::BackendUnavailable);
    let Some(driver) = own_driver() else { return };
    driver.init().unwrap();
    let ptr = driver.alloc(0).unwrap();
    driver.free(ptr).unwrap();
    assert_eq!(driver.free(ptr).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(!driver.devices().is_empty());
}

#[test]
fn an_allocation_beyond_the_limit_names_it() {
    let Some(driver) = driver() else { return };
    let refused = |bytes| {
        let error = driver.alloc(bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        error.message().to_owned()
    };
    // Addresses in a buffer have 32 bits, so no limit is higher than that.
    let message = refused(1 << 32);
    let most: usize = message.rsplit(' ').next().unwrap().parse().expect(&message);
    assert!(refused(most + 1).ends_with(&most.to_string()));
    refused(usize::MAX - 7);
}

#[test]
fn writes_and_kernels_keep_their_order() {
    let Some(driver) = driver() else { return };
    let ptr = put(driver, &[1f32; 8]);
    let call = Binary {
        op: BinaryOp::Add,
        dtype: DType::F32,
        len: 8,
        a: ptr,
        b: ptr,
        output: ptr,
    };
    for round in 0..3 {
        driver.binary(&call).unwrap();
        driver.binary(&call).unwrap();
        assert_eq!(get::<f32>(driver, ptr, 8), [4.0 + round as f32 * 0.0; 8]);
        // A write between two recorded calls.
        driver.binary(&call).unwrap();
        driver.copy_htod(ptr, bytemuck::cast_slice(&[1f32; 8])).unwrap();
    }
    driver.binary(&call).unwrap();
    driver.copy_dtod(ptr.add(4), ptr, 28).unwrap();
    driver.copy_htod(ptr, &[7, 8, 9]).unwrap();
    driver.binary(&call).unwrap();
    let bits = 2.0 * f32::from_bits(u32::from_le_bytes([7, 8, 9, 0x40]));
    assert_eq!(get::<f32>(driver, ptr, 8)[..2], [bits, 4.0]);
    driver.free(ptr).unwrap();
}

#[test]
fn operands_may_be_parts_of_one_allocation() {
    let Some(driver) = driver() else { return };
    let values = noise(3000, 5);
    let ptr = put(driver, &values);
    let call = Binary {
        op: BinaryOp::Mul,
        dtype: DType::F32,
        len: 1000,
        a: ptr,
        b: ptr.add(4000),
        output: ptr.add(8000),
    };
    driver.binary(&call).unwrap();
    let got: Vec<f32> = get(driver, ptr, 3000);
    assert_eq!(got[..2000], values[..2000]);
    for i in 0..1000 {
        assert_eq!(got[2000 + i], values[i] * values[1000 + i]);
    }
}

#[test]
fn bytes_at_any_address() {
    let Some(driver) = driver() else { return };
    let ptr = put(driver, &(0..64).collect::<Vec<u8>>());
    for (from, to, len) in [(1, 33, 7), (2, 40, 5), (3, 50, 1), (0, 51, 13)] {
        let unary = Unary {
            op: UnaryOp::Neg,
            dtype: DType::U8,
            len,
            input: ptr.add(from),
            output: ptr.add(to),
        };
        driver.unary(&unary).unwrap();
    }
    let mut truth: Vec<u8> = (0..64).collect();
    for (from, to, len) in [(1usize, 33usize, 7usize), (2, 40, 5), (3, 50, 1), (0, 51, 13)] {
        for i in 0..len {
            truth[to + i] = truth[from + i].wrapping_neg();
        }
    }
    assert_eq!(get::<u8>(driver, ptr, 64), truth);
    let mut part = [0u8; 5];
    driver.copy_dtoh(&mut part, ptr.add(35)).unwrap();
    assert_eq!(part, truth[35..40]);
}

#[test]
fn more_workgroups_than_an_axis_has() {
    let Some(driver) = driver() else { return };
    // A workgroup for each of 70,000 rows.
    let (rows, columns) = (70_000, 65);
    let values: Vec<f32> = (0..rows * columns).map(|i| (i % 7) as f32).collect();
    let (input, output) = (put(driver, &values), driver.alloc(rows * 4).unwrap());
    let call = Reduce {
        op: ReduceOp::Sum,
        dtype: DType::F32,
        outer: rows,
        len: columns,
        inner: 1,
        input,
        output,
    };
    driver.reduce(&call).unwrap();
    let got: Vec<f32> = get(driver, output, rows);
    for (i, &sum) in got.iter().enumerate() {
        assert_eq!(sum, values[i * columns..(i + 1) * columns].iter().sum::<f32>());
    }
    driver.free(input).unwrap();
    driver.free(output).unwrap();
}

#[test]
fn a_bad_index_is_told_by_name() {
    let Some(driver) = own_driver() else { return };
    let (input, index) = (put(&driver, &[1f32, 2.0, 3.0]), put(&driver, &[0i64, -1]));
    let output = put(&driver, &[9f32; 2]);
    let view = |ptr, dtype, len| DeviceView::contiguous(ptr, dtype, Shape::new(&[len]).unwrap());
    let call = Gather {
        input: view(input, DType::F32, 3),
        axis: 0,
        index: view(index, DType::I64, 2),
        output,
    };
    driver.gather(&call).unwrap();
    let error = driver.synchronize().unwrap_err();
    assert_eq!((error.kind(), error.op()), (ErrorKind::OutOfRange, Some("gather")));
    assert!(
        error.to_string().contains("-1") && error.to_string().contains('3'),
        "{error}"
    );
    driver.synchronize().unwrap();
    assert_eq!(get::<f32>(&driver, output, 2), [1.0, 9.0]);
}

#[test]
fn a_chain_is_one_launch_and_the_same_bits() {
    let Some(driver) = own_driver() else { return };
    let len = 5000;
    let (a, b) = (put(&driver, &noise(len, 1)), put(&driver, &noise(len, 2)));
    let (fused, single) = (driver.alloc(len * 4).unwrap(), driver.alloc(len * 4).unwrap());
    let mut program = ElementwiseProgram::default();
    let (x, y) = (program.input(DType::F32), program.input(DType::F32));
    let s = program.scalar(DType::F32);
    let product = program.push(Step::Binary(BinaryOp::Mul, x, s)).unwrap();
    let sum = program.push(Step::Binary(BinaryOp::Add, product, y)).unwrap();
    let tanh = program.push(Step::Unary(UnaryOp::Tanh, sum)).unwrap();
    program.output(tanh);
    let view = |ptr: DevicePtr| DeviceView::contiguous(ptr, DType::F32, Shape::new(&[len]).unwrap());
    let before = driver.launches();
    let call = Elementwise {
        program: &program,
        shape: Shape::new(&[len]).unwrap(),
        inputs: &[view(a), view(b)],
        scalars: &[Scalar::Float(0.3)],
        outputs: &[view(fused)],
    };
    driver.elementwise(&call).unwrap();
    assert_eq!(driver.launches() - before, 1);
    let fill = Fill {
        dtype: DType::F32,
        len,
        value: Scalar::Float(0.3),
        output: single,
    };
    driver.fill(&fill).unwrap();
    let binary = |op, a, b| {
        driver
            .binary(&Binary {
                op,
                dtype: DType::F32,
                len,
                a,
                b,
                output: single,
            })
            .unwrap()
    };
    binary(BinaryOp::Mul, a, single);
    binary(BinaryOp::Add, single, b);
    driver
        .unary(&Unary {
            op: UnaryOp::Tanh,
            dtype: DType::F32,
            len,
            input: single,
            output: single,
        })
        .unwrap();
    assert_eq!(get::<u32>(&driver, fused, len), get::<u32>(&driver, single, len));
}
