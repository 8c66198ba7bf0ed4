//! The same tests for Burn's wgpu devices. They are skipped without an adapter; under CI that is a failure.

use polygrad_burn::burn_wgpu::CubeTensor;
use polygrad_burn::{BurnWgpu as B, BurnWgpuDevice, BurnWgpuTensor, entry};
use polygrad_core::{
    ArgOp, Availability, Axes, Backend, BinaryOp, DType, ErrorKind, HostTensor, ReduceOp, Scalar, Shape, SliceRange,
};

fn device() -> Option<BurnWgpuDevice> {
    match BurnWgpuDevice::new(0) {
        Ok(device) => Some(device),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{error}");
            println!("skipped: burn:wgpu: {error}");
            None
        }
    }
}

fn tensor(values: &[f32], shape: impl Into<Shape>, device: BurnWgpuDevice) -> BurnWgpuTensor {
    B::from_host(HostTensor::new(shape.into(), values.to_vec()).unwrap(), &device).unwrap()
}

fn values(x: &BurnWgpuTensor) -> Vec<f32> {
    B::to_host(x).unwrap().to_vec().unwrap()
}

#[test]
fn values_go_to_the_adapter_and_come_back() {
    let Some(device) = device() else { return };
    let x = tensor(&[1.0, -0.0, f32::INFINITY], [3], device);
    assert_eq!(values(&x).map_bits(), [1.0, -0.0, f32::INFINITY].to_vec().map_bits());
    let flags = HostTensor::new(Shape::from([3]), vec![true, false, true]).unwrap();
    let there = B::from_host(flags.clone(), &device).unwrap();
    assert_eq!(B::to_host(&there).unwrap().bytes(), flags.bytes());
    let none = tensor(&[], [0, 3], device);
    assert_eq!(B::to_host(&none).unwrap().shape(), &Shape::from([0, 3]));
}

trait Bits {
    fn map_bits(self) -> Vec<u32>;
}

impl Bits for Vec<f32> {
    fn map_bits(self) -> Vec<u32> {
        self.into_iter().map(f32::to_bits).collect()
    }
}

#[test]
fn burns_tensors_come_and_go() {
    let Some(device) = device() else { return };
    let x = tensor(&[1.0, -2.0, 3.0], [3], device);
    let cube = CubeTensor::from(x);
    let back = BurnWgpuTensor::try_from(cube.clone()).unwrap();
    assert_eq!(values(&back), [1.0, -2.0, 3.0]);
    let mut shorts = cube.clone();
    shorts.dtype = burn_backend::DType::I16;
    assert_eq!(
        BurnWgpuTensor::try_from(shorts).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    let mut elsewhere = cube;
    elsewhere.device = burn_wgpu::WgpuDevice::default().into();
    let error = BurnWgpuTensor::try_from(elsewhere).unwrap_err();
    assert!(error.kind() == ErrorKind::Device && error.hint().is_some(), "{error}");
}

#[test]
fn views_are_right_and_others_see_no_change() {
    let Some(device) = device() else { return };
    let x = tensor(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [2, 3], device);
    let turned = B::permute(&x, Axes::new([1, 0]).unwrap()).unwrap();
    let flipped = B::slice(&turned, &[SliceRange::new(2, 3, -1), SliceRange::full(2)]).unwrap();
    assert_eq!(values(&flipped), [2.0, 5.0, 1.0, 4.0, 0.0, 3.0]);
    let column = B::slice(&x, &[SliceRange::full(2), SliceRange::new(2, 1, 1)]).unwrap();
    let spread = B::expand(&column, Shape::from([2, 2])).unwrap();
    let sum = B::binary(BinaryOp::Add, &spread, &spread).unwrap();
    assert_eq!(values(&sum), [4.0, 4.0, 10.0, 10.0]);
    let more = B::accumulate_grad(x.clone(), &x).unwrap();
    assert_eq!(values(&more)[5], 10.0);
    assert_eq!(values(&x), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
}

#[test]
fn errors_name_op_and_cause() {
    let Some(device) = device() else { return };
    let x = tensor(&[1.0, 2.0], [2], device);
    for bad in [2i64, -1, i64::MIN] {
        let index = B::from_host(HostTensor::new(Shape::from([1]), vec![bad]).unwrap(), &device).unwrap();
        for error in [
            B::gather(&x, 0, &index).unwrap_err(),
            B::index_select(&x, 0, &index).unwrap_err(),
            B::scatter(&x, 0, &index, &x).unwrap_err(),
            B::scatter_add(&x, 0, &index, &x).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::OutOfRange, "{error}");
            assert!(error.to_string().contains(&bad.to_string()), "{error}");
        }
    }
    let huge = Shape::from([1 << 40, 1 << 10]);
    let full = B::full(huge, Scalar::Float(1.0), DType::F32, &device).unwrap_err();
    let wide = B::expand(&tensor(&[1.0], [1], device), huge).unwrap();
    for error in [full, B::to_host(&wide).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    }
    for dtype in [DType::F64, DType::F16, DType::BF16, DType::U8] {
        let error = B::full(Shape::from([2]), Scalar::Int(1), dtype, &device).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(
            error.to_string().contains(dtype.name()) && error.hint().is_some(),
            "{error}"
        );
        assert_eq!(B::cast(&x, dtype).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}

#[test]
fn devices_open_or_say_why_not() {
    let entry = entry();
    let listed = entry.devices();
    let wgpu = listed.iter().find(|device| device.spec == "burn:wgpu").unwrap();
    if wgpu.availability == Availability::Available {
        for device in ["burn:wgpu", "burn:wgpu:0"] {
            assert_eq!(entry.open(&device.parse().unwrap()).unwrap().to_string(), "burn:wgpu");
        }
    }
    let error = entry.open(&"burn:wgpu:77".parse().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
    let text = error.to_string();
    assert!(
        text.contains("burn:wgpu:0 is") || text.contains("mesa-vulkan-drivers"),
        "{error}"
    );
    for device in ["burn:wgpu:first", "burn:wgpu:0:1"] {
        assert_eq!(
            entry.open(&device.parse().unwrap()).unwrap_err().kind(),
            ErrorKind::Device
        );
    }
}

#[test]
fn threads_share_a_tensor() {
    let Some(device) = device() else { return };
    let x = tensor(&(0..1000).map(|i| i as f32).collect::<Vec<_>>(), [10, 100], device);
    std::thread::scope(|scope| {
        for i in 0..4 {
            let x = x.clone();
            scope.spawn(move || {
                for _ in 0..10 {
                    let scaled = B::mul_scalar(&x, f64::from(i)).unwrap();
                    let expected: Vec<f32> = (0..1000).map(|k| (k * i) as f32).collect();
                    assert_eq!(values(&scaled), expected);
                }
            });
        }
    });
    assert_eq!(values(&x)[999], 999.0);
}

/// Burn's kernels for reductions ignore elements beyond 65,536 along an axis.
#[test]
fn long_axes_are_reduced_whole() {
    let Some(device) = device() else { return };
    for count in [65_537, 98_305, 200_003] {
        // Only the last element matters.
        let mut line = vec![1.0; count];
        line[count - 1] = 5.0;
        let x = tensor(&line, [count], device);
        let of = |op: ReduceOp| values(&B::reduce(op, &x, Axes::one(0), false).unwrap())[0];
        assert_eq!(of(ReduceOp::Sum), count as f32 + 4.0);
        assert_eq!((of(ReduceOp::Max), of(ReduceOp::Prod)), (5.0, 5.0));
        let at = B::to_host(&B::arg_reduce(ArgOp::Max, &x, 0, false).unwrap()).unwrap();
        assert_eq!(at.to_vec::<i64>().unwrap(), [count as i64 - 1]);
        let sums = values(&B::cumsum(&x, 0).unwrap());
        assert_eq!(sums[count - 1], count as f32 + 4.0);
        // With axes on both sides.
        let both: Vec<f32> = (0..2).flat_map(|_| line.iter().flat_map(|&v| [v, 2.0 * v])).collect();
        let x = tensor(&both, [2, count, 2], device);
        let sums = values(&B::reduce(ReduceOp::Sum, &x, Axes::one(1), true).unwrap());
        let sum = count as f32 + 4.0;
        assert_eq!(sums, [sum, 2.0 * sum, sum, 2.0 * sum]);
        let at = B::to_host(&B::arg_reduce(ArgOp::Max, &x, 1, false).unwrap()).unwrap();
        assert_eq!(at.to_vec::<i64>().unwrap(), [count as i64 - 1; 4]);
    }
}
