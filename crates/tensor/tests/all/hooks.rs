//! When gradients of leaves are final.

use std::sync::{Arc, Mutex};

use polygrad_reference::Reference;
use polygrad_tensor::{BackwardOptions, CustomOp, Device, Error, ErrorKind, Gradients, Result, checkpoint};

type Tensor = polygrad_tensor::Tensor<Reference>;

type Log = Arc<Mutex<Vec<String>>>;

/// The identity, which logs when a gradient passes it.
struct Note(&'static str, Log);

impl CustomOp<Reference> for Note {
    fn name(&self) -> &str {
        self.0
    }

    fn forward(&self, inputs: &[Tensor]) -> Result<Tensor> {
        Ok(inputs[0].clone())
    }

    fn backward(&self, _: &[Tensor], _: &Tensor, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        self.1.lock().unwrap().push(self.0.to_owned());
        Ok(vec![Some(grad.clone())])
    }
}

fn leaf(value: f64) -> Tensor {
    Tensor::full([2], value, &Device::default())
        .unwrap()
        .requires_grad()
        .unwrap()
}

/// The log of a backward pass, with the names of leaves at the points where the hook reported their final gradients.
fn order(y: &Tensor, leaves: &[(&'static str, &Tensor)], log: &Log) -> Result<String> {
    let ids: Vec<_> = leaves
        .iter()
        .map(|(name, leaf)| (leaf.node_id().unwrap(), *name))
        .collect();
    let given = Arc::new(Mutex::new(Vec::new()));
    let (seen, notes) = (Arc::clone(&given), Arc::clone(log));
    let options = BackwardOptions::default().hook(move |id, gradient: &Tensor| {
        let (_, name) = ids.iter().find(|(known, _)| *known == id).unwrap();
        notes.lock().unwrap().push((*name).to_owned());
        seen.lock().unwrap().push((*name, gradient.to_vec::<f32>()?));
        Ok(())
    });
    let gradients: Gradients<Reference> = y.backward_with(&options)?;
    let given = given.lock().unwrap();
    assert_eq!((given.len(), gradients.len()), (leaves.len(), leaves.len()));
    let plain = y.backward()?;
    for (name, value) in &*given {
        let (_, leaf) = leaves.iter().find(|(known, _)| known == name).unwrap();
        assert_eq!(gradients.require(*leaf)?.to_vec::<f32>()?, *value);
        assert_eq!(plain.require(*leaf)?.to_vec::<f32>()?, *value);
    }
    Ok(log.lock().unwrap().join(" "))
}

#[test]
fn leaves_are_given_once_nobody_uses_them() -> Result<()> {
    let (a, b, c) = (leaf(2.0), leaf(3.0), leaf(5.0));
    let note = |name, x: &Tensor, log: &Log| Tensor::custom(Note(name, Arc::clone(log)), &[x]);
    let all = [("a", &a), ("b", &b), ("c", &c)];

    let log = Log::default();
    let first = note("first", &a.exp()?, &log)?;
    let second = note("second", &first.mul(&b)?, &log)?;
    let y = second.mul(&c)?.sum_all()?;
    assert!(order(&y, &all, &log)?.starts_with("c second b first a"));

    // A leaf that both use.
    let log = Log::default();
    let first = note("first", &a.exp()?, &log)?;
    let second = note("second", &first.mul(&b)?, &log)?;
    let y = second.mul(&b)?.sum_all()?;
    assert!(order(&y, &all[..2], &log)?.starts_with("second b first a"));
    Ok(())
}

#[test]
fn segments_may_use_any_leaf_again() -> Result<()> {
    let (a, b, c) = (leaf(2.0), leaf(3.0), leaf(5.0));
    let note = |name, x: &Tensor, log: &Log| Tensor::custom(Note(name, Arc::clone(log)), &[x]);
    let scaled = |x: &Tensor| {
        let b = b.clone();
        checkpoint(move |x: &[Tensor]| x[0].mul(&b), &[x])
    };
    for (last, leaves, wanted) in [(&c, 3, "second c b first a"), (&b, 2, "second b first a")] {
        let log = Log::default();
        let first = note("first", &a.exp()?, &log)?;
        let second = note("second", &scaled(&first)?, &log)?;
        let y = second.mul(last)?.sum_all()?;
        let all = [("a", &a), ("b", &b), ("c", &c)];
        let found = order(&y, &all[..leaves], &log)?;
        assert!(found.starts_with(wanted), "{found}");
    }
    Ok(())
}

#[test]
fn what_a_hook_complains_of_ends_the_pass() -> Result<()> {
    let x = leaf(1.0);
    let options = BackwardOptions::default().hook(|_, _: &Tensor| Err(Error::communication("nobody is there")));
    let error = x.sum_all()?.backward_with(&options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Communication);
    // A leaf as the result.
    let one = Tensor::full([1], 1.0, &Device::default())?.requires_grad()?;
    assert!(one.backward_with(&options).is_err());
    Ok(())
}
