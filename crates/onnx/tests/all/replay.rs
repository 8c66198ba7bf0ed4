//! Replayed runs: their results, what is not replayed, and what a replay must not change.

use polygrad_compute::{Compute, ComputeDevice};
use polygrad_core::{DType, Distribution, RandomKey, random_host};
use polygrad_cpu::{Cpu, CpuDevice, CpuDriver, Kernels};
use polygrad_onnx::graph::{Body, Dim, ElementType, Graph, Node, ValueId, ValueType};
use polygrad_onnx::{ExportOnnx, Input, OnnxModel, Options};
use polygrad_tensor::{Compiled, Device, Result, Shape, Tensor, autocast, count_flops};
use polygrad_testing::zoo;

fn cpu() -> Device {
    Device::<Cpu>::default().into_any()
}

fn driver() -> Device {
    let chip = CpuDevice::new(1, Kernels::default()).unwrap();
    Device::<Compute<CpuDriver>>::from_inner(ComputeDevice::new(CpuDriver::new(chip)).unwrap()).into_any()
}

fn load(graph: &Graph, device: &Device, replay: bool) -> OnnxModel {
    let options = Options {
        replay,
        ..Options::default()
    };
    OnnxModel::from_graph(graph, device, options).unwrap()
}

/// Other values in each round.
fn values(inputs: &[Input], batch: usize, round: u64, device: &Device) -> Vec<Tensor> {
    let make = |(i, input): (usize, &Input)| {
        let extent = |dim: &Dim| match dim {
            Dim::Fixed(extent) => *extent,
            Dim::Named(name) if name == "batch" => batch,
            _ => 6,
        };
        let shape = Shape::new(&input.dims().iter().map(extent).collect::<Vec<_>>()).unwrap();
        let key = RandomKey {
            seed: 1000 * round + i as u64,
            offset: 0,
        };
        let (distribution, made) = match input.dtype().is_float() {
            true => (Distribution::Normal { mean: 0.0, std: 1.0 }, input.dtype()),
            false => (Distribution::Integers { low: 0, high: 2 }, DType::I64),
        };
        let host = random_host(shape, distribution, made, key).unwrap().cast(input.dtype());
        Tensor::from_host(host, device).unwrap()
    };
    inputs.iter().enumerate().map(make).collect()
}

fn bytes(model: &OnnxModel, inputs: &[Tensor]) -> Vec<Vec<u8>> {
    let outputs = model.forward(inputs).unwrap();
    let all = (0..outputs.len()).map(|i| outputs.tensor(i).unwrap().to_host().unwrap());
    all.map(|host| host.bytes().to_vec()).collect()
}

#[test]
fn every_model_is_replayed_bit_by_bit() -> Result<()> {
    for device in [cpu(), driver()] {
        for case in zoo::cases(&cpu())? {
            let graph = case.model.record_onnx(&case.export, &case.run)?;
            let (plan, model) = (load(&graph, &device, false), load(&graph, &device, true));
            // Each batch size reaches its replay while others are in progress.
            for round in 0..6 {
                for batch in [2, 3, 1] {
                    let x = values(case.export.inputs(), batch, round, &device);
                    let at = format!("{} on {device}, {batch} rows, round {round}", case.name);
                    assert!(bytes(&plan, &x) == bytes(&model, &x), "{at}");
                }
            }
            let (found, why) = (model.replays(), model.replay_refusal());
            assert!(found > 0, "{} on {device}: {why:?}", case.name);
            assert_eq!(plan.replays(), 0);
        }
    }
    Ok(())
}

/// `y` from consecutive nodes with one output each; `x` is a float vector.
fn graph(nodes: &[(&str, &[ValueId])]) -> Graph {
    let mut body = Body::default();
    let x = body.add_value("x", Some(ValueType::tensor(ElementType::F32, vec![Dim::Unknown])));
    let shift = body.add_initializer("shift", polygrad_core::HostTensor::scalar(0.25f32));
    assert_eq!([x, shift], [X, SHIFT]);
    body.inputs = vec![x];
    for (op, inputs) in nodes {
        let output = body.add_value(format!("{op}_{}", body.values.len()), None);
        body.nodes.push(Node {
            name: format!("{op}_{}", output.0),
            op_type: (*op).into(),
            inputs: inputs.iter().copied().map(Some).collect(),
            outputs: vec![Some(output)],
            ..Node::default()
        });
        body.outputs = vec![output];
    }
    Graph {
        opsets: [(String::new(), 20)].into(),
        body,
        ..Graph::default()
    }
}

const X: ValueId = ValueId(0);
const SHIFT: ValueId = ValueId(1);
const FIRST: ValueId = ValueId(2);

fn floats(model: &OnnxModel, x: &[f32]) -> Vec<f32> {
    let x = Tensor::from_vec(x.to_vec(), [x.len()], model.device()).unwrap();
    let y = model.forward(&[x]).unwrap().tensor(0).unwrap();
    y.to_dtype(DType::F32).unwrap().to_vec().unwrap()
}

#[test]
fn what_reads_values_is_not_replayed() {
    // The extents of the second depend on the values of the first.
    let nodes: &[(&str, &[ValueId])] = &[("NonZero", &[X]), ("Shape", &[FIRST])];
    let model = load(&graph(nodes), &cpu(), true);
    for (x, count) in [([1.0, 0.0, 2.0], 2.0), ([0.0, 0.0, 2.0], 1.0), ([1.0, 1.0, 1.0], 3.0)].repeat(3) {
        assert_eq!(floats(&model, &x), [1.0, count]);
    }
    assert_eq!(model.replays(), 0);
    let why = model.replay_refusal().unwrap();
    assert!(why.contains("reads values on the host"), "{why}");
}

#[test]
fn what_draws_numbers_is_not_replayed() {
    let nodes: &[(&str, &[ValueId])] = &[("RandomNormalLike", &[X]), ("Add", &[X, FIRST])];
    let model = load(&graph(nodes), &cpu(), true);
    let runs: Vec<Vec<f32>> = (0..6).map(|_| floats(&model, &[1.0, 2.0])).collect();
    assert!((1..6).all(|i| runs[i] != runs[i - 1]));
    let why = model.replay_refusal().unwrap();
    assert!(why.contains("random numbers"), "{why}");
}

/// `x (x + 0.25)`, replayed for two elements.
fn replayed() -> OnnxModel {
    let nodes: &[(&str, &[ValueId])] = &[("Add", &[X, SHIFT]), ("Mul", &[FIRST, X])];
    let model = load(&graph(nodes), &cpu(), true);
    for i in 0..4 {
        assert_eq!(model.replays(), usize::from(i == 3));
        assert_eq!(floats(&model, &[1.0, i as f32]), [1.25, i as f32 * (i as f32 + 0.25)]);
    }
    model
}

#[test]
fn gradients_and_parameters_take_the_plan() {
    let mut model = replayed();
    let x = Tensor::var("x", Tensor::new([1f32, 2.0], model.device()).unwrap()).unwrap();
    let y = model.forward(std::slice::from_ref(&x)).unwrap().tensor(0).unwrap();
    let gradients = y.sum_all().unwrap().backward().unwrap();
    assert_eq!(gradients.require(&x).unwrap().to_vec::<f32>().unwrap(), [2.25, 4.25]);
    let other = Tensor::full(Shape::SCALAR, 1.0, (model.device(), DType::F32)).unwrap();
    model.set([("shift".to_owned(), other)]).unwrap();
    for _ in 0..5 {
        assert_eq!(floats(&model, &[1.0, 3.0]), [2.0, 12.0]);
    }
    assert_eq!(model.replays(), 1);
    model.train(|_| true).unwrap();
    for _ in 0..5 {
        assert_eq!(floats(&model, &[1.0, 3.0]), [2.0, 12.0]);
    }
    assert_eq!(model.replays(), 0);
}

#[test]
fn a_recording_around_it_sees_its_ops() {
    let model = replayed();
    let one = |x: &[f32]| Tensor::from_vec(x.to_vec(), [2], model.device()).unwrap();
    let x = one(&[1.0, 1.0]);
    let compiled = Compiled::new(std::slice::from_ref(&x), || {
        Ok(vec![model.forward(std::slice::from_ref(&x))?.tensor(0)?])
    });
    let y = compiled.unwrap().run(&[one(&[2.0, 4.0])]).unwrap().remove(0);
    assert_eq!(y.to_vec::<f32>().unwrap(), [4.5, 17.0]);
}

#[test]
fn one_tensor_may_be_several_things() -> Result<()> {
    let mut body = graph(&[]).body;
    let y = body.add_value("y", Some(ValueType::tensor(ElementType::F32, vec![Dim::Unknown])));
    let [first, last] = ["first", "last"].map(|name| body.add_value(name, None));
    body.inputs.push(y);
    body.outputs = vec![last, first];
    for (op, inputs, output) in [("Sub", [X, y], first), ("Add", [first, SHIFT], last)] {
        body.nodes.push(Node {
            op_type: op.into(),
            inputs: inputs.map(Some).to_vec(),
            outputs: vec![Some(output)],
            ..Node::default()
        });
    }
    let graph = Graph {
        opsets: [(String::new(), 20)].into(),
        body,
        ..Graph::default()
    };
    let mut model = load(&graph, &cpu(), true);
    let own = Tensor::full(Shape::SCALAR, 2.0, (&cpu(), DType::F32))?;
    model.set([("shift".to_owned(), own.clone())])?;
    let own = own.reshape([1])?;
    // Both inputs are one tensor during recording, and different ones afterwards.
    for (x, y, found) in [
        (2.0, 2.0, 2.0),
        (2.0, 2.0, 2.0),
        (2.0, 2.0, 2.0),
        (9.0, 4.0, 7.0),
        (2.0, 9.0, -5.0),
    ] {
        let one = |v: f32| match v == 2.0 {
            true => Ok(own.clone()),
            false => Tensor::new([v], &cpu()),
        };
        let outputs = model.forward(&[one(x)?, one(y)?])?;
        assert_eq!(outputs.tensor(0)?.to_vec::<f32>()?, [found]);
        assert_eq!(outputs.tensor(1)?.to_vec::<f32>()?, [x - y]);
    }
    assert_eq!(model.replays(), 1);
    Ok(())
}

#[test]
fn errors_name_the_node() {
    let mut body = Body::default();
    let index = body.add_value("index", Some(ValueType::tensor(ElementType::I64, vec![Dim::Unknown])));
    let table = body.add_initializer(
        "table",
        random_host(
            Shape::from([4, 2]),
            Distribution::Normal { mean: 0.0, std: 1.0 },
            DType::F32,
            RandomKey { seed: 1, offset: 0 },
        )
        .unwrap(),
    );
    let y = body.add_value("y", None);
    body.inputs = vec![index];
    body.outputs = vec![y];
    body.nodes = vec![Node {
        name: "look-up".into(),
        op_type: "Gather".into(),
        inputs: vec![Some(table), Some(index)],
        outputs: vec![Some(y)],
        ..Node::default()
    }];
    let graph = Graph {
        opsets: [(String::new(), 20)].into(),
        body,
        ..Graph::default()
    };
    let model = load(&graph, &cpu(), true);
    let run = |at: i64| model.forward(&[Tensor::new([at], &cpu()).unwrap()]);
    let before = run(4).unwrap_err().to_string();
    for at in [0, 1, 3, 2, -1] {
        run(at).unwrap();
    }
    assert_eq!(model.replays(), 1);
    assert_eq!(run(4).unwrap_err().to_string(), before);
    assert!(before.contains("look-up"), "{before}");
    run(1).unwrap();
}

#[test]
fn modes_of_the_thread_take_the_plan() -> Result<()> {
    let case = zoo::cases(&cpu())?.remove(0);
    let graph = case.model.record_onnx(&case.export, &case.run)?;
    let (plan, model) = (load(&graph, &cpu(), false), load(&graph, &cpu(), true));
    let x = values(case.export.inputs(), 2, 0, &cpu());
    let (_, before) = count_flops(|| bytes(&model, &x));
    for _ in 0..4 {
        bytes(&model, &x);
    }
    assert_eq!(model.replays(), 1);
    assert!(before > 0);
    assert_eq!(count_flops(|| bytes(&model, &x)).1, before);
    let cast = |model: &OnnxModel| autocast(DType::BF16, || Ok(bytes(model, &x)));
    assert!(cast(&plan)? == cast(&model)?);
    assert!(cast(&plan)? != bytes(&model, &x));
    Ok(())
}

#[test]
fn threads_record_and_replay_at_once() -> Result<()> {
    let case = zoo::cases(&cpu())?.remove(0);
    let graph = case.model.record_onnx(&case.export, &case.run)?;
    let (plan, model) = (load(&graph, &cpu(), false), load(&graph, &cpu(), true));
    let inputs = case.export.inputs();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (plan, model) = (&plan, &model);
            scope.spawn(move || {
                for round in 0..40 {
                    let batch = 1 + ((thread + round) % 5) as usize;
                    let x = values(inputs, batch, thread * 100 + round, model.device());
                    assert!(bytes(plan, &x) == bytes(model, &x), "{batch} rows");
                }
            });
        }
    });
    assert_eq!(model.replays(), 5);
    Ok(())
}

#[test]
fn shapes_that_come_once_make_room_for_others() {
    let model = replayed();
    for count in 3..200 {
        let x: Vec<f32> = (0..count).map(|i| i as f32).collect();
        let y: Vec<f32> = x.iter().map(|x| x * (x + 0.25)).collect();
        assert_eq!(floats(&model, &x), y);
    }
    assert_eq!(model.replays(), 1);
    for count in (3..200).rev() {
        for _ in 0..4 {
            assert_eq!(floats(&model, &vec![1.0; count]), vec![1.25; count]);
        }
    }
    assert_eq!(model.replays(), 64);
}
