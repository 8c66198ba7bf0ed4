//! The arithmetic of the reductions.

/// A reduction of elements `T`. Short runs are folded in `Acc`, and their results joined in `Wide`.
pub(super) trait Fold<T>: 'static {
    type Acc: Copy;
    type Wide: Copy + Send;

    /// Whether the fold is common enough for code with wide registers, beside that for the architecture's baseline.
    const VECTORS: bool = false;

    fn start() -> Self::Acc;
    fn step(acc: Self::Acc, x: T) -> Self::Acc;
    fn widen(acc: Self::Acc) -> Self::Wide;
    fn join(a: Self::Wide, b: Self::Wide) -> Self::Wide;

    fn finish(wide: Self::Wide) -> T;

    /// Turns a sum into a mean; only floats have one.
    #[inline(always)]
    fn divide(wide: Self::Wide, _count: usize) -> Self::Wide {
        wide
    }
}

pub(super) struct Sum;
pub(super) struct Prod;
pub(super) struct Max;
pub(super) struct Min;

macro_rules! float_folds {
    ($($type:ident)*) => {$(
        impl Fold<$type> for Sum {
            type Acc = $type;
            type Wide = f64;

            const VECTORS: bool = true;

            #[inline(always)]
            fn start() -> $type {
                0.0
            }

            #[inline(always)]
            fn step(acc: $type, x: $type) -> $type {
                acc + x
            }

            #[inline(always)]
            fn widen(acc: $type) -> f64 {
                acc.into()
            }

            #[inline(always)]
            fn join(a: f64, b: f64) -> f64 {
                a + b
            }

            #[inline(always)]
            fn finish(wide: f64) -> $type {
                wide as $type
            }

            #[inline(always)]
            fn divide(wide: f64, count: usize) -> f64 {
                wide / count as f64
            }
        }

        impl Fold<$type> for Prod {
            type Acc = f64;
            type Wide = f64;

            #[inline(always)]
            fn start() -> f64 {
                1.0
            }

            #[inline(always)]
            fn step(acc: f64, x: $type) -> f64 {
                acc * f64::from(x)
            }

            #[inline(always)]
            fn widen(acc: f64) -> f64 {
                acc
            }

            #[inline(always)]
            fn join(a: f64, b: f64) -> f64 {
                a * b
            }

            #[inline(always)]
            fn finish(wide: f64) -> $type {
                wide as $type
            }
        }

        extreme!(Max $type, true, $type::NEG_INFINITY, |acc, x| if x > acc || x.is_nan() { x } else { acc });
        extreme!(Min $type, true, $type::INFINITY, |acc, x| if x < acc || x.is_nan() { x } else { acc });
    )*};
}

macro_rules! extreme {
    ($fold:ident $type:ident, $vectors:literal, $start:expr, |$acc:ident, $x:ident| $step:expr) => {
        impl Fold<$type> for $fold {
            type Acc = $type;
            type Wide = $type;

            const VECTORS: bool = $vectors;

            #[inline(always)]
            fn start() -> $type {
                $start
            }

            #[inline(always)]
            fn step($acc: $type, $x: $type) -> $type {
                $step
            }

            #[inline(always)]
            fn widen(acc: $type) -> $type {
                acc
            }

            #[inline(always)]
            fn join($acc: $type, $x: $type) -> $type {
                $step
            }

            #[inline(always)]
            fn finish(wide: $type) -> $type {
                wide
            }
        }
    };
}

macro_rules! int_folds {
    ($($type:ident)*) => {$(
        extreme!(Sum $type, false, 0, |acc, x| acc.wrapping_add(x));
        extreme!(Prod $type, false, 1, |acc, x| acc.wrapping_mul(x));
        extreme!(Max $type, false, $type::MIN, |acc, x| acc.max(x));
        extreme!(Min $type, false, $type::MAX, |acc, x| acc.min(x));
    )*};
}

float_folds!(f32 f64);
int_folds!(u8 i32 i64);

/// Calls a generic function with the types for an op and dtype: `with_fold!(op, dtype, T, F => f::<T, F>())`, an
/// `Option`. Bools are bytes of 0 and 1; a mean is a sum that is divided later; 16-bit floats have no folds.
macro_rules! with_fold {
    ($op:expr, $dtype:expr, $T:ident, $F:ident => $body:expr) => {
        match ($op, $dtype) {
            (ReduceOp::Sum | ReduceOp::Mean, DType::F32) => with_fold!(@ f32, fold::Sum, $T, $F => $body),
            (ReduceOp::Prod, DType::F32) => with_fold!(@ f32, fold::Prod, $T, $F => $body),
            (ReduceOp::Max, DType::F32) => with_fold!(@ f32, fold::Max, $T, $F => $body),
            (ReduceOp::Min, DType::F32) => with_fold!(@ f32, fold::Min, $T, $F => $body),
            (ReduceOp::Sum | ReduceOp::Mean, DType::F64) => with_fold!(@ f64, fold::Sum, $T, $F => $body),
            (ReduceOp::Prod, DType::F64) => with_fold!(@ f64, fold::Prod, $T, $F => $body),
            (ReduceOp::Max, DType::F64) => with_fold!(@ f64, fold::Max, $T, $F => $body),
            (ReduceOp::Min, DType::F64) => with_fold!(@ f64, fold::Min, $T, $F => $body),
            (ReduceOp::Sum, DType::U8) => with_fold!(@ u8, fold::Sum, $T, $F => $body),
            (ReduceOp::Prod, DType::U8) => with_fold!(@ u8, fold::Prod, $T, $F => $body),
            (ReduceOp::Max, DType::U8) => with_fold!(@ u8, fold::Max, $T, $F => $body),
            (ReduceOp::Min, DType::U8) => with_fold!(@ u8, fold::Min, $T, $F => $body),
            (ReduceOp::Sum, DType::I32) => with_fold!(@ i32, fold::Sum, $T, $F => $body),
            (ReduceOp::Prod, DType::I32) => with_fold!(@ i32, fold::Prod, $T, $F => $body),
            (ReduceOp::Max, DType::I32) => with_fold!(@ i32, fold::Max, $T, $F => $body),
            (ReduceOp::Min, DType::I32) => with_fold!(@ i32, fold::Min, $T, $F => $body),
            (ReduceOp::Sum, DType::I64) => with_fold!(@ i64, fold::Sum, $T, $F => $body),
            (ReduceOp::Prod, DType::I64) => with_fold!(@ i64, fold::Prod, $T, $F => $body),
            (ReduceOp::Max, DType::I64) => with_fold!(@ i64, fold::Max, $T, $F => $body),
            (ReduceOp::Min, DType::I64) => with_fold!(@ i64, fold::Min, $T, $F => $body),
            (ReduceOp::Any | ReduceOp::Max, DType::Bool) => with_fold!(@ u8, fold::Max, $T, $F => $body),
            (ReduceOp::All | ReduceOp::Min, DType::Bool) => with_fold!(@ u8, fold::Prod, $T, $F => $body),
            _ => None,
        }
    };
    (@ $type:ty, $fold:ty, $T:ident, $F:ident => $body:expr) => {{
        type $T = $type;
        type $F = $fold;
        Some($body)
    }};
}

pub(super) use with_fold;
