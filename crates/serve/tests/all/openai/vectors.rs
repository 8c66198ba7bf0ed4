//! Vectors of texts.

use axum::http::StatusCode;
use serde_json::{Value as Json, json};

use super::{COMPLETIONS, EMBEDDINGS, refused, router};
use crate::common::Asked;

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
    // More texts than are computed at once, in order, and an empty one.
    let texts: Vec<String> = (0..70).map(|length| "x".repeat(length)).collect();
    let answer = ask(json!({"input": texts})).await;
    assert_eq!(answer["usage"]["total_tokens"], 69 * 70 / 2);
    for (index, found) in answer["data"].as_array().unwrap().iter().enumerate() {
        // The shortest decimal that is this number.
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
    // Checked before anything is computed, which would reject the text.
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
