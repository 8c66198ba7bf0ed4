//! `polygrad predict` of ONNX files with metadata on images or tables, as written by `export` and `quantize`.

use polygrad::no_grad;
use polygrad_onnx::graph::Graph;
use polygrad_onnx::{OnnxModel, Options};

use super::{about_file, rows};
use crate::args::Predict;
use crate::backend;
use crate::failure::{Failure, Result, Shown};
use crate::images::predict::rank;
use crate::outcome::Outcome;
use crate::progress::give;
use crate::table::predict::quoted;

/// Prints the classes of a picture, or a prediction for each row of a table.
///
/// # Errors
/// A file, a picture or a table that is missing or damaged, or that do not fit together; errors of the device.
pub(crate) fn command(args: &Predict) -> Result<Outcome> {
    let device = backend::open(args.backend.as_deref().unwrap_or("cpu"), args.threads)?;
    let graph = Graph::load(&args.run).map_err(about_file)?;
    let model = OnnxModel::from_graph(&graph, &device, Options::default()).map_err(about_file)?;
    let classes = rows::said(&graph, "classes");
    let classes: Option<Vec<String>> = classes.map(|classes| classes.split('\n').map(str::to_owned).collect());
    if let (Some(classes), Some(_)) = (&classes, rows::said(&graph, "mean")) {
        let input = rows::image_input(&graph, &args.input)?;
        // Models trained on folders of images take colour; data sets of images are grey.
        let forward = |x: &polygrad::Tensor| model.forward(std::slice::from_ref(x))?.tensor(0);
        return rank(args, &input, classes, input.channels > 1, &device, forward);
    }
    let (Some(target), Some(_)) = (rows::said(&graph, "target"), rows::said(&graph, "encoder")) else {
        return Err(Failure::new(format!(
            "{} does not say how it takes pictures or tables",
            args.run.shown()
        ))
        .fix("give it arrays with `polygrad run`, or a file that `polygrad export` or `quantize` wrote"));
    };
    if args.invert {
        return Err(Failure::new("--invert is for images, and this model takes tables").fix("leave it out"));
    }
    let found = rows::features(&args.input, &graph, &device)?;
    let mut lines = vec![match classes {
        Some(_) => format!("{},probability", quoted(target)),
        None => quoted(target),
    }];
    for batch in found.batches((0..found.len()).collect()) {
        let (inputs, _) = batch?;
        let answer = no_grad(|| model.forward(&inputs))?.tensor(0)?;
        lines.extend(match &classes {
            None => answer.to_vec::<f32>()?.iter().map(f32::to_string).collect::<Vec<_>>(),
            Some(classes) => {
                let rows = answer.softmax(1)?.to_f64_vec()?;
                let rows = rows.chunks_exact(classes.len().max(1));
                rows.map(|row| likeliest(row, classes)).collect()
            }
        });
    }
    give(&lines.join("\n"));
    Ok(Outcome::Done)
}

fn likeliest(row: &[f64], classes: &[String]) -> String {
    let likeliest = row.iter().zip(classes).max_by(|a, b| a.0.total_cmp(b.0));
    let (probability, class) = likeliest.map_or((f64::NAN, ""), |(p, class)| (*p, class));
    format!("{},{probability:.4}", quoted(class))
}
