//! Inference over gRPC, through a socket.

use std::sync::Arc;

use crate::running::messages::{float, input, parameter, raw, with};
use crate::running::proto::infer_parameter::ParameterChoice;
use crate::running::proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use crate::running::proto::{InferTensorContents, ModelInferRequest};
use crate::running::{Running, repository};
use crate::support::{Function, identity, spec};
use bytes::Bytes;
use polygrad_core::DType;
use polygrad_onnx::graph::ElementType;
use polygrad_serve::{DATATYPES, ServerOptions, Settings, Signature};
use tonic::codec::CompressionEncoding;
use tonic::{Code, Request};

/// Six elements of a datatype in the wire format: small numbers that every datatype can represent.
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
    let server = Running::of(
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
    let server = Running::of(
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
    let server = Running::of(vec![
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
    let server = Running::of(vec![("copies", Arc::new(copies))]).await;
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
async fn compressed_messages_are_read_up_to_the_limit() {
    let options = ServerOptions {
        max_body_bytes: 1 << 20,
        ..ServerOptions::default()
    };
    let models = repository(vec![("identity", identity(ElementType::U8))], &Settings::default());
    let server = Running::start(models, options).await;
    for encoding in [CompressionEncoding::Gzip, CompressionEncoding::Deflate] {
        let mut client = server.grpc().await.send_compressed(encoding);
        let of = |length: usize| raw("identity", "UINT8", &[1, length as i64], &vec![7; length]);
        let response = client.model_infer(of(1000)).await.unwrap();
        assert_eq!(response.get_ref().raw_output_contents, [vec![7; 1000]]);
        // It expands to a thousand times its size.
        let status = client.model_infer(of(8 << 20)).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    }
}
