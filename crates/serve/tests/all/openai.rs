//! The form of OpenAI's API: what is answered, whole and in events, what is refused, and who waits for whom.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{Request, StatusCode};
use polygrad_core::{DType, Error, HostTensor, Result, Shape};
use polygrad_onnx::graph::ElementType;
use polygrad_serve::{
    Encoder, Finish, Language, Model, Prompt, Server, ServerOptions, Settings, Signature, Style, Tokens, Value,
};
use serde_json::{Value as Json, json};
use tower::ServiceExt;

use crate::common::{Asked, body, text};
use crate::running::{Running, repository, to_end};
use crate::support::{identity, signature, spec};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";
const EMBEDDINGS: &str = "/v1/embeddings";

/// Writes `w0 w1 …`, a word for each token, and counts them all.
#[derive(Default)]
struct Talker {
    signature: Signature,
    pause: Duration,
    written: Arc<AtomicUsize>,
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

    /// One for each word; of a chat, one for each message.
    fn tokens(&self, prompt: &Prompt) -> Result<Vec<i64>> {
        match prompt {
            Prompt::Text(text) if text == "bad" => Err(Error::invalid("a bad prompt")),
            Prompt::Text(text) if text == "fail" => Ok(vec![-1]),
            Prompt::Text(text) if text == "panic" => Ok(vec![-2]),
            Prompt::Text(text) => Ok(vec![0; text.split_whitespace().count()]),
            Prompt::Tokens(ids) => Ok(ids.clone()),
            Prompt::Chat(messages) => Ok(vec![0; messages.len()]),
        }
    }

    fn write(
        &self,
        prompt: &[i64],
        count: usize,
        style: &Style,
        piece: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Finish> {
        for number in 0..count {
            std::thread::sleep(self.pause);
            match (prompt, number) {
                ([-1], 2) => return Err(Error::new(polygrad_core::ErrorKind::DeviceError, "the device is lost")),
                ([-2], 2) => panic!("as if by a fault"),
                _ => {}
            }
            let word = format!("w{number} ");
            if style.stop.iter().any(|stop| word.contains(stop)) {
                return Ok(Finish {
                    tokens: number + 1,
                    is_stop: true,
                });
            }
            self.written.fetch_add(1, Ordering::SeqCst);
            if !piece(&word) {
                break;
            }
        }
        Ok(Finish {
            tokens: count,
            is_stop: false,
        })
    }
}

/// Gives each text its length and the third of it; a token is a byte.
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

fn talker(pause: u64) -> (Arc<dyn Model>, Arc<AtomicUsize>) {
    let written = Arc::new(AtomicUsize::new(0));
    let talker = Talker {
        pause: Duration::from_millis(pause),
        written: Arc::clone(&written),
        ..Talker::default()
    };
    (Arc::new(talker), written)
}

fn router_with(pause: u64, settings: &Settings) -> (Router, Arc<AtomicUsize>) {
    let (model, written) = talker(pause);
    let number = identity(ElementType::from(DType::F32));
    let models = repository(
        vec![("talker", model), ("number", number), ("reader", reader())],
        settings,
    );
    (Server::new(models, ServerOptions::default()).router(), written)
}

fn router() -> Router {
    router_with(0, &Settings::default()).0
}

/// The error of a request that is refused.
async fn refused(asked: Asked, router: &Router, wanted: StatusCode) -> Json {
    let (status, _, body) = asked.answer(router).await;
    assert_eq!(status, wanted, "{}", text(&body));
    let json: Json = serde_json::from_slice(&body).unwrap();
    let error = &json["error"];
    let keys: Vec<&String> = error.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["code", "message", "param", "type"]);
    error.clone()
}

/// The events of a stream, and whether it came to its end.
fn events(body: &[u8]) -> (Vec<Json>, bool) {
    let mut lines: Vec<&str> = text(body).split_terminator("\n\n").collect();
    let is_done = lines.last() == Some(&"data: [DONE]");
    lines.truncate(lines.len() - usize::from(is_done));
    let json = |line: &&str| serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap();
    (lines.iter().map(json).collect(), is_done)
}

#[tokio::test]
async fn models_that_write_or_read_are_listed() {
    let router = router();
    let all = Asked::get("/v1/models").json(&router).await;
    assert_eq!(all["object"], "list");
    let names: Vec<&Json> = all["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| &model["id"])
        .collect();
    assert_eq!(names, ["reader", "talker"]);
    let own = &all["data"][1];
    assert_eq!(
        (&own["object"], &own["owned_by"]),
        (&json!("model"), &json!("polygrad"))
    );
    assert!(own["created"].as_u64().unwrap() > 1_700_000_000);
    assert_eq!(&Asked::get("/v1/models/talker").json(&router).await, own);
    for name in ["nobody", "number"] {
        let error = refused(
            Asked::get(&format!("/v1/models/{name}")),
            &router,
            StatusCode::NOT_FOUND,
        )
        .await;
        assert_eq!(
            (&error["code"], &error["type"]),
            (&json!("model_not_found"), &json!("invalid_request_error"))
        );
        assert!(error["message"].as_str().unwrap().contains(name), "{error}");
    }
    let error = refused(Asked::get("/v1/images"), &router, StatusCode::NOT_FOUND).await;
    assert!(error["message"].as_str().unwrap().contains("/v1/images"), "{error}");
}

#[tokio::test]
async fn texts_are_answered_whole() {
    let router = router();
    let ask = async |more: Json| {
        let mut asked = json!({"model": "talker", "prompt": "a b c", "max_tokens": 3});
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Asked::post(COMPLETIONS, &asked).json(&router).await
    };
    let answer = ask(json!({})).await;
    assert_eq!(
        (&answer["object"], &answer["model"]),
        (&json!("text_completion"), &json!("talker"))
    );
    assert!(answer["id"].as_str().unwrap().starts_with("cmpl-"));
    let choice = json!({"index": 0, "text": "w0 w1 w2 ", "logprobs": null, "finish_reason": "length"});
    assert_eq!(answer["choices"], json!([choice]));
    assert_eq!(
        answer["usage"],
        json!({"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6})
    );
    // What stops it, fields that change nothing, and what is null.
    let more = json!({"stop": ["x", "w1"], "user": "me", "n": 1, "logprobs": null, "echo": false, "seed": -3});
    let answer = ask(more).await;
    assert_eq!(
        (&answer["choices"][0]["text"], &answer["choices"][0]["finish_reason"]),
        (&json!("w0 "), &json!("stop"))
    );
    assert_eq!(answer["usage"]["completion_tokens"], 2);
    // Several prompts, tokens, and none of a length.
    let answer = ask(json!({"prompt": ["a", "b c"], "max_tokens": 1})).await;
    let all = answer["choices"].as_array().unwrap();
    assert!(
        all.len() == 2 && all.iter().all(|choice| choice["text"] == "w0 "),
        "{answer}"
    );
    assert_eq!(answer["usage"]["total_tokens"], 5);
    assert_eq!(answer["choices"][1]["index"], 1);
    assert_eq!(ask(json!({"prompt": [7, 8]})).await["usage"]["prompt_tokens"], 2);
    assert_eq!(ask(json!({"prompt": [[7], [8, 9]]})).await["usage"]["prompt_tokens"], 3);
    assert_eq!(ask(json!({"max_tokens": null})).await["usage"]["completion_tokens"], 16);
    assert_eq!(ask(json!({"max_tokens": 0})).await["choices"][0]["text"], "");
}

#[tokio::test]
async fn texts_get_vectors() {
    let router = router();
    let ask = async |more: Json| {
        let mut asked = json!({"model": "reader", "input": "abc", "user": "me"});
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Asked::post(EMBEDDINGS, &asked).json(&router).await
    };
    let vector = |index: usize, embedding: Json| json!({"object": "embedding", "index": index, "embedding": embedding});
    let whole = |data: Json, tokens: usize| {
        let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
        json!({"object": "list", "data": data, "model": "reader", "usage": usage})
    };
    let one = json!([vector(0, json!([3.0, 1.0]))]);
    assert_eq!(ask(json!({})).await, whole(one.clone(), 3));
    assert_eq!(
        ask(json!({"encoding_format": "float", "dimensions": 2})).await,
        whole(one, 3)
    );
    // The bytes of 3 and 1.
    let bytes = json!([vector(0, json!("AABAQAAAgD8="))]);
    assert_eq!(ask(json!({"encoding_format": "base64"})).await, whole(bytes, 3));
    // More than are computed at once, in their order, and an empty one.
    let texts: Vec<String> = (0..70).map(|length| "x".repeat(length)).collect();
    let answer = ask(json!({"input": texts})).await;
    assert_eq!(answer["usage"]["total_tokens"], 69 * 70 / 2);
    for (index, found) in answer["data"].as_array().unwrap().iter().enumerate() {
        // In the fewest digits that are this number.
        let third: f64 = (index as f32 / 3.0).to_string().parse().unwrap();
        assert_eq!(found, &vector(index, json!([index as f64, third])));
    }
}

#[tokio::test]
async fn vectors_that_make_no_sense_are_refused_by_their_field() {
    let router = router();
    for (field, value, words) in [
        ("model", json!(null), "model is missing"),
        ("input", json!(null), "input is missing"),
        ("input", json!([]), "input is empty"),
        ("input", json!(3), "give a text or a list of texts"),
        ("input", json!(["a", 3]), "what is no text"),
        ("input", json!([3, 4]), "tokens"),
        ("input", json!([[3, 4], [5]]), "tokens"),
        ("input", json!(vec!["a"; 2049]), "more than 2048 texts"),
        ("encoding_format", json!("int8"), "neither \"float\" nor \"base64\""),
        ("encoding_format", json!(8), "no text"),
        ("dimensions", json!(1), "vectors of this model have 2"),
        ("dimensions", json!("two"), "no whole number"),
    ] {
        let mut asked = json!({"model": "reader", "input": "a"});
        asked[field] = value.clone();
        let error = refused(Asked::post(EMBEDDINGS, &asked), &router, StatusCode::BAD_REQUEST).await;
        assert_eq!(error["param"], field, "{value}");
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    }
    // Before anything is computed, which would find the text.
    let asked = Asked::post(EMBEDDINGS, &json!({"model": "reader", "input": "bad", "dimensions": 1}));
    let error = refused(asked, &router, StatusCode::BAD_REQUEST).await;
    assert_eq!(error["param"], "dimensions", "{error}");
    for (model, words) in [
        ("nobody", "nobody"),
        ("talker", "gives no vectors"),
        ("number", "modules.json"),
    ] {
        let asked = Asked::post(EMBEDDINGS, &json!({"model": model, "input": "a"}));
        let error = refused(asked, &router, StatusCode::NOT_FOUND).await;
        assert_eq!(error["code"], "model_not_found");
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    }
    for (asked, words) in [
        (json!({"model": "reader", "input": ["a", "bad"]}), "a bad text"),
        (json!({"model": "reader", "input": "a", "colour": "red"}), "colour"),
    ] {
        let error = refused(Asked::post(EMBEDDINGS, &asked), &router, StatusCode::BAD_REQUEST).await;
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    }
    let asked = Asked::post(COMPLETIONS, &json!({"model": "reader", "prompt": "a"}));
    let error = refused(asked, &router, StatusCode::NOT_FOUND).await;
    assert!(
        error["message"].as_str().unwrap().contains("writes no texts"),
        "{error}"
    );
}

#[tokio::test]
async fn chats_are_answered_whole() {
    let router = router();
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    let messages = json!([{"role": "developer", "content": "x"}, {"role": "user", "content": parts}]);
    let asked = json!({"model": "talker", "messages": messages, "max_completion_tokens": 2, "tools": []});
    let answer = Asked::post(CHAT, &asked).json(&router).await;
    assert_eq!(answer["object"], "chat.completion");
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    let message = json!({"role": "assistant", "content": "w0 w1 ", "refusal": null});
    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": "length"});
    assert_eq!(answer["choices"], json!([choice]));
    assert_eq!(
        answer["usage"],
        json!({"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4})
    );
    // Where nobody says how long, as long as there is room.
    let asked = json!({"model": "talker", "messages": messages});
    assert_eq!(
        Asked::post(CHAT, &asked).json(&router).await["usage"]["total_tokens"],
        1000
    );
}

#[tokio::test]
async fn texts_come_in_events() {
    let router = router();
    for (path, extra) in [
        (COMPLETIONS, json!({"prompt": ["a", "b"]})),
        (CHAT, json!({"messages": [{"role": "user", "content": "a"}]})),
    ] {
        for with_usage in [false, true] {
            let mut asked = json!({"model": "talker", "max_tokens": 2, "stream": true});
            asked["stream_options"] = json!({"include_usage": with_usage});
            asked
                .as_object_mut()
                .unwrap()
                .extend(extra.as_object().unwrap().clone());
            let (status, headers, body) = Asked::post(path, &asked).answer(&router).await;
            assert_eq!(status, StatusCode::OK);
            assert_eq!(headers["content-type"], "text/event-stream; charset=utf-8");
            let (mut events, is_done) = events(&body);
            assert!(is_done && events.iter().all(|event| event["id"] == events[0]["id"]));
            if with_usage {
                let last = events.pop().unwrap();
                let prompts = if path == CHAT { 1 } else { 2 };
                let usage =
                    json!({"prompt_tokens": prompts, "completion_tokens": 2 * prompts, "total_tokens": 3 * prompts});
                assert_eq!((&last["choices"], &last["usage"]), (&json!([]), &usage));
            }
            assert!(events.iter().all(|event| event.get("usage").is_some() == with_usage));
            let choices: Vec<&Json> = events.iter().map(|event| &event["choices"][0]).collect();
            let shown: Vec<String> = choices
                .iter()
                .map(|choice| match path {
                    CHAT => format!("{} {}", choice["delta"], choice["finish_reason"]),
                    _ => format!("{} {} {}", choice["index"], choice["text"], choice["finish_reason"]),
                })
                .collect();
            let wanted = match path {
                CHAT => vec![
                    r#"{"content":"","role":"assistant"} null"#,
                    r#"{"content":"w0 "} null"#,
                    r#"{"content":"w1 "} null"#,
                    r#"{} "length""#,
                ],
                _ => vec![
                    r#"0 "w0 " null"#,
                    r#"0 "w1 " null"#,
                    r#"0 "" "length""#,
                    r#"1 "w0 " null"#,
                    r#"1 "w1 " null"#,
                    r#"1 "" "length""#,
                ],
            };
            assert_eq!(shown, wanted);
        }
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_by_its_field() {
    let router = router();
    for (path, field, value) in [
        (COMPLETIONS, "model", json!(null)),
        (COMPLETIONS, "model", json!(3)),
        (COMPLETIONS, "prompt", json!(null)),
        (COMPLETIONS, "prompt", json!({"a": 1})),
        (COMPLETIONS, "prompt", json!(["a", 1])),
        (COMPLETIONS, "prompt", json!([1.5])),
        (COMPLETIONS, "prompt", json!(vec!["a"; 65])),
        (COMPLETIONS, "max_tokens", json!(-1)),
        (COMPLETIONS, "max_tokens", json!("many")),
        (COMPLETIONS, "temperature", json!(-0.1)),
        (COMPLETIONS, "temperature", json!("hot")),
        (COMPLETIONS, "top_p", json!(0)),
        (COMPLETIONS, "top_p", json!(1.1)),
        (COMPLETIONS, "top_k", json!(0)),
        (COMPLETIONS, "min_p", json!(2)),
        (COMPLETIONS, "repetition_penalty", json!(0)),
        (COMPLETIONS, "seed", json!(1.5)),
        (COMPLETIONS, "stop", json!("")),
        (COMPLETIONS, "stop", json!(["a", "b", "c", "d", "e"])),
        (COMPLETIONS, "stop", json!([1])),
        (COMPLETIONS, "stream", json!("yes")),
        (COMPLETIONS, "stream_options", json!(true)),
        (COMPLETIONS, "n", json!(2)),
        (COMPLETIONS, "echo", json!(true)),
        (COMPLETIONS, "logprobs", json!(5)),
        (COMPLETIONS, "presence_penalty", json!(0.5)),
        (CHAT, "messages", json!(null)),
        (CHAT, "messages", json!([])),
        (CHAT, "messages", json!(["hello"])),
        (CHAT, "messages", json!([{"role": "nobody", "content": "a"}])),
        (CHAT, "messages", json!([{"role": "user", "content": 1}])),
        (
            CHAT,
            "messages",
            json!([{"role": "user", "content": [{"type": "image_url"}]}]),
        ),
        (CHAT, "tools", json!([{"type": "function"}])),
        (CHAT, "response_format", json!({"type": "json_object"})),
        (CHAT, "logprobs", json!(true)),
    ] {
        let mut asked = json!({"model": "talker"});
        match path {
            CHAT => asked["messages"] = json!([{"role": "user", "content": "a"}]),
            _ => asked["prompt"] = "a".into(),
        }
        asked[field] = value.clone();
        let error = refused(Asked::post(path, &asked), &router, StatusCode::BAD_REQUEST).await;
        assert_eq!(
            (&error["param"], &error["type"]),
            (&json!(field), &json!("invalid_request_error")),
            "{value}"
        );
        assert!(error["message"].as_str().unwrap().contains(field), "{error}");
    }
    for (more, part) in [
        (json!({"colour": "red"}), "colour"),
        (json!({"prompt": "bad"}), "a bad prompt"),
        (
            json!({"max_tokens": 1000}),
            "maximum context length here is 1000 tokens",
        ),
    ] {
        for stream in [false, true] {
            let mut asked = json!({"model": "talker", "prompt": "a", "stream": stream});
            asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let error = refused(Asked::post(COMPLETIONS, &asked), &router, StatusCode::BAD_REQUEST).await;
            assert!(error["message"].as_str().unwrap().contains(part), "{error}");
        }
    }
    for bad in ["", "{", "[]", "\"text\""] {
        let error = refused(body(COMPLETIONS, bad.as_bytes()), &router, StatusCode::BAD_REQUEST).await;
        assert!(error["message"].as_str().unwrap().contains("JSON"), "{error}");
    }
    let asked = json!({"model": "nobody", "prompt": "a"});
    let error = refused(Asked::post(COMPLETIONS, &asked), &router, StatusCode::NOT_FOUND).await;
    assert_eq!(
        (&error["code"], &error["param"]),
        (&json!("model_not_found"), &json!("model"))
    );
    let mut tokens = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut tokens, b"secret\n").unwrap();
    let options = ServerOptions {
        tokens: Some(Tokens::from_file(tokens.path()).unwrap()),
        ..ServerOptions::default()
    };
    let locked = Server::new(repository(Vec::new(), &Settings::default()), options).router();
    let error = refused(Asked::get("/v1/models"), &locked, StatusCode::UNAUTHORIZED).await;
    assert_eq!(error["type"], "authentication_error");
    let known = Asked::get("/v1/models")
        .header("authorization", "Bearer secret")
        .json(&locked)
        .await;
    assert_eq!(known["data"], json!([]));
}

#[tokio::test]
async fn a_model_that_fails_says_so_in_its_answer() {
    let router = router();
    for (prompt, part) in [("fail", "the device is lost"), ("panic", "ended before its text did")] {
        let mut asked = json!({"model": "talker", "prompt": prompt});
        let error = refused(
            Asked::post(COMPLETIONS, &asked),
            &router,
            StatusCode::INTERNAL_SERVER_ERROR,
        )
        .await;
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
        asked["stream"] = true.into();
        let (status, _, body) = Asked::post(COMPLETIONS, &asked).answer(&router).await;
        let (events, is_done) = events(&body);
        assert_eq!((status, events.len(), is_done), (StatusCode::OK, 3, false));
        assert_eq!(events[1]["choices"][0]["text"], "w1 ");
        assert!(
            events[2]["error"]["message"].as_str().unwrap().contains(part),
            "{events:?}"
        );
    }
    // The next one has its turn.
    let asked = json!({"model": "talker", "prompt": "a", "max_tokens": 1});
    assert_eq!(
        Asked::post(COMPLETIONS, &asked).json(&router).await["choices"][0]["text"],
        "w0 "
    );
}

/// Reads one frame of a body.
async fn frame(body: &mut Body) -> Option<bytes::Bytes> {
    let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
    frame.unwrap().into_data().ok()
}

/// Waits until nothing more is written.
async fn rest(written: &AtomicUsize) -> usize {
    let mut before = usize::MAX;
    loop {
        let now = written.load(Ordering::SeqCst);
        if now == before {
            return now;
        }
        before = now;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn long(path: &str, stream: bool) -> Request<Body> {
    let asked = json!({"model": "talker", "prompt": "a", "max_tokens": 900, "stream": stream});
    Request::post(path).body(Body::from(asked.to_string())).unwrap()
}

#[tokio::test]
async fn who_goes_away_ends_what_is_written() {
    let (router, written) = router_with(10, &Settings::default());
    let answer = router.clone().oneshot(long(COMPLETIONS, true)).await.unwrap();
    let mut body = answer.into_body();
    assert!(frame(&mut body).await.is_some());
    // In the middle of a stream, and before a whole answer.
    drop(body);
    assert!(rest(&written).await < 100);
    written.store(0, Ordering::SeqCst);
    let waiting = tokio::time::timeout(
        Duration::from_millis(100),
        router.clone().oneshot(long(COMPLETIONS, false)),
    );
    assert!(waiting.await.is_err());
    assert!(rest(&written).await < 100);

    // Over a connection, too.
    let (model, written) = talker(10);
    let server = Running::of(vec![("talker", model)]).await;
    let mut stream = server.connect().await;
    let asked = json!({"model": "talker", "prompt": "a", "max_tokens": 900, "stream": true}).to_string();
    let head = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{asked}",
        asked.len()
    );
    tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes())
        .await
        .unwrap();
    let mut part = [0; 512];
    assert!(tokio::io::AsyncReadExt::read(&mut stream, &mut part).await.unwrap() > 0);
    drop(stream);
    assert!(rest(&written).await < 100);
}

#[tokio::test]
async fn texts_wait_for_their_turn_and_nothing_else_does() {
    let (slow, _) = talker(10);
    let (fast, _) = talker(0);
    let settings = Settings {
        max_queue: 1,
        timeout: Some(Duration::from_millis(300)),
        ..Settings::default()
    };
    let models = repository(vec![("talker", slow), ("other", fast)], &settings);
    let router = Server::new(models, ServerOptions::default()).router();
    let answer = router.clone().oneshot(long(COMPLETIONS, true)).await.unwrap();
    let mut body = answer.into_body();
    assert!(frame(&mut body).await.is_some());
    // Another model, and questions about this one.
    let began = Instant::now();
    let asked = json!({"model": "other", "prompt": "a", "max_tokens": 2});
    assert_eq!(
        Asked::post(COMPLETIONS, &asked).json(&router).await["choices"][0]["text"],
        "w0 w1 "
    );
    assert_eq!(
        Asked::get("/v1/models").json(&router).await["data"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert!(began.elapsed() < Duration::from_secs(2));
    // One waits, and for too long; the next is turned away meanwhile.
    let asked = || Asked::post(COMPLETIONS, &json!({"model": "talker", "prompt": "a"}));
    let (first, second) = tokio::join!(
        refused(asked(), &router, StatusCode::GATEWAY_TIMEOUT),
        refused(asked(), &router, StatusCode::SERVICE_UNAVAILABLE),
    );
    assert!(
        first["message"].as_str().unwrap().contains("waited for 0.3 s"),
        "{first}"
    );
    assert!(
        second["message"].as_str().unwrap().contains("which is its limit"),
        "{second}"
    );
    drop(body);
    let answer = Asked::post(COMPLETIONS, &json!({"model": "talker", "prompt": "a", "max_tokens": 1}));
    assert_eq!(answer.json(&router).await["choices"][0]["text"], "w0 ");
    let statistics = Asked::get("/v2/models/talker/stats").json(&router).await;
    let success = &statistics["model_stats"][0]["inference_stats"]["success"]["count"];
    assert_eq!(success.to_string().trim_matches('"'), "1", "{statistics}");
}

#[tokio::test]
async fn a_stream_ends_with_its_connection() {
    let server = Running::of(vec![("talker", talker(0).0)]).await;
    let mut stream = server.connect().await;
    let asked = json!({"model": "talker", "prompt": "a", "max_tokens": 2, "stream": true}).to_string();
    let head = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{asked}",
        asked.len()
    );
    tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes())
        .await
        .unwrap();
    let answer = to_end(&mut stream).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && answer.contains("data: [DONE]"),
        "{answer}"
    );
    assert_eq!(server.ended().await, 0);
}
