//! Spans sent by OTLP to a collector that the test implements.

mod running;
mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::response::Response;
use axum::routing::post;
use polygrad_onnx::graph::ElementType;
use polygrad_serve::{ServerOptions, Settings, otlp};
use running::{Running, one_answer, repository};
use support::identity;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_a_span_of_its_senders_trace() {
    let received = Arc::<Mutex<Vec<u8>>>::default();
    let collected = Arc::clone(&received);
    let export = post(async move |body: Bytes| -> Response {
        collected.lock().unwrap().extend_from_slice(&body);
        tonic::Status::ok("").into_http()
    });
    let path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route(path, export)).await });
    let (layer, exporter) = otlp("the-service", &endpoint).unwrap();
    tracing_subscriber::registry().with(layer).init();

    let models = repository(vec![("identity", identity(ElementType::F32))], &Settings::default());
    let server = Running::start(models, ServerOptions::default()).await;
    let mut stream = server.connect().await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let header = format!("Host: localhost\r\ntraceparent: 00-{trace}-00f067aa0ba902b7-01");
    let request = running::post("identity", 1.0).replace("Host: localhost", &header);
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(one_answer(&mut stream).await.unwrap().starts_with("HTTP/1.1 200"));
    // Waiting spans are sent when the exporter is dropped, which may take long.
    tokio::task::spawn_blocking(move || drop(exporter)).await.unwrap();
    let mut waited = 0;
    while received.lock().unwrap().is_empty() && waited < 100 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        waited += 1;
    }
    let received = received.lock().unwrap();
    let trace: Vec<u8> = (0..16)
        .map(|i| u8::from_str_radix(&trace[2 * i..2 * i + 2], 16).unwrap())
        .collect();
    assert!(contains(&received, &trace), "the sender's trace is missing");
    for part in ["the-service", "POST /v2/models/identity/infer", "url.path"] {
        assert!(contains(&received, part.as_bytes()), "{part}");
    }
}

#[tokio::test]
async fn an_address_that_is_none_is_refused() {
    let Err(error) = otlp::<tracing_subscriber::Registry>("x", "not an address") else {
        panic!("it was taken");
    };
    assert!(error.to_string().contains("not an address"), "{error}");
}
