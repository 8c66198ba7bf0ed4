//! Graphs as services: which requests may be joined.

use std::sync::Arc;

use crate::running::Running;
use crate::running::proto::model_infer_request::InferInputTensor;
use crate::running::proto::{ModelConfigRequest, ModelInferRequest, ModelMetadataRequest};
use crate::support::{floats, numbers};
use polygrad_core::{DType, HostTensor, Result, Shape};
use polygrad_cpu::Cpu;
use polygrad_nn::Linear;
use polygrad_onnx::graph::{Body, Dim, ElementType, Graph, Initializer, Node, ValueType};
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

#[tokio::test]
async fn what_a_run_knows_is_told_and_classes_have_their_names() {
    use crate::common::Asked;
    use polygrad_serve::{Pool, Repository, Server, ServerOptions, Settings};
    use serde_json::json;

    let device = Device::<Cpu>::default().into_any();
    let layer = Linear::new(3, 3, &device).unwrap();
    let export = Export::new([Input::new("x", DType::F32, vec![open(), Dim::Fixed(3)])]).outputs(["y"]);
    let mut graph = layer.record_onnx(&export, |x| x[0].relu()).unwrap();
    let known = [("classes", "cat\ndog\na: b"), ("mean", "0.25"), ("std", "0.5")];
    graph.header.metadata = known.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let model = OnnxModel::from_graph(&graph, &device, Options::default()).unwrap();
    let service: Arc<dyn Model> = Arc::new(OnnxService::new(model).unwrap());
    let repository = Repository::new(Pool::new(1).unwrap());
    repository
        .add("run", 1, move || Ok(Arc::clone(&service)), Settings::default())
        .unwrap();
    repository.load("run").unwrap();
    let router = Server::new(repository, ServerOptions::default()).router();
    let config = Asked::get("/v2/models/run/config").json(&router).await;
    assert_eq!(config["parameters"]["mean"], json!({"string_value": "0.25"}));
    assert_eq!(config["parameters"]["classes"]["string_value"], "cat\ndog\na: b");
    let request = json!({
        "inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1.0, 2.0, 9.0]}],
        "outputs": [{"name": "y", "parameters": {"classification": 2}}],
    });
    let found = Asked::post("/v2/models/run/infer", &request).json(&router).await;
    assert_eq!(
        found["outputs"][0]["data"],
        json!(["9.000000:2:a: b", "2.000000:1:dog"])
    );
}

/// `y = x + by`, where `by` is an initializer that is also an input.
fn with_default() -> OnnxService {
    let mut body = Body::default();
    let x = body.add_value(
        "x",
        Some(ValueType::tensor(ElementType::F32, vec![open(), Dim::Fixed(2)])),
    );
    let by = body.add_value("by", Some(ValueType::tensor(ElementType::F32, vec![Dim::Fixed(2)])));
    let y = body.add_value(
        "y",
        Some(ValueType::tensor(ElementType::F32, vec![open(), Dim::Fixed(2)])),
    );
    body.inputs = vec![by, x];
    body.outputs = vec![y];
    body.initializers = vec![Initializer {
        value: by,
        tensor: HostTensor::new(Shape::from([2]), vec![10f32, 20.0]).unwrap().into(),
    }];
    body.nodes.push(Node {
        op_type: "Add".into(),
        inputs: vec![Some(x), Some(by)],
        outputs: vec![Some(y)],
        ..Node::default()
    });
    let graph = Graph {
        opsets: [(String::new(), 20)].into(),
        body,
        ..Graph::default()
    };
    let device = Device::<Cpu>::default().into_any();
    OnnxService::new(OnnxModel::from_graph(&graph, &device, Options::default()).unwrap()).unwrap()
}

#[tokio::test]
async fn an_input_with_a_default_in_the_file_is_given_or_left_out() {
    let service = with_default();
    assert!(service.signature().is_batched());
    let server = Running::of(vec![("m", Arc::new(service))]).await;
    let metadata = server.get("/v2/models/m").await;
    assert!(metadata.contains(r#""name":"by""#), "{metadata}");
    let config = server.get("/v2/models/m/config").await;
    assert_eq!(config.matches(r#""optional":true"#).count(), 1, "{config}");
    let mut client = server.grpc().await;
    let asked = ModelMetadataRequest {
        name: "m".into(),
        ..Default::default()
    };
    let metadata = client.model_metadata(asked).await.unwrap().into_inner();
    assert_eq!(
        metadata
            .inputs
            .iter()
            .map(|input| input.name.as_str())
            .collect::<Vec<_>>(),
        ["x", "by"]
    );
    let asked = ModelConfigRequest {
        name: "m".into(),
        ..Default::default()
    };
    let config = client.model_config(asked).await.unwrap().into_inner().config.unwrap();
    assert_eq!(
        config.input.iter().map(|input| input.optional).collect::<Vec<_>>(),
        [false, true]
    );
    let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let request = |x: f32, by: Option<[f32; 2]>| {
        let tensor = |name: &str, shape: &[i64]| InferInputTensor {
            name: name.into(),
            datatype: "FP32".into(),
            shape: shape.to_vec(),
            ..Default::default()
        };
        let mut request = ModelInferRequest {
            model_name: "m".into(),
            inputs: vec![tensor("x", &[1, 2])],
            raw_input_contents: vec![bytes(&[x, x]).into()],
            ..Default::default()
        };
        if let Some(by) = by {
            request.inputs.push(tensor("by", &[2]));
            request.raw_input_contents.push(bytes(&by).into());
        }
        request
    };
    // Sent at once, so that requests are joined if possible.
    let asked = (0..60).map(|i| {
        let mut client = client.clone();
        let (x, by) = (i as f32, (i % 3 == 0).then_some([i as f32, 1.0]));
        let request = request(x, by);
        async move {
            let answer = client.model_infer(request).await.unwrap().into_inner();
            let [a, b] = by.unwrap_or([10.0, 20.0]);
            (answer.raw_output_contents[0].to_vec(), [x + a, x + b])
        }
    });
    let asked: Vec<_> = asked.map(tokio::spawn).collect();
    for answer in asked {
        let (found, wanted) = answer.await.unwrap();
        assert_eq!(found, bytes(&wanted));
    }
}
