//! A driver that fails as planned and counts its allocations, and a model to train on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use polygrad_compute::{Compute, ComputeDevice};
use polygrad_conformance::driver::{DriverCall, DriverHooks, FaultPlan, Hooked};
use polygrad_core::Result;
use polygrad_core::compute::ComputeBackend;
use polygrad_cpu::CpuDriver;
use polygrad_nn::loss::cross_entropy;
use polygrad_nn::optim::{Adam, Optimizer};
use polygrad_nn::{Conv2d, Flatten, LayerNorm, Linear, Module, ReLU, Sequential};
use polygrad_tensor::{DType, Device, Distribution, Tensor, manual_seed};

/// Fails as planned, and counts what is allocated.
#[derive(Default)]
pub(crate) struct Watch {
    pub(crate) plan: FaultPlan,
    live: AtomicI64,
}

impl Watch {
    /// Number of allocations that were not freed.
    pub(crate) fn live(&self) -> i64 {
        self.live.load(Ordering::Relaxed)
    }
}

impl DriverHooks for Watch {
    fn before(&self, call: &DriverCall<'_>) -> Result<()> {
        self.plan.before(call)
    }

    fn after(&self, call: &DriverCall<'_>, _: &dyn ComputeBackend) -> Result<()> {
        match call {
            DriverCall::Alloc(_) => self.live.fetch_add(1, Ordering::Relaxed),
            DriverCall::Free(_) => self.live.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        Ok(())
    }
}

pub(crate) type Watched = Hooked<CpuDriver, Watch>;
pub(crate) type B = Compute<Watched>;

/// A driver, and its watch.
pub(crate) fn watched() -> (Watched, Arc<Watch>) {
    let watch = Arc::new(Watch::default());
    (Hooked::new(CpuDriver::default(), Arc::clone(&watch)), watch)
}

pub(crate) struct Training {
    pub(crate) device: Device<B>,
    model: Sequential<B>,
    optimizer: Adam<B>,
    images: Tensor<B>,
    classes: Tensor<B>,
}

impl Training {
    /// A training after one step, so that the optimizer has its state.
    pub(crate) fn ready(device: ComputeDevice<Watched>) -> Result<Self> {
        manual_seed(3);
        let device = Device::from_inner(device);
        let model = Sequential::new()
            .push(Conv2d::new(1, 2, 3, &device)?)
            .push(ReLU)
            .push(Flatten::default())
            .push(LayerNorm::new([32], &device)?)
            .push(Linear::new(32, 3, &device)?);
        let normal = Distribution::Normal { mean: 0.0, std: 1.0 };
        let mut training = Self {
            images: Tensor::random([4, 1, 6, 6], normal, (&device, DType::F32))?,
            classes: Tensor::from_vec(vec![0i64, 1, 2, 1], 4, &device)?,
            optimizer: Adam::new(model.parameters(), 1e-2)?,
            device,
            model,
        };
        training.step()?;
        Ok(training)
    }

    pub(crate) fn step(&mut self) -> Result<f64> {
        let loss = cross_entropy(&self.model.forward(&self.images)?, &self.classes)?;
        let value = loss.item()?;
        self.optimizer.step(&loss.backward()?)?;
        Ok(value)
    }
}
