//! Tests of what the suite does not see: shared memory, threads, devices and errors.

use std::thread;

use polygrad_candle::candle_core::{self, DType as CandleDType, Storage};
use polygrad_candle::{Candle, CandleDevice, CandleTensor, entry, from_candle, to_candle};
use polygrad_core::{
    AdamParams, Availability, Axes, Backend, DType, DeviceSpec, ErrorKind, HostTensor, Registry, Scalar, SgdParams,
    Shape, SliceRange,
};
use polygrad_tensor::{Device, Result, Tensor};

fn vector(values: &[f32]) -> CandleTensor {
    let host = HostTensor::new(Shape::from([values.len()]), values.to_vec()).unwrap();
    Candle::from_host(host, &CandleDevice::CPU).unwrap()
}

fn values(x: &CandleTensor) -> Vec<f32> {
    Candle::to_host(x).unwrap().to_vec().unwrap()
}

/// The start of a tensor of f32, without marking its memory as shared.
fn address(x: &candle_core::Tensor) -> *const f32 {
    let (storage, layout) = x.storage_and_layout();
    match &*storage {
        Storage::Cpu(storage) => &raw const storage.as_slice::<f32>().unwrap()[layout.start_offset()],
        _ => panic!("not in host memory"),
    }
}

#[test]
fn candles_tensors_go_in_and_out_without_a_copy() {
    let theirs = candle_core::Tensor::new(&[1f32, 2.0, 3.0], &candle_core::Device::Cpu).unwrap();
    let ours = from_candle(theirs.clone()).unwrap();
    assert_eq!(ours.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
    let back = to_candle(&ours);
    assert_eq!(address(&back), address(&theirs));
    let again: Tensor<Candle> = CandleTensor::try_from(back).unwrap().into();
    let sum = to_candle(&(&ours + &again).unwrap());
    assert_eq!(sum.to_vec1::<f32>().unwrap(), [2.0, 4.0, 6.0]);
}

#[test]
fn candles_gradient_graph_ends_at_the_border() {
    let var = candle_core::Var::new(&[2f32], &candle_core::Device::Cpu).unwrap();
    let square = var.as_tensor().sqr().unwrap();
    let ours = from_candle(square.clone()).unwrap();
    let out = to_candle(&(&ours * &ours).unwrap());
    assert!(!out.track_op());
    assert!(from_candle(var.as_tensor().clone()).is_ok_and(|x| !x.is_tracked() && !to_candle(&x).is_variable()));
}

#[test]
fn a_bool_is_u8_in_candle() -> Result<()> {
    let device = Device::<Candle>::default();
    let mask = Tensor::from_slice(&[1f32, 3.0], [2], &device)?.gt(&Tensor::from_slice(&[2f32], [1], &device)?)?;
    let theirs = to_candle(&mask);
    assert_eq!(
        (theirs.dtype(), theirs.to_vec1::<u8>().unwrap()),
        (CandleDType::U8, vec![0, 1])
    );
    assert_eq!(from_candle(theirs).unwrap().dtype(), DType::U8);
    Ok(())
}

#[test]
fn a_dtype_that_polygrad_lacks_is_refused() {
    let theirs = candle_core::Tensor::new(&[1u32], &candle_core::Device::Cpu).unwrap();
    let error = from_candle(theirs).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error.to_string().contains("u32") && error.to_string().contains("to_dtype"),
        "{error}"
    );
}

#[test]
fn views_share_memory() {
    let x =
        CandleTensor::try_from(candle_core::Tensor::arange(0f32, 24.0, &candle_core::Device::Cpu).unwrap()).unwrap();
    let start = address(x.inner());
    let x = Candle::reshape(&x, Shape::from([4, 6])).unwrap();
    assert_eq!(address(x.inner()), start);
    let turned = Candle::permute(&x, Axes::new([1, 0]).unwrap()).unwrap();
    assert_eq!(address(turned.inner()), start);
    let row = Candle::slice(&x, &[SliceRange::new(2, 1, 1), SliceRange::full(6)]).unwrap();
    assert_eq!(address(row.inner()), start.wrapping_add(12));
    let wide = Candle::expand(&row, Shape::from([3, 6])).unwrap();
    assert_eq!(address(wide.inner()), start.wrapping_add(12));
    let every_other = Candle::slice(&turned, &[SliceRange::new(5, 3, -2), SliceRange::new(1, 2, 2)]).unwrap();
    assert_eq!(values(&every_other), [11.0, 23.0, 9.0, 21.0, 7.0, 19.0]);
}

fn adam() -> AdamParams {
    AdamParams {
        lr: 0.1,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.0,
        decoupled: false,
        step: 1,
    }
}

const SGD: SgdParams = SgdParams {
    lr: 0.5,
    momentum: 0.0,
    dampening: 0.0,
    weight_decay: 0.0,
    nesterov: false,
    first: true,
};

#[test]
fn updates_are_in_place_where_nobody_looks() {
    let (mut param, grad) = (vector(&[1.0, 2.0]), vector(&[1.0, -1.0]));
    let (mut first, mut second) = (vector(&[0.0; 2]), vector(&[0.0; 2]));
    Candle::adam_step(&mut param, &grad, &mut first, &mut second, None, &adam()).unwrap();
    assert!(values(&param).iter().zip([0.9, 2.1]).all(|(a, b)| (a - b).abs() < 1e-6));

    // Memory that is freed in between could be reused, so each tensor's address is taken only after its last change.
    let acc = Candle::accumulate_grad(vector(&[1.0, 2.0]), &grad).unwrap();
    assert_eq!(values(&acc), [2.0, 1.0]);
    let mut param = acc;
    Candle::sgd_step(&mut param, &grad, None, &SGD).unwrap();
    assert_eq!(values(&param), [1.5, 1.5]);
}

#[test]
fn an_update_leaves_alone_what_others_see() {
    let grad = vector(&[1.0, -1.0]);
    let mut param = vector(&[1.0, 2.0]);
    let clone = param.clone();
    Candle::sgd_step(&mut param, &grad, None, &SGD).unwrap();
    assert_eq!((values(&param), values(&clone)), (vec![0.5, 2.5], vec![1.0, 2.0]));

    let mut param = vector(&[1.0, 2.0]);
    let view = Candle::slice(&param, &[SliceRange::new(1, 1, 1)]).unwrap();
    Candle::sgd_step(&mut param, &grad, None, &SGD).unwrap();
    assert_eq!(values(&view), [2.0]);

    let mut param = vector(&[1.0, 2.0]);
    let theirs = param.inner().clone();
    let (mut first, mut second) = (vector(&[0.0; 2]), vector(&[0.0; 2]));
    let kept = first.clone();
    Candle::adam_step(&mut param, &grad, &mut first, &mut second, None, &adam()).unwrap();
    assert_eq!(theirs.to_vec1::<f32>().unwrap(), [1.0, 2.0]);
    assert_eq!(values(&kept), [0.0, 0.0]);
    assert_ne!(values(&first), [0.0, 0.0]);

    let acc = CandleTensor::try_from(theirs.clone()).unwrap();
    let sum = Candle::accumulate_grad(acc, &grad).unwrap();
    assert_eq!(
        (values(&sum), theirs.to_vec1::<f32>().unwrap()),
        (vec![2.0, 1.0], vec![1.0, 2.0])
    );
}

#[test]
fn an_update_does_not_spread_over_an_expanded_tensor() {
    let one = vector(&[1.0]);
    let mut param = Candle::expand(&one, Shape::from([3])).unwrap();
    drop(one);
    Candle::sgd_step(&mut param, &vector(&[1.0, 2.0, 3.0]), None, &SGD).unwrap();
    assert_eq!(values(&param), [0.5, 0.0, -0.5]);
}

#[test]
fn threads_share_a_tensor() {
    let x = vector(&(0..1000).map(|i| i as f32).collect::<Vec<_>>());
    let sums: Vec<f32> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|i| {
                let x = x.clone();
                scope.spawn(move || {
                    let mut own = x.clone();
                    Candle::sgd_step(
                        &mut own,
                        &x,
                        None,
                        &SgdParams {
                            lr: f64::from(i),
                            ..SGD
                        },
                    )
                    .unwrap();
                    values(&Candle::reduce(polygrad_core::ReduceOp::Sum, &own, Axes::one(0), false).unwrap())[0]
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let expected: Vec<f32> = (0..8).map(|i| 499_500.0 * (1.0 - i as f32)).collect();
    assert_eq!(sums, expected);
    assert_eq!(values(&x)[999], 999.0);
}

fn open(device: &str) -> Result<polygrad_core::AnyDevice> {
    entry().open(&device.parse::<DeviceSpec>()?)
}

#[test]
fn device_strings_open_what_they_name() {
    for device in ["candle", "candle:cpu"] {
        assert_eq!(open(device).unwrap().to_string(), "candle");
    }
    let error = open("candle:tpu").unwrap_err();
    assert!(
        error.to_string().contains("no device \"tpu\"") && error.to_string().contains("candle:cpu"),
        "{error}"
    );
    assert!(open("candle:cpu:1").is_err());
    assert!(open("candle:cuda:first").unwrap_err().to_string().contains("number"));
    assert!(open("candle:threads=2").unwrap_err().to_string().contains("threads"));
}

#[cfg(not(feature = "cuda"))]
#[test]
fn without_cuda_the_error_names_the_feature() {
    let error = open("candle:cuda:0").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
    assert!(error.to_string().contains("candle-cuda"), "{error}");
    let registry = Registry::default();
    registry.register(entry()).unwrap();
    let devices = registry.entries()[0].devices();
    assert_eq!(
        (devices[0].spec.as_str(), &devices[0].availability),
        ("candle", &Availability::Available)
    );
    assert!(matches!(&devices[1].availability, Availability::Unavailable(reason) if reason.contains("candle-cuda")));
    assert!(registry.open("auto").is_ok());
}

#[test]
fn indices_are_checked_before_candle_sees_them() {
    let x = Candle::reshape(&vector(&[1.0, 2.0, 3.0, 4.0]), Shape::from([2, 2])).unwrap();
    for index in [2, -1, i64::MAX, i64::MIN] {
        let index = HostTensor::new(Shape::from([1, 1]), vec![index]).unwrap();
        let index = Candle::from_host(index, &CandleDevice::CPU).unwrap();
        let flat = Candle::reshape(&index, Shape::from([1])).unwrap();
        let row = Candle::slice(&x, &[SliceRange::new(0, 1, 1), SliceRange::full(2)]).unwrap();
        for result in [
            Candle::gather(&x, 0, &index),
            Candle::scatter(&x, 0, &index, &x),
            Candle::scatter_add(&x, 0, &index, &x),
            Candle::index_select(&x, 0, &flat),
            Candle::index_add(&x, 0, &flat, &row),
            Candle::embedding(&x, &flat, None),
        ] {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::OutOfRange);
        }
    }
}

#[test]
fn memory_that_cannot_be_had_is_an_error() {
    let device = CandleDevice::CPU;
    let huge = Shape::new(&[1 << 30, 1 << 22]).unwrap();
    let error = Candle::full(huge, Scalar::Int(0), DType::F32, &device).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let one = Candle::full(Shape::SCALAR, Scalar::Float(1.0), DType::F32, &device).unwrap();
    let wide = Candle::expand(&one, huge).unwrap();
    for result in [
        Candle::add(&wide, &one),
        Candle::exp(&wide),
        Candle::unary(polygrad_core::UnaryOp::Relu, &wide),
        Candle::cast(&wide, DType::I64),
        Candle::pad(&one_by_one(), &[(1 << 30, 0), (1 << 22, 0)], Scalar::Int(0)),
        Candle::iota(1 << 52, Scalar::Int(0), Scalar::Int(1), DType::F32, &device),
        Candle::matmul(
            &tall(1 << 30),
            &Candle::permute(&tall(1 << 22), Axes::new([1, 0]).unwrap()).unwrap(),
        ),
    ] {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::OutOfMemory);
    }
    assert_eq!(Candle::to_host(&wide).unwrap_err().kind(), ErrorKind::OutOfMemory);
}

fn one_by_one() -> CandleTensor {
    Candle::reshape(&vector(&[1.0]), Shape::from([1, 1])).unwrap()
}

fn tall(rows: usize) -> CandleTensor {
    Candle::expand(&one_by_one(), Shape::from([rows, 1])).unwrap()
}

#[test]
fn tensors_of_rank_8_work() {
    let x = vector(&(0..256).map(|i| i as f32).collect::<Vec<_>>());
    let x = Candle::reshape(&x, Shape::from([2; 8])).unwrap();
    let turned = Candle::permute(&x, Axes::new((0..8).rev()).unwrap()).unwrap();
    let sum = Candle::add(&x, &turned).unwrap();
    assert_eq!((values(&sum)[1], values(&sum)[255]), (129.0, 510.0));
    let total = Candle::reduce(
        polygrad_core::ReduceOp::Sum,
        &turned,
        Axes::new([0, 3, 7]).unwrap(),
        true,
    )
    .unwrap();
    assert_eq!(total.shape().rank(), 8);
}

#[test]
fn one_matrix_for_a_batch_of_single_rows() {
    let x = Candle::reshape(&vector(&[1.0, 2.0, 3.0, 4.0]), Shape::from([2, 2, 1])).unwrap();
    let rows = Candle::permute(&x, Axes::new([0, 2, 1]).unwrap()).unwrap();
    let one = Candle::reshape(&vector(&[1.0, 2.0, 3.0, 4.0]), Shape::from([1, 2, 2])).unwrap();
    let all = Candle::expand(&one, Shape::from([2, 2, 2])).unwrap();
    assert_eq!(values(&Candle::matmul(&rows, &all).unwrap()), [7.0, 10.0, 15.0, 22.0]);
}
