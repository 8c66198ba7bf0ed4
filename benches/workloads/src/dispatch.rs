//! `dispatch`: the cost of an op on a small tensor.

use polygrad_tensor::{Backend, Device, Result, Tensor};

use crate::Prepared;
use crate::data::{INPUT, TARGET, noise};

/// Ops on two f32[64].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dispatch {
    Add,
    Tracked,
    Backward,
}

impl Dispatch {
    pub(crate) const ALL: [Self; 3] = [Self::Add, Self::Tracked, Self::Backward];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Tracked => "tracked",
            Self::Backward => "backward",
        }
    }

    pub(crate) fn ops(self) -> u64 {
        match self {
            Self::Add | Self::Tracked => 1,
            Self::Backward => 3,
        }
    }

    pub(crate) fn prepare<B: Backend>(self, device: &Device<B>) -> Result<Prepared<B>> {
        let a = Tensor::from_vec(noise(64, INPUT), [64], device)?;
        let b = Tensor::from_vec(noise(64, TARGET), [64], device)?;
        Ok(match self {
            Self::Add => Prepared::call(move || a.add(&b)),
            Self::Tracked => {
                let a = a.requires_grad()?;
                Prepared::call(move || a.add(&b))
            }
            Self::Backward => {
                let a = a.requires_grad()?;
                Prepared::call(move || a.add(&b)?.sum_all()?.backward())
            }
        })
    }
}
