//! `polygrad export`: a trained model as an ONNX file.

use polygrad::DType;
use polygrad_onnx::graph::{Dim, Graph};
use polygrad_onnx::{Export, ExportOnnx, Input, Opset};

use crate::args::ExportRun;
use crate::failure::{Failure, Result};
use crate::outcome::Outcome;
use crate::progress::say;
use crate::run::config::name;
use crate::trained;
use crate::trained::Trained;

/// Writes the model of a run as an ONNX file, which has been compared with the model.
///
/// # Errors
/// A run that is missing or damaged, an extent that the model does not have, or a file that cannot be written.
pub(crate) fn command(args: &ExportRun) -> Result<Outcome> {
    if let Some(other) = args.dynamic.iter().find(|dim| *dim != "batch") {
        return Err(Failure::new(format!(
            "{other:?} is no extent of this model: it takes images, [batch, channels, rows, columns]"
        ))
        .fix("say --dynamic batch, or nothing"));
    }
    let trained = trained::load(&args.run, args.backend.as_deref(), args.threads)?;
    let opset = Opset::from_version(args.opset)?;
    let mut graph = record(&trained, opset, !args.fixed)?;
    let config = &trained.config;
    // What whoever runs the file must know.
    graph.header.metadata.extend([
        ("classes".to_owned(), config.classes.join("\n")),
        ("mean".to_owned(), config.input.mean.to_string()),
        ("std".to_owned(), config.input.std.to_string()),
    ]);
    graph.save(&args.onnx)?;
    say(&format!(
        "{}: the {} of {}, opset {}, compared with the model",
        args.onnx.display(),
        name(config.model),
        args.run.display(),
        args.opset
    ));
    Ok(Outcome::Done)
}

/// The model's graph, from `images` to `logits`.
///
/// # Errors
/// Those of the export.
pub(super) fn record(trained: &Trained, opset: Opset, dynamic: bool) -> Result<Graph> {
    let input = &trained.config.input;
    let batch = match dynamic {
        true => Dim::Named("batch".to_owned()),
        false => Dim::Fixed(1),
    };
    let extents = [input.channels, input.rows, input.cols].map(Dim::Fixed);
    let images = Input::new(
        "images",
        DType::F32,
        std::iter::once(batch).chain(extents).collect::<Vec<_>>(),
    );
    let export = Export::new([images]).outputs(["logits"]).opset(opset);
    Ok(trained.model.record_onnx(&export, |x| trained.model.forward(&x[0]))?)
}
