//! Graphs as services: which requests may be joined.

use crate::support::{floats, numbers};
use polygrad_core::{DType, Result};
use polygrad_cpu::Cpu;
use polygrad_nn::Linear;
use polygrad_onnx::graph::Dim;
use polygrad_onnx::{Export, ExportOnnx, Input, OnnxModel, Options};
use polygrad_serve::{Model, OnnxService};
use polygrad_tensor::{Device, Tensor};

/// A linear layer of `x` [`first`, 3], and `then` after it.
fn service(first: Dim, then: impl Fn(&Tensor) -> Result<Tensor>) -> OnnxService {
    let device = Device::<Cpu>::default().into_any();
    let layer = Linear::new(3, 2, &device).unwrap();
    let export = Export::new([Input::new("x", DType::F32, vec![first, Dim::Fixed(3)])]).outputs(["y"]);
    let graph = layer.record_onnx(&export, |x| then(&layer.forward(&x[0])?)).unwrap();
    OnnxService::new(OnnxModel::from_graph(&graph, &device, Options::default()).unwrap()).unwrap()
}

fn open() -> Dim {
    Dim::Named("batch".to_owned())
}

#[test]
fn rows_are_joined_where_they_do_not_mix() {
    let service = service(open(), Tensor::relu);
    let signature = service.signature();
    assert_eq!(signature.inputs[0].batch, Some(0));
    assert_eq!(signature.outputs[0].batch, Some(0));
    assert!(signature.is_batched());
    let rows: Vec<f32> = (0..6).map(|v| v as f32).collect();
    let together = service.run(&[floats(&[2, 3], rows.clone())]).unwrap();
    let alone = service.run(&[floats(&[1, 3], rows[..3].to_vec())]).unwrap();
    assert_eq!(numbers(&together[0])[..2], numbers(&alone[0])[..]);
}

#[test]
fn rows_that_depend_on_each_other_are_not_joined() {
    let centred = service(open(), |y| y - &y.mean_keepdim([0])?);
    assert!(!centred.signature().is_batched());
    let soft = service(open(), |y| y.softmax(0));
    assert!(!soft.signature().is_batched());
}

#[test]
fn a_model_of_one_row_is_not_joined() {
    let service = service(Dim::Fixed(1), Tensor::relu);
    assert!(!service.signature().is_batched());
    assert_eq!(service.signature().inputs[0].wire_dims(), [1, 3]);
}

#[test]
fn graphs_run_on_several_threads_at_once() {
    let service = service(open(), Tensor::tanh);
    let input = |i: usize| floats(&[1, 3], vec![i as f32, 1.0, -1.0]);
    let wanted: Vec<_> = (0..64)
        .map(|i| numbers(&service.run(&[input(i)]).unwrap()[0]))
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for (i, wanted) in wanted.iter().enumerate() {
                    assert_eq!(numbers(&service.run(&[input(i)]).unwrap()[0]), *wanted);
                }
            });
        }
    });
}
