//! Losses, which training minimises.

mod bce;
mod common;
mod cross_entropy;
mod ctc;
mod focal;
mod kl_div;
mod likelihood;
mod margin;
mod nll;
mod overlap;
mod regression;

use polygrad_tensor::{Backend, Result, Tensor};

pub use bce::{BCELoss, BCEWithLogitsLoss, bce_with_logits, binary_cross_entropy};
pub use cross_entropy::{CrossEntropyLoss, cross_entropy};
pub use ctc::{CTCLoss, ctc_loss};
pub use focal::{SigmoidFocalLoss, sigmoid_focal_loss};
pub use kl_div::{KLDivLoss, kl_div};
pub use likelihood::{GaussianNLLLoss, PoissonNLLLoss, gaussian_nll_loss, poisson_nll_loss};
pub use margin::{
    CosineEmbeddingLoss, HingeEmbeddingLoss, MarginRankingLoss, MultiLabelMarginLoss, MultiLabelSoftMarginLoss,
    MultiMarginLoss, SoftMarginLoss, TripletMarginLoss, cosine_embedding_loss, hinge_embedding_loss,
    margin_ranking_loss, multi_margin_loss, multilabel_margin_loss, multilabel_soft_margin_loss, soft_margin_loss,
    triplet_margin_loss,
};
pub use nll::{NLLLoss, nll_loss};
pub use overlap::{DiceLoss, JaccardLoss, TverskyLoss, dice_loss, jaccard_loss, tversky_loss};
pub use regression::{HuberLoss, L1Loss, MSELoss, SmoothL1Loss, huber_loss, l1_loss, mse_loss, smooth_l1_loss};

/// How a loss reduces the losses of all elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// No reduction: all losses.
    None,
    /// Their mean. The default.
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

impl Reduction {
    fn apply<B: Backend>(self, losses: Tensor<B>) -> Result<Tensor<B>> {
        match self {
            Self::None => Ok(losses),
            Self::Mean => losses.mean_all(),
            Self::Sum => losses.sum_all(),
        }
    }
}
