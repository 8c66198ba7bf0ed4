//! The files of PEFT: `adapter_config.json` and `adapter_model.safetensors`.

mod low_rank;
mod options;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use polygrad_core::{nearest, printable};
use polygrad_tensor::{Backend, Error, ErrorKind, HostTensor, Result, Tensor};

pub use self::low_rank::{LowRank, PeftAdapter};
use self::options::{Modules, Number, PeftConfig};
use super::adapter::{Adapter, Factors};
use super::{LoraConfig, check_known, check_name, insert, slots};
use crate::module::Target;
use crate::{Item, StateDict, Visit, Visitor, replace_file};

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";
/// The prefix that PEFT's own classes put before a module's path.
const PREFIX: &str = "base_model.model.";
/// PEFT's copy of the weight of an adapted embedding.
const BASE: &str = "base_layer.weight";
/// The names of an adapter's tensors in a layer.
const FACTORS: [&str; 5] = [
    "lora_A.weight",
    "lora_B.weight",
    "lora_embedding_A",
    "lora_embedding_B",
    "lora_magnitude_vector",
];

/// Writes an adapter in PEFT's format, to `adapter_model.safetensors` and `adapter_config.json` in a folder, which is
/// created if needed. If parameters outside of adapters are trainable, such as those of a new head, all values of their
/// modules are saved, too, as PEFT's `modules_to_save`.
///
/// # Errors
/// If the model has no adapter of this name; if a module with an adapter is trainable itself, which the format does not
/// support; if a device fails or a file cannot be written.
pub fn save<B: Backend>(model: &(impl Visit<B> + ?Sized), name: &str, folder: impl AsRef<Path>) -> Result<()> {
    check_known(model, &[name])?;
    let folder = folder.as_ref();
    let (mut state, mut config) = (StateDict::new(), None);
    let mut ranks: Vec<(String, usize, f64)> = Vec::new();
    for (path, slot) in slots(model) {
        let adapters = slot.read().adapters.clone();
        let Some(adapter) = adapters.iter().find(|adapter| **adapter.name() == *name) else {
            continue;
        };
        for (_, stored, param) in adapter.params() {
            let value = param.value().to_host().map_err(|e| e.in_module(&*path))?;
            state.insert(full_name(&path, stored), value);
        }
        let config = config.get_or_insert_with(|| (Arc::clone(adapter.config()), PeftConfig::new(adapter.config())));
        config.1.fan_in_fan_out |= adapter.is_transposed();
        ranks.push((path, adapter.rank, adapter.alpha));
    }
    let Some((options, mut config)) = config else {
        unreachable!("an adapter that is known is in a layer");
    };
    name_layers(&mut config, &options, ranks);
    write(folder, state, config, trained_modules(model)?)
}

/// The name of a tensor of a layer in the file.
fn full_name(path: &str, stored: &str) -> String {
    let dot = if path.is_empty() { "" } else { "." };
    format!("{PREFIX}{path}{dot}{stored}")
}

/// Writes both files. `whole` has the values of modules that are trained as a whole.
fn write(
    folder: &Path,
    mut state: StateDict,
    mut config: PeftConfig,
    whole: BTreeMap<String, HostTensor>,
) -> Result<()> {
    let modules: BTreeSet<&str> = whole.keys().filter_map(|path| Some(path.rsplit_once('.')?.0)).collect();
    config.modules_to_save = (!modules.is_empty()).then(|| modules.into_iter().map(str::to_owned).collect());
    for (path, value) in whole {
        state.insert(format!("{PREFIX}{path}"), value);
    }
    let json = serde_json::to_vec_pretty(&config).map_err(|e| Error::new(ErrorKind::Format, e.to_string()))?;
    std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
    let format = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    state.save_with_metadata(folder.join(TENSORS), &format)?;
    replace_file(&folder.join(CONFIG), |file| file.write_all(&json))
}

/// Records the layers that have the adapter, and those of another rank or alpha than the adapter's.
fn name_layers(config: &mut PeftConfig, options: &LoraConfig, layers: Vec<(String, usize, f64)>) {
    let plain = |names: &[String]| names.iter().all(|name| !name.contains('*'));
    for (path, rank, alpha) in &layers {
        if *rank != config.r {
            config.rank_pattern.insert(path.clone(), *rank);
        }
        if *alpha != config.lora_alpha.0 {
            config.alpha_pattern.insert(path.clone(), Number(*alpha));
        }
    }
    let paths = || layers.iter().map(|(path, ..)| path.clone()).collect();
    config.target_modules = Some(Modules::Names(
        match options.exclude.is_empty() && !options.targets.is_empty() && plain(&options.targets) {
            true => options.targets.clone(),
            false => paths(),
        },
    ));
}

/// All values of the modules that have trainable parameters outside of adapters.
fn trained_modules<B: Backend>(model: &(impl Visit<B> + ?Sized)) -> Result<BTreeMap<String, HostTensor>> {
    let module = |path: &str| path.rsplit_once('.').map_or("", |(module, _)| module).to_owned();
    let adapted: BTreeSet<String> = slots(model)
        .into_iter()
        .filter(|(_, slot)| !slot.read().adapters.is_empty())
        .map(|(path, _)| path)
        .collect();
    let is_adapters = |path: &str| adapted.iter().any(|layer| in_adapter(path, layer));
    let mut modules = BTreeSet::new();
    Visitor::walk(model, |path, item: Item<'_, B>| {
        if let Item::Param(param) = item
            && param.is_trainable()
            && !is_adapters(path)
        {
            modules.insert(module(path));
        }
    });
    if let Some(both) = modules
        .iter()
        .find(|module| adapted.contains(*module) || module.is_empty())
    {
        let what = match both.is_empty() {
            true => "parameters of the model itself, outside of any module, are trainable".to_owned(),
            false => format!("{} is trainable and has an adapter", printable(both)),
        };
        return Err(
            Error::unsupported(format!("{what}, for which PEFT's files have no place"))
                .with_op("lora::save")
                .with_hint("freeze it, or save the whole model"),
        );
    }
    let mut values = BTreeMap::new();
    for (path, target) in Target::all(&model) {
        if modules.contains(&module(&path)) {
            let value = target.tensor().and_then(|value| value.detach().to_host());
            let value = value.map_err(|e| e.in_module(path.as_str()))?;
            values.insert(path, value);
        }
    }
    Ok(values)
}

/// Whether a path is a parameter of an adapter in a layer.
fn in_adapter(path: &str, layer: &str) -> bool {
    let inside = path.strip_prefix(layer).and_then(|rest| {
        if layer.is_empty() {
            Some(rest)
        } else {
            rest.strip_prefix('.')
        }
    });
    inside.is_some_and(|rest| rest.starts_with("lora_"))
}

/// Adds an adapter to a model, from a folder that PEFT or [`save`] wrote, and activates it. Returns the paths of its
/// layers.
///
/// Like [`attach`](super::attach), the first adapter freezes the model. Whole modules in the file, PEFT's
/// `modules_to_save`, replace the model's own values and are trainable. The adapter is in evaluation mode unless a part
/// of the model is in training mode: call `train` to train it further.
///
/// # Errors
/// If a file cannot be read or is not PEFT's; if it has an unsupported option; if the adapter is for another base (the
/// error names the names and shapes that differ); if it has whole modules and the model has other adapters; and those
/// of `attach`. The model is then unchanged.
pub fn load<B: Backend>(model: &(impl Visit<B> + ?Sized), name: &str, folder: impl AsRef<Path>) -> Result<Vec<String>> {
    check_name(name)?;
    let folder = folder.as_ref();
    let path = folder.join(TENSORS);
    let config = PeftConfig::load(&folder.join(CONFIG))?;
    let state = StateDict::load(&path)?;
    let place = |error: Error| in_file(error, &path);
    let Stored { layers, whole } = Stored::of(&state).map_err(place)?;
    let paths: Vec<String> = layers.keys().cloned().collect();
    let options = config.options(&paths);
    options.check().map_err(|e| in_file(e, &folder.join(CONFIG)))?;
    check_layers(model, &layers, &config).map_err(place)?;
    let targets = whole_targets(model, &whole).map_err(place)?;
    if !targets.is_empty() && !super::names(model).is_empty() {
        let error = Error::unsupported("the adapter has whole modules, which would change the model's other adapters");
        return Err(place(
            error
                .with_op("lora::load")
                .with_hint("load it into a model without adapters"),
        ));
    }
    let options = Arc::new(options);
    // Everything is uploaded to the device before anything changes.
    let values: Vec<_> = targets
        .iter()
        .map(|(target, value)| {
            let old = target.value();
            Tensor::from_host((*value).cast(old.dtype()), &old.device())
        })
        .collect::<Result<_>>()?;
    insert(model, name, (&paths, false), |path, layer, name| {
        let factors = &layers[path];
        let (rank, alpha) = config.of(path);
        Adapter::of(Arc::clone(name), Arc::clone(&options), layer, (rank, alpha), factors)
    })?;
    for ((target, _), value) in targets.iter().zip(&values) {
        target.set(value)?;
        if let Target::Param(param) = target {
            param.set_trainable(true);
        }
    }
    Ok(paths)
}

/// The tensors of a file, grouped by kind.
struct Stored<'a> {
    /// The factors of each layer.
    layers: BTreeMap<String, Factors<'a>>,
    /// The tensors of whole modules.
    whole: BTreeMap<String, &'a HostTensor>,
}

impl<'a> Stored<'a> {
    fn of(state: &'a StateDict) -> Result<Self> {
        let (mut layers, mut whole) = (BTreeMap::<String, Factors<'a>>::new(), BTreeMap::new());
        for (full, value) in state.iter() {
            let Some(path) = full.strip_prefix(PREFIX) else {
                let text = format!("{} does not begin with {PREFIX}", printable(full));
                return Err(
                    Error::new(ErrorKind::Format, text).with_hint("take a file that PEFT's save_pretrained wrote")
                );
            };
            let part = |name: &str| {
                let layer = path.strip_suffix(name)?;
                if layer.is_empty() {
                    Some(layer)
                } else {
                    layer.strip_suffix('.')
                }
            };
            let found = FACTORS
                .iter()
                .chain([&BASE])
                .find_map(|name| Some((part(name)?, *name)));
            let Some((layer, name)) = found else {
                whole.insert(path.to_owned(), value);
                continue;
            };
            let factors = layers.entry(layer.to_owned()).or_default();
            match name {
                "lora_A.weight" | "lora_embedding_A" => factors.a = Some(value),
                "lora_B.weight" | "lora_embedding_B" => factors.b = Some(value),
                BASE => factors.base = Some(value),
                _ => factors.magnitude = Some(value),
            }
        }
        if layers.is_empty() {
            return Err(Error::new(ErrorKind::Format, "it holds no adapter"));
        }
        Ok(Self { layers, whole })
    }
}

/// Fails unless all layers exist and fit; the error lists all that do not.
fn check_layers<B: Backend>(
    model: &(impl Visit<B> + ?Sized),
    layers: &BTreeMap<String, Factors<'_>>,
    config: &PeftConfig,
) -> Result<()> {
    let mut known = Vec::new();
    let mut faults = Vec::new();
    Visitor::walk(model, |path, item: Item<'_, B>| {
        if let Item::Adapters(place) = item {
            known.push(path.to_owned());
            let misfits = |factors: &Factors<'_>| {
                let found = factors.misfits(&place.layer, config.of(path).0, config.use_dora);
                found.unwrap_or_else(|error| vec![error.message().to_owned()])
            };
            let misfits = layers.get(path).map_or(Vec::new(), misfits);
            faults.extend(misfits.into_iter().map(|what| format!("{path}: {what}")));
        }
    });
    let missing = layers.keys().filter(|path| !known.contains(path));
    let described = |path: &String| match nearest(path, known.iter().map(String::as_str)) {
        Some(near) => format!("no layer {} (perhaps {near})", printable(path)),
        None => format!("no layer {}", printable(path)),
    };
    let mut all: Vec<String> = missing.map(described).collect();
    all.extend(faults);
    misfit(&all)
}

/// The targets of whole modules.
fn whole_targets<'a, B: Backend>(
    model: &(impl Visit<B> + ?Sized),
    whole: &BTreeMap<String, &'a HostTensor>,
) -> Result<Vec<(Target<B>, &'a HostTensor)>> {
    let known: HashMap<String, Target<B>> = Target::all(&model).into_iter().collect();
    let (mut targets, mut faults) = (Vec::new(), Vec::new());
    for (path, value) in whole {
        let Some(target) = known.get(path) else {
            faults.push(format!("no parameter {}", printable(path)));
            continue;
        };
        let own = target.value();
        match target.shape() == *value.shape() && own.dtype().is_float() == value.dtype().is_float() {
            true => targets.push((target.handle(), *value)),
            false => faults.push(format!(
                "{path}: {}{}, the model's is {}{}",
                value.dtype(),
                value.shape(),
                own.dtype(),
                target.shape()
            )),
        }
    }
    misfit(&faults).map(|()| targets)
}

/// The most faults that are listed.
const LISTED: usize = 8;

fn misfit(faults: &[String]) -> Result<()> {
    if faults.is_empty() {
        return Ok(());
    }
    let more = match faults.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let text = format!(
        "the adapter is of another base: {}{more}",
        faults[..faults.len().min(LISTED)].join("; ")
    );
    Err(Error::new(ErrorKind::StateDict, text)
        .with_op("lora::load")
        .with_hint("load it into the model that adapter_config.json names as base_model_name_or_path"))
}

fn in_file(error: Error, path: &Path) -> Error {
    crate::io::in_file(error, "take the adapter from", path)
}
