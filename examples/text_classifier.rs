//! Detects the language of a line of code from its bytes: `cargo run --release --example text_classifier [EPOCHS]`.
//!
//! The lines are those of this repository: Rust, Python, TOML and Markdown.

use std::path::{Path, PathBuf};

use polygrad::nn::{Conv1d, Conv1dConfig, Dropout, Embedding, Linear, loss::cross_entropy};
use polygrad::optim::Adam;
use polygrad::prelude::*;

const LANGUAGES: [(&str, &str); 4] = [("Rust", "rs"), ("Python", "py"), ("TOML", "toml"), ("Markdown", "md")];
const LENGTH: usize = 64;
const LINES: usize = 1500;

/// Convolutions over the bytes of a line, as in Kim, "Convolutional neural networks for sentence
/// classification" (2014).
#[derive(Module)]
struct TextCnn {
    embedding: Embedding,
    convs: Vec<Conv1d>,
    dropout: Dropout,
    head: Linear,
}

impl TextCnn {
    fn new(device: &Device) -> Result<Self> {
        let conv = |width: usize| Conv1dConfig::new(24, 48, width).padding_same().build(device);
        Ok(Self {
            embedding: Embedding::new(256, 24, device)?,
            convs: [2, 3, 5].into_iter().map(conv).collect::<Result<_>>()?,
            dropout: Dropout::new(0.2)?,
            head: Linear::new(3 * 48, LANGUAGES.len(), device)?,
        })
    }

    /// `[batch, length]` to `[batch, 4]`.
    fn forward(&self, bytes: &Tensor) -> Result<Tensor> {
        let x = self.embedding.forward(bytes)?.transpose(1, 2)?;
        let found = self.convs.iter().map(|conv| conv.forward(&x)?.relu()?.amax(2));
        let found = found.collect::<Result<Vec<_>>>()?;
        let found: Vec<&Tensor> = found.iter().collect();
        self.head.forward(&self.dropout.forward(&Tensor::cat(&found, 1)?)?)
    }
}

/// All files in a folder and its subfolders, sorted by name.
fn files(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut entries = std::fs::read_dir(folder)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(|entry| entry.path());
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_file() {
            found.push(entry.path());
        } else if !name.starts_with('.') && name != "target" {
            files(&entry.path(), found)?;
        }
    }
    Ok(())
}

/// At most 1,500 lines of each language; every other file is for training, the others are for testing.
fn lines(files: &[PathBuf], test: bool) -> std::io::Result<(Vec<String>, Vec<i64>)> {
    let (mut lines, mut labels) = (Vec::new(), Vec::new());
    for (label, (_, extension)) in (0..).zip(LANGUAGES) {
        let is_ours = |path: &&PathBuf| path.extension().is_some_and(|e| e == extension);
        let mut found = Vec::new();
        for path in files.iter().filter(is_ours).skip(usize::from(test)).step_by(2) {
            let text = std::fs::read_to_string(path)?;
            let long = text.lines().map(str::trim).filter(|line| line.len() > 10);
            found.extend(long.map(String::from));
        }
        let step = found.len().div_ceil(LINES).max(1);
        lines.extend(found.into_iter().step_by(step));
        labels.resize(lines.len(), label);
    }
    Ok((lines, labels))
}

/// The first 64 bytes of each line; short lines are padded with zeros.
fn encode(lines: &[String], device: &Device) -> Result<Tensor> {
    let padded = |line: &String| -> Vec<u8> { line.bytes().chain(std::iter::repeat(0)).take(LENGTH).collect() };
    let bytes = lines.iter().flat_map(padded);
    Tensor::from_vec(bytes.map(i64::from).collect(), [lines.len(), LENGTH], device)
}

/// How often each byte occurs in each line: `[batch, 256]`.
fn counts(bytes: &Tensor) -> Result<Tensor> {
    let zeros = Tensor::zeros((bytes.dims()[0], 256), &bytes.device())?;
    zeros.scatter_add(1, bytes, &Tensor::ones(bytes.shape(), &bytes.device())?)
}

fn accuracy(logits: &Tensor, labels: &Tensor) -> Result<f64> {
    Ok(100.0 * logits.argmax(1)?.eq(labels)?.to_dtype(DType::F32)?.mean_all()?.item()?)
}

fn main() -> Result<()> {
    let epochs = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(8);
    let device = Device::new("cpu")?;
    polygrad::manual_seed(0);
    let top = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut paths = Vec::new();
    files(top, &mut paths).map_err(|e| Error::io("list", top, e))?;
    let part = |test| -> Result<_> {
        let (lines, labels) = lines(&paths, test).map_err(|e| Error::io("read", top, e))?;
        Ok((encode(&lines, &device)?, Tensor::new(labels, &device)?))
    };
    let ((x, y), (test_x, test_y)) = (part(false)?, part(true)?);
    println!("{} lines to learn from, {} to test", y.numel(), test_y.numel());

    // The baseline knows how often each byte occurs, but not the order.
    let linear = Linear::new(256, LANGUAGES.len(), &device)?;
    let mut optimizer = Adam::new(linear.parameters(), 1e-2)?;
    let bags = counts(&x)?;
    for _ in 0..200 {
        optimizer.backward_step(cross_entropy(&linear.forward(&bags)?, &y)?)?;
    }
    let right = accuracy(&linear.forward(&counts(&test_x)?)?, &test_y)?;
    println!("a linear model of byte counts: {right:.1} %");

    let model = TextCnn::new(&device)?;
    let mut optimizer = Adam::new(model.parameters(), 3e-3)?;
    for epoch in 1..=epochs {
        model.train();
        for rows in Tensor::randperm(y.numel(), &device)?.split(64, 0)? {
            let loss = cross_entropy(&model.forward(&x.index_select(0, &rows)?)?, &y.index_select(0, &rows)?)?;
            optimizer.backward_step(loss)?;
        }
        model.eval();
        let logits = no_grad(|| model.forward(&test_x))?;
        println!("epoch {epoch}  test accuracy {:.1} %", accuracy(&logits, &test_y)?);
    }

    let lines = [
        "let mut total = 0;",
        "def total(values):",
        "version = \"1.2.0\"",
        "Every figure has its command.",
    ];
    let probabilities = no_grad(|| model.forward(&encode(&lines.map(String::from), &device)?))?.softmax(1)?;
    for (line, row) in lines.iter().zip(probabilities.unbind(0)?) {
        let (share, at) = row.max(0)?;
        let (language, _) = LANGUAGES[at.item()? as usize];
        println!("{line:32} {language} ({:.0} %)", 100.0 * share.item()?);
    }
    Ok(())
}
