//! Modules without parameters, buffers and mode.

/// Implements `Visit`, `Module` and `Forward` for types whose own `forward` takes a tensor of any backend.
macro_rules! stateless {
    ($($name:ident $(<$d:ident>)?),* $(,)?) => {$(
        impl<$(const $d: usize,)? B: ::polygrad_tensor::Backend> $crate::Visit<B> for $name $(<$d>)? {
            fn visit(&self, visitor: &mut $crate::Visitor<'_, B>) {
                visitor.module(self);
            }
        }

        impl<$(const $d: usize,)? B: ::polygrad_tensor::Backend> $crate::Module<B> for $name $(<$d>)? {}

        impl<$(const $d: usize,)? B: ::polygrad_tensor::Backend> $crate::Forward<B> for $name $(<$d>)? {
            fn forward(&self, x: &::polygrad_tensor::Tensor<B>) -> ::polygrad_tensor::Result<::polygrad_tensor::Tensor<B>> {
                self.forward(x)
            }
        }
    )*};
}

pub(super) use stateless;
