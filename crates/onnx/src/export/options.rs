//! Options of an export.

use std::ops::RangeInclusive;

use polygrad_core::{AnyBackend, Backend, DType, Error, Result};
use polygrad_tensor::Tensor;

use super::Opset;
use crate::graph::Dim;

impl From<usize> for Dim {
    fn from(extent: usize) -> Self {
        Self::Fixed(extent)
    }
}

impl From<&str> for Dim {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

impl From<i32> for Dim {
    /// A negative number counts as 0.
    fn from(extent: i32) -> Self {
        Self::Fixed(usize::try_from(extent).unwrap_or(0))
    }
}

/// Anything that users write as the extents of an input: `("batch", 3, 224, 224)`, `["batch", "seq"]`,
/// or a list of [`Dim`].
pub trait IntoDims {
    /// The extents.
    fn into_dims(self) -> Vec<Dim>;
}

impl IntoDims for Vec<Dim> {
    fn into_dims(self) -> Self {
        self
    }
}

impl<D: Into<Dim>, const N: usize> IntoDims for [D; N] {
    fn into_dims(self) -> Vec<Dim> {
        self.into_iter().map(Into::into).collect()
    }
}

macro_rules! tuples {
    ($($($name:ident)+;)*) => {$(
        impl<$($name: Into<Dim>),+> IntoDims for ($($name,)+) {
            #[allow(non_snake_case, reason = "the names of types serve as those of values")]
            fn into_dims(self) -> Vec<Dim> {
                let ($($name,)+) = self;
                vec![$($name.into()),+]
            }
        }
    )*};
}

tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
}

/// An input of an exported model.
#[derive(Clone, Debug)]
pub struct Input {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) dims: Vec<Dim>,
    pub(super) below: i64,
}

impl Input {
    /// An input of this name, dtype and shape. An extent is a number, or a name if it is known only when the model
    /// runs, as in `Input::new("images", DType::F32, ("batch", 3, 224, 224))`; equal names are equal extents.
    pub fn new(name: &str, dtype: DType, dims: impl IntoDims) -> Self {
        Self {
            name: name.to_owned(),
            dtype,
            dims: dims.into_dims(),
            below: 2,
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The dtype.
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// The extents.
    pub fn dims(&self) -> &[Dim] {
        &self.dims
    }

    /// For integers: the check after the export draws numbers from 0 to this limit (exclusive). Default: 2.
    #[must_use]
    pub const fn below(mut self, below: i64) -> Self {
        self.below = below;
        self
    }
}

/// How a model is exported.
///
/// ```
/// use polygrad_onnx::{Export, Input, Opset};
/// use polygrad_tensor::DType;
///
/// let export = Export::new([Input::new("ids", DType::I64, ["batch", "seq"])])
///     .outputs(["logits"])
///     .bound("seq", 1..=512)
///     .opset(Opset::V23);
/// ```
#[derive(Clone, Debug)]
pub struct Export {
    pub(super) inputs: Vec<Input>,
    pub(super) outputs: Vec<String>,
    pub(super) opset: Opset,
    pub(super) fold_batch_norm: bool,
    pub(super) doc_string: String,
    pub(super) bounds: Vec<(String, RangeInclusive<usize>)>,
    pub(super) check: bool,
    pub(super) external_data: Option<bool>,
}

impl Export {
    /// An export with these inputs, in the order in which the forward pass takes them.
    pub fn new(inputs: impl IntoIterator<Item = Input>) -> Self {
        Self {
            inputs: inputs.into_iter().collect(),
            outputs: Vec::new(),
            opset: Opset::default(),
            fold_batch_norm: true,
            doc_string: String::new(),
            bounds: Vec::new(),
            check: true,
            external_data: None,
        }
    }

    /// The inputs.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// Names of the outputs in order. Default: `output`, `output_1`, …
    #[must_use]
    pub fn outputs<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.outputs = names.into_iter().map(str::to_owned).collect();
        self
    }

    /// The version of the ops. Default: 20.
    #[must_use]
    pub const fn opset(mut self, opset: Opset) -> Self {
        self.opset = opset;
        self
    }

    /// Whether batch normalisation becomes part of the convolution before it, as in PyTorch's exporter: the file runs
    /// faster, but the weights of such layers are not the model's own; their names end in `.folded`. Default: true.
    #[must_use]
    pub const fn fold_batch_norm(mut self, fold: bool) -> Self {
        self.fold_batch_norm = fold;
        self
    }

    /// A description of the model for readers of the file. Default: nothing.
    #[must_use]
    pub fn doc_string(mut self, text: &str) -> Self {
        text.clone_into(&mut self.doc_string);
        self
    }

    /// The extents that a named one may have. Default: from 1 on. For a model that accepts only a limited number of
    /// tokens, give the limit here, so that it is recorded with an extent that it accepts.
    #[must_use]
    pub fn bound(mut self, name: &str, extents: RangeInclusive<usize>) -> Self {
        self.bounds.push((name.to_owned(), extents));
        self
    }

    /// Whether the exported graph is run and compared with the model before the export returns. Default: true.
    #[must_use]
    pub const fn check(mut self, check: bool) -> Self {
        self.check = check;
        self
    }

    /// Whether weights are written to a separate file beside the model's. Default: only if the model exceeds the 2 GB
    /// that one file can hold.
    #[must_use]
    pub const fn external_data(mut self, external: bool) -> Self {
        self.external_data = Some(external);
        self
    }

    /// The names of extents that are known only when the model runs, each once, in order.
    pub(super) fn symbols(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for dim in self.inputs.iter().flat_map(|input| &input.dims) {
            if let Dim::Named(name) = dim
                && !names.contains(name)
            {
                names.push(name.clone());
            }
        }
        names
    }

    /// The extents that a named one may have.
    pub(super) fn range(&self, name: &str) -> RangeInclusive<usize> {
        let found = self.bounds.iter().rev().find(|(known, _)| known == name);
        found.map_or(1..=usize::MAX, |(_, range)| range.clone())
    }

    /// # Errors
    /// When the options contradict each other.
    pub(super) fn verify(&self) -> Result<()> {
        let symbols = self.symbols();
        if let Some((name, _)) = self.bounds.iter().find(|(name, _)| !symbols.contains(name)) {
            return Err(Error::invalid(format!(
                "a bound for {name:?}, but no input has an extent of that name"
            )));
        }
        if let Some((name, range)) = self
            .bounds
            .iter()
            .find(|(_, range)| range.is_empty() || *range.start() == 0)
        {
            return Err(Error::invalid(format!(
                "the extent {name:?} may be {} to {}: it must be at least 1",
                range.start(),
                range.end()
            )));
        }
        for input in &self.inputs {
            if input.dims.contains(&Dim::Unknown) || input.dims.contains(&Dim::Named(String::new())) {
                return Err(
                    Error::invalid(format!("an extent of input {:?} has no name", input.name))
                        .with_hint("name it, as in Dim::from(\"batch\")"),
                );
            }
        }
        Ok(())
    }

    /// The names of `count` outputs.
    pub(super) fn output_names(&self, count: usize) -> Result<Vec<String>> {
        if self.outputs.is_empty() {
            let name = |i: usize| {
                if i == 0 {
                    "output".to_owned()
                } else {
                    format!("output_{i}")
                }
            };
            return Ok((0..count).map(name).collect());
        }
        if self.outputs.len() != count {
            return Err(Error::invalid(format!(
                "the forward pass gives {count} outputs, {} have names",
                self.outputs.len()
            )));
        }
        Ok(self.outputs.clone())
    }
}

/// Results of a forward pass: one tensor, or several.
pub trait ForwardOutputs<B: Backend = AnyBackend> {
    /// The tensors in order.
    fn into_tensors(self) -> Vec<Tensor<B>>;
}

impl<B: Backend> ForwardOutputs<B> for Tensor<B> {
    fn into_tensors(self) -> Vec<Self> {
        vec![self]
    }
}

impl<B: Backend> ForwardOutputs<B> for Vec<Tensor<B>> {
    fn into_tensors(self) -> Self {
        self
    }
}

impl<B: Backend, const N: usize> ForwardOutputs<B> for [Tensor<B>; N] {
    fn into_tensors(self) -> Vec<Tensor<B>> {
        self.into()
    }
}

impl<B: Backend, A: ForwardOutputs<B>, C: ForwardOutputs<B>> ForwardOutputs<B> for (A, C) {
    fn into_tensors(self) -> Vec<Tensor<B>> {
        let mut all = self.0.into_tensors();
        all.extend(self.1.into_tensors());
        all
    }
}
