//! An HTTP/1.1 connection that repeatedly sends the same request.

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Error;
use crate::arguments::Load;

pub struct Connection {
    stream: TcpStream,
    read: BytesMut,
}

/// A parsed head: the beginning of the body, its length, the status, and whether the server closes.
struct Head {
    begin: usize,
    body: usize,
    status: u16,
    closes: bool,
}

/// The bytes of a request.
pub fn request(asked: &Load) -> Bytes {
    let mut head = format!("POST {} HTTP/1.1\r\nHost: {}\r\n", asked.path, asked.address);
    for (name, value) in &asked.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("Content-Length: {}\r\n\r\n", asked.body.len());
    [head.as_bytes(), &asked.body].concat().into()
}

impl Connection {
    pub async fn open(address: &str) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            read: BytesMut::with_capacity(1 << 16),
        })
    }

    /// Sends a request; returns the status of the answer, the length of its body, and whether another request may
    /// follow.
    pub async fn ask(&mut self, request: &[u8]) -> Result<(u16, usize, bool), Error> {
        self.stream.write_all(request).await?;
        loop {
            if let Some(head) = head(&self.read)? {
                let end = head.begin + head.body;
                while self.read.len() < end {
                    self.more().await?;
                }
                self.read.clear();
                return Ok((head.status, head.body, !head.closes));
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> Result<(), Error> {
        if !self.read.has_remaining_mut() || self.read.capacity() == self.read.len() {
            self.read.reserve(1 << 16);
        }
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err("the server closed the connection".into()),
            _ => Ok(()),
        }
    }
}

/// `None` if the head is not complete yet.
fn head(read: &[u8]) -> Result<Option<Head>, Error> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(begin) = response.parse(read)? else {
        return Ok(None);
    };
    let value = |name: &str| {
        let of = |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case(name);
        response.headers.iter().find(of).map(|header| header.value)
    };
    let body = value("content-length").and_then(|value| std::str::from_utf8(value).ok()?.trim().parse().ok());
    Ok(Some(Head {
        begin,
        body: body.ok_or("an answer without a Content-Length")?,
        status: response.code.unwrap_or(0),
        closes: value("connection").is_some_and(|value| value.eq_ignore_ascii_case(b"close")),
    }))
}
