//! `polygrad show`: the contents of a model.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use polygrad::backend::{DType, HostTensor, printable};
use polygrad::nn::{StateDict, open_file};
use polygrad::train::RunFolder;
use polygrad_onnx::graph::{Body, Graph, ValueId, ValueType};
use polygrad_onnx::{Opset, Options};

use super::args::Show;
use super::extents::Extents;
use super::{EXPORTED, Exported, about_file, export, flops, must_exist};
use crate::failure::{Failure, Result, Shown};
use crate::kind::Kind;
use crate::outcome::Outcome;
use crate::progress::{grouped, say};
#[cfg(feature = "rl")]
use crate::rl;
use crate::{chargpt, images, run, table, trained};

/// Prints a line that contains names from the file.
fn line(text: &str) {
    say(&printable(text));
}

/// Prints the contents of an ONNX file, a safetensors file or a run folder.
///
/// # Errors
/// A file of another kind, or one that is missing or damaged.
pub(crate) fn command(args: &Show) -> Result<Outcome> {
    let path = &args.model;
    must_exist(path)?;
    if path.is_dir()
        && let Some(settings) = run::foreign(path)?
    {
        foreign(path, &settings)?;
        return Ok(Outcome::Done);
    }
    let extension = path.extension().map(|extension| extension.to_ascii_lowercase());
    match extension.as_deref().and_then(|extension| extension.to_str()) {
        _ if path.is_dir() => match run::kind(path)? {
            Kind::Images => run::<images::config::Config>(path, args)?,
            Kind::Table => run::<table::Settings>(path, args)?,
            Kind::Chargpt => run::<chargpt::Settings>(path, args)?,
            #[cfg(feature = "rl")]
            Kind::Rl => {
                let trained = trained::load::<rl::Settings>(path, Some("cpu"), None)?;
                line(&rl::export::summary(&trained)?);
                graph(&rl::export::record(&trained, Opset::default(), true)?, args)?;
            }
            kind => return Err(kind.unfit(path, &EXPORTED)),
        },
        Some("onnx") => {
            let most = args.max_memory.unwrap_or(Options::default().max_memory_bytes);
            graph(&Graph::load_within(path, most).map_err(about_file)?, args)?;
        }
        Some("safetensors") => {
            tensors(path)?;
        }
        _ => {
            return Err(
                Failure::new(format!("{} is of no kind that is known here", path.display()))
                    .fix("give an .onnx file, a .safetensors file, or a folder that `polygrad train` left"),
            );
        }
    }
    Ok(Outcome::Done)
}

fn tensors(path: &Path) -> Result<()> {
    let (state, metadata) = StateDict::load_with_metadata(path).map_err(about_file)?;
    metadata
        .iter()
        .for_each(|(key, value)| line(&format!("{key}: {value}")));
    parameters(state.iter());
    Ok(())
}

/// Shows a run of a user's own program, which alone knows how the model is computed.
fn foreign(path: &Path, settings: &str) -> Result<()> {
    let folder = RunFolder::new(path);
    say("a run written by another program, with these settings");
    settings.lines().for_each(line);
    let mut text = String::new();
    if let Ok((mut file, _)) = open_file(folder.metrics())
        && file.read_to_string(&mut text).is_ok()
    {
        let mut rows = text.lines();
        if let (Some(names), Some(last)) = (rows.next(), rows.next_back()) {
            let named = names.split(',').zip(last.split(','));
            let named: Vec<String> = named.map(|(name, value)| format!("{name} {value}")).collect();
            line(&format!("last row of metrics: {}", named.join(", ")));
        }
    }
    match [folder.model(), folder.checkpoint()].iter().find(|file| file.is_file()) {
        Some(file) => {
            line(&format!("{}:", file.shown()));
            tensors(file)
        }
        None => Ok(()),
    }
}

fn run<T: Exported>(path: &Path, args: &Show) -> Result<()> {
    let trained = trained::load::<T>(path, Some("cpu"), None)?;
    line(&trained.config.summary());
    graph(&export::record(&trained, Opset::default(), true)?, args)
}

fn graph(graph: &Graph, args: &Show) -> Result<()> {
    let (header, body) = (&graph.header, &graph.body);
    let mut opsets: Vec<String> = graph
        .opsets
        .iter()
        .map(|(domain, version)| format!("{} {version}", shown(domain)))
        .collect();
    opsets.sort();
    line(&format!(
        "IR version {}, op sets: {}; by {} {}",
        header.ir_version,
        opsets.join(", "),
        header.producer_name,
        header.producer_version
    ));
    for (kind, ids) in [("input", &body.inputs), ("output", &body.outputs)] {
        for &id in ids
            .iter()
            .filter(|&&id| kind == "output" || body.initializer(id).is_none())
        {
            line(&format!("{kind} {}: {}", body.name_of(id), ty(body, id)));
        }
    }
    say("\nnodes");
    let types = body.values.iter().filter_map(|value| value.ty.as_ref()?.as_tensor());
    let extents = Extents::given(&args.dim, types, Some(1))?;
    let (mut total, mut unknown, mut ops) = (0.0, 0, BTreeMap::<String, usize>::new());
    for node in &body.nodes {
        *ops.entry(node.op_type.clone()).or_default() += 1;
        let count = flops::of(node, body, &extents);
        total += count.unwrap_or(0.0);
        unknown += usize::from(count.is_none());
        let names = |ids: &[Option<ValueId>]| {
            let names = ids.iter().map(|id| id.map_or("", |id| body.name_of(id)));
            names.collect::<Vec<_>>().join(", ")
        };
        let results: Vec<String> = node.outputs.iter().flatten().map(|&id| ty(body, id)).collect();
        line(&format!(
            "  {}({}) -> {}: {}",
            node.op_type,
            names(&node.inputs),
            names(&node.outputs),
            results.join(", ")
        ));
    }
    let ops: Vec<String> = ops.iter().map(|(op, count)| format!("{count} {op}")).collect();
    line(&format!("{} nodes: {}", body.nodes.len(), ops.join(", ")));
    say("");
    parameters(
        body.initializers
            .iter()
            .map(|i| (body.name_of(i.value), i.tensor.host())),
    );
    let named = args.dim.iter().map(|(name, extent)| format!("{name} {extent}"));
    let others = match args.dim.is_empty() {
        true => Some("every named dimension 1".to_owned()),
        false => (extents.len() > args.dim.len()).then(|| "every other named dimension 1".to_owned()),
    };
    let sizes: Vec<String> = named.chain(others).collect();
    line(&format!("{} FLOPs with {}", counted(total), sizes.join(", ")));
    if unknown > 0 {
        say(&format!(
            "  not counting {unknown} nodes of unknown shape; --dim NAME=N sets the size of a dimension"
        ));
    }
    Ok(())
}

/// A number of operations: beyond the range of exact counts, only its magnitude.
fn counted(operations: f64) -> String {
    if operations < 1e18 {
        grouped(operations as u64)
    } else {
        format!("{operations:.3e}")
    }
}

fn parameters<'a>(tensors: impl Iterator<Item = (&'a str, &'a HostTensor)>) {
    say("tensors");
    let (mut count, mut bytes, mut floats) = (0, 0, 0);
    for (name, host) in tensors {
        count += 1;
        bytes += host.bytes().len();
        if host.dtype().is_float() {
            floats += host.shape().numel();
        }
        let small = host.shape().rank() == 0 && host.dtype() != DType::Bool;
        let value = if small {
            let text = match host.as_slice::<i64>() {
                Ok(values) => values.iter().map(i64::to_string).collect(),
                Err(_) => host.to_f64_vec().iter().map(f64::to_string).collect::<String>(),
            };
            format!(" = {text}")
        } else {
            String::new()
        };
        line(&format!("  {name}: {}{}{value}", host.dtype(), host.shape()));
    }
    say(&format!(
        "{count} tensors with {} parameters, {} bytes",
        grouped(floats as u64),
        grouped(bytes as u64)
    ));
}

fn shown(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}

fn ty(body: &Body, id: ValueId) -> String {
    match &body.value(id).ty {
        None => "?".to_owned(),
        Some(ValueType::Tensor(ty)) => ty.to_string(),
        Some(ValueType::Sequence(_)) => "a sequence".to_owned(),
        Some(ValueType::Optional(_)) => "an optional".to_owned(),
        Some(ValueType::Map(..)) => "a map".to_owned(),
    }
}
