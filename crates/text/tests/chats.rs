//! Chats: texts and tokens match those of transformers, and invalid chats are rejected.

use std::ops::Range;

use polygrad_text::{ChatTemplate, Tokenizer};
use serde_json::{Value, json};

/// What `scripts/make_chat_cases.py` recorded.
fn recorded() -> Value {
    serde_json::from_str(include_str!("data/chats.json")).unwrap()
}

fn template(recorded: &Value, source: &str) -> ChatTemplate {
    let tokens = recorded["special"].as_object().unwrap().iter();
    tokens.fold(ChatTemplate::new(source).unwrap(), |template, (name, token)| {
        template.token(name, token.as_str().unwrap())
    })
}

fn said(text: &str, spans: &[Range<usize>]) -> Vec<String> {
    spans.iter().map(|span| text[span.clone()].to_owned()).collect()
}

#[test]
fn texts_and_tokens_are_those_of_transformers() {
    let recorded = recorded();
    let tokenizer = Tokenizer::from_json(&recorded["tokenizer"].to_string()).unwrap();
    let (mut texts, mut refused, mut masks) = (0, 0, 0);
    for entry in recorded["templates"].as_array().unwrap() {
        let own = template(&recorded, entry["template"].as_str().unwrap());
        for case in entry["cases"].as_array().unwrap() {
            let chat = case["chat"].as_array().unwrap();
            if let Some(message) = case["refused"].as_str() {
                let error = own.render(chat, true).unwrap_err().to_string();
                assert!(error.contains(message), "{error}");
                refused += 1;
                continue;
            }
            let about = || format!("{} {}", entry["name"], case["chat"]);
            assert_eq!(own.render(chat, false).unwrap(), case["text"], "{}", about());
            assert_eq!(own.render(chat, true).unwrap(), case["prompt"], "{}", about());
            texts += 1;
            if case["ids"].is_array() {
                let (text, spans) = own.render_spans(chat).unwrap();
                let (ids, learnt) = tokenizer.encode_spans(&text, &spans).unwrap();
                assert_eq!(json!(ids), case["ids"], "{}", about());
                let learnt: Vec<u8> = learnt.into_iter().map(u8::from).collect();
                assert_eq!(json!(learnt), case["learnt"], "{}", about());
                masks += 1;
            }
        }
    }
    assert_eq!((texts, refused, masks), (60, 3, 14));
}

#[test]
fn without_marks_each_answer_is_what_it_adds() {
    let recorded = recorded();
    let source = |name: &str| {
        let mut all = recorded["templates"].as_array().unwrap().iter();
        let found = all.find(|entry| entry["name"] == name).unwrap();
        found["template"].as_str().unwrap()
    };
    let chat = [
        json!({"role": "user", "content": "a"}),
        json!({"role": "assistant", "content": "b é"}),
        json!({"role": "user", "content": "c"}),
        json!({"role": "assistant", "content": "d"}),
    ];
    for (name, answers) in [
        ("chatml", ["b é<|im_end|>\n", "d<|im_end|>\n"]),
        ("llama3", ["b é<|eot_id|>", "d<|eot_id|>"]),
        ("mistral", [" b é</s>", " d</s>"]),
        ("gemma", ["b é<end_of_turn>\n", "d<end_of_turn>\n"]),
        ("qwen", ["b é<|im_end|>\n", "d<|im_end|>\n"]),
    ] {
        let (text, spans) = template(&recorded, source(name)).render_spans(&chat).expect(name);
        assert_eq!(said(&text, &spans), answers, "{name}");
    }
    // Messages that are written differently once more messages follow.
    let thinking = [
        chat[0].clone(),
        json!({"role": "assistant", "content": "<think>\nx\n</think>\n\nb"}),
        chat[2].clone(),
        chat[3].clone(),
    ];
    let own = template(&recorded, source("qwen"));
    let error = own.render_spans(&thinking).unwrap_err().to_string();
    assert!(
        error.contains("message 1") && error.contains("{% generation %}"),
        "{error}"
    );
    assert_eq!(own.render_spans(&thinking[..2]).unwrap().1.len(), 1);
    // A part of a text and its tokens, with each tokenizer.
    for tokenizer in [Tokenizer::bytes(), Tokenizer::characters("aéb")] {
        let (ids, inside) = tokenizer.encode_spans("aéb", std::slice::from_ref(&(1..3))).unwrap();
        let own = tokenizer.encode("é", false).unwrap();
        let marked: Vec<i64> = ids
            .iter()
            .zip(&inside)
            .filter_map(|(&id, &inside)| inside.then_some(id))
            .collect();
        assert_eq!(marked, own);
    }
}

#[test]
fn what_is_no_template_or_no_chat_is_said() {
    let user = json!({"role": "user", "content": "a"});
    let fails = |source: &str, chat: &[Value], part: &str| {
        let error = ChatTemplate::new(source)
            .and_then(|own| own.render(chat, true))
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{error}\nshould contain {part}");
    };
    fails("{% for %}", &[], "line 1 of the template");
    fails("a\n{{ nothing() }}", &[], "line 2");
    fails("{{ raise_exception('no such chat') }}", &[], "no such chat");
    fails("{{ strftime_now('%Q') }}", &[], "%Q");
    fails(
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        &[],
        "fuel",
    );
    fails(
        "{{ messages[0].content | nonsense }}",
        std::slice::from_ref(&user),
        "nonsense",
    );
    for bad in [json!("text"), json!({"content": "a"}), json!({"role": 1})] {
        fails("x", &[user.clone(), bad], "message 1 has no role");
    }
    let marked = ChatTemplate::new("{% generation %}{{ messages[0].content }}{% endgeneration %}").unwrap();
    for mark in ["\u{FDD0}", "\u{FDD1}"] {
        let chat = [json!({"role": "assistant", "content": mark})];
        assert!(marked.render_spans(&chat).is_err());
        assert_eq!(marked.render(&chat, false).unwrap(), mark);
    }
}

#[test]
fn folders_say_their_template() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
    let found = || ChatTemplate::from_folder(folder.path());
    let rendered = || found().unwrap().unwrap().render(&[], false).unwrap();
    assert!(found().unwrap().is_none());
    write("tokenizer_config.json", "{".to_owned());
    assert!(found().unwrap_err().to_string().contains("tokenizer_config.json"));
    write("tokenizer_config.json", json!({"bos_token": "<s>"}).to_string());
    assert!(found().unwrap().is_none());
    let source = "{{ bos_token }}{{ eos_token }}x\n";
    let tokens = json!({"chat_template": source, "bos_token": "<s>", "eos_token": {"content": "</s>"}});
    write("tokenizer_config.json", tokens.to_string());
    assert_eq!(rendered(), "<s></s>x");
    let several = json!([{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]);
    write("tokenizer_config.json", json!({"chat_template": several}).to_string());
    assert_eq!(rendered(), "d");
    write("chat_template.jinja", "own {{ strftime_now('%Y')[:2] }}".to_owned());
    assert_eq!(rendered(), "own 20");
    write("chat_template.jinja", "{% if %}".to_owned());
    let error = found().unwrap_err().to_string();
    assert!(error.contains(&*folder.path().display().to_string()), "{error}");
}
