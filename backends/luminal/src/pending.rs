//! The recorded nodes that have not run: when they run, and how failures are reported.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use polygrad_core::{Error, ErrorKind, Result};

use crate::run::run;
use crate::tensor::{LuminalTensor, Node};
use crate::values::Values;

/// When this many nodes have been recorded, or nodes with this many bytes of results, all of them run, so that memory
/// stays bounded even if no value is read.
const MAX_NODES: usize = 1024;
const MAX_BYTES: usize = 256 << 20;

#[derive(Default)]
struct Pending {
    nodes: Vec<Weak<Node>>,
    bytes: usize,
}

static PENDING: Mutex<Pending> = Mutex::new(Pending {
    nodes: Vec::new(),
    bytes: 0,
});

/// Failed nodes whose thread has not been told yet.
static FAILED: Mutex<Vec<Weak<Node>>> = Mutex::new(Vec::new());

/// Held by the current run; only one at a time.
static RUNNING: Mutex<()> = Mutex::new(());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A run that unwinds leaves nothing half-done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a node has no values: an error that can be returned to every caller.
#[derive(Clone, Debug)]
pub(crate) struct Failure(Arc<Told>);

#[derive(Debug)]
struct Told {
    kind: ErrorKind,
    message: String,
    op: Option<String>,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(error: &Error) -> Self {
        Self(Arc::new(Told {
            kind: error.kind(),
            message: error.message().to_owned(),
            op: error.op().map(str::to_owned),
            hint: error.hint().map(str::to_owned),
        }))
    }

    pub(crate) fn error(&self) -> Error {
        let told = &*self.0;
        let mut error = Error::new(told.kind, told.message.clone());
        if let Some(op) = &told.op {
            error = error.with_op(op.clone());
        }
        if let Some(hint) = &told.hint {
            error = error.with_hint(hint.clone());
        }
        error
    }
}

/// Registers a recorded node, and runs all nodes if there are too many.
pub(crate) fn recorded(node: &Arc<Node>, bytes: usize) {
    let full = {
        let mut pending = lock(&PENDING);
        pending.nodes.push(Arc::downgrade(node));
        pending.bytes = pending.bytes.saturating_add(bytes);
        pending.nodes.len() > MAX_NODES || pending.bytes > MAX_BYTES
    };
    if full {
        run_all();
    }
}

/// Runs all recorded nodes. Failures stay with their nodes, and are noted for `synchronize`.
fn run_all() {
    let _running = lock(&RUNNING);
    let Pending { nodes, .. } = std::mem::take(&mut *lock(&PENDING));
    let alive = || nodes.iter().filter_map(Weak::upgrade);
    run(alive().filter(|node| node.done().is_none()).collect());
    // Nodes that are not done got a new handle during the run.
    let left = alive().filter(|node| node.done().is_none());
    lock(&PENDING).nodes.extend(left.map(|node| Arc::downgrade(&node)));
    let failed = alive().filter(|node| matches!(node.done(), Some(Err(_))));
    lock(&FAILED).extend(failed.map(|node| Arc::downgrade(&node)));
}

/// Runs all recorded nodes.
///
/// # Errors
/// The failure of a live tensor that this thread recorded; failures of other threads are reported to those.
pub(crate) fn synchronize() -> Result<()> {
    run_all();
    let here = thread::current().id();
    let mut failed = lock(&FAILED);
    let (own, others): (Vec<_>, Vec<_>) = failed
        .iter()
        .filter_map(Weak::upgrade)
        .partition(|node| node.thread() == here);
    *failed = others.iter().map(Arc::downgrade).collect();
    drop(failed);
    let failures = own.iter().filter_map(|node| node.done()?.as_ref().err());
    failures.map(|failure| Err(failure.error())).next().unwrap_or(Ok(()))
}

/// The values of a tensor's memory, computed if they are pending.
pub(crate) fn read(x: &LuminalTensor) -> Result<&Values> {
    if x.node().done().is_none() {
        let _running = lock(&RUNNING);
        if x.node().done().is_none() {
            run(vec![Arc::clone(x.node())]);
        }
    }
    match x.node().done() {
        Some(Ok(_)) => x.known_values(),
        Some(Err(failure)) => return Err(failure.error()),
        None => None,
    }
    .ok_or_else(|| Error::new(ErrorKind::DeviceError, "luminal's graph gave no values"))
}
