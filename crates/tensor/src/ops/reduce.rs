//! Reductions and scans.

use polygrad_core::{ArgOp, Axes, Backend, DType, Error, Op, ReduceOp, Result};

use super::{IntoAxes, context};
use crate::Tensor;
use crate::graph::{cut, record};

/// Defines a reduction in two forms: without the reduced axes, and with these kept with extent 1.
macro_rules! with_and_without_axes {
    ($($(#[$doc:meta])* $name:ident, $keepdim:ident = $with:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        impl<B: Backend> Tensor<B> {$(
            $(#[$doc])*
            pub fn $name(&self, $($arg: $type),*) -> Result<$result> {
                self.$with($($arg,)* false)
            }

            #[doc = concat!("[`Tensor::", stringify!($name), "`] whose axes stay, with extent 1.")]
            ///
            /// # Errors
            #[doc = concat!("As [`Tensor::", stringify!($name), "`].")]
            pub fn $keepdim(&self, $($arg: $type),*) -> Result<$result> {
                self.$with($($arg,)* true)
            }
        )*}
    };
}

pub(crate) use with_and_without_axes;

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident, $keepdim:ident, $with:ident = $op:ident;)*) => {
        with_and_without_axes! {$(
            $(#[$doc])*
            /// Over one axis, several, or all (`()`).
            ///
            /// # Errors
            /// When an axis is out of range or given twice, the op does not take the dtype, or it has no value
            /// for an empty reduction.
            $name, $keepdim = $with(axes: impl IntoAxes) -> Self;
        )*}

        impl<B: Backend> Tensor<B> {$(
            fn $with(&self, axes: impl IntoAxes, keepdims: bool) -> Result<Self> {
                self.reduce(ReduceOp::$op, axes, keepdims)
            }
        )*}
    };
}

reductions! {
    /// Sum; integers and bool add up in i64.
    sum, sum_keepdim, sum_with = Sum;
    /// Arithmetic mean of floats.
    mean, mean_keepdim, mean_with = Mean;
    /// Product; integers and bool multiply in i64.
    prod, prod_keepdim, prod_with = Prod;
    /// Largest value; ties share the gradient equally.
    amax, amax_keepdim, amax_with = Max;
    /// Smallest value; ties share the gradient equally.
    amin, amin_keepdim, amin_with = Min;
    /// Whether any element is true (not 0).
    any, any_keepdim, any_with = Any;
    /// Whether all elements are true (not 0).
    all, all_keepdim, all_with = All;
}

with_and_without_axes! {
    /// Position of the largest value along an axis, i64; the first one of a tie.
    ///
    /// # Errors
    /// When the axis is out of range or empty.
    argmax, argmax_keepdim = argmax_with(axis: isize) -> Self;
    /// Position of the smallest value along an axis, i64; the first one of a tie.
    ///
    /// # Errors
    /// When the axis is out of range or empty.
    argmin, argmin_keepdim = argmin_with(axis: isize) -> Self;
    /// Largest value along an axis and its position (i64); the first one of a tie gets the whole gradient.
    ///
    /// # Errors
    /// When the axis is out of range or empty.
    max, max_keepdim = max_with(axis: isize) -> (Self, Self);
    /// Smallest value along an axis and its position (i64); the first one of a tie gets the whole gradient.
    ///
    /// # Errors
    /// When the axis is out of range or empty.
    min, min_keepdim = min_with(axis: isize) -> (Self, Self);
}

impl<B: Backend> Tensor<B> {
    /// Reduces by an op of the family [`ReduceOp`].
    ///
    /// # Errors
    /// When an axis is out of range or given twice, the op does not take the dtype, or it has no value
    /// for an empty reduction.
    pub fn reduce(&self, op: ReduceOp, axes: impl IntoAxes, keepdims: bool) -> Result<Self> {
        let fail = |e| context(e, op.name(), &[self]);
        if op == ReduceOp::Prod
            && let Some(x) = self.raised()?
        {
            return x.reduce(op, axes, keepdims);
        }
        let shape = self.shape();
        let axes = axes.into_axes(&shape).map_err(fail)?;
        let dtype = self.dtype();
        let x = match op {
            ReduceOp::Any | ReduceOp::All => self.cast_cow(DType::Bool)?,
            ReduceOp::Sum | ReduceOp::Prod if !dtype.is_float() => self.cast_cow(DType::I64)?,
            ReduceOp::Mean if !dtype.is_float() => {
                let error = Error::dtype(format!("the mean of {dtype} is no {dtype}"));
                return Err(fail(error.with_hint("convert it to a float with to_dtype")));
            }
            _ => self.cast_cow(dtype)?,
        };
        if op.needs_elements()
            && let Some(axis) = axes.iter().find(|&axis| shape[axis] == 0)
        {
            return Err(fail(Error::shape(format!("axis {axis} has no elements to reduce"))));
        }
        let value = B::reduce(op, &x.value, axes, keepdims).map_err(fail)?;
        if matches!(op, ReduceOp::Any | ReduceOp::All) {
            return Ok(cut(value, &[self], op.name()));
        }
        Ok(record(value, &[&*x], || Op::Reduce { op, axes, keepdims }))
    }

    /// Sum of all elements, rank 0.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn sum_all(&self) -> Result<Self> {
        self.sum(())
    }

    /// Mean of all elements, rank 0.
    ///
    /// # Errors
    /// When there are none, or the dtype is not a float.
    pub fn mean_all(&self) -> Result<Self> {
        self.mean(())
    }

    fn argmax_with(&self, axis: isize, keepdims: bool) -> Result<Self> {
        self.arg_reduce(ArgOp::Max, axis, keepdims)
    }

    fn argmin_with(&self, axis: isize, keepdims: bool) -> Result<Self> {
        self.arg_reduce(ArgOp::Min, axis, keepdims)
    }

    /// Finds a position along an axis, i64, by an op of the family [`ArgOp`].
    ///
    /// # Errors
    /// When the axis is out of range or empty.
    pub fn arg_reduce(&self, op: ArgOp, axis: isize, keepdims: bool) -> Result<Self> {
        if let Some(vector) = self.vector_of_scalar()? {
            return vector.arg_reduce(op, axis, keepdims)?.reshape(());
        }
        let fail = |e| context(e, op.name(), &[self]);
        let shape = self.shape();
        let axis = shape.axis(axis).map_err(fail)?;
        if shape[axis] == 0 {
            return Err(fail(Error::shape(format!(
                "axis {axis} has no elements to choose from"
            ))));
        }
        B::arg_reduce(op, &self.value, axis, keepdims)
            .map(|value| cut(value, &[self], op.name()))
            .map_err(fail)
    }

    fn max_with(&self, axis: isize, keepdims: bool) -> Result<(Self, Self)> {
        self.extreme(ArgOp::Max, axis, keepdims)
    }

    fn min_with(&self, axis: isize, keepdims: bool) -> Result<(Self, Self)> {
        self.extreme(ArgOp::Min, axis, keepdims)
    }

    fn extreme(&self, op: ArgOp, axis: isize, keepdims: bool) -> Result<(Self, Self)> {
        self.picked(self.arg_reduce(op, axis, true)?, axis, keepdims)
    }

    /// The values at `index` along an axis, which `index` keeps with extent 1, together with the positions.
    pub(super) fn picked(&self, index: Self, axis: isize, keepdims: bool) -> Result<(Self, Self)> {
        let values = self.gather(axis, &index)?;
        if keepdims || self.rank() == 0 {
            return Ok((values, index));
        }
        Ok((values.squeeze(axis)?, index.squeeze(axis)?))
    }

    /// Running sum along an axis, inclusive; integers and bool add up in i64.
    ///
    /// # Errors
    /// When the axis is out of range.
    pub fn cumsum(&self, axis: isize) -> Result<Self> {
        if let Some(vector) = self.vector_of_scalar()? {
            return vector.cumsum(axis)?.reshape(());
        }
        let fail = |e| context(e, "cumsum", &[self]);
        let axis = self.shape().axis(axis).map_err(fail)?;
        let dtype = self.dtype();
        let x = self.cast_cow(if dtype.is_float() { dtype } else { DType::I64 })?;
        let value = B::cumsum(&x.value, axis).map_err(fail)?;
        Ok(record(value, &[&*x], || Op::CumSum { axis }))
    }

    /// Running product along an axis, inclusive; integers and bool multiply in i64. Its gradient does not divide, and
    /// so is correct where there are zeros.
    ///
    /// # Errors
    /// When the axis is out of range.
    pub fn cumprod(&self, axis: isize) -> Result<Self> {
        if let Some(vector) = self.vector_of_scalar()? {
            return vector.cumprod(axis)?.reshape(());
        }
        let fail = |e| context(e, "cumprod", &[self]);
        let at = self.shape().axis(axis).map_err(fail)?;
        let dtype = self.dtype();
        let x = self.cast_cow(if dtype.is_float() { dtype } else { DType::I64 })?;
        Self::in_wide([&*x], |[x]| {
            let extent = x.shape()[at];
            let mut border = vec![(0, 0); x.rank()];
            let (mut products, mut factors) = (x.clone(), 1);
            // Doubling: each product of `factors` elements is multiplied by the product of the `factors` elements
            // before them.
            while factors < extent {
                border[at] = (factors, 0);
                let before = products.narrow(axis, 0, extent - factors)?.pad(&border, 1i64)?;
                products = products.mul(&before)?;
                factors *= 2;
            }
            Ok(products)
        })
        .map_err(fail)
    }

    /// Sums over the axes along which `shape` was broadcast to this tensor's shape.
    pub(crate) fn sum_to(&self, shape: polygrad_core::Shape) -> Result<Self> {
        if self.shape() == shape {
            return Ok(self.clone());
        }
        let value = B::sum_to(&self.value, shape).map_err(|e| context(e, "sum_to", &[self]))?;
        Ok(record(value, &[self], || Op::SumTo(shape)))
    }

    /// A reduction over axes counted from the front; for gradient rules.
    pub(crate) fn reduce_axes(&self, op: ReduceOp, axes: Axes, keepdims: bool) -> Result<Self> {
        let list: Vec<isize> = axes.iter().map(|axis| axis as isize).collect();
        self.reduce(op, list.as_slice(), keepdims)
    }
}
