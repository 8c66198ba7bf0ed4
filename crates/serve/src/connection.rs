//! What one connection does, and bodies that are measured on their way.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::io;
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
use crate::front::{Front, Fronted};
use crate::listen::Limits;
use crate::server::Shared;

/// What a connection is doing.
pub(crate) struct Activity {
    shared: Arc<Shared>,
    opened: Instant,
    /// Requests whose answers are not sent whole.
    open: AtomicUsize,
    /// When the last of them ended or bytes last left, in milliseconds since the connection was opened; 0 before the first request ended.
    last: AtomicU64,
    is_http2: AtomicBool,
}

impl Activity {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            opened: Instant::now(),
            open: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            is_http2: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.is_http2.load(Relaxed)
    }

    /// Until when the connection may do nothing, which is `idle` after it did something; none while requests are open.
    pub(crate) fn idle_until(&self, limits: &Limits, idle: Duration) -> Option<Instant> {
        if self.open.load(Relaxed) > 0 {
            return None;
        }
        match self.last.load(Relaxed) {
            0 => Some(self.opened + limits.header_timeout.min(idle)),
            last => Some(self.opened + Duration::from_millis(last) + idle),
        }
    }

    fn now(&self) -> u64 {
        let now = self.opened.elapsed().as_millis();
        u64::try_from(now).unwrap_or(u64::MAX).max(1)
    }

    /// Bytes have left.
    fn wrote(&self) {
        if self.last.load(Relaxed) > 0 {
            self.last.store(self.now(), Relaxed);
        }
    }
}

/// A connection whose writing is seen: an answer that is read slowly is no idleness.
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

/// A request that is not answered whole.
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

/// All that answers, for the requests of one connection.
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
        let is_stream = request.uri().path() == crate::grpc::STREAM;
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
        }
    }
}

pin_project! {
    /// An answer that is being made.
    pub(crate) struct Answering {
        #[pin]
        answer: Fronted<Directed>,
        asked: Option<Asked>,
        is_http2: bool,
    }
}

impl Future for Answering {
    type Output = Result<Response<Sent>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = ready!(this.answer.poll(cx))?;
        let asked = this.asked.take();
        let is_last = asked.as_ref().is_some_and(|asked| asked.0.shared.is_draining());
        if is_last && !*this.is_http2 {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        Poll::Ready(Ok(response.map(|body| Sent { body, asked })))
    }
}

/// The body of an answer: its request is open until it is sent.
pub(crate) struct Sent {
    body: Body,
    asked: Option<Asked>,
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let (Some(Ok(frame)), Some(asked)) = (&frame, &self.asked) {
            count(frame, &asked.0.shared.traffic.sent);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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
    /// When waiting for it began, and until when it may last.
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

/// A body that came too slowly. The status inside is how gRPC learns of it.
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
