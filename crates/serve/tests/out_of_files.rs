//! A server that runs out of file descriptors, in its own process.
#![cfg(unix)]

mod running;
mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use polygrad_onnx::graph::ElementType;
use polygrad_serve::{ServerOptions, Settings};
use running::{Running, post, repository};
use support::identity;

const CHILD: &str = "POLYGRAD_SERVE_FILES";

/// The server: prints its address, and ends when its input does.
fn serve() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let models = repository(vec![("identity", identity(ElementType::F32))], &Settings::default());
        let server = Running::start(models, ServerOptions::default()).await;
        println!("\nlistening {}", server.address);
        let wait = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        wait.await.unwrap().unwrap();
    });
}

fn is_answered(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(post("identity", 1.0).as_bytes()).unwrap();
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    while !answer.ends_with(b"]}]}") {
        match stream.read(&mut piece) {
            Ok(read) if read > 0 => answer.extend_from_slice(&piece[..read]),
            _ => return false,
        }
    }
    answer.starts_with(b"HTTP/1.1 200")
}

#[test]
fn a_server_without_files_goes_on_when_it_has_some_again() {
    if std::env::var_os(CHILD).is_some() {
        return serve();
    }
    let name = "a_server_without_files_goes_on_when_it_has_some_again";
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -n 40; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Read to the end, since the child reports its result last.
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let address = lines.find_map(|line| line.strip_prefix("listening ").map(str::to_owned));
    let address = address.unwrap();
    let mut streams: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&address).unwrap()).collect();
    // Accepted connections are answered while the others wait.
    assert!(is_answered(&mut streams[0]));
    std::thread::sleep(Duration::from_millis(500));
    assert!(is_answered(&mut streams[0]));
    streams.truncate(1);
    assert!(is_answered(&mut TcpStream::connect(&address).unwrap()));
    assert!(is_answered(&mut streams[0]));
    drop(child.stdin.take());
    assert!(lines.any(|line| line.contains("1 passed")));
    assert!(child.wait().unwrap().success());
}
