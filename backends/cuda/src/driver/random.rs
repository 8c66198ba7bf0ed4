//! Random numbers, equal to those that the host draws.

use polygrad_core::compute::Random;
use polygrad_core::{DType, Distribution, Result, random_host};

use super::memory::{Space, shape_of};
use super::queue::Queue;
use crate::source::{Args, File, file};

const KERNEL: File = file!("random");

/// See [`polygrad_core::compute::ComputeBackend::random`].
pub(super) fn random(queue: &Queue, space: &Space<'_>, call: &Random) -> Result<()> {
    let output = space.row(call.output, call.dtype, &[call.len])?;
    if call.len == 0 {
        return random_host(shape_of(&[0])?, call.distribution, call.dtype, call.key).map(drop);
    }
    // The logarithm and cosine of normal numbers, and the rounding to 16-bit floats, must equal the host's in every
    // bit, so the host draws these.
    let host =
        matches!(call.distribution, Distribution::Normal { .. }) || matches!(call.dtype, DType::F16 | DType::BF16);
    let drawn = match (host, call.distribution) {
        (false, Distribution::Uniform { low, high }) => Some((0u32, low, high, 0, 0)),
        (false, Distribution::Bernoulli { p }) => Some((1, p, 0.0, 0, 0)),
        (false, Distribution::Integers { low, high }) => Some((2, 0.0, 0.0, low, high.wrapping_sub(low))),
        _ => None,
    };
    let Some((kind, low, high, from, span)) = drawn else {
        let host = random_host(shape_of(&[call.len])?, call.distribution, call.dtype, call.key)?;
        return queue.runtime.write(output, host.bytes());
    };
    // Drawing no number on the host checks the parameters.
    random_host(shape_of(&[0])?, call.distribution, call.dtype, call.key)?;
    let source = queue
        .source(KERNEL, call.dtype)
        .define("KIND", kind)
        .flag("BOUNDED", kind == 0 && call.dtype.is_float());
    let args = Args::default()
        .push(output)
        .push(call.len)
        .push(call.key.seed)
        .push(call.key.offset)
        .push(low)
        .push(high)
        .push(from)
        .push(span);
    queue.launch_each(source, call.len, &args)
}
