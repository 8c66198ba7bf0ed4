//! The protocol over HTTP, address by address.

use std::io::{Read, Write};

use crate::common::{Asked, binary, body, router, router_with, text};
use crate::support::identity;
use axum::http::StatusCode;
use polygrad_onnx::graph::ElementType;
use polygrad_serve::{DATATYPES, Pool, Repository, Server, ServerOptions, Settings};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[tokio::test]
async fn server_and_models_say_what_they_are() {
    let router = router();
    let server = Asked::get("/v2").json(&router).await;
    assert_eq!(server["name"], "polygrad");
    assert!(
        server["extensions"]
            .as_array()
            .unwrap()
            .contains(&json!("binary_tensor_data"))
    );
    let found = Asked::get("/v2/models/add_sub").json(&router).await;
    let spec = |name: &str| json!({"name": name, "datatype": "INT32", "shape": [-1, 2]});
    let wanted = json!({
        "name": "add_sub", "versions": ["1"], "platform": "polygrad",
        "inputs": [spec("a"), spec("b")], "outputs": [spec("sum"), spec("difference")],
    });
    assert_eq!(found, wanted);
    assert_eq!(Asked::get("/v2/models/add_sub/versions/1").json(&router).await, wanted);
    let ready = json!({"name": "add_sub", "ready": true});
    for (page, wanted) in [
        ("/v2/health/live", json!({"live": true})),
        ("/v2/health/ready", json!({"ready": true})),
        ("/v2/models/add_sub/ready", ready.clone()),
        ("/v2/models/add_sub/versions/1/ready", ready),
    ] {
        assert_eq!(Asked::get(page).json(&router).await, wanted, "{page}");
    }
}

#[tokio::test]
async fn the_configuration_is_in_the_words_of_triton() {
    let router = router();
    let config = Asked::get("/v2/models/add_sub/config").json(&router).await;
    assert_eq!(config["max_batch_size"], 32);
    assert_eq!(
        config["input"][0],
        json!({"name": "a", "data_type": "TYPE_INT32", "dims": [2]})
    );
    assert_eq!(config["dynamic_batching"]["default_priority_level"], 2);
    let config = Asked::get("/v2/models/accumulate/config").json(&router).await;
    assert_eq!(config["input"][1]["optional"], true);
    let state = json!({"input_name": "state", "output_name": "next_state", "data_type": "TYPE_FP32", "dims": [1]});
    assert_eq!(config["sequence_batching"]["state"], json!([state]));
    let config = Asked::get("/v2/models/identity_bytes/config").json(&router).await;
    assert_eq!(config["output"][0]["data_type"], "TYPE_STRING");
}

#[tokio::test]
async fn an_input_with_a_default_may_be_left_out() {
    let router = router();
    let config = Asked::get("/v2/models/shifted/config").json(&router).await;
    assert_eq!(config["input"][0].get("optional"), None);
    assert_eq!(config["input"][1]["optional"], true);
    assert_eq!(config.get("sequence_batching"), None);
    let x = json!({"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]});
    let by = |shape: Json, data: Json| json!({"name": "by", "shape": shape, "datatype": "FP32", "data": data});
    let ask = |inputs: Json| Asked::post("/v2/models/shifted/infer", &json!({ "inputs": inputs }));
    let answer = ask(json!([x])).json(&router).await;
    assert_eq!(answer["outputs"][0]["data"], json!([11.0, 12.0, 13.0, 14.0]));
    let answer = ask(json!([x, by(json!([2]), json!([1, 2]))])).json(&router).await;
    assert_eq!(answer["outputs"][0]["data"], json!([2.0, 3.0, 5.0, 6.0]));
    let refused = |wanted: &'static str, inputs: Json| {
        let asked = ask(inputs);
        let router = &router;
        async move {
            let (status, _, said) = asked.answer(router).await;
            assert_eq!(status, StatusCode::BAD_REQUEST);
            assert!(text(&said).contains(wanted), "{}", text(&said));
        }
    };
    refused("shapes do not fit", json!([x, by(json!([3]), json!([1, 2, 3]))])).await;
    refused("\"x\\\" is missing", json!([by(json!([2]), json!([1, 2]))])).await;
}

#[tokio::test]
async fn inputs_and_outputs_go_as_text_and_as_bytes() {
    let router = router();
    let path = "/v2/models/identity_fp32/infer";
    let values = [1.5f32, -0.0, 0.25, 16_777_216.0];
    let as_text = json!({"inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[1.5, -0.0], [0.25, 16777216]]}]});
    let output = |rest: Json| {
        let mut output = json!({"name": "y", "datatype": "FP32", "shape": [2, 2]});
        output
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        json!({"model_name": "identity_fp32", "model_version": "1", "id": "7", "outputs": [output]})
    };
    let mut head = as_text.clone();
    head["id"] = json!("7");
    let found = Asked::post(path, &head).json(&router).await;
    assert_eq!(found, output(json!({"data": values})));
    // Bytes in, text out.
    let tensor = json!({"name": "x", "shape": [2, 2], "datatype": "FP32", "parameters": {"binary_data_size": 16}});
    let head = json!({"id": "7", "inputs": [tensor]});
    let found = Asked::binary(path, &head, &f32s(&values)).json(&router).await;
    assert_eq!(found, output(json!({"data": values})));
    // Bytes out, by either parameter.
    for wish in [
        json!({"parameters": {"binary_data_output": true}}),
        json!({"outputs": [{"name": "y", "parameters": {"binary_data": true}}]}),
    ] {
        let mut head = head.clone();
        head.as_object_mut().unwrap().extend(wish.as_object().unwrap().clone());
        let (json, bytes) = binary(&router, Asked::binary(path, &head, &f32s(&values))).await;
        assert_eq!(json, output(json!({"parameters": {"binary_data_size": 16}})));
        assert_eq!(bytes, f32s(&values));
    }
}

#[tokio::test]
async fn outputs_come_in_the_order_asked_for_and_each_in_its_form() {
    let router = router();
    let tensor = |name: &str, data: Json| json!({"name": name, "shape": [1, 2], "datatype": "INT32", "data": data});
    let head = json!({
        "inputs": [tensor("b", json!([3, 4])), tensor("a", json!([10, 20]))],
        "outputs": [{"name": "difference"}, {"name": "sum", "parameters": {"binary_data": true}}],
    });
    let (json, bytes) = binary(&router, Asked::post("/v2/models/add_sub/infer", &head)).await;
    assert_eq!(json["outputs"][0], tensor("difference", json!([7, 16])));
    assert_eq!(json["outputs"][1]["name"], "sum");
    assert_eq!(
        bytes,
        [13i32, 24].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>()
    );
    let one = json!({"inputs": head["inputs"], "outputs": [{"name": "sum"}]});
    let found = Asked::post("/v2/models/add_sub/versions/1/infer", &one)
        .json(&router)
        .await;
    assert_eq!(found["outputs"], json!([tensor("sum", json!([13, 24]))]));
}

#[tokio::test]
async fn the_largest_classes_are_given_by_name() {
    let head = json!({
        "inputs": [{"name": "x", "shape": [2, 3], "datatype": "FP32", "data": [0.5, 2.0, 1.0, 9.0, -1.0, 0.0]}],
        "outputs": [{"name": "y", "parameters": {"classification": 2}}],
    });
    let found = Asked::post("/v2/models/identity_fp32/infer", &head)
        .json(&router())
        .await;
    let data = json!(["2.000000:1", "1.000000:2", "9.000000:0", "0.000000:2"]);
    assert_eq!(
        found["outputs"][0],
        json!({"name": "y", "datatype": "BYTES", "shape": [2, 2], "data": data})
    );
}

#[tokio::test]
async fn sequences_keep_their_states() {
    let router = router();
    let step = |id: Json, x: f32, start: bool| {
        let input = json!({"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [x]});
        let parameters = json!({"sequence_id": id, "sequence_start": start, "sequence_end": false});
        json!({"inputs": [input], "parameters": parameters})
    };
    let path = "/v2/models/accumulate/infer";
    for id in [json!(7), json!("seven")] {
        for (x, start, sum) in [(1.0, true, 1.0), (2.0, false, 3.0), (4.0, false, 7.0), (5.0, true, 5.0)] {
            let found = Asked::post(path, &step(id.clone(), x, start)).json(&router).await;
            assert_eq!(
                found["outputs"].as_array().unwrap().len(),
                1,
                "the state stays at the server"
            );
            assert_eq!(found["outputs"][0]["data"], json!([sum]));
        }
    }
    let mut head = step(json!(7), 1.0, false);
    head["outputs"] = json!([{"name": "next_state"}]);
    let message = Asked::post(path, &head).error(&router, StatusCode::BAD_REQUEST).await;
    assert!(message.contains("the output \"next_state\" is a state"), "{message}");
    let message = Asked::post(path, &step(json!(8), 1.0, false))
        .error(&router, StatusCode::BAD_REQUEST)
        .await;
    assert!(message.contains("sequence 8 is not open"), "{message}");
}

#[tokio::test]
async fn bodies_are_compressed_both_ways() {
    let router = router();
    let values: Vec<f32> = (0..1000).map(|v| v as f32).collect();
    let tensor = json!({"name": "x", "shape": [1, 1000], "datatype": "FP32", "parameters": {"binary_data_size": 4000}});
    let head = json!({"inputs": [tensor], "parameters": {"binary_data_output": true}});
    for coding in ["gzip", "deflate"] {
        let mut asked = Asked::binary("/v2/models/identity_fp32/infer", &head, &f32s(&values));
        asked.body = compress(coding, &asked.body);
        let asked = asked
            .header("content-encoding", coding)
            .header("accept-encoding", coding);
        let (status, headers, body) = asked.answer(&router).await;
        assert_eq!(
            (status, &headers["content-encoding"]),
            (StatusCode::OK, &coding.parse().unwrap())
        );
        let body = expand(coding, &body);
        let length: usize = headers["inference-header-content-length"]
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(body[length..], f32s(&values));
    }
    // A client that accepts several codings does not ask for one.
    let asked = Asked::get("/v2").header("accept-encoding", "gzip, deflate");
    assert!(!asked.answer(&router).await.1.contains_key("content-encoding"));
}

fn compress(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let fast = flate2::Compression::fast();
    if coding == "gzip" {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), fast);
        encoder.write_all(bytes).unwrap();
        return encoder.finish().unwrap();
    }
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), fast);
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn expand(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    match coding {
        "gzip" => flate2::read::GzDecoder::new(bytes).read_to_end(&mut whole).unwrap(),
        _ => flate2::read::ZlibDecoder::new(bytes).read_to_end(&mut whole).unwrap(),
    };
    whole
}

#[tokio::test]
async fn a_large_body_comes_in_parts_and_goes_in_parts() {
    let router = router();
    let values: Vec<f32> = (0..200_000).map(|v| v as f32 * 0.5).collect();
    let tensor =
        json!({"name": "x", "shape": [1, 200_000], "datatype": "FP32", "parameters": {"binary_data_size": 800_000}});
    for pad in 0..4 {
        let head = json!({"id": "x".repeat(pad), "inputs": [tensor], "parameters": {"binary_data_output": true}});
        let mut asked = Asked::binary("/v2/models/identity_fp32/infer", &head, &f32s(&values));
        asked.parts = 7;
        let (json, bytes) = binary(&router, asked).await;
        assert_eq!(json["outputs"][0]["parameters"]["binary_data_size"], 800_000);
        assert_eq!(bytes, f32s(&values));
    }
}

#[tokio::test]
async fn limits_are_kept() {
    let options = ServerOptions {
        max_body_bytes: 1000,
        ..ServerOptions::default()
    };
    let router = router_with(options, Settings::default());
    let path = "/v2/models/identity_fp32/infer";
    let long = |parts: usize| {
        let mut asked = Asked::post(path, &json!("x".repeat(2000)));
        asked.parts = parts;
        asked
    };
    let mut packed = long(1).header("content-encoding", "gzip");
    packed.body = compress("gzip", &packed.body);
    assert!(packed.body.len() < 1000);
    for asked in [long(1), long(3), packed] {
        let message = asked.error(&router, StatusCode::PAYLOAD_TOO_LARGE).await;
        assert_eq!(
            message,
            "the body is longer than 1000 bytes, which is the limit: send fewer rows at once"
        );
    }
}

#[tokio::test]
async fn a_full_queue_is_said_before_the_body_is_read() {
    let full = Settings {
        max_queue: 0,
        ..Settings::default()
    };
    let router = router_with(ServerOptions::default(), full);
    let (status, headers, body) = Asked::post("/v2/models/identity_fp32/infer", &json!("no request"))
        .answer(&router)
        .await;
    assert_eq!(
        (status, &headers["retry-after"]),
        (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap())
    );
    assert!(text(&body).contains("0 requests wait for this model, which is its limit"));
    let statistics = Asked::get("/v2/models/identity_fp32/stats").json(&router).await;
    assert_eq!(statistics["model_stats"][0]["inference_count"], 0);
}

#[tokio::test]
async fn models_are_loaded_and_unloaded_only_with_leave() {
    let refused = Asked::post("/v2/repository/models/add_sub/unload", &json!({}));
    let message = refused.error(&router(), StatusCode::FORBIDDEN).await;
    assert!(message.contains("started without control"), "{message}");

    let options = ServerOptions {
        control: true,
        ..ServerOptions::default()
    };
    let router = router_with(options, Settings::default());
    let entry =
        |state: &str, reason: &str| json!({"name": "add_sub", "version": "1", "state": state, "reason": reason});
    let control = |what: &str| {
        Asked::post(
            &format!("/v2/repository/models/add_sub/{what}"),
            &json!({"parameters": {}}),
        )
    };
    let index = async |body: Json| {
        let index = Asked::post("/v2/repository/index", &body).json(&router).await;
        index
            .as_array()
            .unwrap()
            .iter()
            .find(|entry| entry["name"] == "add_sub")
            .cloned()
    };
    assert_eq!(index(json!({})).await, Some(entry("READY", "")));
    assert_eq!(control("unload").json(&router).await, json!({}));
    assert_eq!(index(json!({})).await, Some(entry("UNAVAILABLE", "unloaded")));
    assert_eq!(index(json!({"ready": true})).await, None);
    for page in ["ready", "config"] {
        let asked = Asked::get(&format!("/v2/models/add_sub/{page}"));
        let message = asked.error(&router, StatusCode::SERVICE_UNAVAILABLE).await;
        assert_eq!(message, "model \"add_sub\" is not ready");
    }
    assert_eq!(control("load").json(&router).await, json!({}));
    assert_eq!(index(json!({"ready": true})).await, Some(entry("READY", "")));
    let missing = Asked::post("/v2/repository/models/nobody/load", &json!({}));
    assert_eq!(
        missing.error(&router, StatusCode::NOT_FOUND).await,
        "there is no model \"nobody\""
    );
    let other = Asked::post(
        "/v2/repository/models/add_sub/load",
        &json!({"parameters": {"config": "{}"}}),
    );
    let message = other.error(&router, StatusCode::BAD_REQUEST).await;
    assert!(message.contains("the parameter \"config\" is not taken"), "{message}");
    let broken = Asked::post("/v2/repository/models/broken/load", &json!({}));
    let message = broken.error(&router, StatusCode::BAD_REQUEST).await;
    assert!(
        message.contains("version 1 of broken could not be loaded: "),
        "{message}"
    );
}

#[tokio::test]
async fn statistics_count_what_was_done() {
    let router = router();
    let input = json!({"name": "x", "shape": [3, 1], "datatype": "FP32", "data": [1, 2, 3]});
    for _ in 0..2 {
        Asked::post("/v2/models/identity_fp32/infer", &json!({"inputs": [input]}))
            .json(&router)
            .await;
    }
    Asked::post("/v2/models/identity_fp32/infer", &json!({"inputs": []}))
        .answer(&router)
        .await;
    let all = Asked::get("/v2/models/stats").json(&router).await;
    assert!(all["model_stats"].as_array().unwrap().len() > DATATYPES.len());
    for page in ["stats", "versions/1/stats"] {
        let found = Asked::get(&format!("/v2/models/identity_fp32/{page}"))
            .json(&router)
            .await;
        let found = &found["model_stats"][0];
        assert_eq!(
            (&found["inference_count"], &found["execution_count"]),
            (&json!(6), &json!(2))
        );
        assert_eq!(found["inference_stats"]["success"]["count"], 2);
        assert_eq!(found["inference_stats"]["fail"]["count"], 1);
        assert_eq!(found["batch_stats"][0]["batch_size"], 3);
    }
}

/// The paths of empty lists with this name.
fn empty_lists(json: &Json, name: &str) -> Vec<String> {
    match json {
        Json::Object(fields) => {
            let own = fields
                .iter()
                .filter(|(key, value)| *key == name && value == &&json!([]));
            let own = own.map(|(key, _)| key.clone()).collect::<Vec<_>>();
            let inner = fields.iter().flat_map(|(key, value)| {
                let found = empty_lists(value, name).into_iter();
                found.map(move |place| format!("{key}/{place}"))
            });
            own.into_iter().chain(inner).collect()
        }
        Json::Array(items) => items.iter().flat_map(|item| empty_lists(item, name)).collect(),
        _ => Vec::new(),
    }
}

/// Models named like parts of addresses either work or cannot be added.
#[tokio::test]
async fn names_that_are_parts_of_addresses_are_told_from_them() {
    let repository = Repository::new(Pool::new(1).unwrap());
    let add = |name: &str| repository.add(name, 1, || Ok(identity(ElementType::F32)), Settings::default());
    let error = add("stats").unwrap_err().to_string();
    assert!(
        error.contains("\"stats\"") && error.contains("/v2/models/stats"),
        "{error}"
    );
    let names = [
        "ready", "config", "infer", "versions", "load", "unload", "index", "health", "live", "models", "v2",
    ];
    for name in names {
        add(name).unwrap();
        repository.load(name).unwrap();
    }
    let router = Server::new(repository, ServerOptions::default()).router();
    let body = json!({"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [2]}]});
    for name in names {
        for middle in ["", "/versions/1"] {
            let path = format!("/v2/models/{name}{middle}");
            assert_eq!(Asked::get(&path).json(&router).await["name"], name);
            assert_eq!(Asked::get(&format!("{path}/ready")).json(&router).await["name"], name);
            assert_eq!(Asked::get(&format!("{path}/config")).json(&router).await["name"], name);
            let found = Asked::get(&format!("{path}/stats")).json(&router).await;
            assert_eq!(found["model_stats"][0]["name"], name);
            let answer = Asked::post(&format!("{path}/infer"), &body).json(&router).await;
            assert_eq!(answer["outputs"][0]["data"][0], 2.0);
        }
    }
    let all = Asked::get("/v2/models/stats").json(&router).await;
    assert_eq!(all["model_stats"].as_array().unwrap().len(), names.len());
}

/// The description has exactly the addresses and methods of the server.
#[tokio::test]
async fn the_description_is_that_of_the_addresses() {
    let router = router();
    let description = Asked::get("/openapi.json").json(&router).await;
    assert_eq!(
        empty_lists(&description, "required"),
        Vec::<String>::new(),
        "OpenAPI 3.0 has none"
    );
    let paths = description["paths"].as_object().unwrap();
    for (path, item) in paths {
        let page = path.replace("{model}", "identity_fp32").replace("{version}", "1");
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
            let (status, headers, body) = Asked::of(method, &page).answer(&router).await;
            let is_described = item.get(method.to_lowercase()).is_some();
            assert_eq!(
                status != StatusCode::METHOD_NOT_ALLOWED,
                is_described,
                "{method} {page}"
            );
            // None of these models generates text.
            let is_absent = path == "/v1/models/{model}" && method == "GET";
            assert_eq!(status == StatusCode::NOT_FOUND, is_absent, "{method} {page}");
            let described = &item[method.to_lowercase()]["responses"];
            let is_known = described.get(status.as_str()).is_some() || described.get("default").is_some();
            assert!(is_known || !is_described, "{method} {page} gives {status}");
            if !is_described {
                assert!(!headers["allow"].is_empty());
                let body: Json = serde_json::from_slice(&body).unwrap();
                let error = if page.starts_with("/v1/") {
                    &body["error"]["message"]
                } else {
                    &body["error"]
                };
                assert_eq!(error, &format!("{page} takes another method: see /openapi.json"));
            }
        }
    }
    for page in [
        "/v2/models",
        "/v2/models/identity_fp32/nothing",
        "/v2/systemsharedmemory/status",
        "/v2/x/y",
    ] {
        let message = Asked::get(page).error(&router, StatusCode::NOT_FOUND).await;
        assert_eq!(message, format!("there is no {page}: see /openapi.json"));
    }
}

#[tokio::test]
async fn the_page_is_there_unless_it_is_not_wanted() {
    let (status, headers, page) = Asked::get("/").answer(&router()).await;
    assert_eq!(
        (status, &headers["content-type"]),
        (StatusCode::OK, &"text/html; charset=utf-8".parse().unwrap())
    );
    // Nothing is loaded from elsewhere.
    for outside in ["http://", "https://", "//cdn", "@import"] {
        assert!(!text(&page).contains(outside), "{outside}");
    }
    let options = ServerOptions {
        page: false,
        ..ServerOptions::default()
    };
    let (status, ..) = Asked::get("/").answer(&router_with(options, Settings::default())).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    let router = router();
    let asked = |path: &str| Asked::get(path);
    for (path, status, wanted) in [
        (
            "/v2/models/nobody",
            StatusCode::NOT_FOUND,
            "there is no model \"nobody\"",
        ),
        (
            "/v2/models/add_sub/versions/3",
            StatusCode::NOT_FOUND,
            "there is no version 3 of model \"add_sub\"",
        ),
        (
            "/v2/models/add_sub/versions/two/stats",
            StatusCode::BAD_REQUEST,
            "a version is a number from 1, and this is \"two\"",
        ),
        (
            "/v2/models/%ff/stats",
            StatusCode::NOT_FOUND,
            "there is no model \"%ff\"",
        ),
    ] {
        assert_eq!(asked(path).error(&router, status).await, wanted);
    }
    let path = "/v2/models/identity_fp32/infer";
    let mut broken = body(path, b"{}");
    broken.broken = true;
    for (asked, wanted) in [
        (
            body(path, b"{}").header("inference-header-content-length", "many"),
            "Inference-Header-Content-Length is no number of bytes: \"many\"",
        ),
        (
            body(path, b"{}").header("inference-header-content-length", "3"),
            "Inference-Header-Content-Length is 3, and the body has 2 bytes",
        ),
        (
            body(path, b"{}").header("content-encoding", "br"),
            "Content-Encoding \"br\" is not known: send gzip, deflate or identity",
        ),
        (
            body(path, b"{}").header("content-encoding", "gzip"),
            "the body is no gzip, which Content-Encoding says that it is: ",
        ),
        (broken, "the body broke off: "),
    ] {
        let message = asked.error(&router, StatusCode::BAD_REQUEST).await;
        assert!(message.starts_with(wanted), "{message}");
    }
    let message = body("/v2/repository/index", b"[")
        .error(&router, StatusCode::BAD_REQUEST)
        .await;
    assert!(
        message.starts_with("the JSON cannot be read: EOF while parsing"),
        "{message}"
    );
}

/// A program's own router answers other addresses itself; a server only has this answer.
#[tokio::test]
async fn a_server_says_of_every_other_address_that_it_is_not_there() {
    let (status, ..) = Asked::get("/nowhere").answer(&router()).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let server = Server::new(Repository::new(Pool::new(1).unwrap()), ServerOptions::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    tokio::spawn(async move { server.serve(listener, std::future::pending()).await });
    let request = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    assert!(
        answer.ends_with("{\"error\":\"there is no /nowhere: see /openapi.json\"}"),
        "{answer}"
    );
}
