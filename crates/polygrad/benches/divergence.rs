//! How far the probabilities of the next token by quantized GGUF files of a Llama are from those by one in f32:
//! `cargo bench -p polygrad --features formats,text --bench divergence -- F32.gguf TEXT FILE.gguf…`
//!
//! For each file it prints the mean Kullback-Leibler divergence of a token in nats, and how often both find the same
//! token likeliest: with the layers' inputs as they are, which shows what the weights lost, and with inputs rounded to
//! 8 bits, as in generation. Paths are absolute, since cargo runs it in the crate's folder.

use polygrad::formats::{Metadata, TensorFile, Value};
use polygrad::nn::models::{GgufTensor, GgufValue, Llama, llama_from_gguf_packed};
use polygrad::nn::{Module, skip_init};
use polygrad::prelude::*;
use polygrad::text::Tokenizer;

/// Tokens of each of the texts that are read.
const LENGTH: usize = 128;

/// The most texts.
const TEXTS: usize = 8;

fn value(metadata: &Metadata, name: &str) -> Option<GgufValue> {
    let value = metadata.get(name)?;
    let number = value.as_i64().map(GgufValue::Int);
    let number = number.or_else(|| value.as_f64().map(GgufValue::Float));
    number.or_else(|| Some(GgufValue::Text(value.as_str()?.to_owned())))
}

fn model(file: &TensorFile, device: &Device) -> Result<Llama> {
    let tensor = |name: &str| {
        let tensor = match file.read_packed(name)? {
            Some(blocks) => GgufTensor::Packed(blocks),
            None => GgufTensor::Plain(file.read(name)?),
        };
        Ok((name.to_owned(), tensor))
    };
    let tensors = file.keys().map(tensor).collect::<Result<Vec<_>>>()?;
    let (config, state, schemes) = llama_from_gguf_packed(tensors, |name| value(file.metadata(), name))?;
    let mut model = skip_init(|| Llama::new(&config, device))?;
    model.pack(&state, &schemes)?;
    model.load_state_dict(&state, true)?;
    model.eval();
    Ok(model)
}

fn tokens(file: &TensorFile, text: &str) -> Result<Vec<i64>> {
    let own = |name: &str| file.metadata().get(&format!("tokenizer.ggml.{name}"));
    let list = |name: &str| own(name).and_then(Value::as_list).unwrap_or_default();
    let texts = |name: &str| {
        list(name)
            .iter()
            .filter_map(|x| x.as_str().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let types: Vec<i64> = list("token_type").iter().filter_map(Value::as_i64).collect();
    let pre = own("pre").and_then(Value::as_str).unwrap_or("default");
    let tokenizer = Tokenizer::from_gguf(pre, &texts("tokens"), &texts("merges"), &types)?;
    tokenizer.encode(text, false)
}

/// The logarithms of probabilities after each token.
fn logs(model: &Llama, texts: &Tensor) -> Result<Tensor> {
    (0..texts.dims()[0])
        .map(|i| {
            model
                .forward(&texts.narrow(0, i, 1)?)?
                .log_softmax(-1)?
                .detach()
                .flatten(0, 1)
        })
        .collect::<Result<Vec<_>>>()
        .and_then(|parts| Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0))
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let [exact, text, files @ ..] = &args[..] else {
        println!("nothing to compare: give F32.gguf TEXT FILE.gguf…");
        return Ok(());
    };
    let device = Device::new("cpu")?;
    let text = std::fs::read_to_string(text).map_err(|e| Error::invalid(format!("{text}: {e}")))?;
    let exact = TensorFile::open(exact)?;
    let mut ids = tokens(&exact, &text)?;
    let count = (ids.len() / LENGTH).min(TEXTS);
    ids.truncate(count * LENGTH);
    let texts = Tensor::from_vec(ids, [count, LENGTH], &device)?;
    let wanted = no_grad(|| logs(&model(&exact, &device)?, &texts))?;
    let likeliest = wanted.argmax(-1)?;
    println!("{count} texts of {LENGTH} tokens");
    for file in files {
        let model = model(&TensorFile::open(file)?, &device)?;
        for (name, found) in [
            ("inputs as they are", logs(&model, &texts)?),
            ("inputs rounded", no_grad(|| logs(&model, &texts))?),
        ] {
            let divergence = wanted.exp()?.mul(&wanted.sub(&found)?)?.sum(-1)?.mean_all()?.item()?;
            let same = found
                .argmax(-1)?
                .eq(&likeliest)?
                .to_dtype(DType::F32)?
                .mean_all()?
                .item()?;
            println!(
                "{file}, {name}: {divergence:.5} nats a token, {:.1} % the same token",
                same * 100.0
            );
        }
    }
    Ok(())
}
