//! New tensors, gradients, devices.

use polygrad_cpu::Cpu;
use polygrad_reference::Reference;
use polygrad_tensor::ErrorKind::{
    BackendUnavailable, DType as WrongDType, Device as WrongDevice, InvalidArgument, NoGradient, OutOfRange, Shape,
};
use polygrad_tensor::{
    Attention, ConvParams, CrossEntropyParams, DType, Device, Distribution, Result, Tensor as Generic, gradcheck,
    numerical_gradient,
};

use super::{Tensor, device, f32, fails, of};

#[test]
fn new_tensors() {
    let device = device();
    fails(
        Tensor::arange(0, 5, 0, &device),
        InvalidArgument,
        &["arange", "steps of 0"],
    );
    fails(
        Tensor::arange(0, 5, -1, &device),
        InvalidArgument,
        &["arange", "from 0 to 5"],
    );
    fails(
        Tensor::arange(0.0, f64::INFINITY, 1.0, &device),
        InvalidArgument,
        &["arange"],
    );
    fails(
        Tensor::randint(5, 5, [2], &device),
        InvalidArgument,
        &["randint: there is no integer from 5 up to, and not including, 5"],
    );
    let backwards = Distribution::Uniform { low: 1.0, high: 0.0 };
    fails(
        Tensor::random([2], backwards, (&device, DType::F32)),
        InvalidArgument,
        &["uniform: the bounds 1 and 0"],
    );
}

#[test]
fn gradients() -> Result<()> {
    let x = f32(&[2]).requires_grad()?;
    fails(
        f32(&[]).backward(),
        NoGradient,
        &["backward", "requires_grad", "no_grad"],
    );
    fails(
        x.backward(),
        Shape,
        &["backward", "2 elements, not one", "backward_with"],
    );
    fails(
        gradcheck(|x| x[0].exp(), std::slice::from_ref(&x)),
        WrongDType,
        &["gradcheck", "f32", "F64"],
    );
    let input = of(DType::F64, &[2]);
    let wrong = gradcheck(|x| x[0].detach().mul(&x[0]), std::slice::from_ref(&input));
    fails(
        wrong,
        NoGradient,
        &["gradcheck", "input 0 at element 0 is 0.637", "differences give"],
    );
    fails(
        numerical_gradient(|x| Ok(x[0].clone()), &[], 0, &input, 1e-6),
        OutOfRange,
        &["no input 0"],
    );
    let cotangent = of(DType::F64, &[3]);
    fails(
        numerical_gradient(|x| Ok(x[0].clone()), &[input], 0, &cotangent, 1e-6),
        Shape,
        &["2 elements", "has 3"],
    );
    Ok(())
}

#[test]
fn devices_that_differ() -> Result<()> {
    let host = Device::<Reference>::default().into_any();
    let cpu = Device::<Cpu>::default().into_any();
    let (a, b) = (Generic::ones([2, 2], &host)?, Generic::ones([2, 2], &cpu)?);
    let index = Generic::arange(0, 2, 1, &cpu)?;
    let params = ConvParams::default();
    let image = |device| Generic::ones([1, 1, 2], device);
    let results = [
        ("add", &a + &b),
        ("eq", a.eq(&b)),
        ("matmul", a.matmul(&b)),
        ("linear", a.linear(&b, None)),
        ("where", Generic::where_(&a.gt(0.0)?, &a, &b)),
        ("where", Generic::where_(&b.gt(0.0)?, &a, &a)),
        ("cat", Generic::cat(&[&a, &b], 0)),
        ("cat", Generic::stack(&[&a, &b], 0)),
        ("index_select", a.index_select(0, &index)),
        ("gather", a.gather(0, &index.reshape([1, 2])?)),
        ("embedding", index.embedding(&a, None)),
        ("cross_entropy", a.cross_entropy(&index, &CrossEntropyParams::default())),
        (
            "layer_norm",
            a.layer_norm(Some(&index.to_dtype(DType::F32)?), None, 1, 1e-5),
        ),
        (
            "scaled_dot_product_attention",
            a.scaled_dot_product_attention(&a, &b, Attention::new()),
        ),
        ("conv", image(&host)?.conv(&image(&cpu)?, None, &params)),
        (
            "conv_transpose",
            image(&host)?.conv_transpose(&image(&cpu)?, &params, [0; 3]),
        ),
        ("matmul", Generic::einsum("ij,jk", &[&a, &b])),
    ];
    for (op, result) in results {
        fails(result, WrongDevice, &[op, "reference", "cpu", "to_backend"]);
    }
    let gradient = polygrad_tensor::BackwardOptions::default().gradient(&b);
    fails(
        a.clone().requires_grad()?.exp()?.backward_with(&gradient),
        WrongDevice,
        &["reference", "cpu"],
    );
    Ok(())
}

#[test]
fn unknown_backends() {
    fails(Device::new("abacus"), BackendUnavailable, &["abacus"]);
}
