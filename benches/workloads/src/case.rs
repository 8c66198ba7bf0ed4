//! The cases, their names, and the amount of work in a step of each.

use polygrad_tensor::{Backend, DType, Device, Error, Result};

use crate::attention::Attention;
use crate::dispatch::Dispatch;
use crate::elementwise::Elementwise;
use crate::gemm::Gemm;
use crate::gpt::Gpt;
use crate::mlp::{self, Mlp};
use crate::qlinear::QLinear;
use crate::training::{Eager, Mode, Optim};
use crate::{Prepared, cnn, lstm, resnet};

/// One workload of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    kind: Kind,
    /// The dtype of its autocast.
    autocast: Option<DType>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Dispatch(Dispatch),
    Elementwise(Elementwise, usize),
    Gemm(Gemm),
    QLinear(QLinear),
    Attention(Attention),
    /// With its gradient.
    AttentionBackward(Attention),
    Act,
    Mlp(Mlp, Optim),
    Cnn,
    ResNet,
    Gpt(Gpt),
    Lstm,
}

/// The amount of work in one step. Fields that do not apply to a case are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Calls of an op, where the backward pass counts as one: for `dispatch`.
    pub ops: u64,
    /// Elements that are computed: for `elementwise`, and for `qlinear` with one row.
    pub elements: u64,
    /// The least bytes that have to be read and written: for the same cases.
    pub bytes: u64,
    /// Operations of matrix products, convolutions and attention, forward and backward; a multiplication with its
    /// addition counts as two. Attention counts in full, although it is causal.
    pub flops: u64,
}

/// The workloads by name, in the order of reports.
pub fn workloads() -> Vec<&'static str> {
    let mut names: Vec<&str> = cases().iter().map(Case::workload).collect();
    names.dedup();
    names
}

/// All cases of all workloads.
pub fn cases() -> Vec<Case> {
    let mut all: Vec<Kind> = Dispatch::ALL.into_iter().map(Kind::Dispatch).collect();
    for op in Elementwise::ALL {
        all.extend(Elementwise::SIZES.map(|size| Kind::Elementwise(op, size)));
    }
    all.extend(Gemm::ALL.map(Kind::Gemm));
    all.extend(QLinear::all().into_iter().map(Kind::QLinear));
    all.extend(Attention::ALL.map(Kind::Attention));
    all.push(Kind::Act);
    for mlp in Mlp::ALL {
        all.extend([Optim::Sgd, Optim::Adam].map(|optim| Kind::Mlp(mlp, optim)));
    }
    all.extend([Kind::Cnn, Kind::ResNet, Kind::Gpt(Gpt::SMALL), Kind::Lstm]);
    all.into_iter().map(Case::of).collect()
}

/// The cases that `name` selects: a workload, or the first words of a case's name, with `/` or a space between words:
/// `mlp-rl`, `mlp-rl/adam`, `elementwise/exp`, `elementwise/exp/65536`, `gemm/32x10x128`. Products and attention may
/// have any extents and any float dtype, `gemm/4096x4096x4096/bf16`; there are also products of bytes,
/// `gemm/512x512x512/u8`, layers with weights of few bits, `qlinear/1x4096x4096/q4`, attention with its gradient,
/// `attention/backward/8x8x1024x1024x64/bf16`, and `gpt` as large as GPT-2, `gpt/124m`, or of any size,
/// `gpt/2x16x32x2x2x97`. Training steps run under autocast if the name ends in its dtype: `gpt/bf16`.
///
/// # Errors
/// If there is no such case; the error lists those that exist.
pub fn select(name: &str) -> Result<Vec<Case>> {
    let words: Vec<&str> = name.split(['/', ' ']).collect();
    let means = |case: &Case| {
        let name = case.name();
        let mut own = name.split(' ');
        words.iter().all(|word| own.next() == Some(word))
    };
    let chosen: Vec<Case> = cases().into_iter().filter(means).collect();
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    let sized = match &*words {
        ["gemm", rest @ ..] => Gemm::parse(rest, |dtype| dtype.is_float() || dtype == DType::U8).map(Kind::Gemm),
        ["qlinear", rest @ ..] => QLinear::parse(rest).map(Kind::QLinear),
        ["attention", "backward", rest @ ..] => Attention::parse(rest, DType::is_float).map(Kind::AttentionBackward),
        ["gpt", rest @ ..] => Gpt::sized(rest).map(Kind::Gpt),
        ["attention", rest @ ..] => Attention::parse(rest, DType::is_float).map(Kind::Attention),
        _ => None,
    };
    if let Some(kind) = sized {
        return Ok(vec![Case::of(kind)]);
    }
    if let Some((rest, dtype @ ("bf16" | "f16"))) = name.rsplit_once(['/', ' '])
        && let Ok(dtype) = dtype.parse()
    {
        let trained = select(rest)?.into_iter().filter(Case::trains);
        let trained: Vec<Case> = trained.map(|case| case.under(dtype)).collect();
        if !trained.is_empty() {
            return Ok(trained);
        }
    }
    let of_workload: Vec<String> = cases()
        .iter()
        .filter(|case| case.workload() == words[0])
        .map(|case| case.name().replace(' ', "/"))
        .collect();
    Err(match of_workload.is_empty() {
        true => Error::invalid(format!("no workload is called {:?}", words[0]))
            .with_hint(format!("choose among {}", workloads().join(", "))),
        false => Error::invalid(format!("{} has no case {name:?}", words[0]))
            .with_hint(format!("choose among {}", of_workload.join(", "))),
    })
}

impl Case {
    const fn of(kind: Kind) -> Self {
        Self { kind, autocast: None }
    }

    /// The same work in mixed precision.
    const fn under(self, dtype: DType) -> Self {
        Self {
            autocast: Some(dtype),
            ..self
        }
    }

    /// The name of its workload.
    pub fn workload(&self) -> &'static str {
        match self.kind {
            Kind::Dispatch(_) => "dispatch",
            Kind::Elementwise(..) => "elementwise",
            Kind::Gemm(_) => "gemm",
            Kind::QLinear(_) => "qlinear",
            Kind::Attention(_) | Kind::AttentionBackward(_) => "attention",
            Kind::Act => "mlp-act",
            Kind::Mlp(mlp, _) => mlp.name(),
            Kind::Cnn => "cnn",
            Kind::ResNet => "resnet",
            Kind::Gpt(_) => "gpt",
            Kind::Lstm => "lstm",
        }
    }

    /// Its full name: the workload and, if that has several cases, the case: `gemm 32x10x128`.
    pub fn name(&self) -> String {
        let workload = self.workload();
        let name = match self.kind {
            Kind::Dispatch(dispatch) => format!("{workload} {}", dispatch.name()),
            Kind::Elementwise(op, size) => format!("{workload} {} {size}", op.name()),
            Kind::Gemm(gemm) => format!("{workload} {}", gemm.name()),
            Kind::QLinear(layer) => format!("{workload} {}", layer.name()),
            Kind::Attention(attention) => format!("{workload} {}", attention.name()),
            Kind::AttentionBackward(attention) => format!("{workload} backward {}", attention.name()),
            Kind::Mlp(_, optim) => format!("{workload} {}", optim.name()),
            Kind::Gpt(gpt) => match gpt.suffix() {
                Some(size) => format!("{workload} {size}"),
                None => workload.to_owned(),
            },
            Kind::Act | Kind::Cnn | Kind::ResNet | Kind::Lstm => workload.to_owned(),
        };
        match self.autocast {
            Some(dtype) => format!("{name} {dtype}"),
            None => name,
        }
    }

    /// The amount of work in one step.
    pub fn amount(&self) -> Amount {
        let flops = match self.kind {
            Kind::Dispatch(dispatch) => {
                return Amount {
                    ops: dispatch.ops(),
                    ..Amount::default()
                };
            }
            Kind::Elementwise(op, size) => return op.amount(size),
            Kind::Gemm(gemm) => gemm.flops(),
            Kind::QLinear(layer) => return layer.amount(),
            Kind::Attention(attention) => attention.flops(),
            Kind::AttentionBackward(attention) => attention.backward_flops(),
            Kind::Act => mlp::act_flops(),
            Kind::Mlp(mlp, _) => mlp.flops(),
            Kind::Cnn => cnn::flops(),
            Kind::ResNet => resnet::flops(),
            Kind::Gpt(gpt) => gpt.flops(),
            Kind::Lstm => lstm::flops(),
        };
        Amount {
            flops,
            ..Amount::default()
        }
    }

    /// Whether a step trains, and therefore has a loss.
    pub fn trains(&self) -> bool {
        !matches!(
            self.kind,
            Kind::Dispatch(_)
                | Kind::Elementwise(..)
                | Kind::Gemm(_)
                | Kind::QLinear(_)
                | Kind::Attention(_)
                | Kind::AttentionBackward(_)
                | Kind::Act
        )
    }

    /// Whether a step runs a model, and therefore can be recorded and replayed.
    pub fn is_model(&self) -> bool {
        self.trains() || matches!(self.kind, Kind::Act)
    }

    /// Creates model, optimizer and data on a device.
    ///
    /// # Errors
    /// If the device lacks an op or memory.
    pub fn prepare<B: Backend>(&self, device: &Device<B>) -> Result<Prepared<B>> {
        self.prepare_for::<B, Eager>(device)
    }

    /// Like [`Case::prepare`], for a mode of running models; cases without a model ignore it.
    ///
    /// # Errors
    /// If the device lacks an op or memory.
    pub fn prepare_for<B: Backend, W: Mode<B>>(&self, device: &Device<B>) -> Result<Prepared<B>> {
        let prepared = match self.kind {
            Kind::Dispatch(dispatch) => dispatch.prepare(device),
            Kind::Elementwise(op, size) => op.prepare(size, device),
            Kind::Gemm(gemm) => gemm.prepare(device),
            Kind::QLinear(layer) => layer.prepare(device),
            Kind::Attention(attention) => attention.prepare(device),
            Kind::AttentionBackward(attention) => attention.prepare_backward(device),
            Kind::Act => mlp::act::<B, W>(device),
            Kind::Mlp(mlp, optim) => mlp.prepare::<B, W>(optim, device),
            Kind::Cnn => cnn::prepare::<B, W>(device),
            Kind::ResNet => resnet::prepare::<B, W>(device),
            Kind::Gpt(gpt) => gpt.prepare::<B, W>(device),
            Kind::Lstm => lstm::prepare::<B, W>(device),
        }?;
        Ok(match self.autocast {
            Some(dtype) => prepared.under_autocast(dtype),
            None => prepared,
        })
    }
}
