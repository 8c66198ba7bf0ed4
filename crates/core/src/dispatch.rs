//! Calls the backend method for an op given as a value.

use crate::ops::op_pattern;
use crate::ops::{Operands, malformed};
use crate::{Backend, Op, Outputs, Result, for_each_op};

macro_rules! dispatch {
    ($($(#[$doc:meta])* $kind:ident $method:ident($($x:ident : $type:tt),* $(,)?) -> $count:ident
        as $variant:ident $fields:tt, named $name:tt, for $dtypes:tt gives $results:tt $(saves $saves:tt)? $(steps $steps:tt)?;)*) => {
        /// Calls the method for an op on `len` tensors, which `get` returns by index, and passes each result to `wrap`.
        #[inline]
        pub(crate) fn call<'a, B: Backend, T>(
            op: &Op,
            len: usize,
            get: impl Fn(usize) -> Result<&'a B::Tensor>,
            wrap: impl Fn(B::Tensor) -> T,
        ) -> Result<Outputs<T>> {
            let mut operands = Operands { op, len, next: 0, get };
            match op {
                $(op_pattern!($variant $fields) => {
                    let results = B::$method($(dispatch!(@argument operands $x $type)),*)?;
                    Ok(dispatch!(@$count results wrap))
                })*
                Op::AccumulateGrad | Op::SliceScatter { .. } | Op::SgdStep(_) | Op::AdamStep(_) => {
                    Err(malformed(op, len).with_hint("this op changes its tensors: call update"))
                }
            }
        }
    };

    (@argument $operands:ident $x:ident tensor) => { $operands.tensor()? };
    (@argument $operands:ident $x:ident tensors) => { &$operands.tensors()? };
    (@argument $operands:ident $x:ident pair) => { $operands.pair()? };
    (@argument $operands:ident $x:ident optional) => { $operands.optional()? };
    (@argument $operands:ident $x:ident optional_pair) => { $operands.optional_pair()? };
    (@argument $operands:ident $x:ident (&$type:ty)) => { $x };
    (@argument $operands:ident $x:ident $type:tt) => { *$x };

    (@one $results:ident $wrap:ident) => { Outputs::one($wrap($results)) };
    (@two $results:ident $wrap:ident) => { Outputs::two($wrap($results.0), $wrap($results.1)) };
    (@one_or_two $results:ident $wrap:ident) => { Outputs::one_or_two($wrap($results.0), $results.1.map($wrap)) };
    (@three $results:ident $wrap:ident) => { Outputs::three($wrap($results.0), $wrap($results.1), $wrap($results.2)) };
}

for_each_op!(dispatch);
