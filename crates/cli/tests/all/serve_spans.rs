//! `serve --otlp`: spans for a collector, which the test implements.

use crate::common::Scene;

#[cfg(not(feature = "otel"))]
#[test]
fn spans_need_their_feature() {
    Scene::new().fails(
        "serve model.onnx --otlp http://127.0.0.1:4317",
        &["--otlp", "not in this build", "build with `--features otel`"],
    );
}

#[cfg(feature = "otel")]
mod sent {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::thread::{self, JoinHandle};
    use std::time::{Duration, Instant};

    use super::Scene;
    use crate::serve::Served;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    /// HTTP/2 frame types.
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;

    fn frame(kind: u8, flags: u8, stream: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream, payload].concat()
    }

    /// A header in HPACK's simplest form.
    fn header(name: &str, value: &str) -> Vec<u8> {
        let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        [vec![0], text(name), text(value)].concat()
    }

    /// Reads what a gRPC client sends until it closes the connection, and answers each call with an empty message.
    fn collect(mut stream: TcpStream) -> Vec<u8> {
        let mut received = Vec::new();
        stream.read_exact(&mut [0; 24]).unwrap();
        stream.write_all(&frame(SETTINGS, 0, [0; 4], &[])).unwrap();
        let mut head = [0; 9];
        while stream.read_exact(&mut head).is_ok() {
            let [a, b, c, kind, flags, to @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            stream.read_exact(&mut payload).unwrap();
            let answer = match kind {
                SETTINGS if flags == 0 => frame(SETTINGS, 1, to, &[]),
                PING if flags == 0 => frame(PING, 1, to, &payload),
                DATA => {
                    received.extend(payload);
                    if flags & 1 == 0 {
                        continue;
                    }
                    // Status 200, one empty message, and the gRPC status.
                    let begin = [vec![0x88], header("content-type", "application/grpc")].concat();
                    [
                        frame(HEADERS, 4, to, &begin),
                        frame(DATA, 0, to, &[0; 5]),
                        frame(HEADERS, 5, to, &header("grpc-status", "0")),
                    ]
                    .concat()
                }
                _ => continue,
            };
            stream.write_all(&answer).unwrap();
        }
        received
    }

    /// A collector's address, and the data that one client sends to it.
    fn collector() -> (String, JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        (address, thread::spawn(move || collect(listener.accept().unwrap().0)))
    }

    fn contains(bytes: &[u8], part: &[u8]) -> bool {
        bytes.windows(part.len()).any(|window| window == part)
    }

    /// A server of a small model with `--otlp`, which got a request with a trace parent.
    fn traced(scene: &Scene, address: &str, variables: &[(&str, &str)]) -> Served {
        scene.train("bars", "--epochs 1 --model mlp");
        let mut command = scene.command(&format!("serve --port 0 bars --otlp {address}"));
        let served = Served::started(command.envs(variables.iter().copied()));
        let headers = format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n");
        let (model, body) = served.example();
        let path = format!("/v2/models/{model}/infer");
        assert_eq!(served.ask_with(&headers, "POST", &path, &body).0, 200);
        served
    }

    #[test]
    fn requests_are_spans_that_are_sent_before_the_end() {
        let (address, collected) = collector();
        let scene = Scene::new();
        // Without the signal they would wait for an hour.
        let served = traced(&scene, &address, &[("OTEL_BSP_SCHEDULE_DELAY", "3600000")]);
        assert_eq!(served.end(), Some(0));
        let collected = collected.join().unwrap();
        let trace: Vec<u8> = (0..16)
            .map(|i| u8::from_str_radix(&TRACE[2 * i..2 * i + 2], 16).unwrap())
            .collect();
        assert!(contains(&collected, &trace), "the sender's trace is missing");
        for part in ["polygrad", "POST /v2/models/bars/infer", "request.id"] {
            assert!(contains(&collected, part.as_bytes()), "{part}");
        }
    }

    #[test]
    fn the_environment_says_the_rest() {
        let (address, collected) = collector();
        let variables = [
            ("OTEL_SERVICE_NAME", "the-service"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=the-place"),
            ("OTEL_BSP_SCHEDULE_DELAY", "10"),
        ];
        let scene = Scene::new();
        let served = traced(&scene, &address, &variables);
        // Sent while the server continues.
        thread::sleep(Duration::from_millis(500));
        drop(served);
        let collected = collected.join().unwrap();
        for part in ["the-service", "the-place", "POST /v2/models/bars/infer"] {
            assert!(contains(&collected, part.as_bytes()), "{part}");
        }
    }

    #[test]
    fn a_collector_that_does_not_answer_holds_nobody_up() {
        let absent = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        for (address, wanted) in [
            (absent, "ExportError"),
            (silent.local_addr().unwrap(), "some spans were not sent"),
        ] {
            let scene = Scene::new();
            let served = traced(&scene, &format!("http://{address}"), &[]);
            let begun = Instant::now();
            let said = served.end_with_errors();
            assert!(begun.elapsed() < Duration::from_secs(20));
            assert!(said.contains(wanted), "{said}");
        }
    }

    #[test]
    fn addresses_that_are_none_are_refused() {
        let scene = Scene::new();
        for address in ["127.0.0.1:4317", "https://collector:4317", "http://no host"] {
            let mut command = scene.command("serve model.onnx --otlp");
            let ended = command.arg(address).output().unwrap();
            let said = String::from_utf8(ended.stderr).unwrap();
            assert_eq!(ended.status.code(), Some(1), "{said}");
            let told = said.contains(&format!("cannot be sent to {address:?}"));
            assert!(told && said.contains("\n  fix: name the collector's address"), "{said}");
        }
    }
}
