//! The steps of a program as loops over a few contiguous elements.

use polygrad_core::compute::Step;
use polygrad_core::{DType, Result};

use crate::ops::half::Half;
use crate::ops::{binary, compare, convert, refused, select, unary, unknown};
use crate::simd::{Level, StorePolicy};

/// Computes `n` elements from `n` elements of each operand (up to three; the other pointers are not used).
///
/// Calling one is sound if `n` elements of the operands' dtypes are readable, and `n` of the step's dtype writable.
pub(super) type Loop = Box<dyn Fn([*const u8; 3], *mut u8, usize) + Send + Sync>;

/// The loop of a step and its nanoseconds per element. `dtype` is that of the operands (for a choice: of the two
/// values).
#[allow(clippy::undocumented_unsafe_blocks, reason = "one comment says it for all loops")]
pub(super) fn compile(step: Step, dtype: DType, level: Option<Level>) -> Result<(Loop, f32)> {
    let half = Half::of(dtype);
    let policy = StorePolicy::cached(level);
    // SAFETY of each loop: it was found for the dtype; its callers guarantee that the pointers are valid, as [`Loop`]
    // says.
    Ok(match step {
        Step::Unary(op, _) if op.is_predicate() => {
            let f = unary::find_predicate(op, dtype)?;
            (Box::new(move |[x, ..], to, n| unsafe { f(x, to, n) }), 0.2)
        }
        Step::Unary(op, _) => {
            let compute = if half.is_some() { DType::F32 } else { dtype };
            let f = unary::find(op, compute).ok_or_else(|| refused(op.name(), dtype))?;
            let ns = unary::cost(op);
            match half {
                None => (Box::new(move |[x, ..], to, n| unsafe { f(policy, x, to, n) }), ns),
                Some(half) => {
                    let narrow = move |[x, ..]: [*const u8; 3], to, n| unsafe {
                        half.run(level, [x], to, n, |[x], to, n| f(policy, x, to, n));
                    };
                    (Box::new(narrow), ns + 0.5)
                }
            }
        }
        Step::Binary(op, ..) => {
            let (f, ns) = binary::choose(op, dtype)?;
            match half {
                None => (Box::new(move |[a, b, _], to, n| unsafe { f(policy, a, b, to, n) }), ns),
                Some(half) => {
                    let narrow = move |[a, b, _]: [*const u8; 3], to, n| unsafe {
                        half.run(level, [a, b], to, n, |[a, b], to, n| f(policy, a, b, to, n));
                    };
                    (Box::new(narrow), ns + 0.8)
                }
            }
        }
        Step::Compare(op, ..) => {
            let f = compare::choose(op, dtype)?;
            (Box::new(move |[a, b, _], to, n| unsafe { f(level, a, b, to, n) }), 0.2)
        }
        Step::Select(..) => {
            let size = dtype.size();
            let chosen = move |cab, to, n| unsafe { select::choose(level, size, cab, to, n) };
            (Box::new(chosen), 0.06 * size as f32)
        }
        Step::Cast(_, to_dtype) if to_dtype == dtype => {
            let size = dtype.size();
            let same = move |[x, ..]: [*const u8; 3], to: *mut u8, n| unsafe { std::ptr::copy(x, to, n * size) };
            (Box::new(same), 0.1)
        }
        Step::Cast(_, to_dtype) => {
            let cast = move |[x, ..]: [*const u8; 3], to, n| unsafe {
                convert::convert(level, dtype, to_dtype, x, to, n);
            };
            (Box::new(cast), 0.5)
        }
        _ => return Err(unknown(step.name())),
    })
}
