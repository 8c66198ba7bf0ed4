//! An HTTP/2 connection that repeatedly calls the same gRPC method with the same message.

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, Request};
use tokio::net::TcpStream;

use crate::Error;
use crate::arguments::Load;

/// Large enough that no tensor waits for the flow-control window.
const WINDOW: u32 = 16 << 20;

pub struct Connection {
    send: SendRequest<Bytes>,
}

/// A message with its five-byte length prefix.
pub fn request(asked: &Load) -> Bytes {
    let mut framed = BytesMut::with_capacity(asked.body.len() + 5);
    framed.put_u8(0);
    framed.put_u32(asked.body.len() as u32);
    framed.extend_from_slice(&asked.body);
    framed.freeze()
}

impl Connection {
    pub async fn open(address: &str) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        let (send, connection) = builder.handshake(stream).await?;
        // An error of the connection also fails the calls.
        tokio::task::spawn_local(async move { drop(connection.await) });
        Ok(Self { send })
    }

    /// Calls the method; returns the status as an HTTP status, the length of the answer, and whether another call may
    /// follow.
    pub async fn ask(&mut self, asked: &Load, message: &Bytes) -> Result<(u16, usize, bool), Error> {
        let request = Request::post(format!("http://{}{}", asked.address, asked.path))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        self.send = self.send.clone().ready().await?;
        let (response, mut body) = self.send.send_request(request, false)?;
        body.send_data(message.clone(), true)?;
        let (head, mut body) = response.await?.into_parts();
        let mut length = 0;
        while let Some(part) = body.data().await {
            let part = part?;
            length += part.len();
            body.flow_control().release_capacity(part.len())?;
        }
        let trailers = body.trailers().await?.unwrap_or_default();
        let code = code(&trailers).or_else(|| code(&head.headers));
        Ok((status(code.ok_or("an answer without a grpc-status")?), length, true))
    }
}

fn code(headers: &HeaderMap) -> Option<u8> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// The HTTP status for a gRPC code, so that both are counted alike.
fn status(code: u8) -> u16 {
    match code {
        0 => 200,
        3 => 400,
        4 => 504,
        5 => 404,
        8 | 14 => 503,
        _ => 500,
    }
}
