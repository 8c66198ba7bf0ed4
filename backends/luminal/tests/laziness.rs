//! When things are computed. Alone in its process: what is recorded is the process's, and any thread's
//! `synchronize` computes it.

use polygrad_core::Backend;
use polygrad_luminal::{Luminal, LuminalDevice};
use polygrad_tensor::{Device, Result, Tensor};

#[test]
fn ops_are_recorded_and_computed_when_read() -> Result<()> {
    let x = Tensor::<Luminal>::from_slice(&[1.0f32, 2.0, 3.0], [3], &Device::default())?;
    let y = x.add(&x)?;
    let z = y.mul(&x)?;
    let unread = y.exp()?;
    assert!(!z.inner().is_computed());
    assert_eq!(z.to_vec::<f32>()?, [2.0, 8.0, 18.0]);
    // Kept, since somebody holds it and may need it again.
    assert!(y.inner().is_computed());
    assert!(!unread.inner().is_computed());
    Luminal::synchronize(&LuminalDevice)?;
    assert!(unread.inner().is_computed());
    Ok(())
}
