//! Generation: the output of Hugging Face's models, batches of prompts of different lengths, how sequences end, and the
//! cache.

use polygrad_nn::models::{
    CausalLm, CausalLmCache, ContinuousBatch, GenerateConfig, Gpt2, Gpt2Config, Llama, LlamaConfig, ModelConfig,
};
use polygrad_nn::*;
use polygrad_tensor::{Backend, Device, Tensor, manual_seed, no_grad};
use serde_json::Value;

use super::common::{data, json};

on_backends!(
    text_is_that_of_transformers,
    each_prompt_of_a_batch_is_continued_as_if_it_were_alone,
    sequences_end_with_a_stop_sequence_or_when_they_are_told_to,
    tokens_come_step_by_step,
    a_cache_with_room_holds_what_one_without_holds,
    gradients_flow_through_a_cache_with_room,
    a_clone_of_a_cache_keeps_what_it_saw,
    what_cannot_be_generated_is_said,
    sequences_join_and_leave_a_batch,
    a_batch_refuses_what_does_not_fit,
);

fn gpt<B: Backend>(device: &Device<B>) -> Gpt2<B> {
    manual_seed(1);
    let config = Gpt2Config {
        vocab_size: 17,
        n_positions: 16,
        n_embd: 16,
        n_layer: 2,
        n_head: 4,
        initializer_range: 0.4,
        tie_word_embeddings: false,
        ..Gpt2Config::default()
    };
    let model = Gpt2::new(&config, device).unwrap();
    model.eval();
    model
}

fn ids(value: &Value) -> Vec<i64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_i64().unwrap())
        .collect()
}

fn rows(value: &Value) -> Vec<Vec<i64>> {
    value.as_array().unwrap().iter().map(ids).collect()
}

fn follows<B: Backend>(model: &impl CausalLm<B>, case: &Value, state: &StateDict) {
    model.load_state_dict(state, true).unwrap();
    model.eval();
    let prompts = rows(&case["prompts"]);
    for run in case["runs"].as_array().unwrap() {
        let mut config = GenerateConfig::greedy();
        if let Some(penalty) = run["options"]["repetition_penalty"].as_f64() {
            config = config.repetition_penalty(penalty);
        }
        if let Some(eos) = run["options"]["eos_token_id"].as_i64() {
            config = config.eos_token_id(eos);
        }
        let count = case["count"].as_u64().unwrap() as usize;
        let written = model.generate_batch(&prompts, count, &config).unwrap();
        assert_eq!(written, rows(&run["rows"]), "{} {}", case["class"], run["options"]);
    }
}

fn text_is_that_of_transformers<B: Backend>(device: &Device<B>) {
    let folder = data("generation");
    let weights = StateDict::load(folder.join("weights.safetensors")).unwrap();
    let cases = json(&folder.join("cases.json"));
    for (number, case) in cases.as_array().unwrap().iter().enumerate() {
        let (config, state) = (case["config"].to_string(), weights.with_prefix(&format!("{number}/")));
        match case["class"].as_str().unwrap() {
            "GPT2LMHeadModel" => {
                let config = Gpt2Config::from_json(&config).unwrap();
                follows(&Gpt2::new(&config, device).unwrap(), case, &state);
            }
            "LlamaForCausalLM" => {
                let config = LlamaConfig::from_json(&config).unwrap();
                follows(&Llama::new(&config, device).unwrap(), case, &state);
            }
            other => panic!("{other}"),
        }
    }
}

/// The probabilities of tokens with these options.
#[test]
fn chances_are_those_of_transformers() {
    let cases = json(&data("generation").join("sampling.json"));
    let numbers = |value: &Value| -> Vec<f64> {
        let all = value.as_array().unwrap().iter();
        all.map(|number| number.as_f64().unwrap()).collect()
    };
    let mut runs = 0;
    for case in cases.as_array().unwrap() {
        let (logits, seen) = (numbers(&case["logits"]), ids(&case["seen"]));
        for run in case["runs"].as_array().unwrap() {
            let mut config = GenerateConfig::sample();
            for (name, value) in run["options"].as_object().unwrap() {
                let value = value.as_f64().unwrap();
                config = match name.as_str() {
                    "repetition_penalty" => config.repetition_penalty(value),
                    "temperature" => config.temperature(value),
                    "top_k" => config.top_k(value as usize),
                    "top_p" => config.top_p(value),
                    "min_p" => config.min_p(value),
                    other => panic!("{other}"),
                };
            }
            let found = config.probabilities(&logits, &seen).unwrap();
            for (token, (a, b)) in found.iter().zip(numbers(&run["chances"])).enumerate() {
                assert!((a - b).abs() < 1e-12, "{}, token {token}: {a} {b}", run["options"]);
            }
            runs += 1;
        }
    }
    assert_eq!(runs, 39);
    let greedy = GenerateConfig::greedy();
    assert_eq!(greedy.probabilities(&[1.0, 3.0, 3.0], &[]).unwrap(), [0.0, 1.0, 0.0]);
    let infinite = GenerateConfig::sample().min_p(0.5);
    assert_eq!(infinite.probabilities(&[0.0, f64::INFINITY], &[]).unwrap().len(), 2);
    assert!(greedy.probabilities(&[], &[]).is_err() && greedy.probabilities(&[f64::NAN], &[]).is_err());
    for bad in [-0.1, 1.1, f64::NAN] {
        let error = greedy
            .clone()
            .min_p(bad)
            .probabilities(&[1.0], &[])
            .unwrap_err()
            .to_string();
        assert!(error.contains("min_p"), "{error}");
    }
}

fn each_prompt_of_a_batch_is_continued_as_if_it_were_alone<B: Backend>(device: &Device<B>) {
    let model = gpt(device);
    let prompts = vec![vec![3, 1, 4, 1, 5, 9], vec![2], vec![6, 5, 3]];
    for config in [
        GenerateConfig::greedy(),
        GenerateConfig::greedy().repetition_penalty(1.5),
        GenerateConfig::sample().top_k(1),
    ] {
        let together = model.generate_batch(&prompts, 8, &config).unwrap();
        for (prompt, row) in prompts.iter().zip(&together) {
            let alone = model.generate_batch(std::slice::from_ref(prompt), 8, &config).unwrap();
            assert_eq!(&alone[0], row);
            assert_eq!(row.len(), prompt.len() + 8);
        }
    }
    // The logits also agree, to the last digits.
    let padded = Tensor::new([[0i64, 0, 2, 7], [6, 5, 3, 1]], device).unwrap();
    let mut cache = model.new_cache().with_left_padding(&[2, 0], device).unwrap();
    let together = no_grad(|| model.forward_cached(&padded, &mut cache)).unwrap();
    let alone = model.forward(&Tensor::new([[2i64, 7]], device).unwrap()).unwrap();
    let found = together.narrow(0, 0, 1).unwrap().narrow(1, 2, 2).unwrap();
    for (a, b) in found.to_f64_vec().unwrap().into_iter().zip(alone.to_f64_vec().unwrap()) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
}

fn sequences_end_with_a_stop_sequence_or_when_they_are_told_to<B: Backend>(device: &Device<B>) {
    let model = gpt(device);
    let prompts = vec![vec![3, 1, 4], vec![2, 7, 1, 8]];
    let free = model.generate_batch(&prompts, 9, &GenerateConfig::greedy()).unwrap();
    let stop = free[0][5..7].to_vec();
    let config = GenerateConfig::greedy().stop_sequence(stop.clone());
    let stopped = model.generate_batch(&prompts, 9, &config).unwrap();
    for ((row, free), prompt) in stopped.iter().zip(&free).zip(&prompts) {
        let new = &free[prompt.len()..];
        let end = new.windows(2).position(|pair| pair == stop).map_or(9, |at| at + 2);
        assert_eq!(row[..], free[..prompt.len() + end]);
    }
    assert!(stopped[0].len() < free[0].len());
    // A stop sequence that began in the prompt does not count.
    let config = GenerateConfig::greedy().stop_sequence([prompts[0][2], free[0][3]]);
    assert_eq!(model.generate_batch(&prompts[..1], 1, &config).unwrap()[0].len(), 4);
    let full = model.generate_batch(&prompts[..1], 9, &config).unwrap();
    assert!(full[0].len() > 4);

    // In tensor form, ended sequences are padded.
    let prompt = Tensor::new([[3i64, 1, 4], [2, 7, 1]], device).unwrap();
    let config = GenerateConfig::greedy().stop_sequence(stop).pad_token_id(16);
    let filled = model.generate(&prompt, 9, &config).unwrap();
    assert_eq!(
        filled.i(0).unwrap().to_vec::<i64>().unwrap()[stopped[0].len()..],
        vec![16; filled.dims()[1] - stopped[0].len()]
    );
}

fn tokens_come_step_by_step<B: Backend>(device: &Device<B>) {
    let model = gpt(device);
    let prompts = vec![vec![3, 1, 4], vec![2, 7, 1, 8]];
    let whole = model.generate_batch(&prompts, 6, &GenerateConfig::greedy()).unwrap();
    let mut generation = model.stream(&prompts, 6, &GenerateConfig::greedy()).unwrap();
    let mut steps = Vec::new();
    while let Some(step) = generation.next() {
        steps.push(step.unwrap());
        if steps.len() == 4 {
            generation.end(1).unwrap();
        }
    }
    assert_eq!(generation.end(2).unwrap_err().to_string(), "generate: sequence 2 of 2");
    assert!(generation.next().is_none());
    let first: Vec<_> = steps.iter().map(|step| step[0].unwrap()).collect();
    assert_eq!(first, whole[0][3..]);
    let second: Vec<_> = steps.iter().map(|step| step[1]).collect();
    assert!(second[..4].iter().zip(&whole[1][4..]).all(|(a, b)| *a == Some(*b)));
    assert_eq!(second[4..], [None, None]);
    let rows: Vec<_> = generation.rows().collect();
    assert_eq!(rows, [&whole[0][..], &whole[1][..8]]);
    assert_eq!(generation.into_rows()[1].len(), 8);
}

fn random<B: Backend>(tokens: usize, device: &Device<B>) -> Tensor<B> {
    Tensor::randn([2, 3, tokens, 4], device).unwrap()
}

fn a_cache_with_room_holds_what_one_without_holds<B: Backend>(device: &Device<B>) {
    manual_seed(3);
    for room in [0, 1, 5, 9, 20] {
        let (mut plain, mut roomy) = (KvCache::new(), KvCache::new());
        roomy.reserve(room);
        for tokens in [3, 1, 1, 4, 1] {
            let (key, value) = (random(tokens, device), random(tokens, device));
            let (keys, values) = plain.append(&key, &value).unwrap();
            let (found_keys, found_values) = roomy.append(&key, &value).unwrap();
            assert_eq!(found_keys.to_f64_vec().unwrap(), keys.to_f64_vec().unwrap());
            assert_eq!(found_values.to_f64_vec().unwrap(), values.to_f64_vec().unwrap());
            assert_eq!(roomy.len(), plain.len());
        }
        let swap = Tensor::new([1i64, 0], device).unwrap();
        for cache in [&mut plain, &mut roomy] {
            cache.truncate(4);
            cache.select(&swap).unwrap();
        }
        let (key, value) = (random(2, device), random(2, device));
        let (keys, _) = plain.append(&key, &value).unwrap();
        assert_eq!(
            roomy.append(&key, &value).unwrap().0.to_f64_vec().unwrap(),
            keys.to_f64_vec().unwrap()
        );
        assert_eq!(roomy.get().unwrap().unwrap().0.dims(), [2, 3, 6, 4]);

        let other = Tensor::randn([1, 3, 1, 4], device).unwrap();
        let error = roomy.append(&other, &other).unwrap_err();
        assert!(error.to_string().contains("start a new cache"), "{error}");
        assert_eq!(roomy.len(), 6);
        roomy.truncate(0);
        assert!(roomy.get().unwrap().is_none());
        assert_eq!(roomy.append(&other, &other).unwrap().0.dims(), [1, 3, 1, 4]);
    }
}

fn gradients_flow_through_a_cache_with_room<B: Backend>(device: &Device<B>) {
    let mut cache = KvCache::new();
    cache.reserve(8);
    let first = random(2, device).requires_grad().unwrap();
    cache.append(&first, &first).unwrap();
    let (keys, _) = cache.append(&random(1, device), &random(1, device)).unwrap();
    let gradients = keys.sum(()).unwrap().backward().unwrap();
    assert_eq!(
        gradients.get(&first).unwrap().to_f64_vec().unwrap(),
        vec![1.0; first.numel()]
    );
}

fn a_clone_of_a_cache_keeps_what_it_saw<B: Backend>(device: &Device<B>) {
    let mut cache = KvCache::new();
    cache.reserve(8);
    let (a, b, c) = (random(2, device), random(1, device), random(1, device));
    let before = cache.append(&a, &a).unwrap().0;
    let mut other = cache.clone();
    let one = cache.append(&b, &b).unwrap().0;
    let two = other.append(&c, &c).unwrap().0;
    for (found, last) in [(one, b), (two, c)] {
        let wanted = Tensor::cat(&[&a, &last], 2).unwrap();
        assert_eq!(found.to_f64_vec().unwrap(), wanted.to_f64_vec().unwrap());
    }
    assert_eq!(before.to_f64_vec().unwrap(), a.to_f64_vec().unwrap());
}

fn what_cannot_be_generated_is_said<B: Backend>(device: &Device<B>) {
    let model = gpt(device);
    let greedy = GenerateConfig::greedy;
    let says = |prompts: &[Vec<i64>], count: usize, config: GenerateConfig, part: &str| {
        let error = model.stream(prompts, count, &config).unwrap_err().to_string();
        assert!(error.contains(part), "{part:?} is not in {error}");
    };
    says(&[], 1, greedy(), "no prompt");
    says(&[vec![1], vec![]], 1, greedy(), "no prompt");
    says(
        &[vec![1], vec![17]],
        1,
        greedy(),
        "token 17 is outside the vocabulary of 17",
    );
    says(&[vec![-1]], 1, greedy(), "token -1");
    says(
        &[vec![1], vec![1; 10]],
        7,
        greedy(),
        "10 tokens and 7 more, but there are 16 positions",
    );
    says(&[vec![1]], usize::MAX, greedy(), "16 positions");
    says(
        &[vec![1]],
        1,
        greedy().repetition_penalty(0.0),
        "repetition_penalty = 0",
    );
    says(
        &[vec![1]],
        1,
        greedy().stop_sequence([]),
        "a stop sequence without tokens",
    );
    let prompt = Tensor::new([[1i64], [2]], device).unwrap();
    let error = model.generate(&prompt, 1, &greedy().stop_sequence([3])).unwrap_err();
    assert!(error.to_string().contains("set pad_token_id"), "{error}");
    let mut cache = CausalLmCache::new(2).with_left_padding(&[1, 0, 0], device).unwrap();
    let error = model.forward_cached(&prompt, &mut cache).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("2 sequences, but the cache has the padding of 3"),
        "{error}"
    );
    let mut cache = CausalLmCache::new(3);
    let error = model.forward_cached(&prompt, &mut cache).unwrap_err();
    assert!(
        error.to_string().contains("a cache of 3 layers for a model of 2"),
        "{error}"
    );
}

fn llama<B: Backend>(device: &Device<B>) -> Llama<B> {
    manual_seed(2);
    let config = LlamaConfig {
        vocab_size: 17,
        hidden_size: 16,
        intermediate_size: 24,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        max_position_embeddings: 32,
        initializer_range: 0.4,
        ..LlamaConfig::default()
    };
    let model = Llama::new(&config, device).unwrap();
    model.eval();
    model
}

/// A user's model without support for batches of different lengths.
#[derive(Debug, Module)]
struct Plain<B: Backend>(Gpt2<B>);

impl<B: Backend> CausalLm<B> for Plain<B> {
    fn name(&self) -> &'static str {
        "Plain"
    }

    fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }

    fn num_positions(&self) -> usize {
        self.0.num_positions()
    }

    fn new_cache(&self) -> CausalLmCache<B> {
        self.0.new_cache()
    }

    fn forward_cached(&self, ids: &Tensor<B>, cache: &mut CausalLmCache<B>) -> polygrad_tensor::Result<Tensor<B>> {
        self.0.forward_cached(ids, cache)
    }

    fn next_logits_each(
        &self,
        ids: &Tensor<B>,
        lengths: &[usize],
        caches: &mut [&mut CausalLmCache<B>],
    ) -> polygrad_tensor::Result<Tensor<B>> {
        self.next_logits_in_turn(ids, lengths, caches)
    }
}

/// The tokens of sequences that join at these steps, with this many prompt tokens read per step.
fn joined<B: Backend>(
    model: &impl CausalLm<B>,
    asked: &[(usize, Vec<i64>, usize, GenerateConfig)],
    part: usize,
) -> Vec<Vec<i64>> {
    let mut batch = ContinuousBatch::new(model).unwrap();
    let mut rows = vec![Vec::new(); asked.len()];
    let mut step = 0;
    while step < 8 || !batch.is_empty() {
        for (at, prompt, count, config) in asked {
            if *at == step {
                batch.join(prompt, *count, config, 5).unwrap();
            }
        }
        let before = batch.len();
        let mut ended = 0;
        for (sequence, next) in batch.step(part).unwrap() {
            let next = next.unwrap();
            rows[sequence].push(next.token);
            let is_full = rows[sequence].len() == asked[sequence].2;
            assert_eq!(next.is_last, is_full || next.is_end);
            ended += usize::from(next.is_last);
        }
        assert_eq!(batch.len(), before - ended);
        step += 1;
    }
    rows
}

fn sequences_join_and_leave_a_batch<B: Backend>(device: &Device<B>) {
    let greedy = GenerateConfig::greedy();
    let sample = GenerateConfig::sample().temperature(2.0);
    fn follows<B: Backend>(model: &impl CausalLm<B>, greedy: &GenerateConfig, sample: &GenerateConfig) {
        let asked = [
            (0, vec![3, 1, 4, 1, 5, 9], 6, greedy.clone()),
            (0, vec![2], 9, greedy.clone().repetition_penalty(1.5)),
            (1, vec![2, 7, 1, 8], 8, sample.clone()),
            (2, vec![6, 5, 3], 1, greedy.clone()),
            (4, vec![3, 1, 4, 1, 5, 9, 2, 6], 8, greedy.clone()),
            (7, vec![2, 7, 1, 8], 8, sample.clone()),
        ];
        // Prompts are read at once or in parts.
        let found = joined(model, &asked, 100);
        assert_eq!(joined(model, &asked, 3), found);
        for ((_, prompt, count, config), row) in asked.iter().zip(&found) {
            if config != sample {
                let alone = model
                    .generate_batch(std::slice::from_ref(prompt), *count, config)
                    .unwrap();
                assert_eq!(alone[0][prompt.len()..], row[..]);
            }
            // Random sequences do not depend on others either.
            assert_eq!(
                joined(model, &[(0, prompt.clone(), *count, config.clone())], 100),
                std::slice::from_ref(row)
            );
        }
        assert_eq!(found[2], found[5]);
        // A sequence ends with a token, or when it is removed.
        let end = found[0][2];
        let first = found[0].iter().position(|&token| token == end).unwrap();
        let config = greedy.clone().eos_token_id(end);
        assert_eq!(
            joined(model, &[(0, asked[0].1.clone(), 6, config)], 100),
            [&found[0][..=first]]
        );
        let mut batch = ContinuousBatch::new(model).unwrap();
        let [one, other] = [0, 1].map(|i| batch.join(&asked[i].1, 6, greedy, 0).unwrap());
        assert_eq!(batch.step(100).unwrap().len(), 2);
        batch.leave(one);
        let step = batch.step(100).unwrap();
        assert_eq!((step.len(), step[0].0, batch.len()), (1, other, 1));
        batch.leave(one);
        batch.leave(other);
        assert!(batch.is_empty() && batch.step(100).unwrap().is_empty());
    }
    follows(&gpt(device), &greedy, &sample);
    follows(&llama(device), &greedy, &sample);
    follows(&Plain(gpt(device)), &greedy, &sample);
}

fn a_batch_refuses_what_does_not_fit<B: Backend>(device: &Device<B>) {
    let model = gpt(device);
    let mut batch = ContinuousBatch::new(&model).unwrap();
    let greedy = GenerateConfig::greedy();
    let mut says = |prompt: &[i64], count: usize, config: &GenerateConfig, part: &str| {
        let error = batch.join(prompt, count, config, 0).unwrap_err().to_string();
        assert!(error.contains(part), "{part:?} is not in {error}");
    };
    says(&[], 1, &greedy, "no prompt");
    says(&[17], 1, &greedy, "token 17 is outside the vocabulary of 17");
    says(&[1; 10], 7, &greedy, "10 tokens and 7 more, but there are 16 positions");
    says(&[1], 0, &greedy, "no tokens");
    says(&[1], 1, &GenerateConfig::sample().min_p(2.0), "min_p");
    // The caches of one step.
    let ids = Tensor::new([[1i64, 2, 3]], device).unwrap();
    let (mut one, mut two) = (model.new_cache(), model.new_cache());
    for (lengths, part) in [
        (vec![3], "2 caches for sequences of [3] tokens"),
        (vec![1, 1], "2 caches for sequences of [1, 1] tokens"),
        (vec![3, 0], "each of which is at least 1"),
    ] {
        let error = model
            .next_logits_each(&ids, &lengths, &mut [&mut one, &mut two])
            .unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
    let mut padded = model.new_cache().with_left_padding(&[1], device).unwrap();
    let error = model.next_logits_each(&ids, &[3], &mut [&mut padded]).unwrap_err();
    assert!(error.to_string().contains("a cache with padding"), "{error}");
    let error = model
        .next_logits_each(&ids, &[3], &mut [&mut CausalLmCache::new(3)])
        .unwrap_err();
    assert!(
        error.to_string().contains("a cache of 3 layers for a model of 2"),
        "{error}"
    );
    let long = Tensor::new([[1i64; 18]], device).unwrap();
    let error = model
        .next_logits_each(&long, &[1, 17], &mut [&mut one, &mut two])
        .unwrap_err();
    assert!(
        error.to_string().contains("17 tokens, but there are 16 positions"),
        "{error}"
    );
    // After a failure, all caches are as they were.
    no_grad(|| model.next_logits_each(&ids, &[1, 2], &mut [&mut one, &mut two])).unwrap();
    let unknown = Tensor::new([[1i64, 99]], device).unwrap();
    assert!(
        model
            .next_logits_each(&unknown, &[1, 1], &mut [&mut one, &mut two])
            .is_err()
    );
    assert_eq!([one.len(), two.len()], [1, 2]);
    let plain = Plain(gpt(device));
    assert!(
        plain
            .next_logits_each(&unknown, &[1, 1], &mut [&mut one, &mut two])
            .is_err()
    );
    assert!(plain.next_logits_each(&ids, &[3], &mut [&mut one, &mut two]).is_err());
    assert_eq!([one.len(), two.len()], [1, 2]);
}
