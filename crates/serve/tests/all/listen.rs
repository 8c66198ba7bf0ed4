//! Connections: their limits, their end, and access.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::running::messages::float;
use crate::running::proto::health::HealthCheckRequest;
use crate::running::proto::health::health_client::HealthClient;
use crate::running::proto::{ServerLiveRequest, ServerMetadataRequest};
use crate::running::{Running, one_answer, post, repository, to_end};
use crate::support::{counted, identity};
use polygrad_core::DType;
use polygrad_onnx::graph::ElementType;
use polygrad_serve::{Limits, Server, ServerOptions, Settings, Tokens};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::{Code, Request};

const SHORT: Duration = Duration::from_millis(300);

/// Short timeouts, so that tests do not take long.
fn limits() -> Limits {
    Limits {
        header_timeout: SHORT,
        body_timeout: SHORT,
        keep_alive: SHORT,
        ..Limits::default()
    }
}

async fn limited(limits: Limits) -> Running {
    let models = repository(vec![("identity", identity(ElementType::F32))], &Settings::default());
    Running::start(
        models,
        ServerOptions {
            limits,
            ..ServerOptions::default()
        },
    )
    .await
}

async fn still_answers(server: &Running) {
    let answer = server.get("/v2/health/ready").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn connections_that_say_nothing_or_dawdle_are_closed() {
    let server = limited(limits()).await;
    let begun = Instant::now();
    let mut silent = server.connect().await;
    let mut http2 = server.connect().await;
    http2.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let mut slow = server.connect().await;
    slow.write_all(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n")
        .await
        .unwrap();
    let (mut read, mut write) = slow.into_split();
    let dawdle = tokio::spawn(async move {
        for i in 0.. {
            if write.write_all(format!("x-{i}: 1\r\n").as_bytes()).await.is_err() {
                break;
            }
            tokio::time::sleep(SHORT / 10).await;
        }
    });
    to_end(&mut silent).await;
    to_end(&mut http2).await;
    to_end(&mut read).await;
    assert!(begun.elapsed() >= SHORT);
    dawdle.await.unwrap();
    still_answers(&server).await;
}

#[tokio::test]
async fn idle_connections_are_closed_and_busy_ones_are_not() {
    let model = counted(ElementType::F32, Arc::default(), SHORT * 2);
    let models = repository(
        vec![("slow", model), ("identity", identity(ElementType::F32))],
        &Settings::default(),
    );
    let server = Running::start(
        models,
        ServerOptions {
            limits: limits(),
            ..ServerOptions::default()
        },
    )
    .await;
    let mut stream = server.connect().await;
    // Longer than a connection may be idle, and then twice again.
    for model in ["slow", "identity", "slow"] {
        stream.write_all(post(model, 3.0).as_bytes()).await.unwrap();
        let answer = one_answer(&mut stream).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        tokio::time::sleep(SHORT / 3).await;
    }
    let idle = Instant::now();
    assert_eq!(to_end(&mut stream).await, "");
    assert!(idle.elapsed() < SHORT * 10);
}

#[tokio::test]
async fn bodies_that_come_too_slowly_are_given_up() {
    let server = limited(limits()).await;
    let mut stream = server.connect().await;
    let head = "POST /v2/models/identity/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = to_end(&mut stream).await;
    assert!(
        answer.starts_with("HTTP/1.1 4") && answer.contains("too slowly"),
        "{answer}"
    );

    // A request that is slow, but not too slow.
    let request = post("identity", 2.0);
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut stream = server.connect().await;
    stream.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
    for piece in body.as_bytes().chunks(body.len() / 4) {
        stream.write_all(piece).await.unwrap();
        tokio::time::sleep(SHORT / 10).await;
    }
    let answer = one_answer(&mut stream).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn an_answer_that_is_read_slowly_is_read_whole() {
    let models = repository(vec![("identity", identity(ElementType::U8))], &Settings::default());
    let server = Running::start(
        models,
        ServerOptions {
            limits: limits(),
            ..ServerOptions::default()
        },
    )
    .await;
    let length = 24 << 20;
    let head = format!(
        r#"{{"inputs":[{{"name":"x","datatype":"UINT8","shape":[1,{length}],"parameters":{{"binary_data_size":{length}}}}}],"parameters":{{"binary_data_output":true}}}}"#
    );
    let request = format!(
        "POST /v2/models/identity/infer HTTP/1.1\r\nHost: localhost\r\nInference-Header-Content-Length: {}\r\nContent-Length: {}\r\n\r\n{head}",
        head.len(),
        head.len() + length
    );
    let mut stream = server.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.write_all(&vec![7; length]).await.unwrap();
    let began = Instant::now();
    let (mut found, mut piece) = (0, vec![0; 1 << 20]);
    while found < length {
        let read = stream.read(&mut piece).await.unwrap();
        assert!(read > 0, "{found} bytes of {length} came");
        found += read;
        tokio::time::sleep(SHORT / 10).await;
    }
    assert!(began.elapsed() > SHORT * 2, "it was read too quickly to tell anything");
}

#[tokio::test]
async fn headers_have_a_longest_length() {
    let server = limited(Limits {
        header_bytes: 16 << 10,
        ..Limits::default()
    })
    .await;
    let long = "a".repeat(32 << 10);
    let mut stream = server.connect().await;
    let _ = stream
        .write_all(format!("GET /v2 HTTP/1.1\r\nx: {long}\r\n\r\n").as_bytes())
        .await;
    let answer = to_end(&mut stream).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    let mut client = server.grpc().await;
    let mut request = Request::new(ServerLiveRequest {});
    request.metadata_mut().insert("x", long.parse().unwrap());
    client.server_live(request).await.unwrap_err();
    still_answers(&server).await;
}

#[tokio::test]
async fn garbage_ends_its_own_connection_alone() {
    let server = limited(Limits::default()).await;
    let mut healthy = server.connect().await;
    let garbage: Vec<u8> = (0..4096_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let mut frames = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frames.extend_from_slice(&garbage);
    let tls_hello = [&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01][..], &garbage].concat();
    for sent in [
        &garbage[..],
        &frames,
        &tls_hello,
        b"GET\r\n\r\n",
        b"\0\0\0\0\0\0",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ] {
        let mut stream = server.connect().await;
        let _ = stream.write_all(sent).await;
        let _ = stream.shutdown().await;
        let answer = to_end(&mut stream).await;
        assert!(!answer.starts_with("HTTP/1.1 5"), "{answer}");
    }
    healthy.write_all(post("identity", 4.0).as_bytes()).await.unwrap();
    assert!(one_answer(&mut healthy).await.unwrap().starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_client_that_closes_its_half_gets_its_answer_and_one_that_goes_harms_nobody() {
    let server = limited(Limits::default()).await;
    let mut stream = server.connect().await;
    stream.write_all(post("identity", 5.0).as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = to_end(&mut stream).await;
    assert!(answer.contains("5.0") || answer.is_empty(), "{answer}");
    for cut in [1, 20, 60, 130] {
        let mut stream = server.connect().await;
        stream
            .write_all(&post("identity", 5.0).as_bytes()[..cut])
            .await
            .unwrap();
    }
    still_answers(&server).await;
}

/// A client that sends one request after another, and reconnects when the server closes the connection.
async fn ask_until_refused(address: std::net::SocketAddr, answered: Arc<AtomicUsize>, is_over: Arc<AtomicBool>) {
    'connections: while let Ok(mut stream) = TcpStream::connect(address).await {
        for i in 0.. {
            if stream.write_all(post("slow", i as f32).as_bytes()).await.is_err() {
                assert!(is_over.load(Ordering::SeqCst), "a request was lost in full swing");
                continue 'connections;
            }
            match one_answer(&mut stream).await {
                Some(answer) => {
                    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                    answered.fetch_add(1, Ordering::SeqCst);
                    if answer.to_lowercase().contains("connection: close") {
                        assert!(is_over.load(Ordering::SeqCst), "a connection was closed in full swing");
                        continue 'connections;
                    }
                }
                None if i == 0 => break 'connections,
                None => panic!("request {i} of its connection was lost"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_server_ends_every_request_that_was_accepted_is_answered() {
    for _ in 0..20 {
        let model = counted(ElementType::F32, Arc::default(), Duration::from_millis(2));
        let models = repository(vec![("slow", model)], &Settings::default());
        let mut server = Running::start(models, ServerOptions::default()).await;
        let (answered, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let clients: Vec<_> = (0..8)
            .map(|_| {
                tokio::spawn(ask_until_refused(
                    server.address,
                    Arc::clone(&answered),
                    Arc::clone(&is_over),
                ))
            })
            .collect();
        let mut idle = server.connect().await;
        idle.write_all(post("slow", 1.0).as_bytes()).await.unwrap();
        one_answer(&mut idle).await.unwrap();
        let mut grpc = server.grpc().await;
        let call = tokio::spawn(async move { grpc.model_infer(float("slow", 1.0)).await });
        tokio::time::sleep(Duration::from_millis(60)).await;
        call.await.unwrap().unwrap();
        is_over.store(true, Ordering::SeqCst);
        server.stop();
        for client in clients {
            client.await.unwrap();
        }
        assert_eq!(to_end(&mut idle).await, "");
        assert!(answered.load(Ordering::SeqCst) > 0);
        assert_eq!(server.ended().await, 0);
    }
}

#[tokio::test]
async fn a_server_that_ends_is_not_ready_and_waits_no_longer_than_it_may() {
    let model = counted(ElementType::F32, Arc::default(), SHORT * 4);
    let models = repository(vec![("slow", model)], &Settings::default());
    let limits = Limits {
        drain: SHORT,
        ..Limits::default()
    };
    let mut server = Running::start(
        models,
        ServerOptions {
            limits,
            ..ServerOptions::default()
        },
    )
    .await;
    let mut stream = server.connect().await;
    stream.write_all(post("slow", 1.0).as_bytes()).await.unwrap();
    let mut open = server.connect().await;
    open.write_all(b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut piece = [0; 1000];
    let read = open.read(&mut piece).await.unwrap();
    assert!(piece[..read].starts_with(b"HTTP/1.1 200"));
    server.stop();
    let began = Instant::now();
    tokio::time::sleep(SHORT / 10).await;
    open.write_all(b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let answer = to_end(&mut open).await;
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("connection: close"),
        "{answer}"
    );
    TcpStream::connect(server.address).await.unwrap_err();
    assert_eq!(server.ended().await, 1);
    assert!(began.elapsed() < SHORT * 3, "{:?}", began.elapsed());
    assert_eq!(to_end(&mut stream).await, "");
}

#[tokio::test]
async fn with_tokens_only_their_owners_are_answered() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "secret-one\n\n  secret-two \n").unwrap();
    let tokens = Tokens::from_file(file.path()).unwrap();
    assert!(!format!("{tokens:?}").contains("secret"));
    let models = repository(vec![("identity", identity(ElementType::F32))], &Settings::default());
    let options = ServerOptions {
        tokens: Some(tokens),
        ..ServerOptions::default()
    };
    let server = Running::start(models, options).await;
    for path in ["/v2", "/v2/models/identity/ready", "/metrics", "/", "/nowhere"] {
        let answer = server.get(path).await.to_lowercase();
        assert!(
            answer.starts_with("http/1.1 401") && answer.contains("www-authenticate: bearer"),
            "{answer}"
        );
    }
    for path in ["/v2/health/ready", "/v2/health/live"] {
        assert!(server.get(path).await.starts_with("HTTP/1.1 200"));
    }
    let ask = async |header: &str| {
        let mut stream = server.connect().await;
        let request = format!("GET /v2 HTTP/1.1\r\nHost: localhost\r\n{header}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        to_end(&mut stream).await
    };
    for good in ["Bearer secret-one", "bearer secret-two"] {
        let answer = ask(&format!("Authorization: {good}\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    for bad in [
        "Bearer secret",
        "Bearer secret-onee",
        "Bearer ",
        "Bearer",
        "Basic secret-one",
        "secret-one",
        "",
    ] {
        let answer = ask(&format!("Authorization: {bad}\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 401"), "{bad}: {answer}");
        assert!(!answer.contains("secret"), "{answer}");
    }

    let mut client = server.grpc().await;
    client.server_live(ServerLiveRequest {}).await.unwrap();
    let mut health = HealthClient::new(server.channel().await);
    health.check(HealthCheckRequest::default()).await.unwrap();
    let status = client.server_metadata(ServerMetadataRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    let status = client.model_infer(float("identity", 0.0)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    let mut request = Request::new(float("identity", 0.0));
    request
        .metadata_mut()
        .insert("authorization", "Bearer secret-two".parse().unwrap());
    client.model_infer(request).await.unwrap();

    // A new file takes effect from the next second on; one that cannot be read locks all clients out.
    for (text, status) in [
        (Some("secret-three\n"), 401),
        (Some("secret-one\n"), 200),
        (Some(""), 401),
        (Some("secret-one\n"), 200),
        (None, 401),
    ] {
        tokio::time::sleep(Duration::from_millis(1100)).await;
        match text {
            Some(text) => std::fs::write(file.path(), text).unwrap(),
            None => std::fs::remove_file(file.path()).unwrap(),
        }
        let answer = ask("Authorization: Bearer secret-one\r\n").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{text:?}: {answer}");
    }
}

#[test]
fn tokens_that_cannot_be_used_are_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for (text, message) in [
        ("", "holds no token"),
        ("a\nb c\n", "token 2 in"),
        ("a\n\u{fc}\n", "token 2 in"),
    ] {
        std::fs::write(file.path(), text).unwrap();
        let error = Tokens::from_file(file.path()).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    let error = Tokens::from_file("/nowhere/tokens").unwrap_err().to_string();
    assert!(error.contains("/nowhere/tokens"), "{error}");
}

#[tokio::test]
async fn request_ids_are_taken_over_or_made() {
    let server = limited(Limits::default()).await;
    let ask = async |header: &str| {
        let mut stream = server.connect().await;
        let request = format!("GET /nowhere HTTP/1.1\r\nHost: localhost\r\n{header}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = to_end(&mut stream).await;
        let id = answer.split("x-request-id: ").nth(1).unwrap();
        id.split("\r\n").next().unwrap().to_owned()
    };
    assert_eq!(ask("X-Request-Id: mine-1\r\n").await, "mine-1");
    let made = [
        ask("").await,
        ask("X-Request-Id:\r\n").await,
        ask(&format!("X-Request-Id: {}\r\n", "a".repeat(200))).await,
    ];
    for id in &made {
        assert!(id.len() == 16 && id.bytes().all(|c| c.is_ascii_hexdigit()), "{id}");
    }
    assert!(made[0] != made[1] && made[1] != made[2]);
    let response = server.grpc().await.server_live(ServerLiveRequest {}).await.unwrap();
    assert_eq!(response.metadata().get("x-request-id").unwrap().len(), 16);
}

#[tokio::test]
async fn metrics_tell_what_was_done() {
    let server = limited(Limits::default()).await;
    let mut stream = server.connect().await;
    for _ in 0..3 {
        stream.write_all(post("identity", 1.0).as_bytes()).await.unwrap();
        one_answer(&mut stream).await.unwrap();
    }
    stream.write_all(post("nowhere", 1.0).as_bytes()).await.unwrap();
    one_answer(&mut stream).await.unwrap();
    server.grpc().await.model_infer(float("identity", 0.0)).await.unwrap();
    let page = server.get("/metrics").await;
    let labels = r#"{model="identity",version="1"}"#;
    for line in [
        &format!("polygrad_requests_total{labels} 4\n"),
        &format!("polygrad_rows_total{labels} 4\n"),
        &format!("polygrad_requests_waiting{labels} 0\n"),
        &format!("polygrad_request_duration_seconds_count{labels} 4\n"),
        "polygrad_request_duration_seconds_bucket{model=\"identity\",version=\"1\",le=\"+Inf\"} 4\n",
        "polygrad_ready 1\n",
        "# TYPE polygrad_queue_seconds_total counter\n",
        "# TYPE polygrad_request_duration_seconds histogram\n",
    ] {
        assert!(page.contains(line), "{line}{page}");
    }
    // Names that are no model's are not used as labels.
    assert!(!page.contains("nowhere"), "{page}");
    if cfg!(target_os = "linux") {
        assert!(page.contains("process_resident_memory_bytes "), "{page}");
    }
    let received = page
        .lines()
        .find_map(|line| line.strip_prefix("polygrad_received_bytes_total "))
        .unwrap();
    assert!(received.parse::<u64>().unwrap() > 200, "{received}");
}

#[tokio::test]
async fn a_router_in_a_program_of_ones_own_has_it_all() {
    use axum::body::Body;
    use tower::ServiceExt;
    let models = repository(vec![("identity", identity(DType::F32.into()))], &Settings::default());
    let own = axum::Router::new().nest("/models", Server::new(models, ServerOptions::default()).router());
    let request = axum::http::Request::get("/models/v2/health/ready")
        .body(Body::empty())
        .unwrap();
    assert_eq!(own.oneshot(request).await.unwrap().status(), 200);
}
