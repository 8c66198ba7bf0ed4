//! Gradients that are added up in place. Alone in its process, whose allocations it counts.

use polygrad_core::{Backend, DType, Shape};
use polygrad_cpu::{Cpu, CpuDevice, CpuTensor, memory};

#[test]
fn gradients_accumulate_in_place_when_nobody_sees_it() {
    let device = CpuDevice::default();
    let one = |value: f64| Cpu::full(Shape::from([100]), value.into(), DType::F32, &device).unwrap();
    let values = |x: &CpuTensor| Cpu::to_host(x).unwrap().to_f64_vec();
    let (acc, grad) = (one(1.0), one(2.0));
    let seen = acc.clone();
    let sum = Cpu::accumulate_grad(acc, &grad).unwrap();
    assert_eq!((values(&seen)[7], values(&sum)[7]), (1.0, 3.0));
    let before = memory::stats().allocations;
    let sum = Cpu::accumulate_grad(sum, &grad).unwrap();
    assert_eq!(memory::stats().allocations, before);
    assert_eq!(values(&sum)[7], 5.0);
    // Its own gradient.
    let twice = sum.clone();
    assert_eq!(values(&Cpu::accumulate_grad(sum, &twice).unwrap())[7], 10.0);
}
