//! Connections: who is let in, how long they may take, and how they end.

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

/// What a server allows connections, so that none of them harms the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// So many are open at once; more are told to come later, but for questions about health. Each takes a file of the
    /// process, of which many systems allow 1,024.
    pub connections: usize,
    /// So many of them one peer may have: an address, of IPv6 a network of 64 bits. A proxy before
    /// the server is one peer.
    pub connections_per_peer: usize,
    /// The longest headers of a request, in bytes, at least 8,192.
    pub header_bytes: usize,
    /// From the opening of a connection to the end of the headers of its first request.
    pub header_timeout: Duration,
    /// A body has so long, and a second more for each [`Limits::body_rate`] bytes of it. Streams of gRPC
    /// may take their time.
    pub body_timeout: Duration,
    /// The fewest bytes of a body in a second, in the long run.
    pub body_rate: u64,
    /// What waits to be read of answers has so long, and a second more for each [`Limits::body_rate`] bytes that have
    /// left, into the buffers of the system at first; then the connection is closed.
    pub write_timeout: Duration,
    /// So many bytes of answers may wait to be read on one connection; where more than one answer waits, others are
    /// refused beyond that.
    pub unread_bytes: usize,
    /// So many on all of them. Where there is no room for another answer, connections that have read nothing for a
    /// second are closed, and if there are none, it is refused.
    pub unread_bytes_in_all: usize,
    /// From the end of a request to the end of the next one's headers; a connection that is idle for longer is closed.
    pub keep_alive: Duration,
    /// So many requests of one HTTP/2 connection are answered at once.
    pub streams: u32,
    /// How long requests that were accepted may take when the server is to end.
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

/// What went over the connections.
#[derive(Default)]
pub(crate) struct Traffic {
    pub(crate) accepted: AtomicU64,
    pub(crate) closed: AtomicU64,
    /// Bytes of the bodies of requests.
    pub(crate) received: AtomicU64,
    /// Bytes of the bodies of answers.
    pub(crate) sent: AtomicU64,
}

/// How long connections of HTTP/1 stay open when the server is to end, for requests that are already on their way.
const LINGER: Duration = Duration::from_millis(500);
/// How long a connection that was told to end may take if nothing is asked for.
const GRACE: Duration = Duration::from_secs(1);
/// How long to wait when the system lets nobody in, for want of files or memory.
const PAUSE: Duration = Duration::from_millis(100);

impl Server {
    /// Answers whoever connects, by HTTP/1.1, HTTP/2 and gRPC, until `shutdown` is over. From then on nobody is let in,
    /// health says that the server is not ready, and requests that were accepted are answered, for up to
    /// [`Limits::drain`]. Returns how many connections were cut off after that.
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
        // Whoever has connected in time is answered.
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

/// Errors pass: neither one lost connection nor a lack of files is to end the server.
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
    // Timeouts are this module's, the same for both protocols and without a timer for each request.
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
        // A peer that is gone is found out, though its streams wait for nothing.
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
        // Without it, answers are only sent later.
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
        // Whether it is to be cut off; if not, it is to be told to end.
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
                    // The sender is dropped when time is over.
                    _ = cut.changed() => true,
                }
            }
        };
        // What goes in here is polled when it is due, not whenever something is read.
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

    /// Comes back when a connection is to be told to end.
    async fn lives(&self, activity: &Activity) {
        let limits = &self.shared.options.limits;
        let (first, idle) = match activity.has_place {
            true => (limits.header_timeout, limits.keep_alive),
            false => (GRACE, GRACE),
        };
        tokio::select! {
            () = self.idles(activity, first, idle) => {}
            () = self.shared.drained() => {
                // HTTP/2 tells its peer what will still be answered; of HTTP/1, the next answer will be the last.
                if !activity.is_http2() {
                    tokio::time::sleep(LINGER).await;
                }
            }
        }
    }

    /// Comes back when a connection has done nothing for `idle`, but not before `first` is over.
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
