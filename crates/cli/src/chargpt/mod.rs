//! `polygrad train chargpt`: a GPT that learns to continue a text, character by character.

mod args;
#[cfg(feature = "onnx")]
mod export;
pub(crate) mod generate;
mod settings;
mod text;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use polygrad::Device;
use polygrad::data::DataLoader;
use polygrad::nn::Module;
use polygrad::nn::loss::cross_entropy;
use polygrad::nn::models::Gpt2;
use polygrad::optim::AdamConfig;
use polygrad::train::{Perplexity, Row, Step, Trainer, TrainerConfig};

use crate::failure::{Failure, Result, Shown};
use crate::kind::Kind;
use crate::progress::{grouped, short};
use crate::run::config::Training;
use crate::task::{Batch, Batches, RunSettings, Task, of_examples};
use crate::team::Team;
use crate::train::optimizer::schedule;
use crate::train::resumed::Fixed;
use crate::train::session::{Session, Trained};

pub(crate) use args::TrainArgs;
pub(crate) use settings::Settings;
use text::Text;

impl RunSettings for Settings {
    type Model = Gpt2;

    const KIND: Kind = Kind::Chargpt;
    const MAY_CHANGE: &'static [&'static str] = &["epochs"];

    of_examples!(RunSettings);

    fn check(&self) -> std::result::Result<(), String> {
        self.training.check()?;
        // Invalid sizes must not lead to allocations.
        const SIZES: RangeInclusive<usize> = 1..=1 << 12;
        let sizes = [
            ("context", self.context),
            ("layers", self.layers),
            ("heads", self.heads),
            ("width", self.width),
        ];
        if let Some((name, size)) = sizes.iter().find(|(_, size)| !SIZES.contains(size)) {
            return Err(format!("{name}: {size} is not {} to {}", SIZES.start(), SIZES.end()));
        }
        if !self.width.is_multiple_of(self.heads) {
            return Err(format!(
                "width: {} is no multiple of the {} heads",
                self.width, self.heads
            ));
        }
        match self.characters.is_empty() {
            true => Err("characters: there are none".to_owned()),
            false => Ok(()),
        }
    }

    fn model(&self, device: &Device) -> Result<Gpt2> {
        Ok(Gpt2::new(&self.config(), device)?)
    }
}

impl Task for Settings {
    type Args = TrainArgs;
    type Data = Text;

    of_examples!(Task);

    fn new(args: &TrainArgs) -> Result<Self> {
        let text = args
            .text
            .as_deref()
            .map(|path| path.canonicalize().map_err(|e| Failure::io("read", path, &e)));
        Ok(Self {
            training: Training::new(Self::KIND, &args.every, &args.examples, (5, 32, 0.002)),
            text: text.transpose()?,
            characters: String::new(),
            context: 128,
            layers: 4,
            heads: 4,
            width: 144,
        })
    }

    fn title(&self) -> Vec<String> {
        vec![self.dataset().to_owned()]
    }

    fn load(&self) -> Result<Text> {
        Text::load(self.text.as_deref())
    }

    fn describe(&mut self, data: &Text) -> Result<()> {
        data.characters().clone_into(&mut self.characters);
        Ok(())
    }

    fn other_data(&self, _found: &Self, path: &Path) -> Failure {
        Failure::new(format!("this is not the text that {} was trained on", path.shown()))
            .fix("bring it back, or start a new run")
    }

    fn train(&self, data: &Self::Data, device: &Device, session: Session<'_>) -> Result<Trained> {
        session.fit(self, data, device)
    }

    fn metrics(&self, _device: &Device) -> Result<Vec<String>> {
        Ok(vec!["perplexity".to_owned()])
    }

    fn next(&self, path: &str) -> Vec<String> {
        vec![format!("polygrad generate {path} --prompt \"To be\"")]
    }
}

impl Batches for Settings {
    of_examples!(Batches);

    const JUDGED_BY: &'static str = "validation";

    fn resume(&mut self, args: &TrainArgs, fixed: &mut Fixed) -> Result<()> {
        let text = args
            .text
            .as_deref()
            .map(|text| text.canonicalize().unwrap_or_else(|_| text.to_owned()));
        fixed.option("--text", text.map(|text| text.shown()), self.place());
        Ok(())
    }

    fn dataset(&self) -> &str {
        Self::KIND.name()
    }

    fn place(&self) -> String {
        let path: Option<&PathBuf> = self.text.as_ref();
        path.map_or_else(|| "the plays".to_owned(), |path| path.shown())
    }

    fn loaders(&self, data: &Text, device: &Device) -> Result<(DataLoader<Batch>, DataLoader<Batch>)> {
        data.loaders(self, device)
    }

    fn about(&self, data: &Text, model: &Gpt2, device: &Device) -> Vec<String> {
        vec![format!(
            "{} characters of {} kinds; {} parameters, {} characters of context, on {device}",
            grouped(data.len() as u64),
            self.characters.chars().count(),
            grouped(model.num_parameters() as u64),
            self.context
        )]
    }

    fn trainer(&self, model: Gpt2, steps: u64, options: TrainerConfig, team: &Team) -> Result<Trainer<Gpt2, Batch>> {
        let options = options
            .schedule(schedule(steps))
            .clip_grad_norm(1.0)
            .metric(Perplexity::new());
        let adam = AdamConfig::adamw(self.training.lr).betas(0.9, 0.99).weight_decay(0.1);
        let optimizer = team.optimizer(model.parameters(), move |params| adam.build(params))?;
        let loss = |model: &Gpt2, (x, y): &Batch| {
            let logits = model.forward(x)?.flatten(0, 1)?;
            let targets = y.flatten(0, 1)?;
            Ok(Step::new(cross_entropy(&logits, &targets)?).outputs(logits, &targets))
        };
        Ok(options.build_captured(model, optimizer, loss)?)
    }

    fn result(&self, last: &Row) -> String {
        let loss = short((last.loss * 1e4).round() / 1e4);
        format!("validation loss {loss} nats a character")
    }
}
