//! A device that fails at any call of a training: every layer reports it, nothing panics or leaks, and nothing is left
//! half done except as documented.

mod steps;
mod sweep;
mod training;
mod whole;

use polygrad_conformance::{Fault, Faults};
use polygrad_cpu::Cpu;
use polygrad_nn::optim::*;
use polygrad_nn::*;
use polygrad_null::Null;
use polygrad_tensor::{BackwardOptions, Device, ErrorKind, Gradients, Result, Tensor, checkpoint};

use crate::sweep::{check, every_call};
use crate::training::{Build, cnn, embedded, mlp};

#[test]
fn building_models_and_optimizers() {
    for make in [mlp as Build, cnn, embedded] {
        every_call(
            &Device::<Null>::default(),
            |_| (),
            |device, ()| make(device).map(drop),
            |()| (),
        );
        every_call(
            &Device::<Cpu>::default(),
            |_| (),
            |device, ()| make(device).map(drop),
            |()| (),
        );
    }
}

#[test]
fn checkpointing_and_higher_order_gradients() {
    every_call(
        &Device::<Null>::default(),
        |device| mlp(device).unwrap(),
        |_, training| {
            let layers = [
                training.model.parameters()[0].tensor(),
                training.model.parameters()[2].tensor(),
            ];
            let [first, second] = layers;
            let x = Tensor::var("x", training.input.clone())?;
            let hidden = checkpoint(
                move |x: &[Tensor]| x[0].linear(&first, None)?.tanh()?.dropout(0.5),
                &[&x],
            )?;
            let y = hidden.linear(&second, None)?.square()?.sum_all()?;
            let first_order = y.backward_with(&BackwardOptions::default().create_graph(true))?;
            first_order.require(&x)?.square()?.sum_all()?.backward().map(drop)
        },
        |_| (),
    );
}

#[test]
fn metrics_and_synchronize_report_it() {
    let faults = Faults::over(&Device::<Cpu>::default());
    let loss = Tensor::new(1.5f32, &faults.device()).unwrap();
    for fault in Fault::ALL {
        let expect = |run: &dyn Fn() -> Result<()>, op: &str| {
            faults.arm(1, fault);
            let error = run().unwrap_err();
            check(&error, &faults, fault, op);
            assert_eq!(faults.struck(), Some(op));
            faults.disarm();
            run().unwrap();
        };
        expect(&|| loss.item().map(drop), "to_host");
        expect(&|| loss.to_vec::<f32>().map(drop), "to_host");
        expect(&|| faults.device().synchronize(), "synchronize");
    }
    // Printing cannot fail: it prints the fault instead of the values.
    faults.arm(1, Fault::DeviceLost);
    let text = loss.to_string();
    assert!(
        text.contains(ErrorKind::DeviceError.as_str()) && text.contains("to_host"),
        "{text}"
    );
}

#[test]
fn a_gradient_whose_norm_is_not_finite_does_not_hide_a_lost_device() {
    let gradients = |device: &Device| {
        let x = Tensor::var("x", Tensor::new([1.0f32, 2.0], device).unwrap()).unwrap();
        (&x * f64::INFINITY).unwrap().sum_all().unwrap().backward().unwrap()
    };
    let clip = |_: &Device, gradients: &mut Gradients| match clip_grad_norm(gradients, 1.0) {
        Err(error) if error.to_string().contains("not finite: x") => Ok(()),
        other => other.map(drop),
    };
    every_call(&Device::<Cpu>::default(), gradients, clip, |_| ());
}
