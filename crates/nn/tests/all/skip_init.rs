//! A model that is loaded from a file needs no random weights, and is the same after loading.

use polygrad_core::Result;
use polygrad_nn::models::{Bert, BertConfig, Gpt2, Gpt2Config, Llama, LlamaConfig, ResNet, ResNetConfig};
use polygrad_nn::{Module, skip_init};
use polygrad_tensor::{Device, GeneratorState, Tensor, manual_seed};

fn device() -> Device {
    Device::<polygrad_cpu::Cpu>::default().into_any()
}

fn is_same<M: Module>(make: impl Fn() -> Result<M>, forward: impl Fn(&M) -> Result<Tensor>) {
    manual_seed(1);
    let trained = make().unwrap();
    let generator = GeneratorState::current();
    let model = skip_init(&make).unwrap();
    assert_eq!(GeneratorState::current(), generator, "random numbers were drawn");
    trained.eval();
    model.eval();
    let before = forward(&model).unwrap().to_vec::<f32>().unwrap();
    assert!(
        before.iter().all(|x| x.is_nan()),
        "weights that are not loaded were taken"
    );
    model.load_state_dict(&trained.state_dict().unwrap(), true).unwrap();
    let values = |model: &M| forward(model).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(values(&model), values(&trained));
    let drawn = make().unwrap().parameters();
    let finite = |p: &polygrad_nn::Param| p.tensor().to_vec::<f32>().unwrap().iter().all(|x| x.is_finite());
    assert!(drawn.iter().all(finite), "what comes after is skipped, too");
}

#[test]
fn models_are_the_same_once_they_are_loaded() {
    let config = Gpt2Config {
        vocab_size: 11,
        n_positions: 16,
        n_embd: 8,
        n_layer: 2,
        n_head: 2,
        ..Gpt2Config::default()
    };
    let ids = Tensor::new([[1_i64, 5, 2]], &device()).unwrap();
    is_same(|| Gpt2::new(&config, &device()), |model| model.forward(&ids));
    let images = Tensor::ones([2, 3, 32, 32], &device()).unwrap();
    is_same(
        || ResNet::new(&ResNetConfig::resnet18(10), &device()),
        |model: &ResNet| model.forward(&images),
    );
}

/// No machine has memory for such models, so that loading must be what fails.
#[test]
fn sizes_that_no_file_has_are_found_by_loading() {
    const HUGE: usize = 999_999_999_999;
    let small = BertConfig {
        vocab_size: 11,
        hidden_size: 8,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        intermediate_size: 8,
        max_position_embeddings: 8,
        ..BertConfig::default()
    };
    let state = Bert::new(&small, &device()).unwrap().state_dict().unwrap();
    // A table with a vector for padding, and a bias of zeros.
    for huge in [
        BertConfig {
            vocab_size: HUGE,
            ..small.clone()
        },
        BertConfig {
            intermediate_size: HUGE,
            ..small
        },
    ] {
        let model = skip_init(|| Bert::new(&huge, &device())).unwrap();
        let error = model.load_state_dict(&state, true).unwrap_err().to_string();
        assert!(error.contains("999999999999"), "{error}");
    }
    let config = LlamaConfig {
        num_hidden_layers: HUGE,
        ..LlamaConfig::default()
    };
    let error = skip_init(|| Llama::new(&config, &device())).unwrap_err().to_string();
    assert!(error.contains("asks for 999999999999 layers"), "{error}");
}
