//! Layers whose weights stay packed, and models made of them.

use std::collections::BTreeMap;

use polygrad_nn::lora::{self, LoraConfig};
use polygrad_nn::loss::cross_entropy;
use polygrad_nn::models::{
    CausalLm, GenerateConfig, GgufTensor, GgufValue, Llama, LlamaConfig, llama_from_gguf, llama_from_gguf_packed,
};
use polygrad_nn::optim::{AdamW, Optimizer};
use polygrad_nn::*;
use polygrad_tensor::{BlockScheme, Device, ErrorKind, HostTensor, Shape, Tensor, manual_seed, no_grad};

on_backends!(
    a_packed_layer_is_one_of_its_numbers,
    what_does_not_fit_is_refused,
    a_packed_llama_computes_what_its_numbers_do,
);

fn values(x: &Tensor) -> Vec<f64> {
    x.to_f64_vec().unwrap()
}

fn close(a: &Tensor, b: &Tensor, tolerance: f64) {
    assert_eq!(a.shape(), b.shape());
    for (a, b) in values(a).into_iter().zip(values(b)) {
        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{a} {b}");
    }
}

fn a_packed_layer_is_one_of_its_numbers(device: &Device) {
    manual_seed(1);
    for scheme in [BlockScheme::Q4, BlockScheme::Q8, BlockScheme::new(4, 16).unwrap()] {
        let layer = Linear::new(96, 10, device).unwrap();
        let packed = QuantizedLinear::pack(&layer, scheme).unwrap();
        assert_eq!(packed.weight.dims(), [10, 96]);
        // A step of the scale is twice the largest number of a block, divided by all numbers.
        let own = layer.weight.tensor().detach();
        let off = packed.weight.dequantized().unwrap().sub(&own).unwrap().abs().unwrap();
        let step = own.abs().unwrap().amax(()).unwrap().item().unwrap() / f64::from(scheme.centre()) * 1.01;
        assert!(off.amax(()).unwrap().item().unwrap() <= step, "{scheme:?}");
        let plain = Linear::of(
            Param::new(packed.weight.dequantized().unwrap()).unwrap(),
            layer.bias.clone(),
        );
        let x = Tensor::randn([3, 5, 96], device).unwrap().requires_grad().unwrap();
        let (y, wanted) = (packed.forward(&x).unwrap(), plain.forward(&x).unwrap());
        close(&y, &wanted, 1e-5);
        let gradient = |y: &Tensor| y.square().unwrap().mean(()).unwrap().backward().unwrap();
        close(gradient(&y).get(&x).unwrap(), gradient(&wanted).get(&x).unwrap(), 1e-5);
        // Its state survives a file.
        let folder = tempfile::tempdir().unwrap();
        packed.save(folder.path().join("layer")).unwrap();
        let other = QuantizedLinear::pack(&Linear::new(96, 10, device).unwrap(), scheme).unwrap();
        other.load(folder.path().join("layer")).unwrap();
        assert_eq!(values(&other.forward(&x).unwrap()), values(&y));
        let names: Vec<String> = packed.state_dict().unwrap().keys().map(str::to_owned).collect();
        assert_eq!(names, ["weight", "scales", "zeros", "bias"]);
    }
}

fn what_does_not_fit_is_refused(device: &Device) {
    let refused = |weight: &HostTensor, scheme, said: &str| {
        let error = HostBlocks::quantize(weight, scheme).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    };
    let matrix =
        |columns: usize, value: f32| HostTensor::new(Shape::from([2, columns]), vec![value; 2 * columns]).unwrap();
    refused(&matrix(48, 1.0), BlockScheme::Q4, "blocks of 32");
    refused(&matrix(32, f32::NAN), BlockScheme::Q4, "not finite");
    refused(
        &HostTensor::new(Shape::from([32]), vec![1f32; 32]).unwrap(),
        BlockScheme::Q4,
        "no matrix",
    );
    // A block of zeros stays zeros.
    let zeros = HostBlocks::quantize(&matrix(32, 0.0), BlockScheme::Q8).unwrap();
    let zeros = QuantizedWeight::from_host(&zeros, device)
        .unwrap()
        .dequantized()
        .unwrap();
    assert!(values(&zeros).iter().all(|x| *x == 0.0));

    let mut model = Llama::new(&config(false), device).unwrap();
    let pack = |model: &mut Llama, path: &str, scheme| {
        let schemes = BTreeMap::from([(path.to_owned(), scheme)]);
        let state = model.packed_state(&schemes)?;
        model.pack(&state, &schemes)
    };
    let error = pack(&mut model, "model.layers.7.mlp.up_proj", BlockScheme::Q4)
        .unwrap_err()
        .to_string();
    assert!(error.contains("no layer model.layers.7.mlp.up_proj"), "{error}");
    let error = pack(&mut model, "model.norm", BlockScheme::Q4).unwrap_err().to_string();
    assert!(error.contains("no matrix"), "{error}");
    let error = model
        .pack(
            &StateDict::new(),
            &BTreeMap::from([("lm_head".to_owned(), BlockScheme::Q4)]),
        )
        .unwrap_err()
        .to_string();
    assert!(error.contains("no lm_head.weight"), "{error}");

    // An adapter cannot be merged into a packed weight.
    pack(&mut model, "model.layers.0.mlp.up_proj", BlockScheme::Q4).unwrap();
    let path = "model.layers.0.mlp.up_proj";
    assert_eq!(
        lora::attach(&model, "a", &LoraConfig::new(2).targets(["layers.0.mlp.up_proj"])).unwrap(),
        [path]
    );
    let error = lora::merge(&model).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("stays packed"), "{error}");
}

fn config(tied: bool) -> LlamaConfig {
    LlamaConfig {
        vocab_size: 17,
        hidden_size: 64,
        intermediate_size: 96,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        max_position_embeddings: 16,
        initializer_range: 0.1,
        tie_word_embeddings: tied,
        ..LlamaConfig::default()
    }
}

fn metadata(config: &LlamaConfig) -> impl Fn(&str) -> Option<GgufValue> {
    let config = config.clone();
    move |key: &str| {
        let count = |value: usize| Some(GgufValue::Int(value as i64));
        match key {
            "general.architecture" => Some(GgufValue::Text("llama".to_owned())),
            "llama.embedding_length" => count(config.hidden_size),
            "llama.feed_forward_length" => count(config.intermediate_size),
            "llama.block_count" => count(config.num_hidden_layers),
            "llama.attention.head_count" => count(config.num_attention_heads),
            "llama.attention.head_count_kv" => count(config.key_value_heads()),
            "llama.context_length" => count(config.max_position_embeddings),
            "llama.attention.layer_norm_rms_epsilon" => Some(GgufValue::Float(config.rms_norm_eps)),
            _ => None,
        }
    }
}

/// The names of a GGUF file. Rows of queries and keys are taken as already in llama.cpp's order: for a random model any
/// order is as good.
fn gguf_names(state: &StateDict) -> Vec<(String, HostTensor)> {
    let names = [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers", "blk"),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    let renamed = |name: &str| {
        names
            .iter()
            .fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
    };
    state
        .iter()
        .map(|(name, tensor)| (renamed(name), tensor.clone()))
        .collect()
}

/// The numbers of a packed weight in f32.
fn unpacked(blocks: &HostBlocks, device: &Device) -> HostTensor {
    let weight = QuantizedWeight::from_host(blocks, device).unwrap();
    weight.dequantized().unwrap().to_host().unwrap()
}

fn a_packed_llama_computes_what_its_numbers_do(device: &Device) {
    manual_seed(2);
    for (tied, scheme) in [(false, BlockScheme::Q4), (true, BlockScheme::Q8)] {
        let config = config(tied);
        let mut tensors = gguf_names(&Llama::new(&config, device).unwrap().state_dict().unwrap());
        tensors.retain(|(name, _)| !(tied && name == "output.weight"));
        let packed: Vec<(String, GgufTensor)> = tensors
            .iter()
            .map(|(name, tensor)| {
                let tensor = match tensor.shape().rank() {
                    2 => GgufTensor::Packed(HostBlocks::quantize(tensor, scheme).unwrap()),
                    _ => GgufTensor::Plain(tensor.clone()),
                };
                (name.clone(), tensor)
            })
            .collect();
        let plain = packed.iter().map(|(name, tensor)| match tensor {
            GgufTensor::Plain(tensor) => (name.clone(), tensor.clone()),
            GgufTensor::Packed(blocks) => (name.clone(), unpacked(blocks, device)),
        });
        let (found, state) = llama_from_gguf(plain, metadata(&config)).unwrap();
        let plain = Llama::new(&found, device).unwrap();
        plain.load_state_dict(&state, true).unwrap();

        let (found, state, schemes) = llama_from_gguf_packed(packed, metadata(&config)).unwrap();
        assert_eq!((found.tie_word_embeddings, found.vocab_size), (tied, 17));
        assert_eq!(schemes.len(), 2 * 7 + 2);
        let mut model = skip_init(|| Llama::new(&found, device)).unwrap();
        model.pack(&state, &schemes).unwrap();
        model.load_state_dict(&state, true).unwrap();
        model.eval();
        // Only the norms are left.
        assert_eq!(model.parameters().len(), 5);
        let text = Tensor::new([[3i64, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]], device).unwrap();
        close(&model.forward(&text).unwrap(), &plain.forward(&text).unwrap(), 1e-4);
        let greedy = GenerateConfig::greedy();
        let generated = |model: &Llama| values(&model.generate(&text, 5, &greedy).unwrap());
        assert_eq!(generated(&model), generated(&plain));
    }
}

/// Losses of steps with a new adapter, made equal by the same seed.
fn losses(model: &Llama, steps: usize, device: &Device) -> Vec<f64> {
    manual_seed(7);
    model.train();
    lora::attach(model, "a", &LoraConfig::new(4).alpha(8.0)).unwrap();
    let trained: Vec<String> = model
        .named_parameters()
        .into_iter()
        .filter_map(|(name, param)| param.is_trainable().then_some(name))
        .collect();
    assert!(
        !trained.is_empty() && trained.iter().all(|name| name.contains("lora_")),
        "{trained:?}"
    );
    let mut optimizer = AdamW::new(model.parameters(), 1e-2).unwrap();
    let text: Vec<i64> = (0..8 * 9).map(|i| (i * i + i / 9 * 5) % 17).collect();
    let text = Tensor::from_vec(text, [8, 9], device).unwrap();
    let (input, target) = (text.narrow(1, 0, 8).unwrap(), text.narrow(1, 1, 8).unwrap());
    let step = |_| {
        let logits = model.forward(&input).unwrap().flatten(0, 1).unwrap();
        let loss = cross_entropy(&logits, &target.flatten(0, 1).unwrap()).unwrap();
        let value = loss.item().unwrap();
        optimizer.backward_step(loss).unwrap();
        value
    };
    (0..steps).map(step).collect()
}

/// On one backend only, since it takes long on the reference.
#[test]
fn adapters_learn_beside_packed_weights() {
    let device = &Device::<polygrad_cpu::Cpu>::default().into_any();
    manual_seed(3);
    let state = Llama::new(&config(true), device).unwrap().state_dict().unwrap();
    let loaded = |state: &StateDict| {
        let model = Llama::new(&config(true), device).unwrap();
        model.load_state_dict(state, true).unwrap();
        model
    };
    for scheme in [BlockScheme::Q4, BlockScheme::Q8] {
        let layers = state.keys().filter_map(|name| name.strip_suffix("_proj.weight"));
        let schemes: BTreeMap<String, BlockScheme> = layers.map(|path| (format!("{path}_proj"), scheme)).collect();
        assert_eq!(schemes.len(), 14);
        // The same numbers as floats.
        let mut unpacked_state = state.clone();
        for path in schemes.keys() {
            let name = format!("{path}.weight");
            let blocks = HostBlocks::quantize(state.get(&name).unwrap(), scheme).unwrap();
            unpacked_state.insert(name, unpacked(&blocks, device));
        }
        let wanted = losses(&loaded(&unpacked_state), 30, device);

        let mut model = loaded(&state);
        let packed = model.packed_state(&schemes).unwrap();
        model.pack(&packed, &schemes).unwrap();
        let buffers = |model: &Llama| -> Vec<Vec<f64>> {
            let named = model.named_buffers();
            named.iter().map(|(_, buffer)| values(&buffer.tensor())).collect()
        };
        let before = buffers(&model);
        let found = losses(&model, 30, device);
        assert_eq!(before, buffers(&model));
        assert!(wanted[29] < 0.6 * wanted[0], "{wanted:?}");
        for (step, (a, b)) in found.iter().zip(&wanted).enumerate() {
            assert!((a - b).abs() <= 0.02 * b, "{scheme:?}, step {step}: {a} for {b}");
        }
    }
}

/// A scheme for all layers of [`config`] whose weights can be packed.
fn everywhere(scheme: BlockScheme) -> BTreeMap<String, BlockScheme> {
    let parts = [
        "self_attn.q",
        "self_attn.k",
        "self_attn.v",
        "self_attn.o",
        "mlp.gate",
        "mlp.up",
        "mlp.down",
    ];
    let layers = (0..config(true).num_hidden_layers)
        .flat_map(|layer| parts.map(|part| format!("model.layers.{layer}.{part}_proj")));
    let paths = layers.chain(["model.embed_tokens", "lm_head"].map(str::to_owned));
    paths.map(|path| (path, scheme)).collect()
}

fn saved(model: &dyn Module) -> Vec<(String, Vec<f64>)> {
    let state = model.state_dict().unwrap();
    let named = state.iter().map(|(name, value)| (name.to_owned(), value.to_f64_vec()));
    named.collect()
}

/// Settled weights may be interleaved in memory; products, rows, and what is saved, loaded or moved are as before.
#[test]
fn settled_weights_compute_and_save_the_same() {
    let device = &Device::<polygrad_cpu::Cpu>::default().into_any();
    let config = LlamaConfig {
        vocab_size: 32,
        ..config(true)
    };
    for scheme in [BlockScheme::Q4, BlockScheme::Q8, BlockScheme::new(4, 16).unwrap()] {
        let schemes = everywhere(scheme.with_rounded_input(true));
        let packed = |seed| {
            manual_seed(seed);
            let mut model = Llama::new(&config, device).unwrap();
            let state = model.packed_state(&schemes).unwrap();
            model.pack(&state, &schemes).unwrap();
            model.eval();
            (model, state)
        };
        let outputs = |model: &Llama, device| {
            let ids = Tensor::new([[31i64, 0, 16], [15, 7, 16]], device).unwrap();
            // Rounded and exact.
            [no_grad(|| model.forward(&ids)), model.forward(&ids)].map(|y| values(&y.unwrap()))
        };
        let (model, _) = packed(6);
        let before = (outputs(&model, device), saved(&model));
        for _ in 0..2 {
            model.settle().unwrap();
            let rank = |name| {
                model
                    .named_buffers()
                    .iter()
                    .find(|(of, _)| of == name)
                    .unwrap()
                    .1
                    .tensor()
                    .rank()
            };
            assert_eq!(rank("model.embed_tokens.weight"), 3);
            assert_eq!(rank("model.layers.1.mlp.down_proj.scales"), 3);
            assert!((outputs(&model, device), saved(&model)) == before, "{scheme:?}");
        }
        for outside in [-1i64, 32] {
            let ids = Tensor::new([[outside]], device).unwrap();
            assert_eq!(model.forward(&ids).unwrap_err().kind(), ErrorKind::OutOfRange);
        }

        let (other, state) = packed(7);
        model.load_state_dict(&state, true).unwrap();
        assert!((outputs(&model, device), saved(&model)) == (outputs(&other, device), saved(&other)));
        let short = Tensor::zeros([16, 4], (device, polygrad_tensor::DType::U8)).unwrap();
        assert!(model.named_buffers()[0].1.set(&short).is_err());

        let away = &Device::<polygrad_reference::Reference>::default().into_any();
        model.to_device(away).unwrap();
        assert!(saved(&model) == saved(&other));
        let [rounded, exact] = outputs(&model, away);
        assert_eq!(rounded, exact);
    }
}

/// A layer of 48 rows of two blocks, each with its zero point.
fn drawn_layer(seed: u64, device: &Device) -> QuantizedLinear {
    manual_seed(seed);
    let drawn = |shape: [usize; 2]| Tensor::rand(shape, device).unwrap();
    let bytes = (drawn([48, 32]) * 255.0).unwrap();
    let bytes = bytes.to_dtype(polygrad_tensor::DType::U8).unwrap();
    let (scales, zeros) = (drawn([48, 2]), (drawn([48, 2]) * 15.0).unwrap());
    let weight = QuantizedWeight::new([&bytes, &scales, &zeros], BlockScheme::Q4.with_rounded_input(true)).unwrap();
    QuantizedLinear::of(weight, None)
}

/// Its bytes, scales and zero points, as they lie in memory.
fn parts(layer: &QuantizedLinear) -> Vec<Tensor> {
    let buffers = layer.named_buffers();
    buffers.iter().map(|(_, buffer)| buffer.tensor()).collect()
}

/// Zero points of each block are interleaved, too.
#[test]
fn settled_zero_points_stay_with_their_blocks() {
    let device = &Device::<polygrad_cpu::Cpu>::default().into_any();
    let layer = drawn_layer(8, device);
    let output = |x: &Tensor| no_grad(|| values(&layer.forward(x).unwrap()));
    let (x, own) = (Tensor::rand([5, 64], device).unwrap(), saved(&layer));
    let before = output(&x);
    layer.settle().unwrap();
    assert_eq!(parts(&layer)[2].dims(), [3, 2, 16]);
    assert_eq!(output(&x), before);
    assert_eq!(saved(&layer), own);
}

/// A settled buffer takes values of one that is not, and the other way round, and stays as it lies in memory.
#[test]
fn settled_and_plain_buffers_take_each_others_values() {
    let device = &Device::<polygrad_cpu::Cpu>::default().into_any();
    for (from_settled, to_settled) in [(false, false), (false, true), (true, false), (true, true)] {
        let (from, to) = (drawn_layer(8, device), drawn_layer(9, device));
        let own = saved(&from);
        assert!(own != saved(&to));
        for (layer, settled) in [(&from, from_settled), (&to, to_settled)] {
            if settled {
                layer.settle().unwrap();
            }
        }
        for ((_, from), (_, to)) in from.named_buffers().iter().zip(to.named_buffers()) {
            let plain = from.plain().unwrap();
            assert_eq!((plain.rank(), plain.shape()), (2, from.shape()));
            to.set(&from.tensor()).unwrap();
            assert_eq!(values(&to.plain().unwrap()), values(&plain));
            assert_eq!(to.tensor().rank(), if to_settled { 3 } else { 2 });
        }
        assert_eq!(saved(&to), own);
        // Sixteen rows of words of another size.
        let wide = Tensor::zeros([3, 1, 32], device).unwrap();
        assert!(to.named_buffers()[1].1.set(&wide).is_err());
        assert_eq!(saved(&to), own);
    }
}

/// Weights of interleaved parts have plain rows, and host memory has no others.
#[test]
fn interleaved_parts_become_rows() {
    let device = &Device::<polygrad_cpu::Cpu>::default().into_any();
    let layer = drawn_layer(8, device);
    let x = Tensor::rand([5, 64], device).unwrap();
    let (own, output) = (saved(&layer), values(&layer.forward(&x).unwrap()));
    layer.settle().unwrap();
    let parts = parts(&layer);
    for rounds in [false, true] {
        let scheme = BlockScheme::Q4.with_rounded_input(rounds);
        let weight = QuantizedWeight::new([&parts[0], &parts[1], &parts[2]], scheme).unwrap();
        assert_eq!(weight.dims(), [48, 64]);
        let again = QuantizedLinear::of(weight, None);
        for _ in 0..2 {
            assert_eq!(saved(&again), own);
            assert_eq!(values(&again.forward(&x).unwrap()), output);
            again.settle().unwrap();
        }
        let host = [0, 1, 2].map(|i: usize| parts[i].to_host().unwrap());
        let error = HostBlocks::new(host, scheme).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Shape);
        assert!(error.to_string().contains("are interleaved"), "{error}");
    }
}

/// With rounded inputs, the result of a sequence does not depend on the sequences beside it, bit for bit.
#[test]
fn rounded_inputs_make_sequences_independent() {
    let device = &Device::<polygrad_cpu::Cpu>::default().into_any();
    manual_seed(5);
    let mut model = Llama::new(&config(true), device).unwrap();
    let rounding = BlockScheme::Q4.with_rounded_input(true);
    let schemes = everywhere(rounding);
    let state = model.packed_state(&schemes).unwrap();
    model.pack(&state, &schemes).unwrap();
    model.eval();
    let texts: Vec<Vec<i64>> = (1..15)
        .map(|i| (0..=i % 5).map(|j| (i * 7 + j * 3) % 17).collect())
        .collect();
    let logits = |texts: &[Vec<i64>]| {
        let mut caches: Vec<_> = texts.iter().map(|_| model.new_cache()).collect();
        let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
        let ids = Tensor::from_vec(texts.concat(), [1, lengths.iter().sum()], device).unwrap();
        let found = model.next_logits_each(&ids, &lengths, &mut caches.iter_mut().collect::<Vec<_>>());
        values(&found.unwrap())
    };
    let (together, exact) = (no_grad(|| logits(&texts)), logits(&texts));
    for (text, together) in texts.iter().zip(together.chunks_exact(17)) {
        assert_eq!(no_grad(|| logits(std::slice::from_ref(text))), together);
    }
    // If gradients may be needed, the input is not rounded.
    let off: f64 = together.iter().zip(&exact).map(|(a, b)| (a - b).powi(2)).sum();
    let all: f64 = exact.iter().map(|a| a * a).sum();
    assert!(off > 1e-9 * all && off < 1e-3 * all, "{off} of {all}");
    let x = Tensor::ones([1, 3], (device, polygrad_tensor::DType::I64)).unwrap();
    let plain = |scheme: BlockScheme| {
        let schemes = schemes.keys().map(|path| (path.clone(), scheme)).collect();
        let mut model = Llama::new(&config(true), device).unwrap();
        model.pack(&state, &schemes).unwrap();
        model.load_state_dict(&state, true).unwrap();
        values(&model.forward(&x).unwrap())
    };
    assert_eq!(plain(rounding), plain(BlockScheme::Q4));
}
