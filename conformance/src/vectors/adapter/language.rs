//! The language models of Hugging Face's transformers, under their classes' names. `config` is the model's config; the
//! rest is as for layers.

use polygrad_nn::models::{BertClassifier, BertConfig, BertInput, Gpt2, Gpt2Config, Llama, LlamaConfig, T5, T5Config};
use polygrad_tensor::Backend;

use super::layer::prepare;
use super::model::config;
use crate::vectors::call::{Call, CaseError, CaseOutputs, NAMED, one};

pub(super) fn answer<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let ids = || call.tensor(0, "input_ids");
    match call.op() {
        "GPT2LMHeadModel" => {
            let model = Gpt2::new(&config::<Gpt2Config, B>(call)?, &ids()?.device())?;
            prepare(&model, call)?;
            one(model.forward(ids()?)?)
        }
        "LlamaForCausalLM" => {
            let model = Llama::new(&config::<LlamaConfig, B>(call)?, &ids()?.device())?;
            prepare(&model, call)?;
            one(model.forward(ids()?)?)
        }
        "BertForSequenceClassification" => {
            let model = BertClassifier::new(&config::<BertConfig, B>(call)?, &ids()?.device())?;
            prepare(&model, call)?;
            let mut input = BertInput::new(ids()?);
            if let Some(mask) = call.optional_tensor(NAMED, "attention_mask")? {
                input = input.attention_mask(mask);
            }
            if let Some(types) = call.optional_tensor(NAMED, "token_type_ids")? {
                input = input.token_type_ids(types);
            }
            one(model.forward(input)?)
        }
        "T5ForConditionalGeneration" => {
            let model = T5::new(&config::<T5Config, B>(call)?, &ids()?.device())?;
            prepare(&model, call)?;
            let mask = call.optional_tensor(NAMED, "attention_mask")?;
            one(model.forward(ids()?, mask, call.tensor(1, "decoder_input_ids")?)?)
        }
        _ => Err(CaseError::OtherFamily),
    }
}
