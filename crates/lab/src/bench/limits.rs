//! The processor's peak rates, measured in the same run, and the share of them that a case reaches.

use polygrad_console::failure::Result;
use polygrad_workloads::{Amount, Case};
use serde_json::{Value, json};

/// Sizes in bytes that fit into the second-level cache, and that exceed all caches.
const NEAR: u64 = 512 << 10;
const FAR: u64 = 64 << 20;

/// The peak rates per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    flops: f64,
    byte_ops: f64,
    near: f64,
    far: f64,
}

impl Limits {
    /// The limits of a device, if it is one of the native CPU backend.
    ///
    /// # Errors
    /// If memory runs out.
    #[cfg(feature = "cpu")]
    pub(crate) fn of(device: &str) -> Result<Option<Self>> {
        let device = polygrad::prelude::Device::new(device)?;
        let Some(cpu) = device.downcast::<polygrad::cpu::Cpu>() else {
            return Ok(None);
        };
        let limits = polygrad::cpu::Limits::measure(*cpu.inner())?;
        Ok(Some(Self {
            flops: limits.flops,
            byte_ops: limits.byte_ops,
            near: limits.near,
            far: limits.far,
        }))
    }

    #[cfg(not(feature = "cpu"))]
    pub(crate) fn of(_: &str) -> Result<Option<Self>> {
        Ok(None)
    }

    /// The limits as a line of text.
    pub(crate) fn line(&self) -> String {
        let [flops, byte_ops, near, far] = [self.flops, self.byte_ops, self.near, self.far].map(|limit| limit * 1e-9);
        format!(
            "limits: {flops:.0} GFLOP/s of f32, {byte_ops:.0} GOP/s of bytes; \
             reads of {near:.0} GB/s from the second level of the cache, {far:.1} GB/s from memory"
        )
    }

    pub(crate) fn to_json(self) -> Value {
        json!({"flops": self.flops, "byte_ops": self.byte_ops, "near": self.near, "far": self.far})
    }

    /// The share of its limit that a step reaches; `None` if no limit is measured for its dtype or size.
    pub(crate) fn share(&self, case: &Case, seconds: f64) -> Option<f64> {
        let Amount {
            elements, bytes, flops, ..
        } = case.amount();
        let name = case.name();
        let dtype = name.rsplit(' ').next().unwrap_or_default();
        let (amount, limit) = match () {
            () if elements > 0 && bytes <= NEAR => (bytes, self.near),
            () if elements > 0 && bytes >= FAR => (bytes, self.far),
            () if elements > 0 => return None,
            () if dtype == "u8" => (flops, self.byte_ops),
            () if ["f64", "f16", "bf16"].contains(&dtype) => return None,
            () => (flops, self.flops),
        };
        (amount > 0).then(|| amount as f64 / seconds / limit)
    }
}

#[cfg(test)]
mod tests {
    use polygrad_workloads::select;

    use super::*;

    #[test]
    fn shares_are_of_the_limit_of_their_kind() {
        let limits = Limits {
            flops: 1e9,
            byte_ops: 4e9,
            near: 1e9,
            far: 1e8,
        };
        let share = |name: &str| limits.share(&select(name).unwrap()[0], 1.0);
        let flops = 2.0 * 512f64.powi(3);
        assert_eq!(share("gemm/512x512x512"), Some(flops / 1e9));
        assert_eq!(share("gemm/512x512x512/u8"), Some(flops / 4e9));
        assert_eq!(share("gemm/512x512x512/f64"), None);
        assert!(share("elementwise/add/1024").is_some_and(|share| share < 1e-3));
    }
}
