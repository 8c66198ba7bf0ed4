//! RTen, an engine in Rust with tensors of f32, i32, i8 and u8.

mod known;
mod mended;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use polygrad_core::{DType, Error, ErrorKind, HostTensor, Result, Shape};
use rten::{LoadErrorKind, Model, ModelOptions, NodeId, RunErrorKind, RunOptions, ThreadPool, Value};
use rten_tensor::prelude::*;

use self::known::NanSites;
use super::{Engine, Session, Source};
use crate::graph::{ElementType, Graph, Literal};
use crate::import::Options;

pub(super) struct Loaded {
    model: Model,
    pool: Option<Arc<ThreadPool>>,
    outputs: Vec<Output>,
    nan: NanSites,
}

struct Output {
    name: String,
    id: NodeId,
    /// The element type in the file; RTen has fewer types.
    element: Option<ElementType>,
}

impl Loaded {
    pub(super) fn open(source: Source<'_>, graph: &Graph, options: Options) -> Result<Self> {
        let nan = known::refuse(graph)?;
        let source = match mended::mended(graph)? {
            Some(mended) => Source::Bytes(mended.to_bytes()?),
            None => source,
        };
        Ok(Self {
            nan,
            ..Self::load(source, graph, options)?
        })
    }

    /// Loads a model without checking for known deviations.
    fn load(source: Source<'_>, graph: &Graph, options: Options) -> Result<Self> {
        let body = &graph.body;
        for &id in body.inputs.iter().chain(&body.outputs) {
            let value = body.value(id);
            if let Some(ty) = value.ty.as_ref().and_then(|ty| ty.as_tensor()) {
                supported(ty.element).map_err(|e| e.in_module(format!("{:?}", value.name)))?;
            }
        }
        let mut with = ModelOptions::with_all_ops();
        with.prepack_weights(true);
        let model = super::guarded(Engine::Rten, || match source {
            Source::File(path) => with.load_file(path),
            Source::Bytes(bytes) => with.load(bytes),
        })?;
        let model = model.map_err(|e| {
            let kind = match e.kind() {
                LoadErrorKind::OperatorInvalid => ErrorKind::Unsupported,
                LoadErrorKind::IoError | LoadErrorKind::ExternalDataError => ErrorKind::Io,
                _ => ErrorKind::Format,
            };
            super::failed(Engine::Rten, kind, e)
        })?;
        let output = |&id| {
            let value = body.value(id);
            Ok(Output {
                name: value.name.clone(),
                id: find(&model, &value.name)?,
                element: value.ty.as_ref().and_then(|ty| ty.as_tensor()).map(|ty| ty.element),
            })
        };
        let outputs = body.outputs.iter().map(output).collect::<Result<_>>()?;
        Ok(Self {
            pool: options.threads.map(|n| Arc::new(ThreadPool::with_num_threads(n))),
            model,
            outputs,
            nan: NanSites::default(),
        })
    }
}

impl Session for Loaded {
    fn run(&self, inputs: &[(String, Literal)]) -> Result<Vec<Literal>> {
        self.nan
            .check(inputs.iter().map(|(name, literal)| (name.as_str(), literal.host())))?;
        let given = inputs.iter().map(|(name, literal)| {
            let give = || Ok((find(&self.model, name)?, give(literal)?.into()));
            give().map_err(|e: Error| e.in_module(format!("input {name:?}")))
        });
        let given = given.collect::<Result<Vec<_>>>()?;
        let ids: Vec<NodeId> = self.outputs.iter().map(|output| output.id).collect();
        let options = self
            .pool
            .clone()
            .map(|pool| RunOptions::default().with_thread_pool(Some(pool)));
        let results = super::guarded(Engine::Rten, || self.model.run(given, &ids, options))?.map_err(|e| {
            let kind = match e.kind() {
                RunErrorKind::InvalidInput => ErrorKind::InvalidArgument,
                _ => ErrorKind::Unsupported,
            };
            super::failed(Engine::Rten, kind, e)
        })?;
        let take = |(value, output): (Value, &Output)| {
            take(value, output.element).map_err(|e| e.in_module(format!("output {:?}", output.name)))
        };
        results.into_iter().zip(&self.outputs).map(take).collect()
    }
}

fn find(model: &Model, name: &str) -> Result<NodeId> {
    let found = model.node_id(name);
    found.map_err(|e| super::failed(Engine::Rten, ErrorKind::Format, e))
}

/// RTen stores i64 and bool as i32, and computes only in f32.
fn supported(element: ElementType) -> Result<()> {
    match element {
        ElementType::F32
        | ElementType::I32
        | ElementType::I64
        | ElementType::Bool
        | ElementType::I8
        | ElementType::U8 => Ok(()),
        _ => Err(super::failed(
            Engine::Rten,
            ErrorKind::Unsupported,
            format_args!("there are no tensors of {element}"),
        )),
    }
}

fn give(literal: &Literal) -> Result<Value> {
    let (host, element) = (literal.host(), literal.element());
    supported(element)?;
    let shape = host.shape().dims();
    let value = match element {
        ElementType::F32 => Value::from_shape(shape, host.to_vec::<f32>()?).map_err(|e| e.to_string()),
        ElementType::U8 => Value::from_shape(shape, host.to_vec::<u8>()?).map_err(|e| e.to_string()),
        ElementType::I8 => {
            let values = host.to_vec::<i32>()?.into_iter().map(|v| v as i8);
            Value::from_shape(shape, values.collect::<Vec<_>>()).map_err(|e| e.to_string())
        }
        _ => {
            let narrow = |v: i64| {
                i32::try_from(v)
                    .map_err(|_| Error::out_of_range(format!("{v} does not fit into the i32 that RTen holds")))
            };
            let values = host.cast(DType::I64).to_vec::<i64>()?.into_iter().map(narrow);
            Value::from_shape(shape, values.collect::<Result<Vec<i32>>>()?).map_err(|e| e.to_string())
        }
    };
    value.map_err(Error::shape)
}

fn take(value: Value, wanted: Option<ElementType>) -> Result<Literal> {
    let (element, host) = match value {
        Value::FloatTensor(t) => (
            ElementType::F32,
            HostTensor::new(Shape::new(t.shape())?, t.into_data())?,
        ),
        Value::Int32Tensor(t) => (
            ElementType::I32,
            HostTensor::new(Shape::new(t.shape())?, t.into_data())?,
        ),
        Value::UInt8Tensor(t) => (ElementType::U8, HostTensor::new(Shape::new(t.shape())?, t.into_data())?),
        Value::Int8Tensor(t) => {
            let shape = Shape::new(t.shape())?;
            let values: Vec<i32> = t.into_data().into_iter().map(i32::from).collect();
            (ElementType::I8, HostTensor::new(shape, values)?)
        }
        other => {
            let words = format!("{} is no tensor", other.dtype());
            return Err(super::failed(Engine::Rten, ErrorKind::Unsupported, words));
        }
    };
    match wanted {
        Some(wanted) if wanted != element => Literal::new(wanted, host.cast(wanted.dtype()?)),
        _ => Literal::new(element, host),
    }
}
