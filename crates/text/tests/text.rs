//! Tokenizers, streams of text, and what models write.

use polygrad_cpu::Cpu;
use polygrad_nn::Module;
use polygrad_nn::models::{CausalLm, GenerateConfig, Gpt2, Gpt2Config};
use polygrad_tensor::{Device, manual_seed};
use polygrad_text::{Side, Tokenizer, Writer};

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
    let batch = |side| Tokenizer::bytes().batch(&["abc", "d"], 0, side, &device).unwrap();
    let (left, right) = (batch(Side::Left), batch(Side::Right));
    assert_eq!(left.ids.to_vec::<i64>().unwrap(), [97, 98, 99, 0, 0, 100]);
    assert_eq!(left.attention_mask.to_vec::<i64>().unwrap(), [1, 1, 1, 0, 0, 1]);
    assert_eq!(right.ids.to_vec::<i64>().unwrap(), [97, 98, 99, 100, 0, 0]);
    assert_eq!(right.attention_mask.to_vec::<i64>().unwrap(), [1, 1, 1, 1, 0, 0]);
    assert!(Tokenizer::bytes().batch(&[], 0, Side::Left, &device).is_err());
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
    // Digits stand alone.
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
}
