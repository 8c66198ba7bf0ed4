//! The config of Llama.

use polygrad_tensor::{Error, Result};
use serde::{Deserialize, Serialize};

use super::super::config::{check_heads, only};
use super::super::{ActivationFn, ModelConfig};
use super::NAME;
use crate::Init;

/// The config of a [`Llama`](super::Llama), with the fields and defaults of Hugging Face's `LlamaConfig`; those of
/// Mistral and Qwen2, which are the same model but for biases, are read, too.
///
/// ```
/// use polygrad_nn::models::{LlamaConfig, ModelConfig};
/// # fn main() -> polygrad_tensor::Result<()> {
/// let json = r#"{ "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3 }"#;
/// let config = LlamaConfig::from_json(json)?;
/// assert_eq!((config.head_dim(), config.vocab_size), (64, 32000));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LlamaConfig {
    /// `"llama"`, `"mistral"`, or `"qwen2"`, whose queries, keys and values have biases. Default: `"llama"`.
    pub model_type: String,
    /// How many tokens there are. Default: 32,000.
    pub vocab_size: usize,
    /// Width of the vectors. Default: 4,096.
    pub hidden_size: usize,
    /// Width between the linear layers of a block. Default: 11,008.
    pub intermediate_size: usize,
    /// How many blocks there are. Default: 32.
    pub num_hidden_layers: usize,
    /// Heads of queries. Default: 32.
    pub num_attention_heads: usize,
    /// Heads of keys and values, which divide those of queries. Default: as many.
    pub num_key_value_heads: Option<usize>,
    /// Width of a head. Default: `hidden_size / num_attention_heads`.
    pub head_dim: Option<usize>,
    /// What gates the inner vectors. Default: SiLU.
    pub hidden_act: ActivationFn,
    /// The longest sequence. Default: 2,048.
    pub max_position_embeddings: usize,
    /// Standard deviation of the weights at first. Default: 0.02.
    pub initializer_range: f64,
    /// Added to the mean square in the norms. Default: 1e-6.
    pub rms_norm_eps: f64,
    /// Whether the projection to the vocabulary shares the embedding's weight. Default: false.
    pub tie_word_embeddings: bool,
    /// Base of the angles by which places turn queries and keys. Default: 10,000.
    pub rope_theta: f64,
    /// How the angles are stretched for longer sequences. Default: not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_scaling: Option<RopeScaling>,
    /// Both as transformers writes them from version 5 on; what is there counts in place of those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_parameters: Option<RopeScaling>,
    /// Whether all projections of attention have a bias. Default: false.
    pub attention_bias: bool,
    /// Whether the linear layers of the other part have a bias. Default: false.
    pub mlp_bias: bool,
    /// Dropout of attention weights. Default: 0.
    pub attention_dropout: f64,
    /// Attention to the last tokens alone, which is not there: in a Mistral's config a number is an error. Default:
    /// none.
    pub sliding_window: Option<usize>,
    /// The same for Qwen2: true is an error. Default: false.
    pub use_sliding_window: bool,
}

/// How the angles of rotary positions are stretched, with the fields of Hugging Face's configs.
///
/// Sources: Chen et al., "Extending context window of large language models via positional interpolation" (2023), for
/// `"linear"`; `transformers.modeling_rope_utils` for `"llama3"`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RopeScaling {
    /// `"default"` for none, `"linear"` or `"llama3"`.
    #[serde(alias = "type", skip_serializing_if = "Option::is_none")]
    pub rope_type: Option<String>,
    /// Base of the angles, in place of [`LlamaConfig::rope_theta`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_theta: Option<f64>,
    /// By how much angles are divided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// Of llama3: waves of which less than this many fit into the original length are divided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_freq_factor: Option<f64>,
    /// Of llama3: waves of which more than this many fit are left as they are; those between are divided in part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_freq_factor: Option<f64>,
    /// Of llama3: the length for which the model was made first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_max_position_embeddings: Option<f64>,
}

impl Default for LlamaConfig {
    fn default() -> Self {
        Self {
            model_type: "llama".to_owned(),
            vocab_size: 32_000,
            hidden_size: 4096,
            intermediate_size: 11_008,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            num_key_value_heads: None,
            head_dim: None,
            hidden_act: ActivationFn::Silu,
            max_position_embeddings: 2048,
            initializer_range: 0.02,
            rms_norm_eps: 1e-6,
            tie_word_embeddings: false,
            rope_theta: 1e4,
            rope_scaling: None,
            rope_parameters: None,
            attention_bias: false,
            mlp_bias: false,
            attention_dropout: 0.0,
            sliding_window: None,
            use_sliding_window: false,
        }
    }
}

impl ModelConfig for LlamaConfig {}

impl LlamaConfig {
    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        self.head_dim
            .unwrap_or(self.hidden_size / self.num_attention_heads.max(1))
    }

    /// Heads of keys and values.
    pub fn key_value_heads(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    pub(super) fn init(&self) -> Init {
        Init::Normal {
            mean: 0.0,
            std: self.initializer_range,
        }
    }

    /// Whether queries, keys and values have a bias.
    pub(super) fn qkv_bias(&self) -> bool {
        self.attention_bias || self.model_type == "qwen2"
    }

    /// Whether the projection of what attention gives has one.
    pub(super) fn output_bias(&self) -> bool {
        self.attention_bias && self.model_type != "qwen2"
    }

    pub(super) fn check(&self) -> Result<()> {
        let fail = |text: String| Err(Error::invalid(text).with_op(NAME));
        if !matches!(self.model_type.as_str(), "llama" | "mistral" | "qwen2") {
            let text = format!("model_type = {:?} is another model", self.model_type);
            return Err(Error::unsupported(text)
                .with_op(NAME)
                .with_hint("there are llama, mistral and qwen2"));
        }
        let sliding = self.use_sliding_window || self.model_type == "mistral" && self.sliding_window.is_some();
        only(NAME, "a sliding window", !sliding)?;
        let (heads, shared) = (self.num_attention_heads, self.key_value_heads());
        match self.head_dim {
            None => check_heads(NAME, heads, self.hidden_size)?,
            Some(width) if heads.checked_mul(width).is_none_or(|width| width == 0) => {
                return fail(format!("{heads} heads of {width} are none, or too large"));
            }
            Some(_) => {}
        }
        if shared == 0 || !heads.is_multiple_of(shared) {
            return fail(format!("{shared} heads of keys do not divide {heads} heads of queries"));
        }
        if !self.head_dim().is_multiple_of(2) {
            return fail(format!("heads of width {} have no pairs to turn", self.head_dim()));
        }
        // Not the frequencies themselves: nothing has been said yet of whether so many fit into memory.
        self.theta()?;
        self.stretch().map(drop)
    }

    /// By how much each pair of a head turns from place to place, `head_dim / 2` numbers.
    pub(super) fn frequencies(&self) -> Result<Vec<f64>> {
        let (theta, stretch, width) = (self.theta()?, self.stretch()?, self.head_dim());
        let pairs = (0..width / 2).map(|i| theta.powf(-2.0 * i as f64 / width as f64));
        Ok(pairs.map(stretch).collect())
    }

    fn scaling(&self) -> Option<&RopeScaling> {
        self.rope_parameters.as_ref().or(self.rope_scaling.as_ref())
    }

    fn theta(&self) -> Result<f64> {
        let theta = self.scaling().and_then(|scaling| scaling.rope_theta);
        let theta = theta.unwrap_or(self.rope_theta);
        if theta > 0.0 && theta.is_finite() {
            return Ok(theta);
        }
        Err(Error::invalid(format!("rope_theta = {theta:?} is not above 0")).with_op(NAME))
    }

    /// What scaling makes of a frequency.
    fn stretch(&self) -> Result<Box<dyn Fn(f64) -> f64>> {
        let plain = RopeScaling::default();
        let scaling = self.scaling().unwrap_or(&plain);
        let needed = |name: &str, value: Option<f64>| match value {
            Some(value) if value > 0.0 && value.is_finite() => Ok(value),
            Some(value) => {
                Err(Error::invalid(format!("the scaling's {name} = {value:?} is not above 0")).with_op(NAME))
            }
            None => Err(Error::invalid(format!("the scaling of the positions lacks {name}")).with_op(NAME)),
        };
        match scaling.rope_type.as_deref() {
            None | Some("default") => Ok(Box::new(|frequency| frequency)),
            Some("linear") => {
                let factor = needed("factor", scaling.factor)?;
                Ok(Box::new(move |frequency| frequency / factor))
            }
            Some("llama3") => {
                let factor = needed("factor", scaling.factor)?;
                let low = needed("low_freq_factor", scaling.low_freq_factor)?;
                let high = needed("high_freq_factor", scaling.high_freq_factor)?;
                let original = scaling.original_max_position_embeddings;
                let original = needed("original_max_position_embeddings", original)?;
                if high <= low {
                    let text = format!("high_freq_factor = {high:?} is not above low_freq_factor = {low:?}");
                    return Err(Error::invalid(text).with_op(NAME));
                }
                Ok(Box::new(move |frequency| {
                    let waves = original * frequency / std::f64::consts::TAU;
                    let kept = ((waves - low) / (high - low)).clamp(0.0, 1.0);
                    (1.0 - kept) * frequency / factor + kept * frequency
                }))
            }
            Some(other) => Err(
                Error::unsupported(format!("positions are scaled by {other:?}, which is not there"))
                    .with_op(NAME)
                    .with_hint("there are default, linear and llama3"),
            ),
        }
    }
}
