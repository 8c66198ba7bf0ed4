//! The access log, which is shared by the whole process.

mod running;
mod support;

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polygrad_onnx::graph::ElementType;
use polygrad_serve::{ServerOptions, Settings};
use running::messages::float;
use running::{Running, one_answer, post, repository};
use support::identity;
use tokio::io::AsyncWriteExt;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Write::write(&mut *self.0.lock().unwrap(), bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// The next `count` lines.
    async fn next(&self, count: usize) -> Vec<String> {
        for _ in 0..500 {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            if text.lines().count() >= count {
                self.0.lock().unwrap().clear();
                return text.lines().map(str::to_owned).collect();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no {count} lines: {:?}", self.0.lock().unwrap());
    }
}

#[tokio::test]
async fn each_request_is_one_line() {
    let lines = Lines::default();
    let writer = lines.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
    let models = repository(vec![("identity", identity(ElementType::F32))], &Settings::default());
    let server = Running::start(models, ServerOptions::default()).await;

    let mut stream = server.connect().await;
    let request = post("identity", 1.0).replace("Host: localhost", "Host: localhost\r\nX-Request-Id: mine");
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = one_answer(&mut stream).await.unwrap();
    let body = |text: &str| text.split("\r\n\r\n").nth(1).unwrap().len();
    let line = lines.next(1).await.remove(0);
    for part in [
        "polygrad_serve::access",
        "method=POST",
        "path=\"/v2/models/identity/infer\"",
        "status=200",
        "id=\"mine\"",
        "model=\"identity\"",
        &format!("received={}", body(&request)),
        &format!("sent={}", body(&answer)),
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let us: u64 = line
        .split("us=")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..5_000_000).contains(&us), "{line}");

    let mut client = server.grpc().await;
    client.model_infer(float("identity", 0.0)).await.unwrap();
    let line = lines.next(1).await.remove(0);
    for part in [
        "path=\"/inference.GRPCInferenceService/ModelInfer\"",
        "grpc_status=\"0\"",
        "model=\"identity\"",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    client.model_infer(float("nowhere", 0.0)).await.unwrap_err();
    let line = lines.next(1).await.remove(0);
    assert!(line.contains("grpc_status=\"5\""), "{line}");
}
