//! Tokenizers, streams of text, and text written by models.

use polygrad_cpu::Cpu;
use polygrad_nn::Module;
use polygrad_nn::models::{CausalLm, GenerateConfig, Gpt2, Gpt2Config, LlamaConfig};
use polygrad_tensor::{Device, Tensor, manual_seed};
use polygrad_text::{BatchConfig, LanguageModel, Padding, Pooling, Side, TextInput, Tokenizer, Truncation, Writer};
use serde_json::Value;

const TEXTS: [&str; 3] = [
    "the cat sat on the mat",
    "naïve café, 日本語 👩‍👧",
    "  spaces\n\tand tabs ",
];

fn bpe() -> Tokenizer {
    Tokenizer::train_bpe(TEXTS.iter().cycle().take(30), 300, &["<end>"]).unwrap()
}

#[test]
fn texts_come_back_from_their_tokens() {
    for tokenizer in [Tokenizer::bytes(), Tokenizer::characters(&TEXTS.concat()), bpe()] {
        for text in TEXTS {
            let ids = tokenizer.encode(text, true).unwrap();
            assert_eq!(tokenizer.decode(&ids, true).unwrap(), text, "{tokenizer:?}");
            assert!(ids.iter().all(|&id| id < tokenizer.vocab_size() as i64));
        }
        let outside = tokenizer.vocab_size() as i64;
        for id in [outside, -1, i64::MAX] {
            let error = tokenizer.decode(&[id], true).unwrap_err().to_string();
            assert!(error.contains("outside the vocabulary"), "{error}");
        }
    }
    assert!(bpe().encode(TEXTS[0], true).unwrap().len() < TEXTS[0].len());
}

#[test]
fn characters_that_are_not_there_are_named() {
    let tokenizer = Tokenizer::characters("abc");
    assert_eq!(tokenizer.encode("cab", true).unwrap(), [2, 0, 1]);
    assert_eq!(tokenizer.token_to_id("b"), Some(1));
    assert_eq!((tokenizer.token_to_id("d"), tokenizer.token_to_id("ab")), (None, None));
    let error = tokenizer.encode("abd", true).unwrap_err().to_string();
    assert_eq!(error, "encode: the character 'd' is not in the vocabulary");
}

#[test]
fn a_trained_tokenizer_is_a_file_that_comes_back() {
    let tokenizer = bpe();
    assert_eq!(tokenizer.token_to_id("<end>"), Some(0));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, tokenizer.to_json().unwrap()).unwrap();
    let read = Tokenizer::from_file(&path).unwrap();
    for text in TEXTS {
        let with_end = format!("{text}<end>");
        let ids = read.encode(&with_end, true).unwrap();
        assert_eq!(ids, tokenizer.encode(&with_end, true).unwrap());
        assert_eq!(ids.last(), Some(&0));
        assert_eq!(read.decode(&ids, true).unwrap(), text);
        assert_eq!(read.decode(&ids, false).unwrap(), with_end);
    }
    let missing = Tokenizer::from_file(folder.path().join("none.json"))
        .unwrap_err()
        .to_string();
    assert!(missing.contains("none.json"), "{missing}");
    std::fs::write(&path, "{}").unwrap();
    let broken = Tokenizer::from_file(&path).unwrap_err().to_string();
    assert!(broken.contains("tokenizer.json"), "{broken}");
    let small = Tokenizer::train_bpe(TEXTS, 256, &["<end>"]).unwrap_err().to_string();
    assert!(small.contains("257"), "{small}");
    assert!(Tokenizer::bytes().to_json().is_err());
}

#[test]
fn a_stream_gives_whole_characters_and_loses_none() {
    for tokenizer in [Tokenizer::bytes(), Tokenizer::characters(&TEXTS.concat()), bpe()] {
        for text in TEXTS {
            let (mut stream, mut out) = (tokenizer.decode_stream(), String::new());
            for id in tokenizer.encode(text, false).unwrap() {
                let piece = stream.push(id).unwrap();
                assert!(!piece.contains('\u{FFFD}'), "{piece:?}");
                out.push_str(&piece);
            }
            assert_eq!(out + &stream.finish().unwrap(), text, "{tokenizer:?}");
        }
    }
    let tokenizer = Tokenizer::bytes();
    let mut stream = tokenizer.decode_stream();
    assert!(stream.push(256).is_err());
    assert_eq!(stream.push(0xE6).unwrap(), "");
    assert_eq!(stream.finish().unwrap(), "\u{FFFD}");
}

#[test]
fn batches_are_padded_on_either_side() {
    let device = Device::<Cpu>::default();
    let tokenizer = Tokenizer::bytes();
    let config = |side| tokenizer.batch_config().pad_id(0).padding_side(side);
    let batch = |side| tokenizer.batch(["abc", "d"], &config(side), &device).unwrap();
    let (left, right) = (batch(Side::Left), batch(Side::Right));
    assert_eq!(left.ids.to_vec::<i64>().unwrap(), [97, 98, 99, 0, 0, 100]);
    assert_eq!(left.attention_mask.to_vec::<i64>().unwrap(), [1, 1, 1, 0, 0, 1]);
    assert_eq!(right.ids.to_vec::<i64>().unwrap(), [97, 98, 99, 100, 0, 0]);
    assert_eq!(right.attention_mask.to_vec::<i64>().unwrap(), [1, 1, 1, 1, 0, 0]);
    let none: [&str; 0] = [];
    assert!(tokenizer.batch(none, &config(Side::Left), &device).is_err());
    // Without a padding token, padding is an error, but only if it is needed.
    let unsaid = |texts: [&str; 2]| tokenizer.batch(texts, &tokenizer.batch_config(), &device);
    assert_eq!(
        unsaid(["ab", "cd"]).unwrap().ids.to_vec::<i64>().unwrap(),
        [97, 98, 99, 100]
    );
    for (texts, padding) in [(["ab", "c"], Padding::Longest), (["ab", "cd"], Padding::Length(3))] {
        let error = tokenizer
            .batch(texts, &tokenizer.batch_config().padding(padding), &device)
            .unwrap_err();
        assert!(error.to_string().contains("pad_id"), "{error}");
    }
    let error = tokenizer
        .batch(["ab", "c"], &config(Side::Left).padding(Padding::None), &device)
        .unwrap_err();
    assert!(error.to_string().contains("Padding::Longest"), "{error}");
    // Bytes and characters are truncated, too, and pairs of them are distinguished.
    let config = config(Side::Right).max_length(4).stride(1).overflowing(true);
    let batch = tokenizer
        .batch([("abcdef", "xy")], &config.truncation(Truncation::OnlyFirst), &device)
        .unwrap();
    let text = |row: &[i64]| tokenizer.decode(row, false).unwrap();
    let rows: Vec<String> = batch.ids.to_vec::<i64>().unwrap().chunks(4).map(text).collect();
    assert_eq!(rows, ["abxy", "bcxy", "cdxy", "dexy", "efxy"]);
    assert_eq!(batch.samples, [0; 5]);
    assert_eq!(batch.token_type_ids.to_vec::<i64>().unwrap(), [0, 0, 1, 1].repeat(5));
}

/// The options of a recorded case.
fn config_of(case: &Value, said: BatchConfig) -> BatchConfig {
    let mut config = said
        .special(case["special"].as_bool().unwrap())
        .overflowing(case["overflowing"].as_bool().unwrap());
    let side = |value: &Value| match value.as_str() {
        Some("left") => Side::Left,
        None => Side::Right,
        other => panic!("{other:?}"),
    };
    let number = |value: &Value| value.as_u64().map(|number| number as usize);
    let cut = &case["truncation"];
    if cut.is_object() {
        config = config
            .max_length(number(&cut["max_length"]).unwrap())
            .stride(number(&cut["stride"]).unwrap_or(0))
            .truncation_side(side(&cut["direction"]))
            .truncation(match cut["strategy"].as_str() {
                Some("only_first") => Truncation::OnlyFirst,
                Some("only_second") => Truncation::OnlySecond,
                Some("longest_first") | None => Truncation::LongestFirst,
                other => panic!("{other:?}"),
            });
    }
    let pad = &case["padding"];
    if pad.is_object() {
        config = config
            .pad_id(pad["pad_id"].as_i64().unwrap())
            .pad_type_id(pad["pad_type_id"].as_i64().unwrap_or(0))
            .padding_side(side(&pad["direction"]))
            .padding(number(&pad["length"]).map_or(Padding::Longest, Padding::Length));
        if let Some(multiple) = number(&pad["pad_to_multiple_of"]) {
            config = config.pad_to_multiple_of(multiple);
        }
    }
    config
}

#[test]
fn batches_are_those_of_hugging_face() {
    let device = Device::<Cpu>::default();
    let folder: std::path::PathBuf = std::env::var_os("CARGO_MANIFEST_DIR").unwrap().into();
    let text = std::fs::read_to_string(folder.join("tests/data/batches.json")).unwrap();
    let recorded: Value = serde_json::from_str(&text).unwrap();
    let digits = |row: &Value| {
        row.as_str()
            .unwrap()
            .bytes()
            .map(|b| i64::from(b - b'0'))
            .collect::<Vec<_>>()
    };
    let (mut rows, mut errors) = (0, 0);
    for case in recorded["cases"].as_array().unwrap() {
        let json = recorded["tokenizers"][case["tokenizer"].as_str().unwrap()].to_string();
        let tokenizer = Tokenizer::from_json(&json).unwrap();
        let texts = case["texts"].as_array().unwrap().iter().map(|text| match text {
            Value::String(text) => TextInput::Single(text),
            pair => TextInput::Pair(pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
        });
        let batch = tokenizer.batch(texts, &config_of(case, tokenizer.batch_config()), &device);
        let Some(wanted) = case["rows"].as_array() else {
            let error = batch.expect_err(&case.to_string()).to_string();
            assert!(error.starts_with("batch: "), "{error}");
            errors += 1;
            continue;
        };
        let batch = batch.unwrap_or_else(|error| panic!("{error}: {case}"));
        let length = batch.ids.dims()[1];
        let of = |tensor: &Tensor<Cpu>, row: usize| {
            tensor.to_vec::<i64>().unwrap()[row * length..(row + 1) * length].to_vec()
        };
        assert_eq!(batch.samples.len(), wanted.len(), "{case}");
        for (row, wanted) in wanted.iter().enumerate() {
            let ids: Vec<i64> = wanted[1]
                .as_array()
                .unwrap()
                .iter()
                .map(|id| id.as_i64().unwrap())
                .collect();
            assert_eq!(batch.samples[row] as u64, wanted[0].as_u64().unwrap(), "{case}");
            assert_eq!(of(&batch.ids, row), ids, "{case}");
            assert_eq!(of(&batch.attention_mask, row), digits(&wanted[2]), "{case}");
            assert_eq!(of(&batch.token_type_ids, row), digits(&wanted[3]), "{case}");
            assert_eq!(of(&batch.special_tokens_mask, row), digits(&wanted[4]), "{case}");
            rows += 1;
        }
    }
    assert!(rows > 300 && errors > 20, "{rows} rows, {errors} errors");
}

#[test]
fn a_file_keeps_what_it_says_of_batches_and_a_clone_is_the_same_tokenizer() {
    let folder: std::path::PathBuf = std::env::var_os("CARGO_MANIFEST_DIR").unwrap().into();
    let text = std::fs::read_to_string(folder.join("tests/data/batches.json")).unwrap();
    let recorded: Value = serde_json::from_str(&text).unwrap();
    let said = Tokenizer::from_json(&recorded["tokenizers"]["said"].to_string()).unwrap();
    let config = BatchConfig::default()
        .max_length(11)
        .stride(2)
        .padding(Padding::Length(11))
        .pad_id(0)
        .padding_side(Side::Left);
    assert_eq!(said.batch_config(), config);
    assert_ne!(said.batch_config().whole_texts(), config);
    let again = Tokenizer::from_json(&said.to_json().unwrap()).unwrap();
    assert_eq!(again.batch_config(), config);
    // A single text is not truncated, and has its special tokens.
    let long = "the quick brown fox and the lazy dog and a cat and a mat";
    assert_eq!(again.encode(long, true).unwrap().len(), 16);
    assert_eq!(again.encode(long, false).unwrap().len(), 14);
    // Without those sections, the padding token is found by its name.
    let bert = Tokenizer::from_json(&recorded["tokenizers"]["bert"].to_string()).unwrap();
    assert_eq!(bert.batch_config(), BatchConfig::default().pad_id(0));
    let clone = bert.clone();
    let threads = std::thread::spawn(move || clone.encode("a cat", true).unwrap());
    assert_eq!(threads.join().unwrap(), bert.encode("a cat", true).unwrap());
}

#[test]
fn a_file_that_contradicts_itself_is_an_error() {
    let whole: Value = serde_json::from_str(&bpe().to_json().unwrap()).unwrap();
    let template = |second: &str, ids: &str| {
        serde_json::from_str::<Value>(&format!(
            r#"{{"type": "TemplateProcessing", "single": [{{"Sequence": {{"id": "{second}", "type_id": 0}}}},
                 {{"SpecialToken": {{"id": "<end>", "type_id": 0}}}}], "pair": [],
                 "special_tokens": {{"{ids}": {{"id": "{ids}", "ids": [0], "tokens": ["<end>"]}}}}}}"#
        ))
        .unwrap()
    };
    let read = |field: &str, value: Value| {
        let mut json = whole.clone();
        json[field] = value;
        Tokenizer::from_json(&json.to_string())
    };
    let sound = read("post_processor", template("A", "<end>")).unwrap();
    assert_eq!(sound.encode("a", true).unwrap().last(), Some(&0));
    // A special token without a number, the second text of one, a stripped character of no text, and a damaged map.
    let strip = serde_json::json!({"type": "Strip", "content": "x", "start": 0, "stop": 2});
    let map = serde_json::json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"});
    let (config, x) = (BatchConfig::default(), sound.token_to_id("x").unwrap());
    let no_id = read("post_processor", template("A", "<other>")).unwrap();
    let second = read("post_processor", template("B", "<end>")).unwrap();
    for error in [
        no_id.encode("a", true).unwrap_err(),
        no_id.encode_input("a", &config).unwrap_err(),
        second.encode("a", true).unwrap_err(),
        read("normalizer", map).unwrap_err(),
        read("decoder", strip).unwrap().decode(&[x], false).unwrap_err(),
    ] {
        let error = error.to_string();
        assert!(error.contains("contradicts itself"), "{error}");
    }
}

#[test]
fn lengths_that_leave_no_room_are_said() {
    let device = Device::<Cpu>::default();
    let tokenizer = bpe();
    let config = tokenizer.batch_config().pad_id(0);
    for (config, part) in [
        (config.clone().max_length(3).stride(3), "stride = 3"),
        (
            config.clone().max_length(2).truncation(Truncation::OnlySecond),
            "there is none",
        ),
        (config.clone().pad_to_multiple_of(0), "multiples of 0"),
        (config.clone().pad_to_multiple_of(usize::MAX), "3 rows of"),
        (config.clone().padding(Padding::Length(usize::MAX / 2)), "3 rows of"),
    ] {
        let result = tokenizer.batch(TEXTS, &config, &device);
        let error = result.map(|batch| batch.ids.dims()).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn of_a_long_text_only_the_beginning_is_read() {
    let words = "the cat sat on the mat and the dog ran after the cat ";
    let bpe = Tokenizer::train_bpe([words], 300, &[]).unwrap();
    for tokenizer in [Tokenizer::bytes(), bpe] {
        let long = words.repeat(2_000);
        let whole = tokenizer.encode(&long, true).unwrap();
        for most in [1, 7, 100, 3_000] {
            let (ids, is_whole) = tokenizer.encode_start(&long, true, most).unwrap();
            assert!(!is_whole && ids.len() > most);
            assert_eq!(ids[..most], whole[..most], "{tokenizer:?}, {most}");
            let error = tokenizer.encode_within(&long, true, most).unwrap_err().to_string();
            assert!(error.contains(&format!("has more than {most} tokens")), "{error}");
        }
        let (ids, is_whole) = tokenizer.encode_start(&long, true, whole.len()).unwrap();
        assert!(is_whole && ids == whole);
        assert_eq!(
            tokenizer.encode_within(words, true, 100).unwrap(),
            tokenizer.encode(words, true).unwrap()
        );
    }
    // Text beyond the limit, which could not be encoded, is not reached.
    let letters = Tokenizer::characters("ab");
    let strange = "a".repeat(1 << 20) + "z";
    assert!(letters.encode(&strange, true).is_err());
    assert!(!letters.encode_start(&strange, true, 10).unwrap().1);
    // Multi-byte characters are not split.
    let wide = Tokenizer::characters("日");
    assert!(!wide.encode_start(&"日".repeat(1 << 16), true, 10).unwrap().1);
}

#[test]
fn a_tokenizer_of_gguf_metadata_is_bpe() {
    let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let tokens = owned(&["<|end|>", "a", "b", "1", "2", "Ġ", "ab", "Ġab", "12"]);
    let merges = owned(&["a b", "Ġ ab", "1 2"]);
    let kinds = [3, 1, 1, 1, 1, 1, 1, 1, 1];
    let ids = |pre: &str| {
        let tokenizer = Tokenizer::from_gguf(pre, &tokens, &merges, &kinds).unwrap();
        let ids = tokenizer.encode("ab ab12<|end|>", true).unwrap();
        assert_eq!(tokenizer.decode(&ids, false).unwrap(), "ab ab12<|end|>");
        ids
    };
    assert_eq!(ids("gpt-2"), [6, 7, 8, 0]);
    assert_eq!(ids("llama-bpe"), [6, 7, 8, 0]);
    // Digits are separate tokens.
    assert_eq!(ids("smollm"), [6, 7, 3, 4, 0]);
    assert_eq!(ids("qwen2"), [6, 7, 3, 4, 0]);
    for (pre, merges, kinds, part) in [
        ("odd", &merges, &kinds[..], "\"odd\""),
        ("gpt-2", &owned(&["ab"]), &kinds[..], "\"ab\" is no pair"),
        ("gpt-2", &owned(&["a x"]), &kinds[..], "x"),
        ("gpt-2", &merges, &kinds[..2], "2 types for 9 tokens"),
    ] {
        let error = Tokenizer::from_gguf(pre, &tokens, merges, kinds)
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_writer_ends_before_a_stop_string_and_streams_what_it_writes() {
    let device = Device::<Cpu>::default();
    manual_seed(2);
    let tokenizer = Tokenizer::characters("abcdefgh");
    let config = Gpt2Config {
        vocab_size: 8,
        n_positions: 40,
        n_embd: 16,
        n_layer: 2,
        n_head: 2,
        initializer_range: 0.5,
        tie_word_embeddings: false,
        ..Gpt2Config::default()
    };
    let model = Gpt2::new(&config, &device).unwrap();
    model.eval();
    let sample = GenerateConfig::sample();
    let run = |writer: &Writer<'_, Cpu, Gpt2<Cpu>>| {
        manual_seed(3);
        let mut pieces = [String::new(), String::new()];
        let add = |text: usize, piece: &str| {
            pieces[text].push_str(piece);
            Ok(())
        };
        writer.stream(&["ab", "hgfe"], 30, &sample, add).unwrap();
        pieces
    };
    let free = run(&Writer::new(&model, &tokenizer));
    assert_eq!(free[0].len(), 30);
    let stop = &free[0][9..12];
    let stopped = run(&Writer::new(&model, &tokenizer).stop(stop).stop("zz"));
    for (stopped, free) in stopped.iter().zip(&free) {
        assert_eq!(stopped, &free[..free.find(stop).unwrap_or(free.len())]);
    }
    manual_seed(3);
    let whole = Writer::new(&model, &tokenizer)
        .write(&["ab", "hgfe"], 30, &sample)
        .unwrap();
    assert_eq!(whole, [format!("ab{}", free[0]), format!("hgfe{}", free[1])]);
    assert!(
        Writer::new(&model, &tokenizer)
            .stop("")
            .write(&["a"], 1, &sample)
            .is_err()
    );
    let unknown = Writer::new(&model, &tokenizer).write(&["x"], 1, &sample).unwrap_err();
    assert!(unknown.to_string().contains("'x'"), "{unknown}");
    assert_eq!(model.vocab_size(), tokenizer.vocab_size());
    // Tokens that only the model has are never written.
    let fewer = Tokenizer::characters("abcdef");
    assert_eq!((fewer.lacking(8), fewer.lacking(6)), (vec![6, 7], Vec::new()));
    let written = Writer::new(&model, &fewer)
        .write(&["ab"], 38, &sample.temperature(5.0))
        .unwrap();
    assert_eq!(written[0].len(), 40);
}

#[test]
fn texts_are_cut_and_said_to_be() {
    let tokenizer = Tokenizer::bytes();
    let config = BatchConfig::default().max_length(4);
    let (ids, types, is_cut) = tokenizer.encode_input("abc", &config).unwrap();
    assert_eq!((ids, types, is_cut), (vec![97, 98, 99], vec![0; 3], false));
    let (ids, types, is_cut) = tokenizer.encode_input(("abc", "def"), &config).unwrap();
    assert_eq!((ids, types, is_cut), (vec![97, 98, 100, 101], vec![0, 0, 1, 1], true));
}

#[test]
fn poolings_of_old_and_new_folders_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    assert!(Pooling::from_folder(path).unwrap().is_none());
    std::fs::create_dir(path.join("1_Pooling")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(path.join(name), text).unwrap();
    write(
        "modules.json",
        r#"[{"type": "a.Transformer"}, {"type": "b.Pooling", "path": "1_Pooling"}, {"type": "c.Normalize"}]"#,
    );
    write("tokenizer_config.json", r#"{"model_max_length": 7}"#);
    let device = Device::<Cpu>::default();
    let tokens = Tensor::new([[[3.0f32, 0.0], [0.0, 1.0], [9.0, 9.0]]], &device).unwrap();
    let mask = Tensor::new([[1i64, 1, 0]], &device).unwrap();
    let (mean, first) = ([0.948_683, 0.316_228], [1.0, 0.0]);
    for (config, wanted) in [
        (
            r#"{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false}"#,
            Some(mean),
        ),
        (r#"{"pooling_mode": "mean", "include_prompt": true}"#, Some(mean)),
        (r#"{"pooling_mode_cls_token": true}"#, Some(first)),
        (r#"{"pooling_mode": ["cls"]}"#, Some(first)),
        (r#"{"pooling_mode": ["cls", "mean"]}"#, None),
        (r#"{"pooling_mode": "lasttoken"}"#, None),
        (r#"{"pooling_mode_mean_sqrt_len_tokens": true}"#, None),
    ] {
        write("1_Pooling/config.json", config);
        let found = Pooling::from_folder(path);
        let Some(wanted) = wanted else {
            let error = found.unwrap_err().to_string();
            assert!(
                error.contains("config.json asks for a pooling that is not there"),
                "{error}"
            );
            continue;
        };
        let pooling = found.unwrap().unwrap();
        assert_eq!(pooling.max_length(), Some(7));
        let vectors = pooling.pool(&tokens, &mask).unwrap().to_f64_vec().unwrap();
        assert!(
            vectors.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-5),
            "{config}: {vectors:?}"
        );
    }
    write("sentence_bert_config.json", r#"{"max_seq_length": 5}"#);
    write("1_Pooling/config.json", r#"{"pooling_mode": "mean"}"#);
    assert_eq!(Pooling::from_folder(path).unwrap().unwrap().max_length(), Some(5));
}

#[test]
fn sequences_of_a_model_of_run_time_are_computed_at_once() {
    let device = Device::<Cpu>::default().into_any();
    let (vocab_size, n_layer, n_head) = (11, 1, 2);
    let gpt2 = Gpt2Config {
        vocab_size,
        n_positions: 8,
        n_embd: 8,
        n_layer,
        n_head,
        ..Gpt2Config::default()
    };
    let llama = LlamaConfig {
        vocab_size,
        hidden_size: 8,
        intermediate_size: 8,
        num_hidden_layers: n_layer,
        num_attention_heads: n_head,
        ..LlamaConfig::default()
    };
    let ids = Tensor::new([[1i64, 2, 3]], &device).unwrap();
    for lm in [
        LanguageModel::gpt2(&gpt2, &device).unwrap(),
        LanguageModel::llama(&llama, &device).unwrap(),
    ] {
        let padded = || lm.new_cache().with_left_padding(&[1], &device).unwrap();
        // Padding is rejected if sequences share products, and works if they are computed in turn.
        let at_once = lm.next_logits_each(&ids, &[1, 2], &mut [&mut padded(), &mut padded()]);
        let error = at_once.unwrap_err().to_string();
        assert!(error.contains("a cache with padding"), "{error}");
        lm.next_logits_in_turn(&ids, &[1, 2], &mut [&mut padded(), &mut padded()])
            .unwrap();
    }
}
