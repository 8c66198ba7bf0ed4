//! Answers, complete and streamed, and rejected requests.

use axum::http::StatusCode;
use polygrad_serve::{Server, ServerOptions, Settings, Tokens};
use serde_json::{Value as Json, json};

use super::{CHAT, COMPLETIONS, events, refused, router};
use crate::common::{Asked, body};
use crate::running::repository;

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
    for (asked, status) in [
        (Asked::get("/v1/images"), StatusCode::NOT_FOUND),
        (Asked::get(COMPLETIONS), StatusCode::METHOD_NOT_ALLOWED),
        (Asked::of("DELETE", "/v1/models/talker"), StatusCode::METHOD_NOT_ALLOWED),
    ] {
        let error = refused(asked, &router, status).await;
        assert_eq!(error["type"], "invalid_request_error");
        assert!(
            error["message"].as_str().unwrap().contains("see /openapi.json"),
            "{error}"
        );
    }
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
    // Stop strings, fields without an effect, and null fields.
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
    // Without a given length, as long as there is room.
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
            asked["stream_options"] = json!({"include_usage": with_usage, "include_obfuscation": false});
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
                    r#"1 "w0 " null"#,
                    r#"0 "w1 " null"#,
                    r#"0 "" "length""#,
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
        (CHAT, "stream_options", json!({"include_obfuscation": true})),
        (CHAT, "stream_options", json!({"usage": true})),
        (COMPLETIONS, "n", json!(2)),
        (COMPLETIONS, "echo", json!(true)),
        (COMPLETIONS, "logprobs", json!(5)),
        (COMPLETIONS, "logprobs", json!(0)),
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
