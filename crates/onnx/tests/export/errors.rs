//! Errors about models that cannot be recorded name the op and the place.

use polygrad_core::{AnyBackend, Backend, BinaryOp, ErrorKind};
use polygrad_nn::{Linear, Module, Sequential};
use polygrad_onnx::{Export, ExportOnnx, Input};
use polygrad_tensor::{DType, Error, Result, Tensor, no_grad};

use super::cpu;

fn export() -> Export {
    Export::new([Input::new("x", DType::F32, ("batch", 4))])
}

/// The error of a forward pass with an op after a layer.
fn refused(after: impl Fn(Tensor) -> Result<Tensor>) -> Error {
    let device = cpu();
    let model = Sequential::new().push(Linear::new(4, 3, &device).unwrap());
    model.train();
    let error = model
        .record_onnx(&export(), |x| after(model.forward(&x[0])?))
        .unwrap_err();
    // In any case the model is back on its device.
    assert!(model.parameters().iter().all(|param| param.tensor().device() == device));
    error
}

fn says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

#[test]
fn a_host_read() {
    let error = refused(|y| if y.sum_all()?.item()? > 0.0 { Ok(y) } else { y.neg() });
    says(&error, &["to_host", "when the model runs", "where_", "after layer 0"]);
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn random_numbers() {
    says(
        &refused(|y| y.add(&Tensor::randn(y.shape(), &y.device())?)),
        &["random", "input"],
    );
}

#[test]
fn an_op_that_onnx_lacks() {
    says(&refused(|y| y.binary(BinaryOp::Atan2, &y)), &["atan2", "ONNX"]);
}

#[test]
fn host_values_of_an_unknown_extent() {
    let error = refused(|y| {
        let rows = y.dims()[0];
        y.add(&Tensor::from_vec(vec![1f32; rows], [rows, 1], &y.device())?)
    });
    says(&error, &["batch", "arange"]);
}

#[test]
fn an_extent_that_is_no_sum_or_product() {
    let error = refused(|y| y.narrow(0, 0, y.dims()[0] / 2));
    says(&error, &["batch", "cannot be recorded"]);
}

#[test]
fn a_loop_over_an_unknown_extent() {
    let error = refused(|y| {
        let mut sum = y.select(0, 0)?;
        for row in 1..y.dims()[0] {
            sum = (sum + y.select(0, row as isize)?)?;
        }
        Ok(sum)
    });
    says(&error, &["batch", "loop"]);
}

#[test]
fn a_training_step() {
    let error = refused(|y| {
        let grad = AnyBackend::softmax_backward(y.inner(), y.inner(), 1)?;
        Ok(Tensor::from_inner(grad))
    });
    says(&error, &["softmax_backward", "forward pass"]);
}

#[test]
fn a_layer_is_named() {
    #[derive(Module)]
    struct Model {
        fc: Linear,
    }
    let device = cpu();
    let model = Model {
        fc: Linear::new(5, 3, &device).unwrap(),
    };
    let error = model.record_onnx(&export(), |x| model.fc.forward(&x[0])).unwrap_err();
    assert_eq!(error.module_path().as_deref(), Some("fc"));
}

#[test]
fn options_that_contradict_each_other() {
    let model = Linear::new(4, 3, &cpu()).unwrap();
    let run = |x: &[Tensor]| no_grad(|| model.forward(&x[0]));
    says(
        &model.record_onnx(&export().outputs(["a", "b"]), run).unwrap_err(),
        &["1 outputs", "2 have names"],
    );
    says(
        &model.record_onnx(&export().bound("seq", 1..=4), run).unwrap_err(),
        &["\"seq\""],
    );
    says(
        &model.record_onnx(&export().outputs(["x"]), run).unwrap_err(),
        &["\"x\""],
    );
}
