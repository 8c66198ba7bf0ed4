//! From paths to served models.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polygrad::Device;
use polygrad::backend::printable;
use polygrad_onnx::{Engine, OnnxModel, Options};
use polygrad_serve::{Files, Model, OnnxService, Repository, Settings, Signature, Source, hub};
use serde_json::Value;

use super::args::Serve;
use crate::backend;
use crate::failure::{Failure, Result, Shown};
use crate::finetune::encoder::{self, TextModel};
use crate::finetune::language::Language;
use crate::kind::Kind;
use crate::onnx::export;
use crate::run;

/// The paths that `polygrad serve` accepts, for messages.
const TAKEN: &str = "give an ONNX file, a GGUF file, a folder that `polygrad train` or `finetune` left, or one with \
                     config.json and weights";

/// How models are loaded and served.
#[derive(Clone)]
pub(super) struct Loading {
    pub(super) device: Device,
    /// The name of the device, and its threads.
    backend: (String, Option<usize>),
    options: Options,
    as_ids: bool,
    settings: Settings,
}

/// The contents of a path.
#[derive(Clone)]
enum Found {
    Onnx(PathBuf),
    Gguf(PathBuf),
    Run(PathBuf),
    Hub(PathBuf),
}

impl Loading {
    /// # Errors
    /// An unknown device or engine.
    pub(super) fn new(args: &Serve) -> Result<Self> {
        let engine: Engine = args.engine.parse()?;
        engine.available()?;
        // With more threads, the models' threads would wait for each other on the device.
        let threads = matches!(args.backend.as_str(), "cpu" | "compute-cpu").then_some(1);
        let options = Options {
            engine,
            threads: Some(1),
            max_run_bytes: args.max_memory,
            ..Options::default()
        };
        Ok(Self {
            device: backend::open(&args.backend, threads)?,
            backend: (args.backend.clone(), threads),
            options,
            as_ids: args.ids,
            settings: Settings {
                max_batch_size: args.max_batch,
                max_queue: args.max_queue,
                max_sequence_bytes: args.max_sequence_memory,
                timeout: Some(args.timeout).filter(|timeout| !timeout.is_zero()),
                ..Settings::default()
            },
        })
    }

    /// Adds a model of the command line, and returns its name.
    ///
    /// # Errors
    /// A path that cannot be served, or two models of one name.
    pub(super) fn add_named(&self, text: &str, repository: &Repository) -> Result<String> {
        let (name, path) = named(text)?;
        let source = self.source(&path)?;
        let added = repository.add(&name, 1, source, self.settings.clone());
        added.map_err(|error| match error.hint() {
            Some(_) => Failure::from(error),
            None => Failure::from(error).fix(format!("call one of them otherwise: NAME={}", path.shown())),
        })?;
        Ok(name)
    }

    /// Adds the new models of a folder. Returns the reasons why others cannot be added, and what else is ignored.
    pub(super) fn add_all(&self, folder: &Path, repository: &Repository) -> Vec<Failure> {
        let known: BTreeSet<(String, u64)> = repository
            .index()
            .into_iter()
            .map(|(name, version, _)| (name, version))
            .collect();
        let (versions, mut failures) = versions(folder);
        for (name, version, path) in versions {
            if known.contains(&(name.clone(), version)) {
                continue;
            }
            let added = self
                .source(&path)
                .and_then(|source| Ok(repository.add(&name, version, source, self.settings.clone())?));
            failures.extend(added.err());
        }
        failures
    }

    fn source(&self, path: &Path) -> Result<impl Source + use<>> {
        let found = find(path)?;
        let watched = match &found {
            Found::Onnx(file) => vec![file.clone(), beside(file)],
            Found::Gguf(file) => vec![file.clone()],
            Found::Run(folder) => ["config.json", "model.safetensors"]
                .map(|name| folder.join(name))
                .to_vec(),
            Found::Hub(folder) => vec![folder.clone(), folder.join("1_Pooling")],
        };
        let own = self.clone();
        Ok(Files::new(watched, move || own.load(&found)))
    }

    fn load(&self, found: &Found) -> polygrad::Result<Arc<dyn Model>> {
        let served = |model| -> polygrad::Result<Arc<dyn Model>> { Ok(Arc::new(OnnxService::new(model)?)) };
        let model = match found {
            Found::Onnx(file) => served(OnnxModel::load_with(file, &self.device, self.options)?),
            Found::Gguf(path) => self.language(path).map_err(polygrad::Error::from),
            Found::Run(path) if run::kind(path)? == Kind::Finetune => Ok(self.tuned(path)?),
            Found::Run(folder) => served(OnnxModel::from_graph(
                &export::recorded(folder)?,
                &self.device,
                self.options,
            )?),
            Found::Hub(folder) => hub::load(folder, &self.device, self.options, self.as_ids),
        };
        let model: Arc<dyn Model> = Arc::new(Served(model?));
        // A server only needs as much memory again when it loads the next model.
        model.trim();
        Ok(model)
    }

    /// What a run of `finetune` has learnt, with the adapter in the weights.
    fn tuned(&self, path: &Path) -> Result<Arc<dyn Model>> {
        let (backend, threads) = &self.backend;
        let Some((model, tokenizer)) = encoder::of_run(path, backend, *threads)? else {
            return self.language(path);
        };
        let tokenizer = Some(tokenizer).filter(|_| !self.as_ids);
        let (device, options) = (&self.device, self.options);
        Ok(match model {
            TextModel::Classifier(model) => hub::classifying(&model, tokenizer, device, options)?,
            TextModel::Encoder(bert, pooling) => hub::embedding(&bert, &pooling, tokenizer, device, options)?,
            TextModel::Graph(graph, texts) => hub::of_graph(*graph, texts, tokenizer, device, options)?,
        })
    }

    /// A language model that the crate `polygrad_serve` does not read by itself.
    fn language(&self, path: &Path) -> Result<Arc<dyn Model>> {
        if self.options.engine != Engine::Native {
            let text = format!("the engine {} cannot write texts", self.options.engine);
            return Err(Failure::new(text).fix("leave --engine out"));
        }
        let (backend, threads) = &self.backend;
        let Language { model, format } = Language::open(path, Some(backend), *threads)?;
        Ok(hub::writing(model, format, self.options.max_run_bytes)?)
    }
}

/// A model whose hints are for the command line.
struct Served(Arc<dyn Model>);

impl Model for Served {
    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn run(&self, inputs: &[polygrad_serve::Value]) -> polygrad::Result<Vec<polygrad_serve::Value>> {
        self.0.run(inputs).map_err(|error| match error.hint() {
            Some(hint) if hint.contains("Options::max_") && hint.contains("_bytes") => {
                let fix = "ask for less at a time; --max-memory of `polygrad serve` is the limit";
                Failure::from(error).fix(fix).into()
            }
            _ => error,
        })
    }

    fn language(&self) -> Option<&dyn polygrad_serve::Language> {
        self.0.language()
    }

    fn encoder(&self) -> Option<&dyn polygrad_serve::Encoder> {
        self.0.encoder()
    }

    fn apart(&self) -> Option<&str> {
        self.0.apart()
    }

    fn trim(&self) {
        #[cfg(feature = "cpu")]
        polygrad::cpu::memory::flush();
        // The allocator returns freed memory only when a large block is next allocated and freed, which an idle server
        // never does.
        drop(std::hint::black_box(Vec::<u8>::with_capacity(64 << 20)));
    }

    fn platform(&self) -> &str {
        self.0.platform()
    }

    fn metadata(&self) -> &[(String, String)] {
        self.0.metadata()
    }
}

fn find(path: &Path) -> Result<Found> {
    if path.is_file() {
        let is_gguf = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf"));
        let found = if is_gguf { Found::Gguf } else { Found::Onnx };
        return Ok(found(path.to_owned()));
    }
    if !path.is_dir() {
        return Err(Failure::new(format!("there is no {}", path.shown())).fix("check the path for a typing error"));
    }
    let file = path.join("model.onnx");
    if file.is_file() {
        return Ok(Found::Onnx(file));
    }
    let file = path.join("model.gguf");
    if file.is_file() {
        return Ok(Found::Gguf(file));
    }
    let Ok(config) = fs::read(path.join("config.json")) else {
        return Err(Failure::new(format!("{} holds no model", path.shown())).fix(TAKEN));
    };
    let config = serde_json::from_slice::<Value>(&config).map_err(|error| {
        Failure::new(format!("{} is damaged: {error}", path.join("config.json").shown()))
            .fix("get the file again from where the folder came from: the Hub, or `polygrad train`")
    })?;
    Ok(match config.get("model_type") {
        Some(_) => Found::Hub(path.to_owned()),
        None => Found::Run(path.to_owned()),
    })
}

/// The path to which exporters write weights that do not fit into the file.
fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".data");
    name.into()
}

/// `NAME=PATH`, or a path from which the name is derived.
fn named(text: &str) -> Result<(String, PathBuf)> {
    if let Some((name, path)) = text.split_once('=')
        && !Path::new(text).exists()
    {
        return match path.is_empty() {
            true => Err(Failure::new(format!("{} names no model", printable(text))).fix("write NAME=PATH")),
            false => Ok((name.to_owned(), path.into())),
        };
    }
    let path = PathBuf::from(text);
    let whole = path
        .canonicalize()
        .map_err(|error| Failure::io("read", &path, &error))?;
    let name = if whole.is_dir() {
        whole.file_name()
    } else {
        whole.file_stem()
    };
    let name = name.unwrap_or_default().to_string_lossy();
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "._-".contains(c) {
            c
        } else {
            '-'
        }
    };
    let name: String = name.trim_start_matches('.').chars().map(plain).collect();
    match name.is_empty() {
        true => Err(Failure::new(format!("{text} gives no name")).fix(format!("name it: NAME={text}"))),
        false => Ok((name, path)),
    }
}

/// The `NAME/VERSION` entries of a folder, in order, and errors for everything else.
fn versions(folder: &Path) -> (Vec<(String, u64, PathBuf)>, Vec<Failure>) {
    let (mut found, mut others) = (Vec::new(), Vec::new());
    let other = |path: &Path, why: &str| {
        Failure::new(format!("{} is passed over: {why}", path.shown())).fix("put models into NAME/VERSION/model.onnx")
    };
    for model in entries(folder) {
        if !model.is_dir() {
            others.push(other(&model, "it is no folder of a model's versions"));
            continue;
        }
        let (name, before) = (file_name(&model), found.len());
        for version in entries(&model).filter(|path| path.is_dir()) {
            match file_name(&version).parse() {
                Ok(number @ 1..) => found.push((name.clone(), number, version)),
                _ => others.push(other(&version, "versions are numbers from 1")),
            }
        }
        if found.len() == before {
            others.push(other(&model, "it has no folder of a version, such as 1"));
        }
    }
    found.sort();
    (found, others)
}

/// The entries of a folder that are not hidden, in order.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.into_iter().filter(|path| !file_name(path).starts_with('.'))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
