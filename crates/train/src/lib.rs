//! Training loops, metrics and run folders: a [`Trainer`] for any model, loss and [`Metric`].

mod bar;
#[cfg(feature = "tui")]
mod dashboard;
mod driver;
#[cfg(feature = "ctrlc")]
mod interrupt;
mod metric;
mod mlflow;
mod parallel;
mod progress_bar;
mod run;
mod supervised;

pub use bar::{Bar, terminal_size};
#[cfg(feature = "tui")]
pub use dashboard::Dashboard;
pub use driver::{
    Callback, Control, Ended, Epochs, Evaluation, Event, Figures, LastStep, Learner, Measured, Progress, RunConfig,
    Summary,
};
#[cfg(feature = "ctrlc")]
pub use interrupt::{end_on_signals, flag_of_signals, stop_status};
pub use metric::{
    Accuracy, Auroc, Average, CloneMetric, F1, JaccardIndex, MeanAbsoluteError, MeanSquaredError, Metric, Perplexity,
    Precision, R2Score, Recall, RootMeanSquaredError,
};
pub use mlflow::MlflowLogger;
pub use parallel::{BucketProfile, DataParallel, Link, PlanConfig, Prediction, ShardedOptimizer, Span, StepProfile};
pub use progress_bar::{ProgressBar, clock, grouped};
pub use run::{HParam, Row, Run, RunFolder, Split, SummaryWriter};
pub use supervised::{NonFiniteLoss, Step, Tensors, Trainer, TrainerConfig, TrainerOptions};
