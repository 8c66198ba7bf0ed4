//! Compares sentences by meaning, with embeddings from a BERT model of the Hub, such as all-MiniLM-L6-v2: `cargo run
//! --release --features text --example embed -- FOLDER "a sentence" "another" …`, where FOLDER contains its
//! config.json, tokenizer.json and model.safetensors.

use std::path::PathBuf;

use polygrad::nn::models::{Bert, BertConfig, BertInput, ModelConfig};
use polygrad::nn::skip_init;
use polygrad::prelude::*;
use polygrad::text::Tokenizer;

/// The mean of the vectors of each text's tokens, scaled to length 1.
fn embeddings(model: &Bert, tokenizer: &Tokenizer, texts: &[&str], device: &Device) -> Result<Tensor> {
    let batch = tokenizer.batch(texts, &tokenizer.batch_config(), device)?;
    let tokens = no_grad(|| model.forward(BertInput::new(&batch.ids).attention_mask(&batch.attention_mask)))?;
    let counts = batch.attention_mask.unsqueeze(2)?.to_dtype(DType::F32)?;
    let mean = (tokens.mul(&counts)?.sum(1)? / counts.sum(1)?)?;
    let length = mean.square()?.sum_keepdim(1)?.sqrt()?;
    mean / length
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, texts @ ..] = arguments.as_slice() else {
        return Err(Error::invalid("give the folder of a model, and sentences"));
    };
    let file = |name: &str| PathBuf::from(folder).join(name);
    let device = Device::new("cpu")?;
    let tokenizer = Tokenizer::from_file(file("tokenizer.json"))?;
    let config = BertConfig::load(file("config.json"))?;
    let model = skip_init(|| Bert::new(&config, &device))?;
    model.load(file("model.safetensors"))?;
    model.eval();

    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let vectors = embeddings(&model, &tokenizer, &texts, &device)?;
    println!("{}", vectors.narrow(1, 0, 4)?);
    println!("similarities, from -1 to 1:\n{}", vectors.matmul(&vectors.t()?)?);
    Ok(())
}
