//! Downloads from a server on the loopback interface: correct files arrive, and errors are reported and leave nothing.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use super::*;
use crate::data::testing::scratch;

const BODY: &[u8] = b"four small files stand for a large one";
const SHA256: &str = "7d566022ae83a332390b8e0d80d53bcfa83416a7b458294cbbf189966c4c2fe9";

/// Answers one request with these bytes, then hangs up. Returns its address and, when joined, the path asked for.
fn serve_once(answer: Vec<u8>) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let home = format!("http://{}/set/", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = String::new();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        lines.read_line(&mut request).unwrap();
        let mut line = String::new();
        while lines.read_line(&mut line).unwrap() > 2 {
            line.clear();
        }
        stream.write_all(&answer).unwrap();
        request
    });
    (home, server)
}

fn answer(status: &str, length: usize, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n").into_bytes();
    bytes.extend(body);
    bytes
}

fn remote() -> Remote<'static> {
    Remote {
        name: "train.gz",
        size: BODY.len() as u64,
        sha256: SHA256,
    }
}

/// Downloads from a server that gives `answer`, expecting an error that leaves the folder empty.
fn error_of(answer: Vec<u8>) -> String {
    let dir = scratch();
    let (home, server) = serve_once(answer);
    let text = fetch_missing(&home, &[remote()], dir.path()).unwrap_err().to_string();
    server.join().unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "left something behind");
    for words in [
        &format!("cannot download {home}train.gz"),
        "--data DIR",
        "dataset-fashion-mnist",
    ] {
        assert!(text.contains(words), "{text}\nshould contain {words}");
    }
    text
}

#[test]
fn downloads_what_is_missing_and_nothing_else() {
    let dir = scratch();
    let folder = dir.path().join("new/cache");
    let (home, server) = serve_once(answer("200 OK", BODY.len(), BODY));
    fetch_missing(&home, &[remote()], &folder).unwrap();
    assert_eq!(server.join().unwrap(), "GET /set/train.gz HTTP/1.1\r\n");
    assert_eq!(fs::read(folder.join("train.gz")).unwrap(), BODY);
    // The server is gone, so only a request that is not made can succeed.
    fetch_missing(&home, &[remote()], &folder).unwrap();
}

#[test]
fn wrong_bytes_are_refused() {
    let mut wrong = BODY.to_vec();
    wrong[3] ^= 1;
    let text = error_of(answer("200 OK", wrong.len(), &wrong));
    assert!(text.contains("its SHA-256 is") && text.contains(SHA256), "{text}");
    let text = error_of(answer("200 OK", 12, b"<html></html"));
    assert!(text.contains("it has 12 bytes, not 38"), "{text}");
    let mut long = BODY.to_vec();
    long.extend([0; 100]);
    let text = error_of(answer("200 OK", long.len(), &long));
    assert!(text.contains("it has more than 38 bytes"), "{text}");
}

#[test]
fn answers_other_than_ok_are_told() {
    let text = error_of(answer("404 Not Found", 4, b"none"));
    assert!(text.contains("404"), "{text}");
    let text = error_of(answer("503 Slow Down", 0, b""));
    assert!(text.contains("503"), "{text}");
}

#[test]
fn a_transfer_that_ends_early_is_told() {
    let text = error_of(answer("200 OK", BODY.len(), &BODY[..20]));
    assert!(text.contains("broke off after 20 of 38 bytes"), "{text}");
    error_of(b"HTTP/1.1 200".to_vec());
    error_of(b"no http at all\r\n\r\n".to_vec());
}

#[test]
fn nobody_listening_is_told() {
    let dir = scratch();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let home = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let text = fetch_missing(&home, &[remote()], dir.path()).unwrap_err().to_string();
    assert!(text.contains("cannot download") && text.contains("by hand"), "{text}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_unwritable_cache_is_told() {
    let dir = scratch();
    let taken = dir.path().join("cache");
    fs::write(&taken, "a file").unwrap();
    let text = fetch_missing("http://127.0.0.1:9/", &[remote()], &taken)
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("cannot create the folder") && text.contains("cache"),
        "{text}"
    );
}
