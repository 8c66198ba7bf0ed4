//! Modules that are joined with the activation after them where no gradient is wanted, and ReLU and max pooling, which change places.

use std::cell::Cell;
use std::rc::Rc;

use polygrad_nn::{
    Conv2d, Conv2dConfig, ELU, Flatten, GELU, LeakyReLU, Linear, MaxPool2d, Module, ReLU, Sequential, SiLU, Sigmoid,
    Softplus, Tanh, watch,
};
use polygrad_tensor::{Backend, Device, Result, Tensor, no_grad};

fn model<B: Backend>(device: &Device<B>) -> Result<Sequential<B>> {
    Ok(Sequential::new()
        .push(ReLU)
        .push(Conv2d::new(2, 3, 3, device)?)
        .push(SiLU)
        .push(Conv2dConfig::new(3, 2, 2).bias(false).build(device)?)
        .push(ELU(0.5))
        .push(Flatten::default())
        .push(Linear::new(2 * 3 * 3, 7, device)?)
        .push(LeakyReLU(0.2))
        .push(GELU::Tanh)
        .push(Linear::new(7, 6, device)?)
        .push(Tanh)
        .push(Linear::new(6, 5, device)?)
        .push(Linear::new(5, 4, device)?)
        .push(Softplus::default())
        .push(Sigmoid)
        .push(Linear::new(4, 3, device)?)
        .push(GELU::Exact))
}

fn check<B: Backend<Device: Default>>() -> Result<()> {
    let device = Device::<B>::from_inner(B::Device::default());
    let model = model(&device)?;
    let x = Tensor::randn([5, 2, 6, 6], &device)?;
    let apart = model.forward(&x)?;
    let joined = no_grad(|| model.forward(&x))?;
    assert!(apart.is_tracked() && !joined.is_tracked());
    for (a, b) in apart.to_vec::<f32>()?.into_iter().zip(joined.to_vec::<f32>()?) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
    // Hooks see each of them.
    let seen = Rc::new(Cell::new(0));
    let count = Rc::clone(&seen);
    let watched = watch::with_hook(
        &model,
        move |_| count.set(count.get() + 1),
        || no_grad(|| model.forward(&x)),
    )?;
    assert_eq!(watched.dims(), [5, 3]);
    assert_eq!(seen.get(), 18);
    // An error of the joined op names the module.
    let wrong = Tensor::randn([5, 1, 6, 6], &device)?;
    let _ = model.named_parameters();
    let error = no_grad(|| model.forward(&wrong)).unwrap_err();
    assert_eq!(error.module_path().as_deref(), Some("1"), "{error}");
    // A convolution and its bias are one op, by the name that everybody knows.
    let conv = Conv2d::new(2, 3, 3, &device)?;
    for result in [conv.forward(&wrong), no_grad(|| conv.forward(&wrong))] {
        assert_eq!(result.unwrap_err().op(), Some("conv"));
    }
    Ok(())
}

#[test]
fn joined_or_not_is_the_same() -> Result<()> {
    check::<polygrad_cpu::Cpu>()?;
    check::<polygrad_reference::Reference>()
}

/// The values, and the gradient of the sum of their squares.
fn results<B: Backend>(y: &Tensor<B>, x: &Tensor<B>) -> Result<[Vec<f32>; 2]> {
    let gradients = y.mul(y)?.sum_all()?.backward()?;
    Ok([y.to_vec()?, gradients.require(x)?.to_vec()?])
}

fn check_swapped<B: Backend<Device: Default>>() -> Result<()> {
    let device = Device::<B>::from_inner(B::Device::default());
    for pool in [
        MaxPool2d::new(2),
        MaxPool2d::new(3).stride(1),
        MaxPool2d::new(3).stride(2).padding(1).ceil_mode(true),
    ] {
        let model = Sequential::new().push(ReLU).push(pool);
        let x = Tensor::randn([3, 4, 7, 8], &device)?.requires_grad()?;
        let apart = pool.forward(&x.relu()?)?;
        assert_eq!(results(&model.forward(&x)?, &x)?, results(&apart, &x)?);
        assert_eq!(no_grad(|| model.forward(&x))?.to_vec::<f32>()?, apart.to_vec::<f32>()?);
        // It is the maximum that comes first.
        let recorded = model.forward(&x)?.recorded_ops();
        assert!(format!("{recorded:?}").find("MaxPool") > format!("{recorded:?}").find("Relu"));
        // An error of the maximum is its own.
        let error = model.forward(&x.flatten(1, -1)?).unwrap_err();
        assert_eq!(error.module_path().as_deref(), Some("1"), "{error}");
    }
    Ok(())
}

#[test]
fn relu_and_a_maximum_change_places() -> Result<()> {
    check_swapped::<polygrad_cpu::Cpu>()?;
    check_swapped::<polygrad_reference::Reference>()
}
