//! Compiled computations against the same ops one by one: which ops are fused, which are not, and the results.

use polygrad_core::{Activation, ConvParams, ErrorKind, PoolParams};
use polygrad_cpu::Cpu;
use polygrad_reference::Reference;
use polygrad_tensor::{Capture, Compiled, Device, Result, Tensor, manual_seed};

/// The names of the ops after compilation; also checks the values.
fn ops(device: &Device, shape: &[usize], f: impl Fn(&Tensor) -> Result<Tensor>) -> Vec<&'static str> {
    let x = Tensor::randn(shape, device).unwrap();
    let compiled = Compiled::new(std::slice::from_ref(&x), || Ok(vec![f(&x)?])).unwrap();
    for scale in [1.0, -2.0] {
        let x = (&x * scale).unwrap();
        let found = compiled.run(std::slice::from_ref(&x)).unwrap().remove(0);
        let wanted = f(&x).unwrap();
        assert_eq!((found.shape(), found.dtype()), (wanted.shape(), wanted.dtype()));
        let (found, wanted) = (found.to_f64_vec().unwrap(), wanted.to_f64_vec().unwrap());
        for (found, wanted) in found.iter().zip(&wanted) {
            assert!(
                (found - wanted).abs() <= 1e-5 * wanted.abs().max(1.0),
                "{found} for {wanted}"
            );
        }
    }
    compiled.ops().to_vec()
}

fn devices() -> [Device; 2] {
    manual_seed(1);
    [
        Device::<Cpu>::default().into_any(),
        Device::<Reference>::default().into_any(),
    ]
}

#[test]
fn products_take_what_is_a_bias_and_nothing_else() {
    for device in devices() {
        let new = |shape: &[usize]| Tensor::randn(shape, &device).unwrap();
        let weight = new(&[4, 4]);
        for (bias, joined) in [
            (new(&[4]), true),
            (new(&[1, 4]), true),
            // One number for each row, for each element, for all.
            (new(&[4, 1]), false),
            (new(&[4, 4]), false),
            (new(&[1]), false),
        ] {
            let product = |x: &Tensor| x.matmul(&weight)?.add(&bias)?.tanh();
            let swapped = |x: &Tensor| bias.add(&x.matmul(&weight)?)?.tanh();
            let wanted: &[&str] = if joined {
                &["linear"]
            } else {
                &["linear", "add", "tanh"]
            };
            assert_eq!(ops(&device, &[4, 4], product), wanted, "{:?}", bias.shape());
            assert_eq!(ops(&device, &[4, 4], swapped), wanted, "{:?}", bias.shape());
        }
        // A sum with a larger shape than the product.
        let larger = new(&[2, 3, 4]);
        let grown = |x: &Tensor| x.matmul(&weight)?.add(&larger);
        assert_eq!(ops(&device, &[3, 4], grown), ["linear", "add"]);
        // The intermediate value is used twice.
        let twice = |x: &Tensor| {
            let y = x.matmul(&weight)?;
            y.relu()?.add(&y)
        };
        assert_eq!(ops(&device, &[2, 3, 4], twice), ["linear", "relu", "add"]);
        // Neither factor is a weight.
        assert_eq!(ops(&device, &[4, 4], |x| x.matmul(x)), ["matmul"]);
    }
}

#[test]
fn reshapes_in_a_row_are_one() {
    for device in devices() {
        let thrice = |x: &Tensor| x.transpose(0, 1)?.reshape([2, 3, 4])?.reshape([24])?.reshape([4, 6]);
        assert_eq!(ops(&device, &[4, 6], thrice), ["permute", "reshape"]);
        // The first one has another use.
        let twice = |x: &Tensor| {
            let y = x.reshape([24])?;
            y.reshape([4, 6])?.sum(())?.add(&y)
        };
        assert_eq!(ops(&device, &[4, 6], twice), ["reshape", "reshape", "sum", "add"]);
    }
}

#[test]
fn convolutions_take_biases_residuals_and_activations() {
    for device in devices() {
        let new = |shape: &[usize]| Tensor::randn(shape, &device).unwrap();
        // As many channels as columns, so that a bias along one axis must not be taken for the other.
        let weight = new(&[5, 5, 3, 3]);
        let params = ConvParams {
            padding: [1, 1, 0],
            ..ConvParams::default()
        };
        let conv = |x: &Tensor| x.conv(&weight, None, &params);
        let shape = [2, 5, 5, 5];
        for (bias, joined) in [
            (new(&[5, 1, 1]), true),
            (new(&[1, 5, 1, 1]), true),
            (new(&[5]), false),
            (new(&[1, 1, 1, 5]), false),
        ] {
            let sum = |x: &Tensor| conv(x)?.add(&bias)?.activation(Activation::Relu);
            let wanted: &[&str] = if joined { &["conv"] } else { &["conv", "add", "relu"] };
            assert_eq!(ops(&device, &shape, sum), wanted, "{:?}", bias.shape());
        }
        let bias = new(&[5]);
        let residual = |x: &Tensor| x.conv(&weight, Some(&bias), &params)?.add(x)?.relu();
        assert_eq!(ops(&device, &shape, residual), ["conv"]);
        let before = |x: &Tensor| x.add(&conv(x)?)?.leaky_relu(0.1);
        assert_eq!(ops(&device, &shape, before), ["conv"]);
        // The activation comes before the sum.
        let after = |x: &Tensor| conv(x)?.relu()?.add(x);
        assert_eq!(ops(&device, &shape, after), ["conv", "add"]);
        // Positions are computed if they are used.
        let pool = PoolParams::new([2, 2, 1]);
        let values = |x: &Tensor| Ok(x.max_pool(&pool)?.0);
        assert_eq!(ops(&device, &shape, values), ["max_pool"]);
        let both = |x: &Tensor| {
            let (values, positions) = x.max_pool(&pool)?;
            values.add(&positions.to_dtype(values.dtype())?)
        };
        assert_eq!(ops(&device, &shape, both), ["max_pool", "to_dtype", "add"]);
    }
}

#[test]
fn what_depends_on_constants_alone_is_computed_once() {
    for device in devices() {
        let scale = Tensor::randn([3], &device).unwrap();
        let f = |x: &Tensor| x.mul(&scale.exp()?.sum_all()?.sqrt()?);
        assert_eq!(ops(&device, &[2, 3], f), ["mul"]);
    }
}

#[test]
fn inputs_that_were_not_compiled_for_are_refused() {
    let [device, other] = devices();
    let x = Tensor::ones([2], &device).unwrap();
    let compiled = Compiled::new(std::slice::from_ref(&x), || Ok(vec![x.exp()?])).unwrap();
    let kind = |inputs: &[Tensor]| compiled.run(inputs).unwrap_err().kind();
    assert_eq!(kind(&[Tensor::ones([3], &device).unwrap()]), ErrorKind::Shape);
    assert_eq!(
        kind(&[x.to_dtype(polygrad_tensor::DType::F64).unwrap()]),
        ErrorKind::Shape
    );
    assert_eq!(kind(&[Tensor::ones([2], &other).unwrap()]), ErrorKind::Device);
    assert_eq!(kind(&[x.clone(), x.clone()]), ErrorKind::InvalidArgument);
    assert_eq!(kind(&[x.clone().requires_grad().unwrap()]), ErrorKind::NoGradient);
    // A failed run leaves the computation usable.
    assert_eq!(
        compiled.run(&[x]).unwrap()[0].to_vec::<f32>().unwrap(),
        [1.0f32.exp(); 2]
    );
    Compiled::new(&[], || Ok(Vec::new())).unwrap_err();
}

#[test]
fn inputs_that_were_one_tensor_need_not_be_one_later() {
    for device in devices() {
        let x = |value: f32| Tensor::full([2], value, &device).unwrap();
        let both = [x(1.0), x(1.0)];
        let twice = [both[0].clone(), both[0].clone()];
        let difference = |inputs: &[Tensor]| Ok(vec![inputs[0].sub(&inputs[1])?.exp()?]);
        let error = Compiled::new(&twice, || difference(&twice)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("inputs 0 and 1 are one tensor"), "{error}");
        let compiled = Compiled::new(&both, || difference(&both)).unwrap();
        let mut capture = Capture::new();
        // As in an autoencoder, whose input is also its target, and in an LSTM whose two states begin with the same
        // zeros.
        for inputs in [
            &twice,
            &twice,
            &twice,
            &both,
            &[x(3.0), x(1.0)],
            &twice,
            &[x(1.0), x(4.0)],
        ] {
            let expected = difference(inputs).unwrap()[0].to_vec::<f32>().unwrap();
            let (found, ()) = capture
                .run(0, inputs.to_vec(), || Ok((difference(inputs)?, ())))
                .unwrap();
            assert_eq!(found[0].to_vec::<f32>().unwrap(), expected);
            assert_eq!(compiled.run(inputs).unwrap()[0].to_vec::<f32>().unwrap(), expected);
            assert_eq!(capture.refusal(), None);
        }
    }
}

#[test]
fn the_most_memory_is_that_of_the_values_which_are_needed_at_once() {
    const VALUE: usize = 1024 * 4;
    let peak = |device: &Device, f: &dyn Fn(&Tensor) -> Result<Tensor>| {
        let x = Tensor::randn([32, 32], device).unwrap();
        let mut capture = Capture::<()>::new();
        for _ in 0..2 {
            assert_eq!(capture.peak_bytes(), None);
            capture.run(0, vec![x.clone()], || Ok((vec![f(&x)?], ()))).unwrap();
        }
        capture.peak_bytes().unwrap()
    };
    for device in devices() {
        // Each value replaces the one before, which is alive while it is computed.
        assert_eq!(peak(&device, &|x| x.exp()?.cos()?.sqrt()), 2 * VALUE);
        // Three at once: two and their maximum; then the sum, which is one number, beside one.
        assert_eq!(peak(&device, &|x| x.exp()?.maximum(&x.cos()?)?.sum_all()), 3 * VALUE);
        // The first stays until the end.
        let kept = |x: &Tensor| {
            let first = x.exp()?;
            first.cos()?.sqrt()?.maximum(&first)
        };
        assert_eq!(peak(&device, &kept), 3 * VALUE);
        // Views have no memory of their own, but keep that of their source.
        let seen = |x: &Tensor| x.exp()?.transpose(0, 1)?.narrow(0, 0, 1)?.cos();
        assert_eq!(peak(&device, &seen), VALUE + 32 * 4);
        // Reshaping a transposed view copies.
        let copied = |x: &Tensor| x.exp()?.transpose(0, 1)?.reshape([1024]);
        assert_eq!(peak(&device, &copied), 2 * VALUE);
        // Inputs and views of them belong to the caller.
        assert_eq!(peak(&device, &|x| x.reshape([1024])), 0);
    }
}
