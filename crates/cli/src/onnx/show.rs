//! `polygrad show`: what a model consists of.

use std::collections::BTreeMap;
use std::path::Path;

use polygrad::backend::{DType, HostTensor};
use polygrad::nn::StateDict;
use polygrad_onnx::Opset;
use polygrad_onnx::graph::{Body, Dim, Graph, ValueId, ValueType};

use super::extents::Extents;
use super::{about_file, export, flops, must_exist};
use crate::args::Show;
use crate::failure::{Failure, Result};
use crate::progress::{grouped, say};
use crate::run::config::name;
use crate::{Outcome, trained};

/// Says what is in an ONNX file, a safetensors file or a run folder.
///
/// # Errors
/// A file of another kind, or one that is missing or damaged.
pub(crate) fn command(args: &Show) -> Result<Outcome> {
    let path = &args.model;
    must_exist(path)?;
    let extension = path.extension().map(|extension| extension.to_ascii_lowercase());
    match extension.as_deref().and_then(|extension| extension.to_str()) {
        _ if path.is_dir() => run(path, args)?,
        Some("onnx") => graph(&Graph::load(path).map_err(about_file)?, args)?,
        Some("safetensors") => {
            let (state, metadata) = StateDict::load_with_metadata(path).map_err(about_file)?;
            metadata.iter().for_each(|(key, value)| say(&format!("{key}: {value}")));
            parameters(state.iter());
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

fn run(path: &Path, args: &Show) -> Result<()> {
    let trained = trained::load(path, Some("cpu"), None)?;
    let config = &trained.config;
    say(&format!(
        "{} on {}: images of {} × {} × {} (channels, rows, columns), {} classes",
        name(config.model),
        config.dataset,
        config.input.channels,
        config.input.rows,
        config.input.cols,
        config.classes.len()
    ));
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
    say(&format!(
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
            say(&format!("{kind} {}: {}", body.name_of(id), ty(body, id)));
        }
    }
    say("\nnodes");
    let extents = Extents::new(&args.dim);
    let extents = if args.dim.is_empty() { ones(body) } else { extents };
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
        say(&format!(
            "  {}({}) -> {}: {}",
            node.op_type,
            names(&node.inputs),
            names(&node.outputs),
            results.join(", ")
        ));
    }
    let ops: Vec<String> = ops.iter().map(|(op, count)| format!("{count} {op}")).collect();
    say(&format!("{} nodes: {}\n", body.nodes.len(), ops.join(", ")));
    parameters(
        body.initializers
            .iter()
            .map(|i| (body.name_of(i.value), i.tensor.host())),
    );
    let sizes = match args.dim.is_empty() {
        true => "every named extent 1".to_owned(),
        false => args
            .dim
            .iter()
            .map(|(name, extent)| format!("{name} {extent}"))
            .collect::<Vec<_>>()
            .join(", "),
    };
    say(&format!("{} FLOPs with {sizes}", grouped(total as u64)));
    if unknown > 0 {
        say(&format!(
            "  without {unknown} nodes whose shapes the file does not say; --dim NAME=N gives extents their size"
        ));
    }
    Ok(())
}

/// 1 for each extent that an input names.
fn ones(body: &Body) -> Extents {
    let types = body
        .inputs
        .iter()
        .filter_map(|&id| body.value(id).ty.as_ref()?.as_tensor());
    let dims = types.filter_map(|ty| ty.shape.as_ref()).flatten();
    let names = dims.filter_map(|dim| match dim {
        Dim::Named(name) => Some((name.clone(), 1)),
        _ => None,
    });
    Extents::new(&names.collect::<Vec<_>>())
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
            format!(" = {}", host.to_f64_vec()[0])
        } else {
            String::new()
        };
        say(&format!("  {name}: {}{}{value}", host.dtype(), host.shape()));
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
    }
}
