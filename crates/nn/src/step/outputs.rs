//! Outputs of loss functions.

use polygrad_tensor::{AnyBackend, Backend, Error, Result, Tensor};

/// The output of a [`TrainStep`](super::TrainStep)'s loss function: the loss, alone or as the first of a tuple.
pub trait StepOutputs<B: Backend = AnyBackend>: Sized {
    /// All tensors, the loss first.
    fn into_tensors(self) -> Vec<Tensor<B>>;

    /// The same type made of other tensors in that order.
    ///
    /// # Errors
    /// When the number of tensors differs.
    fn from_tensors(tensors: Vec<Tensor<B>>) -> Result<Self>;
}

impl<B: Backend> StepOutputs<B> for Tensor<B> {
    fn into_tensors(self) -> Vec<Self> {
        vec![self]
    }

    fn from_tensors(tensors: Vec<Self>) -> Result<Self> {
        let [loss] = exactly(tensors)?;
        Ok(loss)
    }
}

macro_rules! tuple {
    ($($name:ident: $type:ident),*) => {
        impl<B: Backend> StepOutputs<B> for ($($type<B>),*) {
            fn into_tensors(self) -> Vec<Tensor<B>> {
                let ($($name),*) = self;
                vec![$($name),*]
            }

            fn from_tensors(tensors: Vec<Tensor<B>>) -> Result<Self> {
                let [$($name),*] = exactly(tensors)?;
                Ok(($($name),*))
            }
        }
    };
}

tuple!(loss: Tensor, a: Tensor);
tuple!(loss: Tensor, a: Tensor, b: Tensor);
tuple!(loss: Tensor, a: Tensor, b: Tensor, c: Tensor);
tuple!(loss: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor);
tuple!(loss: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor);

fn exactly<B: Backend, const N: usize>(tensors: Vec<Tensor<B>>) -> Result<[Tensor<B>; N]> {
    let count = tensors.len();
    tensors
        .try_into()
        .map_err(|_| Error::invalid(format!("a step gave {count} tensors instead of {N}")))
}
