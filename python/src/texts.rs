//! Models of folders in the Hub's format: those that read texts, and those that write them.

use std::path::Path;
use std::sync::Arc;

use polygrad::backend::HostTensor;
use polygrad::onnx::graph::{ElementType, Literal};
use polygrad::serve::{Model as Service, Prompt, Signature, Strings, Style, Value};
use polygrad::{Error, Result, Shape};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyMapping, PyString, PyTuple};

use crate::arrays::array_of;
use crate::errors::raised;
use crate::failure::Failure;
use crate::tensor::tensor_of;

/// Whether a folder's config names the kind of its model, as in the Hub's folders.
pub(crate) fn is_folder(path: &Path) -> bool {
    let config = std::fs::read(path.join("config.json"));
    let config = config
        .ok()
        .and_then(|json| serde_json::from_slice::<serde_json::Value>(&json).ok());
    config.is_some_and(|config| config.get("model_type").is_some())
}

/// The settings of `polygrad.Model.generate`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Writing {
    /// A text, or messages as JSON.
    prompt: String,
    is_chat: bool,
    max_tokens: usize,
    temperature: f64,
    top_p: f64,
    top_k: Option<usize>,
    min_p: f64,
    repetition_penalty: f64,
    seed: Option<u64>,
    stop: Vec<String>,
    /// Called with each piece; returning false ends the text.
    piece: Option<Py<PyAny>>,
}

/// Texts, or numbers of the dtype in the signature.
fn value(spec: ElementType, given: &Bound<'_, PyAny>) -> PyResult<Value> {
    if spec != ElementType::String {
        let host = tensor_of(given, None)?.to_host().map_err(raised)?;
        return Literal::new(spec, host).map(Value::Tensor).map_err(raised);
    }
    let texts: Vec<String> = match given.cast::<PyString>() {
        Ok(text) => vec![text.extract()?],
        Err(_) => given.extract()?,
    };
    strings(texts).map_err(raised)
}

fn strings(texts: Vec<String>) -> Result<Value> {
    let shape = Shape::new(&[texts.len()])?;
    Strings::new(shape, texts.into_iter().map(Into::into).collect()).map(Value::Strings)
}

/// The inputs in the signature's order, with defaults for omitted ones.
fn filled(signature: &Signature, mut inputs: Vec<Option<Value>>) -> Result<Vec<Value>> {
    signature.fill(&mut inputs)?;
    let named = signature.inputs.iter().zip(inputs);
    let values =
        named.map(|(spec, value)| value.ok_or_else(|| Error::invalid(format!("the input {:?} is missing", spec.name))));
    values.collect()
}

/// Inputs by name, or only the first one.
fn given(signature: &Signature, inputs: &Bound<'_, PyAny>) -> PyResult<Vec<Option<Value>>> {
    let mut found: Vec<Option<Value>> = vec![None; signature.inputs.len()];
    let Ok(inputs) = inputs.cast::<PyMapping>() else {
        if let Some(first) = signature.inputs.first() {
            found[0] = Some(value(first.element, inputs)?);
        }
        return Ok(found);
    };
    for item in inputs.items()?.iter() {
        let (name, given): (String, Bound<'_, PyAny>) = item.extract()?;
        let place = signature.inputs.iter().position(|spec| spec.name == name);
        let place = place.ok_or_else(|| raised(Error::invalid(format!("the model has no input {name:?}"))))?;
        found[place] = Some(value(signature.inputs[place].element, &given)?);
    }
    Ok(found)
}

/// Runs a model; returns arrays and lists of texts by the names of the outputs.
pub(crate) fn run<'py>(
    py: Python<'py>,
    model: &Arc<dyn Service>,
    inputs: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let signature = model.signature();
    let inputs = given(signature, inputs)?;
    let outputs = py.detach(|| model.run(&filled(signature, inputs)?)).map_err(raised)?;
    let found = PyDict::new(py);
    for (spec, output) in signature.outputs.iter().zip(outputs) {
        match output {
            Value::Tensor(literal) => found.set_item(&spec.name, array_of(py, literal.host())?)?,
            Value::Strings(texts) => {
                let texts = texts
                    .strings()
                    .iter()
                    .map(|text| String::from_utf8_lossy(text).into_owned());
                found.set_item(&spec.name, PyList::new(py, texts.collect::<Vec<_>>())?)?;
            }
        }
    }
    Ok(found)
}

/// A vector for each text, `[n, width]`.
pub(crate) fn embed<'py>(
    py: Python<'py>,
    model: &Arc<dyn Service>,
    texts: Vec<String>,
    batch_size: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let failure = Failure::default();
    let embed = || {
        if model.encoder().is_none() {
            return Err(Error::unsupported("the model gives no vectors of texts")
                .with_hint("give a BERT's folder with tokenizer.json and 1_Pooling, as sentence-transformers has it"));
        }
        let (mut vectors, mut width) = (Vec::new(), 0);
        let count = texts.len();
        for chunk in texts.chunks(batch_size.max(1)) {
            Python::attach(|py| py.check_signals()).map_err(|exception| failure.of(exception))?;
            let signature = model.signature();
            let mut inputs = vec![None; signature.inputs.len()];
            inputs[0] = Some(strings(chunk.to_vec())?);
            let outputs = model.run(&filled(signature, inputs)?)?;
            let first = outputs
                .first()
                .ok_or_else(|| Error::invalid("the model has no output"))?;
            let host = first.tensor()?.host();
            width = host.shape().dims().last().copied().unwrap_or(0);
            vectors.extend(host.to_vec::<f32>()?);
        }
        HostTensor::new(Shape::new(&[count, width])?, vectors)
    };
    let vectors = py.detach(embed);
    if let Some(exception) = failure.take() {
        return Err(exception);
    }
    array_of(py, &vectors.map_err(raised)?)
}

/// The text that a model writes after a prompt, and whether it ended by itself.
pub(crate) fn generate<'py>(
    py: Python<'py>,
    model: &Arc<dyn Service>,
    writing: Writing,
) -> PyResult<Bound<'py, PyTuple>> {
    let failure = Failure::default();
    let written = py.detach(|| writing.write(model, &failure));
    if let Some(exception) = failure.take() {
        return Err(exception);
    }
    let (text, is_stop) = written.map_err(raised)?;
    (text, is_stop).into_pyobject(py)
}

impl Writing {
    fn write(&self, model: &Arc<dyn Service>, failure: &Failure) -> Result<(String, bool)> {
        let language = model.language().ok_or_else(|| {
            Error::unsupported("the model writes no texts")
                .with_hint("give the folder of a GPT-2, Llama, Mistral or Qwen2 with tokenizer.json")
        })?;
        let prompt = match self.is_chat {
            true => Prompt::Chat(
                serde_json::from_str(&self.prompt)
                    .map_err(|error| Error::invalid(format!("a chat is a list of messages: {error}")))?,
            ),
            false => Prompt::Text(self.prompt.clone()),
        };
        let style = Style {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            seed: self.seed,
            stop: self.stop.clone(),
        };
        let tokens = language.tokens(&prompt)?;
        let count = self.max_tokens.min(language.positions().saturating_sub(tokens.len()));
        let mut text = String::new();
        if count == 0 {
            return Ok((text, false));
        }
        let mut writing = language.begin()?;
        writing.join(&tokens, count, &style)?;
        loop {
            // A step may only read a part of the prompt, and write nothing.
            Python::attach(|py| py.check_signals()).map_err(|exception| failure.of(exception))?;
            for (_, piece) in writing.step()? {
                let piece = piece?;
                text.push_str(&piece.text);
                if !self.tell(&piece.text, failure) {
                    return Ok((text, false));
                }
                if let Some(finish) = piece.finish {
                    return Ok((text, finish.is_stop));
                }
            }
        }
    }

    /// Passes a piece to the callback, if there is one; returns whether to continue.
    fn tell(&self, piece: &str, failure: &Failure) -> bool {
        let told = Python::attach(|py| match &self.piece {
            Some(told) if !piece.is_empty() => {
                let answer = told.call1(py, (piece,))?;
                Ok(!answer.bind(py).is(PyBool::new(py, false)))
            }
            _ => Ok(true),
        });
        told.unwrap_or_else(|error| {
            failure.of(error);
            false
        })
    }
}
