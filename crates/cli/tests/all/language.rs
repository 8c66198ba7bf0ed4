//! Language models of others generate text: from folders and GGUF files, in chats, and as a service.

use std::fs;

use polygrad::Device;
use polygrad::backend::HostTensor;
use polygrad::nn::models::{GenerateConfig, Llama, LlamaConfig, ModelConfig};
use polygrad::nn::{Module, StateDict};
use polygrad::text::{ChatTemplate, Tokenizer, Writer};
use serde_json::{Value, json};

use crate::common::Scene;
use crate::finetune::scene;

const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}<end>{% endfor %}\
                        {% if add_generation_prompt %}assistant:{% endif %}";

/// The values of a row after quantizing to blocks of 8 bits, and the blocks.
fn quantized(row: &[f32]) -> (Vec<f32>, Vec<u8>) {
    let (mut kept, mut bytes) = (Vec::new(), Vec::new());
    for block in row.chunks_exact(32) {
        let most = block.iter().fold(0f32, |most, x| most.max(x.abs()));
        // A power of two, which f16 stores only as its exponent.
        let exponent = (most / 127.0).log2().ceil().max(-14.0) as i16;
        let scale = f32::from(exponent).exp2();
        bytes.extend(((exponent + 15) << 10).to_le_bytes());
        for x in block {
            let whole = (x / scale).round();
            kept.push(whole * scale);
            bytes.push(whole as i8 as u8);
        }
    }
    (kept, bytes)
}

/// A GGUF file builder.
#[derive(Default)]
struct Gguf {
    fields: Vec<u8>,
    field_count: u64,
    infos: Vec<u8>,
    tensor_count: u64,
    data: Vec<u8>,
}

impl Gguf {
    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    }

    fn field(&mut self, name: &str, value: &Value) {
        self.field_count += 1;
        Self::text(&mut self.fields, name);
        let kind = Self::kind(value);
        self.fields.extend(kind.to_le_bytes());
        Self::value(&mut self.fields, value);
    }

    fn kind(value: &Value) -> u32 {
        match value {
            Value::Number(number) if number.is_u64() => 4,
            Value::Number(_) => 6,
            Value::String(_) => 8,
            _ => 9,
        }
    }

    fn value(out: &mut Vec<u8>, value: &Value) {
        match value {
            Value::Number(number) if number.is_u64() => out.extend((number.as_u64().unwrap() as u32).to_le_bytes()),
            Value::Number(number) => out.extend((number.as_f64().unwrap() as f32).to_le_bytes()),
            Value::String(text) => Self::text(out, text),
            Value::Array(values) => {
                out.extend(Self::kind(&values[0]).to_le_bytes());
                out.extend((values.len() as u64).to_le_bytes());
                values.iter().for_each(|value| Self::value(out, value));
            }
            other => panic!("{other}"),
        }
    }

    fn tensor(&mut self, name: &str, shape: &[usize], kind: u32, bytes: &[u8]) {
        self.tensor_count += 1;
        Self::text(&mut self.infos, name);
        self.infos.extend((shape.len() as u32).to_le_bytes());
        shape
            .iter()
            .rev()
            .for_each(|&extent| self.infos.extend((extent as u64).to_le_bytes()));
        self.infos.extend(kind.to_le_bytes());
        self.infos.extend((self.data.len() as u64).to_le_bytes());
        self.data.extend(bytes);
        self.data.resize(self.data.len().next_multiple_of(32), 0);
    }

    fn bytes(self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend(self.tensor_count.to_le_bytes());
        out.extend(self.field_count.to_le_bytes());
        out.extend(self.fields);
        out.extend(self.infos);
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(self.data);
        out
    }
}

/// llama.cpp's name of a tensor, and the number of heads whose rows it reorders.
fn renamed(name: &str, config: &LlamaConfig) -> (String, Option<usize>) {
    let mut out = name.replace("model.layers.", "blk.").replace("model.", "");
    for (from, to) in [
        ("embed_tokens", "token_embd"),
        ("lm_head", "output"),
        ("post_attention_layernorm", "ffn_norm"),
        ("input_layernorm", "attn_norm"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ] {
        out = out.replace(from, to);
    }
    let out = if out == "norm.weight" {
        "output_norm.weight".to_owned()
    } else {
        out
    };
    let heads = match () {
        () if out.contains("attn_q") => Some(config.num_attention_heads),
        () if out.contains("attn_k") => config.num_key_value_heads,
        () => None,
    };
    (out, heads)
}

/// Rounds the weights of the folder `llama` to 8 bits where rows have whole blocks, and writes them as `model.gguf`,
/// too.
pub(crate) fn quantize(scene: &Scene) {
    let config = LlamaConfig::load(scene.path("llama/config.json")).unwrap();
    let path = scene.path("llama/model.safetensors");
    let (state, mut rounded, mut file) = (StateDict::load(&path).unwrap(), StateDict::new(), Gguf::default());
    for (name, tensor) in state.iter() {
        let (shape, values) = (tensor.shape().to_vec(), tensor.to_vec::<f32>().unwrap());
        let (to, heads) = renamed(name, &config);
        let width = shape[shape.len() - 1];
        let is_packed = shape.len() == 2 && width.is_multiple_of(32);
        let mut rows: Vec<(Vec<f32>, Vec<u8>)> = values
            .chunks(width)
            .map(|row| match is_packed {
                true => quantized(row),
                false => (row.to_vec(), row.iter().flat_map(|x| x.to_le_bytes()).collect()),
            })
            .collect();
        let kept: Vec<f32> = rows.iter().flat_map(|(kept, _)| kept.clone()).collect();
        rounded.insert(name, HostTensor::new(*tensor.shape(), kept).unwrap());
        if let Some(heads) = heads {
            let half = rows.len() / heads / 2;
            let from = |at: usize| at / (2 * half) * 2 * half + at % 2 * half + at % (2 * half) / 2;
            rows = (0..rows.len()).map(|at| rows[from(at)].clone()).collect();
        }
        let bytes: Vec<u8> = rows.into_iter().flat_map(|(_, bytes)| bytes).collect();
        file.tensor(&to, &shape, if is_packed { 8 } else { 0 }, &bytes);
    }
    rounded.save(&path).unwrap();
    for (name, value) in [
        ("block_count", config.num_hidden_layers),
        ("context_length", config.max_position_embeddings),
        ("embedding_length", config.hidden_size),
        ("feed_forward_length", config.intermediate_size),
        ("attention.head_count", config.num_attention_heads),
        ("attention.head_count_kv", config.key_value_heads()),
    ] {
        file.field(&format!("llama.{name}"), &json!(value));
    }
    file.field("llama.attention.layer_norm_rms_epsilon", &json!(config.rms_norm_eps));
    file.field("llama.rope.freq_base", &json!(config.rope_theta));
    file.field("general.architecture", &json!("llama"));
    tokenizer(scene, &mut file);
    scene.write("model.gguf", &file.bytes());
}

/// The folder's tokenizer in GGUF's form.
fn tokenizer(scene: &Scene, file: &mut Gguf) {
    let json: Value = serde_json::from_slice(&scene.read("llama/tokenizer.json")).unwrap();
    let vocabulary = json["model"]["vocab"].as_object().unwrap();
    let mut tokens = vec![""; vocabulary.len()];
    for (token, id) in vocabulary {
        tokens[id.as_u64().unwrap() as usize] = token;
    }
    let pair = |merge: &Value| match merge {
        Value::String(pair) => pair.clone(),
        pair => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
    };
    let merges: Vec<String> = json["model"]["merges"].as_array().unwrap().iter().map(pair).collect();
    let types: Vec<u32> = tokens
        .iter()
        .map(|&token| if token == "<end>" { 3 } else { 1 })
        .collect();
    file.field("tokenizer.ggml.model", &json!("gpt2"));
    file.field("tokenizer.ggml.pre", &json!("gpt-2"));
    file.field("tokenizer.ggml.tokens", &json!(tokens));
    file.field("tokenizer.ggml.merges", &json!(merges));
    file.field("tokenizer.ggml.token_type", &json!(types));
    file.field("tokenizer.ggml.eos_token_id", &json!(0));
    file.field("tokenizer.chat_template", &json!(TEMPLATE));
}

/// The continuation of a text by the folder `llama`, computed with the library.
fn written(scene: &Scene, text: &str, count: usize) -> String {
    let device = Device::new("cpu").unwrap();
    let config = LlamaConfig::load(scene.path("llama/config.json")).unwrap();
    let model = Llama::new(&config, &device).unwrap();
    model.load(scene.path("llama/model.safetensors")).unwrap();
    model.eval();
    let tokenizer = Tokenizer::from_file(scene.path("llama/tokenizer.json")).unwrap();
    let options = GenerateConfig::greedy().eos_token_id(0);
    let texts = Writer::new(&model, &tokenizer).write(&[text], count, &options).unwrap();
    texts[0].strip_prefix(text).unwrap().to_owned()
}

#[test]
fn folders_and_gguf_files_write_and_chat() {
    let scene = scene();
    scene.write("llama/chat_template.jinja", TEMPLATE.as_bytes());
    quantize(&scene);
    let options = "--temperature 0 --tokens 12 --threads 1";
    let wanted = written(&scene, "red is", 12);
    let answer = written(&scene, "user: red<end>assistant:", 12);
    assert_ne!(wanted, answer);
    // Kernels that do not round the activations that packed weights are multiplied with.
    for model in ["llama", "model.gguf --backend cpu:kernels=scalar"] {
        let line = format!("generate {model} {options}");
        let said = scene.command(&line).args(["--prompt", "red is"]).output().unwrap();
        assert_eq!(
            String::from_utf8(said.stdout).unwrap(),
            format!("red is{wanted}\n"),
            "{model}"
        );
        assert_eq!(
            scene.ok(&format!("{line} --prompt red --chat")),
            format!("{answer}\n"),
            "{model}"
        );
    }
    // Sampling: the same for the same seed, and only the likeliest token with any of these options.
    let drawn = |options: &str| {
        scene.ok(&format!(
            "generate llama --prompt red --tokens 12 --threads 1 {options}"
        ))
    };
    let greedy = drawn("--temperature 0");
    assert_eq!(drawn("--seed 3 --temperature 3"), drawn("--seed 3 --temperature 3"));
    assert_ne!(drawn("--seed 3 --temperature 3"), drawn("--seed 4 --temperature 3"));
    for only in ["--top-k 1", "--top-p 0.000001", "--min-p 1"] {
        assert_eq!(drawn(&format!("--temperature 3 {only}")), greedy, "{only}");
    }
    let rarer = drawn("--temperature 0 --repetition-penalty 1e6");
    assert_ne!(rarer, greedy);

    // GPT-2 has no chat template, and other things are no models.
    scene.fails(
        "generate gpt2 --chat",
        &["no template for chats", "chat_template.jinja"],
    );
    for count in ["65", "999999999"] {
        let line = format!("generate llama --prompt red --tokens {count}");
        scene.fails(&line, &["64 positions"]);
        assert_eq!(scene.run(&line).stdout, "", "nothing is written before the error");
    }
    for (options, words) in [
        ("--top-p 0", "above 0, at most 1"),
        ("--min-p 1.5", "from 0 to 1"),
        ("--repetition-penalty 0", "above 0"),
    ] {
        let ended = scene.run(&format!("generate llama --prompt red {options}"));
        assert!(
            ended.code == Some(2) && ended.stderr.contains(words),
            "{}",
            ended.stderr
        );
    }
    let whole = scene.read("model.gguf");
    scene.write("cut.gguf", &whole[..whole.len() / 2]);
    scene.fails("generate cut.gguf", &["cut.gguf"]);
    scene.write("text.gguf", b"no such file");
    scene.fails("generate text.gguf", &["text.gguf"]);
    fs::remove_file(scene.path("llama/tokenizer.json")).unwrap();
    scene.fails("generate llama", &["tokenizer.json"]);
    scene.fails("generate nowhere", &["nowhere is no folder"]);
}

/// Chats with one and two turns.
fn chats(count: usize) -> String {
    let turn = |i: usize| {
        let (thing, kind) = [("red", "colour"), ("two", "number")][i % 2];
        [
            json!({"role": "user", "content": thing}),
            json!({"role": "assistant", "content": kind}),
        ]
    };
    let line = |i: usize| {
        let turns: Vec<Value> = (i..=i + i % 3).flat_map(turn).collect();
        json!({"messages": turns}).to_string() + "\n"
    };
    (0..count).map(line).collect()
}

#[test]
fn answers_of_chats_are_learnt() {
    let scene = scene();
    scene.write("llama/chat_template.jinja", TEMPLATE.as_bytes());
    scene.write("chats.jsonl", chats(40).as_bytes());
    let options = "--lora r=4,alpha=8,targets=q_proj,v_proj,down_proj --lr 0.02 --batch-size 8 --threads 1";
    let out = scene.ok(&format!(
        "finetune llama --data chats.jsonl --epochs 12 --out run {options}"
    ));
    assert!(out.contains("36 examples to learn from, 4 to judge by"), "{out}");
    for (thing, kind) in [("red", "colour"), ("two", "number")] {
        let said = scene.ok(&format!(
            "generate run --chat --prompt {thing} --temperature 0 --tokens 9"
        ));
        assert_eq!(said, format!(" {kind}\n"));
    }
    // Another template changes the chats.
    scene.write(
        "llama/chat_template.jinja",
        format!("{{# another one #}}{TEMPLATE}").as_bytes(),
    );
    scene.fails(
        "train --resume run --epochs 13",
        &["chats.jsonl are not the examples that run began with"],
    );

    // Long chats lose their end, or everything.
    scene.write("llama/chat_template.jinja", TEMPLATE.as_bytes());
    let long = |asked: usize, answered: usize| {
        let turn = |role: &str, count: usize| json!({"role": role, "content": "number ".repeat(count)});
        json!({"messages": [turn("user", asked), turn("assistant", answered)]}).to_string() + "\n"
    };
    let lines = format!("{}{}{}{}", long(1, 90), long(90, 1), chats(20), lines_of_both());
    scene.write("long.jsonl", lines.as_bytes());
    let out = scene.ok("finetune llama --data long.jsonl --lora --context 32 --epochs 1 --out other --threads 1");
    for words in [
        "lines truncated to 32 tokens: ",
        "lines left out, since their prompt alone has 32 tokens or more: 1, the first is line 2",
    ] {
        assert!(out.contains(words), "{out}");
    }
}

/// A prompt next to the chats.
fn lines_of_both() -> &'static str {
    "{\"prompt\": \"red is a\", \"completion\": \" colour\"}\n"
}

#[test]
fn chats_that_teach_nothing_are_named() {
    let scene = scene();
    scene.write("llama/chat_template.jinja", TEMPLATE.as_bytes());
    let user = json!({"role": "user", "content": "red"});
    for (messages, words) in [
        (json!("red"), "its messages are no list"),
        (json!([]), "the assistant says nothing"),
        (json!([user]), "the assistant says nothing"),
        (json!(["red"]), "message 0 has no role"),
        (json!([user, {"content": "colour"}]), "message 1 has no role"),
    ] {
        let line = json!({"messages": messages});
        scene.write("bad.jsonl", format!("{}{line}\n", chats(3)).as_bytes());
        let text = scene.fails(
            "finetune llama --data bad.jsonl --out none",
            &["bad.jsonl, line 4: ", words],
        );
        assert!(text.contains("write each line as"), "{text}");
    }
    scene.write(
        "both.jsonl",
        format!("{}\n", json!({"messages": [user], "prompt": "a"})).as_bytes(),
    );
    scene.fails(
        "finetune llama --data both.jsonl --out none",
        &["both.jsonl, line 1", "messages and a prompt"],
    );
    // A template that raises an error, an invalid one, and none at all.
    scene.write("chats.jsonl", chats(4).as_bytes());
    for (template, words) in [
        ("{{ raise_exception('no such chat') }}", "no such chat"),
        ("{% if %}", "line 1 of the template"),
    ] {
        scene.write("llama/chat_template.jinja", template.as_bytes());
        scene.fails("finetune llama --data chats.jsonl --out none", &[words]);
    }
    fs::remove_file(scene.path("llama/chat_template.jinja")).unwrap();
    scene.fails(
        "finetune llama --data chats.jsonl --out none",
        &["chats.jsonl, line 1", "no template of chats"],
    );
    assert!(!scene.path("none").exists());
    assert!(ChatTemplate::from_folder(scene.path("llama")).unwrap().is_none());
}

#[cfg(feature = "serve")]
#[test]
fn language_models_are_served() {
    use crate::serve::Served;
    let scene = scene();
    scene.write("llama/chat_template.jinja", TEMPLATE.as_bytes());
    quantize(&scene);
    scene.ok("finetune llama --data lines.jsonl --lora r=2 --lr 0.02 --epochs 2 --out run --threads 1");
    fs::create_dir(scene.path("merged")).unwrap();
    scene.write("merged/config.json", &scene.read("llama/config.json"));
    scene.write("merged/tokenizer.json", &scene.read("llama/tokenizer.json"));
    scene.ok("merge run --out merged/model.safetensors");
    let served = Served::new(&scene, "llama file=model.gguf gpt2 run merged --threads 2");
    let (status, models) = served.ask("GET", "/v1/models", "");
    let names: Vec<&str> = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    assert_eq!((status, names), (200, vec!["file", "gpt2", "llama", "merged", "run"]));
    let text = |model: &str| {
        let asked = json!({"model": model, "prompt": "red is", "max_tokens": 12, "temperature": 0});
        let (status, answer) = served.ask("POST", "/v1/completions", &asked.to_string());
        assert_eq!(status, 200, "{answer}");
        answer["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    let wanted = written(&scene, "red is", 12);
    assert_eq!(text("llama"), wanted);
    let generated = |arguments: &[&str]| {
        let mut command = scene.command("generate model.gguf --temperature 0 --tokens 12 --threads 2 --prompt");
        String::from_utf8(command.args(arguments).output().unwrap().stdout).unwrap()
    };
    assert_eq!(format!("red is{}\n", text("file")), generated(&["red is"]));
    assert_eq!(text("run"), text("merged"));
    assert_ne!(text("run"), wanted);
    let asked =
        json!({"model": "file", "messages": [{"role": "user", "content": "red"}], "max_tokens": 12, "temperature": 0});
    let (_, answer) = served.ask("POST", "/v1/chat/completions", &asked.to_string());
    let said = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(format!("{said}\n"), generated(&["red", "--chat"]), "{answer}");
    let asked = json!({"model": "gpt2", "messages": [{"role": "user", "content": "red"}]});
    let (status, answer) = served.ask("POST", "/v1/chat/completions", &asked.to_string());
    assert!(
        status == 400 && answer["error"]["message"].to_string().contains("no template"),
        "{answer}"
    );
    assert_eq!(served.end(), Some(0));
    #[cfg(feature = "rten")]
    scene.fails("serve model.gguf --engine rten --port 0", &["cannot write texts"]);
    let whole = scene.read("model.gguf");
    scene.write("cut.gguf", &whole[..whole.len() / 2]);
    scene.fails("serve cut.gguf --port 0", &["cut.gguf"]);
}
