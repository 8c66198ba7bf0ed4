//! Converts between a method's tensor parameters and a slice of tensors.

use super::Op;
use crate::{Error, Result};

/// Converts a method's argument to a field of [`Op`]: the value itself, or a copy of the referenced value, boxed if the
/// field is.
#[doc(hidden)]
pub trait Owned<T> {
    /// The field.
    fn owned(self) -> T;
}

impl<T> Owned<T> for T {
    #[inline]
    fn owned(self) -> T {
        self
    }
}

impl<T: Copy> Owned<T> for &T {
    #[inline]
    fn owned(self) -> T {
        *self
    }
}

impl<T: Copy> Owned<Box<T>> for &T {
    #[inline]
    fn owned(self) -> Box<T> {
        Box::new(*self)
    }
}

impl<T: Copy> Owned<Box<[T]>> for &[T] {
    #[inline]
    fn owned(self) -> Box<[T]> {
        self.into()
    }
}

/// The tensors of a call. The last ones are optional; all tensors after an absent one must be absent, too.
#[doc(hidden)]
pub struct Tensors<'a, T>([&'a T; 7], usize);

impl<'a, T> Tensors<'a, T> {
    /// From required tensors, at least one, and optional ones.
    #[inline]
    pub fn new<const R: usize, const O: usize>(there: [&'a T; R], optional: [Option<&'a T>; O]) -> Self {
        let mut all = [there[0]; 7];
        all[..R].copy_from_slice(&there);
        let mut len = R;
        for x in optional.into_iter().map_while(|x| x) {
            all[len] = x;
            len += 1;
        }
        Self(all, len)
    }

    /// All of them.
    #[inline]
    pub fn get(&self) -> &[&'a T] {
        &self.0[..self.1]
    }
}

/// Returns a call's `len` tensors one by one, in the form of a method's parameters. `get` returns a tensor by its
/// index.
pub(crate) struct Operands<'a, F> {
    pub(crate) op: &'a Op,
    pub(crate) len: usize,
    pub(crate) next: usize,
    pub(crate) get: F,
}

impl<X, F: Fn(usize) -> Result<X>> Operands<'_, F> {
    #[inline]
    pub(crate) fn tensor(&mut self) -> Result<X> {
        let place = self.next;
        if place >= self.len {
            return Err(malformed(self.op, self.len));
        }
        self.next = place + 1;
        (self.get)(place)
    }

    #[inline]
    pub(crate) fn optional(&mut self) -> Result<Option<X>> {
        if self.next >= self.len {
            return Ok(None);
        }
        self.next += 1;
        (self.get)(self.next - 1).map(Some)
    }

    pub(crate) fn pair(&mut self) -> Result<[X; 2]> {
        Ok([self.tensor()?, self.tensor()?])
    }

    pub(crate) fn optional_pair(&mut self) -> Result<Option<[X; 2]>> {
        match self.optional()? {
            Some(first) => Ok(Some([first, self.tensor()?])),
            None => Ok(None),
        }
    }

    pub(crate) fn tensors(&mut self) -> Result<Vec<X>> {
        std::iter::from_fn(|| self.optional().transpose()).collect()
    }
}

#[cold]
pub(crate) fn malformed(op: &Op, tensors: usize) -> Error {
    Error::invalid(format!("{op:?} does not take {tensors} tensors")).with_op(op.name())
}
