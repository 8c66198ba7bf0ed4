//! The minimal work of a server: an identity model of one input `x` and one output `y`, over HTTP/1.1 with the binary
//! extension, and over gRPC.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use ::axum::body::Body;
use ::axum::extract::DefaultBodyLimit;
use ::axum::http::{HeaderMap, HeaderValue, StatusCode};
use ::axum::response::{IntoResponse, Response};
use ::axum::routing::{get, post};
use ::axum::{Router, serve};
use ::tonic::server::{Grpc, NamedService, UnaryService};
use ::tonic::{Request, Status};
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::Error;

/// The length of the JSON before the tensors.
const HEAD: &str = "inference-header-content-length";

#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    id: Option<&'a str>,
    #[serde(borrow)]
    inputs: Vec<Tensor<'a>>,
}

#[derive(Serialize)]
struct Answer<'a> {
    model_name: &'a str,
    model_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    outputs: [Tensor<'a>; 1],
}

#[derive(Deserialize, Serialize)]
struct Tensor<'a> {
    name: &'a str,
    datatype: &'a str,
    shape: Vec<u64>,
    parameters: Parameters,
}

#[derive(Deserialize, Serialize)]
struct Parameters {
    binary_data_size: usize,
}

/// Serves over HTTP/1.1.
pub async fn axum(port: u16) -> Result<(), Error> {
    let infer = post(async |headers: HeaderMap, body: Bytes| {
        infer(&headers, &body).unwrap_or_else(|reason| (StatusCode::BAD_REQUEST, reason.to_string()).into_response())
    });
    let router = Router::new()
        .route("/v2/models/identity_fp32/infer", infer)
        .route("/v2/health/ready", get(()))
        .layer(DefaultBodyLimit::max(64 << 20));
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    use ::axum::serve::ListenerExt;
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    Ok(serve(listener, router).await?)
}

fn infer(headers: &HeaderMap, body: &Bytes) -> Result<Response, Error> {
    let length = headers.get(HEAD).ok_or("Inference-Header-Content-Length is missing")?;
    let length: usize = length.to_str()?.parse()?;
    let (head, bytes) = body
        .split_at_checked(length)
        .ok_or("the body is shorter than its head")?;
    let Asked { id, inputs } = serde_json::from_slice(head)?;
    let [input] = <[Tensor; 1]>::try_from(inputs).map_err(|_| "the model has one input")?;
    let size: u64 = input.shape.iter().product::<u64>() * 4;
    if (input.name, input.datatype) != ("x", "FP32")
        || size != bytes.len() as u64
        || input.parameters.binary_data_size != bytes.len()
    {
        return Err("the input is x, FP32, as long as its shape says".into());
    }
    let answer = Answer {
        model_name: "identity_fp32",
        model_version: "1",
        id,
        outputs: [Tensor { name: "y", ..input }],
    };
    let mut out = BytesMut::with_capacity(length + 128 + bytes.len()).writer();
    serde_json::to_writer(&mut out, &answer)?;
    let mut out = out.into_inner();
    let length = HeaderValue::from(out.len());
    out.extend_from_slice(bytes);
    let mut response = Response::new(Body::from(out.freeze()));
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/octet-stream"));
    headers.insert(HEAD, length);
    Ok(response)
}

/// `inference.ModelInferRequest`, without fields that the clients here do not send.
#[derive(Clone, PartialEq, prost::Message)]
struct ModelInferRequest {
    #[prost(string, tag = "1")]
    model_name: String,
    #[prost(string, tag = "3")]
    id: String,
    #[prost(message, repeated, tag = "5")]
    inputs: Vec<InferTensor>,
    #[prost(bytes = "bytes", repeated, tag = "7")]
    raw_input_contents: Vec<Bytes>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct InferTensor {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    datatype: String,
    #[prost(int64, repeated, tag = "3")]
    shape: Vec<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ModelInferResponse {
    #[prost(string, tag = "1")]
    model_name: String,
    #[prost(string, tag = "2")]
    model_version: String,
    #[prost(string, tag = "3")]
    id: String,
    #[prost(message, repeated, tag = "5")]
    outputs: Vec<InferTensor>,
    #[prost(bytes = "bytes", repeated, tag = "6")]
    raw_output_contents: Vec<Bytes>,
}

struct Identity;

impl UnaryService<ModelInferRequest> for Identity {
    type Response = ModelInferResponse;
    type Future = Ready<Result<::tonic::Response<ModelInferResponse>, Status>>;

    fn call(&mut self, request: Request<ModelInferRequest>) -> Self::Future {
        ready(identity(request.into_inner()).map(::tonic::Response::new))
    }
}

fn identity(asked: ModelInferRequest) -> Result<ModelInferResponse, Status> {
    let refused = |what: &str| Status::invalid_argument(what.to_owned());
    let [mut tensor] = <[InferTensor; 1]>::try_from(asked.inputs).map_err(|_| refused("the model has one input"))?;
    let [bytes] = <[Bytes; 1]>::try_from(asked.raw_input_contents).map_err(|_| refused("its content comes raw"))?;
    let size = tensor.shape.iter().product::<i64>() * 4;
    if (tensor.name.as_str(), tensor.datatype.as_str()) != ("x", "FP32") || size != bytes.len() as i64 {
        return Err(refused("the input is x, FP32, as long as its shape says"));
    }
    tensor.name = "y".to_owned();
    Ok(ModelInferResponse {
        model_name: asked.model_name,
        model_version: "1".to_owned(),
        id: asked.id,
        outputs: vec![tensor],
        raw_output_contents: vec![bytes],
    })
}

#[derive(Clone)]
struct Inference;

impl NamedService for Inference {
    const NAME: &'static str = "inference.GRPCInferenceService";
}

impl tower_service::Service<http::Request<::tonic::body::Body>> for Inference {
    type Response = http::Response<::tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<::tonic::body::Body>) -> Self::Future {
        Box::pin(async move {
            let codec = tonic_prost::ProstCodec::default();
            Ok(match request.uri().path().rsplit('/').next() {
                Some("ModelInfer") => Grpc::new(codec).unary(Identity, request).await,
                _ => Status::unimplemented("").into_http(),
            })
        })
    }
}

/// Serves over gRPC.
pub async fn tonic(port: u16) -> Result<(), Error> {
    let server = ::tonic::transport::Server::builder().add_service(Inference);
    Ok(server.serve(([127, 0, 0, 1], port).into()).await?)
}
