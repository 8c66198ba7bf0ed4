//! Requests and answers, value by value: what is read and written, and what is rejected.

use std::future::poll_fn;
use std::pin::Pin;

use crate::common::{Asked, binary, body, router, text};
use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::http::{Request, StatusCode};
use polygrad_core::{bf16, f16};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::{Value as Json, json};
use tower::ServiceExt as _;

const PATH: &str = "/v2/models/identity_fp32/infer";

fn path(datatype: &str) -> String {
    format!("/v2/models/identity_{}/infer", datatype.to_lowercase())
}

fn wire<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&v| bytes(v)).collect()
}

fn strings(texts: &[&[u8]]) -> Vec<u8> {
    let parts = texts
        .iter()
        .map(|text| [&(text.len() as u32).to_le_bytes(), *text].concat());
    parts.collect::<Vec<_>>().concat()
}

/// Each datatype with its extreme values, as JSON and as bytes.
fn samples() -> Vec<(&'static str, Json, Vec<u8>)> {
    let halves = [f16::MAX, f16::MIN_POSITIVE_SUBNORMAL, f16::from_f32(0.1)];
    let brains = [bf16::MAX, bf16::MIN_POSITIVE_SUBNORMAL, bf16::from_f32(0.1)];
    let floats = [f32::MAX, f32::from_bits(1), 0.1];
    let doubles = [f64::MAX, f64::from_bits(1), 0.1];
    vec![
        ("BOOL", json!([true, false, true]), vec![1, 0, 1]),
        ("UINT8", json!([0, 1, 255]), vec![0, 1, 255]),
        (
            "INT8",
            json!([-128, -1, 127]),
            wire(&[-128i8, -1, 127], i8::to_le_bytes),
        ),
        (
            "UINT16",
            json!([0, 1, 65535]),
            wire(&[0u16, 1, 65535], u16::to_le_bytes),
        ),
        (
            "INT16",
            json!([-32768, -1, 32767]),
            wire(&[-32768i16, -1, 32767], i16::to_le_bytes),
        ),
        (
            "UINT32",
            json!([0, 1, u32::MAX]),
            wire(&[0, 1, u32::MAX], u32::to_le_bytes),
        ),
        (
            "INT32",
            json!([i32::MIN, -1, i32::MAX]),
            wire(&[i32::MIN, -1, i32::MAX], i32::to_le_bytes),
        ),
        (
            "UINT64",
            json!([0, 1, i64::MAX]),
            wire(&[0, 1, i64::MAX], i64::to_le_bytes),
        ),
        (
            "INT64",
            json!([i64::MIN, -1, i64::MAX]),
            wire(&[i64::MIN, -1, i64::MAX], i64::to_le_bytes),
        ),
        ("FP16", json!(halves.map(f32::from)), wire(&halves, f16::to_le_bytes)),
        ("BF16", json!(brains.map(f32::from)), wire(&brains, bf16::to_le_bytes)),
        ("FP32", json!(floats), wire(&floats, f32::to_le_bytes)),
        ("FP64", json!(doubles), wire(&doubles, f64::to_le_bytes)),
        (
            "BYTES",
            json!(["", "ä\n\"", "plain"]),
            strings(&[b"", "ä\n\"".as_bytes(), b"plain"]),
        ),
    ]
}

#[tokio::test]
async fn every_datatype_goes_in_and_out_as_text_and_as_bytes() {
    let router = router();
    for (datatype, data, bytes) in samples() {
        let input = json!({"name": "x", "shape": [1, 3], "datatype": datatype});
        let as_text = with(&input, json!({"data": data}));
        let as_bytes = with(&input, json!({"parameters": {"binary_data_size": bytes.len()}}));
        let wish = json!({"binary_data_output": true});
        for (input, behind) in [(&as_text, &b""[..]), (&as_bytes, &bytes)] {
            let asked = |head: &Json| Asked::binary(&path(datatype), head, behind);
            let (_, found) = binary(&router, asked(&json!({"inputs": [input], "parameters": wish}))).await;
            assert_eq!(found, bytes, "{datatype}");
            // Values written as text read back unchanged.
            let found = asked(&json!({"inputs": [input]})).json(&router).await;
            let again = with(&as_text, json!({"data": found["outputs"][0]["data"]}));
            let again = json!({"inputs": [again], "parameters": wish});
            let (_, found) = binary(&router, Asked::post(&path(datatype), &again)).await;
            assert_eq!(found, bytes, "{datatype}");
        }
    }
}

fn with(json: &Json, more: Json) -> Json {
    let mut both = json.clone();
    both.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    both
}

#[tokio::test]
async fn data_may_be_nested_as_the_shape_says_or_flat() {
    let router = router();
    for (shape, data) in [
        ("[2,2]", "[1,2,3,4]"),
        ("[2,2]", "[[1,2],[3,4]]"),
        ("[2,2]", " [ [ 1 ,\n2 ] , [3\t,4 ] ] "),
        ("[1,4]", "[[1.0,20e-1,0.3E1,4]]"),
        ("[4,1]", "[[1],[2],[3],[4]]"),
    ] {
        let head = format!(r#"{{"inputs":[{{"data":{data},"datatype":"FP32","shape":{shape},"name":"x"}}]}}"#);
        let found = body(PATH, head.as_bytes()).json(&router).await;
        assert_eq!(found["outputs"][0]["data"], json!([1.0, 2.0, 3.0, 4.0]), "{head}");
    }
    let empty = r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[2,0],"data":[[],[]]}]}"#;
    let found = body(PATH, empty.as_bytes()).json(&router).await;
    assert_eq!(
        found["outputs"][0],
        json!({"name": "y", "datatype": "FP32", "shape": [2, 0], "data": []})
    );
}

#[tokio::test]
async fn what_json_lacks_is_written_as_bytes_alone() {
    let router = router();
    for value in [f32::NAN, f32::INFINITY] {
        let input = json!({"name": "x", "shape": [1, 1], "datatype": "FP32", "parameters": {"binary_data_size": 4}});
        let asked = |parameters: Json| {
            Asked::binary(
                PATH,
                &json!({"inputs": [input], "parameters": parameters}),
                &value.to_le_bytes(),
            )
        };
        let message = asked(json!({})).error(&router, StatusCode::BAD_REQUEST).await;
        let wanted =
            "the output \"y\" has numbers that JSON lacks (NaN or infinity): ask for it with the parameter binary_data";
        assert_eq!(message, wanted);
        let (_, bytes) = binary(&router, asked(json!({"binary_data_output": true}))).await;
        assert_eq!(bytes, value.to_le_bytes());
    }
    let bytes = strings(&[b"\xff"]);
    let input =
        json!({"name": "x", "shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": bytes.len()}});
    let asked = Asked::binary(&path("BYTES"), &json!({"inputs": [input]}), &bytes);
    let message = asked.error(&router, StatusCode::BAD_REQUEST).await;
    assert!(
        message.contains("has strings that are not UTF-8: ask for it"),
        "{message}"
    );
}

/// A request with one input, whose members are given as JSON text.
fn one(datatype: &str, shape: &str, rest: &str) -> String {
    format!(r#"{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":{shape},{rest}}}]}}"#)
}

#[tokio::test]
async fn a_stream_of_messages_ends_with_the_first_that_is_none() {
    let broken = [0, 0, 0, 0, 3, 0x0a, 0xff, 0xff];
    let asked = Request::post("/inference.GRPCInferenceService/ModelStreamInfer")
        .header("content-type", "application/grpc")
        .body(Body::from(broken.to_vec()));
    let mut answer = router().oneshot(asked.unwrap()).await.unwrap().into_body();
    let mut frames = 0;
    while poll_fn(|cx| Pin::new(&mut answer).poll_frame(cx)).await.is_some() {
        frames += 1;
        assert!(frames < 10, "the answer has no end");
    }
}

#[tokio::test]
async fn every_fault_is_named() {
    let router = router();
    let deep = format!("\"data\":{}", "[".repeat(3)) + "1" + &"]".repeat(3);
    let deepest = format!("\"data\":{}", "[".repeat(100_000)) + &"]".repeat(100_000);
    let many = format!(
        r#"{{"inputs":[{}]}}"#,
        vec![r#"{"name":"","shape":[],"datatype":"","data":[]}"#; 257].join(",")
    );
    let with_outputs = |outputs: &str| {
        let head = one("FP32", "[1,1]", r#""data":[1]"#);
        head.replace("}]}", &format!("}}],\"outputs\":{outputs}}}"))
    };
    let with_parameters = |parameters: &str| {
        let head = one("FP32", "[1,1]", r#""data":[1]"#);
        head.replace("}]}", &format!("}}],\"parameters\":{parameters}}}"))
    };
    let no_request = "the JSON is not that of an inference request: ";
    for (head, wanted) in [
        (
            String::new(),
            format!("{no_request}EOF while parsing a value at line 1 column 0"),
        ),
        (
            "{".to_owned(),
            format!("{no_request}EOF while parsing an object at line 1 column 1"),
        ),
        (
            "{}".to_owned(),
            format!("{no_request}missing field `inputs` at line 1 column 2"),
        ),
        (
            "7".to_owned(),
            format!("{no_request}invalid type: integer `7`, expected struct Head at line 1 column 1"),
        ),
        (
            r#"{"inputs":[]}"#.to_owned(),
            "the input \"x\" is missing; the model takes x".to_owned(),
        ),
        (
            r#"{"inputs":[],"inputs":[]}"#.to_owned(),
            format!("{no_request}duplicate field `inputs` at line 1 column 21"),
        ),
        (many, format!("{no_request}a list of more than 256 at line 1")),
        (
            one("FP32", "[1,1]", r#""data":[1]"#).replace("\"x\"", "\"z\""),
            "the model has no input \"z\"; it takes x".to_owned(),
        ),
        (
            one("FP31", "[1,1]", r#""data":[1]"#),
            "\"x\" is of datatype \"FP31\", which there is not: take one such as FP32".to_owned(),
        ),
        (
            one("INT32", "[1,1]", r#""data":[1]"#),
            "the input \"x\" is of datatype FP32, and this is INT32".to_owned(),
        ),
        (
            one("FP32", "[1]", r#""data":[1]"#),
            "the input \"x\" is of shape [-1, -1], and this is [1]".to_owned(),
        ),
        (
            one("FP32", "[1,1,1,1,1,1,1,1,1]", r#""data":[1]"#),
            format!("{no_request}a list of more than 8 at line 1"),
        ),
        (
            one("FP32", "[-1,1]", r#""data":[1]"#),
            format!("{no_request}invalid value: integer `-1`, expected usize"),
        ),
        (
            one("FP32", "[1e30,1]", r#""data":[1]"#),
            format!("{no_request}invalid type: floating point `1e+30`, expected usize"),
        ),
        (
            one("FP32", "[9223372036854775807,9]", r#""data":[1]"#),
            "the input \"x\": ".to_owned(),
        ),
        (
            one("FP32", "[1,1]", r#""datum":[1]"#),
            "\"x\" has no data: write them as data, or send bytes".to_owned(),
        ),
        (
            one("FP32", "[1,1]", r#""data":[1],"parameters":{"binary_data_size":4}"#),
            "\"x\" has both data and binary_data_size".to_owned(),
        ),
        (
            one("FP32", "[1,1]", r#""parameters":{"binary_data_size":4}"#),
            "\"x\" is said to have 4 bytes, and 0 are left behind the JSON (is Inference-Header-Content-Length"
                .to_owned(),
        ),
        (
            one("FP32", "[1,1]", r#""parameters":{"shared_memory_region":"r"}"#),
            "\"x\" is in shared memory, which this server does not read".to_owned(),
        ),
        (
            one("FP32", "[1,1]", r#""data":1"#),
            "the data of \"x\" is no list".to_owned(),
        ),
        (
            one("FP32", "[1,1]", r#""data":{"a":[1]}"#),
            "the data of \"x\" is no list".to_owned(),
        ),
        (
            one("FP32", "[1,1]", r#""data":[{"a":1}]"#),
            "the data of \"x\" has {\"a\":1} where FP32 takes a number in its range".to_owned(),
        ),
        (
            one("FP32", "[1,1]", r#""data":[null]"#),
            "the data of \"x\" has null where FP32 takes a number in its range".to_owned(),
        ),
        (
            one("FP32", "[1,1]", r#""data":["1"]"#),
            "the data of \"x\" has \"1\" where FP32 takes".to_owned(),
        ),
        (
            one("FP32", "[1,1]", r#""data":[1e39]"#),
            "the data of \"x\" has 1e39 where FP32 takes".to_owned(),
        ),
        (
            one("FP32", "[1,1]", r#""data":[NaN]"#),
            format!("{no_request}expected value at line 1"),
        ),
        (
            one("FP64", "[1,1]", r#""data":[-1e400]"#),
            "the data of \"x\" has -1e400 where FP64 takes".to_owned(),
        ),
        (
            one("FP16", "[1,1]", r#""data":[65520]"#),
            "the data of \"x\" has 65520 where FP16 takes".to_owned(),
        ),
        (
            one("BF16", "[1,1]", r#""data":[1e39]"#),
            "the data of \"x\" has 1e39 where BF16 takes".to_owned(),
        ),
        (
            one("INT8", "[1,1]", r#""data":[128]"#),
            "the data of \"x\" has 128 where INT8 takes an integer in its range".to_owned(),
        ),
        (
            one("UINT8", "[1,1]", r#""data":[-1]"#),
            "the data of \"x\" has -1 where UINT8 takes an integer in its range".to_owned(),
        ),
        (
            one("UINT32", "[1,1]", r#""data":[4294967296]"#),
            "the data of \"x\" has 4294967296 where UINT32 takes".to_owned(),
        ),
        (
            one("UINT64", "[1,1]", r#""data":[9223372036854775808]"#),
            "the data of \"x\" has 9223372036854775808, which is no uint64 that can be held in an i64".to_owned(),
        ),
        (
            one("UINT64", "[1,1]", r#""data":[18446744073709551616]"#),
            "the data of \"x\" has 18446744073709551616 where UINT64 takes an integer in its range".to_owned(),
        ),
        (
            one("INT64", "[1,1]", r#""data":[9223372036854775808]"#),
            "the data of \"x\" has 9223372036854775808 where INT64 takes an integer in its range".to_owned(),
        ),
        (
            one("INT64", "[1,1]", r#""data":[1.0]"#),
            "the data of \"x\" has 1.0 where INT64 takes an integer in its range".to_owned(),
        ),
        (
            one("BOOL", "[1,1]", r#""data":[1]"#),
            "the data of \"x\" has 1 where BOOL takes true or false".to_owned(),
        ),
        (
            one("BYTES", "[1,1]", r#""data":[1]"#),
            "the data of \"x\" has 1 where BYTES takes a string".to_owned(),
        ),
        (
            one("BYTES", "[1,1]", r#""data":["\ud800"]"#),
            "the data of \"x\" has \"\\ud800\" where BYTES takes a string".to_owned(),
        ),
        (
            one("FP32", "[1,2]", r#""data":[1]"#),
            "the data of \"x\" has a list of 1 where its shape [1, 2] has 2".to_owned(),
        ),
        (
            one("FP32", "[1,2]", r#""data":[1,2,3]"#),
            "the data of \"x\" has a list of 3 where its shape [1, 2] has 2".to_owned(),
        ),
        (
            one("FP32", "[2,2]", r#""data":[[1,2],[3]]"#),
            "the data of \"x\" has a list of 1 where its shape [2, 2] has 2".to_owned(),
        ),
        (
            one("FP32", "[2,2]", r#""data":[[1,2]]"#),
            "the data of \"x\" has a list of 1 where its shape [2, 2] has 2".to_owned(),
        ),
        (
            one("FP32", "[2,2]", r#""data":[[1,2],3]"#),
            "the data of \"x\" is nested otherwise than its shape [2, 2]".to_owned(),
        ),
        (
            one("FP32", "[2,2]", r#""data":[1,[2]]"#),
            "the data of \"x\" is nested more deeply than its shape [2, 2]".to_owned(),
        ),
        (
            one("FP32", "[1,1]", &deep),
            "the data of \"x\" is nested more deeply than its shape [1, 1]".to_owned(),
        ),
        (
            one("FP32", "[1,1]", &deepest),
            "the data of \"x\" is nested more deeply than its shape [1, 1]".to_owned(),
        ),
        (
            with_outputs(r#"[{"name":"z"}]"#),
            "the model has no output \"z\"; it gives y".to_owned(),
        ),
        (
            with_outputs(r#"[{"name":"y"},{"name":"y"}]"#),
            "the output \"y\" is asked for twice".to_owned(),
        ),
        (
            with_outputs(r#"[{"name":"y","parameters":{"shared_memory_region":"r"}}]"#),
            "\"y\" is in shared memory".to_owned(),
        ),
        (
            with_parameters(r#"{"priority":9}"#),
            "priority 9 is above the lowest, 3".to_owned(),
        ),
        (
            with_parameters(r#"{"priority":-9}"#),
            format!("{no_request}invalid value: integer `-9`, expected u64"),
        ),
        (
            with_parameters(r#"{"sequence_id":4}"#),
            "this model has no states, so it takes no sequence_id: leave it out".to_owned(),
        ),
        (
            with_parameters(r#"{"sequence_id":4.5}"#),
            format!("{no_request}a sequence_id is a number from 0 or a text at line 1"),
        ),
    ] {
        let datatype = head
            .split("\"datatype\":\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next())
            .unwrap_or("FP32");
        let is_fp32 = ["FP31", "INT32", ""].contains(&datatype);
        let path = if is_fp32 { PATH.to_owned() } else { path(datatype) };
        let message = body(&path, head.as_bytes())
            .error(&router, StatusCode::BAD_REQUEST)
            .await;
        assert!(
            message.starts_with(&wanted),
            "{head:.200}\n gave {message}\n not  {wanted}"
        );
    }
    let bytes = |datatype: &str, size: usize, behind: &[u8]| {
        let input =
            json!({"name": "x", "shape": [1, 2], "datatype": datatype, "parameters": {"binary_data_size": size}});
        Asked::binary(&path(datatype), &json!({"inputs": [input]}), behind)
    };
    for (asked, wanted) in [
        (
            bytes("FP32", 8, &[0; 9]),
            "1 bytes behind the JSON belong to no input: binary_data_size says how many are whose",
        ),
        (
            bytes("FP32", 9, &[0; 9]),
            "the input \"x\": float[1, 2] does not fit into 9 bytes of values",
        ),
        (
            bytes("FP32", 12, &[0; 8]),
            "\"x\" is said to have 12 bytes, and 8 are left behind the JSON",
        ),
        (
            bytes("BOOL", 2, &[0, 2]),
            "the input \"x\": a byte of bools is neither 0 nor 1",
        ),
        (
            bytes("UINT64", 16, &[255; 16]),
            "the input \"x\": 18446744073709551615 is no uint64 that can be held in an i64",
        ),
        (
            bytes("BYTES", 7, &[1, 0, 0, 0, 65, 1, 0]),
            "the input \"x\": the bytes end within string 1: each has its length before it",
        ),
        (
            bytes("BYTES", 4, &[255; 4]),
            "the input \"x\": the bytes end within string 0",
        ),
        (
            bytes("BYTES", 4, &[0; 4]),
            "the input \"x\": 1 strings do not fill shape [1, 2]",
        ),
    ] {
        let message = asked.error(&router, StatusCode::BAD_REQUEST).await;
        assert!(message.contains(wanted), "{message}\n not {wanted}");
    }
}

#[tokio::test]
async fn a_timeout_that_has_passed_is_said() {
    let slow = json!({"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]});
    let asked = Asked::post(PATH, &json!({"inputs": [slow], "parameters": {"timeout": 1}}));
    let message = asked.error(&router(), StatusCode::GATEWAY_TIMEOUT).await;
    assert_eq!(
        message,
        "the deadline would have passed before the model had the answer"
    );
    for timeout in [0, 60_000_000, u64::MAX] {
        let asked = Asked::post(PATH, &json!({"inputs": [slow], "parameters": {"timeout": timeout}}));
        asked.json(&router()).await;
    }
}

/// A valid request body, with the length of its head.
fn whole(datatype: usize, as_bytes: bool) -> (&'static str, Vec<u8>, usize) {
    let all = samples();
    let (datatype, data, bytes) = &all[datatype % all.len()];
    let mut input = json!({"name": "x", "shape": [1, 3], "datatype": datatype});
    match as_bytes {
        true => input["parameters"] = json!({"binary_data_size": bytes.len()}),
        false => input["data"] = data.clone(),
    }
    let parameters = json!({"priority": 1, "timeout": 60_000_000, "binary_data_output": as_bytes});
    let outputs = json!([{"name": "y", "parameters": {"binary_data": as_bytes}}]);
    let head = json!({"id": "a", "inputs": [input], "outputs": outputs, "parameters": parameters}).to_string();
    let length = head.len();
    let behind: &[u8] = if as_bytes { bytes } else { &[] };
    (datatype, [head.as_bytes(), behind].concat(), length)
}

/// Whatever is sent, no answer reports a fault of the server.
fn is_answered(router: &Router, asked: Asked) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (status, _, body) = runtime.block_on(asked.answer(router));
    prop_assert!(status.as_u16() < 500, "{status}: {}", text(&body));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bodies_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200), length in prop::option::of(0usize..220)) {
        let mut asked = body(PATH, &bytes);
        if let Some(length) = length {
            asked = asked.header("inference-header-content-length", &length.to_string());
        }
        is_answered(&router(), asked)?;
    }

    #[test]
    fn damaged_requests_are_answered(
        datatype in 0usize..14,
        as_bytes: bool,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 0..4),
        moved in -2isize..3,
    ) {
        let (datatype, mut bytes, length) = whole(datatype, as_bytes);
        for (at, byte, how) in damage {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                _ => bytes[at] = b"[]{}\",:-.0919eE"[byte as usize % 15],
            }
        }
        let length = length.saturating_add_signed(moved);
        let asked = body(&path(datatype), &bytes).header("inference-header-content-length", &length.to_string());
        is_answered(&router(), asked)?;
    }

    /// Floats read back unchanged.
    #[test]
    fn floats_survive_json(bits: u32, double: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let value = f32::from_bits(bits);
        if value.is_finite() {
            let input = json!({"name": "x", "shape": [1, 1], "datatype": "FP32", "parameters": {"binary_data_size": 4}});
            let asked = Asked::binary(PATH, &json!({"inputs": [input]}), &value.to_le_bytes());
            let (.., answer) = runtime.block_on(asked.answer(&router()));
            let number = text(&answer).split("\"data\":[").nth(1).unwrap().split(']').next().unwrap();
            prop_assert_eq!(number.parse::<f32>().unwrap().to_bits(), bits);
            // Through a double, as in Python.
            prop_assert_eq!((number.parse::<f64>().unwrap() as f32).to_bits(), bits);
            let head = one("FP32", "[1,1]", &format!("\"data\":[{number}]"));
            let asked = body(PATH, head.replacen('{', r#"{"parameters":{"binary_data_output":true},"#, 1).as_bytes());
            let (_, bytes) = runtime.block_on(binary(&router(), asked));
            prop_assert_eq!(bytes, value.to_le_bytes());
        }
        let value = f64::from_bits(double);
        if value.is_finite() {
            let head = one("FP64", "[1,1]", &format!("\"data\":[{value:e}]"));
            let found = runtime.block_on(body(&path("FP64"), head.as_bytes()).json(&router()));
            prop_assert_eq!(found["outputs"][0]["data"][0].as_f64().unwrap().to_bits(), double);
        }
    }
}
