//! Models recorded as graphs.

use std::path::Path;

use polygrad_core::{AnyBackend, DType, Error, Result};
use polygrad_formats::TensorFile;
use polygrad_nn::models::{
    Bert, BertClassifier, BertConfig, BertInput, CausalLm, Gpt2, Gpt2Config, Llama, LlamaConfig, ModelConfig, ResNet,
    ResNetConfig, T5, T5Config, VisionTransformer, VitConfig,
};
use polygrad_nn::{Module, StateDict, skip_init};
use polygrad_onnx::graph::Graph;
use polygrad_onnx::{Export, ExportOnnx, ForwardOutputs, Input};
use polygrad_tensor::{Device, Tensor};
use polygrad_text::Pooling;
use serde_json::Value;

use super::text::Texts;

/// The most tokens of a model with unlimited positions.
const ENDLESS: usize = 1 << 20;

/// Which of two texts each token belongs to; the first by default.
pub(super) const TYPES: &str = "token_type_ids";

/// The output with a vector for each text.
pub(super) const VECTORS: &str = "sentence_embedding";

pub(super) struct Recorded {
    pub(super) graph: Graph,
    /// How texts become its inputs, if it supports that.
    pub(super) texts: Option<Texts>,
}

pub(super) struct Folder<'a> {
    pub(super) path: &'a Path,
    pub(super) config: Value,
    /// The device of the weights.
    device: Device,
}

/// The graph of a folder's model, whose weights are temporarily on `device`.
pub(super) fn record(path: &Path, device: &Device) -> Result<Recorded> {
    let folder = Folder::open(path, device)?;
    let graph = match folder.kind() {
        "bert" => return folder.bert(),
        "gpt2" => folder.gpt2(),
        "llama" => folder.llama(),
        "t5" => folder.t5(),
        "resnet" => folder.resnet(),
        "vit" => folder.vit(),
        kind => Err(Error::unsupported(format!("config.json has the model_type {kind:?}"))
            .with_hint("one of: bert, gpt2, llama, t5, resnet, vit; other models are served as ONNX files")),
    };
    Ok(Recorded {
        graph: graph?,
        texts: None,
    })
}

pub(super) fn read_json(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    serde_json::from_str(&text)
        .map_err(|e| Error::new(polygrad_core::ErrorKind::Format, format!("{}: {e}", path.display())))
}

impl<'a> Folder<'a> {
    pub(super) fn open(path: &'a Path, device: &Device) -> Result<Self> {
        Ok(Self {
            path,
            config: read_json(&path.join("config.json"))?,
            device: device.clone(),
        })
    }

    pub(super) fn kind(&self) -> &str {
        self.config
            .get("model_type")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn config<C: ModelConfig>(&self) -> Result<C> {
        C::load(self.path.join("config.json"))
    }

    /// The config of a model whose config type rejects unknown fields.
    fn own_config<C: ModelConfig>(&self) -> Result<C> {
        let mut config = self.config.clone();
        if let Some(fields) = config.as_object_mut() {
            fields.remove("model_type");
            fields.remove("architectures");
        }
        C::from_json(&config.to_string())
    }

    fn state(&self) -> Result<StateDict> {
        let files = ["model.safetensors", "pytorch_model.bin"].map(|name| self.path.join(name));
        let found = files.iter().find(|file| file.is_file());
        TensorFile::open(found.map_or(self.path, |file| file.as_path()))?.state_dict()
    }

    /// A model with its weights. Files of the Hub may have the parameter names of the base model or those of the whole
    /// model.
    fn filled<M: Module<AnyBackend>>(&self, prefix: &str, build: impl FnOnce(&Device) -> Result<M>) -> Result<M> {
        let model = skip_init(|| build(&self.device))?;
        let state = self.state()?;
        let (added, stripped) = (prefixed(&state, prefix), without_prefix(&state, prefix));
        let mut missing = None;
        for state in [state, added, stripped] {
            let report = model.load_state_dict(&state, false)?;
            match report.missing.into_iter().next() {
                None => {
                    model.eval();
                    return Ok(model);
                }
                Some(name) => drop(missing.get_or_insert(name)),
            }
        }
        let missing = missing.unwrap_or_default();
        Err(Error::new(
            polygrad_core::ErrorKind::StateDict,
            format!("the weights have no {missing}"),
        )
        .with_hint("take config.json and the weights of the same model"))
    }

    fn bert(&self) -> Result<Recorded> {
        let config: BertConfig = self.config()?;
        if self.has_architecture("ForSequenceClassification") {
            return classifier(&self.filled("bert.", |device| BertClassifier::new(&config, device))?);
        }
        let model = self.filled("bert.", |device| Bert::new(&config, device))?;
        encoder(&model, Pooling::from_folder(self.path)?.as_ref())
    }

    pub(super) fn gpt2_model(&self) -> Result<Gpt2<AnyBackend>> {
        let config: Gpt2Config = self.config()?;
        self.filled("transformer.", |device| Gpt2::new(&config, device))
    }

    pub(super) fn llama_model(&self) -> Result<Llama<AnyBackend>> {
        let config: LlamaConfig = self.config()?;
        self.filled("model.", |device| Llama::new(&config, device))
    }

    fn gpt2(&self) -> Result<Graph> {
        let model = self.gpt2_model()?;
        recorded(&model, causal(model.num_positions()), |x| model.forward(&x[0]))
    }

    fn llama(&self) -> Result<Graph> {
        let model = self.llama_model()?;
        recorded(&model, causal(model.num_positions()), |x| model.forward(&x[0]))
    }

    fn t5(&self) -> Result<Graph> {
        let config: T5Config = self.config()?;
        let model = self.filled("", |device| T5::new(&config, device))?;
        let inputs = [
            ids("input_ids", "sequence"),
            ids("attention_mask", "sequence"),
            ids("decoder_input_ids", "decoder_sequence"),
        ];
        recorded(&model, Export::new(inputs).outputs(["logits"]), |x| {
            model.forward(&x[0], Some(&x[1]), &x[2])
        })
    }

    fn resnet(&self) -> Result<Graph> {
        let config: ResNetConfig = self.own_config()?;
        let model = self.filled("", |device| ResNet::new(&config, device))?;
        let input = Input::new(
            "images",
            DType::F32,
            ("batch", config.in_channels as i32, "height", "width"),
        );
        recorded(&model, Export::new([input]).outputs(["logits"]), |x| {
            model.forward(&x[0])
        })
    }

    fn vit(&self) -> Result<Graph> {
        let config: VitConfig = self.own_config()?;
        let model = self.filled("", |device| VisionTransformer::new(&config, device))?;
        let dims = ("batch", config.in_channels, config.image_size, config.image_size);
        let input = Input::new("images", DType::F32, dims);
        recorded(&model, Export::new([input]).outputs(["logits"]), |x| {
            model.forward(&x[0])
        })
    }

    fn has_architecture(&self, ending: &str) -> bool {
        let names = self.config.get("architectures").and_then(Value::as_array);
        let mut names = names.into_iter().flatten().filter_map(Value::as_str);
        names.any(|name| name.ends_with(ending))
    }
}

/// The graph of a BERT with a classifier.
pub(super) fn classifier(model: &BertClassifier<AnyBackend>) -> Result<Recorded> {
    let (export, texts) = of_texts(model.config());
    let graph = recorded(model, export.outputs(["logits"]), |x| model.forward(bert_input(x)))?;
    Ok(Recorded {
        graph,
        texts: Some(texts),
    })
}

/// The graph of a BERT, whose vectors of tokens become one of a text by `pooling`.
pub(super) fn encoder(model: &Bert<AnyBackend>, pooling: Option<&Pooling>) -> Result<Recorded> {
    let (export, mut texts) = of_texts(model.config());
    let forward = |x: &[Tensor]| model.forward(bert_input(x));
    let graph = match pooling {
        Some(pooling) => {
            texts.most = pooling.max_length().unwrap_or(texts.most).min(texts.most);
            recorded(model, export.outputs([VECTORS]), |x| pooling.pool(&forward(x)?, &x[1]))?
        }
        None => recorded(model, export.outputs(["last_hidden_state", "pooler_output"]), |x| {
            let hidden = forward(x)?;
            let pooled = model.pool(&hidden)?;
            Ok([hidden, pooled])
        })?,
    };
    Ok(Recorded {
        graph,
        texts: Some(texts),
    })
}

/// What a BERT takes.
fn of_texts(config: &BertConfig) -> (Export, Texts) {
    let most = config.max_position_embeddings;
    let mut inputs = vec![ids("input_ids", "sequence"), ids("attention_mask", "sequence")];
    // With a single type, the input carries no information.
    if config.type_vocab_size > 1 {
        inputs.push(ids(TYPES, "sequence"));
    }
    let texts = Texts {
        pad: config.pad_token_id.unwrap_or(0) as i64,
        most,
    };
    (Export::new(inputs).bound("sequence", 1..=most), texts)
}

fn bert_input(x: &[Tensor]) -> BertInput<'_> {
    let input = BertInput::new(&x[0]).attention_mask(&x[1]);
    match x.get(2) {
        Some(types) => input.token_type_ids(types),
        None => input,
    }
}

fn ids(name: &str, sequence: &str) -> Input {
    Input::new(name, DType::I64, ["batch", sequence])
}

fn causal(most: usize) -> Export {
    let export = Export::new([ids("input_ids", "sequence")]).outputs(["logits"]);
    export.bound("sequence", 1..=most.min(ENDLESS))
}

/// Records the graph without comparing it with the model: tests do that for these models, and for a large one it would
/// take minutes.
fn recorded<O: ForwardOutputs>(
    model: &impl Module<AnyBackend>,
    export: Export,
    forward: impl Fn(&[Tensor]) -> Result<O>,
) -> Result<Graph> {
    model.record_onnx(&export.check(false), forward)
}

fn prefixed(state: &StateDict, prefix: &str) -> StateDict {
    state
        .iter()
        .map(|(name, host)| (format!("{prefix}{name}"), host.clone()))
        .collect()
}

fn without_prefix(state: &StateDict, prefix: &str) -> StateDict {
    let named = state
        .iter()
        .map(|(name, host)| (name.strip_prefix(prefix).unwrap_or(name), host));
    named.map(|(name, host)| (name.to_owned(), host.clone())).collect()
}
