//! `polygrad export`: a trained model as an ONNX file.

use std::path::Path;

use polygrad_onnx::graph::{Dim, Graph};
use polygrad_onnx::{ExportOnnx, Opset, Quantize};

use super::args::ExportRun;
use super::{EXPORTED, Exported};
use crate::failure::{Failure, Result};
use crate::kind::Kind;
use crate::outcome::Outcome;
use crate::progress::say;
#[cfg(feature = "rl")]
use crate::rl;
use crate::task::Batches;
use crate::trained::Trained;
use crate::{chargpt, images, run, table, trained};

/// Writes the model of a run as an ONNX file, after comparing the graph with the model.
///
/// # Errors
/// A run that is missing or damaged, an extent that the model does not have, or a file that cannot be written.
pub(crate) fn command(args: &ExportRun) -> Result<Outcome> {
    if let Some(other) = args.dynamic.iter().find(|dim| *dim != "batch") {
        return Err(
            Failure::new(format!("{other:?} is no extent of this model: it has `batch` alone"))
                .fix("say --dynamic batch, or nothing"),
        );
    }
    match run::kind(&args.run)? {
        Kind::Images => export::<images::config::Config>(args),
        Kind::Table => export::<table::Settings>(args),
        Kind::Chargpt => export::<chargpt::Settings>(args),
        #[cfg(feature = "rl")]
        Kind::Rl => rl::export::command(args),
        kind => Err(kind.unfit(&args.run, &EXPORTED)),
    }
}

/// The graph of a run's model, for batches of any size.
///
/// # Errors
/// As of [`command`].
pub(crate) fn recorded(folder: &Path) -> Result<Graph> {
    fn of<T: Exported>(folder: &Path) -> Result<Graph> {
        record(
            &trained::load::<T>(folder, Some("cpu"), Some(1))?,
            Opset::default(),
            true,
        )
    }
    match run::kind(folder)? {
        Kind::Images => of::<images::config::Config>(folder),
        Kind::Table => of::<table::Settings>(folder),
        Kind::Chargpt => of::<chargpt::Settings>(folder),
        #[cfg(feature = "rl")]
        Kind::Rl => {
            let trained = trained::load::<rl::Settings>(folder, Some("cpu"), Some(1))?;
            rl::export::record(&trained, Opset::default(), true)
        }
        kind => Err(kind.unfit(folder, &EXPORTED)),
    }
}

fn export<T: Batches + Exported>(args: &ExportRun) -> Result<Outcome> {
    let trained = trained::load::<T>(&args.run, args.backend.as_deref(), args.threads)?;
    let opset = Opset::from_version(args.opset)?;
    let mut graph = record(&trained, opset, !args.fixed)?;
    let mut what = format!("opset {}, compared with the model", args.opset);
    if trained.config.training().qat {
        // The ranges are those of the run, so no data are needed.
        graph = Quantize::new().run(&graph, &[], &trained.device)?.graph;
        let opset = graph.opsets.get("").copied().unwrap_or(0);
        what = format!("int8 with the ranges that it learned, opset {opset}");
    }
    graph.save(&args.onnx)?;
    say(&format!(
        "{}: the {} of {}, {what}",
        args.onnx.display(),
        trained.config.network(),
        args.run.display(),
    ));
    Ok(Outcome::Done)
}

/// The first extent of inputs.
pub(crate) fn batch(dynamic: bool) -> Dim {
    match dynamic {
        true => Dim::Named("batch".to_owned()),
        false => Dim::Fixed(1),
    }
}

/// The model's graph, with the metadata needed to run it.
///
/// # Errors
/// Errors of the export.
pub(crate) fn record<T: Exported>(trained: &Trained<T>, opset: Opset, dynamic: bool) -> Result<Graph> {
    let (config, model) = (&trained.config, &trained.model);
    let export = config.export(batch(dynamic))?.opset(opset);
    let mut graph = model.record_onnx(&export, |x| config.answer(model, &x[0]))?;
    let metadata = config.metadata()?.into_iter();
    graph
        .header
        .metadata
        .extend(metadata.map(|(key, value)| (key.to_owned(), value)));
    Ok(graph)
}
