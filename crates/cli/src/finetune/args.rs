//! The options of `polygrad finetune`.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::goal::Named;
use crate::args::{Every, Examples, count};
use crate::train::line::RunArgs;

#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    #[command(flatten)]
    pub(crate) every: Every,

    /// The folder of a Llama or a GPT-2 as the Hub has it: config.json, tokenizer.json and safetensors; to classify and
    /// to embed that of a BERT, or the ONNX file of an encoder, with config.json and tokenizer.json beside it; or the
    /// GGUF file of a Llama, whose quantized weights stay so under an adapter
    #[arg(value_name = "MODEL_DIR|FILE.gguf|FILE.onnx")]
    pub(crate) base: Option<PathBuf>,

    /// Task to train for [default: text]
    #[arg(long, value_enum)]
    pub(crate) task: Option<Named>,

    /// Training examples, one line of JSON each. For text: {"prompt": "…", "completion": "…"}, to learn the completion,
    /// or {"messages": [{"role": "user", "content": "…"}, …]}, to learn the assistant's messages; to classify: {"text":
    /// "…", "label": "…"}, optionally with "text_pair"; to embed: {"anchor": "…", "positive": "…"}, optionally with
    /// "negative"
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) data: Option<PathBuf>,

    /// Validation examples, in the same format [default: the last tenth of --data]
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) validation: Option<PathBuf>,

    /// Train an adapter instead of all weights, such as r=8,alpha=16,dropout=0.05,targets=q_proj,v_proj, with dora=true
    /// or rslora=true; a classification head is trained as well [default of each: r=8, alpha=8, no dropout, the queries
    /// and values, of an ONNX file all linear layers]
    #[arg(long, value_name = "OPTIONS", num_args = 0..=1, default_missing_value = "r=8", value_parser = lora)]
    pub(crate) lora: Option<Lora>,

    /// Maximum tokens per example; longer ones lose their end [default: the model's maximum, at most 512]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) context: Option<usize>,

    /// Pack several examples into each row of up to --context tokens, without attention between them; --batch-size then
    /// counts rows
    #[arg(long)]
    pub(crate) pack: bool,

    /// Stop when the validation loss has not improved for this many epochs, and keep the best model [default: train all
    /// epochs, and keep the last model]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) patience: Option<usize>,

    #[command(flatten)]
    pub(crate) examples: Examples,
}

impl RunArgs for TrainArgs {
    const ABOUT: &'static str = "Go on training a model of texts that others trained, or an adapter for it";
    const USAGE: &'static str =
        "polygrad finetune MODEL_DIR|FILE.gguf|FILE.onnx --data FILE.jsonl [--lora [OPTIONS]] [OPTIONS]
       polygrad train --resume RUN [OPTIONS]";

    fn every(&self) -> &Every {
        &self.every
    }

    fn shards(&self) -> bool {
        self.examples.shard_optimizer
    }
}

/// The options of an adapter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lora {
    pub(super) r: usize,
    pub(super) alpha: f64,
    pub(super) dropout: f64,
    /// Empty for the usual layers of the kind of model.
    pub(super) targets: Vec<String>,
    pub(super) dora: bool,
    pub(super) rslora: bool,
}

impl std::fmt::Display for Lora {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            r,
            alpha,
            dropout,
            targets,
            dora,
            rslora,
        } = self;
        write!(f, "r={r},alpha={alpha},dropout={dropout},dora={dora},rslora={rslora}")?;
        match targets.is_empty() {
            true => Ok(()),
            false => write!(f, ",targets={}", targets.join(",")),
        }
    }
}

/// Reads `r=8,targets=a,b`: a word without `=` is another value of the key before it.
fn lora(text: &str) -> Result<Lora, String> {
    let mut lora = Lora {
        r: 8,
        alpha: 8.0,
        dropout: 0.0,
        targets: Vec::new(),
        dora: false,
        rslora: false,
    };
    let (mut last, mut seen) = ("", Vec::new());
    for word in text.split(',') {
        let (key, value) = word.split_once('=').unwrap_or((last, word));
        let bad =
            || format!("{key}={value}: give r=8,alpha=16,dropout=0.05,targets=q_proj,v_proj,dora=true,rslora=true");
        // A word without `=` continues the list of targets.
        if word.contains('=') {
            if seen.contains(&key) {
                return Err(format!("{key} is given twice"));
            }
            seen.push(key);
        }
        match key {
            "targets" if !value.is_empty() => lora.targets.push(value.to_owned()),
            "r" => {
                lora.r = value
                    .parse()
                    .ok()
                    .filter(|r| (1..=1 << 12).contains(r))
                    .ok_or_else(bad)?
            }
            // With 0 nothing would be learnt.
            "alpha" => {
                lora.alpha = value
                    .parse()
                    .ok()
                    .filter(|x: &f64| *x > 0.0 && x.is_finite())
                    .ok_or_else(bad)?
            }
            "dropout" => lora.dropout = value.parse().ok().filter(|p| (0.0..1.0).contains(p)).ok_or_else(bad)?,
            "dora" => lora.dora = value.parse().map_err(|_| bad())?,
            "rslora" => lora.rslora = value.parse().map_err(|_| bad())?,
            _ => return Err(bad()),
        }
        last = if key == "targets" { key } else { "" };
    }
    Ok(lora)
}

#[cfg(test)]
mod tests {
    use super::lora;

    #[test]
    fn options_of_an_adapter_are_read() {
        let found = lora("r=4,alpha=2.5,targets=q_proj,v_proj,dora=true").unwrap();
        assert_eq!(
            found.to_string(),
            "r=4,alpha=2.5,dropout=0,dora=true,rslora=false,targets=q_proj,v_proj"
        );
        assert_eq!(lora("r=8").unwrap().targets, [""; 0]);
        for text in [
            "r=0",
            "r=x",
            "alpha=nan",
            "alpha=0",
            "alpha=-1",
            "r=8,r=4",
            "targets=q_proj,targets=v_proj",
            "dropout=1",
            "colour=red",
            "q_proj",
            "targets=",
            "r=8,q_proj",
        ] {
            assert!(lora(text).is_err(), "{text}");
        }
    }
}
