//! Adapters in PEFT's files without a model in Rust, such as those of an ONNX graph.

use std::collections::BTreeMap;
use std::path::Path;

use polygrad_tensor::{Error, ErrorKind, HostTensor, Result};

use super::options::PeftConfig;
use super::{CONFIG, LoraConfig, Stored, TENSORS, full_name, in_file, name_layers, write};
use crate::StateDict;

/// The change `scale · B A` of a weight.
#[derive(Clone, Debug)]
pub struct LowRank {
    /// `A`: `[rank, in]`, or `[rank, in, …kernel]` of a convolution.
    pub a: HostTensor,
    /// `B`: `[out, rank]`, or `[out, rank, 1, …]` of a convolution.
    pub b: HostTensor,
    /// The factor of the product.
    pub scale: f64,
}

/// What PEFT's files hold of an adapter whose layers change by [`LowRank`] alone, without dropout or DoRA.
#[derive(Clone, Debug, Default)]
pub struct PeftAdapter {
    /// The changes by the path of their layer.
    pub layers: BTreeMap<String, LowRank>,
    /// The parameters, by name, of modules that are trained as a whole.
    pub modules: BTreeMap<String, HostTensor>,
    /// The location of the base model, if it is known.
    pub base: Option<String>,
}

impl PeftAdapter {
    /// Writes `adapter_model.safetensors` and `adapter_config.json` to a folder, which is created if needed.
    ///
    /// # Errors
    /// If there is no layer, or a file cannot be written.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<()> {
        let sized = self.layers.iter().map(|(path, layer)| {
            let rank = layer.a.shape().dims().first().copied().unwrap_or(0);
            (path.clone(), rank, layer.scale * rank as f64)
        });
        let sized: Vec<(String, usize, f64)> = sized.collect();
        let Some((_, rank, alpha)) = sized.first() else {
            return Err(Error::invalid("an adapter without layers").with_op("lora::save"));
        };
        let options = LoraConfig::new(*rank).alpha(*alpha);
        let options = match &self.base {
            Some(base) => options.base(base),
            None => options,
        };
        let mut config = PeftConfig::new(&options);
        name_layers(&mut config, &options, sized);
        let mut state = StateDict::new();
        for (path, layer) in &self.layers {
            state.insert(full_name(path, "lora_A.weight"), layer.a.clone());
            state.insert(full_name(path, "lora_B.weight"), layer.b.clone());
        }
        write(folder.as_ref(), state, config, self.modules.clone())
    }

    /// Reads the files that PEFT, [`PeftAdapter::save`] or [`save`](crate::lora::save) wrote to a folder.
    ///
    /// # Errors
    /// If a file cannot be read or is not PEFT's; if the adapter has DoRA, adapts embeddings, or has another option
    /// that is not supported; if factors do not have the rank of the config.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let path = folder.join(TENSORS);
        let config = PeftConfig::load(&folder.join(CONFIG))?;
        let state = StateDict::load(&path)?;
        let place = |error: Error| in_file(error.with_op("lora::load"), &path);
        let more = |what: &str| {
            let error = Error::unsupported(format!(
                "the adapter {what}, which an adapter of low rank alone has not"
            ));
            place(error.with_hint("load it into the model in Rust"))
        };
        if let Some(name) = state.keys().find(|name| name.contains("lora_embedding_")) {
            return Err(more(&format!("has factors of an embedding, {name}")));
        }
        let stored = Stored::of(&state).map_err(place)?;
        let paths: Vec<String> = stored.layers.keys().cloned().collect();
        let options = config.options(&paths);
        options.check().map_err(|e| in_file(e, &folder.join(CONFIG)))?;
        let mut layers = BTreeMap::new();
        for (layer, factors) in stored.layers {
            if options.dora || factors.magnitude.is_some() {
                return Err(more("has DoRA"));
            }
            let (rank, alpha) = config.of(&layer);
            let (Some(a), Some(b)) = (factors.a, factors.b) else {
                return Err(place(Error::new(
                    ErrorKind::Format,
                    format!("{layer} lacks one of its factors"),
                )));
            };
            if a.shape().dims().first() != Some(&rank) || b.shape().dims().get(1) != Some(&rank) {
                let text = format!("{layer}: factors {} and {}, and the rank {rank}", a.shape(), b.shape());
                return Err(place(Error::new(ErrorKind::Format, text)));
            }
            let (a, b, scale) = (a.clone(), b.clone(), options.scale(rank, alpha));
            layers.insert(layer, LowRank { a, b, scale });
        }
        let modules = stored.whole.into_iter();
        Ok(Self {
            layers,
            modules: modules.map(|(name, value)| (name, value.clone())).collect(),
            base: config.base_model_name_or_path,
        })
    }
}
