//! Trains a model and serves it, beside the program's own pages, to clients: `cargo run --release -p polygrad-serve
//! --example serve [REQUESTS]`.
//!
//! The served model maps images to the names of their classes: a graph computes the numbers, and `impl Model` does the
//! rest.

#[path = "support/fashion_mnist.rs"]
mod fashion_mnist;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::routing::get;
use polygrad::nn::loss::cross_entropy;
use polygrad::nn::models::{Mlp, MlpConfig};
use polygrad::onnx::graph::{Dim, ElementType};
use polygrad::onnx::{Export, ExportOnnx, Input, OnnxModel, Options};
use polygrad::optim::Adam;
use polygrad::prelude::*;
use polygrad::serve::{
    Model, OnnxService, Pool, Repository, Server, ServerOptions, Settings, Signature, Strings, TensorSpec, Value,
};

const NAMES: &str = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot";
const CLIENTS: usize = 4;

fn name(class: usize) -> &'static str {
    NAMES.split(',').nth(class).unwrap_or_default()
}

/// Maps images to class names.
struct Named {
    logits: OnnxService,
    signature: Signature,
}

impl Named {
    fn new(logits: OnnxService) -> Self {
        let names = TensorSpec::new("names", ElementType::String, [Dim::Named("batch".to_owned())]);
        let mut signature = Signature {
            outputs: vec![names],
            ..logits.signature().clone()
        };
        // Images of several requests are batched.
        signature.batch_by_name();
        Self { logits, signature }
    }
}

impl Model for Named {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, inputs: &[Value]) -> Result<Vec<Value>> {
        let logits = self.logits.run(inputs)?;
        let logits = logits[0].tensor()?.host().to_vec::<f32>()?;
        let largest = |row: &[f32]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0);
        let names: Vec<_> = logits.chunks(10).map(|row| name(largest(row)).into()).collect();
        Ok(vec![Value::Strings(Strings::new([names.len()].into(), names)?)])
    }
}

fn train(model: &Mlp, images: &Tensor, labels: &Tensor) -> Result<()> {
    let mut optimizer = Adam::new(model.parameters(), 1e-3)?;
    for rows in Tensor::randperm(labels.numel(), &images.device())?.split(64, 0)? {
        let logits = model.forward(&images.index_select(0, &rows)?)?;
        optimizer.backward_step(cross_entropy(&logits, &labels.index_select(0, &rows)?)?)?;
    }
    Ok(())
}

/// Requests the names of images, one by one over one connection, and counts the correct answers.
fn ask(address: SocketAddr, images: &[f32], labels: &[i64]) -> std::io::Result<usize> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let mut right = 0;
    for (pixels, &label) in images.chunks(784).zip(labels) {
        let body = format!(r#"{{"inputs":[{{"name":"images","shape":[1,784],"datatype":"FP32","data":{pixels:?}}}]}}"#);
        let head = format!(
            "POST /v2/models/fashion/infer HTTP/1.1\r\nHost: here\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes())?;
        let (mut line, mut length) = (String::new(), 0);
        // An empty line ends the headers.
        while answers.read_line(&mut line)? > 2 {
            if let Some(count) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = count.trim().parse().unwrap_or(0);
            }
            line.clear();
        }
        let mut body = vec![0; length];
        answers.read_exact(&mut body)?;
        right += usize::from(String::from_utf8_lossy(&body).contains(&format!("[\"{}\"]", name(label as usize))));
    }
    Ok(right)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let requests: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(4000);
    // The service has its own thread pool, with which further threads of the device would compete.
    let device = Device::new("cpu:threads=1")?;
    polygrad::manual_seed(0);
    let (images, labels) = fashion_mnist::load("train", &device)?;
    let (test, test_labels) = fashion_mnist::load("t10k", &device)?;
    let model = Mlp::new(&MlpConfig::new([784, 128, 10]), &device)?;
    train(&model, &images.flatten(1, -1)?, &labels)?;

    // The graph has its own copy of the weights, so training may continue meanwhile.
    let export = Export::new([Input::new("images", DType::F32, ("batch", 784))]).outputs(["logits"]);
    let graph = model.record_onnx(&export, |x| model.forward(&x[0]))?;
    let load = move || {
        let model = OnnxModel::from_graph(&graph, &device, Options::default())?;
        Ok(Arc::new(Named::new(OnnxService::new(model)?)) as Arc<dyn Model>)
    };
    let repository = Repository::new(Pool::new(2)?);
    repository.add("fashion", 1, load, Settings::default())?;
    repository.load("fashion")?;
    let server = Server::new(repository, ServerOptions::default());
    let app = Router::new().route("/about", get(async || "it tells clothes apart"));

    let runtime = tokio::runtime::Runtime::new()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    runtime.spawn(axum::serve(listener, app.merge(server.router())).into_future());

    let (test, test_labels) = (test.to_vec::<f32>()?, test_labels.to_vec::<i64>()?);
    let each = (requests / CLIENTS).max(1);
    let start = Instant::now();
    let right: usize = std::thread::scope(|scope| {
        let parts = test.chunks(784 * each).zip(test_labels.chunks(each));
        let client = |(images, labels)| scope.spawn(move || ask(address, images, labels));
        let clients: Vec<_> = parts.take(CLIENTS).map(client).collect();
        let answers = clients.into_iter().map(|client| client.join().unwrap());
        answers.sum::<std::io::Result<_>>()
    })?;
    let (asked, seconds) = (each * CLIENTS, start.elapsed().as_secs_f64());
    let (rate, chance) = (asked as f64 / seconds, asked / 10);
    println!("{right} of {asked} right, {rate:.0} requests a second; chance gives {chance}");
    Ok(())
}
