//! Models and normalisations in mixed precision: close to their f32 results, with a gradient for every parameter.

use polygrad_nn::models::{
    BertClassifier, BertConfig, BertInput, Gpt2, Gpt2Config, ResNet, ResNetConfig, T5, T5Config, VisionTransformer,
    VitConfig,
};
use polygrad_nn::*;
use polygrad_tensor::{Backend, DType, Device, Result, Tensor, autocast, manual_seed, no_grad};

on_backends!(
    models_compute_about_the_same,
    a_cache_goes_on_in_mixed_precision,
    norms_take_what_products_give,
    masks_and_added_keys_fit_what_products_give,
);

fn apart<B: Backend>(found: &Tensor<B>, truth: &Tensor<B>) -> f64 {
    let (found, truth) = (found.to_f64_vec().unwrap(), truth.to_f64_vec().unwrap());
    assert_eq!(found.len(), truth.len());
    let largest = truth.iter().fold(1e-3f64, |largest, x| largest.max(x.abs()));
    found
        .iter()
        .zip(&truth)
        .fold(0.0f64, |most, (a, b)| most.max((a - b).abs()))
        / largest
}

fn same_but_for_precision<B: Backend>(name: &str, model: &impl Module<B>, run: impl Fn() -> Result<Tensor<B>>) {
    model.eval();
    let full = run().unwrap();
    for (mode, bound) in [(DType::BF16, 0.06), (DType::F16, 0.01)] {
        let mixed = autocast(mode, &run).unwrap();
        let distance = apart(&mixed, &full);
        assert!(distance < bound && distance > 0.0, "{name} in {mode}: {distance}");
        let gradients = autocast(mode, || run()?.square()?.mean_all())
            .unwrap()
            .backward()
            .unwrap();
        for (param, value) in model.named_parameters() {
            let gradient = gradients.get(&value).unwrap_or_else(|| panic!("{name}: {param}"));
            assert_eq!(gradient.dtype(), DType::F32, "{name}: {param}");
            assert!(
                gradient.to_f64_vec().unwrap().iter().all(|x| x.is_finite()),
                "{name}: {param}"
            );
        }
    }
}

fn ids<B: Backend>(device: &Device<B>) -> Tensor<B> {
    Tensor::new([[3i64, 1, 4, 1, 5], [9, 2, 6, 5, 3]], device).unwrap()
}

fn images<B: Backend>(size: usize, device: &Device<B>) -> Tensor<B> {
    Tensor::randn([2, 3, size, size], device).unwrap()
}

fn gpt<B: Backend>(device: &Device<B>) -> Gpt2<B> {
    let config = Gpt2Config {
        vocab_size: 17,
        n_positions: 12,
        n_embd: 16,
        n_layer: 2,
        n_head: 4,
        ..Gpt2Config::default()
    };
    Gpt2::new(&config, device).unwrap()
}

fn models_compute_about_the_same<B: Backend>(device: &Device<B>) {
    manual_seed(1);
    let text = ids(device);
    let mask = Tensor::new([[1i64, 1, 1, 1, 1], [1, 1, 0, 0, 0]], device).unwrap();

    let model = gpt(device);
    same_but_for_precision("gpt2", &model, || model.forward(&text));

    let config = BertConfig {
        vocab_size: 17,
        hidden_size: 16,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        intermediate_size: 24,
        max_position_embeddings: 8,
        ..BertConfig::default()
    };
    let model = BertClassifier::new(&config, device).unwrap();
    same_but_for_precision("bert", &model, || {
        model.forward(BertInput::new(&text).attention_mask(&mask))
    });

    let config = T5Config {
        vocab_size: 17,
        d_model: 16,
        d_kv: 4,
        d_ff: 24,
        num_layers: 2,
        num_heads: 4,
        ..T5Config::default()
    };
    let model = T5::new(&config, device).unwrap();
    same_but_for_precision("t5", &model, || model.forward(&text, Some(&mask), &text));

    let config = VitConfig {
        image_size: 8,
        patch_size: 4,
        num_layers: 2,
        num_heads: 2,
        hidden_dim: 8,
        mlp_dim: 16,
        num_classes: 5,
        ..VitConfig::default()
    };
    let model = VisionTransformer::new(&config, device).unwrap();
    // It begins as 0, and would give no gradients.
    let head = model.parameters();
    for param in head
        .iter()
        .filter(|param| param.name().is_some_and(|name| name.contains("heads")))
    {
        param.set(&Tensor::randn(param.shape(), device).unwrap()).unwrap();
    }
    let x = images(8, device);
    same_but_for_precision("vit", &model, || model.forward(&x));

    let config = ResNetConfig {
        width: 4,
        small_images: true,
        ..ResNetConfig::resnet18(3)
    };
    let model = ResNet::new(&config, device).unwrap();
    let x = images(8, device);
    same_but_for_precision("resnet", &model, || model.forward(&x));
}

fn a_cache_goes_on_in_mixed_precision<B: Backend>(device: &Device<B>) {
    manual_seed(2);
    let model = gpt(device);
    model.eval();
    let text = ids(device);
    let whole = no_grad(|| model.forward(&text)).unwrap();
    for (room, first, then) in [
        (0, DType::F32, DType::BF16),
        (5, DType::F32, DType::BF16),
        (5, DType::BF16, DType::F32),
    ] {
        let mut cache = model.new_cache();
        cache.reserve(room);
        let mut pass = |dtype, begin, count| {
            let tokens = text.narrow(1, begin, count).unwrap();
            autocast(dtype, || no_grad(|| model.forward_cached(&tokens, &mut cache))).unwrap()
        };
        pass(first, 0, 3);
        let distance = apart(&pass(then, 3, 2), &whole.narrow(1, 3, 2).unwrap());
        assert!(distance < 0.05, "{first}, then {then}: {distance}");
        // Tensors that were f32 have stayed f32.
        let (keys, _) = cache.layers()[0].get().unwrap().unwrap();
        assert_eq!(keys.dtype(), DType::F32);
    }
}

fn norms_take_what_products_give<B: Backend>(device: &Device<B>) {
    manual_seed(3);
    let wide = Tensor::randn([4, 6, 5], device).unwrap();
    let x = wide.to_dtype(DType::BF16).unwrap();
    let wide = x.to_dtype(DType::F32).unwrap();
    macro_rules! norm {
        ($name:literal, $layer:expr) => {{
            let layer = $layer.unwrap();
            for param in layer.parameters() {
                param.set(&Tensor::randn(param.shape(), device).unwrap()).unwrap();
            }
            for training in [true, false] {
                if training {
                    layer.train()
                } else {
                    layer.eval()
                }
                let before = layer.state_dict().unwrap();
                let full = layer.forward(&wide).unwrap();
                let after = layer.state_dict().unwrap();
                layer.load_state_dict(&before, true).unwrap();
                let leaf = x.clone().requires_grad().unwrap();
                let mixed = layer.forward(&leaf).unwrap();
                assert_eq!(mixed.dtype(), DType::BF16, $name);
                // Rounded only once.
                let rounded = full.to_dtype(DType::BF16).unwrap();
                assert_eq!(mixed.to_f64_vec().unwrap(), rounded.to_f64_vec().unwrap(), $name);
                for (name, value) in layer.state_dict().unwrap().iter() {
                    assert_eq!(
                        value.to_f64_vec(),
                        after.get(name).unwrap().to_f64_vec(),
                        "{}: {name}",
                        $name
                    );
                }
                let gradients = mixed.to_dtype(DType::F32).unwrap().square().unwrap().sum_all().unwrap();
                let gradients = gradients.backward().unwrap();
                assert_eq!(gradients.require(&leaf).unwrap().dtype(), DType::BF16, $name);
                for param in layer.parameters() {
                    assert_eq!(gradients.require(&param).unwrap().dtype(), DType::F32, $name);
                }
            }
        }};
    }
    norm!("layer_norm", LayerNorm::new(5, device));
    norm!("rms_norm", RMSNorm::new(5, device));
    norm!("group_norm", GroupNorm::new(2, 6, device));
    norm!("batch_norm", BatchNorm1d::new(6, device));
    let config = InstanceNorm1dConfig::new(6).affine(true).track_running_stats(true);
    norm!("instance_norm", config.build(device));
}

fn masks_and_added_keys_fit_what_products_give<B: Backend>(device: &Device<B>) {
    manual_seed(4);
    let x = Tensor::randn([2, 5, 8], device).unwrap();
    let added = Tensor::randn([5, 5], device).unwrap();
    let padding = Tensor::new([[false, false, false, false, true], [false; 5]], device).unwrap();
    let masks = Masks::default().with_attn_mask(&added).with_key_padding_mask(&padding);
    let config = MultiheadAttentionConfig::new(8, 2).batch_first(true);
    for layer in [config, config.add_bias_kv(true).add_zero_attn(true)] {
        let layer = layer.build(device).unwrap();
        let run = || layer.forward_with_weights(&x, &x, &x, masks);
        let (full, full_weights) = run().unwrap();
        let (mixed, weights) = autocast(DType::BF16, run).unwrap();
        assert_eq!((mixed.dtype(), weights.dtype()), (DType::BF16, DType::BF16));
        let distances = (apart(&mixed, &full), apart(&weights, &full_weights));
        assert!(distances.0 < 0.03 && distances.1 < 0.03, "{distances:?}");
        let alone = autocast(DType::BF16, || layer.forward_self(&x, masks)).unwrap();
        assert!(apart(&alone, &full) < 0.03);
    }
}
