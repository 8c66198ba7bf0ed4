//! Options of adapters, and which layers they name.

use polygrad_tensor::{Error, Result};

use crate::module::Names;
use crate::options::options;

options! {
    /// Options of an adapter that [`attach`](super::attach) adds to the layers that they name.
    ///
    /// ```
    /// # use polygrad_nn::lora::LoraConfig;
    /// let config = LoraConfig::new(8).alpha(16.0).targets(["q_proj", "v_proj"]).dora(true);
    /// ```
    #[derive(Clone, Debug)]
    pub struct LoraConfig {
        /// The rank of the factors.
        pub fn new(rank: usize);
        /// The change of a weight is `alpha / rank · B A`.
        alpha: f64 = 8.0;
        /// The probability with which an element of the input of `A` is dropped in training; embeddings have no
        /// dropout.
        dropout: f64 = 0.0;
        /// The layers, by their path or the end of it: `q_proj` is every layer of that name, `layers.0.q_proj` one of
        /// them; `*` matches any characters. Default: every linear layer.
        targets: Vec<String> = Vec::new(), from |targets: impl IntoIterator<Item = impl Into<String>>| {
            targets.into_iter().map(Into::into).collect()
        };
        /// Layers that are excluded from `targets`. Default: none.
        exclude: Vec<String> = Vec::new(), from |exclude: impl IntoIterator<Item = impl Into<String>>| {
            exclude.into_iter().map(Into::into).collect()
        };
        /// Whether the change is `alpha / √rank · B A`, so that higher ranks learn as fast as lower ones.
        rank_stabilized: bool = false;
        /// Whether the norms of the changed weight are learned separately from its directions.
        dora: bool = false;
        /// The location of the base model, which PEFT's files may name. Default: not named.
        base: Option<String> = None, from |base: impl Into<String>| Some(base.into());
    }
}

impl LoraConfig {
    /// The rank, and the factor `scale` of the change `scale · B A` of a weight.
    ///
    /// # Errors
    /// If an option is out of range, or if dropout or DoRA are on, which are more than this formula.
    pub fn low_rank(&self) -> Result<(usize, f64)> {
        self.check()?;
        let more = match (self.dropout > 0.0, self.dora) {
            (true, _) => "dropout",
            (_, true) => "DoRA",
            _ => return Ok((self.rank, self.scale(self.rank, self.alpha))),
        };
        Err(Error::unsupported(format!("an adapter in a graph has no {more}"))
            .with_op("lora")
            .with_hint("leave that option out"))
    }

    /// The factor of the change of a weight.
    pub(super) fn scale(&self, rank: usize, alpha: f64) -> f64 {
        match self.rank_stabilized {
            true => alpha / (rank as f64).sqrt(),
            false => alpha / rank as f64,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let fail = |what: String| Err(Error::invalid(what).with_op("lora"));
        if self.rank == 0 {
            return fail("an adapter of rank 0 changes nothing: the rank is at least 1".to_owned());
        }
        if !self.alpha.is_finite() {
            return fail(format!("alpha = {:?} is no number", self.alpha));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return fail(format!("dropout = {:?} is outside 0.0..1.0", self.dropout));
        }
        Ok(())
    }

    /// For each layer, given as a path and whether it is linear, whether it gets the adapter.
    ///
    /// # Errors
    /// If a name matches no layer.
    pub fn chosen(&self, layers: &[(&str, bool)]) -> Result<Vec<bool>> {
        let paths = || layers.iter().map(|(path, _)| *path);
        let (targets, exclude) = (Names::new(&self.targets), Names::new(&self.exclude));
        for names in [&targets, &exclude] {
            names.all_fit(paths, "layer that can have an adapter")?;
        }
        let wanted = |&(path, linear): &(&str, bool)| match self.targets.is_empty() {
            true => linear,
            false => targets.fit(path),
        };
        Ok(layers
            .iter()
            .map(|layer| wanted(layer) && !exclude.fit(layer.0))
            .collect())
    }
}
