//! `mlp-act`, `mlp-rl`, `mlp-small` and `mlp-big`: perceptrons.

use std::rc::Rc;

use polygrad_nn::models::{self, ActivationFn, MlpConfig};
use polygrad_tensor::{Backend, Device, Result};

use crate::training::{Mode, Optim, input, training};
use crate::{Prepared, prepared};

/// A perceptron with ReLU in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mlp {
    Rl,
    Small,
    Big,
}

/// Features of each layer, and the size of the batch.
type Sizes = (&'static [usize], usize);

const ACT: Sizes = (&[4, 64, 64, 2], 1);

impl Mlp {
    pub(crate) const ALL: [Self; 3] = [Self::Rl, Self::Small, Self::Big];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rl => "mlp-rl",
            Self::Small => "mlp-small",
            Self::Big => "mlp-big",
        }
    }

    fn sizes(self) -> Sizes {
        match self {
            Self::Rl => (&[4, 64, 64, 2], 32),
            Self::Small => (&[784, 128, 10], 64),
            Self::Big => (&[784, 512, 512, 10], 128),
        }
    }

    pub(crate) fn flops(self) -> u64 {
        let (sizes, batch) = self.sizes();
        // The images need no gradient.
        3 * forward_flops(self.sizes()) - 2 * (batch * sizes[0] * sizes[1]) as u64
    }

    pub(crate) fn prepare<B: Backend, W: Mode<B>>(self, optim: Optim, device: &Device<B>) -> Result<Prepared<B>> {
        let (sizes, batch) = self.sizes();
        let model = models::Mlp::new(&MlpConfig::new(sizes), device)?;
        let x = input(&[batch, sizes[0]], device)?;
        training::<B, W, _>(model, optim, x, (batch, sizes[sizes.len() - 1]), models::Mlp::forward)
    }
}

fn forward_flops((sizes, batch): Sizes) -> u64 {
    let products: usize = sizes.windows(2).map(|pair| pair[0] * pair[1]).sum();
    2 * (batch * products) as u64
}

pub(crate) fn act_flops() -> u64 {
    forward_flops(ACT)
}

/// A forward pass with tanh for one observation, without gradients.
pub(crate) fn act<B: Backend, W: Mode<B>>(device: &Device<B>) -> Result<Prepared<B>> {
    let (sizes, batch) = ACT;
    let config = MlpConfig {
        activation: ActivationFn::Tanh,
        ..MlpConfig::new(sizes)
    };
    let model = Rc::new(models::Mlp::new(&config, device)?);
    let params = prepared::begin(&*model)?;
    let x = input(&[batch, sizes[0]], device)?;
    Ok(Prepared::new(params, W::forward(Rc::clone(&model), x)?).with_model(model))
}
