//! The server under test.

use std::cell::LazyCell;

use axum::Router;
use polygrad_serve::DATATYPES;
use tokio::runtime::{Builder, Runtime};

use crate::common::{Asked, router};

/// The names of its models.
#[allow(dead_code, reason = "one of the targets needs them")]
pub(crate) fn models() -> Vec<String> {
    let identities = DATATYPES
        .iter()
        .map(|(_, name)| format!("identity_{}", name.to_lowercase()));
    identities.chain(["add_sub", "accumulate"].map(str::to_owned)).collect()
}

/// The answer to a request.
pub(crate) fn ask<T>(answer: impl AsyncFnOnce(Asked, &Router) -> T, asked: Asked) -> T {
    thread_local! {
        static SERVER: LazyCell<(Router, Runtime)> =
            LazyCell::new(|| (router(), Builder::new_current_thread().build().expect("a runtime")));
    }
    SERVER.with(|server| {
        let (router, runtime) = &**server;
        runtime.block_on(answer(asked, router))
    })
}
