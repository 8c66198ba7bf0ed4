//! Autodiff: order of derivatives, names, modes, long chains, and what must fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use polygrad_core::ReduceOp;
use polygrad_reference::Reference;
use polygrad_tensor::{
    Backend as _, BackwardOptions, CustomOp, DType, Device, Error, ErrorKind, Result, checkpoint, checkpoint_rows,
    enable_grad, gradcheck, gradgradcheck, is_grad_enabled, manual_seed, no_grad,
};

type Tensor = polygrad_tensor::Tensor<Reference>;

fn device() -> Device<Reference> {
    Device::default()
}

fn leaf(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, [values.len()], &device())
        .unwrap()
        .requires_grad()
        .unwrap()
}

#[test]
fn gradients_are_found_by_tensor_and_by_name() -> Result<()> {
    let x = Tensor::var("x", Tensor::new([1.0f32, 2.0, 3.0], &device())?)?;
    let unused = Tensor::var("unused", Tensor::new([1.0f32], &device())?)?;
    let gradients = (&x * &x + &x)?.sum_all()?.backward()?;
    assert_eq!(gradients.require(&x)?.to_vec::<f32>()?, [3.0, 5.0, 7.0]);
    assert_eq!(gradients.by_name("x").unwrap().to_vec::<f32>()?, [3.0, 5.0, 7.0]);
    assert!(gradients.get(&unused).is_none());
    let error = gradients.require(&unused).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoGradient);
    assert!(error.to_string().contains("unused"));
    Ok(())
}

#[test]
fn operators_take_tensors_results_and_numbers_on_both_sides() -> Result<()> {
    let a = Tensor::new([1.0f32, 2.0], &device())?;
    let b = Tensor::new([3.0f32, 5.0], &device())?;
    assert_eq!((&a + &b - &a)?.to_vec::<f32>()?, [3.0, 5.0]);
    assert_eq!((&a + &b * &a)?.to_vec::<f32>()?, [4.0, 12.0]);
    assert_eq!((a.clone() * b.clone())?.to_vec::<f32>()?, [3.0, 10.0]);
    assert_eq!((2.0 - &a)?.to_vec::<f32>()?, [1.0, 0.0]);
    assert_eq!((&a / 2)?.to_vec::<f32>()?, [0.5, 1.0]);
    assert_eq!(((-&a)? % 3.0)?.to_vec::<f32>()?, [2.0, 1.0]);
    Ok(())
}

#[test]
fn higher_order_gradients_follow() -> Result<()> {
    let x = leaf(&[0.7, -1.3]);
    let options = || BackwardOptions::default().create_graph(true);
    let y = (x.pow(4.0)?).sum_all()?;
    let first = y.backward_with(&options())?.require(&x)?.clone();
    let second = first.sum_all()?.backward_with(&options())?.require(&x)?.clone();
    let third = second.sum_all()?.backward()?.require(&x)?.to_vec::<f64>()?;
    assert!(
        (third[0] - 24.0 * 0.7).abs() < 1e-9 && (third[1] + 24.0 * 1.3).abs() < 1e-9,
        "{third:?}"
    );
    Ok(())
}

#[test]
fn fused_ops_have_second_derivatives() -> Result<()> {
    let values: Vec<f64> = (0..6).map(|i| (f64::from(i) * 1.7).sin()).collect();
    let x = Tensor::from_vec(values.clone(), [2, 3], &device())?;
    let w = Tensor::from_vec(values[..3].to_vec(), [3], &device())?;
    let target = Tensor::new([2i64, 0], &device())?;
    type Function = Box<dyn Fn(&[Tensor]) -> Result<Tensor>>;
    let functions: Vec<(&str, Function)> = vec![
        ("softmax", Box::new(|x| x[0].softmax(-1))),
        ("log_softmax", Box::new(|x| x[0].log_softmax(0))),
        ("gelu", Box::new(|x| x[0].gelu())),
        ("silu", Box::new(|x| x[0].silu())),
        ("tanh", Box::new(|x| x[0].tanh())),
        (
            "layer_norm",
            Box::new(|x| x[0].layer_norm(Some(&x[1]), Some(&x[1]), 1, 1e-5)),
        ),
        ("rms_norm", Box::new(|x| x[0].rms_norm(Some(&x[1]), 1, 1e-5))),
        (
            "batch_norm",
            Box::new(|x| Ok(x[0].batch_norm(Some(&x[1]), Some(&x[1]), 1e-5)?.0)),
        ),
        (
            "cross_entropy",
            Box::new(move |x| x[0].cross_entropy(&target, &Default::default())),
        ),
        ("linear", Box::new(|x| x[0].linear(&x[0], None))),
        ("prod", Box::new(|x| x[0].prod(1))),
        ("logsumexp", Box::new(|x| x[0].logsumexp(1))),
    ];
    for (name, function) in functions {
        let inputs = [x.clone(), w.clone()];
        gradcheck(&function, &inputs).map_err(|e| e.in_module(name))?;
        gradgradcheck(&function, &inputs).map_err(|e| e.in_module(name))?;
    }
    Ok(())
}

#[test]
fn a_million_ops_in_a_chain() -> Result<()> {
    let x = leaf(&[1.0]);
    let mut y = x.clone();
    for _ in 0..1_000_000 {
        y = y.add(&x)?;
    }
    let gradients = y.sum_all()?.backward()?;
    assert_eq!(gradients.require(&x)?.to_vec::<f64>()?, [1_000_001.0]);
    drop(y);
    Ok(())
}

#[test]
fn gradients_of_parts_are_joined_once() -> Result<()> {
    let ops = |parts: &[(usize, usize)]| -> Result<Vec<&'static str>> {
        let x = leaf(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let mut sum = leaf(&[0.0]).sum_all()?;
        for &(start, len) in parts {
            sum = sum.add(&x.narrow(0, start, len)?.exp()?.sum_all()?)?;
        }
        let gradients = sum.backward_with(&BackwardOptions::default().create_graph(true))?;
        let gradient = gradients.require(&x)?;
        let mut expected = [0.0; 6];
        for &(start, len) in parts {
            for (i, gradient) in expected.iter_mut().enumerate().skip(start).take(len) {
                *gradient += ((i + 1) as f64).exp();
            }
        }
        assert_eq!(gradient.to_vec::<f64>()?, expected, "{parts:?}");
        // Without the ops of the slices' own gradients.
        let mut ops: Vec<_> = gradient.recorded_ops().iter().map(|op| op.name()).collect();
        ops.retain(|op| ["cat", "pad", "add"].contains(op));
        ops.sort_unstable();
        Ok(ops)
    };
    assert_eq!(ops(&[(0, 2), (2, 2), (4, 2)])?, ["cat"]);
    assert_eq!(ops(&[(4, 1), (0, 2), (2, 1)])?, ["cat"]);
    assert_eq!(ops(&[(1, 3)])?, ["pad"]);
    assert_eq!(ops(&[(0, 4), (3, 3)])?, ["add", "pad", "pad"]);
    assert_eq!(ops(&[(0, 3), (2, 3), (3, 3)])?, ["add", "cat", "pad"]);
    // More slices than are kept before joining.
    assert_eq!(ops(&[(1, 4); 9])?.len(), 9 + 8);
    Ok(())
}

#[test]
fn modes_nest_and_are_restored() -> Result<()> {
    let x = leaf(&[1.0]);
    assert!(!no_grad(|| x.exp())?.is_tracked());
    assert!(no_grad(|| enable_grad(|| x.exp()))?.is_tracked());
    assert!(!x.detach().exp()?.is_tracked());
    assert!(std::panic::catch_unwind(|| no_grad(|| panic!("in here"))).is_err());
    assert!(is_grad_enabled());
    Ok(())
}

#[test]
fn what_has_no_gradient_says_so() -> Result<()> {
    let x = leaf(&[1.0, 2.0]);
    let error = x.argmax(0)?.backward().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NoGradient);
    assert!(!x.gt(0.0)?.is_tracked() && !x.to_dtype(DType::I64)?.is_tracked());
    let error = x.backward().err().unwrap();
    assert!(error.to_string().contains("2 elements"), "{error}");
    assert!(Tensor::new([1i64], &device())?.requires_grad().is_err());
    Ok(())
}

#[test]
fn checkpoints_give_the_same_gradients_also_to_what_they_capture() -> Result<()> {
    let (x, w) = (leaf(&[0.3, -0.8]), leaf(&[1.5, 0.4]));
    let segment = {
        let w = w.clone();
        move |x: &[Tensor]| x[0].mul(&w)?.dropout(0.5)?.exp()?.mul(&x[0])
    };
    manual_seed(3);
    let plain = segment(&[x.exp()?])?.sum_all()?;
    manual_seed(3);
    let saved = checkpoint(segment, &[&x.exp()?])?.sum_all()?;
    assert_eq!(plain.item()?, saved.item()?);
    let (plain, saved) = (plain.backward()?, saved.backward()?);
    for leaf in [&x, &w] {
        assert_eq!(
            plain.require(leaf)?.to_vec::<f64>()?,
            saved.require(leaf)?.to_vec::<f64>()?
        );
    }
    Ok(())
}

#[test]
fn rows_of_a_checkpoint_have_their_gradients_ahead_if_nothing_else_takes_one() -> Result<()> {
    let x = Tensor::from_slice(&[0.3, -0.8, 0.1, 1.5, 0.4, -0.2], [2, 3], &device())?.requires_grad()?;
    let w = Tensor::from_slice(&[0.7, -1.1, 0.5], [3], &device())?;
    for trains in [false, true] {
        let (w, calls) = (
            if trains { w.clone().requires_grad()? } else { w.clone() },
            Arc::new(AtomicUsize::new(0)),
        );
        let function = {
            let (w, calls) = (w.clone(), Arc::clone(&calls));
            move |x: &Tensor| {
                calls.fetch_add(1, Ordering::Relaxed);
                x.mul(&w)?.dropout(0.5)?.exp()?.mul(x)?.sum(1)?.square()
            }
        };
        let scales = Tensor::from_slice(&[2.0, -3.0], [2], &device())?;
        let loss = |rows: Tensor| -> Result<Tensor> { rows.mul(&scales)?.sum_all() };
        manual_seed(3);
        let plain = loss(function(&x.exp()?)?)?;
        manual_seed(3);
        calls.store(0, Ordering::Relaxed);
        let saved = loss(checkpoint_rows(function.clone(), &x.exp()?)?)?;
        assert_eq!(plain.item()?, saved.item()?);
        let (wanted, found) = (plain.backward()?, saved.backward()?);
        let most = |x: Tensor| -> Result<f64> { x.abs()?.amax(())?.item() };
        let close = |a: &Tensor, b: &Tensor| -> Result<bool> { Ok(most(a.sub(b)?)? <= 1e-10 * most(a.clone())?) };
        assert!(close(wanted.require(&x)?, found.require(&x)?)?);
        assert_eq!(calls.load(Ordering::Relaxed), if trains { 2 } else { 1 });
        match trains {
            true => assert!(close(wanted.require(&w)?, found.require(&w)?)?),
            false => assert_eq!(found.len(), 1),
        }
        // A recorded backward pass goes through the function again, with its random numbers.
        let graph = BackwardOptions::default().create_graph(true);
        let second = |loss: &Tensor| -> Result<Tensor> {
            let first = loss.backward_with(&graph)?;
            Ok(first.require(&x)?.square()?.sum_all()?.backward()?.require(&x)?.clone())
        };
        assert!(close(&second(&plain)?, &second(&saved)?)?);
        let _none = no_grad(|| checkpoint_rows(function.clone(), &x))?;
    }
    let sum = |x: &Tensor| x.sum_all();
    let error = checkpoint_rows(sum, &x).unwrap_err().to_string();
    assert!(
        error.contains("checkpoint_rows") && error.contains("a number of each row"),
        "{error}"
    );
    // What a checkpoint inside captures is not known.
    let own = w.clone().requires_grad()?;
    let inner = {
        let own = own.clone();
        move |x: &Tensor| {
            let own = own.clone();
            checkpoint(move |x| x[0].mul(&own)?.sum(1), &[x])
        }
    };
    let found = checkpoint_rows(inner, &x)?.sum_all()?.backward()?;
    assert_eq!(found.require(&own)?.to_vec::<f64>()?, x.sum(0)?.to_vec::<f64>()?);
    Ok(())
}

#[test]
fn inner_gradients_can_be_captured_and_gradients_accumulated() -> Result<()> {
    let x = leaf(&[2.0]);
    let h = x.square()?;
    let y = h.square()?.sum_all()?;
    let mut gradients = y.backward_with(&BackwardOptions::default().capture(&h))?;
    assert_eq!(gradients.require(&h)?.to_vec::<f64>()?, [8.0]);
    assert_eq!(gradients.require(&x)?.to_vec::<f64>()?, [32.0]);
    gradients.accumulate(y.backward()?)?;
    assert_eq!(gradients.require(&x)?.to_vec::<f64>()?, [64.0]);
    Ok(())
}

struct Double {
    wrong_shape: bool,
}

impl CustomOp<Reference> for Double {
    fn name(&self) -> &str {
        "double"
    }

    fn forward(&self, inputs: &[Tensor]) -> Result<Tensor> {
        &inputs[0] * 2.0
    }

    fn backward(&self, _: &[Tensor], _: &Tensor, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let grad = (grad * 2.0)?;
        Ok(vec![Some(if self.wrong_shape { grad.sum_all()? } else { grad })])
    }
}

#[test]
fn custom_ops_are_differentiable_and_checked() -> Result<()> {
    let x = leaf(&[1.0, 2.0]);
    let good = Double { wrong_shape: false };
    let y = Tensor::custom(good, &[&x])?.square()?.sum_all()?;
    assert_eq!(y.backward()?.require(&x)?.to_vec::<f64>()?, [8.0, 16.0]);
    let bad = Double { wrong_shape: true };
    let error = Tensor::custom(bad, &[&x])?.sum_all()?.backward().err().unwrap();
    assert!(error.to_string().contains("backward of double"), "{error}");
    Ok(())
}

#[test]
fn updates_in_place_leave_others_alone() -> Result<()> {
    let mut x = leaf(&[1.0]);
    let (before, id) = (x.clone(), x.node_id());
    x.update(|value| {
        *value = Reference::add_scalar(value, 1.0)?;
        Ok(())
    })?;
    assert_eq!((x.item()?, before.item()?, x.node_id()), (2.0, 1.0, id));
    assert!(x.exp()?.update(|_| Ok(())).is_err());
    Ok(())
}

#[test]
fn updates_that_fail_leave_the_value() -> Result<()> {
    let mut x = Tensor::var("w", Tensor::new([1.0f32, 2.0], &device())?)?;
    let id = x.node_id();
    let other = |new: Tensor| {
        move |value: &mut _| -> Result<()> {
            *value = new.inner().clone();
            Ok(())
        }
    };

    let error = x.update(other(Tensor::new([1.0f32; 3], &device())?)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape);
    assert!(
        error.to_string().contains("\"w\" of f32[2] cannot become f32[3]"),
        "{error}"
    );
    let error = x
        .update(other(Tensor::new([1.0; 2], (&device(), DType::F64))?))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DType);
    assert!(
        error.to_string().contains("\"w\" of f32[2] cannot become f64[2]"),
        "{error}"
    );

    let failing = |value: &mut _| {
        *value = Reference::add_scalar(value, 1.0)?;
        Err(Error::invalid("as was asked for"))
    };
    assert!(x.update(failing).unwrap_err().to_string().contains("as was asked for"));
    let panicking = std::panic::AssertUnwindSafe(|| {
        x.update(|value| {
            *value = Reference::add_scalar(value, 1.0)?;
            panic!("as was asked for")
        })
    });
    assert!(std::panic::catch_unwind(panicking).is_err());
    assert_eq!((x.to_vec::<f32>()?, x.node_id()), (vec![1.0, 2.0], id));
    Ok(())
}

#[test]
fn a_gradient_that_is_not_there_is_explained() -> Result<()> {
    let x = Tensor::var("x", Tensor::new([1.0f32, 2.0], &device())?)?;
    let inner = x.exp()?;
    let loss = inner.sum_all()?;
    let gradients = loss.backward()?;
    let error = gradients.require(&inner).unwrap_err().to_string();
    assert!(
        error.contains("it is no leaf") && error.contains("capture(&tensor)"),
        "{error}"
    );
    let error = gradients.require(&x.detach()).unwrap_err().to_string();
    assert!(error.contains("does not require one"), "{error}");
    assert_eq!(format!("{gradients:?}"), r#"{"x": "f32[2]"}"#);
    let captured = loss.backward_with(&BackwardOptions::default().capture(&inner))?;
    assert_eq!(captured.require(&inner)?.to_vec::<f32>()?, [1.0; 2]);
    Ok(())
}

#[test]
fn an_op_that_cuts_the_graph_is_named() -> Result<()> {
    let x = Tensor::var("x", Tensor::new([[1.0f32, 3.0], [2.0, 0.0]], &device())?)?;
    let logits = (&x * 2.0)?;
    let told = |loss: Tensor| loss.sum_all().unwrap().backward().unwrap_err().to_string();
    let cases = [
        ("argmax gives i64", logits.argmax(1)?.to_dtype(DType::F32)?),
        ("to_dtype gives i64", x.to_dtype(DType::I64)?),
        ("gt gives bool", x.gt(0)?.to_dtype(DType::F32)?.exp()?),
        ("isnan gives bool", x.isnan()?.to_dtype(DType::F32)?),
        (
            "any gives bool",
            x.reduce(ReduceOp::Any, 0, false)?.to_dtype(DType::F32)?,
        ),
        ("sort gives i64", x.sort(0, false)?.1),
        ("argmax gives i64", logits.argmax(1)?.one_hot(2)?),
        (
            "argmax gives i64",
            Tensor::ones([2, 3], &device())?.index_select(1, &x.argmax(1)?)?,
        ),
    ];
    for (told_in, loss) in cases {
        // A result inherits the mark if no other input is in the graph.
        let (marked, plain) = (
            (&loss + 1.0)?,
            Tensor::ones(loss.shape(), &device())?.to_dtype(loss.dtype())?,
        );
        assert!(!marked.is_tracked() && !marked.is_leaf() && marked.node_id().is_none());
        for loss in [loss, (&plain + &marked)?, (marked + plain)?] {
            let error = told(loss);
            assert!(error.contains(told_in) && error.contains("cut there"), "{error}");
        }
    }
    let mask = x.gt(1.5)?.to_dtype(DType::F32)?;
    let gradients = (&mask * &x)?.sum_all()?.backward()?;
    assert_eq!(gradients.require(&x)?.to_f64_vec()?, [0.0, 1.0, 1.0, 0.0]);
    let error = told(no_grad(|| x.argmax(0))?);
    assert!(!error.contains("argmax") && error.contains("make a leaf"), "{error}");
    Ok(())
}

#[test]
fn more_inputs_than_a_byte_counts_keep_their_own_second_derivatives() -> Result<()> {
    let leaves: Vec<Tensor> = (0..300).map(|i| leaf(&[f64::from(i) / 100.0])).collect();
    let inputs: Vec<&Tensor> = leaves.iter().collect();
    let cubes = |xs: &[Tensor]| {
        let cubes = xs.iter().map(|x| x.pow(3.0)).collect::<Result<Vec<_>>>()?;
        Tensor::cat(&cubes.iter().collect::<Vec<_>>(), 0)?.sum_all()
    };
    let first = checkpoint(cubes, &inputs)?.backward_with(&BackwardOptions::default().create_graph(true))?;
    for i in [0, 44, 255, 256, 299] {
        let second = first.require(&leaves[i])?.sum_all()?.backward()?;
        let found = second.require(&leaves[i])?.to_vec::<f64>()?[0];
        assert!((found - 6.0 * i as f64 / 100.0).abs() < 1e-12, "input {i}: {found}");
    }
    Ok(())
}
