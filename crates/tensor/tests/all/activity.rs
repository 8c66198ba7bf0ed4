//! The activity of ops in gradient rules and in updates.

use std::sync::{Arc, Mutex};

use polygrad_reference::Reference;
use polygrad_tensor::{Activity, CustomOp, Device, Error, Result, activity, next_node_id};

type Tensor = polygrad_tensor::Tensor<Reference>;

/// The identity, which notes the activity of its gradient, and fails if asked to.
struct Note {
    seen: Arc<Mutex<Option<Activity>>>,
    fails: bool,
}

impl CustomOp<Reference> for Note {
    fn name(&self) -> &str {
        "note"
    }

    fn forward(&self, inputs: &[Tensor]) -> Result<Tensor> {
        Ok(inputs[0].clone())
    }

    fn backward(&self, _: &[Tensor], _: &Tensor, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        *self.seen.lock().unwrap() = Some(activity());
        if self.fails {
            return Err(Error::invalid("as was asked for"));
        }
        Ok(vec![Some(grad.clone())])
    }
}

#[test]
fn a_gradient_runs_for_its_node() -> Result<()> {
    let x = Tensor::ones([2], &Device::default())?.requires_grad()?;
    for fails in [false, true] {
        let seen = Arc::new(Mutex::new(None));
        let note = Note {
            seen: Arc::clone(&seen),
            fails,
        };
        let first = next_node_id();
        let y = Tensor::custom(note, &[&x])?;
        assert!(y.node_id().is_some_and(|id| (first..next_node_id()).contains(&id)));
        assert_eq!(y.sum_all()?.backward().is_err(), fails);
        assert_eq!(*seen.lock().unwrap(), y.node_id().map(Activity::Backward));
        assert_eq!(activity(), Activity::Direct);
    }
    Ok(())
}

#[test]
fn an_update_runs_for_its_leaf() -> Result<()> {
    let mut x = Tensor::ones([2], &Device::default())?.requires_grad()?;
    let mut seen = Activity::Direct;
    x.update(|_| {
        seen = activity();
        Ok(())
    })?;
    assert_eq!(Some(seen), x.node_id().map(Activity::Update));
    assert!(x.update(|_| Err(Error::invalid("as was asked for"))).is_err());
    assert_eq!(activity(), Activity::Direct);
    Ok(())
}
