//! `polygrad serve`: models as a service, with the feature `serve`.

mod args;
mod example;
mod models;
mod signals;
mod spans;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::Duration;

use polygrad::ErrorKind;
use polygrad_serve::{Limits, Pool, Repository, Server, ServerOptions, Tokens, VersionState};
use tokio::net::TcpListener;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

pub(crate) use args::Serve;

use crate::failure::{Failure, Result, Shown};
use crate::outcome::Outcome;
use crate::progress::{note, say};
use models::Loading;
use signals::Signals;

/// Answers requests until SIGTERM or Ctrl-C.
///
/// # Errors
/// A model of the command line that cannot be loaded, an address that cannot be listened on.
pub(crate) fn run(args: &Serve) -> Result<Outcome> {
    let options = options(args)?;
    let threads = args.threads.map_or_else(cores, Ok)?;
    must_have(threads)?;
    let loading = Loading::new(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(threads.max(LONG_WORK))
        // Blocking work waits for an existing thread if no more can be started, so there must be one.
        .thread_keep_alive(Duration::MAX)
        .enable_all()
        .build()
        .map_err(|e| Failure::new(format!("no threads could be started: {e}")).fix("give fewer --threads"))?;
    drop(runtime.spawn_blocking(|| ()));
    let (spans, exporter) = {
        let _inside = runtime.enter();
        args.otlp.as_deref().map(spans::open).transpose()?.unzip()
    };
    // Before models are loaded in vain.
    let listener = runtime.block_on(listen(SocketAddr::new(args.host, args.port)))?;
    let repository = repository(args, &loading, threads)?;
    // Before clients are accepted: until here, a signal ends the process at once.
    let signals = runtime
        .block_on(async { Signals::new() })
        .map_err(|e| Failure::new(format!("signals cannot be waited for: {e}")).fix("close some files"))?;
    // Errors so far have been reported.
    log(args.access_log, spans);
    let server = Server::new(repository.clone(), options);
    tell(args, &loading, &repository, threads, &listener)?;
    if !args.watch.is_zero() {
        let (repository, interval) = (repository.clone(), args.watch);
        thread::spawn(move || watch(&repository, interval));
    }
    let cut = runtime.block_on(server.serve(listener, signals.told()));
    if cut > 0 {
        note(&format!("{cut} connections took longer than --drain, and were cut off"));
    }
    // Waiting spans are sent by the runtime's threads.
    drop(exporter);
    runtime.shutdown_background();
    Ok(Outcome::Done)
}

/// The server's log goes to standard error, and spans to the collector if wanted. A program with its own subscriber
/// gets these lines there.
fn log(access: bool, spans: Option<Tracing>) {
    let _ = subscriber(access, spans).try_init();
}

type Tracing = Box<dyn Layer<Registry> + Send + Sync>;

fn subscriber(access: bool, spans: Option<Tracing>) -> impl SubscriberInitExt {
    let access = if access { LevelFilter::INFO } else { LevelFilter::WARN };
    let wanted = Targets::new()
        .with_default(LevelFilter::WARN)
        .with_target("polygrad_serve", LevelFilter::INFO)
        .with_target("polygrad_serve::access", access);
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(std::io::stderr);
    // Not as an option, since a missing layer would count as one that wants every line.
    let mut layers = vec![lines.with_filter(wanted).boxed()];
    layers.extend(spans);
    tracing_subscriber::registry().with(layers)
}

fn options(args: &Serve) -> Result<ServerOptions> {
    #[cfg(not(feature = "tls"))]
    if args.tls_cert.is_some() {
        return Err(Failure::new("`--tls-cert` is not in this build").fix("build with `--features tls`"));
    }
    #[cfg(feature = "tls")]
    let tls = args.tls_cert.as_ref().zip(args.tls_key.as_ref());
    Ok(ServerOptions {
        max_body_bytes: args.max_body,
        control: args.control,
        limits: Limits {
            connections: args.max_connections,
            connections_per_peer: args.max_connections_per_peer,
            write_timeout: args.write_timeout,
            unread_bytes: args.max_unread,
            unread_bytes_in_all: args.max_unread_in_all,
            drain: args.drain,
            ..Limits::default()
        },
        allowed_hosts: args.allowed_host.clone(),
        tokens: args.token_file.as_ref().map(Tokens::from_file).transpose()?,
        #[cfg(feature = "tls")]
        tls: tls
            .map(|(certificate, key)| polygrad_serve::Tls::from_pem_files(certificate, key))
            .transpose()?,
        ..ServerOptions::default()
    })
}

/// The number of long tasks that can always run at once.
const LONG_WORK: usize = 4;

/// Threads beside those that run models and those that read requests: for long tasks, for changed files, for spans.
const OTHERS: usize = 3;

/// Fails unless the system can start the threads that `threads` requires; otherwise Tokio panics, and the process never
/// ends.
fn must_have(threads: usize) -> Result<()> {
    let wanted = threads.saturating_mul(2).saturating_add(OTHERS);
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.write();
    let start = |_| {
        let gate = Arc::clone(&gate);
        thread::Builder::new().spawn(move || drop(gate.read())).ok()
    };
    let started: Vec<_> = (0..wanted).map_while(start).collect();
    drop(closed);
    let found = started.len();
    started.into_iter().for_each(|thread| drop(thread.join()));
    if found == wanted {
        return Ok(());
    }
    let raise = "raise the limit of processes (`ulimit -u`, of a container `pids.max`) or of memory";
    Err(Failure::new(format!(
        "--threads {threads} takes {wanted} threads, and the system gives {found}"
    ))
    .fix(match found.saturating_sub(OTHERS) / 2 {
        0 => raise.to_owned(),
        fewer => format!("give --threads {fewer}, or {raise}"),
    }))
}

fn cores() -> Result<usize> {
    let cores = thread::available_parallelism();
    cores
        .map(usize::from)
        .map_err(|e| Failure::new(format!("the number of cores cannot be told: {e}")).fix("say --threads N"))
}

async fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::new(format!("cannot listen on {address}: {error}"))
            .fix("choose another --port, or 0 for one that is free; --host is an address of this machine")
    })
}

/// Loads the models. Those of the command line must exist; errors in a repository are reported, and the models left
/// out.
fn repository(args: &Serve, loading: &Loading, threads: usize) -> Result<Repository> {
    let pool = Pool::new(threads)?;
    let repository = match args.repository.clone() {
        None => Repository::new(pool),
        Some(folder) => {
            fs::read_dir(&folder).map_err(|error| Failure::io("read", &folder, &error))?;
            let loading = loading.clone();
            // Models that cannot be added yet may still be being copied.
            Repository::finding(pool, move |repository| drop(loading.add_all(&folder, repository)))
        }
    };
    for text in &args.paths {
        let name = loading.add_named(text, &repository)?;
        repository.load(&name).map_err(|error| {
            let fix = match error.kind {
                Some(ErrorKind::OutOfMemory) => "raise the limit with --max-memory SIZE, or free some of the machine's",
                _ => "see with `polygrad show` what is there, and whether it came whole",
            };
            Failure::new(error.message).fix(fix)
        })?;
    }
    if let Some(folder) = &args.repository {
        let failures = loading.add_all(folder, &repository);
        failures.iter().for_each(|failure| note(&format!("warning: {failure}")));
        let waiting = repository.index().into_iter();
        let mut names: Vec<String> = waiting
            .filter(|(_, _, state)| *state == VersionState::Unloaded)
            .map(|(name, ..)| name)
            .collect();
        names.dedup();
        for name in names {
            if let Err(error) = repository.load(&name) {
                note(&format!("warning: {error}"));
            }
        }
    }
    Ok(repository)
}

/// Prints what is served where, and how to send requests.
fn tell(
    args: &Serve,
    loading: &Loading,
    repository: &Repository,
    threads: usize,
    listener: &TcpListener,
) -> Result<()> {
    let address = listener
        .local_addr()
        .map_err(|e| Failure::new(format!("the socket has no address: {e}")))?;
    let mut example = None;
    for (name, version, state) in repository.index() {
        match state {
            VersionState::Ready => {}
            VersionState::Unloaded | VersionState::Failed(_) => continue,
        }
        let model = repository
            .get(&name, Some(version))
            .map_err(|error| Failure::new(error.message))?;
        let signature = model.signature();
        say(&format!(
            "{name}, version {version}: {} to {}",
            example::types(&signature.inputs),
            example::types(&signature.outputs)
        ));
        if let Some(why) = model.apart() {
            say(&format!("  requests to {name} are computed one by one: {why}"));
        }
        example.get_or_insert_with(|| format!("/v2/models/{name}/infer -d {}", example::body(signature)));
    }
    let engine = match args.engine.as_str() {
        "native" => loading.device.to_string(),
        other => other.to_owned(),
    };
    let scheme = if args.tls_cert.is_some() { "https" } else { "http" };
    say(&format!(
        "serving on {scheme}://{address} by HTTP and gRPC, with {engine} on {threads} threads; Ctrl-C ends it"
    ));
    if let Some(example) = example {
        let trust = args.tls_cert.as_ref().map(|file| format!("--cacert {} ", file.shown()));
        let token = |file: &PathBuf| format!("-H \"Authorization: Bearer $(head -n 1 {})\" ", file.shown());
        let secret = trust.unwrap_or_default() + &args.token_file.as_ref().map(token).unwrap_or_default();
        say(&format!("  curl {secret}{scheme}://{address}{example}"));
    }
    Ok(())
}

fn watch(repository: &Repository, interval: Duration) {
    loop {
        thread::sleep(interval);
        repository.reload_changed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If the filter enables lines without a reader, the server creates them anyway.
    #[test]
    fn the_access_log_is_on_when_it_is_asked_for() {
        for access in [false, true] {
            let _guard = subscriber(access, None).set_default();
            let is_on = tracing::enabled!(target: "polygrad_serve::access", tracing::Level::INFO);
            assert_eq!(is_on, access);
        }
    }
}
