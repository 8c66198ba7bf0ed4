//! Bodies of inference requests over HTTP. The first byte selects the model, the second the coding of the body, and the
//! next two give the length of the JSON before the bytes of tensors.
#![no_main]

#[path = "../../tests/all/common/mod.rs"]
mod common;
#[path = "../server.rs"]
mod server;
#[path = "../../tests/support/mod.rs"]
mod support;

use axum::http::StatusCode;
use common::{Asked, body, text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&[model, coding, low, high], sent)) = bytes.split_first_chunk() else {
        return;
    };
    let models = server::models();
    let asked = body(
        &format!("/v2/models/{}/infer", models[usize::from(model) % models.len()]),
        sent,
    );
    let asked = match coding & 3 {
        1 => asked.header("content-encoding", "gzip"),
        2 => asked.header("content-encoding", "deflate"),
        _ => asked,
    };
    let mut asked = match coding & 4 {
        0 => asked,
        _ => asked.header(
            "inference-header-content-length",
            &u16::from_le_bytes([low, high]).to_string(),
        ),
    };
    asked.parts = 1 + usize::from(coding >> 3 & 1);
    let (status, _, answer) = server::ask(Asked::answer, asked);
    assert!(status != StatusCode::INTERNAL_SERVER_ERROR, "{}", text(&answer));
});
