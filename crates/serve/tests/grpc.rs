//! The protocol over gRPC, through a socket.

mod running;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use polygrad_core::DType;
use polygrad_onnx::graph::ElementType;
use polygrad_serve::{DATATYPES, Model, Pool, Repository, ServerOptions, Settings, Signature};
use running::proto::health::HealthCheckRequest;
use running::proto::health::health_client::HealthClient;
use running::proto::infer_parameter::ParameterChoice;
use running::proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use running::proto::*;
use running::{Running, repository};
use support::{Function, accumulator, counted, delicate, identity, spec};
use tonic::{Code, Request};

async fn started(models: Vec<(&str, Arc<dyn Model>)>) -> Running {
    Running::start(repository(models, &Settings::default()), ServerOptions::default()).await
}

fn input(datatype: &str, shape: &[i64]) -> InferInputTensor {
    InferInputTensor {
        name: "x".to_owned(),
        datatype: datatype.to_owned(),
        shape: shape.to_vec(),
        ..InferInputTensor::default()
    }
}

fn raw(model: &str, datatype: &str, shape: &[i64], bytes: &[u8]) -> ModelInferRequest {
    ModelInferRequest {
        model_name: model.to_owned(),
        inputs: vec![input(datatype, shape)],
        raw_input_contents: vec![Bytes::copy_from_slice(bytes)],
        ..ModelInferRequest::default()
    }
}

fn float(model: &str, value: f32) -> ModelInferRequest {
    raw(model, "FP32", &[1, 1], &value.to_le_bytes())
}

fn parameter(choice: ParameterChoice) -> InferParameter {
    InferParameter {
        parameter_choice: Some(choice),
    }
}

fn with(mut request: ModelInferRequest, name: &str, choice: ParameterChoice) -> ModelInferRequest {
    request.parameters.insert(name.to_owned(), parameter(choice));
    request
}

fn first_float(response: &ModelInferResponse) -> f32 {
    f32::from_le_bytes(response.raw_output_contents[0][..4].try_into().unwrap())
}

/// Six elements of a datatype as they go over the wire: small numbers, which each of them has.
fn six(element: ElementType) -> Vec<u8> {
    match element {
        ElementType::Bool => vec![0, 1, 1, 0, 0, 1],
        ElementType::String => {
            let strings = [&b""[..], b"a", "ü".as_bytes(), &[0xff, 0], b"long enough", b"e"];
            let length = |string: &&[u8]| u32::try_from(string.len()).unwrap().to_le_bytes();
            strings
                .iter()
                .flat_map(|string| [&length(string)[..], string].concat())
                .collect()
        }
        ElementType::F16 | ElementType::BF16 => [0x3c00_u16, 0x4000, 0x0001, 0x8000, 0x7bff, 0x0400]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect(),
        ElementType::F32 => [1.5_f32, -0.0, f32::NAN, f32::INFINITY, 1e-40, 3.0]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect(),
        ElementType::F64 => [1.5_f64, -0.0, f64::NAN, f64::INFINITY, 1e-310, 3.0]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect(),
        element => {
            let size = element.bits() / 8;
            (1..=6_u64).flat_map(|v| v.to_le_bytes()[..size].to_vec()).collect()
        }
    }
}

#[tokio::test]
async fn every_datatype_comes_back_as_raw_bytes() {
    let names: Vec<String> = DATATYPES.iter().map(|(_, name)| name.to_lowercase()).collect();
    let models = DATATYPES.iter().zip(&names);
    let server = started(
        models
            .map(|((element, _), name)| (name.as_str(), identity(*element)))
            .collect(),
    )
    .await;
    let mut client = server.grpc().await;
    for ((element, datatype), name) in DATATYPES.iter().zip(&names) {
        let sent = six(*element);
        let mut request = raw(name, datatype, &[2, 3], &sent);
        request.id = "seven".to_owned();
        let response = client.model_infer(request).await.unwrap().into_inner();
        assert_eq!(
            (response.model_name.as_str(), response.model_version.as_str()),
            (name.as_str(), "1")
        );
        assert_eq!(response.id, "seven");
        let output = &response.outputs[0];
        assert_eq!((output.name.as_str(), output.datatype.as_str()), ("y", *datatype));
        assert_eq!(output.shape, [2, 3]);
        assert_eq!(response.raw_output_contents, [sent], "{datatype}");
    }
}

#[tokio::test]
async fn typed_contents_are_the_same_as_raw_ones() {
    let names: Vec<String> = DATATYPES.iter().map(|(_, name)| name.to_lowercase()).collect();
    let models = DATATYPES.iter().zip(&names);
    let server = started(
        models
            .map(|((element, _), name)| (name.as_str(), identity(*element)))
            .collect(),
    )
    .await;
    let mut client = server.grpc().await;
    let bytes = |values: [i64; 3], size: usize| values.iter().flat_map(|v| v.to_le_bytes()[..size].to_vec()).collect();
    let signed = || InferTensorContents {
        int_contents: vec![-1, 0, 127],
        ..Default::default()
    };
    let unsigned = || InferTensorContents {
        uint_contents: vec![0, 1, 255],
        ..Default::default()
    };
    let cases: [(&str, InferTensorContents, Vec<u8>); 12] = [
        ("INT8", signed(), bytes([-1, 0, 127], 1)),
        ("INT16", signed(), bytes([-1, 0, 127], 2)),
        ("INT32", signed(), bytes([-1, 0, 127], 4)),
        ("UINT8", unsigned(), bytes([0, 1, 255], 1)),
        ("UINT16", unsigned(), bytes([0, 1, 255], 2)),
        ("UINT32", unsigned(), bytes([0, 1, 255], 4)),
        (
            "INT64",
            InferTensorContents {
                int64_contents: vec![i64::MIN, 0, i64::MAX],
                ..Default::default()
            },
            bytes([i64::MIN, 0, i64::MAX], 8),
        ),
        (
            "UINT64",
            InferTensorContents {
                uint64_contents: vec![0, 1, i64::MAX as u64],
                ..Default::default()
            },
            bytes([0, 1, i64::MAX], 8),
        ),
        (
            "BOOL",
            InferTensorContents {
                bool_contents: vec![true, false, true],
                ..Default::default()
            },
            vec![1, 0, 1],
        ),
        (
            "FP32",
            InferTensorContents {
                fp32_contents: vec![0.1, -0.0, f32::MAX],
                ..Default::default()
            },
            [0.1_f32, -0.0, f32::MAX].iter().flat_map(|v| v.to_le_bytes()).collect(),
        ),
        (
            "FP64",
            InferTensorContents {
                fp64_contents: vec![0.1, -0.0, f64::MAX],
                ..Default::default()
            },
            [0.1_f64, -0.0, f64::MAX].iter().flat_map(|v| v.to_le_bytes()).collect(),
        ),
        (
            "BYTES",
            InferTensorContents {
                bytes_contents: vec![Bytes::from_static(b"a"), Bytes::new(), Bytes::from_static(b"bc")],
                ..Default::default()
            },
            b"\x01\0\0\0a\0\0\0\0\x02\0\0\0bc".to_vec(),
        ),
    ];
    for (datatype, contents, expected) in cases {
        let request = ModelInferRequest {
            model_name: datatype.to_lowercase(),
            inputs: vec![InferInputTensor {
                contents: Some(contents),
                ..input(datatype, &[1, 3])
            }],
            ..ModelInferRequest::default()
        };
        let response = client.model_infer(request).await.unwrap().into_inner();
        assert_eq!(response.raw_output_contents, [expected], "{datatype}");
    }
    let half = ModelInferRequest {
        model_name: "fp16".to_owned(),
        inputs: vec![input("FP16", &[1, 3])],
        ..ModelInferRequest::default()
    };
    let status = client.model_infer(half).await.unwrap_err();
    assert!(status.message().contains("raw_input_contents"), "{status}");
}

#[tokio::test]
async fn what_cannot_be_read_says_why() {
    let server = started(vec![
        ("identity", identity(ElementType::F32)),
        ("int8", identity(ElementType::I8)),
    ])
    .await;
    let mut client = server.grpc().await;
    let good = || float("identity", 1.0);
    let shaped = |shape: &[i64], bytes: &[u8]| raw("identity", "FP32", shape, bytes);
    let asked = |name: &str, parameter: Option<(&str, ParameterChoice)>| {
        let mut output = InferRequestedOutputTensor {
            name: name.to_owned(),
            ..Default::default()
        };
        output
            .parameters
            .extend(parameter.map(|(name, choice)| (name.to_owned(), self::parameter(choice))));
        ModelInferRequest {
            outputs: vec![output],
            ..good()
        }
    };
    let shared = ParameterChoice::StringParam("region".to_owned());
    let both = InferTensorContents {
        fp32_contents: vec![1.0],
        ..Default::default()
    };
    let wide = InferTensorContents {
        int_contents: vec![128],
        ..Default::default()
    };
    let cases: Vec<(ModelInferRequest, Code, &str)> = vec![
        (float("other", 1.0), Code::NotFound, "there is no model \"other\""),
        (
            ModelInferRequest {
                model_version: "2".to_owned(),
                ..good()
            },
            Code::NotFound,
            "there is no version 2",
        ),
        (
            ModelInferRequest {
                model_version: "x".to_owned(),
                ..good()
            },
            Code::InvalidArgument,
            "a version is a number",
        ),
        (
            shaped(&[1, -1], &[0; 4]),
            Code::InvalidArgument,
            "the shape [1, -1] is negative",
        ),
        (
            shaped(&[i64::MAX, i64::MAX], &[0; 4]),
            Code::InvalidArgument,
            "more elements than memory",
        ),
        (shaped(&[1; 9], &[0; 4]), Code::InvalidArgument, "rank 9"),
        (shaped(&[1, 2], &[0; 4]), Code::InvalidArgument, "in the input \"x\""),
        (shaped(&[1], &[0; 4]), Code::InvalidArgument, "is of shape [-1, -1]"),
        (shaped(&[0, 1], &[]), Code::InvalidArgument, "has no rows"),
        (
            raw("identity", "FP33", &[1, 1], &[0; 4]),
            Code::InvalidArgument,
            "\"FP33\", which the protocol lacks",
        ),
        (
            raw("identity", "INT32", &[1, 1], &[0; 4]),
            Code::InvalidArgument,
            "is of datatype FP32",
        ),
        (
            ModelInferRequest {
                raw_input_contents: vec![Bytes::new(); 2],
                ..good()
            },
            Code::InvalidArgument,
            "2 entries for 1 inputs",
        ),
        (
            ModelInferRequest {
                inputs: vec![InferInputTensor {
                    contents: Some(both),
                    ..input("FP32", &[1, 1])
                }],
                ..good()
            },
            Code::InvalidArgument,
            "give one of them",
        ),
        (
            ModelInferRequest {
                model_name: "int8".to_owned(),
                inputs: vec![InferInputTensor {
                    contents: Some(wide),
                    ..input("INT8", &[1, 1])
                }],
                raw_input_contents: Vec::new(),
                ..good()
            },
            Code::InvalidArgument,
            "128 does not fit",
        ),
        (
            asked("z", None),
            Code::InvalidArgument,
            "the model has no output \"z\"; it gives y",
        ),
        (
            asked("y", Some(("shared_memory_region", shared))),
            Code::InvalidArgument,
            "shared memory",
        ),
        (
            with(good(), "priority", ParameterChoice::Int64Param(-1)),
            Code::InvalidArgument,
            "priority is a whole number",
        ),
        (
            with(good(), "priority", ParameterChoice::Int64Param(9)),
            Code::InvalidArgument,
            "priority 9 is above",
        ),
        (
            with(good(), "sequence_start", ParameterChoice::Int64Param(1)),
            Code::InvalidArgument,
            "sequence_start is true or false",
        ),
        (
            with(good(), "sequence_id", ParameterChoice::Int64Param(1)),
            Code::InvalidArgument,
            "this model has no states",
        ),
    ];
    for (request, code, message) in cases {
        let status = client.model_infer(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(message), "{status}");
    }
    for wrong in ["5", "5X", "S", "123456789S", "-5S", "ü"] {
        let mut request = Request::new(good());
        let value = tonic::metadata::MetadataValue::try_from(wrong);
        let Ok(value) = value else { continue };
        request.metadata_mut().insert("grpc-timeout", value);
        let status = client.model_infer(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{wrong}: {status}");
    }
    client.model_infer(good()).await.unwrap();
}

#[tokio::test]
async fn outputs_are_those_that_were_asked_for_in_that_order() {
    let names = ["a", "b", "c"];
    let mut signature = Signature {
        inputs: vec![spec("x", DType::F32, &["batch", "width"])],
        outputs: names.map(|name| spec(name, DType::F32, &["batch", "width"])).to_vec(),
        states: Vec::new(),
    };
    signature.batch_by_name();
    let copies = Function {
        signature,
        run: |inputs: &[polygrad_serve::Value]| Ok(vec![inputs[0].clone(); 3]),
    };
    let server = started(vec![("copies", Arc::new(copies))]).await;
    let mut client = server.grpc().await;
    let bytes: Vec<u8> = [1.0_f32, 3.0, 2.0, 9.0, 8.0, 7.0]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    let mut request = raw("copies", "FP32", &[2, 3], &bytes);
    let asked = |name: &str| InferRequestedOutputTensor {
        name: name.to_owned(),
        ..Default::default()
    };
    request.outputs = vec![asked("c"), asked("a")];
    let classes = parameter(ParameterChoice::Int64Param(2));
    request.outputs[1]
        .parameters
        .insert("classification".to_owned(), classes);
    let response = client.model_infer(request).await.unwrap().into_inner();
    let found: Vec<&str> = response.outputs.iter().map(|output| output.name.as_str()).collect();
    assert_eq!(found, ["c", "a"]);
    assert_eq!(response.raw_output_contents[0], bytes);
    assert_eq!(
        (response.outputs[1].datatype.as_str(), &response.outputs[1].shape[..]),
        ("BYTES", &[2, 2][..])
    );
    let texts = String::from_utf8_lossy(&response.raw_output_contents[1]).into_owned();
    for class in ["3.000000:1", "2.000000:2", "9.000000:0", "8.000000:1"] {
        assert!(texts.contains(class), "{texts:?}");
    }
}

#[tokio::test]
async fn a_stream_gives_each_request_its_answer_in_order() {
    let server = started(vec![("identity", identity(ElementType::F32)), ("delicate", delicate())]).await;
    let mut client = server.grpc().await;
    let requests = (0..500).map(|i| match i % 50 {
        49 => ModelInferRequest {
            id: i.to_string(),
            ..float("delicate", -1.0)
        },
        _ => ModelInferRequest {
            id: i.to_string(),
            ..float("identity", i as f32)
        },
    });
    let mut answers = client
        .model_stream_infer(stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    for i in 0..500 {
        let answer = answers.message().await.unwrap().unwrap();
        let response = answer.infer_response.unwrap();
        assert_eq!(response.id, i.to_string());
        match i % 50 {
            49 => assert!(answer.error_message.contains("minus one"), "{}", answer.error_message),
            _ => assert_eq!((first_float(&response), answer.error_message.as_str()), (i as f32, "")),
        }
    }
    assert!(answers.message().await.unwrap().is_none());
}

#[tokio::test]
async fn sequences_go_on_in_a_stream_and_between_calls() {
    let server = started(vec![("sum", accumulator())]).await;
    let mut client = server.grpc().await;
    let step = |id: ParameterChoice, value: f32, start: bool, end: bool| {
        let request = with(float("sum", value), "sequence_id", id);
        let request = with(request, "sequence_start", ParameterChoice::BoolParam(start));
        with(request, "sequence_end", ParameterChoice::BoolParam(end))
    };
    let of = |i: i64| match i % 2 {
        0 => ParameterChoice::Uint64Param(7),
        _ => ParameterChoice::StringParam("seven".to_owned()),
    };
    let requests: Vec<_> = (0..200).map(|i| step(of(i), i as f32, i < 2, i >= 198)).collect();
    let mut answers = client
        .model_stream_infer(stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    let mut sums = [0.0; 2];
    for i in 0..200 {
        let answer = answers.message().await.unwrap().unwrap();
        assert_eq!(answer.error_message, "");
        sums[i % 2] += i as f32;
        let response = answer.infer_response.unwrap();
        assert_eq!(first_float(&response), sums[i % 2]);
        // The state stays at the server.
        assert_eq!(response.outputs.len(), 1);
    }
    let ended = client.model_infer(step(of(0), 1.0, false, false)).await.unwrap_err();
    assert!(ended.message().contains("begin it with sequence_start"), "{ended}");
    for (value, sum) in [(1.0, 1.0), (2.0, 3.0), (4.0, 7.0)] {
        let response = client
            .model_infer(step(of(0), value, value == 1.0, false))
            .await
            .unwrap();
        assert_eq!(first_float(response.get_ref()), sum);
    }
}

const SLOW: Duration = Duration::from_millis(100);

/// A model that takes [`SLOW`], one request at a time, and its repository.
async fn slow() -> (Running, Arc<support::Counts>) {
    let counts = Arc::<support::Counts>::default();
    let model = counted(ElementType::F32, Arc::clone(&counts), SLOW);
    let settings = Settings {
        max_batch_size: 1,
        max_queue: 2,
        ..Settings::default()
    };
    let repository = Repository::new(Pool::new(1).unwrap());
    repository
        .add("slow", 1, move || Ok(Arc::clone(&model)), settings)
        .unwrap();
    repository.load("slow").unwrap();
    (Running::start(repository, ServerOptions::default()).await, counts)
}

#[tokio::test]
async fn what_is_late_is_not_computed() {
    let (server, counts) = slow().await;
    let before = counts.runs.load(Ordering::SeqCst);
    let mut clients = [server.grpc().await, server.grpc().await, server.grpc().await];
    let [first, second, third] = &mut clients;
    let mut by_header = Request::new(float("slow", 1.0));
    by_header.metadata_mut().insert("grpc-timeout", "20m".parse().unwrap());
    let by_parameter = with(float("slow", 1.0), "timeout", ParameterChoice::Uint64Param(20_000));
    let late = async {
        tokio::time::sleep(SLOW / 4).await;
        tokio::join!(second.model_infer(by_header), third.model_infer(by_parameter))
    };
    let (first, (header, parameter)) = tokio::join!(first.model_infer(float("slow", 1.0)), late);
    first.unwrap();
    for status in [header.unwrap_err(), parameter.unwrap_err()] {
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    }
    assert_eq!(counts.runs.load(Ordering::SeqCst) - before, 1);
}

#[tokio::test]
async fn what_is_given_up_is_not_computed() {
    let (server, counts) = slow().await;
    let before = counts.runs.load(Ordering::SeqCst);
    let mut clients = [server.grpc().await, server.grpc().await];
    let [first, second] = &mut clients;
    let given_up = async {
        tokio::time::sleep(SLOW / 4).await;
        tokio::time::timeout(SLOW / 4, second.model_infer(float("slow", 1.0))).await
    };
    let (first, given_up) = tokio::join!(first.model_infer(float("slow", 1.0)), given_up);
    first.unwrap();
    assert!(given_up.is_err());
    clients[0].model_infer(float("slow", 1.0)).await.unwrap();
    assert_eq!(counts.runs.load(Ordering::SeqCst) - before, 2);
    let (_, _, statistics) = server.repository.statistics(Some("slow"), None).unwrap().remove(0);
    assert_eq!((statistics.cancelled, statistics.success.count), (1, 2));
}

#[tokio::test]
async fn beyond_its_limit_a_queue_turns_calls_away() {
    let (server, _) = slow().await;
    let client = server.grpc().await;
    let began = Instant::now();
    let refused = Arc::new(AtomicUsize::new(0));
    let calls = (0..10).map(|_| {
        let (mut client, refused) = (client.clone(), Arc::clone(&refused));
        tokio::spawn(async move {
            if let Err(status) = client.model_infer(float("slow", 1.0)).await {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                assert!(began.elapsed() < SLOW, "it was told too late");
                refused.fetch_add(1, Ordering::SeqCst);
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    let refused = refused.load(Ordering::SeqCst);
    assert!((7..=8).contains(&refused), "{refused}");
}

#[tokio::test]
async fn messages_are_as_long_as_the_server_allows() {
    let options = ServerOptions {
        max_body_bytes: 6 << 20,
        ..ServerOptions::default()
    };
    let models = repository(vec![("identity", identity(ElementType::U8))], &Settings::default());
    let server = Running::start(models, options).await;
    let mut client = server.grpc().await;
    let of = |length: usize| raw("identity", "UINT8", &[1, length as i64], &vec![7; length]);
    // More than tonic's own limit.
    let response = client.model_infer(of(5 << 20)).await.unwrap();
    assert_eq!(response.get_ref().raw_output_contents[0].len(), 5 << 20);
    let status = client.model_infer(of(7 << 20)).await.unwrap_err();
    assert!(
        [Code::OutOfRange, Code::ResourceExhausted].contains(&status.code()),
        "{status}"
    );
    client.model_infer(of(1)).await.unwrap();
}

#[tokio::test]
async fn the_server_and_its_models_tell_what_they_are() {
    let server = started(vec![("identity", identity(ElementType::F32)), ("sum", accumulator())]).await;
    let mut client = server.grpc().await;
    assert!(
        client
            .server_live(ServerLiveRequest {})
            .await
            .unwrap()
            .into_inner()
            .live
    );
    assert!(
        client
            .server_ready(ServerReadyRequest {})
            .await
            .unwrap()
            .into_inner()
            .ready
    );
    let about = client
        .server_metadata(ServerMetadataRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(about.name, "polygrad");
    assert!(about.extensions.contains(&"sequence".to_owned()));

    let name = || "identity".to_owned();
    let request = ModelMetadataRequest {
        name: name(),
        ..Default::default()
    };
    let about = client.model_metadata(request).await.unwrap().into_inner();
    assert_eq!(
        (about.versions, about.platform.as_str()),
        (vec!["1".to_owned()], "polygrad")
    );
    assert_eq!(
        (about.inputs[0].datatype.as_str(), &about.inputs[0].shape[..]),
        ("FP32", &[-1, -1][..])
    );

    let request = ModelConfigRequest {
        name: name(),
        ..Default::default()
    };
    let config = client.model_config(request).await.unwrap().into_inner().config.unwrap();
    assert_eq!((config.max_batch_size, &config.input[0].dims[..]), (32, &[-1][..]));
    assert_eq!(config.input[0].data_type(), DataType::TypeFp32);
    let Some(model_config::SchedulingChoice::DynamicBatching(batching)) = config.scheduling_choice else {
        panic!("{config:?}");
    };
    assert_eq!((batching.priority_levels, batching.default_priority_level), (3, 2));
    let request = ModelConfigRequest {
        name: "sum".to_owned(),
        ..Default::default()
    };
    let config = client.model_config(request).await.unwrap().into_inner().config.unwrap();
    // Its rows lie along another axis than the first.
    assert_eq!(config.max_batch_size, 0);
    let Some(model_config::SchedulingChoice::SequenceBatching(batching)) = config.scheduling_choice else {
        panic!("{config:?}");
    };
    assert_eq!(batching.state[0].input_name, "total");
    assert_eq!(batching.state[0].output_name, "next_total");

    client.model_infer(float("identity", 1.0)).await.unwrap();
    let request = ModelStatisticsRequest {
        name: name(),
        ..Default::default()
    };
    let found = client
        .model_statistics(request)
        .await
        .unwrap()
        .into_inner()
        .model_stats
        .remove(0);
    assert_eq!((found.inference_count, found.execution_count), (1, 1));
    assert_eq!(found.inference_stats.unwrap().success.unwrap().count, 1);
    assert_eq!(found.batch_stats[0].batch_size, 1);
    let all = client
        .model_statistics(ModelStatisticsRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(all.model_stats.len(), 2);

    let request = ModelReadyRequest {
        name: "other".to_owned(),
        ..Default::default()
    };
    assert_eq!(client.model_ready(request).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn models_come_and_go_where_that_is_allowed() {
    let unload = || RepositoryModelUnloadRequest {
        model_name: "identity".to_owned(),
        ..Default::default()
    };
    let load = || RepositoryModelLoadRequest {
        model_name: "identity".to_owned(),
        ..Default::default()
    };
    let server = started(vec![("identity", identity(ElementType::F32))]).await;
    let status = server.grpc().await.repository_model_unload(unload()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");

    let options = ServerOptions {
        control: true,
        ..ServerOptions::default()
    };
    let models = repository(vec![("identity", identity(ElementType::F32))], &Settings::default());
    let server = Running::start(models, options).await;
    let mut client = server.grpc().await;
    let ready = || ModelReadyRequest {
        name: "identity".to_owned(),
        ..Default::default()
    };
    client.repository_model_unload(unload()).await.unwrap();
    assert!(!client.model_ready(ready()).await.unwrap().into_inner().ready);
    assert!(
        !client
            .server_ready(ServerReadyRequest {})
            .await
            .unwrap()
            .into_inner()
            .ready
    );
    let status = client.model_infer(float("identity", 1.0)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let index = client
        .repository_index(RepositoryIndexRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (index.models[0].state.as_str(), index.models[0].reason.as_str()),
        ("UNAVAILABLE", "unloaded")
    );
    let only_ready = RepositoryIndexRequest {
        ready: true,
        ..Default::default()
    };
    assert!(
        client
            .repository_index(only_ready)
            .await
            .unwrap()
            .into_inner()
            .models
            .is_empty()
    );

    client.repository_model_load(load()).await.unwrap();
    client.model_infer(float("identity", 1.0)).await.unwrap();
    let other = RepositoryModelLoadRequest {
        model_name: "other".to_owned(),
        ..Default::default()
    };
    assert_eq!(
        client.repository_model_load(other).await.unwrap_err().code(),
        Code::NotFound
    );
    let elsewhere = RepositoryModelLoadRequest {
        repository_name: "elsewhere".to_owned(),
        ..load()
    };
    assert_eq!(
        client.repository_model_load(elsewhere).await.unwrap_err().code(),
        Code::NotFound
    );
    let mut config = load();
    let override_ = ModelRepositoryParameter {
        parameter_choice: Some(model_repository_parameter::ParameterChoice::StringParam(
            "{}".to_owned(),
        )),
    };
    config.parameters.insert("config".to_owned(), override_);
    assert_eq!(
        client.repository_model_load(config).await.unwrap_err().code(),
        Code::InvalidArgument
    );
}

#[tokio::test]
async fn health_is_told_as_grpc_has_it() {
    let mut server = started(vec![("identity", identity(ElementType::F32))]).await;
    let mut health = HealthClient::new(server.channel().await);
    let of = |service: &str| HealthCheckRequest {
        service: service.to_owned(),
    };
    for service in ["", "inference.GRPCInferenceService"] {
        assert_eq!(health.check(of(service)).await.unwrap().into_inner().status, 1);
    }
    assert_eq!(health.check(of("other")).await.unwrap_err().code(), Code::NotFound);
    let mut states = health.watch(of("")).await.unwrap().into_inner();
    let mut of_other = health.watch(of("other")).await.unwrap().into_inner();
    assert_eq!(states.message().await.unwrap().unwrap().status, 1);
    assert_eq!(of_other.message().await.unwrap().unwrap().status, 3);
    server.repository.unload("identity").unwrap();
    assert_eq!(states.message().await.unwrap().unwrap().status, 2);
    server.repository.load("identity").unwrap();
    assert_eq!(states.message().await.unwrap().unwrap().status, 1);
    server.stop();
    assert_eq!(states.message().await.unwrap().unwrap().status, 2);
    assert!(states.message().await.unwrap().is_none());
    assert!(of_other.message().await.unwrap().is_none());
    assert_eq!(server.ended().await, 0);
}

#[tokio::test]
async fn a_stream_ends_with_the_server_when_all_that_came_is_answered() {
    let mut server = started(vec![("identity", identity(ElementType::F32))]).await;
    let mut client = server.grpc().await;
    let (send, requests) = tokio::sync::mpsc::unbounded_channel();
    let requests = stream::unfold(requests, |mut requests| async move {
        Some((requests.recv().await?, requests))
    });
    send.send(float("identity", 1.0)).unwrap();
    let mut answers = client.model_stream_infer(requests).await.unwrap().into_inner();
    assert!(answers.message().await.unwrap().is_some());
    server.stop();
    let status = answers.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(server.ended().await, 0);
}

#[tokio::test]
async fn calls_that_there_are_not_are_unimplemented() {
    let server = started(vec![("identity", identity(ElementType::F32))]).await;
    for path in ["/inference.GRPCInferenceService/TraceSetting", "/other.Service/Call"] {
        let mut client = tonic::client::Grpc::new(server.channel().await);
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<ServerLiveRequest, ServerLiveResponse>::default();
        let path = path.parse().unwrap();
        let status = client
            .unary(Request::new(ServerLiveRequest {}), path, codec)
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{status}");
    }
}
