//! The activity of a connection, and bodies that are counted as they pass.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request, Response, Version};
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};
use tower_service::Service;

use crate::direct::{Direct, Directed};
use crate::front::{self, Front, Fronted};
use crate::listen::Limits;
use crate::server::Shared;
use crate::unread::{Piece, Waiting};

/// The state of a connection.
pub(crate) struct Activity {
    pub(crate) shared: Arc<Shared>,
    pub(crate) opened: Instant,
    /// Whether it has a place; without one it may only make health checks.
    pub(crate) has_place: bool,
    /// The bytes that wait to be read.
    pub(crate) waiting: Waiting,
    /// How many requests have not been answered completely.
    open: AtomicUsize,
    /// When the last request ended or bytes were last sent, in milliseconds since the connection was opened; 0 before
    /// the first request ended.
    last: AtomicU64,
    is_http2: AtomicBool,
}

/// The activity of a connection, registered with the server until this is dropped.
pub(crate) struct Opened(Arc<Activity>);

impl Deref for Opened {
    type Target = Arc<Activity>;

    fn deref(&self) -> &Arc<Activity> {
        &self.0
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.shared.unread.close(&self.0);
    }
}

impl Activity {
    pub(crate) fn open(shared: &Arc<Shared>, has_place: bool) -> Opened {
        let activity = Arc::new(Self {
            shared: Arc::clone(shared),
            opened: Instant::now(),
            has_place,
            waiting: Waiting::default(),
            open: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            is_http2: AtomicBool::new(false),
        });
        shared.unread.open(&activity);
        Opened(activity)
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.is_http2.load(Relaxed)
    }

    /// When the connection counts as idle: `idle` after its last activity. `None` while requests are open.
    pub(crate) fn idle_until(&self, limits: &Limits, idle: Duration) -> Option<Instant> {
        if self.open.load(Relaxed) > 0 {
            return None;
        }
        match self.last.load(Relaxed) {
            0 => Some(self.opened + limits.header_timeout.min(idle)),
            last => Some(self.opened + Duration::from_millis(last) + idle),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        let now = self.opened.elapsed().as_millis();
        u64::try_from(now).unwrap_or(u64::MAX).max(1)
    }

    /// Called when bytes were sent.
    fn wrote(&self) {
        if self.last.load(Relaxed) > 0 {
            self.last.store(self.now(), Relaxed);
        }
    }
}

/// A connection whose writes are recorded, so that it does not count as idle while a peer reads an answer slowly.
pub(crate) struct Seen<T> {
    io: T,
    activity: Arc<Activity>,
}

impl<T> Seen<T> {
    pub(crate) fn new(io: T, activity: Arc<Activity>) -> Self {
        Self { io, activity }
    }

    fn see(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(_)) = written {
            self.activity.wrote();
        }
        written
    }
}

impl<T: Read + Unpin> Read for Seen<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, to)
    }
}

impl<T: Write + Unpin> Write for Seen<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.see(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, parts);
        self.see(written)
    }
}

/// Keeps a request counted as open until its answer is sent completely.
struct Asked(Arc<Activity>);

impl Asked {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.open.fetch_add(1, Relaxed);
        Self(Arc::clone(activity))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.last.store(self.0.now(), Relaxed);
        self.0.open.fetch_sub(1, Relaxed);
    }
}

/// The service for the requests of one connection.
pub(crate) struct Connected {
    service: Front<Direct>,
    activity: Arc<Activity>,
}

impl Connected {
    pub(crate) fn new(service: Front<Direct>, activity: Arc<Activity>) -> Self {
        Self { service, activity }
    }
}

impl hyper::service::Service<Request<Incoming>> for Connected {
    type Response = Response<Sent>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        let is_http2 = request.version() == Version::HTTP_2;
        if is_http2 {
            self.activity.is_http2.store(true, Relaxed);
        }
        let path = request.uri().path();
        let is_stream = path == crate::grpc::STREAM;
        let comes_in_time = is_stream || path == crate::grpc::WATCH;
        let request = request.map(|body| match body.is_end_stream() {
            true => Body::empty(),
            false => Body::new(Received {
                body,
                activity: Arc::clone(&self.activity),
                bytes: 0,
                is_stream,
                limit: None,
            }),
        });
        Answering {
            answer: self.service.clone().call(request),
            asked: Some(Asked::new(&self.activity)),
            is_http2,
            comes_in_time,
        }
    }
}

pin_project! {
    /// An answer in progress.
    pub(crate) struct Answering {
        #[pin]
        answer: Fronted<Directed>,
        asked: Option<Asked>,
        is_http2: bool,
        // Whether the answer is a stream whose parts are produced while they are sent, so that nothing waits to be read
        // before there is a part.
        comes_in_time: bool,
    }
}

impl Future for Answering {
    type Output = Result<Response<Sent>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = ready!(this.answer.poll(cx))?;
        let asked = this.asked.take();
        let is_last = asked
            .as_ref()
            .is_some_and(|asked| asked.0.shared.is_draining() || !asked.0.has_place);
        if is_last && !*this.is_http2 {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        let mut waiting = front::weight(&response);
        if !*this.comes_in_time && !response.body().is_end_stream() {
            // A body of unknown length counts as waiting, too.
            waiting = waiting.max(1);
        }
        if let Some(asked) = &asked {
            asked.0.waits(waiting);
        }
        Poll::Ready(Ok(response.map(|body| Sent { body, asked, waiting })))
    }
}

/// The body of an answer: its request is open until it is sent.
pub(crate) struct Sent {
    body: Body,
    asked: Option<Asked>,
    /// Bytes of the body that count as waiting and are not yet counted by their own [`Piece`]s.
    waiting: usize,
}

impl HttpBody for Sent {
    type Data = Piece;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let this = &mut *self;
        let (Some(frame), Some(Asked(activity))) = (frame, &this.asked) else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(frame.map(|frame| {
            let bytes = count(&frame, &activity.shared.traffic.sent) as usize;
            let more = bytes.saturating_sub(this.waiting);
            this.waiting -= bytes - more;
            activity.waits(more);
            frame.map_data(|bytes| Piece::new(bytes, Arc::clone(activity)))
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if let Some(Asked(activity)) = &self.asked {
            activity.waits_no_more(self.waiting);
        }
    }
}

fn count(frame: &Frame<Bytes>, counter: &AtomicU64) -> u64 {
    let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
    counter.fetch_add(bytes, Relaxed);
    bytes
}

/// The body of a request, which may not come too slowly.
struct Received {
    body: Incoming,
    activity: Arc<Activity>,
    bytes: u64,
    is_stream: bool,
    /// When the wait for it began, and how long it may last.
    limit: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Received {
    fn poll_slow(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limits = &self.activity.shared.options.limits;
        let allowed = limits.body_timeout + Duration::from_secs(self.bytes / limits.body_rate.max(1));
        let (began, sleep) = self
            .limit
            .get_or_insert_with(|| (Instant::now(), Box::pin(tokio::time::sleep(allowed))));
        let until = *began + allowed;
        if sleep.deadline() != until {
            sleep.as_mut().reset(until);
        }
        sleep.as_mut().poll(cx)
    }
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = Box<dyn StdError + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => {
                if let Some(Ok(frame)) = &frame {
                    self.bytes += count(frame, &self.activity.shared.traffic.received);
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending if self.is_stream => Poll::Pending,
            Poll::Pending => {
                ready!(self.poll_slow(cx));
                Poll::Ready(Some(Err(TooSlow::new().into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body that arrived too slowly. The status inside reports it to gRPC.
#[derive(Debug)]
struct TooSlow(tonic::Status);

impl TooSlow {
    fn new() -> Self {
        Self(tonic::Status::deadline_exceeded("the request came too slowly"))
    }
}

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.message())
    }
}

impl StdError for TooSlow {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}
