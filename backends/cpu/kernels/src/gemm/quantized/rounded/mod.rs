//! Products of a weight and rows rounded to 8 bits, as integer products.
//!
//! Each block of a row of X becomes signed bytes `q`, whose greatest magnitude is 127, and a scale `t`. With the
//! weight's numbers `p`, scales `s` and zero points `z`
//!
//! ```text
//! y = Σ over blocks of s t Σ (p - z) q
//! ```
//!
//! where the inner sum is exact if there is a single integer zero point. Otherwise it is `Σ p q`, from which
//! `s z t Σ q` is subtracted. Blocks are added in order, so that a row of the result does not depend on the number of
//! rows or threads, or on the instructions used.
//!
//! Rows of the weight are the lanes of registers (`times`): where they are interleaved, as they lie (`interleaved`);
//! else a few rows at a time are transposed to columns of words (`turn`), which stay in the first-level cache while all
//! rows of X are multiplied with them. For a single row of X and the blocks of GGUF, AVX-512 transposes the sums
//! instead (`straight`).

mod input;
mod interleaved;
#[cfg(target_arch = "x86_64")]
mod straight;
#[cfg(test)]
mod tests;
mod times;
mod turn;

use std::sync::OnceLock;

use polygrad_core::Result;

use self::input::Input;
#[cfg(target_arch = "x86_64")]
use self::straight::Straight;
use self::times::Times;
use self::turn::{Columns, Turn};
use super::{Factors, Weight};
use crate::CpuDevice;
use crate::Pointer;
use crate::buffers::Buffer;
use crate::gemm::bytes::Way;

/// `C = X Wᵀ` for `m` rows of X.
///
/// # Safety
/// As for [`Weight::product`].
///
/// # Errors
/// If memory runs out.
pub(super) unsafe fn run(weight: &Weight, device: CpuDevice, m: usize, x: *const f32, c: *mut f32) -> Result<()> {
    // SAFETY: passed on.
    unsafe { by(weight, device, Way::of(device), m, x, c) }
}

/// [`run`] with given instructions.
///
/// # Safety
/// As for [`run`]; the machine must have the instructions.
pub(super) unsafe fn by(
    weight: &Weight,
    device: CpuDevice,
    way: Way,
    m: usize,
    x: *const f32,
    c: *mut f32,
) -> Result<()> {
    // SAFETY: X by the caller.
    let input = unsafe { Input::new(weight, device, way, m, x)? };
    let (n, lanes, c) = (weight.n, way.lanes(), Pointer(c));
    let failed = OnceLock::new();
    let ns = weight.k as f32 * lanes as f32 * (0.03 + m as f32 * way.cost());
    if weight.interleaved {
        // SAFETY: as for this function.
        return unsafe { interleaved::run(weight, device, way, &input, c.at(0)) };
    }
    #[cfg(target_arch = "x86_64")]
    if way == Way::Avx512Vnni
        && m == 1
        && let Some(straight) = Straight::new(weight, &input)?
    {
        // SAFETY: the rest as for this function.
        return unsafe { straight.run(device, c.at(0)) };
    }
    device.split(n.div_ceil(lanes), ns, 1, |first, end| {
        let columns = match Columns::new(weight, lanes) {
            Ok(columns) => columns,
            Err(error) => {
                let _ = failed.set(error);
                return;
            }
        };
        for row in (first * lanes..n.min(end * lanes)).step_by(lanes) {
            let count = lanes.min(n - row);
            way.level().run(Turn {
                weight,
                rows: (row, count),
                to: &columns,
            });
            way.run(Times {
                weight,
                input: &input,
                registers: columns.registers(),
                count,
                to: (c.at(row), n),
            });
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

/// Memory for 32-bit numbers.
struct Words(Buffer);

impl Words {
    fn new(count: usize) -> Result<Self> {
        Buffer::alloc((count * size_of::<u32>()).max(1)).map(Self)
    }

    fn ptr<T>(&self) -> *mut T {
        self.0.as_ptr().cast()
    }
}
