//! Bugs of MLServer's batching, by their issue numbers: none of them may exist here.

use crate::common::{Asked, binary, router, router_with};
use futures_util::future::join_all;
use polygrad_serve::{ServerOptions, Settings};
use serde_json::{Value as Json, json};

const ADD_SUB: &str = "/v2/models/add_sub/infer";
const IDENTITY: &str = "/v2/models/identity_fp32/infer";

fn add_sub(a: i32) -> Json {
    let tensor =
        |name: &str, value: i32| json!({"name": name, "shape": [1, 2], "datatype": "INT32", "data": [value, value]});
    json!({"inputs": [tensor("a", a), tensor("b", 1)]})
}

fn identity(rows: usize, width: usize, first: usize) -> (Json, Vec<usize>) {
    let data: Vec<usize> = (first..first + rows * width).collect();
    let tensor = json!({"name": "x", "shape": [rows, width], "datatype": "FP32", "data": data});
    (json!({"inputs": [tensor]}), data)
}

/// The number of requests computed, and of runs.
async fn runs(router: &axum::Router, model: &str) -> (u64, u64) {
    let stats = Asked::get(&format!("/v2/models/{model}/stats")).json(router).await;
    let stats = &stats["model_stats"][0];
    let count = |name: &str| stats[name].as_u64().unwrap();
    (
        stats["inference_stats"]["success"]["count"].as_u64().unwrap(),
        count("execution_count"),
    )
}

/// 1541: the parameters of joined requests were lost.
#[tokio::test]
async fn bug_1541_each_request_keeps_its_parameters_and_id() {
    let router = router();
    let answers = join_all((0..40).map(|i| {
        let mut asked = add_sub(i);
        asked["id"] = json!(format!("request {i}"));
        asked["parameters"] = json!({"binary_data_output": i % 2 == 0, "priority": 1 + i % 3});
        let router = &router;
        async move {
            let asked = Asked::post(ADD_SUB, &asked);
            match i % 2 {
                0 => binary(router, asked).await.0,
                _ => asked.json(router).await,
            }
        }
    }));
    for (i, answer) in answers.await.into_iter().enumerate() {
        assert_eq!(answer["id"], format!("request {i}"));
        assert_eq!(answer["outputs"][0].get("data").is_some(), i % 2 == 1);
    }
    let (requests, runs) = runs(&router, "add_sub").await;
    assert!(requests == 40 && runs < 20, "{requests} requests in {runs} runs");
}

/// 514: all outputs were returned, whichever were requested.
#[tokio::test]
async fn bug_514_each_request_gets_the_outputs_that_it_asked_for() {
    let router = router();
    let wishes = [&["sum"][..], &["difference"], &["difference", "sum"], &[]];
    let answers = join_all((0..40).map(|i| {
        let mut asked = add_sub(i);
        let wish = wishes[i as usize % 4];
        asked["outputs"] = wish.iter().map(|name| json!({"name": name})).collect();
        let router = &router;
        async move { Asked::post(ADD_SUB, &asked).json(router).await }
    }));
    for (i, answer) in answers.await.into_iter().enumerate() {
        let names: Vec<_> = answer["outputs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|output| output["name"].clone())
            .collect();
        let wanted = if i % 4 == 3 {
            &["sum", "difference"][..]
        } else {
            wishes[i % 4]
        };
        assert_eq!(names, wanted);
        let sum = answer["outputs"]
            .as_array()
            .unwrap()
            .iter()
            .find(|output| output["name"] == "sum");
        assert!(sum.is_none_or(|sum| sum["data"] == json!([i + 1, i + 1])));
    }
}

/// 1306: some of the joined requests got empty answers.
#[tokio::test]
async fn bug_1306_no_request_is_answered_with_nothing() {
    let router = router_with(
        ServerOptions::default(),
        Settings {
            max_batch_size: 7,
            max_queue: 1000,
            ..Settings::default()
        },
    );
    let answers = join_all((0..500).map(|i| {
        let (asked, data) = identity(1 + i % 9, 2, i);
        let router = &router;
        async move { (Asked::post(IDENTITY, &asked).json(router).await, data) }
    }));
    for (answer, data) in answers.await {
        let found: Vec<f64> = serde_json::from_value(answer["outputs"][0]["data"].clone()).unwrap();
        assert_eq!(found, data.iter().map(|&v| v as f64).collect::<Vec<_>>());
    }
}

/// 1718: the results of requests of several shapes were split by the shape of one of them.
#[tokio::test]
async fn bug_1718_outputs_are_taken_apart_by_each_requests_own_rows_and_shape() {
    let router = router();
    let answers = join_all((0..60).map(|i| {
        let (rows, width) = (1 + i % 4, 1 + i % 3);
        let (asked, data) = identity(rows, width, 10 * i);
        let router = &router;
        async move { (Asked::post(IDENTITY, &asked).json(router).await, rows, width, data) }
    }));
    for (answer, rows, width, data) in answers.await {
        let output = &answer["outputs"][0];
        assert_eq!(output["shape"], json!([rows, width]));
        let found: Vec<f64> = serde_json::from_value(output["data"].clone()).unwrap();
        assert_eq!(found, data.iter().map(|&v| v as f64).collect::<Vec<_>>());
    }
}

/// 1826: a request with many rows was split and computed in pieces.
#[tokio::test]
async fn bug_1826_a_large_request_is_computed_at_once() {
    let router = router();
    let (_, before) = runs(&router, "identity_fp32").await;
    let (asked, _) = identity(1000, 2, 0);
    let answer = Asked::post(IDENTITY, &asked).json(&router).await;
    assert_eq!(answer["outputs"][0]["shape"], json!([1000, 2]));
    let (_, after) = runs(&router, "identity_fp32").await;
    assert_eq!(after - before, 1);
}
