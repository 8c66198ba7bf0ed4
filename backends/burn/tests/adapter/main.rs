//! Tests of what the suite does not see: shared memory, errors and threads.

#[cfg(feature = "wgpu")]
mod wgpu;

use polygrad_burn::burn_flex::{FlexTensor, Layout};
use polygrad_burn::{Burn, BurnDevice, BurnTensor, entry};
use polygrad_core::{
    AdamParams, Axes, Backend, BinaryOp, DType, ErrorKind, HostTensor, Scalar, SgdParams, Shape, SliceRange,
};

fn tensor(values: &[f32], shape: impl Into<Shape>) -> BurnTensor {
    let host = HostTensor::new(shape.into(), values.to_vec()).unwrap();
    Burn::from_host(host, &BurnDevice::Cpu).unwrap()
}

fn values(x: &BurnTensor) -> Vec<f32> {
    Burn::to_host(x).unwrap().to_vec().unwrap()
}

fn address(x: &BurnTensor) -> *const u8 {
    x.flex().bytes().as_ptr()
}

#[test]
fn host_memory_is_shared_in_both_directions() {
    let host = HostTensor::new(Shape::from([2, 2]), vec![1f32, 2.0, 3.0, 4.0]).unwrap();
    let x = Burn::from_host(host.clone(), &BurnDevice::Cpu).unwrap();
    assert_eq!(address(&x), host.bytes().as_ptr());
    let row = Burn::slice(&x, &[SliceRange::new(1, 1, 1), SliceRange::full(2)]).unwrap();
    let back = Burn::to_host(&row).unwrap();
    assert_eq!(back.bytes().as_ptr(), host.bytes()[8..].as_ptr());
    assert_eq!(back.to_vec::<f32>().unwrap(), [3.0, 4.0]);
}

#[test]
fn burns_tensors_come_and_go_without_a_copy() {
    let x = tensor(&[1.0, -2.0, 3.0], [3]);
    let flex = FlexTensor::from(x.clone());
    assert_eq!(flex.bytes().as_ptr(), address(&x));
    let back = BurnTensor::try_from(flex).unwrap();
    assert_eq!(address(&back), address(&x));
    assert_eq!(
        values(&Burn::unary(polygrad_core::UnaryOp::Abs, &back).unwrap()),
        [1.0, 2.0, 3.0]
    );

    let bytes = burn_backend::Bytes::from_elems(vec![1i16, 2]);
    let layout = Layout::contiguous(vec![2].into());
    let shorts = FlexTensor::new(bytes, layout, burn_backend::DType::I16);
    let error = BurnTensor::try_from(shorts).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error.to_string().contains("I16") && error.hint().unwrap().contains("i32"),
        "{error}"
    );
}

#[cfg(feature = "tensor")]
#[test]
fn public_tensors_come_and_go_without_a_copy() {
    use polygrad_burn::burn_tensor::{Bool, Int, Tensor};

    let x = tensor(&[1.0, -2.0, 3.0, 4.0], [2, 2]);
    let burn: Tensor<2> = x.clone().try_into().unwrap();
    let back = BurnTensor::try_from(burn.clone()).unwrap();
    assert_eq!(address(&back), address(&x));
    let doubled = BurnTensor::try_from(burn.mul_scalar(2.0)).unwrap();
    assert_eq!(values(&doubled), [2.0, -4.0, 6.0, 8.0]);
    assert_eq!(values(&x), [1.0, -2.0, 3.0, 4.0]);

    let error = Tensor::<3>::try_from(x.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape);
    assert_eq!(
        Tensor::<2, Int>::try_from(x.clone()).unwrap_err().kind(),
        ErrorKind::DType
    );
    assert_eq!(Tensor::<2, Bool>::try_from(x).unwrap_err().kind(), ErrorKind::DType);
}

#[test]
fn views_share_memory_and_are_right() {
    let x = tensor(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [2, 3]);
    let turned = Burn::permute(&x, Axes::new([1, 0]).unwrap()).unwrap();
    let flipped = Burn::slice(&turned, &[SliceRange::new(2, 3, -1), SliceRange::full(2)]).unwrap();
    let column = Burn::slice(&x, &[SliceRange::new(0, 1, 1), SliceRange::new(0, 2, 1)]).unwrap();
    let spread = Burn::expand(&column, Shape::from([3, 2])).unwrap();
    for view in [&turned, &flipped, &column, &spread] {
        assert_eq!(address(view), address(&x));
    }
    assert_eq!(values(&flipped), [2.0, 5.0, 1.0, 4.0, 0.0, 3.0]);
    // As many elements as the memory has, but not all of them: burn-flex's own map considers this dense.
    let negated = Burn::unary(polygrad_core::UnaryOp::Neg, &spread).unwrap();
    assert_eq!(values(&negated), [0.0, -1.0, 0.0, -1.0, 0.0, -1.0]);
}

const SGD: SgdParams = SgdParams {
    lr: 0.5,
    momentum: 0.0,
    dampening: 0.0,
    weight_decay: 0.0,
    nesterov: false,
    first: true,
};

const ADAM: AdamParams = AdamParams {
    lr: 0.5,
    beta1: 0.9,
    beta2: 0.999,
    eps: 1e-8,
    weight_decay: 0.0,
    decoupled: false,
    step: 1,
};

#[test]
fn updates_leave_alone_what_others_see() {
    let kept = tensor(&[1.0, 2.0], [2]);
    let grad = tensor(&[1.0, 1.0], [2]);
    let mut param = kept.clone();
    Burn::sgd_step(&mut param, &grad, None, &SGD).unwrap();
    assert_eq!(values(&param), [0.5, 1.5]);
    let (mut first, mut second) = (tensor(&[0.0, 0.0], [2]), tensor(&[0.0, 0.0], [2]));
    let seen = first.clone();
    Burn::adam_step(&mut param, &grad, &mut first, &mut second, None, &ADAM).unwrap();
    assert!((values(&param)[0] - 0.0).abs() < 1e-6);
    let sum = Burn::accumulate_grad(kept.clone(), &grad).unwrap();
    assert_eq!(values(&sum), [2.0, 3.0]);
    assert_eq!((values(&kept), values(&seen)), (vec![1.0, 2.0], vec![0.0, 0.0]));

    let host = Burn::to_host(&param).unwrap();
    let before = host.to_vec::<f32>().unwrap();
    Burn::sgd_step(&mut param, &grad, None, &SGD).unwrap();
    assert_eq!(host.to_vec::<f32>().unwrap(), before);
}

#[test]
fn updates_happen_in_place_where_nobody_looks() {
    let one = Burn::full(Shape::from([2]), Scalar::Float(1.0), DType::F32, &BurnDevice::Cpu);
    let (mut param, grad) = (one.unwrap(), tensor(&[1.0, 2.0], [2]));
    let there = address(&param);
    Burn::sgd_step(&mut param, &grad, None, &SGD).unwrap();
    let (mut first, mut second) = (
        Burn::mul_scalar(&grad, 0.0).unwrap(),
        Burn::mul_scalar(&grad, 0.0).unwrap(),
    );
    let moments = (address(&first), address(&second));
    Burn::adam_step(&mut param, &grad, &mut first, &mut second, None, &ADAM).unwrap();
    assert_eq!((address(&first), address(&second)), moments);
    let param = Burn::accumulate_grad(param, &grad).unwrap();
    assert_eq!(address(&param), there);
}

#[test]
fn errors_name_op_and_cause() {
    let x = tensor(&[1.0, 2.0], [2]);
    let outside = Burn::from_host(HostTensor::new(Shape::from([1]), vec![2i64]).unwrap(), &BurnDevice::Cpu).unwrap();
    let below = Burn::from_host(
        HostTensor::new(Shape::from([1]), vec![-1i64]).unwrap(),
        &BurnDevice::Cpu,
    )
    .unwrap();
    let one = tensor(&[5.0], [1]);
    for index in [&outside, &below] {
        for error in [
            Burn::gather(&x, 0, index).unwrap_err(),
            Burn::index_select(&x, 0, index).unwrap_err(),
            Burn::scatter(&x, 0, index, &one).unwrap_err(),
            Burn::scatter_add(&x, 0, index, &one).unwrap_err(),
            Burn::index_add(&x, 0, index, &one).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::OutOfRange, "{error}");
        }
    }
    let huge = Shape::from([1 << 40, 1 << 10]);
    let full = Burn::full(huge, Scalar::Float(1.0), DType::F32, &BurnDevice::Cpu).unwrap_err();
    let wide = Burn::expand(&one, huge).unwrap();
    let sum = Burn::binary(BinaryOp::Add, &wide, &wide).unwrap_err();
    for error in [full, sum, Burn::to_host(&wide).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    }
    let flag = Burn::full(Shape::SCALAR, Scalar::Bool(true), DType::Bool, &BurnDevice::Cpu).unwrap();
    let error = Burn::binary(BinaryOp::Sub, &flag, &flag).unwrap_err();
    assert!(error.kind() == ErrorKind::DType && error.op() == Some("sub"), "{error}");
}

#[test]
fn devices_open_or_say_why_not() {
    let entry = entry();
    assert_eq!(entry.devices()[0].spec, "burn");
    for device in ["burn", "burn:cpu"] {
        assert_eq!(entry.open(&device.parse().unwrap()).unwrap().to_string(), "burn");
    }
    #[cfg(not(feature = "wgpu"))]
    {
        let error = entry.open(&"burn:wgpu:0".parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
        assert!(
            error.to_string().contains("feature `burn-wgpu`") && error.hint().is_some(),
            "{error}"
        );
    }
    for device in ["burn:gpu", "burn:cpu:1", "burn:threads=2"] {
        assert_eq!(
            entry.open(&device.parse().unwrap()).unwrap_err().kind(),
            ErrorKind::Device
        );
    }
}

#[test]
fn threads_share_a_tensor() {
    let x = tensor(&(0..1000).map(|i| i as f32).collect::<Vec<_>>(), [10, 100]);
    std::thread::scope(|scope| {
        for i in 0..4 {
            let x = x.clone();
            scope.spawn(move || {
                for _ in 0..50 {
                    let mut mine = x.clone();
                    let grad = Burn::mul_scalar(&x, f64::from(i)).unwrap();
                    Burn::sgd_step(&mut mine, &grad, None, &SGD).unwrap();
                    let expected: Vec<f32> = (0..1000).map(|k| k as f32 * (1.0 - 0.5 * i as f32)).collect();
                    assert_eq!(values(&mine), expected);
                }
            });
        }
    });
    assert_eq!(values(&x)[999], 999.0);
}
