//! Prints the ids of each line of a text, for scripts/compare_tokenizers.py:
//! `cargo run --release -p polygrad-text --example ids -- TOKENIZER TEXT`. The tokenizer is a tokenizer.json, or the
//! tokenizer metadata of a GGUF file as JSON: `pre`, `tokens`, `merges` and `token_type`.

use std::io::Write;

use polygrad_tensor::{Error, ErrorKind, Result};
use polygrad_text::Tokenizer;
use serde_json::Value;

fn main() -> Result<()> {
    let [tokenizer, text] = &std::env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err(Error::invalid("takes a tokenizer and a text"));
    };
    let read = |path: &String| std::fs::read_to_string(path).map_err(|e| Error::io("read", path.as_ref(), e));
    let (json, text) = (read(tokenizer)?, read(text)?);
    let parsed: Value = serde_json::from_str(&json).map_err(|e| Error::new(ErrorKind::Format, e.to_string()))?;
    let strings = |key: &str| -> Vec<String> {
        let list = parsed[key].as_array().into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let tokenizer = match parsed["pre"].as_str() {
        None => Tokenizer::from_json(&json)?,
        Some(pre) => {
            let kinds = parsed["token_type"].as_array().into_iter().flatten();
            let kinds: Vec<i64> = kinds.filter_map(Value::as_i64).collect();
            Tokenizer::from_gguf(pre, &strings("tokens"), &strings("merges"), &kinds)?
        }
    };
    let mut out = std::io::stdout().lock();
    let mut write = |text: String| writeln!(out, "{text}").map_err(|e| Error::io("write", "stdout".as_ref(), e));
    for line in text.split_inclusive('\n') {
        let ids = tokenizer.encode(line, true)?;
        write(ids.iter().map(i64::to_string).collect::<Vec<_>>().join(" "))?;
    }
    Ok(())
}
