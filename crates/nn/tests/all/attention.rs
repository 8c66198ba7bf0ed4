//! Attention, its cache, positions, and transformer layers, beyond the recorded vectors from PyTorch.

use polygrad_nn::*;
use polygrad_tensor::{Attention, Backend, DType, Device, Error, Tensor, manual_seed, no_grad};

on_backends!(
    one_projection_gives_what_three_give,
    a_cache_gives_what_the_whole_sequence_gives,
    a_cache_of_another_batch_is_refused,
    a_decoder_goes_on_where_it_stopped,
    queries_that_see_nothing_give_the_bias,
    weights_are_dropped_in_training_alone,
    misfits_say_what_was_wanted,
    slopes_of_alibi_are_the_papers,
    rotary_products_depend_on_distances_alone,
    places_end_somewhere,
);

fn close<B: Backend>(a: &Tensor<B>, b: &Tensor<B>) {
    assert_eq!(a.shape(), b.shape());
    for (a, b) in a.to_f64_vec().unwrap().into_iter().zip(b.to_f64_vec().unwrap()) {
        assert!((a - b).abs() <= 1e-5 * (1.0 + b.abs()), "{a} {b}");
    }
}

fn random<B: Backend, const R: usize>(dims: [usize; R], device: &Device<B>) -> Tensor<B> {
    Tensor::randn(dims, device).unwrap()
}

fn layer<B: Backend>(device: &Device<B>) -> MultiheadAttention<B> {
    MultiheadAttentionConfig::new(8, 2)
        .batch_first(true)
        .build(device)
        .unwrap()
}

fn one_projection_gives_what_three_give<B: Backend>(device: &Device<B>) {
    manual_seed(1);
    for batch_first in [false, true] {
        let config = MultiheadAttentionConfig::new(8, 2).batch_first(batch_first);
        for layer in [
            config.build(device).unwrap(),
            config.kdim(8).bias(false).build(device).unwrap(),
            config.add_bias_kv(true).add_zero_attn(true).build(device).unwrap(),
        ] {
            let x = random([3, 4, 8], device);
            let whole = layer.forward(&x, &x, &x, Masks::causal()).unwrap();
            close(&layer.forward_self(&x, Masks::causal()).unwrap(), &whole);
            let (y, weights) = layer.forward_with_weights(&x, &x, &x, Masks::causal()).unwrap();
            close(&y, &whole);
            let tokens = x.dims()[usize::from(batch_first)];
            let later = Tensor::full([tokens, tokens], true, (device, DType::Bool))
                .unwrap()
                .triu(1)
                .unwrap();
            let masks = Masks::default().with_attn_mask(&later);
            close(&layer.forward(&x, &x, &x, masks).unwrap(), &whole);
            let added = later.to_dtype(DType::F32).unwrap().mul(-1e9).unwrap();
            let masks = Masks::causal().with_attn_mask(&added);
            close(&layer.forward(&x, &x, &x, masks).unwrap(), &whole);
            let sums = weights.sum(-1).unwrap();
            close(&sums, &sums.ones_like().unwrap());
        }
    }
}

fn a_cache_gives_what_the_whole_sequence_gives<B: Backend>(device: &Device<B>) {
    manual_seed(2);
    let config = MultiheadAttentionConfig::new(8, 2).batch_first(true);
    cached(&config.build(device).unwrap(), device);
    cached(
        &config.add_bias_kv(true).add_zero_attn(true).build(device).unwrap(),
        device,
    );
}

fn cached<B: Backend>(layer: &MultiheadAttention<B>, device: &Device<B>) {
    let x = random([2, 7, 8], device);
    let whole = layer.forward_self(&x, Masks::causal()).unwrap();
    let mut cache = KvCache::new();
    let mut parts = Vec::new();
    for (start, len) in [(0, 3), (3, 1), (4, 1), (5, 2)] {
        let part = x.narrow(1, start, len).unwrap();
        parts.push(layer.forward_cached(&part, &mut cache, Masks::causal()).unwrap());
    }
    assert_eq!(cache.len(), 7);
    close(&Tensor::cat(&parts.iter().collect::<Vec<_>>(), 1).unwrap(), &whole);

    // Back to the third token, then on with the second sequence in both places.
    cache.truncate(3);
    cache.select(&Tensor::new([1i64, 1], device).unwrap()).unwrap();
    let next = x
        .narrow(1, 3, 1)
        .unwrap()
        .narrow(0, 1, 1)
        .unwrap()
        .expand([2, 1, 8])
        .unwrap();
    let y = layer.forward_cached(&next, &mut cache, Masks::causal()).unwrap();
    let wanted = whole.narrow(1, 3, 1).unwrap().narrow(0, 1, 1).unwrap();
    close(&y, &wanted.expand([2, 1, 8]).unwrap());
}

fn a_cache_of_another_batch_is_refused<B: Backend>(device: &Device<B>) {
    let layer = layer(device);
    let mut cache = KvCache::new();
    layer
        .forward_cached(&random([2, 3, 8], device), &mut cache, Masks::causal())
        .unwrap();
    let error = layer
        .forward_cached(&random([1, 1, 8], device), &mut cache, Masks::causal())
        .unwrap_err();
    assert!(error.to_string().contains("start a new cache"), "{error}");
    assert_eq!(cache.len(), 3);
    // A failure after the keys were appended leaves the cache unchanged.
    let mask = random([2, 2], device);
    let masks = Masks::causal().with_attn_mask(&mask);
    assert!(
        layer
            .forward_cached(&random([2, 1, 8], device), &mut cache, masks)
            .is_err()
    );
    assert_eq!(cache.len(), 3);
    let decoder = TransformerDecoder::new(TransformerLayerConfig::new(8, 2).batch_first(true), 2, device).unwrap();
    let mut cache = decoder.new_cache();
    let (x, memory) = (random([2, 3, 8], device), random([2, 3, 6], device));
    let failed = decoder.forward_cached(&x, &memory, &mut cache, Masks::causal(), Masks::default());
    assert!(failed.is_err());
    assert_eq!(cache.len(), 0);
    let rank = KvCache::new()
        .append(&random([2, 3], device), &random([2, 3], device))
        .unwrap_err();
    assert!(rank.to_string().contains("[N, heads, S, D]"), "{rank}");
}

fn a_decoder_goes_on_where_it_stopped<B: Backend>(device: &Device<B>) {
    manual_seed(3);
    let config = TransformerLayerConfig::new(8, 2)
        .dim_feedforward(12)
        .batch_first(true)
        .norm_first(true);
    let decoder = TransformerDecoder::new(config, 2, device).unwrap();
    decoder.eval();
    let (x, memory) = (random([2, 5, 8], device), random([2, 3, 8], device));
    let whole = decoder.forward(&x, &memory, Masks::causal(), Masks::default()).unwrap();
    let mut cache = decoder.new_cache();
    for place in 0..5 {
        assert_eq!(cache.len(), place);
        let token = x.narrow(1, place, 1).unwrap();
        let y = decoder
            .forward_cached(&token, &memory, &mut cache, Masks::causal(), Masks::default())
            .unwrap();
        close(&y, &whole.narrow(1, place, 1).unwrap());
    }
    let other = TransformerDecoder::new(config, 3, device).unwrap();
    let error = other
        .forward_cached(&x, &memory, &mut cache, Masks::causal(), Masks::default())
        .unwrap_err();
    assert!(error.to_string().contains("2 layers for a decoder of 3"), "{error}");
}

fn queries_that_see_nothing_give_the_bias<B: Backend>(device: &Device<B>) {
    manual_seed(4);
    let layer = layer(device);
    let bias = random([8], device);
    layer.out_proj.bias.as_ref().unwrap().set(&bias).unwrap();
    let x = random([1, 2, 8], device);
    let hidden = Tensor::new([[true, true], [false, true]], device).unwrap();
    let masks = Masks::default().with_attn_mask(&hidden);
    let y = layer.forward(&x, &x, &x, masks).unwrap();
    close(&y.select(1, 0).unwrap().squeeze(0).unwrap(), &bias);
    let loss = y.sum_all().unwrap();
    let gradients = loss.backward().unwrap();
    for (name, param) in layer.named_parameters() {
        let gradient = gradients.require(&param).unwrap().to_f64_vec().unwrap();
        assert!(gradient.iter().all(|x| x.is_finite()), "{name}");
    }
}

fn weights_are_dropped_in_training_alone<B: Backend>(device: &Device<B>) {
    manual_seed(5);
    let layer = MultiheadAttentionConfig::new(8, 2)
        .batch_first(true)
        .dropout(0.5)
        .build(device)
        .unwrap();
    let x = random([2, 16, 8], device);
    let (_, weights) = layer.forward_with_weights(&x, &x, &x, Masks::default()).unwrap();
    let weights = weights.to_f64_vec().unwrap();
    let dropped = weights.iter().filter(|&&w| w == 0.0).count();
    assert!((dropped as f64 / weights.len() as f64 - 0.5).abs() < 0.1, "{dropped}");
    let training = |layer: &MultiheadAttention<B>| {
        let run = || layer.forward_self(&x, Masks::default()).unwrap().to_f64_vec().unwrap();
        run() != run()
    };
    assert!(training(&layer));
    layer.eval();
    assert!(!training(&layer));
}

fn misfits_say_what_was_wanted<B: Backend>(device: &Device<B>) {
    let says = |error: Error, parts: &[&str]| {
        let text = error.to_string();
        for part in parts {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
    };
    says(
        MultiheadAttention::<B>::new(8, 3, device).unwrap_err(),
        &["MultiheadAttention", "3 heads do not divide embed_dim 8"],
    );
    let bad = MultiheadAttentionConfig::new(8, 2)
        .dropout(1.5)
        .build::<B>(device)
        .unwrap_err();
    says(bad, &["1.5 is no probability"]);

    let layer = layer(device);
    let (x, y) = (random([2, 3, 8], device), random([2, 5, 8], device));
    let run = |q: &Tensor<B>, k: &Tensor<B>, masks: Masks<'_, B>| layer.forward(q, k, k, masks).unwrap_err();
    says(
        run(&x, &random([3, 8], device), Masks::default()),
        &["all [N, S, E], or all [S, E]", "[2, 3, 8]", "[3, 8]"],
    );
    says(
        run(&x, &random([3, 5, 8], device), Masks::default()),
        &["2 sequences of queries, 3 of keys"],
    );
    says(
        run(&x, &random([2, 5, 6], device), Masks::default()),
        &["MultiheadAttention", "linear"],
    );
    let mask = random([3, 4], device);
    says(
        run(&x, &y, Masks::default().with_attn_mask(&mask)),
        &["attn_mask has shape [3, 4]", "[3, 5] or [4, 3, 5]"],
    );
    let mask = Tensor::full([2, 3], true, (device, DType::Bool)).unwrap();
    says(
        run(&x, &y, Masks::default().with_key_padding_mask(&mask)),
        &["key_padding_mask has shape [2, 3], not [2, 5]"],
    );
    // In a model the error contains the path.
    let encoder = TransformerEncoder::new(TransformerLayerConfig::new(8, 2).batch_first(true), 2, device).unwrap();
    encoder.parameters();
    let error = encoder
        .forward(&random([2, 3, 6], device), Masks::default())
        .unwrap_err();
    says(error, &["layers.0.self_attn"]);
}

fn slopes_of_alibi_are_the_papers<B: Backend>(device: &Device<B>) {
    let halves: Vec<f64> = (1..=8).map(|i| 0.5f64.powi(i)).collect();
    assert_eq!(alibi_slopes(8), halves);
    // As by `build_alibi_tensor` of transformers for 12 heads.
    let between: Vec<f64> = [0.5, 1.5, 2.5, 3.5].map(|x: f64| (-x).exp2()).to_vec();
    for (slope, wanted) in alibi_slopes(12).iter().zip([halves, between].concat()) {
        assert!((slope - wanted).abs() < 1e-15, "{slope} {wanted}");
    }
    assert!(alibi_slopes(0).is_empty());
    let bias = alibi_bias(2, 2, 3, DType::F32, device).unwrap();
    let (a, b) = (2f32.powi(-4), 2f32.powi(-8));
    let wanted = [-a, 0.0, a, -2.0 * a, -a, 0.0, -b, 0.0, b, -2.0 * b, -b, 0.0];
    assert_eq!(bias.to_vec::<f32>().unwrap(), wanted);
    assert!(alibi_bias::<B>(2, 2, 3, DType::I64, device).is_err());

    // Attention accepts it as a mask.
    let q = random([1, 2, 2, 4], device);
    let k = random([1, 2, 3, 4], device);
    q.scaled_dot_product_attention(&k, &k, Attention::new().mask(&bias).causal(true))
        .unwrap();
}

fn rotary_products_depend_on_distances_alone<B: Backend>(device: &Device<B>) {
    manual_seed(6);
    let (q, k) = (random([1, 8], device), random([1, 8], device));
    for pairs in [RotaryPairs::Halves, RotaryPairs::Adjacent] {
        let rope = RotaryConfig::new(8, 64).pairs(pairs).build::<B>().unwrap();
        let product = |i: usize, j: usize| {
            let (q, k) = (rope.forward_from(&q, i).unwrap(), rope.forward_from(&k, j).unwrap());
            q.mul(&k).unwrap().sum_all().unwrap().item().unwrap()
        };
        assert!((product(9, 4) - product(45, 40)).abs() < 1e-4);
        assert!((product(9, 4) - product(9, 5)).abs() > 1e-3);
        // Rotating a sequence in parts gives the same as rotating it at once.
        let x = random([2, 6, 8], device);
        let whole = rope.forward(&x).unwrap();
        let part = rope.forward_from(&x.narrow(1, 4, 2).unwrap(), 4).unwrap();
        close(&part, &whole.narrow(1, 4, 2).unwrap());
        let narrow = no_grad(|| rope.forward(&x.to_dtype(DType::F16)?)).unwrap();
        assert_eq!(narrow.dtype(), DType::F16);
    }
    assert!(
        RotaryConfig::new(7, 4)
            .build::<B>()
            .unwrap_err()
            .to_string()
            .contains("dim = 7 is odd")
    );
    assert!(RotaryConfig::new(8, 4).base(0.0).build::<B>().is_err());
}

fn places_end_somewhere<B: Backend>(device: &Device<B>) {
    let x = random([2, 5, 4], device);
    let learned = LearnedPositions::new(6, 4, device).unwrap();
    learned.forward_from(&x, 1).unwrap();
    for error in [
        learned.forward_from(&x, 2).unwrap_err(),
        SinusoidalPositions::<B>::new(6, 4)
            .unwrap()
            .forward_from(&x, 2)
            .unwrap_err(),
        RotaryEmbedding::<B>::new(4, 6)
            .unwrap()
            .forward_from(&x, 2)
            .unwrap_err(),
        learned.forward_from(&x, usize::MAX).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(
            text.contains("there are 6") && text.contains("5 positions from"),
            "{text}"
        );
    }
    assert!(learned.forward(&random([4], device)).is_err());
    assert!(SinusoidalPositions::<B>::new(6, 3).is_err());
    assert!(RotaryEmbedding::<B>::new(8, 1 << 58).is_err());
    assert!(alibi_bias::<B>(8, 1 << 22, 1 << 22, DType::F32, device).is_err());
    let sequence = Tensor::<B>::zeros([4], device)
        .unwrap()
        .to_dtype(DType::I64)
        .unwrap()
        .reshape([1, 4])
        .unwrap();
    assert!(RotaryEmbedding::<B>::new(4, 6).unwrap().forward(&sequence).is_err());
}
