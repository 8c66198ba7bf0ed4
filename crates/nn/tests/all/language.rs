//! Language models: generation with the cache, configs, and errors. The conformance suite compares values with Hugging
//! Face's.

use polygrad_nn::models::{
    BertClassifier, BertConfig, BertInput, GenerateConfig, Gpt2, Gpt2Config, Llama, LlamaConfig, ModelConfig, T5,
    T5Config,
};
use polygrad_nn::*;
use polygrad_tensor::{Backend, Device, ErrorKind, Tensor, manual_seed, no_grad};

on_backends!(
    logits_with_the_cache_are_those_without,
    greedy_text_is_the_likeliest,
    sampled_text_depends_on_the_seed_alone,
    text_ends_where_it_is_told_to,
    t5_decodes_token_by_token,
    what_cannot_be_is_said,
    tied_weights_are_one,
    packed_sequences_do_not_see_each_other,
);

fn config() -> Gpt2Config {
    Gpt2Config {
        vocab_size: 17,
        n_positions: 12,
        n_embd: 16,
        n_layer: 3,
        n_head: 4,
        initializer_range: 0.4,
        ..Gpt2Config::default()
    }
}

fn gpt<B: Backend>(device: &Device<B>) -> Gpt2<B> {
    manual_seed(1);
    let model = Gpt2::new(&config(), device).unwrap();
    model.eval();
    model
}

fn prompt<B: Backend>(device: &Device<B>) -> Tensor<B> {
    Tensor::new([[3i64, 1, 4, 1, 5], [9, 2, 6, 5, 3]], device).unwrap()
}

fn close<B: Backend>(a: &Tensor<B>, b: &Tensor<B>) {
    assert_eq!(a.shape(), b.shape());
    for (a, b) in a.to_f64_vec().unwrap().into_iter().zip(b.to_f64_vec().unwrap()) {
        assert!((a - b).abs() <= 1e-5 * (1.0 + b.abs()), "{a} {b}");
    }
}

fn logits_with_the_cache_are_those_without<B: Backend>(device: &Device<B>) {
    let model = gpt(device);
    let text = Tensor::cat(&[&prompt(device), &prompt(device)], 1).unwrap();
    let whole = model.forward(&text).unwrap();
    assert_eq!(whole.dims(), [2, 10, 17]);
    for parts in [vec![10], vec![1; 10], vec![4, 1, 3, 2]] {
        let (mut cache, mut start, mut logits) = (model.new_cache(), 0, Vec::new());
        for len in parts {
            assert_eq!(cache.len(), start);
            let part = text.narrow(1, start, len).unwrap();
            logits.push(model.forward_cached(&part, &mut cache).unwrap());
            start += len;
        }
        close(&Tensor::cat(&logits.iter().collect::<Vec<_>>(), 1).unwrap(), &whole);
    }
}

fn greedy_text_is_the_likeliest<B: Backend>(device: &Device<B>) {
    let model = gpt(device);
    let mut text = prompt(device);
    let generated = model.generate(&text, 6, &GenerateConfig::greedy()).unwrap();
    for _ in 0..6 {
        let last = no_grad(|| model.forward(&text)).unwrap().select(1, -1).unwrap();
        let next = last.argmax_keepdim(-1).unwrap();
        text = Tensor::cat(&[&text, &next], 1).unwrap();
    }
    assert_eq!(generated.to_vec::<i64>().unwrap(), text.to_vec::<i64>().unwrap());
    let only_one = GenerateConfig::sample().top_k(1);
    let sampled = model.generate(&prompt(device), 6, &only_one).unwrap();
    assert_eq!(sampled.to_vec::<i64>().unwrap(), text.to_vec::<i64>().unwrap());
}

fn sampled_text_depends_on_the_seed_alone<B: Backend>(device: &Device<B>) {
    let model = gpt(device);
    let run = |seed: u64, config: &GenerateConfig| {
        manual_seed(seed);
        model
            .generate(&prompt(device), 7, config)
            .unwrap()
            .to_vec::<i64>()
            .unwrap()
    };
    let config = GenerateConfig::sample().temperature(0.8).top_k(9).top_p(0.95);
    assert_eq!(run(5, &config), run(5, &config));
    assert_ne!(run(5, &config), run(6, &config));

    // In many draws of a token, each token's share matches its probability.
    let start = Tensor::new([[3i64]], device).unwrap().expand([2000, 1]).unwrap();
    manual_seed(7);
    let drawn = model.generate(&start, 1, &GenerateConfig::sample().top_k(3)).unwrap();
    let drawn = drawn.select(1, 1).unwrap().to_vec::<i64>().unwrap();
    let logits = model
        .forward(&start.narrow(0, 0, 1).unwrap())
        .unwrap()
        .to_f64_vec()
        .unwrap();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    let weights: Vec<f64> = order[..3].iter().map(|&i| logits[i].exp()).collect();
    let total: f64 = weights.iter().sum();
    let mut counted = 0;
    for (&token, weight) in order.iter().zip(&weights) {
        let count = drawn.iter().filter(|&&x| x == token as i64).count();
        counted += count;
        assert!(
            (count as f64 / 2000.0 - weight / total).abs() < 0.05,
            "{token}: {count} of 2000, {}",
            weight / total
        );
    }
    assert_eq!(counted, 2000);
}

fn text_ends_where_it_is_told_to<B: Backend>(device: &Device<B>) {
    let model = gpt(device);
    let free = model.generate(&prompt(device), 7, &GenerateConfig::greedy()).unwrap();
    let rows = free.to_vec::<i64>().unwrap();
    let eos = rows[6];
    let ended = model
        .generate(&prompt(device), 7, &GenerateConfig::greedy().eos_token_id(eos))
        .unwrap();
    let length = ended.dims()[1];
    let ended = ended.to_vec::<i64>().unwrap();
    for (ended, free) in ended.chunks(length).zip(rows.chunks(12)) {
        let end = free[5..]
            .iter()
            .position(|&t| t == eos)
            .map_or(length, |at| at + 6)
            .min(length);
        assert_eq!(ended[..end], free[..end]);
        assert!(ended[end..].iter().all(|&t| t == eos));
    }
}

fn t5_decodes_token_by_token<B: Backend>(device: &Device<B>) {
    manual_seed(2);
    let config = T5Config {
        vocab_size: 17,
        d_model: 16,
        d_kv: 4,
        d_ff: 24,
        num_layers: 2,
        num_heads: 4,
        relative_attention_num_buckets: 6,
        relative_attention_max_distance: 8,
        ..T5Config::default()
    };
    let model = T5::new(&config, device).unwrap();
    model.eval();
    let (text, answer) = (
        prompt(device),
        Tensor::new([[0i64, 7, 8, 2, 1], [0, 3, 1, 1, 1]], device).unwrap(),
    );
    let mask = Tensor::new([[1i64, 1, 1, 1, 1], [1, 1, 0, 0, 0]], device).unwrap();
    let whole = model.forward(&text, Some(&mask), &answer).unwrap();
    let encoded = model.encode(&text, Some(&mask)).unwrap();
    let mut cache = model.new_cache();
    for place in 0..5 {
        assert_eq!(cache.len(), place);
        let token = answer.narrow(1, place, 1).unwrap();
        let logits = model.decode(&token, &encoded, Some(&mask), &mut cache).unwrap();
        close(&logits, &whole.narrow(1, place, 1).unwrap());
    }
    // Tokens in the padding do not matter.
    let other = Tensor::new([[3i64, 1, 4, 1, 5], [9, 2, 0, 11, 16]], device).unwrap();
    close(&model.forward(&other, Some(&mask), &answer).unwrap(), &whole);

    // As transformers 5 writes it for T5 1.1: the weight is shared, its input is not scaled.
    let config = T5Config {
        scale_decoder_outputs: Some(false),
        ..config
    };
    let unscaled = T5::new(&config, device).unwrap();
    unscaled.eval();
    unscaled.load_state_dict(&model.state_dict().unwrap(), true).unwrap();
    let logits = unscaled.forward(&text, Some(&mask), &answer).unwrap();
    close(&(&logits * 0.25).unwrap(), &whole);

    let targets = Tensor::new([[7i64, -100, 2]], device).unwrap();
    assert_eq!(model.shift_right(&targets).unwrap().to_vec::<i64>().unwrap(), [0, 7, 0]);
}

fn what_cannot_be_is_said<B: Backend>(device: &Device<B>) {
    let says = |error: polygrad_tensor::Error, parts: &[&str]| {
        let text = error.to_string();
        for part in parts {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
    };
    let model = gpt(device);
    let long = Tensor::cat(&[&prompt(device), &prompt(device), &prompt(device)], 1).unwrap();
    says(
        model.forward(&long).unwrap_err(),
        &["Gpt2", "15 tokens, but there are 12 positions"],
    );
    says(
        model
            .generate(&prompt(device), 8, &GenerateConfig::greedy())
            .unwrap_err(),
        &["5 tokens and 8 more", "12 positions"],
    );
    says(
        model.forward(&Tensor::new([1i64, 2], device).unwrap()).unwrap_err(),
        &["takes token ids [N, S]", "unsqueeze(0)"],
    );
    says(
        model.forward(&Tensor::new([[17i64]], device).unwrap()).unwrap_err(),
        &["17", "embedding"],
    );
    for (options, part) in [
        (GenerateConfig::sample().temperature(-1.0), "temperature = -1"),
        (GenerateConfig::sample().top_k(0), "top_k = 0"),
        (GenerateConfig::sample().top_p(0.0), "top_p = 0"),
    ] {
        says(model.generate(&prompt(device), 1, &options).unwrap_err(), &[part]);
    }
    let heads = Gpt2Config { n_head: 3, ..config() };
    says(
        Gpt2::<B>::new(&heads, device).unwrap_err(),
        &["3 heads do not divide a width of 16"],
    );
    let cross = Gpt2Config {
        add_cross_attention: true,
        ..config()
    };
    assert_eq!(
        Gpt2::<B>::new(&cross, device).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    let relative = BertConfig {
        position_embedding_type: Some("relative_key".to_owned()),
        ..BertConfig::default()
    };
    says(
        BertClassifier::<B>::new(&relative, device).unwrap_err(),
        &["position_embedding_type"],
    );
    let odd = T5Config {
        feed_forward_proj: "gated-sine".to_owned(),
        ..T5Config::default()
    };
    says(T5::<B>::new(&odd, device).unwrap_err(), &["gated-sine", "relu, gelu"]);

    // A config may come from anywhere.
    let dropping = Gpt2Config {
        attn_pdrop: 2.0,
        ..config()
    };
    says(
        Gpt2::<B>::new(&dropping, device).unwrap_err(),
        &["p = 2.0 is no probability"],
    );
    let huge = 1 << 60;
    for config in [
        Gpt2Config {
            vocab_size: huge,
            ..config()
        },
        Gpt2Config {
            n_embd: usize::MAX - 3,
            n_head: 4,
            ..config()
        },
        Gpt2Config {
            n_positions: huge,
            ..config()
        },
    ] {
        assert!(Gpt2::<B>::new(&config, device).is_err());
    }

    let small = BertConfig {
        vocab_size: 9,
        hidden_size: 8,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        intermediate_size: 8,
        max_position_embeddings: 4,
        ..BertConfig::default()
    };
    let bert = BertClassifier::<B>::new(&small, device).unwrap();
    says(
        bert.forward(BertInput::new(&prompt(device))).unwrap_err(),
        &["5 tokens", "1 to 4 positions"],
    );
    let ids = Tensor::new([[1i64, 2, 3]], device).unwrap();
    let wrong = Tensor::new([[1i64, 1]], device).unwrap();
    says(
        bert.forward(BertInput::new(&ids).attention_mask(&wrong)).unwrap_err(),
        &["must be [1, 3]"],
    );
    says(
        bert.forward(BertInput::new(&ids).token_type_ids(&wrong)).unwrap_err(),
        &["one token type for each token"],
    );
}

fn tied_weights_are_one<B: Backend>(device: &Device<B>) {
    let model = gpt(device);
    let names: Vec<_> = model.state_dict().unwrap().keys().map(str::to_owned).collect();
    assert_eq!(names.first().map(String::as_str), Some("transformer.wte.weight"));
    assert_eq!(names.last().map(String::as_str), Some("lm_head.weight"));
    assert_eq!(model.named_parameters().len(), names.len() - 1);
    // A file that contains the shared weight once, as written by Hugging Face.
    let mut state = StateDict::new();
    let all = model.state_dict().unwrap();
    for (name, value) in all.iter().filter(|(name, _)| *name != "lm_head.weight") {
        state.insert(name, value.clone());
    }
    manual_seed(9);
    let other = Gpt2::new(&config(), device).unwrap();
    other.eval();
    other.load_state_dict(&state, true).unwrap();
    close(
        &other.forward(&prompt(device)).unwrap(),
        &model.forward(&prompt(device)).unwrap(),
    );
}

#[test]
fn configs_are_json() {
    let json = config().to_json().unwrap();
    assert!(json.contains("\"activation_function\": \"gelu_new\""), "{json}");
    assert_eq!(Gpt2Config::from_json(&json).unwrap(), config());
    // Unknown fields of the Hub's files are ignored; the number of classes follows from their names.
    let hub = r#"{ "model_type": "bert", "hidden_size": 32, "id2label": { "0": "bad", "1": "fair", "2": "good" } }"#;
    let bert = BertConfig::from_json(hub).unwrap();
    assert_eq!((bert.hidden_size, bert.labels(), bert.num_hidden_layers), (32, 3, 12));
    let wrong = Gpt2Config::from_json(r#"{ "n_embd": "wide" }"#).unwrap_err();
    assert!(
        wrong.to_string().contains("wide") && wrong.to_string().contains("line 1"),
        "{wrong}"
    );

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    config().save(&path).unwrap();
    assert_eq!(Gpt2Config::load(&path).unwrap(), config());
    let missing = Gpt2Config::load(folder.path().join("none.json")).unwrap_err();
    assert!(missing.to_string().contains("none.json"), "{missing}");
}

fn packed_sequences_do_not_see_each_other<B: Backend>(device: &Device<B>) {
    let gpt = gpt(device);
    let config = LlamaConfig {
        vocab_size: 17,
        hidden_size: 16,
        intermediate_size: 24,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        max_position_embeddings: 12,
        initializer_range: 0.4,
        ..LlamaConfig::default()
    };
    let llama = Llama::new(&config, device).unwrap();
    // A row of three sequences and padding, and one of two.
    let ids = Tensor::new([[3i64, 1, 4, 9, 2, 6, 5, 0], [8, 7, 6, 5, 4, 3, 2, 1]], device).unwrap();
    let starts = Tensor::new([[0i64, 0, 0, 3, 4, 4, 4, 7], [0, 0, 0, 0, 0, 5, 5, 5]], device).unwrap();
    for is_checkpointed in [false, true] {
        gpt.set_gradient_checkpointing(is_checkpointed);
        llama.set_gradient_checkpointing(is_checkpointed);
        let packed = [
            gpt.transformer.forward_packed(&ids, &starts).unwrap(),
            llama.model.forward_packed(&ids, &starts).unwrap(),
        ];
        for (row, from, len) in [(0, 0, 3), (0, 3, 1), (0, 4, 3), (1, 0, 5), (1, 5, 3)] {
            let part = |x: &Tensor<B>| x.narrow(0, row, 1).unwrap().narrow(1, from, len).unwrap();
            let own = part(&ids);
            close(&part(&packed[0]), &gpt.transformer.forward(&own).unwrap());
            close(&part(&packed[1]), &llama.model.forward(&own).unwrap());
        }
        // Gradients do not mix either: only the second sequence's token has one.
        let words = &gpt.transformer.wte.own().unwrap().weight;
        let loss = packed[0]
            .narrow(0, 0, 1)
            .unwrap()
            .narrow(1, 3, 1)
            .unwrap()
            .square()
            .unwrap()
            .sum_all()
            .unwrap();
        let gradients = loss.backward().unwrap();
        let rows = gradients
            .get(&words.tensor())
            .unwrap()
            .abs()
            .unwrap()
            .sum(1)
            .unwrap()
            .to_f64_vec()
            .unwrap();
        assert!((0..17).all(|token| (rows[token] > 0.0) == (token == 9)), "{rows:?}");
    }
    let short = starts.narrow(1, 0, 3).unwrap();
    for error in [
        gpt.transformer.forward_packed(&ids, &short).unwrap_err(),
        llama
            .model
            .forward_packed(&ids, &starts.to_dtype(polygrad_tensor::DType::F32).unwrap())
            .unwrap_err(),
    ] {
        assert!(error.to_string().contains("each token has a start"), "{error}");
    }
}
