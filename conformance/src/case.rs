//! A case and how it ends.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use polygrad_tensor::{AnyBackend, DType, Device};

/// The result of one side of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// The answer is correct.
    Pass,
    /// The answer is wrong, or there was an error or a panic instead.
    Fail(String),
    /// The library or the backend does not support it, for this reason.
    Unsupported(String),
}

impl Status {
    /// Whether it is [`Status::Pass`].
    pub fn passes(&self) -> bool {
        matches!(self, Self::Pass)
    }

    /// What is wrong, or why it is unsupported.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Pass => None,
            Self::Fail(reason) | Self::Unsupported(reason) => Some(reason),
        }
    }
}

/// The result of a case, separately for values and gradients; `None` for what the case does not check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The values, or for a case of bad input the error.
    pub forward: Option<Status>,
    /// The gradients.
    pub gradient: Option<Status>,
}

impl Outcome {
    /// For a case that only checks values.
    pub fn forward(status: Status) -> Self {
        Self {
            forward: Some(status),
            gradient: None,
        }
    }

    /// For a case that only checks gradients.
    pub fn gradient(status: Status) -> Self {
        Self {
            forward: None,
            gradient: Some(status),
        }
    }

    /// Those of the two sides that the case checks.
    pub fn sides(&self) -> impl Iterator<Item = (&'static str, &Status)> {
        let forward = self.forward.iter().map(|status| ("forward", status));
        forward.chain(self.gradient.iter().map(|status| ("gradient", status)))
    }
}

/// Where a case comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Reference vectors: PyTorch's results.
    Vectors,
    /// Random numbers in every dtype and layout, compared with the reference backend in f64.
    Generated,
    /// Elementary functions against exactly rounded values.
    Ulp,
    /// Invalid input and the expected errors.
    Errors,
    /// Gradients compared with differences of values, to first and second order, and the absence of gradients.
    Gradients,
}

impl Source {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vectors => "vectors",
            Self::Generated => "generated",
            Self::Ulp => "ulp",
            Self::Errors => "errors",
            Self::Gradients => "gradients",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

type Run = dyn Fn(&Device<AnyBackend>) -> Outcome + Send + Sync;

/// One check of a backend.
pub struct Case {
    pub(crate) name: String,
    pub(crate) op: String,
    pub(crate) source: Source,
    pub(crate) dtype: DType,
    /// Why it is known not to pass.
    pub(crate) known: Option<&'static str>,
    run: Box<Run>,
}

impl Case {
    pub(crate) fn new(
        source: Source,
        name: impl Into<String>,
        op: impl Into<String>,
        dtype: DType,
        run: impl Fn(&Device<AnyBackend>) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            op: op.into(),
            source,
            dtype,
            known: None,
            run: Box::new(run),
        }
    }

    /// The name, which says what is checked: together with the dtype it is unique, and `--case` takes it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name with the dtype, such as `nn.functional.linear/3@f32`; `--case` takes it as well.
    pub fn full_name(&self) -> String {
        format!("{}@{}", self.name, self.dtype)
    }

    /// The op's name.
    pub fn op(&self) -> &str {
        &self.op
    }

    /// Where it comes from.
    pub fn source(&self) -> Source {
        self.source
    }

    /// The dtype in which it runs.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Why it is known not to pass, if it is.
    pub fn known(&self) -> Option<&'static str> {
        self.known
    }

    /// Runs it, and then waits for the device. Errors reported by
    /// [`Backend::synchronize`](polygrad_core::Backend::synchronize), such as memory written out of bounds, are
    /// failures of the case, and so is a panic, since no backend may panic.
    pub fn run(&self, device: &Device<AnyBackend>) -> Outcome {
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.run)(device))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Outcome::forward(Status::Fail(format!("it panics: {}", text.unwrap_or("without words"))))
        });
        match device.synchronize() {
            Ok(()) => outcome,
            Err(error) => Outcome::forward(Status::Fail(format!("the device fails afterwards: {error}"))),
        }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Case({} from {})", self.full_name(), self.source)
    }
}
