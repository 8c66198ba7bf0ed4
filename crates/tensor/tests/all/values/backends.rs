//! Conversion between backends, and erased backends.

use polygrad_cpu::Cpu;
use polygrad_reference::Reference;
use polygrad_tensor::{AnyBackend, DType, Device, IntoBackend, Result};

use super::{Tensor, device};

#[test]
fn values_move_between_backends_in_every_dtype() -> Result<()> {
    let cpu = Device::<Cpu>::default();
    for dtype in DType::ALL {
        let x = Tensor::new([[0.0f32, 1.0], [1.0, 0.0]], &device())?.to_dtype(dtype)?;
        let there = x.to_backend::<Cpu>(&cpu)?;
        assert_eq!((there.dtype(), there.dims()), (dtype, vec![2, 2]));
        let back: Tensor = there.into_backend(&device())?;
        assert_eq!(back.to_f64_vec()?, x.to_f64_vec()?, "{dtype}");
    }
    Ok(())
}

#[test]
fn a_view_moves_as_what_it_shows() -> Result<()> {
    let x = Tensor::new([[1i64, 2, 3], [4, 5, 6]], &device())?;
    let view = x.t()?.i(1..)?;
    let moved = view.to_backend(&Device::<Cpu>::default())?;
    assert_eq!(moved.to_vec::<i64>()?, [2, 5, 3, 6]);
    Ok(())
}

#[test]
fn an_erased_backend_computes_and_differentiates_alike() -> Result<()> {
    let erased = device().into_any();
    assert_eq!(erased.backend_name(), "reference");
    let x = Tensor::new([[0.3, -1.2], [0.8, 2.0]], (&device(), DType::F64))?;
    let named = x.clone().requires_grad()?;
    let plain = named.matmul(&named)?.tanh()?.sum_all()?;
    let any: polygrad_tensor::Tensor = x.clone().into_any().requires_grad()?;
    let any_loss = any.matmul(&any)?.tanh()?.sum_all()?;
    assert_eq!(plain.item()?, any_loss.item()?);
    let gradient = any_loss.backward()?.require(&any)?.to_vec::<f64>()?;
    assert_eq!(gradient, plain.backward()?.require(&named)?.to_vec::<f64>()?);
    assert!(any.downcast::<Reference>().is_some() && any.downcast::<Cpu>().is_none());
    assert!(erased.downcast::<Reference>().is_some() && erased.downcast::<Cpu>().is_none());
    Ok(())
}

#[test]
fn an_erased_tensor_moves_to_another_backend() -> Result<()> {
    let (reference, cpu) = (device().into_any(), Device::<Cpu>::default().into_any());
    let x = polygrad_tensor::Tensor::<AnyBackend>::arange(0, 4, 1, &reference)?;
    let y = x.to_device(&cpu)?;
    assert_eq!(y.device(), cpu);
    assert_ne!(x.device(), y.device());
    assert_eq!((&y + x.to_device(&cpu)?)?.to_vec::<i64>()?, [0, 2, 4, 6]);
    Ok(())
}
