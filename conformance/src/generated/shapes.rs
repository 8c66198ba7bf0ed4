//! Backends that keep no values are only checked for shapes and dtypes.

use polygrad_core::{AnyDevice, AnyTensor, DType, Result, Shape};
use polygrad_null::Null;
use polygrad_reference::Reference;
use polygrad_tensor::Device;

use super::judge::{is_update, operands};
use super::sample::{Layout, Sample};
use super::table;

fn results(sample: &Sample, layout: Layout, device: &AnyDevice) -> Result<Vec<(Shape, DType)>> {
    let described = |x: &AnyTensor| (x.shape(), x.dtype());
    let mut inputs = operands(sample, DType::F32, layout, 1, device)?;
    if is_update(&sample.op) {
        let (grad, targets) = inputs.split_last_mut().unwrap();
        let mut targets: Vec<&mut AnyTensor> = targets.iter_mut().collect();
        device.backend().update(&sample.op, &mut targets, grad)?;
        return Ok(inputs.iter().map(described).collect());
    }
    let inputs: Vec<&AnyTensor> = inputs.iter().collect();
    let outputs = device.backend().execute(&sample.op, &inputs)?;
    Ok(outputs.iter().map(described).collect())
}

#[test]
fn the_null_backend_gives_the_shapes_and_dtypes_of_the_reference() {
    let reference = Device::<Reference>::default().into_any();
    let null = Device::<Null>::default();
    let mut ops = std::collections::BTreeSet::new();
    for sample in table::samples() {
        for layout in Layout::ALL {
            // Samples that the reference does not compute in f32 are not meaningful.
            if let Ok(expected) = results(&sample, layout, reference.inner()) {
                let found = results(&sample, layout, null.clone().into_any().inner());
                assert_eq!(found.unwrap(), expected, "{}/{}", sample.op.name(), sample.detail);
                ops.insert(sample.op.name());
            }
        }
    }
    assert!(ops.len() > 80, "{ops:?}");
    assert_eq!(null.inner().stats().live_tensors, 0);
}
