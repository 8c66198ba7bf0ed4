//! The config of Llama.

use polygrad_tensor::{Error, Result};
use serde::{Deserialize, Serialize};

use super::super::config::{check_heads, only};
use super::super::{ActivationFn, ModelConfig};
use super::NAME;
use crate::{Init, defaults};

defaults! {
    /// The config of a [`Llama`](super::Llama), with the fields and defaults of Hugging Face's `LlamaConfig`. It also
    /// reads configs of Mistral and Qwen2, which are the same model except for biases.
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
        pub model_type: String = "llama".to_owned(),
        /// Size of the vocabulary. Default: 32,000.
        pub vocab_size: usize = 32_000,
        /// Width of the vectors. Default: 4,096.
        pub hidden_size: usize = 4096,
        /// Width between the linear layers of a block. Default: 11,008.
        pub intermediate_size: usize = 11_008,
        /// Number of blocks. Default: 32.
        pub num_hidden_layers: usize = 32,
        /// Number of query heads. Default: 32.
        pub num_attention_heads: usize = 32,
        /// Number of key and value heads, which must divide that of query heads. Default: the same number.
        pub num_key_value_heads: Option<usize> = None,
        /// Width of a head. Default: `hidden_size / num_attention_heads`.
        pub head_dim: Option<usize> = None,
        /// The activation of the gate. Default: SiLU.
        pub hidden_act: ActivationFn = ActivationFn::Silu,
        /// Length of the longest sequence. Default: 2,048.
        pub max_position_embeddings: usize = 2048,
        /// Standard deviation of the initial weights. Default: 0.02.
        pub initializer_range: f64 = 0.02,
        /// Added to the mean square in the norms. Default: 1e-6.
        pub rms_norm_eps: f64 = 1e-6,
        /// Whether the projection to the vocabulary shares the embedding's weight. Default: false.
        pub tie_word_embeddings: bool = false,
        /// Base of the angles by which positions rotate queries and keys. Default: 10,000.
        pub rope_theta: f64 = 1e4,
        /// How the angles are scaled for longer sequences. Default: not at all.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub rope_scaling: Option<RopeScaling> = None,
        /// The above two fields as transformers writes them from version 5 on; values here take precedence.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub rope_parameters: Option<RopeScaling> = None,
        /// Whether all attention projections have a bias. Default: false.
        pub attention_bias: bool = false,
        /// Whether the linear layers of the feed-forward part have a bias. Default: false.
        pub mlp_bias: bool = false,
        /// Dropout of attention weights. Default: 0.
        pub attention_dropout: f64 = 0.0,
        /// Attention limited to the last tokens, which is not implemented: a number in a Mistral config is an error.
        /// Default: none.
        pub sliding_window: Option<usize> = None,
        /// The same for Qwen2: true is an error. Default: false.
        pub use_sliding_window: bool = false,
    }
}

/// How the angles of rotary positions are scaled, with the fields of Hugging Face's configs.
///
/// Sources: Chen et al., "Extending context window of large language models via positional interpolation" (2023), for
/// `"linear"`; `transformers.modeling_rope_utils` for `"llama3"`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RopeScaling {
    /// `"default"` for none, `"linear"` or `"llama3"`.
    #[serde(alias = "type", skip_serializing_if = "Option::is_none")]
    pub rope_type: Option<String>,
    /// Base of the angles, instead of [`LlamaConfig::rope_theta`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_theta: Option<f64>,
    /// Divisor of the angles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// For llama3: frequencies with fewer periods than this in the original length are divided by the factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_freq_factor: Option<f64>,
    /// For llama3: frequencies with more periods than this are unchanged; those in between are divided in part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_freq_factor: Option<f64>,
    /// For llama3: the sequence length of the original model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_max_position_embeddings: Option<f64>,
}

impl ModelConfig for LlamaConfig {}

impl LlamaConfig {
    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        self.head_dim
            .unwrap_or(self.hidden_size / self.num_attention_heads.max(1))
    }

    /// Number of key and value heads.
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

    /// Whether attention's output projection has a bias.
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
        // The frequencies themselves are not computed here: whether they fit into memory has not been checked yet.
        self.theta()?;
        self.stretch().map(drop)
    }

    /// The angle by which each pair of a head is rotated per position, `head_dim / 2` numbers.
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

    /// The function that scales a frequency.
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
