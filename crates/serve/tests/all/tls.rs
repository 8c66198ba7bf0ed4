//! Connections by TLS.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::running::proto::ServerLiveRequest;
use crate::running::proto::grpc_inference_service_client::GrpcInferenceServiceClient;
use crate::running::{Running, one_answer, post, repository, to_end};
use crate::support::identity;
use polygrad_onnx::graph::ElementType;
use polygrad_serve::{Limits, ServerOptions, Settings, Tls};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Writes a certificate for localhost and its key, and returns the certificate.
fn certify(folder: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

async fn connect(
    server: &Running,
    trusted: CertificateDer<'static>,
    protocol: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, server.connect().await)
        .await
}

async fn started(folder: &Path, limits: Limits) -> Running {
    let tls = Tls::from_pem_files(folder.join("cert.pem"), folder.join("key.pem")).unwrap();
    assert!(!format!("{tls:?}").contains("KEY"));
    let models = repository(vec![("identity", identity(ElementType::F32))], &Settings::default());
    let options = ServerOptions {
        tls: Some(tls),
        limits,
        ..ServerOptions::default()
    };
    Running::start(models, options).await
}

#[tokio::test]
async fn http_and_grpc_are_answered_by_tls() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = certify(folder.path());
    let server = started(folder.path(), Limits::default()).await;
    let mut stream = connect(&server, certificate.clone(), "http/1.1").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    for _ in 0..3 {
        stream.write_all(post("identity", 8.0).as_bytes()).await.unwrap();
        assert!(one_answer(&mut stream).await.unwrap().contains('8'));
    }
    let stream = connect(&server, certificate, "h2").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut stream = Some(hyper_util::rt::TokioIo::new(stream));
    let connector = tower::service_fn(move |_: axum::http::Uri| {
        let stream = stream.take().ok_or_else(|| std::io::Error::other("only one"));
        async move { stream }
    });
    let endpoint = tonic::transport::Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connector).await.unwrap();
    let mut client = GrpcInferenceServiceClient::new(channel);
    assert!(
        client
            .server_live(ServerLiveRequest {})
            .await
            .unwrap()
            .into_inner()
            .live
    );
}

#[tokio::test]
async fn a_new_certificate_is_taken_when_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let first = certify(folder.path());
    let server = started(folder.path(), Limits::default()).await;
    connect(&server, first.clone(), "h2").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    std::fs::write(folder.path().join("cert.pem"), "half").unwrap();
    connect(&server, first.clone(), "h2").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let second = certify(folder.path());
    connect(&server, second, "h2").await.unwrap();
    connect(&server, first, "h2").await.unwrap_err();
}

#[tokio::test]
async fn whoever_does_not_speak_tls_harms_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = certify(folder.path());
    let limits = Limits {
        header_timeout: Duration::from_millis(300),
        ..Limits::default()
    };
    let server = started(folder.path(), limits).await;
    let mut silent = server.connect().await;
    assert!(!server.get("/v2").await.starts_with("HTTP"));
    to_end(&mut silent).await;
    connect(&server, certificate, "h2").await.unwrap();
}

#[test]
fn files_that_cannot_be_used_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let refused = |cert: &Path, key: &Path, message: &str| {
        let error = Tls::from_pem_files(cert, key).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    };
    refused(&folder.path().join("none.pem"), &key, "none.pem: No such file");
    refused(&key, &key, "the certificate in");
    refused(&cert, &cert, "the key in");
    let other = tempfile::tempdir().unwrap();
    certify(other.path());
    refused(&cert, &other.path().join("key.pem"), "cannot be used together");
}
