//! Loads a state dict into a module, or reports every mismatch.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::path::Path;

use polygrad_core::{nearest, printable};
use polygrad_tensor::inference::prepacked;
use polygrad_tensor::{Backend, DType, Device, Error, ErrorKind, HostTensor, Prepack, Result, Shape, Tensor};

use super::{Buffer, Item, Param, StateDict, Visit, Visitor};

/// The names that only one side had, if a state dict was loaded with `strict` false.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Names that the module has and the state dict lacks: they kept their values.
    pub missing: Vec<String>,
    /// Names that the state dict has and the module lacks: they were ignored.
    pub unexpected: Vec<String>,
}

/// The parameter or buffer with a name in a module.
pub(crate) enum Target<B: Backend> {
    Param(Param<B>),
    Buffer(Buffer<B>),
}

impl<B: Backend> Target<B> {
    /// All parameters and buffers of a module, with their names.
    pub(crate) fn all(module: &dyn Visit<B>) -> Vec<(String, Self)> {
        let mut targets = Vec::new();
        Visitor::walk(module, |name, item| match item {
            Item::Param(param) => targets.push((name.to_owned(), Self::Param(param.clone()))),
            Item::Buffer(buffer) => targets.push((name.to_owned(), Self::Buffer(buffer.clone()))),
            Item::Mode(_) | Item::Sync(_) | Item::Adapters(_) | Item::Module(_) | Item::Unused => {}
        });
        targets
    }

    /// A second handle to it.
    pub(crate) fn handle(&self) -> Self {
        match self {
            Self::Param(param) => Self::Param(param.clone()),
            Self::Buffer(buffer) => Self::Buffer(buffer.clone()),
        }
    }

    /// Its value as a state dict has it.
    pub(crate) fn tensor(&self) -> Result<Tensor<B>> {
        match self {
            Self::Param(param) => Ok(param.tensor()),
            Self::Buffer(buffer) => buffer.plain(),
        }
    }

    /// The shape of its value in a state dict.
    pub(crate) fn shape(&self) -> Shape {
        match self {
            Self::Param(param) => param.shape(),
            Self::Buffer(buffer) => buffer.shape(),
        }
    }

    /// Its value as it lies in memory, outside the graph.
    pub(crate) fn value(&self) -> Tensor<B> {
        match self {
            Self::Param(param) => param.value(),
            Self::Buffer(buffer) => buffer.tensor(),
        }
    }

    /// Calls a function with its value as it lies in memory, without cloning it.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&Tensor<B>) -> R) -> R {
        match self {
            Self::Param(param) => f(&param.read()),
            Self::Buffer(buffer) => f(&buffer.read()),
        }
    }

    /// Its value in memory from which its device reads weights fastest.
    fn settled(&self) -> Result<Tensor<B>> {
        match self {
            Self::Param(param) => prepacked(&param.value(), Prepack::Memory),
            Self::Buffer(buffer) => buffer.settled(),
        }
    }

    /// Whether this and `other`, which comes next, are parts with rows of one weight in blocks.
    fn is_beside((name, target): &(String, Self), (next, other): &(String, Self)) -> bool {
        let has_rows = |target: &Self| matches!(target, Self::Buffer(buffer) if buffer.has_rows());
        let layer = |name: &str| name.rfind('.').map(|dot| name[..dot].to_owned());
        has_rows(target) && has_rows(other) && layer(name) == layer(next)
    }

    pub(crate) fn set(&self, value: &Tensor<B>) -> Result<()> {
        match self {
            Self::Param(param) => param.set(value),
            Self::Buffer(buffer) => buffer.set(value),
        }
    }

    /// Sets a value of another dtype or on another device.
    fn replace(&self, value: Tensor<B>) -> Result<()> {
        match self {
            Self::Param(param) => param.replace(value),
            Self::Buffer(buffer) => {
                buffer.replace(&value);
                Ok(())
            }
        }
    }

    /// An id that is the same for all places that share a parameter.
    pub(crate) fn shared_id(&self) -> Option<usize> {
        match self {
            Self::Param(param) => Some(param.id()),
            Self::Buffer(_) => None,
        }
    }
}

/// Replaces every parameter and buffer by `new` of it, or none if that fails.
fn replace_all<B: Backend>(module: &dyn Visit<B>, new: &dyn Fn(&Tensor<B>) -> Result<Tensor<B>>) -> Result<()> {
    let mut seen = HashSet::new();
    let mut targets = Target::all(module);
    targets.retain(|(_, target)| target.shared_id().is_none_or(|id| seen.insert(id)));
    let replaced = |(name, target): &(String, Target<B>)| {
        let value = target.tensor().and_then(|old| new(&old.detach()));
        let value = value.and_then(|value| match target {
            Target::Param(_) if !value.dtype().is_float() => Err(Error::dtype(format!(
                "a parameter cannot be {}: only floats can be trained",
                value.dtype()
            ))),
            _ => Ok(value),
        });
        value.map_err(|e| e.in_module(name.as_str()))
    };
    let values: Vec<Tensor<B>> = targets.iter().map(replaced).collect::<Result<_>>()?;
    for ((_, target), value) in targets.iter().zip(values) {
        target.replace(value)?;
    }
    Ok(())
}

pub(super) fn to_dtype<B: Backend>(module: &dyn Visit<B>, dtype: DType) -> Result<()> {
    replace_all(module, &|old| match old.dtype().is_float() {
        true => old.to_dtype(dtype),
        false => Ok(old.clone()),
    })
}

pub(super) fn to_device<B: Backend>(module: &dyn Visit<B>, device: &Device<B>) -> Result<()> {
    replace_all(module, &|old| old.to_device(device))
}

pub(super) fn settle<B: Backend>(module: &dyn Visit<B>) -> Result<()> {
    // One weight after another: the old memory of each is free before the next one moves. The parts of a weight change
    // together, since interleaved bytes do not fit plain scales if memory runs out between them.
    for weight in Target::all(module).chunk_by(Target::is_beside) {
        let moved = |(name, target): &(String, Target<B>)| target.settled().map_err(|e| e.in_module(name.as_str()));
        let values: Vec<Tensor<B>> = weight.iter().map(moved).collect::<Result<_>>()?;
        for ((name, target), value) in weight.iter().zip(values) {
            target.replace(value).map_err(|e| e.in_module(name.as_str()))?;
        }
    }
    Ok(())
}

pub(super) fn load<B: Backend>(module: &dyn Visit<B>, state: &StateDict, strict: bool) -> Result<LoadReport> {
    let targets = Target::all(module);
    let state = &*with_present_names(state, &targets);
    let mut known: HashSet<&str> = targets.iter().map(|(name, _)| name.as_str()).collect();
    let unused = unused(module);
    known.extend(unused.iter().map(String::as_str));
    // The first name under which the state dict has each shared parameter.
    let mut sources: HashMap<usize, &str> = HashMap::new();
    for (name, target) in targets.iter().filter(|(name, _)| state.contains(name)) {
        target.shared_id().map(|id| sources.entry(id).or_insert(name));
    }
    let source = |target: &Target<B>| target.shared_id().and_then(|id| sources.get(&id).copied());
    let missing = |(name, target): &&(String, Target<B>)| !state.contains(name) && source(target).is_none();
    let report = LoadReport {
        missing: targets.iter().filter(missing).map(|(name, _)| name.clone()).collect(),
        unexpected: state
            .keys()
            .filter(|name| !known.contains(name))
            .map(str::to_owned)
            .collect(),
    };
    let mismatched: Vec<String> = targets
        .iter()
        .filter_map(|(name, target)| {
            let value = state.get(name)?;
            let shared = source(target).filter(|first| first != name);
            let differs = |first: &&str| !state.get(first).is_some_and(|other| same_bits(other, value));
            mismatch(name, (target.shape(), target.value().dtype()), value).or_else(|| {
                let first = shared.filter(differs)?;
                Some(format!(
                    "{name} (one parameter with {first}, whose values in the state dict are others)"
                ))
            })
        })
        .collect();
    let incomplete = strict && !(report.missing.is_empty() && report.unexpected.is_empty());
    if incomplete || !mismatched.is_empty() {
        return Err(describe(&report, strict, &mismatched));
    }

    // Everything is moved to the device before anything changes, so that a failure leaves the module as it was.
    let mut values = Vec::with_capacity(targets.len());
    for (name, target) in &targets {
        if let Some(value) = state.get(name) {
            let old = target.value();
            let cast = value.cast(old.dtype());
            if cast.dtype() != value.dtype() {
                must_fit(value, &cast).map_err(|e| e.in_module(name))?;
            }
            let value = Tensor::from_host(cast, &old.device()).map_err(|e| e.in_module(name))?;
            values.push((target, value));
        }
    }
    for (target, value) in values {
        target.set(&value)?;
    }
    Ok(report)
}

/// Maps old names to current ones: BERT's first files call the weight and the bias of a `LayerNorm` gamma and beta.
/// transformers also accepts them.
fn with_present_names<'a, B: Backend>(state: &'a StateDict, targets: &[(String, Target<B>)]) -> Cow<'a, StateDict> {
    let present = |name: &str| {
        let (layer, old) = name
            .rsplit_once('.')
            .filter(|(layer, _)| layer.ends_with("LayerNorm"))?;
        match old {
            "gamma" => Some(format!("{layer}.weight")),
            "beta" => Some(format!("{layer}.bias")),
            _ => None,
        }
        .filter(|present| targets.iter().any(|(name, _)| name == present))
    };
    if !state.keys().any(|name| present(name).is_some()) {
        return Cow::Borrowed(state);
    }
    let renamed =
        |(name, value): (&str, &HostTensor)| (present(name).unwrap_or_else(|| name.to_owned()), value.clone());
    Cow::Owned(state.iter().map(renamed).collect())
}

/// Names of tensors that files of other libraries contain, but that are not needed.
fn unused<B: Backend>(module: &dyn Visit<B>) -> Vec<String> {
    let mut names = Vec::new();
    Visitor::walk(module, |name, item| {
        if let Item::Unused = item {
            names.push(name.to_owned());
        }
    });
    names
}

/// Fails if a finite value becomes infinite in the module's dtype. Values that become 0 are accepted.
fn must_fit(value: &HostTensor, cast: &HostTensor) -> Result<()> {
    match value.lost_in(cast).0 {
        0 => Ok(()),
        count => Err(Error::new(
            ErrorKind::StateDict,
            format!(
                "{count} values of {} are too large for {} and would become infinite",
                value.dtype(),
                cast.dtype()
            ),
        )
        .with_hint("build the module in a dtype that holds them")),
    }
}

fn same_bits(a: &HostTensor, b: &HostTensor) -> bool {
    let bits = |x: &HostTensor| -> Vec<u64> { x.to_f64_vec().iter().map(|x| x.to_bits()).collect() };
    bits(a) == bits(b)
}

fn mismatch(name: &str, (shape, dtype): (Shape, DType), value: &HostTensor) -> Option<String> {
    let same_kind = dtype == value.dtype() || dtype.is_float() && value.dtype().is_float();
    (shape != *value.shape() || !same_kind).then(|| {
        format!(
            "{name} (module {dtype}{shape}, state dict {}{})",
            value.dtype(),
            value.shape()
        )
    })
}

fn describe(report: &LoadReport, strict: bool, mismatched: &[String]) -> Error {
    let mut text = "the state dict does not fit the module".to_owned();
    if strict {
        list(&mut text, "missing", &report.missing, &report.unexpected);
        list(&mut text, "unexpected", &report.unexpected, &report.missing);
    }
    if !mismatched.is_empty() {
        let _ = write!(text, "; mismatched: {}", mismatched.join(", "));
    }
    let hint = match prefix(report) {
        Some(prefix) => {
            let prefix = printable(prefix);
            format!("its names begin with {prefix}: load state.with_prefix(\"{prefix}\")").into()
        }
        None if mismatched.is_empty() => Cow::from("rename the entries, or load with strict = false to take what fits"),
        None => "build the model with the sizes with which it was saved".into(),
    };
    Error::new(ErrorKind::StateDict, text)
        .with_op("load_state_dict")
        .with_hint(hint)
}

/// The prefix that the state dict puts before every missing name, such as `module.` of a model that PyTorch ran on
/// several devices.
fn prefix(report: &LoadReport) -> Option<&str> {
    let first = report.missing.first()?;
    let found: HashSet<&str> = report.unexpected.iter().map(String::as_str).collect();
    let prefixes = report
        .unexpected
        .iter()
        .filter_map(|name| name.strip_suffix(first.as_str()));
    let of_all = |prefix: &&str| {
        let has = |name: &String| found.contains(format!("{prefix}{name}").as_str());
        prefix.ends_with('.') && report.missing.iter().all(has)
    };
    prefixes.into_iter().find(of_all)
}

/// The most names for which a similar one is suggested: if more differ, the file is of another model.
const GUESSES: usize = 3;

/// Lists names; the first few come with the most similar name of the other side.
fn list(text: &mut String, title: &str, names: &[String], others: &[String]) {
    let mut guesses = 0;
    for (i, name) in names.iter().enumerate() {
        let lead = if i == 0 {
            format!("; {title}: ")
        } else {
            ", ".to_owned()
        };
        let _ = write!(text, "{lead}{}", printable(name));
        if guesses < GUESSES
            && let Some(near) = nearest(name, others.iter().map(String::as_str))
        {
            guesses += 1;
            let _ = write!(text, " (perhaps {})", printable(near));
        }
    }
}

/// Adds to an error which file the state dict came from.
#[cold]
pub(super) fn in_file(error: Error, path: &Path) -> Error {
    let outer = Error::new(error.kind(), format!("{}: {}", path.display(), error.message()));
    match error.hint() {
        Some(hint) => outer.with_hint(hint.to_owned()),
        None => outer,
    }
}
