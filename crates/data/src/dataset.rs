//! Datasets: examples by index.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use polygrad_core::{Error, HostTensor, Result, Shape, dispatch_dtype};

use crate::order::shuffled;

/// Examples that are accessed by index. A `Vec` is a dataset, as is a type that reads example number `index` on demand.
///
/// ```
/// use polygrad_data::Dataset;
/// # use polygrad_core::Result;
///
/// struct Squares;
///
/// impl Dataset for Squares {
///     type Item = (f32, f32);
///
///     fn len(&self) -> usize {
///         100
///     }
///
///     fn example(&self, index: usize) -> Result<Self::Item> {
///         let x = index as f32;
///         Ok((x, x * x))
///     }
/// }
/// # assert_eq!(Squares.example(3).unwrap(), (3.0, 9.0));
/// ```
pub trait Dataset: Send + Sync {
    /// The type of an example.
    type Item: Send + 'static;

    /// Number of examples.
    fn len(&self) -> usize;

    /// Whether there are no examples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Example number `index`, which is below [`Dataset::len`]. Several threads call this at the same time.
    ///
    /// # Errors
    /// Any reason why it cannot be read. Implementations that read files should name the file.
    fn example(&self, index: usize) -> Result<Self::Item>;

    /// A number that differs if the examples differ, as far as this is known without loading them: processes that train
    /// together [compare it](crate::DataLoader::fingerprint). Default: none.
    ///
    /// For a [`HostTensor`] and [`Idx`](crate::Idx) it depends on the values, for [`ImageFolder`](crate::ImageFolder)
    /// on the file names, for [`JsonLines`](crate::JsonLines) on the lengths of the lines. A `Vec` has none, and
    /// derived datasets combine those of their sources.
    fn fingerprint(&self) -> Option<u64> {
        None
    }

    /// Applies a function to each example on access.
    fn map<T: Send + 'static, F: Fn(Self::Item) -> Result<T> + Send + Sync>(self, f: F) -> Mapped<Self, F>
    where
        Self: Sized,
    {
        Mapped { dataset: self, f }
    }

    /// Pairs this dataset's examples with another one's.
    ///
    /// # Errors
    /// When the two lengths differ.
    fn zip<D: Dataset>(self, other: D) -> Result<Zipped<Self, D>>
    where
        Self: Sized,
    {
        if self.len() != other.len() {
            let (a, b) = (self.len(), other.len());
            return Err(Error::invalid(format!("{a} examples and {b} make no pairs")).with_op("zip"));
        }
        Ok(Zipped(self, other))
    }

    /// The examples at some indices, in this order; indices may repeat.
    ///
    /// # Errors
    /// An index that is not below [`Dataset::len`].
    fn subset(self, indices: Vec<usize>) -> Result<Subset<Self>>
    where
        Self: Sized,
    {
        match indices.iter().find(|&&index| index >= self.len()) {
            None => Ok(Subset { dataset: self, indices }),
            Some(index) => Err(
                Error::out_of_range(format!("index {index}, but there are {} examples", self.len())).with_op("subset"),
            ),
        }
    }
}

impl<T: Clone + Send + Sync + 'static> Dataset for Vec<T> {
    type Item = T;

    fn len(&self) -> usize {
        self.as_slice().len()
    }

    fn example(&self, index: usize) -> Result<T> {
        Ok(self[index].clone())
    }
}

/// The rows of a tensor: its parts along axis 0.
impl Dataset for HostTensor {
    type Item = Self;

    fn len(&self) -> usize {
        self.shape().dims().first().copied().unwrap_or(0)
    }

    fn example(&self, index: usize) -> Result<Self> {
        let shape = Shape::new(self.shape().dims().get(1..).unwrap_or_default())?;
        let row = shape.numel();
        dispatch_dtype!(self.dtype(), T => {
            Self::new(shape, self.as_slice::<T>()?[index * row..][..row].to_vec())
        })
    }

    fn fingerprint(&self) -> Option<u64> {
        Some(fingerprint(&(self.shape().dims(), self.dtype().name(), self.bytes())))
    }
}

/// The same in each process of one program.
pub(crate) fn fingerprint(content: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

/// Pointers to datasets are datasets.
macro_rules! pointers {
    ($($pointer:ty),*) => {$(
        impl<D: Dataset + ?Sized> Dataset for $pointer {
            type Item = D::Item;

            fn len(&self) -> usize {
                (**self).len()
            }

            fn example(&self, index: usize) -> Result<D::Item> {
                (**self).example(index)
            }

            fn fingerprint(&self) -> Option<u64> {
                (**self).fingerprint()
            }
        }
    )*};
}

pointers!(&D, Box<D>, Arc<D>);

/// See [`Dataset::map`].
#[derive(Clone, Debug)]
pub struct Mapped<D, F> {
    dataset: D,
    f: F,
}

impl<D: Dataset, T: Send + 'static, F: Fn(D::Item) -> Result<T> + Send + Sync> Dataset for Mapped<D, F> {
    type Item = T;

    fn len(&self) -> usize {
        self.dataset.len()
    }

    fn example(&self, index: usize) -> Result<T> {
        (self.f)(self.dataset.example(index)?)
    }

    fn fingerprint(&self) -> Option<u64> {
        self.dataset.fingerprint()
    }
}

/// See [`Dataset::zip`].
#[derive(Clone, Debug)]
pub struct Zipped<A, B>(A, B);

impl<A: Dataset, B: Dataset> Dataset for Zipped<A, B> {
    type Item = (A::Item, B::Item);

    fn len(&self) -> usize {
        self.0.len()
    }

    fn example(&self, index: usize) -> Result<Self::Item> {
        Ok((self.0.example(index)?, self.1.example(index)?))
    }

    fn fingerprint(&self) -> Option<u64> {
        match (self.0.fingerprint(), self.1.fingerprint()) {
            (None, None) => None,
            both => Some(fingerprint(&both)),
        }
    }
}

/// See [`Dataset::subset`].
#[derive(Clone, Debug)]
pub struct Subset<D> {
    dataset: D,
    indices: Vec<usize>,
}

impl<D> Subset<D> {
    /// Indices of its examples in the whole dataset.
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }
}

impl<D: Dataset> Dataset for Subset<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        self.indices.len()
    }

    fn example(&self, index: usize) -> Result<D::Item> {
        self.dataset.example(self.indices[index])
    }

    fn fingerprint(&self) -> Option<u64> {
        let whole = self.dataset.fingerprint()?;
        Some(fingerprint(&(whole, &self.indices)))
    }
}

/// Random parts of a dataset without common examples: `random_split(all, [800, 200], 0)?`. They depend only on the
/// seed.
///
/// # Errors
/// When the lengths do not add up to that of the dataset.
pub fn random_split<D: Dataset, const N: usize>(
    dataset: D,
    lengths: [usize; N],
    seed: u64,
) -> Result<[Subset<Arc<D>>; N]> {
    let total = lengths.iter().try_fold(0_usize, |sum, &length| sum.checked_add(length));
    if total != Some(dataset.len()) {
        return Err(Error::invalid(format!(
            "parts of {lengths:?} are not all of {} examples",
            dataset.len()
        ))
        .with_op("random_split"));
    }
    let order = shuffled(seed, 0, dataset.len());
    let dataset = Arc::new(dataset);
    let mut rest = order.as_slice();
    Ok(lengths.map(|length| {
        let (part, later) = rest.split_at(length);
        rest = later;
        Subset {
            dataset: Arc::clone(&dataset),
            indices: part.iter().map(|&index| index as usize).collect(),
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<D: Dataset>(dataset: &D) -> Vec<D::Item> {
        (0..dataset.len()).map(|i| dataset.example(i).unwrap()).collect()
    }

    #[test]
    fn datasets_are_mapped_zipped_and_cut() {
        let numbers: Vec<i64> = (0..5).collect();
        let doubled = numbers.clone().map(|x| Ok(2 * x));
        assert_eq!(all(&doubled), [0, 2, 4, 6, 8]);
        let pairs = doubled.zip(&numbers).unwrap();
        assert_eq!(all(&pairs)[4], (8, 4));
        assert_eq!(all(&pairs.subset(vec![3, 3, 0]).unwrap()), [(6, 3), (6, 3), (0, 0)]);
        let error = numbers.clone().zip(vec![1]).unwrap_err().to_string();
        assert!(error.contains("5 examples and 1"), "{error}");
        let error = numbers.subset(vec![5]).unwrap_err().to_string();
        assert!(error.contains("index 5, but there are 5 examples"), "{error}");
    }

    #[test]
    fn rows_of_a_tensor_are_examples() {
        let host = HostTensor::new(Shape::from([2, 1, 3]), vec![1_i64, 2, 3, 4, 5, 6]).unwrap();
        let row = host.example(1).unwrap();
        assert_eq!((host.len(), row.shape().dims()), (2, &[1, 3][..]));
        assert_eq!(row.as_slice::<i64>().unwrap(), [4, 5, 6]);
        assert_eq!(HostTensor::scalar(1.0_f32).len(), 0);
    }

    #[test]
    fn fingerprints_are_of_what_is_known() {
        let rows = |last: f32| HostTensor::new(Shape::from([3, 1]), vec![1.0_f32, 2.0, last]).unwrap();
        let numbers: Vec<i64> = (0..3).collect();
        let of = |last| {
            let pairs = rows(last).zip(numbers.clone()).unwrap().map(Ok);
            [
                rows(last).fingerprint(),
                Arc::new(pairs.subset(vec![0, 1]).unwrap()).fingerprint(),
            ]
        };
        let (one, other) = (of(3.0), of(3.000_000_2));
        assert_eq!(one, of(3.0));
        assert!(one.iter().zip(&other).all(|(a, b)| a.is_some() && a != b));
        let part = |index| rows(3.0).subset(vec![index]).unwrap().fingerprint();
        assert_ne!(part(0), part(1));
        let long = HostTensor::new(Shape::from([1, 3]), vec![1.0_f32, 2.0, 3.0]).unwrap();
        assert_ne!(rows(3.0).fingerprint(), long.fingerprint());
        assert_eq!(numbers.clone().zip(numbers).unwrap().fingerprint(), None);
    }

    #[test]
    fn random_parts_have_nothing_in_common() {
        let numbers: Vec<usize> = (0..100).collect();
        let [train, test] = random_split(numbers.clone(), [70, 30], 4).unwrap();
        let mut both = [all(&train), all(&test)].concat();
        assert_ne!(both, numbers);
        assert_eq!(test.indices(), all(&test));
        both.sort_unstable();
        assert_eq!(both, numbers);
        let error = random_split(numbers, [70, 31], 4).unwrap_err().to_string();
        assert!(error.contains("[70, 31] are not all of 100 examples"), "{error}");
    }
}
