//! Values survive being moved between backends, and to `ndarray` and back.

use polygrad::prelude::*;
use polygrad::tensor::IntoBackend;

use crate::devices;

#[test]
fn every_dtype_comes_back_from_every_backend() {
    for (name, device) in devices().unwrap() {
        for dtype in device.capabilities().dtypes {
            let cpu = Device::<Cpu>::default();
            let x = Tensor::new([[1.5f32, 0.0, 3.0], [7.0, 1.0, 100.0]], &cpu).unwrap();
            let x = x.to_dtype(dtype).unwrap().t().unwrap();
            let there: Tensor = x.to_backend(&device).unwrap();
            assert_eq!((there.dtype(), there.dims()), (dtype, vec![3, 2]), "{name}");
            let back: Tensor<Cpu> = there.into_backend(&cpu).unwrap();
            let bytes = |x: &Tensor<Cpu>| x.to_host().unwrap().bytes().to_vec();
            assert_eq!(bytes(&back), bytes(&x), "{name} {dtype}");
        }
    }
}

#[test]
fn the_cpu_shares_host_memory() {
    let cpu = Device::<Cpu>::default();
    let x = Tensor::ones([1000], &cpu).unwrap();
    let address = |x: &Tensor<Cpu>| x.to_host().unwrap().bytes().as_ptr();
    let back: Tensor<Cpu> = x.to_backend::<Cpu>(&cpu).unwrap();
    assert_eq!(address(&x), address(&back));
}

#[cfg(feature = "ndarray")]
#[test]
fn arrays_of_ndarray_come_and_go() {
    use polygrad::DType;
    use polygrad::tensor::ndarray::{Array2, arr2};

    for (name, device) in devices().unwrap() {
        let array: Array2<f32> = arr2(&[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
        let x = Tensor::from_ndarray(array.clone(), &device).unwrap();
        let doubled = (&x * 2.0).unwrap().to_ndarray::<f32>().unwrap();
        assert_eq!(doubled, (array * 2.0).into_dyn(), "{name}");
        assert!(x.to_dtype(DType::I64).unwrap().to_ndarray::<f32>().is_err(), "{name}");
    }
}
