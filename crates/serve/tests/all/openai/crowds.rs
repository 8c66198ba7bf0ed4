//! Simultaneous clients: which requests join, which wait, and what happens if a client disconnects or a model fails.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{Request, StatusCode};
use polygrad_serve::{Server, ServerOptions, Settings};
use serde_json::{Value as Json, json};
use tower::ServiceExt;

use super::{COMPLETIONS, Seen, Talker, events, refused, router, router_of, talker};
use crate::common::Asked;
use crate::running::{Running, repository, to_end};

/// Reads one frame of a body.
async fn frame(body: &mut Body) -> Option<bytes::Bytes> {
    let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
    frame.unwrap().into_data().ok()
}

/// Waits until no more tokens are written.
async fn rest(Seen { written, .. }: &Seen) -> usize {
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
async fn a_model_that_fails_says_so_in_its_answer() {
    let router = router();
    for (prompt, part) in [
        ("fail", "the device is lost"),
        ("panic", "ended before its text did"),
        ("nan", "a logit is NaN"),
    ] {
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
    // The next request is answered.
    let asked = json!({"model": "talker", "prompt": "a", "max_tokens": 1});
    assert_eq!(
        Asked::post(COMPLETIONS, &asked).json(&router).await["choices"][0]["text"],
        "w0 "
    );
}

#[tokio::test]
async fn who_goes_away_ends_what_is_written() {
    let (model, seen) = talker(10);
    let router = router_of(model, &Settings::default());
    let answer = router.clone().oneshot(long(COMPLETIONS, true)).await.unwrap();
    let mut body = answer.into_body();
    assert!(frame(&mut body).await.is_some());
    // Disconnecting in the middle of a stream, and before a complete answer.
    drop(body);
    assert!(rest(&seen).await < 100);
    seen.written.store(0, Ordering::SeqCst);
    let waiting = tokio::time::timeout(
        Duration::from_millis(100),
        router.clone().oneshot(long(COMPLETIONS, false)),
    );
    assert!(waiting.await.is_err());
    assert!(rest(&seen).await < 100);

    // Over a connection, too.
    let (model, seen) = talker(10);
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
    assert!(rest(&seen).await < 100);
}

#[tokio::test]
async fn texts_wait_for_their_turn_and_nothing_else_does() {
    let (slow, _) = talker(10);
    let (fast, _) = talker(0);
    let settings = Settings {
        max_batch_size: 1,
        max_queue: 1,
        timeout: Some(Duration::from_millis(300)),
        ..Settings::default()
    };
    let models = repository(vec![("talker", slow), ("other", fast)], &settings);
    let router = Server::new(models, ServerOptions::default()).router();
    let answer = router.clone().oneshot(long(COMPLETIONS, true)).await.unwrap();
    let mut body = answer.into_body();
    assert!(frame(&mut body).await.is_some());
    // Requests to another model, and queries about this one.
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
    // One request waits for too long; meanwhile the next is rejected.
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

/// The text of an answer, and the time of its last event.
async fn asked(router: &Router, prompt: Json, count: usize) -> (String, Instant) {
    let asked = json!({"model": "talker", "prompt": prompt, "max_tokens": count, "stream": true});
    let (status, _, body) = Asked::post(COMPLETIONS, &asked).answer(router).await;
    assert_eq!(status, StatusCode::OK);
    let (events, is_done) = events(&body);
    assert!(is_done, "{events:?}");
    let own = |event: &&Json| event["choices"][0]["index"] == 0;
    let text = |event: &Json| event["choices"][0]["text"].as_str().unwrap().to_owned();
    (events.iter().filter(own).map(text).collect(), Instant::now())
}

fn words(count: usize) -> String {
    (0..count).map(|number| format!("w{number} ")).collect()
}

#[tokio::test]
async fn requests_join_a_running_batch() {
    let (model, seen) = talker(10);
    let router = router_of(model, &Settings::default());
    let late = async |after: u64, count: usize| {
        tokio::time::sleep(Duration::from_millis(after)).await;
        asked(&router, json!("a"), count).await
    };
    // The second joins while the first is written, and finishes before it.
    let (first, second, third) = tokio::join!(late(0, 60), late(100, 5), late(200, 20));
    assert_eq!([&first.0, &second.0, &third.0], [&words(60), &words(5), &words(20)]);
    assert!(second.1 < first.1 && third.1 < first.1);
    assert_eq!(seen.most.load(Ordering::SeqCst), 2);
    // All texts of a request together with those of others.
    let many = json!(vec!["a"; 5]);
    let (whole, other) = tokio::join!(asked(&router, many, 20), late(50, 20));
    assert_eq!([whole.0, other.0], [words(20), words(20)]);
    assert_eq!(seen.most.load(Ordering::SeqCst), 6);
}

#[tokio::test]
async fn a_request_of_many_prompts_leaves_places_to_others() {
    let (model, seen) = talker(5);
    let settings = Settings {
        max_batch_size: 4,
        ..Settings::default()
    };
    let router = router_of(model, &settings);
    let late = async |after: u64| {
        tokio::time::sleep(Duration::from_millis(after)).await;
        asked(&router, json!("a"), 10).await
    };
    // 32 prompts of 10 tokens take 8 turns; later requests wait for one place, not for all of them.
    let (many, one, other) = tokio::join!(asked(&router, json!(vec!["a"; 32]), 10), late(20), late(25));
    assert_eq!([&many.0, &one.0, &other.0], [&words(10), &words(10), &words(10)]);
    let ahead = |end: Instant| many.1.saturating_duration_since(end);
    assert!(ahead(one.1) > Duration::from_millis(100) && ahead(other.1) > Duration::from_millis(100));
    assert_eq!(seen.most.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn texts_wait_for_memory_in_their_order() {
    let model = Talker {
        pause: Duration::from_millis(5),
        room: 50,
        ..Talker::default()
    };
    let seen = Arc::clone(&model.seen);
    let router = router_of(Arc::new(model), &Settings::default());
    let late = async |after: u64, count: usize| {
        tokio::time::sleep(Duration::from_millis(after)).await;
        asked(&router, json!("a"), count).await
    };
    // 31 and 41 tokens do not fit together, and the short request does not overtake the long one. A text that exceeds
    // the remaining memory is written alone.
    let (first, long, short, all) = tokio::join!(late(0, 30), late(50, 40), late(60, 3), late(70, 60));
    let texts = [&first.0, &long.0, &short.0, &all.0];
    assert_eq!(texts, [&words(30), &words(40), &words(3), &words(60)]);
    assert!(first.1 < short.1 && short.1 < long.1 && long.1 < all.1);
    assert_eq!(seen.most.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn who_goes_away_gives_its_place_to_who_waits() {
    let (model, _) = talker(10);
    let settings = Settings {
        max_batch_size: 2,
        ..Settings::default()
    };
    let router = router_of(model, &settings);
    let mut bodies = Vec::new();
    for _ in 0..2 {
        let answer = router.clone().oneshot(long(COMPLETIONS, true)).await.unwrap();
        let mut body = answer.into_body();
        assert!(frame(&mut body).await.is_some());
        bodies.push(body);
    }
    let began = Instant::now();
    let gone = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        bodies.pop();
    };
    let (next, ()) = tokio::join!(asked(&router, json!("a"), 3), gone);
    assert_eq!(next.0, words(3));
    // The two others would have taken 9 s.
    let taken = began.elapsed();
    assert!(
        taken > Duration::from_millis(100) && taken < Duration::from_secs(4),
        "{taken:?}"
    );
    // The remaining text continues.
    assert!(frame(&mut bodies[0]).await.is_some());
}

#[tokio::test]
async fn a_text_that_fails_is_the_only_one() {
    let (model, _) = talker(5);
    let router = router_of(model, &Settings::default());
    let fails = async |prompt: &str| {
        let asked = json!({"model": "talker", "prompt": prompt});
        let error = refused(
            Asked::post(COMPLETIONS, &asked),
            &router,
            StatusCode::INTERNAL_SERVER_ERROR,
        )
        .await;
        error["message"].as_str().unwrap().to_owned()
    };
    let (good, error) = tokio::join!(asked(&router, json!("a"), 30), fails("nan"));
    assert_eq!((good.0, error.contains("NaN")), (words(30), true));
    // If the device is lost, all fail, and later requests start anew.
    let (error, also, later) = tokio::join!(fails("fail"), fails("fail"), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        asked(&router, json!("a"), 3).await
    });
    assert!(error.contains("lost") && also.contains("lost"));
    assert_eq!(later.0, words(3));
}
