//! From examples to tensors.

use polygrad_core::{Backend, Element, Error, HostTensor, Result, Shape, bf16, dispatch_dtype, f16};
use polygrad_tensor::{AnyBackend, Device, Tensor};

use crate::Image;

/// The type of a batch of examples.
///
/// | examples | a batch of N |
/// |---|---|
/// | a number or a bool | `[N]` of its dtype |
/// | `usize`, as labels are | `[N]`, i64 |
/// | `[T; L]`, or a `Vec<T>` of the same length in each | `[N, L]` |
/// | [`HostTensor`] of shape S | `[N, S]` |
/// | [`Image`] | `[N, channels, height, width]`, f32 from 0 to 1 |
/// | `String` | `Vec<String>` |
/// | a tuple of these | a tuple of theirs |
///
/// For everything else, use [`DataLoaderConfig::build_with`](crate::DataLoaderConfig::build_with).
pub trait Collate<B: Backend = AnyBackend>: Sized {
    /// The batch.
    type Batch: Send + 'static;

    /// Combines one or more examples into a batch.
    ///
    /// # Errors
    /// Examples of different shapes or dtypes; those of the device.
    fn collate(examples: Vec<Self>, device: &Device<B>) -> Result<Self::Batch>;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl<B: Backend> Collate<B> for $number {
            type Batch = Tensor<B>;

            fn collate(examples: Vec<Self>, device: &Device<B>) -> Result<Tensor<B>> {
                let n = examples.len();
                Tensor::from_vec(examples, [n], device)
            }
        }
    )*};
}

numbers!(f64, f32, f16, bf16, i64, i32, u8, bool);

impl<B: Backend> Collate<B> for usize {
    type Batch = Tensor<B>;

    fn collate(examples: Vec<Self>, device: &Device<B>) -> Result<Tensor<B>> {
        i64::collate(examples.into_iter().map(|label| label as i64).collect(), device)
    }
}

impl<B: Backend, T: Element> Collate<B> for Vec<T> {
    type Batch = Tensor<B>;

    fn collate(examples: Vec<Self>, device: &Device<B>) -> Result<Tensor<B>> {
        let (n, length) = (examples.len(), examples.first().map_or(0, Vec::len));
        if let Some((at, other)) = examples.iter().enumerate().find(|(_, other)| other.len() != length) {
            return Err(Error::shape(format!(
                "example 0 of the batch has {length} values, example {at} has {}",
                other.len()
            ))
            .with_op("collate")
            .with_hint("pad them: build_with a function that calls pad_sequence"));
        }
        Tensor::from_vec(examples.concat(), [n, length], device)
    }
}

impl<B: Backend, T: Element, const L: usize> Collate<B> for [T; L] {
    type Batch = Tensor<B>;

    fn collate(examples: Vec<Self>, device: &Device<B>) -> Result<Tensor<B>> {
        let n = examples.len();
        Tensor::from_vec(examples.into_flattened(), [n, L], device)
    }
}

impl<B: Backend> Collate<B> for HostTensor {
    type Batch = Tensor<B>;

    fn collate(examples: Vec<Self>, device: &Device<B>) -> Result<Tensor<B>> {
        Tensor::from_host(stacked(&examples)?, device)
    }
}

/// Stacks tensors of one shape and dtype along a new first axis. Not generic, so that it is compiled only once, here.
fn stacked(examples: &[HostTensor]) -> Result<HostTensor> {
    let kind = |x: &HostTensor| (x.dtype(), *x.shape());
    let Some((dtype, shape)) = examples.first().map(kind) else {
        return Err(Error::invalid("there are no examples").with_op("collate"));
    };
    if let Some((at, other)) = examples.iter().enumerate().find(|(_, x)| kind(x) != (dtype, shape)) {
        return Err(Error::shape(format!(
            "example 0 of the batch is {dtype}{shape}, example {at} is {}{}",
            other.dtype(),
            other.shape()
        ))
        .with_op("collate"));
    }
    let dims: Vec<usize> = [examples.len()].iter().chain(shape.dims()).copied().collect();
    dispatch_dtype!(dtype, T => {
        let mut values: Vec<T> = Vec::with_capacity(examples.len() * shape.numel());
        for example in examples {
            values.extend_from_slice(example.as_slice()?);
        }
        HostTensor::new(Shape::new(&dims)?, values)
    })
}

impl<B: Backend> Collate<B> for Image {
    type Batch = Tensor<B>;

    fn collate(examples: Vec<Self>, device: &Device<B>) -> Result<Tensor<B>> {
        let host = |image: &Image| match image.is_mask() {
            true => image.to_labels(),
            false => image.to_host(),
        };
        HostTensor::collate(examples.iter().map(host).collect::<Result<_>>()?, device)
    }
}

impl<B: Backend> Collate<B> for String {
    type Batch = Vec<String>;

    fn collate(examples: Vec<Self>, _: &Device<B>) -> Result<Vec<String>> {
        Ok(examples)
    }
}

macro_rules! tuples {
    ($(($($part:ident $list:ident),*))*) => {$(
        impl<B: Backend, $($part: Collate<B>),*> Collate<B> for ($($part,)*) {
            type Batch = ($($part::Batch,)*);

            fn collate(examples: Vec<Self>, device: &Device<B>) -> Result<Self::Batch> {
                $(let mut $list = Vec::with_capacity(examples.len());)*
                #[allow(non_snake_case, reason = "a type parameter names its value")]
                for ($($part,)*) in examples {
                    $($list.push($part);)*
                }
                Ok(($($part::collate($list, device)?,)*))
            }
        }
    )*};
}

tuples! {
    (A a, C c)
    (A a, C c, D d)
    (A a, C c, D d, E e)
}

/// Sequences of different lengths as the rows of `[N, longest]`, padded at their ends with `padding`: for losses that
/// ignore it, and for masks. Name and layout are those of PyTorch with `batch_first`.
///
/// # Errors
/// Those of the device.
pub fn pad_sequence<T: Element, B: Backend>(sequences: &[Vec<T>], padding: T, device: &Device<B>) -> Result<Tensor<B>> {
    let longest = sequences.iter().map(Vec::len).max().unwrap_or(0);
    let mut values = Vec::with_capacity(sequences.len() * longest);
    for sequence in sequences {
        values.extend_from_slice(sequence);
        values.resize(values.len() + longest - sequence.len(), padding);
    }
    Tensor::from_vec(values, [sequences.len(), longest], device)
}

#[cfg(test)]
mod tests {
    use polygrad_core::DType;

    use super::*;

    fn device() -> Device {
        Device::<polygrad_cpu::Cpu>::default().into_any()
    }

    #[test]
    fn examples_become_tensors() {
        let device = device();
        let examples = vec![
            (1.5_f32, 3_usize, [1_i64, 2], "a".to_owned()),
            (-1.0, 0, [3, 4], "b".to_owned()),
        ];
        let (x, label, pair, text) = Collate::<AnyBackend>::collate(examples, &device).unwrap();
        assert_eq!(x.to_vec::<f32>().unwrap(), [1.5, -1.0]);
        assert_eq!(
            (label.dtype(), label.to_vec::<i64>().unwrap()),
            (DType::I64, vec![3, 0])
        );
        assert_eq!(
            (pair.dims(), pair.to_vec::<i64>().unwrap()),
            (vec![2, 2], vec![1, 2, 3, 4])
        );
        assert_eq!(text, ["a", "b"]);

        let host = |value: f32| HostTensor::new(Shape::from([1, 2]), vec![value, value]).unwrap();
        let batch: Tensor = Collate::collate(vec![host(1.0), host(2.0), host(3.0)], &device).unwrap();
        assert_eq!(batch.dims(), [3, 1, 2]);
        assert_eq!(batch.to_vec::<f32>().unwrap(), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
    }

    #[test]
    fn examples_that_differ_are_named() {
        let device = device();
        let says = |result: Result<Tensor>, words: &str| {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        says(
            Collate::collate(vec![vec![1.0_f32], vec![2.0], vec![]], &device),
            "example 0 of the batch has 1 values, example 2 has 0",
        );
        let short = HostTensor::scalar(1.0_f32);
        let other = HostTensor::scalar(1_i64);
        says(
            Collate::collate(vec![short, other], &device),
            "example 0 of the batch is f32[], example 1 is i64[]",
        );
        let padded: Tensor = pad_sequence(&[vec![1_i64, 2, 3], vec![], vec![4]], -100, &device).unwrap();
        assert_eq!(padded.dims(), [3, 3]);
        assert_eq!(
            padded.to_vec::<i64>().unwrap(),
            [1, 2, 3, -100, -100, -100, 4, -100, -100]
        );
    }
}
