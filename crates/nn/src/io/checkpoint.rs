//! Checkpoints: everything that training needs to continue as if it had never stopped.

use std::collections::BTreeMap;
use std::path::Path;

use polygrad_core::printable;
use polygrad_tensor::{Backend, Error, ErrorKind, GeneratorState, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::open_file;
use super::safetensors::{SafetensorsHeader, in_file};
use crate::optim::Optimizer;
use crate::{Module, StateDict};

/// The key, in the file's header, of a checkpoint's parts that are not tensors.
const KEY: &str = "polygrad";
const VERSION: u32 = 1;
const MODEL: &str = "model.";
const OPTIMIZER: &str = "optimizer.";
const PART: &str = "part.";

/// The state of a training run: model, optimizer, step, random numbers, further parts, and the user's own data. One
/// safetensors file, in which the model's names begin with `model.`, the optimizer's with `optimizer.`, and those of a
/// part with `part.` and its name.
///
/// ```no_run
/// # use polygrad_nn::{Checkpoint, Linear, Module};
/// # use polygrad_nn::optim::{Adam, Optimizer, PlateauMode, ReduceLROnPlateauConfig};
/// # use polygrad_tensor::{Backend, Device, Result};
/// # fn run<B: Backend>(device: &Device<B>) -> Result<()> {
/// let model = Linear::new(2, 1, device)?;
/// let mut optimizer = Adam::new(model.parameters(), 1e-3)?;
/// let mut plateau = ReduceLROnPlateauConfig::new(PlateauMode::Min).build()?;
/// let checkpoint = Checkpoint::new(&model, &optimizer, 100)?.with_part("plateau", plateau.state_dict());
/// checkpoint.save("run/checkpoint.safetensors")?;
/// let checkpoint = Checkpoint::load("run/checkpoint.safetensors")?;
/// let step = checkpoint.restore(&model, &mut optimizer)?;
/// plateau.load_state_dict(checkpoint.part("plateau")?)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The model's state dict.
    pub model: StateDict,
    /// The optimizer's state dict.
    pub optimizer: StateDict,
    /// Number of steps taken.
    pub step: u64,
    /// Position in the thread's stream of random numbers.
    pub generator: GeneratorState,
    /// States of further objects: a [`ReduceLROnPlateau`](crate::optim::ReduceLROnPlateau), an
    /// [`Ema`](crate::optim::Ema), a second optimizer. The names contain no dot.
    pub parts: BTreeMap<String, StateDict>,
    /// The user's own data: options, metrics, anything else that resuming needs. Null if there is none.
    pub config: Value,
}

/// The entry in the file's header.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    step: u64,
    seed: u64,
    offset: u64,
    config: Value,
}

impl Header {
    /// Parses the texts of a file's header; `place` names the file in errors.
    fn of(metadata: &BTreeMap<String, String>, place: &str) -> Result<Self> {
        let fail = |what: String| Error::new(ErrorKind::Format, format!("cannot resume from {place}: {what}"));
        let header = metadata.get(KEY).ok_or_else(|| {
            fail("it holds tensors, and no state of a run".to_owned())
                .with_hint("load a file of weights alone with StateDict::load")
        })?;
        let header: Self = serde_json::from_str(header).map_err(|e| {
            fail(format!("its record of the run is not valid: {e}")).with_hint("take an earlier checkpoint")
        })?;
        if header.version != VERSION {
            return Err(fail(format!(
                "it has version {}, this program knows version {VERSION}",
                header.version
            ))
            .with_hint("use the version of Polygrad that wrote it"));
        }
        Ok(header)
    }
}

/// A path in messages.
fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into()
}

impl Checkpoint {
    /// The current state of a run after `step` steps, with this thread's stream of random numbers.
    ///
    /// # Errors
    /// When a device fails.
    pub fn new<B: Backend>(
        model: &(impl Module<B> + ?Sized),
        optimizer: &(impl Optimizer<B> + ?Sized),
        step: u64,
    ) -> Result<Self> {
        Ok(Self {
            model: model.state_dict()?,
            optimizer: optimizer.state_dict()?,
            step,
            generator: GeneratorState::current(),
            parts: BTreeMap::new(),
            config: Value::Null,
        })
    }

    /// Adds the state of another object, under a name without a dot.
    #[must_use]
    pub fn with_part(mut self, name: &str, state: StateDict) -> Self {
        self.parts.insert(name.to_owned(), state);
        self
    }

    /// The state added by [`Checkpoint::with_part`].
    ///
    /// # Errors
    /// [`ErrorKind::StateDict`] if there is no part of this name.
    pub fn part(&self, name: &str) -> Result<&StateDict> {
        self.parts.get(name).ok_or_else(|| {
            let names: Vec<_> = self.parts.keys().map(String::as_str).collect();
            let there = if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            };
            Error::new(
                ErrorKind::StateDict,
                format!("the checkpoint has no part {name:?}; there: {there}"),
            )
            .with_hint("with_part adds one before the checkpoint is saved")
        })
    }

    /// Sets the user's own data.
    #[must_use]
    pub fn with_config(mut self, config: Value) -> Self {
        self.config = config;
        self
    }

    /// Writes the file. A kill at any moment leaves either the old file or the complete new one.
    ///
    /// # Errors
    /// When the file cannot be written; the old one, if any, is then untouched.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let (tensors, metadata) = self.content()?;
        tensors.save_with_metadata(path, &metadata)
    }

    /// The content of the file, to be sent elsewhere.
    ///
    /// # Errors
    /// As [`Checkpoint::save`], except those of the disk.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let (tensors, metadata) = self.content()?;
        tensors.to_bytes(&metadata)
    }

    fn content(&self) -> Result<(StateDict, BTreeMap<String, String>)> {
        let header = Header {
            version: VERSION,
            step: self.step,
            seed: self.generator.seed,
            offset: self.generator.offset,
            config: self.config.clone(),
        };
        let header = serde_json::to_string(&header).map_err(|e| {
            Error::new(
                ErrorKind::Format,
                format!("the checkpoint's data cannot be written: {e}"),
            )
        })?;
        if let Some(name) = self.parts.keys().find(|name| name.is_empty() || name.contains('.')) {
            let error = Error::invalid(format!("a part of a checkpoint cannot be called {name:?}"));
            return Err(error.with_hint("its name is not empty and has no dot"));
        }
        let own = [(MODEL.to_owned(), &self.model), (OPTIMIZER.to_owned(), &self.optimizer)];
        let parts = self.parts.iter().map(|(name, part)| (format!("{PART}{name}."), part));
        let mut tensors = StateDict::new();
        for (prefix, part) in own.into_iter().chain(parts) {
            tensors.extend(
                part.iter()
                    .map(|(name, value)| (format!("{prefix}{name}"), value.clone())),
            );
        }
        Ok((tensors, BTreeMap::from([(KEY.to_owned(), header)])))
    }

    /// Reads the file.
    ///
    /// # Errors
    /// As [`StateDict::load`]; and [`ErrorKind::Format`] when the file is not a checkpoint, or one of a later version.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (state, metadata) = StateDict::load_with_metadata(path)?;
        Self::of(&state, Header::of(&metadata, &shown(path))?)
    }

    /// Parses the content of a file.
    ///
    /// # Errors
    /// As [`Checkpoint::load`], except those of the disk.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (state, metadata) = StateDict::from_bytes(bytes)?;
        Self::of(&state, Header::of(&metadata, "these bytes")?)
    }

    fn of(state: &StateDict, header: Header) -> Result<Self> {
        let mut parts = BTreeMap::<_, StateDict>::new();
        for (name, value) in state.iter() {
            if let Some((part, name)) = name.strip_prefix(PART).and_then(|name| name.split_once('.')) {
                parts.entry(part.to_owned()).or_default().insert(name, value.clone());
            }
        }
        Ok(Self {
            parts,
            model: state.with_prefix(MODEL),
            optimizer: state.with_prefix(OPTIMIZER),
            step: header.step,
            generator: GeneratorState {
                seed: header.seed,
                offset: header.offset,
            },
            config: header.config,
        })
    }

    /// Reads only the [user's own data](Checkpoint::config), and no tensors.
    ///
    /// # Errors
    /// As [`Checkpoint::load`].
    pub fn load_config(path: impl AsRef<Path>) -> Result<Value> {
        let path = path.as_ref();
        let (file, length) = open_file(path)?;
        let header = SafetensorsHeader::read(file, length).map_err(|e| in_file(e, "read", path))?;
        Ok(Header::of(&header.metadata, &shown(path))?.config)
    }

    /// Restores a model, an optimizer and this thread's stream of random numbers to this state; returns the number of
    /// steps.
    ///
    /// # Errors
    /// When the state does not fit the optimizer (then nothing has changed) or the model; when the device fails. Model
    /// and optimizer each load completely or not at all, the optimizer first.
    pub fn restore<B: Backend>(
        &self,
        model: &(impl Module<B> + ?Sized),
        optimizer: &mut (impl Optimizer<B> + ?Sized),
    ) -> Result<u64> {
        optimizer.load_state_dict(&self.optimizer)?;
        model.load_state_dict(&self.model, true)?;
        self.generator.restore();
        Ok(self.step)
    }
}
