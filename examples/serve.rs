//! A model is trained and served, beside pages of the program's own, and clients ask it:
//! `cargo run --release -p polygrad-serve --example serve [REQUESTS]`.
//!
//! The served model takes pictures and gives the names of their classes: a graph does the numbers, `impl Model` the rest.

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

const NAMES: [&str; 10] = [
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
];
const CLIENTS: usize = 4;

/// From pictures to names.
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
        // Pictures of several requests are joined.
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
        let name = |row: &[f32]| {
            let largest = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]));
            NAMES[largest.unwrap_or(0)].into()
        };
        let names: Vec<_> = logits.chunks(NAMES.len()).map(name).collect();
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

/// Asks for the names of images, one by one over one connection, and counts the right answers.
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
        while {
            line.clear();
            answers.read_line(&mut line)? > 2
        } {
            if let Some(count) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = count.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        answers.read_exact(&mut body)?;
        right += usize::from(String::from_utf8_lossy(&body).contains(&format!("[\"{}\"]", NAMES[label as usize])));
    }
    Ok(right)
}

fn main() -> Result<()> {
    let requests: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(4000);
    // Threads are the pool's: more of the device would wait for each other.
    let device = Device::new("cpu:threads=1")?;
    polygrad::manual_seed(0);
    let (images, labels) = fashion_mnist::load("train", &device)?;
    let (test, test_labels) = fashion_mnist::load("t10k", &device)?;
    let model = Mlp::new(&MlpConfig::new([784, 128, 10]), &device)?;
    train(&model, &images.flatten(1, -1)?, &labels)?;

    // The model may go on learning meanwhile: the graph has weights of its own.
    let export = Export::new([Input::new("images", DType::F32, ("batch", 784))]).outputs(["logits"]);
    let graph = model.record_onnx(&export, |x| model.forward(&x[0]))?;
    let load = move || {
        let model = OnnxModel::from_graph(&graph, &device, Options::default())?;
        Ok(Arc::new(Named::new(OnnxService::new(model)?)) as Arc<dyn Model>)
    };
    let repository = Repository::new(Pool::new(2)?);
    repository.add("fashion", 1, load, Settings::default())?;
    repository
        .load("fashion")
        .map_err(|failure| Error::invalid(failure.message))?;
    let options = ServerOptions {
        page: false,
        ..ServerOptions::default()
    };
    let app = Router::new()
        .route("/", get(async || "pictures at /v2/models/fashion/infer"))
        .merge(Server::new(repository, options).router());

    let io = |error| Error::io("serve", "127.0.0.1".as_ref(), error);
    let runtime = tokio::runtime::Runtime::new().map_err(io)?;
    let listener = runtime
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .map_err(io)?;
    let address = listener.local_addr().map_err(io)?;
    runtime.spawn(axum::serve(listener, app).into_future());

    let (test, test_labels) = (test.to_vec::<f32>()?, test_labels.to_vec::<i64>()?);
    let each = requests / CLIENTS;
    let start = Instant::now();
    let right: usize = std::thread::scope(|scope| {
        let parts = test
            .chunks(784 * each.max(1))
            .zip(test_labels.chunks(each.max(1)))
            .take(CLIENTS);
        let clients: Vec<_> = parts
            .map(|(images, labels)| scope.spawn(move || ask(address, images, labels)))
            .collect();
        clients
            .into_iter()
            .map(|client| client.join().unwrap().unwrap_or(0))
            .sum()
    });
    let asked = each * CLIENTS;
    let rate = asked as f64 / start.elapsed().as_secs_f64();
    println!(
        "{right} of {asked} right, {rate:.0} requests a second; chance gives {}",
        asked / 10
    );
    Ok(())
}
