//! gRPC messages. The first byte selects the call, the rest is its message.
#![no_main]

#[path = "../../tests/all/common/mod.rs"]
mod common;
#[path = "../server.rs"]
mod server;
#[path = "../../tests/support/mod.rs"]
mod support;

use common::{Asked, body};
use libfuzzer_sys::fuzz_target;

/// The calls, the most likely first.
const CALLS: [&str; 11] = [
    "ModelInfer",
    "ModelStreamInfer",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    "ModelConfig",
    "ModelStatistics",
    "RepositoryIndex",
    "RepositoryModelLoad",
    "RepositoryModelUnload",
    "ServerReady",
];

/// The status of a call that failed inside the server.
const INTERNAL: &[u8] = b"13";

fuzz_target!(|bytes: &[u8]| {
    let Some((&call, message)) = bytes.split_first() else {
        return;
    };
    let mut framed = vec![0];
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(message);
    let call = CALLS[usize::from(call) % CALLS.len()];
    let asked = body(&format!("/inference.GRPCInferenceService/{call}"), &framed);
    let (_, headers, _) = server::ask(Asked::answer, asked.header("content-type", "application/grpc"));
    let status = headers.get("grpc-status").map(|status| status.as_bytes());
    // tonic itself reports bytes that are no message this way.
    let is_no_message = headers
        .get("grpc-message")
        .is_some_and(|message| message.as_bytes().starts_with(b"failed%20to%20decode"));
    assert!(status != Some(INTERNAL) || is_no_message, "{headers:?}");
});
