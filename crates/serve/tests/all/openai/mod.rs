//! The form of OpenAI's API, with models that only count.

mod answers;
mod crowds;
mod vectors;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use polygrad_core::{DType, Error, ErrorKind, HostTensor, Result, Shape};
use polygrad_onnx::graph::ElementType;
use polygrad_serve::{
    Encoder, Finish, Language, Model, Piece, Prompt, Server, ServerOptions, Settings, Signature, Style, Value, Writing,
};
use serde_json::Value as Json;

use crate::common::{Asked, text};
use crate::running::repository;
use crate::support::{identity, signature, spec};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";
const EMBEDDINGS: &str = "/v1/embeddings";

/// Writes `w0 w1 …`, a word for each token.
struct Talker {
    signature: Signature,
    /// The pause of each step.
    pause: Duration,
    /// The most tokens of all texts that are written at the same time.
    room: usize,
    seen: Arc<Seen>,
}

impl Default for Talker {
    fn default() -> Self {
        Self {
            signature: Signature::default(),
            pause: Duration::ZERO,
            room: usize::MAX,
            seen: Arc::default(),
        }
    }
}

/// The record of a talker's work.
#[derive(Default)]
struct Seen {
    /// The number of tokens of all texts.
    written: AtomicUsize,
    /// The most texts at the same time.
    most: AtomicUsize,
}

impl Model for Talker {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, _: &[Value]) -> Result<Vec<Value>> {
        Ok(Vec::new())
    }

    fn language(&self) -> Option<&dyn Language> {
        Some(self)
    }
}

impl Language for Talker {
    fn positions(&self) -> usize {
        1000
    }

    /// One token for each word, or for each message of a chat.
    fn tokens(&self, prompt: &Prompt) -> Result<Vec<i64>> {
        match prompt {
            Prompt::Text(text) if text == "bad" => Err(Error::invalid("a bad prompt")),
            Prompt::Text(text) if text == "fail" => Ok(vec![-1]),
            Prompt::Text(text) if text == "panic" => Ok(vec![-2]),
            Prompt::Text(text) if text == "nan" => Ok(vec![-3]),
            Prompt::Text(text) => Ok(vec![0; text.split_whitespace().count()]),
            Prompt::Tokens(ids) => Ok(ids.clone()),
            Prompt::Chat(messages) => Ok(vec![0; messages.len()]),
        }
    }

    fn begin(&self) -> Result<Box<dyn Writing + '_>> {
        Ok(Box::new(Talk {
            talker: self,
            texts: BTreeMap::new(),
            joined: 0,
        }))
    }
}

/// Texts written by a talker.
struct Talk<'a> {
    talker: &'a Talker,
    texts: BTreeMap<usize, Words>,
    joined: usize,
}

struct Words {
    prompt: Vec<i64>,
    count: usize,
    stop: Vec<String>,
    said: usize,
}

impl Words {
    fn next(&mut self) -> Result<Piece> {
        match (&self.prompt[..], self.said) {
            ([-2], 2) => panic!("as if by a fault"),
            ([-3], 2) => return Err(Error::new(ErrorKind::DeviceError, "a logit is NaN")),
            _ => {}
        }
        let word = format!("w{} ", self.said);
        self.said += 1;
        let is_stop = self.stop.iter().any(|stop| word.contains(stop));
        let finish = Finish {
            tokens: self.said,
            is_stop,
        };
        Ok(Piece {
            text: if is_stop { String::new() } else { word },
            finish: (is_stop || self.said == self.count).then_some(finish),
        })
    }
}

impl Writing for Talk<'_> {
    fn has_room(&self, tokens: usize) -> bool {
        let taken = self.texts.values().map(|text| text.prompt.len() + text.count);
        taken.sum::<usize>() + tokens <= self.talker.room
    }

    fn join(&mut self, prompt: &[i64], count: usize, style: &Style) -> Result<usize> {
        let words = Words {
            prompt: prompt.to_vec(),
            count,
            stop: style.stop.clone(),
            said: 0,
        };
        self.texts.insert(self.joined, words);
        self.joined += 1;
        self.talker.seen.most.fetch_max(self.texts.len(), Ordering::SeqCst);
        Ok(self.joined - 1)
    }

    fn leave(&mut self, text: usize) {
        self.texts.remove(&text);
    }

    fn step(&mut self) -> Result<Vec<(usize, Result<Piece>)>> {
        std::thread::sleep(self.talker.pause);
        if self.texts.values().any(|text| text.prompt == [-1] && text.said == 2) {
            return Err(Error::new(ErrorKind::DeviceError, "the device is lost"));
        }
        self.talker.seen.written.fetch_add(self.texts.len(), Ordering::SeqCst);
        let pieces: Vec<_> = self
            .texts
            .iter_mut()
            .map(|(&number, text)| (number, text.next()))
            .collect();
        for (number, piece) in &pieces {
            if piece.as_ref().map_or(true, |piece| piece.finish.is_some()) {
                self.texts.remove(number);
            }
        }
        Ok(pieces)
    }
}

/// Gives each text its length and a third of that; a token is a byte.
struct Reader(Signature);

impl Model for Reader {
    fn signature(&self) -> &Signature {
        &self.0
    }

    fn run(&self, inputs: &[Value]) -> Result<Vec<Value>> {
        let [Value::Strings(texts)] = inputs else {
            return Err(Error::dtype("texts are wanted"));
        };
        if texts.strings().iter().any(|text| text == "bad") {
            return Err(Error::invalid("a bad text"));
        }
        let lengths = texts.strings().iter().map(|text| text.len() as f32);
        let rows = lengths.flat_map(|length| [length, length / 3.0]).collect();
        let shape = Shape::new(&[texts.strings().len(), 2])?;
        Ok(vec![HostTensor::new::<f32>(shape, rows)?.into()])
    }

    fn encoder(&self) -> Option<&dyn Encoder> {
        Some(self)
    }
}

impl Encoder for Reader {
    fn count(&self, text: &str) -> Result<usize> {
        Ok(text.len())
    }
}

fn reader() -> Arc<dyn Model> {
    let signature = signature(
        vec![spec("text", ElementType::String, &["batch"])],
        vec![spec("vectors", ElementType::from(DType::F32), &["batch", "2"])],
    );
    Arc::new(Reader(signature))
}

fn talker(pause: u64) -> (Arc<dyn Model>, Arc<Seen>) {
    let talker = Talker {
        pause: Duration::from_millis(pause),
        ..Talker::default()
    };
    let seen = Arc::clone(&talker.seen);
    (Arc::new(talker), seen)
}

fn router_of(talker: Arc<dyn Model>, settings: &Settings) -> Router {
    let number = identity(ElementType::from(DType::F32));
    let models = vec![("talker", talker), ("number", number), ("reader", reader())];
    Server::new(repository(models, settings), ServerOptions::default()).router()
}

fn router() -> Router {
    router_of(talker(0).0, &Settings::default())
}

/// The error of a rejected request.
async fn refused(asked: Asked, router: &Router, wanted: StatusCode) -> Json {
    let (status, _, body) = asked.answer(router).await;
    assert_eq!(status, wanted, "{}", text(&body));
    let json: Json = serde_json::from_slice(&body).unwrap();
    let error = &json["error"];
    let keys: Vec<&String> = error.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["code", "message", "param", "type"]);
    error.clone()
}

/// The events of a stream, and whether it is complete.
fn events(body: &[u8]) -> (Vec<Json>, bool) {
    let mut lines: Vec<&str> = text(body).split_terminator("\n\n").collect();
    let is_done = lines.last() == Some(&"data: [DONE]");
    lines.truncate(lines.len() - usize::from(is_done));
    let json = |line: &&str| serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap();
    (lines.iter().map(json).collect(), is_done)
}
