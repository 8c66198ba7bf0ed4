//! Continues a text with a language model from a GGUF file: `cargo run --release --features formats,text --example
//! llama -- MODEL.gguf "Once upon a time" [TOKENS]`.

use std::io::Write;
use std::time::Instant;

use polygrad::formats::{Metadata, TensorFile, Value};
use polygrad::nn::models::{GenerateConfig, GgufTensor, GgufValue, Llama, llama_from_gguf_packed};
use polygrad::nn::skip_init;
use polygrad::prelude::*;
use polygrad::text::{Tokenizer, Writer};

/// The tokenizer described by the file's metadata.
fn tokenizer(metadata: &Metadata) -> Result<Tokenizer> {
    let list = |name: &str| {
        let list = metadata.get(&format!("tokenizer.ggml.{name}")).and_then(Value::as_list);
        list.ok_or_else(|| Error::invalid(format!("the file has no tokenizer.ggml.{name}")))
    };
    let texts = |name: &str| -> Result<Vec<String>> {
        Ok(list(name)?
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect())
    };
    let types: Vec<i64> = list("token_type")?.iter().filter_map(Value::as_i64).collect();
    let pre = metadata
        .get("tokenizer.ggml.pre")
        .and_then(Value::as_str)
        .unwrap_or("default");
    Tokenizer::from_gguf(pre, &texts("tokens")?, &texts("merges")?, &types)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, prompt, rest @ ..] = arguments.as_slice() else {
        return Err(Error::invalid("give a GGUF file and the beginning of a text"));
    };
    let count = rest.first().and_then(|count| count.parse().ok()).unwrap_or(64);
    let file = TensorFile::open(path)?;
    let metadata = file.metadata();
    let tokenizer = tokenizer(metadata)?;

    // Quantized weights stay packed if their type supports it.
    let tensor = |name: &str| match file.read_packed(name)? {
        Some(blocks) => Ok((name.to_owned(), GgufTensor::Packed(blocks))),
        None => Ok((name.to_owned(), GgufTensor::Plain(file.read(name)?))),
    };
    let tensors = file.keys().map(tensor).collect::<Result<Vec<_>>>()?;
    let (config, state, schemes) = llama_from_gguf_packed(tensors, |name| {
        let value = metadata.get(name)?;
        let number = value
            .as_i64()
            .map(GgufValue::Int)
            .or_else(|| value.as_f64().map(GgufValue::Float));
        number.or_else(|| Some(GgufValue::Text(value.as_str()?.to_owned())))
    })?;
    let device = Device::new("cpu")?;
    let mut model = skip_init(|| Llama::new(&config, &device))?;
    model.pack(&state, &schemes)?;
    model.load_state_dict(&state, true)?;
    drop(state);
    model.eval();
    eprintln!(
        "{} layers, {} of the weights packed",
        config.num_hidden_layers,
        schemes.len()
    );

    let begun = Instant::now();
    print!("{prompt}");
    Writer::new(&model, &tokenizer).stream(&[prompt], count, &GenerateConfig::greedy(), |_, piece| {
        print!("{piece}");
        std::io::stdout()
            .flush()
            .map_err(|e| Error::io("write", "stdout".as_ref(), e))
    })?;
    println!();
    eprintln!("{:.1} tokens/s", count as f64 / begun.elapsed().as_secs_f64());
    Ok(())
}
