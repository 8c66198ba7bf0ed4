//! When values are computed. In a process of its own, since recorded nodes are shared by the process, and any thread's
//! `synchronize` computes them.

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
    // Kept, since it has a handle and may be needed again.
    assert!(y.inner().is_computed());
    assert!(!unread.inner().is_computed());
    Luminal::synchronize(&LuminalDevice)?;
    assert!(unread.inner().is_computed());
    Ok(())
}
