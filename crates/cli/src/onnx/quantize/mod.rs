//! `polygrad quantize`: writes a model with 8-bit integer products as an ONNX file, and reports its loss.

mod args;
mod report;

use std::time::{Duration, Instant};

use polygrad::{Device, Tensor, no_grad};
use polygrad_onnx::graph::Graph;
use polygrad_onnx::{Int8, OnnxModel, Opset, Options, Quantize, Quantized};

pub(crate) use args::QuantizeFile;

use super::rows::{self, Rows, TARGETS};
use super::score::Score;
use super::{EXPORTED, Exported, about_file, export, must_exist, told};
use crate::failure::{Failure, Result, Shown};
use crate::kind::Kind;
use crate::outcome::Outcome;
use crate::progress::say;
#[cfg(feature = "rl")]
use crate::rl;
use crate::run::config::name;
use crate::run::kind as kind_of;
use crate::task::{Batch, Batches};
use crate::{backend, chargpt, images, table, trained};

/// Quantizes the model of a run or a file, and reports the losses of each layer and of the whole. No file is left if
/// the loss exceeds the limit.
///
/// # Errors
/// A run, a file or data that are missing or damaged, or do not fit together; a model that cannot be quantized, or
/// loses more than allowed.
pub(crate) fn command(args: &QuantizeFile) -> Result<Outcome> {
    check(args)?;
    let kind = match args.model.is_dir() {
        true => Some(kind_of(&args.model)?),
        false => None,
    };
    if args.episodes.is_some() && kind != Some(Kind::Rl) {
        return Err(Failure::new(format!(
            "--episodes is for runs in environments, and {} is none",
            args.model.shown()
        ))
        .fix("leave it out"));
    }
    let Some(kind) = kind else {
        return of_file(args);
    };
    match kind {
        Kind::Images => of_run::<images::config::Config>(args),
        Kind::Table => of_run::<table::Settings>(args),
        Kind::Chargpt => of_run::<chargpt::Settings>(args),
        #[cfg(feature = "rl")]
        Kind::Rl => rl::quantize::command(args),
        kind => Err(kind.unfit(&args.model, &EXPORTED)),
    }
}

/// Fails for options that have no effect together.
fn check(args: &QuantizeFile) -> Result<()> {
    if args.percentile.is_some() && args.calibration != Some(args::Method::Percentile) {
        return Err(Failure::new("--percentile is for --calibration percentile").fix("give both, or neither"));
    }
    if args.int8() == Int8::Dynamic && args.calibration.is_some() {
        return Err(
            Failure::new("--calibration is for --int8 static: dynamic ranges are found in each run")
                .fix("leave it out"),
        );
    }
    Ok(())
}

/// Fails for options about ranges if the model learned its ranges.
fn must_leave_ranges(args: &QuantizeFile) -> Result<()> {
    let given = [
        ("--calibration", args.calibration.is_some()),
        ("--int8 dynamic", args.int8() == Int8::Dynamic),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => Err(Failure::new(format!(
            "{option} is for models without ranges, and {} learned its own in training",
            args.model.shown()
        ))
        .fix("leave it out")),
    }
}

fn of_run<T: Batches + Exported>(args: &QuantizeFile) -> Result<Outcome> {
    let trained = trained::load::<T>(&args.model, args.backend.as_deref(), args.threads)?;
    let (config, device) = (&trained.config, &trained.device);
    let graph = export::record(&trained, Opset::V20, true)?;
    if config.training().qat {
        must_leave_ranges(args)?;
    }
    if let Some(path) = &args.calibrate {
        let found = rows::read(path, &graph, device)?;
        return finish(args, &graph, device, &Source::of(&found, args.rows)?);
    }
    let data = config.load()?;
    let mut found = config.clone();
    found.describe(&data)?;
    if found != *config {
        return Err(config.other_data(&found, &args.model));
    }
    let (training, held_out) = config.loaders(&data, device)?;
    let batch = |(x, y): Batch| Ok((vec![x], Some(config.target(y)?)));
    let mut calibration = Vec::new();
    let mut count = 0;
    for loaded in &training {
        let (mut x, _) = loaded?;
        let rows = x.dims().first().copied().unwrap_or(0).min(args.rows - count);
        x = x.narrow(0, 0, rows)?;
        calibration.push(vec![x]);
        count += rows;
        if count == args.rows {
            break;
        }
    }
    let (held_out, batch) = (&held_out, &batch);
    let source = Source {
        calibration,
        rows: count,
        measured: format!("the {} data of the run", T::JUDGED_BY),
        held_out: Box::new(move || Box::new(held_out.iter().map(move |loaded| batch(loaded?)))),
    };
    finish(args, &graph, device, &source)
}

fn of_file(args: &QuantizeFile) -> Result<Outcome> {
    must_exist(&args.model)?;
    let device = backend::open(args.backend.as_deref().unwrap_or("cpu"), args.threads)?;
    let graph = Graph::load(&args.model).map_err(about_file)?;
    if Quantize::is_learned(&graph) {
        must_leave_ranges(args)?;
    }
    match (&args.calibrate, args.int8()) {
        _ if args.calibrate.is_none() && Quantize::is_learned(&graph) => finish(args, &graph, &device, &Source::none()),
        (Some(path), _) => {
            let found = rows::read(path, &graph, &device)?;
            finish(args, &graph, &device, &Source::of(&found, args.rows)?)
        }
        (None, Int8::Dynamic) => finish(args, &graph, &device, &Source::none()),
        (None, Int8::Static) => Err(
            Failure::new("the ranges of values are found with data, and none are given").fix(
                "give rows like those that the model will see, as with --calibrate DATA.npz, or say --int8 dynamic",
            ),
        ),
    }
}

/// The inputs of some rows, and their targets if known.
type Labelled = (Vec<Tensor>, Option<Tensor>);

/// Returns an iterator over all batches, from the beginning in each call.
type Loaded<'a> = dyn Fn() -> Box<dyn Iterator<Item = Result<Labelled>> + 'a> + 'a;

/// The data for calibration and for measuring.
struct Source<'a> {
    calibration: Vec<Vec<Tensor>>,
    /// The number of calibration rows.
    rows: usize,
    /// A description of the rows used for measuring.
    measured: String,
    held_out: Box<Loaded<'a>>,
}

impl<'a> Source<'a> {
    /// Calibrates with at most `most` of the rows, spread evenly, and measures with the others, or with all rows if
    /// there are no others.
    fn of(found: &'a Rows, most: usize) -> Result<Self> {
        let (chosen, others) = found.split(most);
        let (measured, others) = match others.is_empty() {
            true => (format!("the same {} rows", chosen.len()), chosen.clone()),
            false => (format!("the {} other rows", others.len()), others),
        };
        let rows = chosen.len();
        let calibration = found.batches(chosen).map(|batch| Ok(batch?.0));
        Ok(Self {
            calibration: calibration.collect::<Result<_>>()?,
            rows,
            measured,
            held_out: Box::new(move || Box::new(found.batches(others.clone()))),
        })
    }

    fn none() -> Self {
        Self {
            calibration: Vec::new(),
            rows: 0,
            measured: String::new(),
            held_out: Box::new(|| Box::new(std::iter::empty())),
        }
    }
}

fn finish(args: &QuantizeFile, graph: &Graph, device: &Device, source: &Source<'_>) -> Result<Outcome> {
    let made = run(args, graph, &source.calibration, device)?;
    match measure(graph, &made, device, source)? {
        Some(measured) => {
            say(&measured.text(&source.measured));
            measured.must_hold(args.allowed(), &made)?;
        }
        None if args.max_drop.is_some() => {
            return Err(Failure::new("--max-drop needs labels, and none are known").fix(format!(
                "give an array {TARGETS} beside the inputs in --calibrate DATA.npz, or leave --max-drop out"
            )));
        }
        None => say(&report::outputs(&made)),
    }
    write(args, graph, &made, source.rows)
}

/// Quantizes a graph, and reports the loss of each layer.
///
/// # Errors
/// Those of [`Quantize::run`].
pub(crate) fn run(args: &QuantizeFile, graph: &Graph, batches: &[Vec<Tensor>], device: &Device) -> Result<Quantized> {
    let mut quantize = Quantize::new()
        .int8(args.int8())
        .calibration(args.calibration())
        .per_channel(args.per_channel)
        .skip(args.skip.iter().map(String::as_str));
    if let Some(least) = args.min_snr {
        quantize = quantize.min_snr(least);
    }
    let made = quantize.run(graph, batches, device);
    let made = made.map_err(|e| told(e, "see with `polygrad show` what the model holds and takes"))?;
    say(&report::layers(&made));
    Ok(made)
}

/// Writes the quantized graph. `rows` is the number of rows used for calibration.
///
/// # Errors
/// A file that cannot be written.
pub(crate) fn write(args: &QuantizeFile, graph: &Graph, made: &Quantized, rows: usize) -> Result<Outcome> {
    made.graph.save(&args.out)?;
    let learned = Quantize::is_learned(graph);
    let calibrated = match args.int8() {
        _ if learned => "static, learned ranges".to_owned(),
        Int8::Static => format!(
            "static, {rows} rows by {}",
            name(args.calibration.unwrap_or(args::Method::Minmax))
        ),
        Int8::Dynamic => "dynamic".to_owned(),
    };
    say(&format!(
        "{}: int8, {calibrated}, {}",
        args.out.shown(),
        report::size(graph, made, args.per_channel || learned)
    ));
    Ok(Outcome::Done)
}

/// The scores of both models on the rows used for measuring.
struct Measured {
    before: Score,
    after: Score,
    times: [Duration; 2],
}

/// Runs both models, alternating batch by batch; `None` if no targets are known.
fn measure(graph: &Graph, made: &Quantized, device: &Device, source: &Source<'_>) -> Result<Option<Measured>> {
    let load = |graph: &Graph| OnnxModel::from_graph(graph, device, Options::default());
    let models = [load(graph)?, load(&made.graph)?];
    let mut scores = [Score::default(), Score::default()];
    let mut times = [Duration::ZERO; 2];
    for batch in (source.held_out)() {
        let (inputs, targets) = batch?;
        let Some(targets) = targets else { return Ok(None) };
        for ((model, score), time) in models.iter().zip(&mut scores).zip(&mut times) {
            let start = Instant::now();
            let answer = no_grad(|| model.forward(&inputs))?.tensor(0)?;
            device.synchronize()?;
            *time += start.elapsed();
            score.update(&answer, &targets)?;
        }
    }
    let [before, after] = scores;
    Ok((!before.is_empty()).then_some(Measured { before, after, times }))
}

impl Measured {
    fn text(&self, rows: &str) -> String {
        let (before, after) = (self.before.value(), self.after.value());
        let [real, bytes] = self.times.map(|time| time.as_secs_f64());
        format!(
            "{} on {rows}: {before:.2} before, {after:.2} after ({:+.2} points); {real:.3} s and {bytes:.3} s",
            self.before.title(),
            after - before
        )
    }

    /// Fails if the loss exceeds the limit.
    fn must_hold(&self, allowed: f64, made: &Quantized) -> Result<()> {
        let lost = self.before.value() - self.after.value();
        if lost <= allowed {
            return Ok(());
        }
        if lost.is_nan() {
            return Err(Failure::new(format!(
                "{} is {:.2} before and {:.2} after, so that no loss can be measured: no file is written",
                self.before.title(),
                self.before.value(),
                self.after.value()
            ))
            .fix("give rows whose targets differ, and without NaN or infinity"));
        }
        let worst = report::worst(made).map_or_else(String::new, |name| {
            format!(", leave out the worst layer with --skip {name:?}")
        });
        Err(Failure::new(format!(
            "{} falls by {lost:.2} points, more than --max-drop {allowed}: no file is written",
            self.before.title()
        ))
        .fix(format!(
            "try --per-channel, --calibration percentile or mse{worst}, or allow more"
        )))
    }
}
