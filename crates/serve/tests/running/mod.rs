//! A running server, and connections to it.
#![allow(dead_code, reason = "each test takes what it needs")]

pub(crate) mod messages;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use polygrad_serve::{Model, Pool, Repository, Server, ServerOptions, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Generated from `proto/`.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    reason = "generated"
)]
pub(crate) mod proto {
    include!(concat!(env!("OUT_DIR"), "/client/inference.rs"));

    pub(crate) mod health {
        include!(concat!(env!("OUT_DIR"), "/client/grpc.health.v1.rs"));
    }
}

/// Stops when it is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) repository: Repository,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<usize>,
}

pub(crate) fn repository(models: Vec<(&str, Arc<dyn Model>)>, settings: &Settings) -> Repository {
    let repository = Repository::new(Pool::new(2).unwrap());
    for (name, model) in models {
        let source = move || Ok(Arc::clone(&model));
        repository.add(name, 1, source, settings.clone()).unwrap();
        repository.load(name).unwrap();
    }
    repository
}

impl Running {
    pub(crate) async fn start(repository: Repository, options: ServerOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = Server::new(repository.clone(), options);
        let server = tokio::spawn(async move {
            let shutdown = async move { drop(stopped.await) };
            server.serve(listener, shutdown).await
        });
        Self {
            address,
            repository,
            stop: Some(stop),
            server,
        }
    }

    /// Starts a server with default settings.
    pub(crate) async fn of(models: Vec<(&str, Arc<dyn Model>)>) -> Self {
        Self::start(repository(models, &Settings::default()), ServerOptions::default()).await
    }

    /// Tells the server to stop.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until it has stopped, and returns how many connections were cut off.
    pub(crate) async fn ended(mut self) -> usize {
        self.stop();
        self.server.await.unwrap()
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    pub(crate) async fn channel(&self) -> tonic::transport::Channel {
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        endpoint.connect().await.unwrap()
    }

    pub(crate) async fn grpc(
        &self,
    ) -> proto::grpc_inference_service_client::GrpcInferenceServiceClient<tonic::transport::Channel> {
        let client = proto::grpc_inference_service_client::GrpcInferenceServiceClient::new(self.channel().await);
        client.max_decoding_message_size(usize::MAX)
    }

    /// The answer to a request without a body, on its own connection.
    pub(crate) async fn get(&self, path: &str) -> String {
        let mut stream = self.connect().await;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        to_end(&mut stream).await
    }
}

/// All bytes until the other side closes.
pub(crate) async fn to_end(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut bytes));
    // A reset connection has ended, too.
    let _ = read.await.expect("the connection stays open");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads one HTTP/1.1 answer with a content length; `None` if the connection ends first.
pub(crate) async fn one_answer(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some(head) = text.find("\r\n\r\n") {
            let length = text.to_lowercase();
            let length = length.split("content-length: ").nth(1)?;
            let length: usize = length.split("\r\n").next()?.parse().ok()?;
            if text.len() >= head + 4 + length {
                return Some(text);
            }
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
        }
    }
}

/// A request to `model` with one number, which returns the sum so far or the number itself.
pub(crate) fn post(model: &str, value: f32) -> String {
    let body = format!(r#"{{"inputs":[{{"name":"x","datatype":"FP32","shape":[1,1],"data":[{value}]}}]}}"#);
    format!(
        "POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
