//! Tests of what the suite does not see: tensors exchanged with tch, threads, updates in place, devices.

use std::sync::Arc;
use std::thread;

use polygrad_core::{Backend, BinaryOp, DType, ErrorKind, HostTensor, Scalar, SgdParams, Shape, SliceRange, UnaryOp};
use polygrad_tensor::{Device, Result, Tensor};
use polygrad_torch::{Torch, TorchDevice, TorchTensor, entry, tch};

fn of(values: &[f32]) -> TorchTensor {
    let host = HostTensor::new(Shape::from([values.len()]), values.to_vec()).unwrap();
    Torch::from_host(host, &TorchDevice::Cpu).unwrap()
}

fn values(x: &TorchTensor) -> Vec<f32> {
    Torch::to_host(x).unwrap().to_vec().unwrap()
}

/// A tensor in LibTorch's own memory, which is not shared.
fn fresh(values: &[f32]) -> TorchTensor {
    Torch::binary_scalar(BinaryOp::Add, &of(values), Scalar::Float(0.0), false).unwrap()
}

fn address(x: &TorchTensor) -> usize {
    x.to_tch().data_ptr() as usize
}

#[test]
fn host_memory_is_shared_both_ways() {
    let host = HostTensor::new(Shape::from([2, 3]), vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let x = Torch::from_host(host.clone(), &TorchDevice::Cpu).unwrap();
    assert_eq!(address(&x), host.bytes().as_ptr() as usize);
    let back = Torch::to_host(&x).unwrap();
    assert_eq!(back.bytes().as_ptr(), host.bytes().as_ptr());
    // The memory lives as long as one of its users.
    drop((host, x));
    assert_eq!(back.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let y = fresh(&[7.0, 8.0]);
    let there = Torch::to_host(&y).unwrap();
    assert_eq!(there.bytes().as_ptr() as usize, address(&y));
    drop(y);
    assert_eq!(there.to_vec::<f32>().unwrap(), [7.0, 8.0]);
}

#[test]
fn tensors_of_tch_go_in_and_out_without_a_copy() -> Result<()> {
    let foreign = tch::Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0])
        .reshape([2, 2])
        .transpose(0, 1);
    let at = foreign.data_ptr() as usize;
    let x = Tensor::<Torch>::from_inner(TorchTensor::try_from(foreign)?);
    assert_eq!(x.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    assert_eq!(address(x.inner()), at);
    let y: tch::Tensor = x.exp()?.inner().clone().into();
    assert_eq!(y.size(), [2, 2]);
    // A gradient graph of LibTorch ends where the tensor is taken over.
    let tracked = tch::Tensor::from_slice(&[1.0f32]).set_requires_grad(true);
    assert!(!TorchTensor::try_from(&tracked * 2.0)?.to_tch().requires_grad());
    let part = Torch::slice(x.inner(), &[SliceRange::new(1, 1, 1), SliceRange::full(2)])?;
    assert_eq!(Vec::<f32>::try_from(part.to_tch().flatten(0, -1)).unwrap(), [2.0, 4.0]);
    Ok(())
}

#[test]
fn what_tch_has_and_we_have_not_is_an_error() {
    let complex = tch::Tensor::from_slice(&[1.0f32]).to_kind(tch::Kind::ComplexFloat);
    let error = TorchTensor::try_from(complex).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.hint().unwrap().contains("to_kind"), "{error}");
    let error = TorchTensor::try_from(tch::Tensor::new()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let deep = tch::Tensor::from_slice(&[1.0f32]).reshape([1; 9]);
    assert_eq!(TorchTensor::try_from(deep).err().unwrap().kind(), ErrorKind::Shape);
}

#[test]
fn views_share_and_results_do_not() -> Result<()> {
    let x = fresh(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let at = address(&x);
    let grid = Torch::reshape(&x, Shape::from([2, 3]))?;
    let turned = Torch::permute(&grid, polygrad_core::Axes::new([1, 0])?)?;
    let cut = Torch::slice(&turned, &[SliceRange::new(1, 2, 1), SliceRange::full(2)])?;
    assert_eq!(address(&grid), at);
    assert_eq!(address(&turned), at);
    assert_eq!(address(&cut), at + 4);
    assert_eq!(values(&cut), [2.0, 5.0, 3.0, 6.0]);
    let wide = Torch::expand(&Torch::reshape(&cut, Shape::from([4]))?, Shape::from([2, 4]))?;
    assert_eq!(values(&wide), [2.0, 5.0, 3.0, 6.0, 2.0, 5.0, 3.0, 6.0]);
    let back = Torch::slice(&x, &[SliceRange::new(5, 3, -2)])?;
    assert_eq!(values(&back), [6.0, 4.0, 2.0]);
    Ok(())
}

fn step() -> SgdParams {
    SgdParams {
        lr: 0.5,
        momentum: 0.0,
        dampening: 0.0,
        weight_decay: 0.0,
        nesterov: false,
        first: true,
    }
}

#[test]
fn a_step_changes_memory_that_nobody_else_sees() -> Result<()> {
    let grad = of(&[2.0, 2.0]);
    let mut alone = fresh(&[1.0, 2.0]);
    let at = Torch::to_host(&alone)?.bytes().as_ptr();
    Torch::sgd_step(&mut alone, &grad, None, &step())?;
    let host = Torch::to_host(&alone)?;
    assert_eq!((host.bytes().as_ptr(), host.to_vec::<f32>()?), (at, vec![0.0, 1.0]));
    Ok(())
}

#[test]
fn a_step_leaves_what_others_see_as_it_was() -> Result<()> {
    let grad = of(&[2.0, 2.0]);
    // Shared memory: a clone, a view, the host's memory on either side, tch.
    let clone = fresh(&[1.0, 2.0]);
    let mut param = clone.clone();
    Torch::sgd_step(&mut param, &grad, None, &step())?;
    assert_eq!((values(&clone), values(&param)), (vec![1.0, 2.0], vec![0.0, 1.0]));

    let mut param = fresh(&[1.0, 2.0]);
    let view = Torch::reshape(&param, Shape::from([2, 1]))?;
    Torch::sgd_step(&mut param, &grad, None, &step())?;
    assert_eq!((values(&view), values(&param)), (vec![1.0, 2.0], vec![0.0, 1.0]));

    let mut param = fresh(&[1.0, 2.0]);
    let out = Torch::to_host(&param)?;
    Torch::sgd_step(&mut param, &grad, None, &step())?;
    assert_eq!((out.to_vec::<f32>()?, values(&param)), (vec![1.0, 2.0], vec![0.0, 1.0]));

    let host = HostTensor::new(Shape::from([2]), vec![1.0f32, 2.0])?;
    let mut param = Torch::from_host(host.clone(), &TorchDevice::Cpu)?;
    Torch::sgd_step(&mut param, &grad, None, &step())?;
    assert_eq!(
        (host.to_vec::<f32>()?, values(&param)),
        (vec![1.0, 2.0], vec![0.0, 1.0])
    );

    let mut param = fresh(&[1.0, 2.0]);
    let foreign = param.to_tch();
    let sum = Torch::accumulate_grad(param.clone(), &grad)?;
    Torch::sgd_step(&mut param, &grad, None, &step())?;
    assert_eq!(Vec::<f32>::try_from(foreign).unwrap(), [1.0, 2.0]);
    assert_eq!((values(&sum), values(&param)), (vec![3.0, 4.0], vec![0.0, 1.0]));
    Ok(())
}

/// Many threads read, view and drop one tensor, and write to tensors of their own.
#[test]
fn a_tensor_is_shared_by_threads() {
    let x = Arc::new(fresh(&(0..4096).map(|i| i as f32).collect::<Vec<_>>()));
    let whole: f32 = (0..4096).map(|i| i as f32).sum();
    let threads: Vec<_> = (0..8)
        .map(|n| {
            let x = Arc::clone(&x);
            thread::spawn(move || {
                for round in 0..40 {
                    let grid = Torch::reshape(&x, Shape::from([64, 64])).unwrap();
                    let turned = Torch::permute(&grid, polygrad_core::Axes::new([1, 0]).unwrap()).unwrap();
                    let sum = Torch::sum_to(&turned, Shape::SCALAR).unwrap();
                    assert_eq!(values(&sum), [whole]);
                    let product = Torch::matmul(&grid, &turned).unwrap();
                    let mut own = Torch::unary(UnaryOp::Neg, &product).unwrap();
                    Torch::sgd_step(&mut own, &product, None, &step()).unwrap();
                    let mut shared = TorchTensor::clone(&x);
                    Torch::sgd_step(&mut shared, &x, None, &step()).unwrap();
                    assert_eq!(values(&shared)[100 + n], 0.5 * (100 + n) as f32);
                    // An error in one thread does not affect another.
                    let wrong = Torch::matmul(&x, &own);
                    assert!(wrong.err().unwrap().to_string().contains("matmul"), "round {round}");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(values(&x)[4095], 4095.0);
}

/// A tensor may be dropped on another thread than the one that made it, and outlive that thread.
#[test]
fn a_tensor_moves_between_threads() {
    let x = thread::spawn(|| fresh(&[1.0, 2.0])).join().unwrap();
    let view = Torch::reshape(&x, Shape::from([1, 2])).unwrap();
    thread::spawn(move || drop(x)).join().unwrap();
    assert_eq!(values(&view), [1.0, 2.0]);
}

#[test]
fn positions_are_checked_before_libtorch_sees_them() -> Result<()> {
    let device = Device::<Torch>::default();
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], [3], &device)?;
    for wrong in [3i64, -1, i64::MAX, i64::MIN] {
        let index = Tensor::from_slice(&[0, wrong], [2], &device)?;
        let error = x.index_select(0, &index).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange);
        assert!(error.to_string().contains(&wrong.to_string()), "{error}");
        // The same with a view whose elements are not contiguous.
        let spread = index.reshape([2, 1])?.expand([2, 2])?.reshape([4])?;
        assert_eq!(x.index_select(0, &spread).unwrap_err().kind(), ErrorKind::OutOfRange);
        let rows = index.reshape([2, 1])?.expand([2, 2])?;
        let table = Tensor::from_slice(&[1.0f32; 6], [3, 2], &device)?;
        assert_eq!(table.gather(0, &rows).unwrap_err().kind(), ErrorKind::OutOfRange);
    }
    Ok(())
}

#[test]
fn casts_round_once() -> Result<()> {
    let device = Device::<Torch>::default();
    let tie = 1.0 + 2f64.powi(-11);
    let values = [
        tie,
        tie + 2f64.powi(-40),
        tie - 2f64.powi(-40),
        -tie - 2f64.powi(-40),
        1e300,
        f64::NEG_INFINITY,
        -0.0,
    ];
    let x = Tensor::from_slice(&values, [7], &device)?;
    let above = 1.0 + 2f64.powi(-10);
    let right = [1.0, above, 1.0, -above, f64::INFINITY, f64::NEG_INFINITY, 0.0];
    assert_eq!(x.to_dtype(DType::F16)?.to_f64_vec()?, right);
    // The nearest numbers of bf16 are 2^31 apart there.
    let large = (1i64 << 38) + (1 << 30);
    let x = Tensor::from_slice(&[large, large + 1, large - 1], [3], &device)?;
    let (below, above) = ((1i64 << 38) as f64, ((1i64 << 38) + (1 << 31)) as f64);
    assert_eq!(x.to_dtype(DType::BF16)?.to_f64_vec()?, [below, above, below]);
    Ok(())
}

#[test]
fn too_little_memory_is_an_error() {
    let shape = Shape::new(&[1 << 46]).unwrap();
    let error = Torch::full(shape, Scalar::Float(1.0), DType::F64, &TorchDevice::Cpu)
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    let one = of(&[1.0]);
    let wide = Torch::expand(&one, Shape::new(&[1 << 50]).unwrap()).unwrap();
    let error = Torch::unary(UnaryOp::Exp, &wide).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
}

fn opening(device: &str) -> polygrad_core::Error {
    match entry().open(&device.parse().unwrap()) {
        Ok(device) => panic!("{device} opened"),
        Err(error) => error,
    }
}

#[test]
fn devices_open_by_name_or_say_why_not() {
    let entry = entry();
    for name in ["torch", "torch:cpu"] {
        assert_eq!(entry.open(&name.parse().unwrap()).unwrap().to_string(), "torch");
    }
    let listed = entry.devices();
    assert_eq!(listed[0].spec, "torch:cpu");
    for device in &listed {
        entry.open(&device.spec.parse().unwrap()).unwrap();
    }
    if listed.len() == 1 {
        let error = opening("torch:cuda");
        assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
        assert!(error.to_string().contains("CUDA"), "{error}");
        assert!(error.hint().unwrap().contains("torch:cpu"), "{error}");
    }
    // The process has one thread pool.
    entry.open(&"torch:cpu:threads=2".parse().unwrap()).unwrap();
    assert_eq!(tch::get_num_threads(), 2);
    assert!(opening("torch:tpu").hint().unwrap().contains("torch:cuda:0"));
    assert!(opening("torch:cuda:first").to_string().contains("first"));
    assert!(
        opening("torch:kernels=simd")
            .to_string()
            .contains("no option \"kernels\"")
    );
    for count in ["0", "many", "100000"] {
        assert!(
            opening(&format!("torch:threads={count}"))
                .hint()
                .unwrap()
                .contains("1 to 1024")
        );
    }
    assert!(opening("torch:cpu:0").to_string().contains("no device"));
}

#[test]
fn losses_fall_on_it() -> Result<()> {
    use polygrad_nn::optim::{Adam, Optimizer};
    use polygrad_nn::{Linear, Module, ReLU, Sequential};
    let device = Device::<Torch>::default();
    let model = Sequential::new()
        .push(Linear::new(2, 16, &device)?)
        .push(ReLU)
        .push(Linear::new(16, 1, &device)?);
    let mut optimizer = Adam::new(model.parameters(), 1e-2)?;
    let x = Tensor::from_slice(&[0.0f32, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0], [4, 2], &device)?;
    let y = Tensor::from_slice(&[0.0f32, 1.0, 1.0, 0.0], [4, 1], &device)?;
    let mut losses = Vec::new();
    for _ in 0..200 {
        let difference = model.forward(&x)?.sub(&y)?;
        let loss = difference.mul(&difference)?.mean_all()?;
        losses.push(loss.item()?);
        optimizer.step(&loss.backward()?)?;
    }
    assert!(losses[199] < 0.1 * losses[0], "{losses:?}");
    Ok(())
}
