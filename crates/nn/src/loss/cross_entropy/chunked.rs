//! Cross entropy of logits that are never all in memory at once.

use polygrad_tensor::{Backend, DType, Error, Result, Tensor, autocast_dtype, checkpoint_rows};

use super::super::Reduction;
use super::super::nll::mismatch;
use super::CrossEntropyLoss;

impl<B: Backend> CrossEntropyLoss<B> {
    /// [`CrossEntropyLoss::forward`] of the logits `head(input)`, of which no more than those of `rows` vectors are
    /// held at a time: for a vocabulary whose logits would take more memory than the model. The backward pass computes
    /// them again, unless no tensor of `head` takes a gradient: that of `input` is computed at once then. `input` is
    /// `[…, width]`, `head` makes `[rows, C]` of `[rows, width]`, each row of its own, and `target` has class indices
    /// (i64) `[…]`. With `rows` as many as there are vectors, nothing is computed twice.
    ///
    /// Tensors that `head` uses also get their gradients. A head that is a layer without bias gives PyTorch's
    /// `linear_cross_entropy`:
    ///
    /// ```
    /// use polygrad_nn::loss::{CrossEntropyLoss, cross_entropy};
    /// # use polygrad_reference::Reference;
    /// # use polygrad_tensor::{Device, Result, Tensor};
    /// # fn main() -> Result<()> {
    /// # let device = Device::<Reference>::default();
    /// let x = Tensor::randn([4, 3], &device)?.requires_grad()?;
    /// let weight = Tensor::randn([50, 3], &device)?.requires_grad()?;
    /// let target = Tensor::new([7i64, 49, -100, 0], &device)?;
    /// let head = weight.clone();
    /// let loss = CrossEntropyLoss::new().forward_chunked(&x, &target, 2, move |x| x.linear(&head, None))?;
    /// let whole = cross_entropy(&x.linear(&weight, None)?, &target)?;
    /// assert!((loss.item()? - whole.item()?).abs() < 1e-5);
    /// assert!(loss.backward()?.get(&weight).is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Source: Hsu et al., "Liger kernel: efficient Triton kernels for LLM training" (2024), with recomputation in
    /// place of gradients that are computed ahead if these are more than the input's.
    ///
    /// # Errors
    /// As [`CrossEntropyLoss::forward`], and when targets are probabilities; those of `head`, here and again in the
    /// backward pass.
    pub fn forward_chunked(
        &self,
        input: &Tensor<B>,
        target: &Tensor<B>,
        rows: usize,
        head: impl Fn(&Tensor<B>) -> Result<Tensor<B>> + Clone + Send + Sync + 'static,
    ) -> Result<Tensor<B>> {
        let name = "cross_entropy";
        let (dims, rows) = (target.dims(), rows.max(1));
        if target.dtype() != DType::I64 {
            return Err(Error::dtype(format!("class indices are i64, not {}", target.dtype()))
                .with_op(name)
                .with_hint("take CrossEntropyLoss::forward for probabilities"));
        }
        let width = match input.dims().split_last() {
            Some((&width, outer)) if outer == dims => width,
            _ => return Err(mismatch(name, input, target)),
        };
        let all = target.numel();
        let (wide, flat) = (input.dtype().wide(), target.reshape([all])?);
        let input = input.reshape([all, width])?;
        let weight = (self.weight.as_ref()).map(|weight| weight.to_dtype(wide)).transpose()?;
        let part = |from| {
            let count = rows.min(all - from);
            let each = Self {
                weight: weight.clone(),
                reduction: Reduction::None,
                ..*self
            };
            let (head, target) = (head.clone(), flat.narrow(0, from, count)?);
            // Losses are rounded only once, at the end.
            let losses = move |x: &Tensor<B>| each.forward(&head(x)?.to_dtype(wide)?, &target);
            match all <= rows {
                true => losses(&input),
                false => checkpoint_rows(losses, &input.narrow(0, from, count)?),
            }
        };
        // At least one part, so that the head also sees an empty input.
        let parts = (0..all.max(1)).step_by(rows).map(part).collect::<Result<Vec<_>>>()?;
        let losses = Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0)?;
        let loss = match self.reduction {
            Reduction::None => losses.reshape(dims)?,
            Reduction::Sum => losses.sum_all()?,
            Reduction::Mean => losses.sum_all()?.div(&self.total(&flat, weight.as_ref(), wide)?)?,
        };
        match autocast_dtype() {
            Some(_) => Ok(loss),
            None => loss.to_dtype(input.dtype()),
        }
    }

    /// The divisor of the mean: the number of targets that are not ignored, or the sum of their weights.
    fn total(&self, target: &Tensor<B>, weight: Option<&Tensor<B>>, wide: DType) -> Result<Tensor<B>> {
        let ignored = target.eq(self.ignore_index)?;
        match weight {
            None => ignored.logical_not()?.to_dtype(wide)?.sum_all(),
            Some(weight) => {
                let own = weight.index_select(0, &target.masked_fill(&ignored, 0)?)?;
                own.masked_fill(&ignored, 0.0)?.sum_all()
            }
        }
    }
}
