//! ONNX Runtime. Its library is searched for when the first model is loaded.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use ort::environment::Environment;
use ort::logging::LogLevel;
use ort::memory::Allocator;
use ort::session::{Session as OrtSession, SessionInputValue};
use ort::value::{DynValue, PrimitiveTensorElementType, Tensor, TensorElementType, TensorRef, ValueType};
use polygrad_core::{DType, Element, Error, ErrorKind, HostTensor, Result, Shape, bf16, f16};

use super::{Engine, Session, Source};
use crate::graph::{ElementType, Graph, Literal};
use crate::import::Options;

/// Environment variable with the path of the library's file.
const VARIABLE: &str = "ORT_DYLIB_PATH";

/// A version of ONNX Runtime, and the newest files that it accepts: the version of the format and the opset of
/// `ai.onnx`.
const KNOWN: (&str, i64, i64) = ("1.32", 14, 28);

/// A process has one environment.
static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);

/// ONNX Runtime itself.
///
/// # Errors
/// If there is no library, or it is not ONNX Runtime or too old.
pub(super) fn environment() -> Result<Environment> {
    let mut environment = ENVIRONMENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(environment) = &*environment {
        return Ok(environment.clone());
    }
    let path = match std::env::var_os(VARIABLE) {
        Some(path) if !path.is_empty() => PathBuf::from(path),
        _ => PathBuf::from(format!(
            "{}onnxruntime{}",
            std::env::consts::DLL_PREFIX,
            std::env::consts::DLL_SUFFIX
        )),
    };
    let missing = |words: String| {
        Error::new(ErrorKind::BackendUnavailable, format!("ONNX Runtime: {words}")).with_hint(format!(
            "let {VARIABLE} name the file of an ONNX Runtime of version 1.22 or newer; `cargo xtask setup onnxruntime` fetches one"
        ))
    };
    let builder = ort::init_from(path).map_err(|e| missing(e.to_string()))?;
    let made = builder
        .with_name("polygrad")
        .build()
        .map_err(|e| missing(e.message().to_owned()))?;
    *environment = Some(made.clone());
    Ok(made)
}

pub(super) struct Loaded {
    /// A run needs exclusive access.
    session: Mutex<OrtSession>,
    outputs: Vec<String>,
}

impl Loaded {
    pub(super) fn open(source: Source<'_>, graph: &Graph, options: Options) -> Result<Self> {
        let environment = environment()?;
        let mut builder = OrtSession::builder(&environment).map_err(failed)?;
        builder = builder.with_log_level(LogLevel::Error).map_err(failed)?;
        if let Some(threads) = options.threads {
            builder = builder.with_intra_threads(threads).map_err(failed)?;
        }
        let session = match source {
            Source::File(path) => builder.commit_from_file(path),
            Source::Bytes(bytes) => builder.commit_from_memory(&bytes),
        };
        let body = &graph.body;
        Ok(Self {
            session: Mutex::new(session.map_err(|e| not_loaded(e, graph))?),
            outputs: body.outputs.iter().map(|&id| body.name_of(id).to_owned()).collect(),
        })
    }
}

impl Session for Loaded {
    fn run(&self, inputs: &[(String, Literal)]) -> Result<Vec<Literal>> {
        let given = inputs.iter().map(|(name, literal)| {
            let value = lend(literal).map_err(|e| e.in_module(format!("input {name:?}")))?;
            Ok((name.as_str(), value))
        });
        let given: Vec<(&str, SessionInputValue<'_>)> = given.collect::<Result<_>>()?;
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let session = &mut *session;
        let results = super::guarded(Engine::Ort, move || session.run(given))?.map_err(failed)?;
        let take = |name: &String| {
            let value = results.get(name);
            let value = value.ok_or_else(|| Error::invalid("ONNX Runtime gave no such output"));
            value
                .and_then(take)
                .map_err(|e| e.in_module(format!("output {name:?}")))
        };
        self.outputs.iter().map(take).collect()
    }
}

/// A view if the element type is that of the dtype, else a copy.
fn lend(literal: &Literal) -> Result<SessionInputValue<'_>> {
    let host = literal.host();
    match literal.element() {
        ElementType::F32 => view::<f32>(host),
        ElementType::F64 => view::<f64>(host),
        ElementType::F16 => view::<f16>(host),
        ElementType::BF16 => view::<bf16>(host),
        ElementType::I32 => view::<i32>(host),
        ElementType::I64 => view::<i64>(host),
        ElementType::U8 => view::<u8>(host),
        ElementType::Bool => view::<bool>(host),
        ElementType::I8 => copy(host, |v| v as i8),
        ElementType::I16 => copy(host, |v| v as i16),
        ElementType::U16 => copy(host, |v| v as u16),
        ElementType::U32 => copy(host, |v| v as u32),
        ElementType::U64 => copy(host, |v| v as u64),
        element => Err(super::failed(
            Engine::Ort,
            ErrorKind::Unsupported,
            format_args!("no tensors of {element} here"),
        )),
    }
}

fn view<T: Element + PrimitiveTensorElementType>(host: &HostTensor) -> Result<SessionInputValue<'_>> {
    if host.shape().numel() == 0 {
        return empty::<T>(host);
    }
    let tensor = TensorRef::from_array_view((host.shape().dims(), host.as_slice::<T>()?));
    Ok(tensor.map_err(failed)?.into())
}

fn copy<T>(host: &HostTensor, narrow: impl Fn(i64) -> T) -> Result<SessionInputValue<'_>>
where
    T: PrimitiveTensorElementType + Clone + std::fmt::Debug + 'static,
{
    if host.shape().numel() == 0 {
        return empty::<T>(host);
    }
    let values: Vec<T> = host.cast(DType::I64).to_vec()?.into_iter().map(narrow).collect();
    Ok(Tensor::from_array((host.shape().dims(), values))
        .map_err(failed)?
        .into())
}

/// An empty tensor in ONNX Runtime's own memory, since lent memory must have an address.
fn empty<T: PrimitiveTensorElementType + std::fmt::Debug>(host: &HostTensor) -> Result<SessionInputValue<'_>> {
    Ok(Tensor::<T>::new(&Allocator::default(), host.shape().dims())
        .map_err(failed)?
        .into())
}

fn take(value: &DynValue) -> Result<Literal> {
    let ValueType::Tensor { ty, .. } = value.dtype() else {
        return Err(super::failed(
            Engine::Ort,
            ErrorKind::Unsupported,
            format_args!("{} is no tensor", value.dtype()),
        ));
    };
    match ty {
        TensorElementType::Float32 => same::<f32>(value),
        TensorElementType::Float64 => same::<f64>(value),
        TensorElementType::Float16 => same::<f16>(value),
        TensorElementType::Bfloat16 => same::<bf16>(value),
        TensorElementType::Int32 => same::<i32>(value),
        TensorElementType::Int64 => same::<i64>(value),
        TensorElementType::Uint8 => same::<u8>(value),
        TensorElementType::Bool => same::<bool>(value),
        TensorElementType::Int8 => wider(value, ElementType::I8, |v: i8| v.into()),
        TensorElementType::Int16 => wider(value, ElementType::I16, |v: i16| v.into()),
        TensorElementType::Uint16 => wider(value, ElementType::U16, |v: u16| v.into()),
        TensorElementType::Uint32 => wider(value, ElementType::U32, |v: u32| v.into()),
        TensorElementType::Uint64 => {
            let large = |v: u64| Error::out_of_range(format!("{v} is no uint64 that can be held in an i64"));
            let (shape, values) = value.try_extract_tensor::<u64>().map_err(failed)?;
            let values = values.iter().map(|&v| i64::try_from(v).map_err(|_| large(v)));
            Literal::new(
                ElementType::U64,
                HostTensor::new(extents(shape)?, values.collect::<Result<Vec<i64>>>()?)?,
            )
        }
        other => Err(super::failed(
            Engine::Ort,
            ErrorKind::Unsupported,
            format_args!("no tensors of {other} here"),
        )),
    }
}

fn same<T: Element + PrimitiveTensorElementType>(value: &DynValue) -> Result<Literal> {
    let (shape, values) = value.try_extract_tensor::<T>().map_err(failed)?;
    Ok(HostTensor::new(extents(shape)?, values.to_vec())?.into())
}

fn wider<T: Copy + PrimitiveTensorElementType>(
    value: &DynValue,
    element: ElementType,
    widen: impl Fn(T) -> i64,
) -> Result<Literal> {
    let (shape, values) = value.try_extract_tensor::<T>().map_err(failed)?;
    let values: Vec<i64> = values.iter().map(|&v| widen(v)).collect();
    Literal::new(
        element,
        HostTensor::new(extents(shape)?, values)?.cast(element.dtype()?),
    )
}

fn extents(shape: &[i64]) -> Result<Shape> {
    let extent = |&extent: &i64| {
        usize::try_from(extent).map_err(|_| Error::shape(format!("ONNX Runtime gave a tensor of shape {shape:?}")))
    };
    Shape::new(&shape.iter().map(extent).collect::<Result<Vec<_>>>()?)
}

/// Error of a model that was not loaded. If the library is too old for the file, it says so, since the file is not at
/// fault.
fn not_loaded<R>(error: ort::Error<R>, graph: &Graph) -> Error {
    let (ir, opset) = (graph.header.ir_version, graph.opsets.get("").copied().unwrap_or(0));
    let words = error.message();
    let what = match words {
        _ if words.contains("Unsupported model IR version") => format!("IR version {ir}"),
        _ if words.contains("is under development and support for this is limited") => format!("op set {opset}"),
        _ => return failed(error),
    };
    let (version, newest_ir, newest_opset) = KNOWN;
    let wanted = match ir <= newest_ir && opset <= newest_opset {
        true => format!("{version} or newer"),
        false => format!("newer than {version}"),
    };
    let message = format!("ONNX Runtime: the library is older than the file, which is of {what}");
    Error::unsupported(message).with_hint(format!(
        "let {VARIABLE} name the file of an ONNX Runtime {wanted}, or take the engine native (--engine native)"
    ))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed<R>(error: ort::Error<R>) -> Error {
    use ort::ErrorCode;
    let kind = match error.code() {
        ErrorCode::NotImplemented => ErrorKind::Unsupported,
        // Cubic Resize: ONNX Runtime has only a few forms of it, and says so only when it runs.
        _ if error.message().contains("' mode only supports") => ErrorKind::Unsupported,
        // An unknown op makes a graph invalid.
        ErrorCode::InvalidGraph | ErrorCode::GenericFailure if error.message().contains("not a registered") => {
            ErrorKind::Unsupported
        }
        ErrorCode::InvalidProtobuf | ErrorCode::InvalidGraph | ErrorCode::NoModel => ErrorKind::Format,
        ErrorCode::InvalidArgument => ErrorKind::InvalidArgument,
        ErrorCode::NoSuchFile => ErrorKind::Io,
        _ => ErrorKind::DeviceError,
    };
    super::failed(Engine::Ort, kind, error.message())
}
