//! Nothing that training creates outlives the model, the graph and the optimizer.

use polygrad_nn::loss::{cross_entropy, mse_loss};
use polygrad_nn::models::{Llama, LlamaConfig};
use polygrad_nn::optim::{Adam, Optimizer};
use polygrad_nn::{Linear, Module, ReLU, Sequential};
use polygrad_null::Null;
use polygrad_tensor::{BackwardOptions, DType, Device, ErrorKind, Result, Tensor, checkpoint};

type T = Tensor<Null>;

fn mlp(device: &Device<Null>) -> Result<Sequential<Null>> {
    Ok(Sequential::new()
        .push(Linear::new(8, 16, device)?)
        .push(ReLU)
        .push(Linear::new(16, 4, device)?))
}

/// Runs something on a new device, and checks that nothing is left there.
fn leaves_nothing(run: impl FnOnce(&Device<Null>) -> Result<()>) {
    let device = Device::default();
    run(&device).unwrap();
    let stats = device.inner().stats();
    assert!(stats.calls > 0 && stats.peak_bytes > 0, "{stats:?}");
    assert_eq!((stats.live_tensors, stats.live_bytes), (0, 0), "{stats:?}");
}

#[test]
fn training_leaves_nothing() {
    leaves_nothing(|device| {
        let model = mlp(device)?;
        let mut optimizer = Adam::new(model.parameters(), 1e-3)?;
        let classes = T::full([32], 0, device)?;
        for _ in 0..3 {
            let x = T::rand([32, 8], device)?;
            let loss = cross_entropy(&model.forward(&x)?, &classes)?;
            optimizer.step(&loss.backward()?)?;
        }
        Ok(())
    });
}

#[test]
fn every_step_takes_as_much_as_the_one_before() {
    let device = Device::<Null>::default();
    let model = mlp(&device).unwrap();
    let mut optimizer = Adam::new(model.parameters(), 1e-3).unwrap();
    let x = T::rand([32, 8], &device).unwrap();
    let mut step = || {
        device.inner().reset_peak();
        let before = device.inner().stats();
        let loss = model.forward(&x).unwrap().square().unwrap().mean_all().unwrap();
        optimizer.step(&loss.backward().unwrap()).unwrap();
        drop(loss);
        let after = device.inner().stats();
        (
            after.live_tensors,
            after.live_bytes,
            after.peak_bytes,
            after.calls - before.calls,
        )
    };
    // The first step creates the optimizer's state.
    step();
    let second = step();
    assert_eq!(step(), second);
    assert!(second.2 > second.1, "{second:?}");
}

#[test]
fn a_graph_without_backward_leaves_nothing() {
    leaves_nothing(|device| {
        let model = mlp(device)?;
        let mut x = T::rand([2, 8], device)?.requires_grad()?;
        for _ in 0..10_000 {
            x = (x * 1.5)?;
        }
        mse_loss(&model.forward(&x)?, &T::zeros([2, 4], device)?)?;
        Ok(())
    });
}

#[test]
fn checkpointing_leaves_nothing_and_takes_less() {
    let peak = |in_segments: bool| {
        let device = Device::<Null>::default();
        let run = || -> Result<()> {
            let mut x = T::rand([64, 64], &device)?.requires_grad()?;
            let layers = |x: &T| (0..8).try_fold(x.clone(), |x, _| x.exp());
            for _ in 0..8 {
                x = match in_segments {
                    true => checkpoint(move |x: &[T]| layers(&x[0]), &[&x])?,
                    false => layers(&x)?,
                };
            }
            x.sum_all()?.backward()?;
            Ok(())
        };
        run().unwrap();
        let stats = device.inner().stats();
        assert_eq!((stats.live_tensors, stats.live_bytes), (0, 0), "{stats:?}");
        stats.peak_bytes
    };
    let (kept, computed_again) = (peak(false), peak(true));
    // Eight segments of eight ops: the memory of their inputs and of one segment, instead of all 64.
    assert!(computed_again * 3 < kept, "{computed_again} of {kept} bytes");
}

#[test]
fn what_a_constant_multiplies_is_not_kept() {
    let device = Device::<Null>::default();
    let constant = T::rand([64, 64], &device).unwrap();
    let weight = T::var("weight", T::rand([64, 64], &device).unwrap()).unwrap();
    let x = T::var("x", T::rand([64, 64], &device).unwrap()).unwrap();
    let products: [fn(&T, &T) -> Result<T>; 3] = [|x, w| x.mul(w), T::matmul, |x, w| x.linear(w, None)];
    for product in products {
        // The values that are alive after four products, in numbers of results.
        let alive = |weight: &T| {
            let before = device.inner().stats().live_bytes;
            let mut y = product(&x, weight).unwrap();
            for _ in 0..3 {
                y = product(&y, weight).unwrap();
            }
            (device.inner().stats().live_bytes - before) / (64 * 64 * 4)
        };
        assert_eq!(alive(&constant), 1);
        assert_eq!(alive(&weight), 4);
    }
}

#[test]
fn a_frozen_gated_part_keeps_two_vectors_of_its_width() {
    const ROWS: usize = 32;
    // The bytes that a graph holds if only the embedding is trained.
    let alive = |intermediate_size: usize| -> Result<usize> {
        let device = Device::<Null>::default();
        let config = LlamaConfig {
            vocab_size: 64,
            hidden_size: 16,
            intermediate_size,
            num_hidden_layers: 1,
            num_attention_heads: 2,
            ..LlamaConfig::default()
        };
        let model = Llama::new(&config, &device)?;
        model.named_parameters().iter().for_each(|(name, param)| {
            if !name.contains("embed") {
                param.set_trainable(false);
            }
        });
        let ids = T::full([1, ROWS], 0, (&device, DType::I64))?;
        let before = device.inner().stats().live_bytes;
        let x = model.model.forward(&ids)?;
        let after = device.inner().stats().live_bytes;
        drop(x);
        Ok(after - before)
    };
    // What else is held does not depend on the width.
    assert_eq!(alive(48).unwrap() - alive(32).unwrap(), 2 * 16 * ROWS * 4);
}

#[test]
fn higher_order_gradients_leave_nothing() {
    leaves_nothing(|device| {
        let model = mlp(device)?;
        let x = T::var("x", T::rand([4, 8], device)?)?;
        let y = model.forward(&x)?.tanh()?.sum_all()?;
        let first = y.backward_with(&BackwardOptions::default().create_graph(true))?;
        let penalty = first.require(&x)?.square()?.sum_all()?;
        let second = penalty.backward_with(&BackwardOptions::default().create_graph(true))?;
        second.require(&x)?.sum_all()?.backward()?;
        Ok(())
    });
}

#[test]
fn views_take_no_bytes_and_keep_what_they_look_into() {
    let device = Device::<Null>::default();
    let x = T::zeros([4, 6], &device).unwrap();
    let live = || {
        let stats = device.inner().stats();
        (stats.live_tensors, stats.live_bytes)
    };
    assert_eq!(live(), (1, 96));
    let view = x.t().unwrap().narrow(0, 1, 2).unwrap();
    assert_eq!(live(), (2, 96));
    drop(x);
    assert_eq!((live(), view.dims()), ((2, 96), vec![2, 4]));
    // A layout that strides cannot express is a copy.
    let copy = view.reshape([8]).unwrap();
    assert_eq!(live(), (3, 96 + 32));
    drop((view, copy));
    assert_eq!(live(), (0, 0));
}

#[test]
fn values_are_not_there_and_neither_is_boundless_memory() {
    let device = Device::<Null>::default();
    let x = T::ones([2], &device).unwrap();
    let error = x.sum_all().unwrap().item().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("keeps no values"), "{error}");
    let huge = || T::full([1usize << 58], 0.0, (&device, DType::F64));
    let kept: Vec<_> = (0..7).map(|_| huge().unwrap()).collect();
    assert_eq!(huge().unwrap_err().kind(), ErrorKind::OutOfMemory);
    drop((kept, x));
    assert_eq!(device.inner().stats().live_tensors, 0);
}
