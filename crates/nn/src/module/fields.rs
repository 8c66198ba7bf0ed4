//! Further types of module fields: containers and plain data.

use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use polygrad_tensor::{Backend, ConvParams, DType, Device, PoolParams, Result, Shape, Tensor};

use super::{Forward, Module, Visit, Visitor};

macro_rules! pointers {
    ($($type:ty)*) => {$(
        impl<B: Backend, T: Visit<B> + ?Sized> Visit<B> for $type {
            fn visit(&self, visitor: &mut Visitor<'_, B>) {
                (**self).visit(visitor);
            }
        }

        impl<B: Backend, T: Module<B> + ?Sized> Module<B> for $type {}
    )*};
}

pointers! { &T Box<T> Rc<T> Arc<T> }

macro_rules! pointers_to_layers {
    ($($type:ty)*) => {$(
        impl<B: Backend, T: Forward<B> + ?Sized> Forward<B> for $type {
            fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
                (**self).forward(x)
            }
        }
    )*};
}

pointers_to_layers! { &T Box<T> Arc<T> }

impl<B: Backend, T: Visit<B>> Visit<B> for Option<T> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        if let Some(value) = self {
            value.visit(visitor);
        }
    }
}

impl<B: Backend, T: Visit<B>> Visit<B> for [T] {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        for (i, value) in self.iter().enumerate() {
            visitor.index(i, value);
        }
    }
}

impl<B: Backend, T: Visit<B>> Visit<B> for Vec<T> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        self.as_slice().visit(visitor);
    }
}

impl<B: Backend, T: Visit<B>, const N: usize> Visit<B> for [T; N] {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        self.as_slice().visit(visitor);
    }
}

/// By name, in sorted order.
impl<B: Backend, K: AsRef<str>, T: Visit<B>> Visit<B> for BTreeMap<K, T> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        for (name, value) in self {
            visitor.field(name.as_ref(), value);
        }
    }
}

/// By name, in sorted order, so that the order is the same in every run.
impl<B: Backend, K: AsRef<str>, T: Visit<B>, S> Visit<B> for HashMap<K, T, S> {
    fn visit(&self, visitor: &mut Visitor<'_, B>) {
        let mut entries: Vec<_> = self.iter().map(|(name, value)| (name.as_ref(), value)).collect();
        entries.sort_by_key(|&(name, _)| name);
        for (name, value) in entries {
            visitor.field(name, value);
        }
    }
}

macro_rules! tuples {
    ($($($name:ident $i:tt),+;)*) => {$(
        impl<B: Backend, $($name: Visit<B>),+> Visit<B> for ($($name,)+) {
            fn visit(&self, visitor: &mut Visitor<'_, B>) {
                $(visitor.index($i, &self.$i);)+
            }
        }
    )*};
}

tuples! {
    T0 0;
    T0 0, T1 1;
    T0 0, T1 1, T2 2;
    T0 0, T1 1, T2 2, T3 3;
}

macro_rules! plain_data {
    ($($type:ty),* $(,)?) => {$(
        impl<B: Backend> Visit<B> for $type {
            fn visit(&self, _: &mut Visitor<'_, B>) {}
        }
    )*};
}

plain_data! {
    (), bool, char, u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, f32, f64,
    String, str, DType, Shape, ConvParams, PoolParams,
}

impl<B: Backend, T: ?Sized> Visit<B> for PhantomData<T> {
    fn visit(&self, _: &mut Visitor<'_, B>) {}
}

impl<B: Backend, C: Backend> Visit<B> for Device<C> {
    fn visit(&self, _: &mut Visitor<'_, B>) {}
}
