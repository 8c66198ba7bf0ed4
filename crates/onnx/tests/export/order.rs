//! Sorting and indices: ONNX sorts only numbers, and its TopK has two results.

use polygrad_core::ArgOp;
use polygrad_nn::Sequential;
use polygrad_onnx::{Engine, Export, ExportOnnx, Input, OnnxModel, Opset, Options};
use polygrad_tensor::{DType, Result, Tensor};

use super::cpu;

#[test]
fn truth_values_are_ordered_as_numbers() -> Result<()> {
    type Run = fn(&Tensor) -> Result<Tensor>;
    let calls: [(&str, Run); 5] = [
        ("TopK", |x| Ok(x.sort(1, true)?.0)),
        ("TopK", |x| Ok(x.topk(2, 1, false)?.0)),
        ("TopK", |x| x.argsort(1, false)),
        ("ArgMax", |x| x.arg_reduce(ArgOp::Max, 1, true)),
        ("ArgMin", |x| x.arg_reduce(ArgOp::Min, 0, false)),
    ];
    let bits = Tensor::from_vec(vec![0i64, 1, 0, 1, 1, 0], [2, 3], &cpu())?;
    for dtype in [DType::Bool, DType::F32] {
        let x = bits.to_dtype(dtype)?;
        for (op, run) in calls {
            let export = Export::new([Input::new("x", dtype, (2usize, 3usize))]).outputs(["y"]);
            let graph = Sequential::new().record_onnx(&export, |x| run(&x[0]))?;
            let node = graph.body.nodes.iter().find(|node| node.op_type == op).expect(op);
            if op == "TopK" {
                assert_eq!(node.outputs.len(), 2, "{op} of {dtype}");
            }
            for engine in [Engine::Native, Engine::Ort] {
                if engine.available().is_err() {
                    continue;
                }
                let options = Options {
                    engine,
                    ..Options::default()
                };
                let found = OnnxModel::from_graph(&graph, &cpu(), options)?
                    .forward(std::slice::from_ref(&x))?
                    .tensor(0)?;
                let wanted = run(&x)?;
                assert_eq!(found.dtype(), wanted.dtype(), "{op} of {dtype} by {engine}");
                // Among equal values another engine may choose other indices.
                if engine == Engine::Native || wanted.dtype() != DType::I64 {
                    let numbers = |x: &Tensor| x.to_host().map(|host| host.to_f64_vec());
                    assert_eq!(numbers(&found)?, numbers(&wanted)?, "{op} of {dtype} by {engine}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn none_of_no_truth_values_is_true() -> Result<()> {
    let x = Tensor::zeros([1, 0, 2], (&cpu(), DType::Bool))?;
    let export = Export::new([Input::new("x", DType::Bool, (1usize, 0usize, 2usize))]).outputs(["any", "all"]);
    let graph = Sequential::new().record_onnx(&export, |x| Ok(vec![x[0].any(&[1][..])?, x[0].all(&[1][..])?]))?;
    for engine in [Engine::Native, Engine::Ort] {
        if engine.available().is_err() {
            continue;
        }
        let options = Options {
            engine,
            ..Options::default()
        };
        let found = OnnxModel::from_graph(&graph, &cpu(), options)?.forward(std::slice::from_ref(&x))?;
        assert_eq!(found.tensor(0)?.to_vec::<bool>()?, [false; 2], "{engine}");
        assert_eq!(found.tensor(1)?.to_vec::<bool>()?, [true; 2], "{engine}");
    }
    Ok(())
}

#[test]
fn ops_that_lack_a_dtype_are_written_in_f32() -> Result<()> {
    type Run = fn(&Tensor) -> Result<Tensor>;
    let calls: [(&str, Run, bool); 4] = [
        ("Cos", |x| x.cos(), true),
        ("Round", |x| x.round(), true),
        ("TopK", |x| Ok(x.sort(1, false)?.0), false),
        ("Exp", |x| x.exp(), true),
    ];
    let x = Tensor::from_vec(vec![0.5f32, -1.25, 2.0, 0.75], [2, 2], &cpu())?.to_dtype(DType::BF16)?;
    for opset in Opset::ALL {
        for (op, run, newest_has) in calls {
            let export = Export::new([Input::new("x", DType::BF16, (2usize, 2usize))])
                .outputs(["y"])
                .opset(opset);
            let graph = Sequential::new().record_onnx(&export, |x| run(&x[0]))?;
            let casts = graph.body.nodes.iter().filter(|node| node.op_type == "Cast").count();
            let is_native = op == "Exp" || (newest_has && opset == Opset::V23);
            assert_eq!(casts, if is_native { 0 } else { 2 }, "{op} in {}", opset.version());
            let found = OnnxModel::from_graph(&graph, &cpu(), Options::default())?.forward(std::slice::from_ref(&x))?;
            let found = found.tensor(0)?;
            assert_eq!(found.dtype(), DType::BF16);
            assert_eq!(found.to_host()?.to_f64_vec(), run(&x)?.to_host()?.to_f64_vec(), "{op}");
        }
    }
    Ok(())
}
