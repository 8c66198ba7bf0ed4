//! Connections: their admission, time limits, and shutdown.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::future::Either;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::Server;
use crate::connection::{Activity, Connected, Seen};
use crate::direct::Direct;
use crate::front::Front;
use crate::places::Places;
use crate::server::Shared;

/// Limits on connections, so that none of them harms the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most connections at once. Requests on further connections are asked to retry later, except health checks.
    /// Each connection takes a file descriptor, of which many systems allow a process 1,024.
    pub connections: usize,
    /// The most connections of one peer, which is an IPv4 address or an IPv6 network of 64 bits. A proxy in front of
    /// the server is one peer.
    pub connections_per_peer: usize,
    /// The longest headers of a request, in bytes, at least 8,192.
    pub header_bytes: usize,
    /// From the opening of a connection to the end of the headers of its first request.
    pub header_timeout: Duration,
    /// How long a request's body may take, plus a second for each [`Limits::body_rate`] bytes of it. Streams of
    /// gRPC have no such limit.
    pub body_timeout: Duration,
    /// The lowest rate, in bytes per second, at which long bodies may arrive or be read.
    pub body_rate: u64,
    /// How long unread answers may wait, plus a second for each [`Limits::body_rate`] bytes that have been written to
    /// the socket; after that the connection is closed.
    pub write_timeout: Duration,
    /// The most bytes of unread answers on one connection. Beyond it further answers are refused; a single
    /// answer may be larger.
    pub unread_bytes: usize,
    /// The most bytes of unread answers on all connections together. To make room for another answer, connections that
    /// have read nothing for a second are closed; if there are none, the answer is refused.
    pub unread_bytes_in_all: usize,
    /// From the end of a request to the end of the next one's headers; a connection that is idle for longer is closed.
    pub keep_alive: Duration,
    /// The most requests of one HTTP/2 connection that are answered at once.
    pub streams: u32,
    /// How long accepted requests may take when the server shuts down.
    pub drain: Duration,
}

impl Default for Limits {
    /// 1,000 connections, 750 of one peer; headers of 64 KiB within 10 s; 30 s for a body or for reading an answer, and
    /// 16 KiB/s; 64 MiB unread on a connection and 512 MiB on all; idle for 60 s; 256 streams; 30 s to end.
    fn default() -> Self {
        Self {
            connections: 1000,
            connections_per_peer: 750,
            header_bytes: 64 << 10,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            body_rate: 16 << 10,
            write_timeout: Duration::from_secs(30),
            unread_bytes: 64 << 20,
            unread_bytes_in_all: 512 << 20,
            keep_alive: Duration::from_secs(60),
            streams: 256,
            drain: Duration::from_secs(30),
        }
    }
}

/// Counters of connections and bytes.
#[derive(Default)]
pub(crate) struct Traffic {
    pub(crate) accepted: AtomicU64,
    pub(crate) closed: AtomicU64,
    /// Bytes of the bodies of requests.
    pub(crate) received: AtomicU64,
    /// Bytes of the bodies of answers.
    pub(crate) sent: AtomicU64,
}

/// How long HTTP/1 connections stay open when the server shuts down, for requests that are already on their way.
const LINGER: Duration = Duration::from_millis(500);
/// How long a connection may take to close once it was told to and has no open requests.
const GRACE: Duration = Duration::from_secs(1);
/// How long to wait after the system could not accept a connection, for lack of file descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

impl Server {
    /// Serves HTTP/1.1, HTTP/2 and gRPC until `shutdown` completes. After that no connection is accepted, health
    /// reports that the server is not ready, and accepted requests are still answered, for up to [`Limits::drain`].
    /// Returns how many connections were cut off at the end of that time.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> usize {
        let limits = &self.0.options.limits;
        let places = Places::new(limits);
        let cut = watch::Sender::new(());
        let host = Arc::new(Host {
            builder: builder(limits),
            service: self.service(),
            shared: Arc::clone(&self.0),
            places: Arc::clone(&places),
        });
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                (stream, peer) = accept(&listener) => host.spawn(stream, peer.ip(), cut.subscribe()),
            }
        }
        self.0.drain();
        // Clients that connected in time are answered.
        for _ in 0..places.most() {
            let Some(Ok((stream, peer))) = listener.accept().now_or_never() else {
                break;
            };
            host.spawn(stream, peer.ip(), cut.subscribe());
        }
        drop(listener);
        match tokio::time::timeout(limits.drain, places.emptied()).await {
            Ok(()) => 0,
            Err(_) => places.taken(),
        }
    }
}

/// Retries after errors: neither a lost connection nor a lack of file descriptors may end the server.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let mut is_told = false;
    loop {
        let error = match listener.accept().await {
            Ok(found) => return found,
            Err(error) => error,
        };
        let is_gone = [
            io::ErrorKind::ConnectionAborted,
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::ConnectionRefused,
        ];
        if !is_gone.contains(&error.kind()) {
            if !is_told {
                tracing::warn!("no connection can be accepted for now: {error}");
                is_told = true;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn builder(limits: &Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    let header_bytes = limits.header_bytes.max(8192);
    // This module has its own timeouts, which apply to both protocols and need no timer for each request.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(header_bytes);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(header_bytes).unwrap_or(u32::MAX))
        .max_concurrent_streams(limits.streams)
        // Detects peers that are gone, even when no stream waits for anything.
        .keep_alive_interval(limits.keep_alive.max(GRACE));
    builder
}

/// What all connections share.
struct Host {
    builder: Builder<TokioExecutor>,
    service: Front<Direct>,
    shared: Arc<Shared>,
    places: Arc<Places>,
}

impl Host {
    fn spawn(self: &Arc<Self>, stream: TcpStream, peer: IpAddr, cut: watch::Receiver<()>) {
        let place = self.places.take(peer);
        let has_place = place.is_some();
        let host = Arc::clone(self);
        let task = tokio::spawn(async move {
            let _place = place;
            let _open = Open::new(&host.shared.traffic);
            host.greet(stream, has_place, cut).await;
        });
        if !has_place {
            self.places.keep(task.abort_handle());
        }
    }

    #[cfg_attr(
        not(feature = "tls"),
        expect(unused_mut, reason = "only a handshake is cut off here")
    )]
    async fn greet(&self, stream: TcpStream, has_place: bool, mut cut: watch::Receiver<()>) {
        // If this fails, answers are only sent later.
        let _ = stream.set_nodelay(true);
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.shared.options.tls {
            let hello = tls.acceptor().accept(stream);
            let hello = tokio::time::timeout(self.shared.options.limits.header_timeout, hello);
            let greeted = tokio::select! {
                greeted = hello => greeted,
                _ = cut.changed() => return,
            };
            match greeted {
                Ok(Ok(stream)) => self.answer(TokioIo::new(stream), has_place, cut).await,
                Ok(Err(error)) => tracing::debug!("no connection by TLS: {error}"),
                Err(_) => {}
            }
            return;
        }
        self.answer(TokioIo::new(stream), has_place, cut).await;
    }

    async fn answer(&self, io: impl Read + Write + Unpin + 'static, has_place: bool, cut: watch::Receiver<()>) {
        let activity = Activity::open(&self.shared, has_place);
        let service = Connected::new(self.service.on(&activity), Arc::clone(&activity));
        let io = Seen::new(io, Arc::clone(&activity));
        let mut connection = pin!(self.builder.serve_connection(io, service));
        let activity = &**activity;
        let stalls = async {
            activity.stalls(&self.shared.options.limits).await;
            true
        };
        // Completes with true if the connection is to be cut off at once, and with false if it is to be shut down
        // gracefully.
        let life = |is_told: bool| {
            let mut cut = cut.clone();
            async move {
                let life = async {
                    match is_told {
                        false => self.lives(activity).await,
                        true => self.idles(activity, GRACE, GRACE).await,
                    }
                };
                tokio::select! {
                    () = life => is_told,
                    // The sender is dropped when the time for draining is over.
                    _ = cut.changed() => true,
                }
            }
        };
        // These futures are polled only when they are woken, not each time that something is read.
        let mut lives = FuturesUnordered::from_iter([Either::Left(life(false)), Either::Right(stalls)]);
        loop {
            tokio::select! {
                biased;
                _ = connection.as_mut() => return,
                Some(is_over) = lives.next() => {
                    if is_over {
                        return;
                    }
                    connection.as_mut().graceful_shutdown();
                    lives.push(Either::Left(life(true)));
                }
            }
        }
    }

    /// Completes when the connection should be shut down gracefully.
    async fn lives(&self, activity: &Activity) {
        let limits = &self.shared.options.limits;
        let (first, idle) = match activity.has_place {
            true => (limits.header_timeout, limits.keep_alive),
            false => (GRACE, GRACE),
        };
        tokio::select! {
            () = self.idles(activity, first, idle) => {}
            () = self.shared.drained() => {
                // HTTP/2 tells its peer which requests will still be answered; with HTTP/1, the
                // next answer is the last.
                if !activity.is_http2() {
                    tokio::time::sleep(LINGER).await;
                }
            }
        }
    }

    /// Completes when the connection has been idle for `idle`, but not before `first` has passed.
    async fn idles(&self, activity: &Activity, first: Duration, idle: Duration) {
        let mut until = Instant::now() + first;
        loop {
            tokio::time::sleep_until(until).await;
            let now = Instant::now();
            until = match activity.idle_until(&self.shared.options.limits, idle) {
                Some(until) if until <= now => return,
                Some(until) => until,
                None => now + GRACE,
            };
        }
    }
}

/// Counts a connection while it is open.
struct Open<'a>(&'a Traffic);

impl<'a> Open<'a> {
    fn new(traffic: &'a Traffic) -> Self {
        traffic.accepted.fetch_add(1, Relaxed);
        Self(traffic)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.closed.fetch_add(1, Relaxed);
    }
}
