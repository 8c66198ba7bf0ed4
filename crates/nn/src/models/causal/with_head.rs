//! Language models with a head, which differ in the model below it.

/// The methods of a model whose head projects the vectors of the model below to the vocabulary, and its
/// [`CausalLm`](super::CausalLm). `with_head!(Gpt2(transformer: Gpt2Model), Gpt2Config, h, ln_f, n_positions)` names
/// the field of the model below, its blocks and its last norm, and the config's number of positions.
macro_rules! with_head {
    ($model:ident($field:ident: $below:ident), $config:ident, $blocks:ident, $norm:ident, $positions:ident) => {
        impl<B: Backend> $model<B> {
            /// A model with random weights, initialised like the original.
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($below), "::new`].")]
            pub fn new(config: &$config, device: &Device<B>) -> Result<Self> {
                let words = $below::words(config, device)?;
                let lm_head = super::causal::lm_head(&words, config.tie_word_embeddings, config.init(), device)?;
                Ok(Self {
                    $field: $below::with_words(config, words, device)?,
                    lm_head: lm_head.into(),
                })
            }

            /// The config.
            pub fn config(&self) -> &$config {
                &self.$field.config
            }

            /// Whether the backward pass recomputes each block instead of keeping its intermediate values. Default:
            /// false.
            pub fn set_gradient_checkpointing(&self, on: bool) {
                self.$field.set_gradient_checkpointing(on);
            }

            /// The logits `[N, S, vocab_size]` of the token after each of `ids [N, S]` (i64).
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($below), "::forward`].")]
            pub fn forward(&self, ids: &Tensor<B>) -> Result<Tensor<B>> {
                watch::layer(self, ids, || self.lm_head.forward(&self.$field.forward(ids)?))
            }

            /// An empty cache for [`Self::forward_cached`].
            pub fn new_cache(&self) -> CausalLmCache<B> {
                self.$field.new_cache()
            }

            /// [`Self::forward`] for further tokens of sequences whose first tokens are cached.
            ///
            /// # Errors
            /// As [`Self::forward`], and when the cache is from another model or batch.
            pub fn forward_cached(&self, ids: &Tensor<B>, cache: &mut CausalLmCache<B>) -> Result<Tensor<B>> {
                watch::layer(self, ids, || self.$field.extend(ids, cache, |x| self.logits(x)))
            }

            /// `prompt [N, S]` with up to `count` further tokens: [`CausalLm::generate`](super::CausalLm::generate).
            ///
            /// # Errors
            /// As that method.
            pub fn generate(
                &self,
                prompt: &Tensor<B>,
                count: usize,
                config: &super::GenerateConfig,
            ) -> Result<Tensor<B>> {
                super::CausalLm::generate(self, prompt, count, config)
            }

            fn logits(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
                self.lm_head.forward(&self.$field.$norm.forward(x)?)
            }
        }

        impl<B: Backend> super::CausalLm<B> for $model<B> {
            fn name(&self) -> &'static str {
                stringify!($model)
            }

            fn vocab_size(&self) -> usize {
                self.config().vocab_size
            }

            fn num_positions(&self) -> usize {
                self.config().$positions
            }

            fn new_cache(&self) -> CausalLmCache<B> {
                self.new_cache()
            }

            fn forward_cached(&self, ids: &Tensor<B>, cache: &mut CausalLmCache<B>) -> Result<Tensor<B>> {
                self.forward_cached(ids, cache)
            }

            fn next_logits(&self, ids: &Tensor<B>, cache: &mut CausalLmCache<B>) -> Result<Tensor<B>> {
                watch::layer(self, ids, || {
                    self.$field.extend(ids, cache, |x| self.logits(&x.select(1, -1)?))
                })
            }

            fn next_logits_each(
                &self,
                ids: &Tensor<B>,
                lengths: &[usize],
                caches: &mut [&mut CausalLmCache<B>],
            ) -> Result<Tensor<B>> {
                watch::layer(self, ids, || {
                    let model = &self.$field;
                    let size = (model.$blocks.len(), self.config().$positions);
                    let rows = super::causal::Ragged { ids, lengths };
                    let last = rows.extend(NAME, size, caches, |pasts, places| {
                        model.after(ids, &places, pasts)
                    })?;
                    self.logits(&last.squeeze(0)?)
                })
            }
        }
    };
}

pub(in crate::models) use with_head;
