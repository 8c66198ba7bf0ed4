//! Parameters whose initial values are not needed.

use std::cell::Cell;

use polygrad_core::with_local;

thread_local! {
    static SKIPS: Cell<bool> = const { Cell::new(false) };
}

/// Skips random initialisation while `f` runs on this thread, for models whose weights are loaded from a file: drawing
/// them takes longer than reading them. Parameters take no memory until they are loaded, so that those of wrong sizes
/// are found by loading. Until then they are NaN, except those of [`Init::Constant`](super::Init::Constant).
///
/// As PyTorch's `torch.nn.utils.skip_init`.
///
/// ```
/// use polygrad_nn::{Linear, Module, skip_init};
/// # use polygrad_reference::Reference;
/// # use polygrad_tensor::{Device, Result};
/// # fn main() -> Result<()> {
/// # let device = Device::<Reference>::default();
/// let trained = Linear::new(3, 2, &device)?;
/// let model = skip_init(|| Linear::new(3, 2, &device))?;
/// assert!(model.weight.tensor().to_vec::<f32>()?[0].is_nan());
/// model.load_state_dict(&trained.state_dict()?, true)?;
/// assert_eq!(model.weight.tensor().to_vec::<f32>()?, trained.weight.tensor().to_vec::<f32>()?);
/// # Ok(())
/// # }
/// ```
pub fn skip_init<R>(f: impl FnOnce() -> R) -> R {
    with_local(&SKIPS, true, f)
}

pub(crate) fn skips() -> bool {
    SKIPS.get()
}
