//! Training of models.

mod data;
mod settings;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use polygrad::communicator::Communicator as Group;
use polygrad::data::DataLoader;
use polygrad::nn::{Module, Param};
use polygrad::onnx::OnnxModel;
use polygrad::onnx::graph::Graph;
use polygrad::optim::SGD;
use polygrad::train::{
    Control, Ended, Event, Progress, ProgressBar, Row, Run, RunFolder, Split, Trainer, TrainerConfig,
};
use polygrad::{Device, Error, Result, Tensor, manual_seed};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyList};
use serde::{Deserialize, Serialize};

use crate::communicator::Communicator;
use crate::failure::Failure;
use crate::network::{Network, NetworkConfig, Origin, input_dtypes};
use data::{Batch, Batches, Form};
use settings::{Judged, Loss, Settings};

/// The `task` in a run's settings.
pub(crate) const TASK: &str = "fit";

/// The file of the trained graph, in a run of a graph that was not built here.
const GRAPH: &str = "graph.onnx";

/// The interval at which signals are checked.
const LOOKED: Duration = Duration::from_millis(50);

/// The contents of a run's `config.json`.
#[derive(Serialize, Deserialize)]
struct Written {
    task: String,
    /// `None` for an imported graph.
    network: Option<NetworkConfig>,
    #[serde(flatten)]
    settings: serde_json::Value,
}

/// The settings of `polygrad.Model.fit`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Order<'py> {
    /// JSON.
    settings: String,
    train: Bound<'py, PyAny>,
    validation: Option<Bound<'py, PyAny>>,
    /// The number of batches per epoch, if batches are given and their number is known.
    batches: Option<u64>,
    out: Option<PathBuf>,
    resume: bool,
    progress: bool,
    /// The group of processes that train together; the first one keeps the folder and prints.
    communicator: Option<Bound<'py, Communicator>>,
    /// Called with the progress after each epoch, and with None from time to time; returning true stops the training.
    told: Py<PyAny>,
}

/// The result of a training.
pub(crate) struct Fitted {
    pub(crate) origin: Origin,
    pub(crate) graph: Graph,
    ended: Ended,
    steps: u64,
    seconds: f64,
    best: Option<f64>,
    metrics: Vec<String>,
    rows: Vec<Row>,
}

type Fit = Trainer<Network, Batch>;

/// The dtypes of inputs and targets.
fn form(model: &OnnxModel, loss: Loss) -> Result<Form> {
    Ok(Form {
        inputs: input_dtypes(model)?,
        classes: loss == Loss::CrossEntropy,
    })
}

fn trainer(
    options: TrainerConfig,
    network: Network,
    optimizer: Box<dyn polygrad::optim::Optimizer>,
    loss: Loss,
) -> Result<Fit> {
    options.build_captured(network, optimizer, move |network: &Network, Batch(tensors): &Batch| {
        let Some((target, inputs)) = tensors.split_last() else {
            return Err(Error::invalid("a batch is empty"));
        };
        loss.of(network.forward(inputs)?, target)
    })
}

/// Trains a model, starting with the current weights of `origin` and `graph`.
///
/// # Errors
/// Those of settings, data, training and disk; Python's own exceptions.
pub(crate) fn fit(
    py: Python<'_>,
    order: Order<'_>,
    model: &OnnxModel,
    origin: &Origin,
    graph: &Graph,
) -> PyResult<Fitted> {
    use crate::errors::raised;
    let failure = Failure::default();
    let settings: Settings = crate::errors::settings(&order.settings).map_err(raised)?;
    let form = form(model, settings.judged.loss).map_err(raised)?;
    let batches = |shuffle| Batches {
        size: settings.judged.batch_size,
        shuffle,
    };
    let train = data::loader(
        &order.train,
        &form,
        &batches(settings.shuffle.then_some(settings.seed)),
        &failure,
    )?;
    let validation = order.validation.as_ref();
    let validation = validation
        .map(|data| data::loader(data, &form, &batches(None), &failure))
        .transpose()?;
    let device = crate::tensor::cpu()?;
    let session = Session {
        settings: &settings,
        batches: order.batches,
        out: order.out,
        resume: order.resume,
        progress: order.progress,
        group: order.communicator.map(|communicator| Arc::clone(&communicator.get().0)),
    };
    let (told, failed) = (order.told, failure.clone());
    let fitted = py.detach(|| session.fit((origin, graph), (&train, validation.as_ref()), &device, told, failed));
    fitted.map_err(|error| failure.take().unwrap_or_else(|| raised(error)))
}

struct Session<'a> {
    settings: &'a Settings,
    batches: Option<u64>,
    out: Option<PathBuf>,
    resume: bool,
    progress: bool,
    group: Option<Arc<dyn Group>>,
}

impl Session<'_> {
    fn fit(
        self,
        (origin, graph): (&Origin, &Graph),
        (train, validation): (&DataLoader<Batch>, Option<&DataLoader<Batch>>),
        device: &Device,
        told: Py<PyAny>,
        failure: Failure,
    ) -> Result<Fitted> {
        let settings = self.settings;
        manual_seed(settings.seed);
        let network = Network::of(origin, graph, device)?;
        if !settings.freeze.is_empty() {
            network.freeze(settings.freeze.iter().cloned())?;
            if network.parameters().iter().all(|param| !param.is_trainable()) {
                return Err(Error::invalid("freeze leaves no parameter that could learn").with_hint("freeze fewer"));
            }
        }
        let batches = train.batches().map(|batches| batches as u64).or(self.batches);
        let steps = batches.map(|batches| batches.div_ceil(settings.accumulate.max(1)) * settings.epochs);
        let mut options = settings.options(steps)?.callback(telling(told, failure));
        let is_first = self.group.as_ref().is_none_or(|group| group.rank() == 0);
        if let Some(group) = &self.group {
            options = options.parallel(Arc::clone(group));
        }
        if self.progress && is_first {
            options = options.callback(ProgressBar::printing(print));
        }
        if let Some(out) = self.out.as_ref().filter(|_| is_first) {
            options = options
                .run(self.run(out, graph, origin)?)
                .settings(&written(settings, origin)?)?;
        }
        let optimizer = settings.optimizer(network.parameters())?;
        let mut trainer = trainer(options, network, optimizer, settings.judged.loss)?;
        let summary = trainer.fit(train, validation)?;
        let (origin, graph) = trainer.model().finished(graph)?;
        Ok(Fitted {
            origin,
            graph,
            ended: summary.ended,
            steps: summary.steps,
            seconds: summary.seconds,
            best: summary.best,
            metrics: settings.judged.metrics.iter().map(name).collect::<Result<_>>()?,
            rows: trainer.history().to_vec(),
        })
    }

    fn run(&self, out: &Path, graph: &Graph, origin: &Origin) -> Result<Run> {
        if self.resume {
            return Run::resume(out);
        }
        let run = Run::create(out)?;
        if matches!(origin, Origin::Graph) {
            graph.save(out.join(GRAPH)).inspect_err(|_| run.clear())?;
        }
        Ok(run)
    }
}

/// The name in serde's format.
fn name(named: &impl Serialize) -> Result<String> {
    let name = serde_json::to_value(named).map_err(|error| Error::invalid(error.to_string()))?;
    Ok(name.as_str().unwrap_or_default().to_owned())
}

fn written(settings: &Settings, origin: &Origin) -> Result<Written> {
    Ok(Written {
        task: TASK.to_owned(),
        network: match origin {
            Origin::Network(config, _) => Some(config.clone()),
            Origin::Graph => None,
        },
        settings: serde_json::to_value(settings).map_err(|error| Error::invalid(error.to_string()))?,
    })
}

/// The model of a run of [`fit`].
///
/// # Errors
/// If files are missing or damaged.
pub(crate) fn load(path: &Path, device: &Device) -> Result<(Origin, Graph)> {
    let folder = RunFolder::new(path);
    let written: Written = serde_json::from_value(folder.settings()?).map_err(|error| {
        Error::invalid(format!(
            "{}: what is said of the run is damaged: {error}",
            path.display()
        ))
    })?;
    let (network, graph) = match written.network {
        Some(config) => (Network::new(config, device)?, Graph::default()),
        None => {
            let graph = Graph::load(path.join(GRAPH))?;
            (Network::of(&Origin::Graph, &graph, device)?, graph)
        }
    };
    network.load(folder.model())?;
    network.finished(&graph)
}

/// Reports the progress to Python, after checking for signals.
fn telling(told: Py<PyAny>, failure: Failure) -> impl FnMut(Event<'_>, &Progress<'_>) -> Result<Control> {
    let looked = Cell::new(Instant::now());
    move |event, progress| {
        let row = match event {
            Event::Epoch(row) => Some(row),
            Event::Step if looked.get().elapsed() > LOOKED => None,
            _ => return Ok(Control::Continue),
        };
        looked.set(Instant::now());
        let stop = Python::attach(|py| {
            py.check_signals()?;
            let known = row.map(|row| known(py, progress, row)).transpose()?;
            told.call1(py, (known,))?.extract::<bool>(py)
        });
        match stop.map_err(|error| failure.of(error))? {
            true => Ok(Control::Stop),
            false => Ok(Control::Continue),
        }
    }
}

fn known<'py>(py: Python<'py>, progress: &Progress<'_>, row: Option<&Row>) -> PyResult<Bound<'py, PyDict>> {
    let known = [
        ("epoch", Some(progress.epoch)),
        ("epochs", progress.epochs),
        ("steps", Some(progress.step)),
        ("total_steps", progress.steps),
    ];
    let known = known.into_py_dict(py)?;
    known.set_item("seconds", progress.seconds)?;
    known.set_item("learning_rate", progress.learning_rate)?;
    known.set_item("loss", progress.loss())?;
    for (name, value) in progress.metrics.iter().zip(progress.values()) {
        known.set_item(name, value)?;
    }
    if let Some(row) = row {
        known.set_item("validation_loss", row.loss)?;
        for (name, value) in progress.metrics.iter().zip(&row.metrics) {
            known.set_item(format!("validation_{name}"), value)?;
        }
    }
    Ok(known)
}

/// Prints a line with Python's `print`, which in notebooks is not the standard output.
fn print(line: &str) {
    Python::attach(|py| {
        // If printing fails, the failure cannot be reported either.
        let _ = py
            .import("builtins")
            .and_then(|builtins| builtins.call_method1("print", (line,)));
    });
}

impl Fitted {
    /// A summary of the training, for Python.
    pub(crate) fn told<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let ended = match self.ended {
            Ended::EarlyStopping => "early_stopping",
            Ended::Stopped => "stopped",
            _ => "done",
        };
        let told = [("ended", ended)].into_py_dict(py)?;
        told.set_item("steps", self.steps)?;
        told.set_item("seconds", self.seconds)?;
        told.set_item("best", self.best)?;
        let rows = self.rows.iter().map(|row| {
            let split = match row.split {
                Split::Train => "train",
                _ => "validation",
            };
            let told = [("split", split)].into_py_dict(py)?;
            told.set_item("step", row.step)?;
            told.set_item("epoch", row.epoch)?;
            told.set_item("loss", row.loss)?;
            for (name, value) in self.metrics.iter().zip(&row.metrics) {
                told.set_item(name, value)?;
            }
            told.set_item("learning_rate", row.learning_rate)?;
            told.set_item("seconds", row.seconds)?;
            Ok(told)
        });
        told.set_item("rows", PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)?)?;
        Ok(told)
    }
}

/// Loss and metrics of a model on data, by name; `settings` are those of [`Judged`].
///
/// # Errors
/// Those of settings, data and model; Python's own exceptions.
pub(crate) fn evaluate<'py>(
    py: Python<'py>,
    settings: &str,
    data: &Bound<'py, PyAny>,
    model: &Arc<OnnxModel>,
) -> PyResult<Bound<'py, PyDict>> {
    use crate::errors::raised;
    let failure = Failure::default();
    let judged: Judged = crate::errors::settings(settings).map_err(raised)?;
    let form = form(model, judged.loss).map_err(raised)?;
    let batches = Batches {
        size: judged.batch_size,
        shuffle: None,
    };
    let data = data::loader(data, &form, &batches, &failure)?;
    let device = crate::tensor::cpu()?;
    let evaluate = || {
        // A trainer needs an optimizer, and an optimizer needs parameters.
        let unused = Param::new(Tensor::zeros([1], &device)?)?;
        let optimizer = Box::new(SGD::new([unused], 0.0)?);
        let options = judged.metrics(TrainerConfig::epochs(1));
        let network = Network::Running(Arc::clone(model));
        trainer(options, network, optimizer, judged.loss)?.evaluate(&data)
    };
    let (loss, metrics) = py
        .detach(evaluate)
        .map_err(|error| failure.take().unwrap_or_else(|| raised(error)))?;
    let found = [("loss", loss)].into_py_dict(py)?;
    for (figure, value) in judged.metrics.iter().zip(metrics) {
        found.set_item(name(figure).map_err(raised)?, value)?;
    }
    Ok(found)
}
