//! Models that take texts.

use polygrad_core::{Error, HostTensor, Result, Shape};
use polygrad_onnx::graph::{Dim, ElementType};
use polygrad_text::Tokenizer;

use crate::{Model, OnnxService, Signature, TensorSpec, Value};

/// How texts become the inputs of a model.
pub(super) struct Texts {
    /// The token that fills up shorter ones.
    pub(super) pad: i64,
    /// The most tokens of one, special ones included; longer ones are cut.
    pub(super) most: usize,
}

pub(super) fn utf8(text: &[u8]) -> Result<&str> {
    std::str::from_utf8(text).map_err(|_| Error::invalid("a text is not UTF-8"))
}

/// A model of token ids that takes texts.
pub(super) struct TextService {
    inner: OnnxService,
    tokenizer: Tokenizer,
    texts: Texts,
    signature: Signature,
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
        signature.batch_by_name();
        Self {
            inner,
            tokenizer,
            texts,
            signature,
        }
    }

    fn ids(&self, text: &[u8]) -> Result<Vec<i64>> {
        let mut ids = self.tokenizer.encode(utf8(text)?, true)?;
        if ids.len() > self.texts.most {
            // The special token at the end stays there.
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

    fn platform(&self) -> &str {
        self.inner.platform()
    }
}
