//! Rotary positions have the bits of the ops that they stand for.

use polygrad_cpu::Cpu;
use polygrad_reference::Reference;
use polygrad_tensor::{Backend, Device, Result, Tensor, manual_seed};

/// The rotation as products, sums and a join.
fn parts<B: Backend>(x: &Tensor<B>, cos: &Tensor<B>, sin: &Tensor<B>) -> Result<Tensor<B>> {
    let half = x.dims()[x.rank() - 1] / 2;
    let (a, b) = (x.narrow(-1, 0, half)?, x.narrow(-1, half, half)?);
    let first = a.mul(cos)?.sub(&b.mul(sin)?)?;
    let second = b.mul(cos)?.add(&a.mul(sin)?)?;
    Tensor::cat(&[&first, &second], -1)
}

fn equals_parts<B: Backend>(device: &Device<B>) -> Result<()> {
    manual_seed(3);
    // Both kinds of ends of a row: with and without a rest after whole registers.
    for (dims, angles) in [
        (&[1, 1, 9, 64][..], &[1, 32][..]),
        (&[2, 5, 3, 64], &[5, 32]),
        (&[2, 5, 3, 42], &[2, 1, 5, 21]),
        (&[2, 3, 2, 8], &[3, 1]),
    ] {
        let heads_last = Tensor::<B>::randn(dims, device)?;
        let leaf = Tensor::var("x", heads_last)?;
        // A view whose rows do not follow each other.
        let x = leaf.transpose(1, 2)?;
        let angles = Tensor::<B>::randn(angles, device)?;
        let (cos, sin) = (angles.cos()?, angles.sin()?);
        let weight = Tensor::<B>::randn(x.dims(), device)?;
        let found = |y: Tensor<B>| -> Result<(Vec<f32>, Vec<f32>)> {
            let gradients = y.mul(&weight)?.sum_all()?.backward()?;
            let gradient = gradients.get(&leaf).expect("x is trained");
            Ok((y.detach().to_vec()?, gradient.to_vec()?))
        };
        assert_eq!(
            found(x.rotary(&cos, &sin)?)?,
            found(parts(&x, &cos, &sin)?)?,
            "{dims:?}"
        );
    }
    Ok(())
}

#[test]
fn a_rotation_equals_its_parts() -> Result<()> {
    equals_parts(&Device::<Reference>::default())?;
    equals_parts(&Device::<Cpu>::default())
}
