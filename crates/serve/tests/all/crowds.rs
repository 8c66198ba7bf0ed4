//! Many connections, unread answers, and foreign pages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::running::messages::float;
use crate::running::{Running, one_answer, post, repository, to_end};
use crate::support::{Function, floats, identity, signature, spec};
use polygrad_core::DType;
use polygrad_onnx::graph::ElementType;
use polygrad_serve::{Limits, Model, ServerOptions, Settings, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// More bytes than a client that does not read has room for.
const LARGE: usize = 16 << 20;

/// A model that returns `LARGE` bytes for any input.
fn large() -> Arc<dyn Model> {
    let x = spec("x", DType::F32, &["1", "1"]);
    let y = spec("y", DType::F32, &["1", "width"]);
    let run = |_: &[Value]| Ok(vec![floats(&[1, LARGE / 4], vec![0.5; LARGE / 4])]);
    Arc::new(Function {
        signature: signature(vec![x], vec![y]),
        run,
    })
}

async fn limited(limits: Limits) -> Running {
    let models = vec![("identity", identity(ElementType::F32)), ("large", large())];
    let options = ServerOptions {
        limits,
        ..ServerOptions::default()
    };
    Running::start(repository(models, &Settings::default()), options).await
}

/// Sends a request as text, and returns the status of the answer.
async fn status(stream: &mut TcpStream, request: &str) -> Option<String> {
    stream.write_all(request.as_bytes()).await.ok()?;
    let answer = one_answer(stream).await?;
    answer.split(' ').nth(1).map(str::to_owned)
}

/// A connection with a large answer, little of which is read.
async fn unread(server: &Running) -> TcpStream {
    let body = r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1,1],"data":[1]}],"parameters":{"binary_data_output":true}}"#;
    let head = "POST /v2/models/large/infer HTTP/1.1\r\nHost: localhost\r\n";
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut begin = [0; 15];
    stream.read_exact(&mut begin).await.unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200 OK");
    stream
}

/// Reads to the end, but at most `LARGE` bytes, and returns how many came.
async fn read_all(stream: &mut TcpStream) -> usize {
    let (mut found, mut piece) = (0, vec![0; 1 << 20]);
    while found < LARGE {
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => break,
            Ok(read) => found += read,
        }
    }
    found.min(LARGE)
}

#[tokio::test]
async fn without_a_place_health_is_told_and_nothing_else() {
    let server = limited(Limits {
        connections: 3,
        ..Limits::default()
    })
    .await;
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut stream = server.connect().await;
        assert_eq!(status(&mut stream, &post("identity", 1.0)).await.unwrap(), "200");
        open.push(stream);
    }
    // Connections that hold the last places give way to health checks.
    let mut idle: Vec<TcpStream> = Vec::new();
    for _ in 0..40 {
        idle.push(server.connect().await);
    }
    for path in ["/v2/health/ready", "/v2/health/live", "/v2/models/identity/ready"] {
        let answer = server.get(path).await;
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"),
            "{answer}"
        );
    }
    let mut client = server.grpc().await;
    client
        .server_ready(crate::running::proto::ServerReadyRequest {})
        .await
        .unwrap();
    let mut late = server.connect().await;
    late.write_all(post("identity", 6.0).as_bytes()).await.unwrap();
    let answer = to_end(&mut late).await;
    assert!(
        answer.starts_with("HTTP/1.1 503")
            && answer.contains("retry-after: 1")
            && answer.contains("too many connections"),
        "{answer}"
    );
    let refused = server
        .grpc()
        .await
        .model_infer(float("identity", 1.0))
        .await
        .unwrap_err();
    assert!(refused.message().contains("too many connections"), "{refused}");
    // Open connections are not affected, and a freed place is given to another.
    assert_eq!(status(&mut open[0], &post("identity", 7.0)).await.unwrap(), "200");
    drop(open.pop());
    let begun = Instant::now();
    while status(&mut server.connect().await, &post("identity", 8.0))
        .await
        .as_deref()
        != Some("200")
    {
        assert!(begun.elapsed() < Duration::from_secs(10), "the place stays taken");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn one_peer_leaves_places_to_others() {
    let server = limited(Limits {
        connections: 5,
        connections_per_peer: 3,
        ..Limits::default()
    })
    .await;
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut stream = server.connect().await;
        assert_eq!(status(&mut stream, &post("identity", 1.0)).await.unwrap(), "200");
        open.push(stream);
    }
    assert_eq!(
        status(&mut server.connect().await, &post("identity", 1.0))
            .await
            .unwrap(),
        "503"
    );
    assert!(server.get("/v2/health/ready").await.starts_with("HTTP/1.1 200"));
    // Another address of this machine is another peer; systems other than Linux have only one.
    if cfg!(target_os = "linux") {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut other = socket.connect(server.address).await.unwrap();
        assert_eq!(status(&mut other, &post("identity", 2.0)).await.unwrap(), "200");
    }
}

#[tokio::test]
async fn an_answer_that_nobody_reads_is_given_up() {
    let server = limited(Limits {
        write_timeout: Duration::from_millis(300),
        // The system buffers megabytes before the peer reads any.
        body_rate: 1 << 40,
        ..Limits::default()
    })
    .await;
    let mut stream = unread(&server).await;
    // What the server had sent arrives, and no more.
    tokio::time::sleep(Duration::from_millis(1000)).await;
    let found = read_all(&mut stream).await;
    assert!(found < LARGE, "{found} bytes came");
    assert!(server.get("/v2/health/ready").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn so_it_is_where_the_window_of_a_stream_is_shut() {
    let server = limited(Limits {
        write_timeout: Duration::from_millis(300),
        ..Limits::default()
    })
    .await;
    let mut stream = server.connect().await;
    // Windows of 0 bytes, followed by a request whose answer cannot be sent.
    let mut frames = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let frame = |kind: u8, flags: u8, id: u8, payload: &[u8]| {
        let mut frame = vec![
            0,
            (payload.len() >> 8) as u8,
            payload.len() as u8,
            kind,
            flags,
            0,
            0,
            0,
            id,
        ];
        frame.extend_from_slice(payload);
        frame
    };
    frames.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
    let mut headers = Vec::new();
    for (name, value) in [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/v2"),
        (":authority", "localhost"),
    ] {
        headers.push(0);
        for text in [name, value] {
            headers.push(text.len() as u8);
            headers.extend_from_slice(text.as_bytes());
        }
    }
    frames.extend(frame(1, 5, 1, &headers));
    stream.write_all(&frames).await.unwrap();
    let begun = Instant::now();
    to_end(&mut stream).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn whoever_reads_nothing_makes_room_for_others() {
    let server = limited(Limits {
        unread_bytes_in_all: 2 * LARGE + (1 << 20),
        ..Limits::default()
    })
    .await;
    let mut first = unread(&server).await;
    let mut second = unread(&server).await;
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let mut third = unread(&server).await;
    assert_eq!(read_all(&mut third).await, LARGE);
    let found = [read_all(&mut first).await, read_all(&mut second).await];
    assert!(found[0] < LARGE && found[1] == LARGE, "{found:?}");
}

#[tokio::test]
async fn pages_of_others_are_told_nothing_and_load_nothing() {
    let models = repository(vec![("identity", identity(ElementType::F32))], &Settings::default());
    let options = ServerOptions {
        control: true,
        ..ServerOptions::default()
    };
    let server = Running::start(models, options).await;
    let ask = async |method: &str, path: &str, headers: &str| {
        let mut stream = server.connect().await;
        let request = format!("{method} {path} HTTP/1.1\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        to_end(&mut stream).await
    };
    let unload = "/v2/repository/models/identity/unload";
    let host = format!("Host: {}\r\n", server.address);
    for headers in [
        "Host: evil.example\r\n".to_owned(),
        format!("{host}Origin: http://evil.example\r\n"),
        format!("{host}Sec-Fetch-Site: cross-site\r\n"),
        format!("{host}Content-Type: text/plain\r\n"),
    ] {
        let answer = ask("POST", unload, &headers).await;
        assert!(
            answer.starts_with("HTTP/1.1 403") && !answer.to_lowercase().contains("www-authenticate"),
            "{answer}"
        );
        assert!(
            ask("GET", "/v2/models/identity/ready", &host)
                .await
                .starts_with("HTTP/1.1 200")
        );
    }
    let answer = ask("GET", "/v2", "Host: evil.example\r\n").await;
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("--allowed-host evil.example"),
        "{answer}"
    );
    assert!(
        ask("GET", "/v2/health/ready", "Host: probe.example\r\n")
            .await
            .starts_with("HTTP/1.1 200")
    );
    let page = ask("GET", "/", &host).await;
    for header in [
        "content-security-policy: default-src 'none'; script-src 'nonce-",
        "frame-ancestors 'none'",
        "x-frame-options: DENY",
        "x-content-type-options: nosniff",
        "<script nonce=",
    ] {
        assert!(page.contains(header), "{header}: {}", &page[..600]);
    }
    assert!(
        ask("POST", unload, &format!("{host}Sec-Fetch-Site: same-origin\r\n"))
            .await
            .starts_with("HTTP/1.1 200")
    );
}
