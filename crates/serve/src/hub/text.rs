//! Models that take texts.

use polygrad_core::{Error, HostTensor, Result, Shape};
use polygrad_onnx::graph::{Dim, ElementType};
use polygrad_text::Tokenizer;

use super::record::VECTORS;
use crate::{Encoder, Model, OnnxService, Signature, TensorSpec, Value};

/// How texts become a model's inputs.
pub(super) struct Texts {
    /// The padding token.
    pub(super) pad: i64,
    /// The most tokens of a text, special ones included; longer texts are cut off.
    pub(super) most: usize,
}

pub(super) fn utf8(text: &[u8]) -> Result<&str> {
    std::str::from_utf8(text).map_err(|_| Error::invalid("a text is not UTF-8"))
}

/// Serves a model of token ids for texts.
pub(super) struct TextService {
    inner: OnnxService,
    tokenizer: Tokenizer,
    texts: Texts,
    signature: Signature,
    apart: Option<String>,
}

impl TextService {
    /// For a model that takes `input_ids` and `attention_mask`, and may take `token_type_ids`.
    pub(super) fn new(inner: OnnxService, tokenizer: Tokenizer, texts: Texts) -> Self {
        let mut signature = Signature {
            inputs: vec![TensorSpec::new(
                "text",
                ElementType::String,
                [Dim::Named("batch".to_owned())],
            )],
            outputs: inner.signature().outputs.clone(),
            states: Vec::new(),
        };
        signature.outputs.iter_mut().for_each(|spec| spec.batch = None);
        // Texts are padded to the longest that is computed with them. If an output has that extent, it would show the
        // other texts.
        let has_length = |spec: &TensorSpec| spec.dims.iter().skip(1).any(|dim| !matches!(dim, Dim::Fixed(_)));
        let apart = match inner.apart() {
            Some(why) => Some(why.to_owned()),
            None => signature
                .outputs
                .iter()
                .find(|spec| has_length(spec))
                .map(|spec| format!("the output {:?} is as long as the longest of the texts", spec.name)),
        };
        if apart.is_none() && inner.signature().is_batched() {
            signature.batch_by_name();
        }
        Self {
            inner,
            tokenizer,
            texts,
            signature,
            apart,
        }
    }

    fn ids(&self, text: &[u8]) -> Result<Vec<i64>> {
        let (mut ids, _) = self.tokenizer.encode_start(utf8(text)?, true, self.texts.most)?;
        if ids.len() > self.texts.most {
            // The special token at the end is kept.
            let last = ids.pop();
            ids.truncate(self.texts.most.saturating_sub(1));
            ids.extend(last);
        }
        Ok(ids)
    }
}

impl Model for TextService {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, inputs: &[Value]) -> Result<Vec<Value>> {
        let [Value::Strings(texts)] = inputs else {
            return Err(Error::dtype("the model takes texts"));
        };
        let rows = texts
            .strings()
            .iter()
            .map(|text| self.ids(text))
            .collect::<Result<Vec<_>>>()?;
        let longest = rows.iter().map(Vec::len).max().unwrap_or(0);
        let (mut ids, mut mask) = (Vec::new(), Vec::new());
        for row in &rows {
            let padding = longest - row.len();
            ids.extend(row.iter().copied().chain(std::iter::repeat_n(self.texts.pad, padding)));
            mask.extend((0..longest).map(|i| i64::from(i < row.len())));
        }
        let shape = Shape::new(&[rows.len(), longest])?;
        let mut inputs = vec![
            Some(HostTensor::new(shape, ids)?.into()),
            Some(HostTensor::new(shape, mask)?.into()),
        ];
        let signature = self.inner.signature();
        inputs.resize(signature.inputs.len(), None);
        signature.fill(&mut inputs)?;
        self.inner.run(&inputs.into_iter().flatten().collect::<Vec<_>>())
    }

    /// Only for a folder that says how its vectors are pooled into one for each text.
    fn encoder(&self) -> Option<&dyn Encoder> {
        (self.signature.outputs.first()?.name == VECTORS).then_some(self)
    }

    fn apart(&self) -> Option<&str> {
        self.apart.as_deref()
    }

    fn platform(&self) -> &str {
        self.inner.platform()
    }
}

impl Encoder for TextService {
    fn count(&self, text: &str) -> Result<usize> {
        Ok(self.ids(text.as_bytes())?.len())
    }
}
