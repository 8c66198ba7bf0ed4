//! Llama: its cache, its config, and weights from GGUF. The conformance suite compares values with Hugging Face's.

use polygrad_nn::models::{GgufValue, Llama, LlamaConfig, ModelConfig, RopeScaling, llama_from_gguf, llama_to_gguf};
use polygrad_nn::*;
use polygrad_tensor::{Backend, Device, HostTensor, Shape, Tensor, manual_seed, no_grad};

on_backends!(
    logits_of_llama_with_the_cache_are_those_without,
    llama_trains_with_checkpoints_as_without,
    a_model_out_of_gguf_computes_what_it_computed_before,
    configs_that_cannot_be_are_refused,
);

fn config() -> LlamaConfig {
    LlamaConfig {
        vocab_size: 17,
        hidden_size: 24,
        intermediate_size: 20,
        num_hidden_layers: 2,
        num_attention_heads: 6,
        num_key_value_heads: Some(2),
        max_position_embeddings: 16,
        initializer_range: 0.4,
        ..LlamaConfig::default()
    }
}

fn llama<B: Backend>(config: &LlamaConfig, device: &Device<B>) -> Llama<B> {
    manual_seed(4);
    let model = Llama::new(config, device).unwrap();
    model.eval();
    model
}

fn text<B: Backend>(device: &Device<B>) -> Tensor<B> {
    Tensor::new([[3i64, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]], device).unwrap()
}

fn close<B: Backend>(a: &Tensor<B>, b: &Tensor<B>) {
    assert_eq!(a.shape(), b.shape());
    for (a, b) in a.to_f64_vec().unwrap().into_iter().zip(b.to_f64_vec().unwrap()) {
        assert!((a - b).abs() <= 1e-5 * (1.0 + b.abs()), "{a} {b}");
    }
}

fn logits_of_llama_with_the_cache_are_those_without<B: Backend>(device: &Device<B>) {
    let model = llama(&config(), device);
    let whole = model.forward(&text(device)).unwrap();
    for room in [0, 6, 16] {
        let mut cache = model.new_cache();
        cache.reserve(room);
        let mut logits = Vec::new();
        for (start, len) in [(0, 3), (3, 1), (4, 2)] {
            let part = text(device).narrow(1, start, len).unwrap();
            logits.push(no_grad(|| model.forward_cached(&part, &mut cache)).unwrap());
        }
        close(&Tensor::cat(&logits.iter().collect::<Vec<_>>(), 1).unwrap(), &whole);
    }
    let long = Tensor::cat(&[&text(device), &text(device), &text(device)], 1).unwrap();
    let error = model.forward(&long).unwrap_err().to_string();
    assert!(error.contains("18 tokens, but there are 16 positions"), "{error}");
}

fn llama_trains_with_checkpoints_as_without<B: Backend>(device: &Device<B>) {
    let model = llama(
        &LlamaConfig {
            attention_dropout: 0.0,
            tie_word_embeddings: true,
            ..config()
        },
        device,
    );
    model.train();
    let gradients = |on: bool| {
        model.set_gradient_checkpointing(on);
        let loss = model
            .forward(&text(device))
            .unwrap()
            .square()
            .unwrap()
            .mean(())
            .unwrap();
        let gradients = loss.backward().unwrap();
        model
            .parameters()
            .iter()
            .map(|param| gradients.get(&param.tensor()).unwrap().clone())
            .collect::<Vec<_>>()
    };
    for (a, b) in gradients(true).iter().zip(&gradients(false)) {
        close(a, b);
    }
    // Dropout of the attention weights of heads that share keys.
    let dropping = llama(
        &LlamaConfig {
            attention_dropout: 0.5,
            ..config()
        },
        device,
    );
    let calm = dropping.forward(&text(device)).unwrap();
    dropping.train();
    let wild = dropping.forward(&text(device)).unwrap();
    assert_eq!(calm.shape(), wild.shape());
    assert_ne!(calm.to_f64_vec().unwrap(), wild.to_f64_vec().unwrap());
}

/// Reorders the rows of queries and keys as by llama.cpp's converter.
fn permuted(tensor: &HostTensor, heads: usize) -> HostTensor {
    let shape = *tensor.shape();
    let (rows, width) = (shape[0], shape[0] / heads);
    let (values, columns) = (tensor.to_vec::<f32>().unwrap(), tensor.shape().numel() / rows);
    let mut out = vec![0.0f32; values.len()];
    for head in 0..heads {
        for half in 0..2 {
            for i in 0..width / 2 {
                let (from, to) = (head * width + half * width / 2 + i, head * width + 2 * i + half);
                out[to * columns..(to + 1) * columns].copy_from_slice(&values[from * columns..(from + 1) * columns]);
            }
        }
    }
    HostTensor::new(shape, out).unwrap()
}

/// The names of a GGUF file.
fn gguf(state: &StateDict, config: &LlamaConfig) -> Vec<(String, HostTensor)> {
    let mut out = Vec::new();
    for (name, tensor) in state.iter() {
        let mut to = name.replace("model.layers.", "blk.");
        for (hf, gguf) in [
            ("model.embed_tokens", "token_embd"),
            ("model.norm", "output_norm"),
            ("lm_head", "output"),
            ("input_layernorm", "attn_norm"),
            ("post_attention_layernorm", "ffn_norm"),
            ("self_attn.q_proj", "attn_q"),
            ("self_attn.k_proj", "attn_k"),
            ("self_attn.v_proj", "attn_v"),
            ("self_attn.o_proj", "attn_output"),
            ("mlp.gate_proj", "ffn_gate"),
            ("mlp.up_proj", "ffn_up"),
            ("mlp.down_proj", "ffn_down"),
        ] {
            to = to.replace(hf, gguf);
        }
        let heads = match to.split('.').nth(2) {
            Some("attn_q") => config.num_attention_heads,
            Some("attn_k") => config.key_value_heads(),
            _ => 0,
        };
        let permute = heads > 0 && config.model_type == "llama";
        out.push((
            to,
            if permute {
                permuted(tensor, heads)
            } else {
                tensor.clone()
            },
        ));
    }
    out
}

fn metadata(config: &LlamaConfig) -> impl Fn(&str) -> Option<GgufValue> {
    let (config, arch) = (config.clone(), config.model_type.clone());
    move |key: &str| {
        let count = |value: usize| Some(GgufValue::Int(value as i64));
        if key == "general.architecture" {
            return Some(GgufValue::Text(arch.clone()));
        }
        match key.strip_prefix(&arch)? {
            ".embedding_length" => count(config.hidden_size),
            ".feed_forward_length" => count(config.intermediate_size),
            ".block_count" => count(config.num_hidden_layers),
            ".attention.head_count" => count(config.num_attention_heads),
            ".attention.head_count_kv" => count(config.key_value_heads()),
            ".context_length" => count(config.max_position_embeddings),
            ".attention.layer_norm_rms_epsilon" => Some(GgufValue::Float(config.rms_norm_eps)),
            ".rope.freq_base" => Some(GgufValue::Float(config.rope_theta)),
            ".rope.dimension_count" => count(config.head_dim()),
            _ => None,
        }
    }
}

fn a_model_out_of_gguf_computes_what_it_computed_before<B: Backend>(device: &Device<B>) {
    let forms = [
        config(),
        LlamaConfig {
            tie_word_embeddings: true,
            rope_theta: 500.0,
            ..config()
        },
        LlamaConfig {
            model_type: "qwen2".to_owned(),
            ..config()
        },
        LlamaConfig {
            head_dim: Some(6),
            ..config()
        },
    ];
    for config in forms {
        let model = llama(&config, device);
        for param in model.parameters() {
            // Biases and norms are also random.
            let random = Tensor::<B>::randn(param.shape(), device).unwrap();
            param.set(&random).unwrap();
        }
        let mut tensors = gguf(&model.state_dict().unwrap(), &config);
        if config.tie_word_embeddings {
            tensors.retain(|(name, _)| name != "output.weight");
        }
        let (found, state) = llama_from_gguf(tensors.clone(), metadata(&config)).unwrap();
        for (name, tensor) in &tensors {
            let back = llama_to_gguf(name, &found, &state).unwrap().unwrap();
            assert!(
                back.shape() == tensor.shape() && back.bytes() == tensor.bytes(),
                "{name}"
            );
        }
        let none = StateDict::new();
        assert!(llama_to_gguf("output_norm.weight", &found, &none).unwrap().is_none());
        let error = llama_to_gguf("blk.9.attn_q.weight", &found, &none)
            .unwrap_err()
            .to_string();
        assert!(error.contains("no place for the tensor"), "{error}");
        let found = LlamaConfig {
            initializer_range: 0.4,
            ..found
        };
        assert_eq!(found, config);
        let other = llama(&found, device);
        other.load_state_dict(&state, true).unwrap();
        close(
            &other.forward(&text(device)).unwrap(),
            &model.forward(&text(device)).unwrap(),
        );
    }

    let long = LlamaConfig {
        hidden_size: 128,
        num_attention_heads: 2,
        num_key_value_heads: None,
        rope_theta: 5e5,
        ..config()
    };
    let tensors = |factors: Vec<f32>| {
        let model = llama(&long, device);
        let mut tensors = gguf(&model.state_dict().unwrap(), &long);
        tensors.push((
            "rope_freqs.weight".to_owned(),
            HostTensor::new(Shape::from([32]), factors).unwrap(),
        ));
        tensors
    };
    // As computed by llama.cpp's converter for Llama 3.2.
    let factors: Vec<f32> = (0..32)
        .map(|i| {
            let wave = std::f64::consts::TAU * 5e5f64.powf(2.0 * f64::from(i) / 64.0);
            let (low, high, factor, original) = (1.0, 4.0, 32.0, 8192.0);
            if wave < original / high {
                1.0
            } else if wave > original / low {
                factor
            } else {
                let smooth = (original / wave - low) / (high - low);
                1.0 / ((1.0 - smooth) / factor + smooth)
            }
        })
        .map(|factor: f64| factor as f32)
        .collect();
    let (found, _) = llama_from_gguf(tensors(factors), metadata(&long)).unwrap();
    assert_eq!(found.rope_scaling.unwrap().factor, Some(32.0));
    let error = llama_from_gguf(tensors(vec![2.0; 32]), metadata(&long)).unwrap_err();
    assert!(error.to_string().contains("rope_freqs.weight"), "{error}");
}

fn configs_that_cannot_be_are_refused<B: Backend>(device: &Device<B>) {
    let says = |config: LlamaConfig, part: &str| {
        let error = Llama::<B>::new(&config, device).unwrap_err().to_string();
        assert!(error.contains(part), "{part:?} is not in {error}");
    };
    let scaled = |kind: &str, factor: Option<f64>| RopeScaling {
        rope_type: Some(kind.to_owned()),
        factor,
        ..RopeScaling::default()
    };
    says(
        LlamaConfig {
            model_type: "qwen3".to_owned(),
            ..config()
        },
        "qwen3",
    );
    says(
        LlamaConfig {
            num_attention_heads: 5,
            ..config()
        },
        "5 heads do not divide a width of 24",
    );
    says(
        LlamaConfig {
            num_key_value_heads: Some(4),
            ..config()
        },
        "4 heads of keys",
    );
    says(
        LlamaConfig {
            num_key_value_heads: Some(0),
            ..config()
        },
        "0 heads of keys",
    );
    says(
        LlamaConfig {
            head_dim: Some(3),
            ..config()
        },
        "no pairs",
    );
    says(
        LlamaConfig {
            head_dim: Some(usize::MAX),
            ..config()
        },
        "too large",
    );
    says(
        LlamaConfig {
            rope_theta: 0.0,
            ..config()
        },
        "rope_theta = 0",
    );
    says(
        LlamaConfig {
            use_sliding_window: true,
            ..config()
        },
        "sliding window",
    );
    says(
        LlamaConfig {
            rope_scaling: Some(scaled("yarn", Some(2.0))),
            ..config()
        },
        "yarn",
    );
    says(
        LlamaConfig {
            rope_scaling: Some(scaled("linear", None)),
            ..config()
        },
        "lacks factor",
    );
    says(
        LlamaConfig {
            rope_parameters: Some(scaled("llama3", Some(-1.0))),
            ..config()
        },
        "factor = -1",
    );

    for head_dim in [1 << 40, 1 << 58] {
        let huge = LlamaConfig {
            head_dim: Some(head_dim),
            ..config()
        };
        assert!(Llama::<B>::new(&huge, device).is_err());
    }

    let none = |_: &str| None;
    let error = llama_from_gguf([], none).unwrap_err().to_string();
    assert!(error.contains("general.architecture"), "{error}");
    let error = llama_from_gguf([], metadata(&config())).unwrap_err().to_string();
    assert!(error.contains("token_embd.weight"), "{error}");
    let without = |key: &str| {
        if key.ends_with("block_count") {
            None
        } else {
            metadata(&config())(key)
        }
    };
    let error = llama_from_gguf([], without).unwrap_err().to_string();
    assert!(error.contains("llama.block_count"), "{error}");
    let tensor = |rows: usize| HostTensor::new(Shape::from([rows, 2]), vec![0.0f32; 2 * rows]).unwrap();
    for (name, rows, part) in [
        (
            "blk.2.attn_q.weight",
            24,
            "no place for the tensor \"blk.2.attn_q.weight\"",
        ),
        ("blk.x.attn_q.weight", 24, "blk.x"),
        ("blk.0.attn_x.weight", 24, "attn_x"),
        ("blk.0.attn_q.weight", 23, "6 heads do not divide"),
    ] {
        let words = ("token_embd.weight".to_owned(), tensor(11));
        let error = llama_from_gguf([words, (name.to_owned(), tensor(rows))], metadata(&config()))
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn configs_of_both_forms_are_read() {
    let old = r#"{ "rope_theta": 500000.0, "rope_scaling": { "type": "linear", "factor": 2.0 }, "architectures": ["LlamaForCausalLM"] }"#;
    let old = LlamaConfig::from_json(old).unwrap();
    assert_eq!(old.rope_scaling.as_ref().unwrap().rope_type.as_deref(), Some("linear"));
    assert_eq!(LlamaConfig::from_json(&old.to_json().unwrap()).unwrap(), old);
    let new = r#"{ "rope_parameters": { "rope_type": "default", "rope_theta": 100.0 }, "head_dim": null }"#;
    let new = LlamaConfig::from_json(new).unwrap();
    assert_eq!(new.rope_parameters.unwrap().rope_theta, Some(100.0));
}
