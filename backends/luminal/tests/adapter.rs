//! Tests of what the suite does not see: when values are computed, shared memory, how failures are reported, and
//! conversion to and from luminal's own graphs.

use std::thread;

use polygrad_core::{AdamParams, Backend, ErrorKind, HostTensor, Registry, Shape};
use polygrad_luminal::luminal::prelude::{Graph, GraphTensor, R2};
use polygrad_luminal::{Luminal, LuminalDevice, LuminalTensor, entry, from_graph, into_graph};
use polygrad_nn::loss::cross_entropy;
use polygrad_nn::optim::{Adam, Optimizer};
use polygrad_nn::{Conv2dConfig, Flatten, Linear, MaxPool2d, Module, ReLU, Sequential, StateDict};
use polygrad_reference::Reference;
use polygrad_tensor::{DType, Device, Result, Tensor};

type T = Tensor<Luminal>;

fn device() -> Device<Luminal> {
    Device::default()
}

fn tensor(values: &[f32]) -> Result<T> {
    Tensor::from_slice(values, [values.len()], &device())
}

#[test]
fn host_memory_is_shared_both_ways() -> Result<()> {
    let host = HostTensor::new(Shape::from([2, 2]), vec![1.0f32, 2.0, 3.0, 4.0])?;
    let at = host.bytes().as_ptr();
    let x = LuminalTensor::try_from(host)?;
    assert_eq!(HostTensor::try_from(&x)?.bytes().as_ptr(), at);
    let doubled = Tensor::<Luminal>::from_inner(x.clone()).add(Tensor::from_inner(x))?;
    let (first, second) = (
        HostTensor::try_from(doubled.inner())?,
        HostTensor::try_from(doubled.inner())?,
    );
    assert_eq!(first.bytes().as_ptr(), second.bytes().as_ptr());
    assert_eq!(Vec::<f32>::try_from(doubled.inner())?, [2.0, 4.0, 6.0, 8.0]);
    Ok(())
}

#[test]
fn values_go_to_a_graph_of_luminal_and_come_back() -> Result<()> {
    let x = tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?
        .reshape([2, 3])?
        .transpose(0, 1)?;
    let mut graph = Graph::new();
    let theirs: GraphTensor<R2<3, 2>> = into_graph(x.inner(), &mut graph)?;
    let doubled = (theirs + theirs).retrieve();
    assert!(
        from_graph(&doubled, &graph)
            .unwrap_err()
            .to_string()
            .contains("execute")
    );
    graph.execute();
    let back = T::from_inner(from_graph(&doubled, &graph)?);
    assert_eq!(back.dims(), [3, 2]);
    assert_eq!(back.to_vec::<f32>()?, [2.0, 8.0, 4.0, 10.0, 6.0, 12.0]);
    let wrong = into_graph::<R2<2, 2>>(x.inner(), &mut graph).map(|_| ()).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Shape);
    Ok(())
}

#[test]
fn a_bad_index_fails_what_needs_it_and_nothing_else() -> Result<()> {
    let x = tensor(&[1.0, 2.0, 3.0])?;
    let index = Tensor::from_slice(&[0i64, 9], [2], &device())?;
    let picked = x.index_select(0, &index)?;
    let (after, apart) = (picked.exp()?, x.exp()?);
    let error = Luminal::synchronize(&LuminalDevice).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfRange);
    assert!(
        error.to_string().contains("index_select") && error.to_string().contains('9'),
        "{error}"
    );
    // `synchronize` reports a failure once; the tensors still return it.
    Luminal::synchronize(&LuminalDevice)?;
    assert_eq!(after.to_vec::<f32>().unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(picked.to_vec::<f32>().unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(apart.to_vec::<f32>()?[0], 1f32.exp());
    Ok(())
}

#[test]
fn what_is_not_there_is_an_error_that_names_the_fix() -> Result<()> {
    let error = Tensor::<Luminal>::full([2], 1.0, (&device(), DType::F64)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("to_dtype"), "{error}");
    let registry = Registry::default();
    registry.register(entry())?;
    assert_eq!(registry.open("luminal:cpu")?.to_string(), "luminal");
    let error = registry.open("luminal:cuda:0").unwrap_err();
    assert!(error.to_string().contains("cuda"), "{error}");
    let one = Tensor::<Luminal>::ones([1], &device())?;
    let huge = one.expand([1usize << 40])?;
    assert_eq!(huge.add(&huge).unwrap_err().kind(), ErrorKind::OutOfMemory);
    Ok(())
}

#[test]
fn an_update_in_place_leaves_others_as_they_were() -> Result<()> {
    let mut param = tensor(&[1.0, 2.0])?.inner().clone();
    let (seen, view) = (param.clone(), T::from_inner(param.clone()).narrow(0, 1, 1)?);
    let grad = tensor(&[1.0, 1.0])?;
    let (mut first, mut second) = (tensor(&[0.0; 2])?.inner().clone(), tensor(&[0.0; 2])?.inner().clone());
    let params = AdamParams {
        lr: 0.5,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.0,
        decoupled: false,
        step: 1,
    };
    Luminal::adam_step(&mut param, grad.inner(), &mut first, &mut second, None, &params)?;
    assert!((Vec::<f32>::try_from(&param)?[0] - 0.5).abs() < 1e-5);
    assert_eq!(Vec::<f32>::try_from(&seen)?, [1.0, 2.0]);
    assert_eq!(view.to_vec::<f32>()?, [2.0]);
    Ok(())
}

#[test]
fn views_of_any_kind_enter_any_op() -> Result<()> {
    let x = Tensor::<Luminal>::arange(0.0, 24.0, 1.0, &device())?.reshape([2, 3, 4])?;
    let turned = x.permute([2, 0, 1])?;
    let sum = turned.add(&turned)?.add(&x.permute([2, 0, 1])?)?;
    assert_eq!(sum.permute([1, 2, 0])?.sum_all()?.item()?, 3.0 * 276.0);
    let part = x.narrow(1, 1, 2)?.flip(2)?;
    let total = part.add(&part.narrow(0, 0, 1)?)?.to_vec::<f32>()?;
    assert_eq!(total[..4], [14.0, 12.0, 10.0, 8.0]);
    assert_eq!(total[8..12], [26.0, 24.0, 22.0, 20.0]);
    Ok(())
}

#[test]
fn threads_share_tensors() -> Result<()> {
    fn shared<X: Send + Sync>(_: &X) {}
    let x = tensor(&(0..64).map(|i| i as f32).collect::<Vec<_>>())?;
    let recorded = x.mul(&x)?;
    shared(recorded.inner());
    thread::scope(|scope| {
        let readers: Vec<_> = (0..8)
            .map(|i| {
                let (x, recorded) = (&x, &recorded);
                scope.spawn(move || -> Result<f64> {
                    let mut y = recorded.clone();
                    for _ in 0..i {
                        y = y.add(x)?;
                    }
                    y.sum_all()?.item()
                })
            })
            .collect();
        for (i, reader) in readers.into_iter().enumerate() {
            assert_eq!(reader.join().unwrap()?, 85_344.0 + 2_016.0 * i as f64);
        }
        Ok(())
    })
}

#[test]
fn a_long_chain_is_computed_and_dropped() -> Result<()> {
    let one = tensor(&[1.0])?;
    let mut x = one.clone();
    for _ in 0..20_000 {
        x = x.add(&one)?;
    }
    assert_eq!(x.item()?, 20_001.0);
    for _ in 0..20_000 {
        x = x.add(&one)?;
    }
    drop(x);
    Ok(())
}

/// The losses of some steps of a small CNN, from given weights or new ones, which are returned, too.
fn losses<B: Backend>(device: &Device<B>, weights: Option<&StateDict>) -> Result<(StateDict, Vec<f64>)> {
    let model = Sequential::new()
        .push(Conv2dConfig::new(1, 4, 3).padding(1).build(device)?)
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(Flatten::default())
        .push(Linear::new(64, 5, device)?);
    if let Some(weights) = weights {
        model.load_state_dict(weights, true)?;
    }
    let weights = model.state_dict()?;
    let mut optimizer = Adam::new(model.parameters(), 1e-2)?;
    let pixels: Vec<f32> = (0..16 * 64).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
    let x = Tensor::from_slice(&pixels, [16, 1, 8, 8], device)?;
    let classes = Tensor::from_slice(&(0..16).map(|i| i % 5).collect::<Vec<i64>>(), [16], device)?;
    let step = |_| {
        let loss = cross_entropy(&model.forward(&x)?, &classes)?;
        optimizer.step(&loss.backward()?)?;
        loss.item()
    };
    let losses: Result<Vec<f64>> = (0..30).map(step).collect();
    Ok((weights, losses?))
}

#[test]
fn training_follows_the_reference() -> Result<()> {
    let (weights, right) = losses(&Device::<Reference>::default(), None)?;
    let (_, found) = losses(&device(), Some(&weights))?;
    for (step, (found, right)) in found.iter().zip(&right).enumerate() {
        assert!(
            (found - right).abs() <= 1e-4 * right,
            "{found} for {right} in step {step}"
        );
    }
    assert!(right[29] < 0.5 * right[0], "{right:?}");
    Ok(())
}
