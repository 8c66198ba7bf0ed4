//! `polygrad finetune`: trains a pretrained model, or an adapter for it, to write from prompts and completions or
//! chats, to classify texts, or to compute their vectors.

mod args;
mod base;
#[cfg(feature = "serve")]
pub(crate) mod encoder;
pub(crate) mod eval;
pub(crate) mod generate;
mod gguf;
mod goal;
#[cfg(feature = "onnx")]
mod graph;
mod jsonl;
pub(crate) mod language;
mod lines;
pub(crate) mod merge;
mod model;
mod prompts;
mod texts;

use std::path::{Path, PathBuf};

use polygrad::data::DataLoader;
use polygrad::nn::lora::{self, LoraConfig};
use polygrad::nn::{Module, Trained as OnlyTrained};
use polygrad::optim::AdamConfig;
use polygrad::text::ChatTemplate;
use polygrad::train::{Accuracy, Ended, Perplexity, Row, RunFolder, Trainer, TrainerConfig};
use polygrad::{Device, Error, ErrorKind};
use serde::{Deserialize, Serialize};

use crate::backend;
use crate::failure::{Failure, Result, Shown};
use crate::kind::Kind;
use crate::progress::{grouped, say, short};
use crate::run::config::Training;
use crate::task::{Batch, Batches, RunSettings, Task, of_examples};
use crate::team::Team;
use crate::train::optimizer::schedule;
use crate::train::resumed::Fixed;
use crate::train::session::{Session, Trained};
use crate::trained;

use args::Lora;
pub(crate) use args::TrainArgs;
use base::{Base, HEAD};
use goal::{Goal, Named};
use lines::Lines;
use model::Tuned;

/// The adapter's name in the model; files do not contain it.
const ADAPTER: &str = "default";

/// The settings of a run, as stored in `config.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    #[serde(flatten)]
    training: Training,
    /// The folder or file of the base, as an absolute path.
    #[serde(with = "crate::run::any_path")]
    base: Option<PathBuf>,
    /// A digest of its weights, settings and tokenizer.
    base_digest: String,
    #[serde(with = "crate::run::any_path")]
    data: Option<PathBuf>,
    #[serde(with = "crate::run::any_path")]
    validation: Option<PathBuf>,
    data_digest: String,
    /// The most tokens of an example.
    context: usize,
    lora: Option<Lora>,
    /// The goal of the training.
    #[serde(default, skip_serializing_if = "Goal::is_text")]
    goal: Goal,
    /// Whether examples share rows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pack: bool,
    /// The number of evaluations in a row without an improvement that ends the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    patience: Option<usize>,
}

impl Settings {
    fn base(&self) -> Result<Base> {
        let folder = self.base.as_deref();
        let folder = folder
            .ok_or_else(|| Failure::new("no model is named").fix("give the folder of one, or its GGUF or ONNX file"))?;
        // A new run has no digest yet.
        if !self.base_digest.is_empty() && !folder.exists() {
            let what = format!("{} is gone, which the run began with", folder.shown());
            return Err(
                Failure::new(what).fix("bring it back, or say where it is now: polygrad finetune PLACE --resume RUN")
            );
        }
        Base::open(folder, &self.goal)
    }

    /// Attaches the adapter's layers to a model that begins as `base`, and unfreezes a classification head.
    fn attach(&self, model: &mut Tuned, adapter: &LoraConfig, base: &Base) -> Result<()> {
        self.try_attach(model, adapter)
            .map_err(|e| match (e.kind(), base.targets()) {
                (ErrorKind::InvalidArgument | ErrorKind::Unsupported, own @ [_, ..]) => {
                    let own = own.join(",");
                    Failure::new(e.message()).fix(format!("name layers of this model, as in --lora targets={own}"))
                }
                _ => e.into(),
            })
    }

    fn try_attach(&self, model: &mut Tuned, adapter: &LoraConfig) -> polygrad::Result<()> {
        #[cfg(feature = "onnx")]
        if let Tuned::Graph(model) = model {
            return model.attach(adapter);
        }
        let layers = lora::attach(model, ADAPTER, adapter)?;
        if let Tuned::Classifier(_) = model {
            if layers.iter().any(|layer| layer == HEAD) {
                let error = Error::unsupported(format!("{HEAD} is trained as a whole, and cannot have an adapter"));
                return Err(error.with_op("lora"));
            }
            model.unfreeze([HEAD])?;
        }
        Ok(())
    }

    fn data(&self) -> Result<&Path> {
        let data = self.data.as_deref();
        data.ok_or_else(|| Failure::new("no examples are named").fix("give a file of them with --data"))
    }

    fn other_base(&self, run: &str) -> Failure {
        let base = self.base.as_deref().unwrap_or(Path::new("")).shown();
        Failure::new(format!("{base} is not the model that {run} began with")).fix("bring it back, or start a new run")
    }

    fn adapter(&self, lora: &Lora, base: &Base) -> LoraConfig {
        let usual = || base.targets().iter().map(|name| (*name).to_owned()).collect();
        let targets: Vec<String> = if lora.targets.is_empty() {
            usual()
        } else {
            lora.targets.clone()
        };
        let config = LoraConfig::new(lora.r)
            .alpha(lora.alpha)
            .dropout(lora.dropout)
            .targets(targets)
            .dora(lora.dora)
            .rank_stabilized(lora.rslora);
        match self.base.as_deref().and_then(Path::to_str) {
            Some(path) => config.base(path),
            None => config,
        }
    }
}

impl RunSettings for Settings {
    type Model = OnlyTrained<Tuned>;

    const KIND: Kind = Kind::Finetune;
    const MAY_CHANGE: &'static [&'static str] = &["epochs", "base", "data", "validation"];

    of_examples!(RunSettings);

    fn check(&self) -> std::result::Result<(), String> {
        self.training.check()?;
        if self.context < 2 {
            return Err("context: an example has at least 2 tokens".to_owned());
        }
        if self.pack && self.goal != Goal::Text {
            return Err(format!("pack: texts to {} have a row each", self.goal.name()));
        }
        match (&self.goal, self.training.batch_size) {
            (Goal::Embed, 1) => {
                Err("batch_size: an anchor is told from the others of its batch, at least 2".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn file(&self, folder: &RunFolder) -> PathBuf {
        match self.patience {
            Some(_) => folder.best(),
            None => folder.model(),
        }
    }

    /// The base, with a new adapter that does not change it yet or, without one, with all weights trainable.
    fn model(&self, device: &Device) -> Result<Self::Model> {
        let base = Self::base(self)?;
        if base.digest()? != self.base_digest {
            return Err(self.other_base("this run"));
        }
        let mut model = base.model(device, &self.goal)?;
        if let Some(lora) = &self.lora {
            self.attach(&mut model, &self.adapter(lora, &base), &base)?;
        }
        Ok(OnlyTrained::new(model))
    }
}

impl Task for Settings {
    type Args = TrainArgs;
    type Data = Lines;

    of_examples!(Task);

    fn new(args: &TrainArgs) -> Result<Self> {
        let place = |path: &Option<PathBuf>| path.as_deref().map(crate::train::absolute).transpose();
        let goal = Goal::from(args.task.unwrap_or(Named::Text));
        let defaults = goal.defaults(args.lora.is_some());
        let mut settings = Self {
            training: Training::new(Self::KIND, &args.every, &args.examples, defaults),
            base: place(&args.base)?,
            base_digest: String::new(),
            data: place(&args.data)?,
            validation: place(&args.validation)?,
            data_digest: String::new(),
            context: 0,
            lora: args.lora.clone(),
            goal,
            pack: args.pack,
            patience: args.patience,
        };
        let positions = Self::base(&settings)?.sizes().0;
        settings.context = args.context.unwrap_or(positions.min(512));
        match settings.context > positions {
            true => Err(Failure::new(format!(
                "--context {} is more than the {positions} tokens of the model",
                settings.context
            ))
            .fix("give a smaller one")),
            false => Ok(settings),
        }
    }

    fn title(&self) -> Vec<String> {
        let name = self.base.as_deref().and_then(Path::file_name);
        let name = name.map(|name| name.to_string_lossy().into_owned());
        ["finetune".to_owned()].into_iter().chain(name).collect()
    }

    fn load(&self) -> Result<Lines> {
        let base = Self::base(self)?;
        base.weights()?;
        if self.lora.is_none() && base.is_quantized()? {
            let what = format!("{} has quantized weights, which cannot be trained", base.path().shown());
            return Err(Failure::new(what).fix("train an adapter beside them with --lora"));
        }
        let device = || backend::open(&self.training.base.backend, self.training.base.threads);
        if let Some(lora) = &self.lora {
            // Layer names are known without the weights.
            let device = device()?;
            let names = self.adapter(lora, &base);
            let names = if base.is_graph() { names } else { names.dora(false) };
            let mut model = base.shell(&device, &self.goal)?;
            self.attach(&mut model, &names, &base)?;
        } else if base.is_graph() {
            // Its inputs and outputs are checked before the examples are read.
            base.shell(&device()?, &self.goal)?;
        }
        let lines = Lines::load(self, &base)?;
        if let (Goal::Classify(_), true) = (&self.goal, base.is_graph()) {
            // The classes of a graph stay.
            base.shell(&device()?, &Goal::Classify(lines.labels.clone()))?;
        }
        Ok(lines)
    }

    fn describe(&mut self, data: &Lines) -> Result<()> {
        self.base_digest = Self::base(self)?.digest()?;
        if let Goal::Classify(labels) = &mut self.goal {
            labels.clone_from(&data.labels);
        }
        let mut files: Vec<PathBuf> = self.data.iter().chain(&self.validation).cloned().collect();
        if let Some(base) = self.base.as_deref().filter(|_| data.has_chats) {
            // The files of the chat template.
            let template = ChatTemplate::FILES.map(|name| base.join(name));
            files.extend(template.into_iter().filter(|path| path.is_file()));
        }
        self.data_digest = base::digest(&files)?;
        Ok(())
    }

    fn other_data(&self, found: &Self, path: &Path) -> Failure {
        match found.base_digest == self.base_digest {
            true => Failure::new(format!(
                "{} are not the examples that {} began with",
                self.place(),
                path.shown()
            ))
            .fix("bring them back, or start a new run"),
            false => self.other_base(&path.shown()),
        }
    }

    fn train(&self, data: &Lines, device: &Device, session: Session<'_>) -> Result<Trained> {
        let (path, first) = (session.folder.path().to_owned(), session.team.rank() == 0);
        let trained = session.fit(self, data, device)?;
        if first
            && self.patience.is_some()
            && let Some(best) = trained.summary.best
        {
            say(&format!(
                "the run's model is the one with the best validation loss, {best:.4}"
            ));
        }
        if first && self.lora.is_some() && trained.summary.ended != Ended::Stopped {
            let model = trained::load::<Self>(&path, None, None)?.model;
            match &*model {
                #[cfg(feature = "onnx")]
                Tuned::Graph(model) => model.save_adapter(self.base.as_deref(), &path.join("adapter"))?,
                model => lora::save(model, ADAPTER, path.join("adapter"))?,
            }
            say(&format!("adapter for PEFT: {}", path.join("adapter").shown()));
        }
        Ok(trained)
    }

    fn metrics(&self, _device: &Device) -> Result<Vec<String>> {
        let name = match self.goal {
            Goal::Text => "perplexity",
            Goal::Classify(_) | Goal::Embed => "accuracy",
        };
        Ok(vec![name.to_owned()])
    }

    fn next(&self, path: &str) -> Vec<String> {
        let first = match self.goal {
            Goal::Text => format!("polygrad generate {path} --prompt \"To be\""),
            Goal::Classify(_) | Goal::Embed => format!("polygrad eval {path}"),
        };
        vec![first, format!("polygrad merge {path} --out FOLDER")]
    }
}

impl Batches for Settings {
    of_examples!(Batches);

    const JUDGED_BY: &'static str = "validation";

    fn resume(&mut self, args: &TrainArgs, fixed: &mut Fixed) -> Result<()> {
        let moved = |own: &mut Option<PathBuf>, given: &Option<PathBuf>| -> Result<()> {
            if let Some(given) = given {
                *own = Some(crate::train::absolute(given)?);
            }
            Ok(())
        };
        moved(&mut self.base, &args.base)?;
        moved(&mut self.data, &args.data)?;
        moved(&mut self.validation, &args.validation)?;
        fixed.option(
            "--task",
            args.task.map(|task| Goal::from(task).name()),
            self.goal.name(),
        );
        fixed.option("--context", args.context, self.context);
        fixed.option("--pack", args.pack.then_some(true), self.pack);
        let patience = self.patience.map_or("left out".to_owned(), |count| count.to_string());
        fixed.option("--patience", args.patience.map(|count| count.to_string()), patience);
        let shown = |lora: &Option<Lora>| lora.as_ref().map_or("left out".to_owned(), ToString::to_string);
        fixed.option("--lora", args.lora.as_ref().map(ToString::to_string), shown(&self.lora));
        Ok(())
    }

    fn dataset(&self) -> &str {
        Self::KIND.name()
    }

    fn place(&self) -> String {
        self.data.as_deref().unwrap_or(Path::new("")).shown()
    }

    fn loaders(&self, data: &Lines, device: &Device) -> Result<(DataLoader<Batch>, DataLoader<Batch>)> {
        data.loaders(self, device)
    }

    fn about(&self, data: &Lines, model: &Self::Model, device: &Device) -> Vec<String> {
        let [train, validation] = data.counts;
        let trained = Module::num_parameters(model);
        // Frozen weights that stay packed, or are constants of a graph, are no parameters of the model.
        let packed = match &**model {
            #[cfg(feature = "onnx")]
            Tuned::Graph(model) => model.num_frozen(),
            _ => Self::base(self).map_or(0, |base| {
                let count = base.gguf().map(gguf::Gguf::num_packed);
                count.transpose().ok().flatten().unwrap_or(0)
            }),
        };
        let all = Module::num_parameters(&**model) + packed;
        let line = format!(
            "{} examples to learn from, {} to judge by; {} of {} parameters are trained, on {device}",
            grouped(train as u64),
            grouped(validation as u64),
            grouped(trained as u64),
            grouped(all as u64),
        );
        let rows = self.pack.then(|| {
            let rows = grouped(data.rows() as u64);
            format!("packed into {rows} rows of up to {} tokens to learn from", data.width)
        });
        std::iter::once(line)
            .chain(rows)
            .chain(self.classes())
            .chain(data.cuts.iter().cloned())
            .collect()
    }

    fn trainer(
        &self,
        model: Self::Model,
        steps: u64,
        options: TrainerConfig,
        team: &Team,
    ) -> Result<Trainer<Self::Model, Batch>> {
        let options = options.schedule(schedule(steps)).clip_grad_norm(1.0);
        let options = match self.goal {
            Goal::Text => options.metric(Perplexity::new()),
            // For vectors: how often an anchor's own text is the nearest.
            Goal::Classify(_) | Goal::Embed => options.metric(Accuracy::new()),
        };
        let options = match self.patience {
            Some(count) => options.early_stopping(count as u64),
            None => options,
        };
        let adam = AdamConfig::adamw(self.training.lr).weight_decay(0.0);
        let optimizer = team.optimizer(Module::parameters(&model), move |params| adam.build(params))?;
        let rows = self.rows();
        let loss = move |model: &OnlyTrained<Tuned>, batch: &Batch| model.step(batch, rows);
        Ok(options.build_captured(model, optimizer, loss)?)
    }

    fn result(&self, last: &Row) -> String {
        format!("validation {}", self.figure(last.loss, &last.metrics))
    }
}

impl Settings {
    /// The most texts that are converted to vectors at a time: a batch of anchors, each with two more texts.
    fn rows(&self) -> usize {
        3 * self.training.batch_size
    }

    /// The summary of an evaluation.
    fn figure(&self, loss: f64, metrics: &[f64]) -> String {
        let metric = metrics.first().copied().unwrap_or(f64::NAN);
        match self.goal {
            Goal::Text => {
                // From the perplexity, which weighs all tokens equally: the mean loss is over batches.
                let loss = short((metric.ln() * 1e4).round() / 1e4);
                format!("loss {loss} nats a token of the completions")
            }
            Goal::Classify(_) => format!("accuracy {:.2} %, loss {loss:.4}", 100.0 * metric),
            Goal::Embed => format!("recall@1 {:.2} %, loss {loss:.4}", 100.0 * metric),
        }
    }

    /// Describes the classes and the head that is used.
    fn classes(&self) -> Option<String> {
        let Goal::Classify(labels) = &self.goal else {
            return None;
        };
        let is_own = Self::base(self).is_ok_and(|base| base.labels() == *labels);
        let head = if is_own { "the head of the base" } else { "a new head" };
        Some(format!("{head} for {} classes: {}", labels.len(), labels.join(", ")))
    }
}
