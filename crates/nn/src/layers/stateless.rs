//! Macros for layers that implement `Visit` by hand.

/// Implements `Module` and `Forward`, using its own `forward`, for a type that implements `Visit` itself.
macro_rules! layer_of_tensors {
    ([$($generics:tt)*] $type:ty) => {
        impl<$($generics)*> $crate::Module<B> for $type {}

        impl<$($generics)*> $crate::Forward<B> for $type {
            fn forward(&self, x: &::polygrad_tensor::Tensor<B>) -> ::polygrad_tensor::Result<::polygrad_tensor::Tensor<B>> {
                self.forward(x)
            }
        }
    };
}

/// As `layer_of_tensors`, and implements `Visit`, for types without parameters, buffers and mode whose own `forward`
/// takes a tensor of any backend.
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

pub(crate) use layer_of_tensors;
pub(super) use stateless;
