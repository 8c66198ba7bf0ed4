//! Language models with a head, and the models below it, which differ in how they embed tokens and in their blocks.

/// The methods of a model whose head projects the vectors of the model below to the vocabulary, its
/// [`CausalLm`](super::CausalLm), and the methods of the model below.
/// `with_head!(Gpt2(transformer: Gpt2Model), Gpt2Config, h, ln_f, n_positions)` names the field of the model below, its
/// blocks and its last norm, and the number of positions in the config.
macro_rules! with_head {
    ($model:ident($field:ident: $below:ident), $config:ident, $blocks:ident, $norm:ident, $positions:ident) => {
        impl<B: Backend> $below<B> {
            /// A model with random weights, initialised like the original.
            ///
            /// # Errors
            /// When the config is contradictory or requires something that is not implemented, or memory runs out.
            pub fn new(config: &$config, device: &Device<B>) -> Result<Self> {
                Self::with_words(config, Self::words(config, device)?, device)
            }

            /// The config.
            pub fn config(&self) -> &$config {
                &self.config
            }

            /// Whether the backward pass recomputes each block instead of keeping its intermediate values. Default:
            /// false.
            pub fn set_gradient_checkpointing(&self, on: bool) {
                self.checkpointing.store(on, Ordering::Relaxed);
            }

            /// The vectors `[N, S, width]` of `ids [N, S]` (i64) after the last block and its norm.
            ///
            /// # Errors
            #[doc = concat!("When a sequence is longer than `", stringify!($positions), "`, or a token is outside the")]
            /// vocabulary.
            pub fn forward(&self, ids: &Tensor<B>) -> Result<Tensor<B>> {
                watch::layer(self, ids, || self.$norm.forward(&self.run(ids, None, |_| {})?))
            }

            /// [`Self::forward`] of packed rows, each of which contains several sequences. Each sequence is treated as
            /// if it were alone: it does not see the others, and its positions count from its start. `starts [N, S]`
            /// (i64) has, for each token, the place of the first token of its sequence.
            ///
            /// # Errors
            /// As [`Self::forward`], and when there is not exactly one start for each token.
            pub fn forward_packed(&self, ids: &Tensor<B>, starts: &Tensor<B>) -> Result<Tensor<B>> {
                watch::layer(self, ids, || {
                    self.$norm.forward(&self.run(ids, Some(starts), |_| {})?)
                })
            }

            /// The vectors after the embeddings and after each block, the last of which are the result of
            /// [`Self::forward`]: Hugging Face's `hidden_states`.
            ///
            /// # Errors
            /// As [`Self::forward`].
            pub fn hidden_states(&self, ids: &Tensor<B>) -> Result<Vec<Tensor<B>>> {
                let mut states = Vec::with_capacity(self.$blocks.len() + 1);
                let last = self.run(ids, None, |x| states.push(x.clone()))?;
                states.push(self.$norm.forward(&last)?);
                Ok(states)
            }

            /// An empty cache for [`Self::forward_cached`].
            pub fn new_cache(&self) -> CausalLmCache<B> {
                CausalLmCache::new(self.$blocks.len())
            }

            /// [`Self::forward`] for further tokens of sequences whose first tokens are cached.
            ///
            /// # Errors
            /// As [`Self::forward`], and when the cache is from another model or batch.
            pub fn forward_cached(&self, ids: &Tensor<B>, cache: &mut CausalLmCache<B>) -> Result<Tensor<B>> {
                watch::layer(self, ids, || self.extend(ids, cache, |x| self.$norm.forward(x)))
            }

            /// The result of `head` on the vectors after the last block; if it fails, the cache is as it was before.
            fn extend(
                &self,
                ids: &Tensor<B>,
                cache: &mut CausalLmCache<B>,
                head: impl FnOnce(&Tensor<B>) -> Result<Tensor<B>>,
            ) -> Result<Tensor<B>> {
                let size = super::causal::sized(NAME, ids, cache.len(), self.config.$positions)?;
                cache.extend(NAME, self.$blocks.len(), size, &ids.device(), |caches, places| {
                    head(&self.after(ids, &places, caches.iter_mut().map(Past::Batch))?)
                })
            }
        }

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
