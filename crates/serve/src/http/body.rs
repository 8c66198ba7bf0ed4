//! Request and answer bodies, and their compression.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use http_body::{Frame, SizeHint};

use crate::{Failure, Reason};

/// Work on more bytes than this is not done on the threads that read requests.
pub(super) const LONG: usize = 256 << 10;

/// Memory with this alignment suits every dtype.
const ALIGNMENT: usize = 16;

/// How a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    /// In zlib format, as HTTP defines the name.
    Deflate,
}

impl Coding {
    const ALL: [Self; 2] = [Self::Gzip, Self::Deflate];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    /// How a request's body is compressed.
    fn of_request(headers: &HeaderMap) -> Result<Option<Self>, Failure> {
        let Some(named) = headers.get(CONTENT_ENCODING) else {
            return Ok(None);
        };
        let found = Self::ALL
            .into_iter()
            .find(|coding| named.as_bytes().eq_ignore_ascii_case(coding.name().as_bytes()));
        match found {
            None if !named.as_bytes().eq_ignore_ascii_case(b"identity") => Err(Failure::invalid(format!(
                "Content-Encoding {named:?} is not known: send gzip, deflate or identity"
            ))),
            found => Ok(found),
        }
    }

    /// The coding that the client asks for. A list of several only says what the client can decode, and does not ask
    /// for compression.
    pub(super) fn of_answer(headers: &HeaderMap) -> Option<Self> {
        let named = headers.get(ACCEPT_ENCODING)?.as_bytes();
        Self::ALL
            .into_iter()
            .find(|coding| named.eq_ignore_ascii_case(coding.name().as_bytes()))
    }

    pub(super) fn compress(self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(bytes)?;
                encoder.finish()
            }
            Self::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(bytes)?;
                encoder.finish()
            }
        }
    }

    fn expand(self, bytes: &[u8], mut whole: Gathered, limit: usize) -> Result<Bytes, Failure> {
        // One byte more than the limit shows that it is exceeded.
        let most = limit as u64 + 1;
        let read = match self {
            Self::Gzip => GzDecoder::new(bytes).take(most).read_to_end(&mut whole.bytes),
            Self::Deflate => ZlibDecoder::new(bytes).take(most).read_to_end(&mut whole.bytes),
        };
        match read {
            Ok(length) if length > limit => Err(too_large(limit)),
            Ok(_) => Ok(whole.finish()),
            Err(error) => Err(Failure::invalid(format!(
                "the body is no {}, which Content-Encoding says that it is: {error}",
                self.name()
            ))),
        }
    }
}

/// Collects bytes in one piece, placed so that those after the first `head` are aligned for any dtype.
struct Gathered {
    bytes: Vec<u8>,
    padding: usize,
}

impl Gathered {
    fn new(head: usize, capacity: usize) -> Self {
        let padding = head.wrapping_neg() % ALIGNMENT;
        let mut bytes = Vec::with_capacity(capacity + ALIGNMENT);
        bytes.resize(padding, 0);
        Self { bytes, padding }
    }

    fn finish(self) -> Bytes {
        Bytes::from(self.bytes).slice(self.padding..)
    }
}

fn too_large(limit: usize) -> Failure {
    Failure::new(
        Reason::TooLarge,
        format!("the body is longer than {limit} bytes, which is the limit: send fewer rows at once"),
    )
}

/// Reads a request's body, whose first `head` bytes are JSON, if their number is known.
///
/// # Errors
/// When it has more than `limit` bytes, as sent or expanded, is incomplete, or is not compressed as its headers say.
pub(super) async fn read(headers: &HeaderMap, body: Body, head: usize, limit: usize) -> Result<Bytes, Failure> {
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large(limit));
    }
    match Coding::of_request(headers)? {
        None => gather(body, head, limit).await,
        Some(coding) => {
            let sent = gather(body, 0, limit).await?;
            offload(move || coding.expand(&sent, Gathered::new(head, sent.len()), limit)).await
        }
    }
}

async fn gather(mut body: Body, head: usize, limit: usize) -> Result<Bytes, Failure> {
    let Some(first) = frame(&mut body).await? else {
        return Ok(Bytes::new());
    };
    if first.len() > limit {
        return Err(too_large(limit));
    }
    if body.is_end_stream() {
        return Ok(first);
    }
    // The announced length is trusted only up to some size.
    let rest = usize::try_from(body.size_hint().lower()).unwrap_or(limit).min(1 << 20);
    let mut whole = Gathered::new(head, first.len() + rest);
    let mut next = Some(first);
    while let Some(bytes) = next {
        whole.bytes.extend_from_slice(&bytes);
        if whole.bytes.len() - whole.padding > limit {
            return Err(too_large(limit));
        }
        next = frame(&mut body).await?;
    }
    Ok(whole.finish())
}

/// The next part of a body.
async fn frame(body: &mut Body) -> Result<Option<Bytes>, Failure> {
    loop {
        match poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await {
            None => return Ok(None),
            Some(Err(error)) => return Err(Failure::invalid(format!("the body broke off: {error}"))),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => return Ok(Some(bytes)),
                // Trailers, which were not requested.
                Err(_) => continue,
            },
        }
    }
}

/// Runs slow work on a blocking thread, so that it delays no other request.
///
/// # Errors
/// The failure of `work`.
pub(super) async fn offload<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let ended = |error| Failure::new(Reason::Internal, format!("the work was not done: {error}"));
    tokio::task::spawn_blocking(work).await.map_err(ended)?
}

/// A body in several pieces, which are not copied.
pub(super) struct Pieces(pub(super) VecDeque<Bytes>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|bytes| bytes.len() as u64).sum())
    }
}
