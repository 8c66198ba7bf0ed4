//! Generated texts, complete or streamed.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::{Body, HttpBody};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::Frame;
use serde_json::{Value as Json, json};
use tokio::sync::mpsc::UnboundedReceiver;

use super::{Refused, broken, unexpected};
use crate::service::Event;
use crate::{Finish, front};

/// The kind of an answer: a completion or a chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wording {
    Text,
    Chat,
}

/// The seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The texts written so far for each prompt.
pub(super) struct Whole {
    wording: Wording,
    id: String,
    created: u64,
    model: String,
    prompt_tokens: usize,
    texts: Vec<(String, Option<Finish>)>,
}

impl Whole {
    pub(super) fn new(wording: Wording, model: String, prompt_tokens: usize, prompts: usize) -> Self {
        let kind = match wording {
            Wording::Text => "cmpl",
            Wording::Chat => "chatcmpl",
        };
        Self {
            wording,
            id: format!("{kind}-{}", String::from_utf8_lossy(&front::new_id())),
            created: seconds(SystemTime::now()),
            model,
            prompt_tokens,
            texts: vec![(String::new(), None); prompts],
        }
    }

    /// Whether any text is incomplete.
    pub(super) fn is_open(&self) -> bool {
        self.texts.iter().any(|(_, finish)| finish.is_none())
    }

    pub(super) fn add(&mut self, event: Event) -> Result<(), Refused> {
        match event {
            Event::Piece(number, piece) if number < self.texts.len() => self.texts[number].0.push_str(&piece),
            Event::Ended(number, finish) if number < self.texts.len() => self.texts[number].1 = Some(finish),
            Event::Failed(failure) => return Err(failure.into()),
            other => return Err(unexpected(&other)),
        }
        Ok(())
    }

    fn head(&self, chat: &str) -> Json {
        let object = match self.wording {
            Wording::Text => "text_completion",
            Wording::Chat => chat,
        };
        json!({"id": self.id, "object": object, "created": self.created, "model": self.model})
    }

    fn usage(&self) -> Json {
        let tokens = |(_, finish): &(String, Option<Finish>)| finish.map_or(0, |finish| finish.tokens);
        let written: usize = self.texts.iter().map(tokens).sum();
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": written,
            "total_tokens": self.prompt_tokens + written,
        })
    }

    pub(super) fn answer(&self) -> Json {
        let choice = |(index, (text, finish)): (usize, &(String, Option<Finish>))| {
            let mut choice = json!({"index": index, "logprobs": null, "finish_reason": finish.map(reason)});
            match self.wording {
                Wording::Text => choice["text"] = text.as_str().into(),
                Wording::Chat => {
                    choice["message"] = json!({"role": "assistant", "content": text, "refusal": null});
                }
            }
            choice
        };
        let mut answer = self.head("chat.completion");
        answer["choices"] = self.texts.iter().enumerate().map(choice).collect();
        answer["usage"] = self.usage();
        answer
    }

    /// A part of a stream: the addition to one text.
    fn chunk(&self, index: usize, delta: Json, finish: Option<Finish>) -> Json {
        let mut choice = json!({"index": index, "logprobs": null, "finish_reason": finish.map(reason)});
        let key = match self.wording {
            Wording::Text => "text",
            Wording::Chat => "delta",
        };
        choice[key] = delta;
        let mut chunk = self.head("chat.completion.chunk");
        chunk["choices"] = json!([choice]);
        chunk
    }
}

fn reason(finish: Finish) -> &'static str {
    if finish.is_stop { "stop" } else { "length" }
}

/// Texts streamed as Server-Sent Events.
pub(super) struct Events {
    whole: Whole,
    events: UnboundedReceiver<Event>,
    with_usage: bool,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Beginning,
    Writing,
    Over,
}

impl Events {
    pub(super) fn new(whole: Whole, events: UnboundedReceiver<Event>, with_usage: bool) -> Self {
        let stage = match whole.wording {
            Wording::Chat => Stage::Beginning,
            Wording::Text => Stage::Writing,
        };
        Self {
            whole,
            events,
            with_usage,
            stage,
        }
    }

    /// The lines for an event.
    fn lines(&mut self, event: Event) -> String {
        let chunk = match &event {
            Event::Piece(index, piece) => {
                let delta = match self.whole.wording {
                    Wording::Text => json!(piece),
                    Wording::Chat => json!({"content": piece}),
                };
                Some(self.whole.chunk(*index, delta, None))
            }
            Event::Ended(index, finish) => {
                let delta = match self.whole.wording {
                    Wording::Text => json!(""),
                    Wording::Chat => json!({}),
                };
                Some(self.whole.chunk(*index, delta, Some(*finish)))
            }
            _ => None,
        };
        if let Err(refused) = self.whole.add(event) {
            // The status has been sent already: clients look for an error here.
            self.stage = Stage::Over;
            return line(&refused.json());
        }
        let mut lines = chunk.map_or_else(String::new, |chunk| self.written(chunk));
        if !self.whole.is_open() {
            self.stage = Stage::Over;
            lines += &self.last();
        }
        lines
    }

    fn written(&self, mut chunk: Json) -> String {
        if self.with_usage {
            chunk["usage"] = Json::Null;
        }
        line(&chunk)
    }

    fn last(&self) -> String {
        let mut lines = String::new();
        if self.with_usage {
            let mut chunk = self.whole.head("chat.completion.chunk");
            chunk["choices"] = json!([]);
            chunk["usage"] = self.whole.usage();
            lines += &line(&chunk);
        }
        lines + "data: [DONE]\n\n"
    }
}

fn line(json: &Json) -> String {
    format!("data: {json}\n\n")
}

impl HttpBody for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let lines = match self.stage {
            Stage::Over => return Poll::Ready(None),
            Stage::Beginning => {
                self.stage = Stage::Writing;
                let delta = json!({"role": "assistant", "content": ""});
                self.written(self.whole.chunk(0, delta, None))
            }
            Stage::Writing => {
                let event = ready!(self.events.poll_recv(cx));
                self.lines(event.unwrap_or_else(|| Event::Failed(broken())))
            }
        };
        Poll::Ready(Some(Ok(Frame::data(lines.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.stage == Stage::Over
    }
}

impl IntoResponse for Events {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::new(self));
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/event-stream; charset=utf-8"),
        );
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }
}
