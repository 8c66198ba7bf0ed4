//! Several threads answer requests with one model, over TCP, while its weights are replaced:
//! `cargo run --release --example serve [REQUESTS]`.
//!
//! A request is a line of numbers, the answer the number of the class. Clients run in the same program.

#[path = "support/fashion_mnist.rs"]
mod fashion_mnist;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use polygrad::nn::Served;
use polygrad::nn::loss::cross_entropy;
use polygrad::nn::models::{Mlp, MlpConfig};
use polygrad::optim::Adam;
use polygrad::prelude::*;

const WORKERS: usize = 4;

fn new_model(device: &Device) -> Result<Mlp> {
    Mlp::new(&MlpConfig::new([784, 128, 10]), device)
}

fn load(path: &Path, device: &Device) -> Result<Mlp> {
    let model = new_model(device)?;
    model.load(path)?;
    model.eval();
    Ok(model)
}

/// Answers the lines of one client until it goes.
fn answer(stream: TcpStream, served: &Served<Mlp>, device: &Device) -> Result<()> {
    let io = |e| Error::io("talk to", Path::new("a client"), e);
    // Answers are short, and go out at once.
    stream.set_nodelay(true).map_err(io)?;
    let mut writer = stream.try_clone().map_err(io)?;
    for line in BufReader::new(stream).lines() {
        let pixels: Vec<f32> = line
            .map_err(io)?
            .split(' ')
            .filter_map(|number| number.parse().ok())
            .collect();
        // Once for each request: all its weights are of one file, whatever is replaced meanwhile.
        let model = served.current();
        let text = match Tensor::from_vec(pixels, [1, 784], device) {
            // Gradients are switched off for this thread alone, so each worker does it.
            Ok(image) => no_grad(|| model.forward(&image)?.argmax(1)?.item())?.to_string(),
            Err(error) => format!("bad request: {error}"),
        };
        writer.write_all(format!("{text}\n").as_bytes()).map_err(io)?;
    }
    Ok(())
}

/// Asks for the class of images, one by one, and counts the right answers.
fn ask(listener: &TcpListener, images: &[f32], labels: &[i64]) -> std::io::Result<usize> {
    let mut stream = TcpStream::connect(listener.local_addr()?)?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::new(stream.try_clone()?).lines();
    let mut right = 0;
    for (pixels, label) in images.chunks(784).zip(labels) {
        let mut line: String = pixels.iter().map(|pixel| format!("{pixel:.3} ")).collect();
        line.push('\n');
        stream.write_all(line.as_bytes())?;
        let answer = answers.next().ok_or(std::io::ErrorKind::UnexpectedEof)??;
        right += usize::from(answer == label.to_string());
    }
    Ok(right)
}

fn train(model: &Mlp, images: &Tensor, labels: &Tensor, epochs: usize) -> Result<()> {
    let mut optimizer = Adam::new(model.parameters(), 1e-3)?;
    for _ in 0..epochs {
        for rows in Tensor::randperm(labels.numel(), &images.device())?.split(64, 0)? {
            let logits = model.forward(&images.index_select(0, &rows)?)?;
            optimizer.backward_step(cross_entropy(&logits, &labels.index_select(0, &rows)?)?)?;
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let requests: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(4000);
    // One thread for each request: with more, small requests would wait for each other.
    let device = Device::new("cpu:threads=1")?;
    polygrad::manual_seed(0);
    let (images, labels) = fashion_mnist::load("train", &device)?;
    let (images, model) = (images.flatten(1, -1)?, new_model(&device)?);
    let (test, test_labels) = fashion_mnist::load("t10k", &device)?;
    let (test, test_labels) = (test.to_vec::<f32>()?, test_labels.to_vec::<i64>()?);

    let path = std::env::temp_dir().join(format!("served-{}.safetensors", std::process::id()));
    model.save(&path)?;
    let served = Served::new(load(&path, &device)?);
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| Error::io("listen on", "127.0.0.1".as_ref(), e))?;
    let open = AtomicUsize::new(2 * WORKERS);

    std::thread::scope(|scope| -> Result<()> {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while open
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                    .is_ok()
                {
                    let served = listener
                        .accept()
                        .map_err(|e| e.to_string())
                        .and_then(|(stream, _)| answer(stream, &served, &device).map_err(|e| e.to_string()));
                    served.unwrap_or_else(|e| eprintln!("{e}"));
                }
            });
        }
        for round in ["random weights", "trained weights"] {
            let start = Instant::now();
            let each = requests / WORKERS;
            let clients: Vec<_> = (test.chunks(784 * each).zip(test_labels.chunks(each)).take(WORKERS))
                .map(|(images, labels)| scope.spawn(|| ask(&listener, images, labels)))
                .collect();
            let right: usize = clients
                .into_iter()
                .map(|client| client.join().unwrap().unwrap_or(0))
                .sum();
            let (asked, seconds) = (each * WORKERS, start.elapsed().as_secs_f64());
            let rate = asked as f64 / seconds;
            println!("{round}: {right} of {asked} right, {rate:.0} requests a second");
            if round == "random weights" {
                // A new model takes the place of the old one as a whole.
                train(&model, &images, &labels, 1)?;
                model.save(&path)?;
                served.replace(load(&path, &device)?);
            }
        }
        Ok(())
    })?;
    std::fs::remove_file(&path).map_err(|e| Error::io("remove", &path, e))
}
