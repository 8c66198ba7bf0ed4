//! Compiled computations that the driver records: their results, the memory they keep, and what is not recorded.

use polygrad_compute::{Compute, ComputeDevice};
use polygrad_core::ErrorKind;
use polygrad_cuda::CudaDriver;
use polygrad_tensor::{Capture, Compiled, Device, GeneratorState, Result, Tensor, manual_seed};

use crate::emulator::{self, Emulator};

type Cuda = Compute<CudaDriver>;

/// Runs a test on an emulated device, if there is a compiler for it.
fn on_device(test: impl FnOnce(&Device, &ComputeDevice<CudaDriver>)) {
    if !emulator::present() {
        return;
    }
    let emulator = Emulator::new(32, 8, true);
    let device = ComputeDevice::new(CudaDriver::over(Box::new(emulator.clone()))).unwrap();
    test(&Device::<Cuda>::from_inner(device.clone()).into_any(), &device);
    drop(device);
    assert_eq!(emulator.allocations(), 0, "memory is left");
}

/// A computation with more kernels than the limit below which kernels are launched one by one.
fn layers(x: &Tensor, weights: &[Tensor]) -> Result<Tensor> {
    let mut x = x.clone();
    for weight in weights {
        x = x.matmul(weight)?.tanh()?.sub(&x.mean_keepdim(-1)?)?;
    }
    Ok(x)
}

/// [`layers`], compiled, and its weights.
fn compiled_layers(device: &Device) -> (Compiled, Vec<Tensor>) {
    let weights: Vec<Tensor> = (0..3).map(|_| Tensor::randn([4, 4], device).unwrap()).collect();
    let example = Tensor::randn([2, 4], device).unwrap();
    let computed = || Ok(vec![layers(&example, &weights)?]);
    let compiled = Compiled::new(std::slice::from_ref(&example), computed).unwrap();
    (compiled, weights)
}

fn values(x: &Tensor) -> Vec<f64> {
    x.to_f64_vec().unwrap()
}

#[test]
fn a_recording_gives_what_its_ops_give_in_memory_of_its_own() {
    on_device(|device, counted| {
        let (compiled, weights) = compiled_layers(device);
        let mut all = Vec::new();
        for i in 0..7 {
            // Contiguous, permuted, or not computed yet.
            let x = match i % 3 {
                0 => Tensor::randn([2, 4], device).unwrap(),
                1 => Tensor::randn([4, 2], device).unwrap().transpose(0, 1).unwrap(),
                _ => Tensor::randn([2, 4], device).unwrap().exp().unwrap(),
            };
            let found = compiled.run(std::slice::from_ref(&x)).unwrap().remove(0);
            all.push((values(&layers(&x, &weights).unwrap()), found));
        }
        assert_eq!(counted.stats().replays, 5);
        // Earlier results must not have changed.
        for (wanted, found) in &all {
            assert_eq!(values(found), *wanted);
        }
    });
}

#[test]
fn random_numbers_are_drawn_anew_and_what_is_out_of_range_is_told() {
    on_device(|device, counted| {
        let table = Tensor::randn([5, 4], device).unwrap();
        let mut capture = Capture::<()>::new();
        let mut step = |index: &Tensor| {
            let run = || {
                let rows = table.index_select(0, index)?;
                let noise = Tensor::randn([3, 4], device)?;
                let x = rows.softmax(-1)?.matmul(&table.transpose(0, 1)?)?.softmax(-1)?;
                let y = x.matmul(&table)?.add(&noise)?.log_softmax(-1)?;
                Ok((vec![y.sum(())?, y], ()))
            };
            let state = GeneratorState::current();
            let wanted = run();
            state.restore();
            (wanted, capture.run(0, vec![index.clone()], run))
        };
        let index = Tensor::from_vec(vec![0i64, 4, 2], [3], device).unwrap();
        manual_seed(7);
        let mut sums = Vec::new();
        for _ in 0..7 {
            let (wanted, found) = step(&index);
            let (wanted, found) = (wanted.unwrap().0, found.unwrap().0);
            for (wanted, found) in wanted.iter().zip(&found) {
                assert_eq!(values(found), values(wanted));
            }
            sums.extend(values(&found[0]));
        }
        sums.dedup();
        assert_eq!(sums.len(), 7, "{sums:?}");
        assert_eq!(counted.stats().replays, 3);
        let outside = Tensor::from_vec(vec![0i64, 5, 2], [3], device).unwrap();
        let (_, found) = step(&outside);
        let error = found.unwrap().0[0].item().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange);
        assert_eq!(counted.stats().replays, 4);
        let (wanted, found) = step(&index);
        assert_eq!(values(&found.unwrap().0[1]), values(&wanted.unwrap().0[1]));
    });
}

#[test]
fn threads_share_a_recording_and_others_compute_while_it_is_made() {
    on_device(|device, counted| {
        let (compiled, weights) = compiled_layers(device);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let x = Tensor::randn([2, 4], device).unwrap();
                        let wanted = values(&layers(&x, &weights).unwrap());
                        let found = compiled.run(&[x]).unwrap().remove(0);
                        assert_eq!(values(&found), wanted);
                    }
                });
            }
        });
        // At the latest, the recording thread itself continues with the recording.
        assert!(counted.stats().replays >= 18, "{:?}", counted.stats());
    });
}

#[test]
fn few_kernels_and_what_the_host_computes_run_as_they_are() {
    on_device(|device, counted| {
        let x = Tensor::randn([2, 4], device).unwrap();
        let compiled = Compiled::new(std::slice::from_ref(&x), || Ok(vec![x.exp()?.sum(())?])).unwrap();
        for _ in 0..6 {
            let x = Tensor::randn([2, 4], device).unwrap();
            let found = compiled.run(std::slice::from_ref(&x)).unwrap().remove(0);
            assert_eq!(values(&found), values(&x.exp().unwrap().sum(()).unwrap()));
        }
        assert_eq!(counted.stats().replays, 0);
    });
}
