//! Cases with any extents in some dtypes, with names such as `4096x4096x4096 bf16`.

use polygrad_tensor::DType;

/// The largest allowed extent.
const LARGEST: usize = 1 << 15;

/// The extents, and the dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extents<const N: usize> {
    pub(crate) of: [usize; N],
    pub(crate) dtype: DType,
}

impl<const N: usize> Extents<N> {
    /// In f32.
    pub(crate) const fn f32(of: [usize; N]) -> Self {
        Self { of, dtype: DType::F32 }
    }

    /// Parses `4096x4096x4096`, followed by the dtype unless it is f32: `4096x4096x4096 bf16`. `takes` decides whether
    /// a dtype is allowed.
    pub(crate) fn parse(words: &[&str], takes: impl Fn(DType) -> bool) -> Option<Self> {
        let (extents, dtype) = match words {
            [extents] => (extents, DType::F32),
            [extents, dtype] => (extents, dtype.parse().ok().filter(|&dtype: &DType| takes(dtype))?),
            _ => return None,
        };
        let extents: Option<Vec<usize>> = extents.split('x').map(|word| word.parse().ok()).collect();
        let of: [usize; N] = extents?.try_into().ok()?;
        (of.iter().all(|extent| (1..=LARGEST).contains(extent))).then_some(Self { of, dtype })
    }

    /// The reverse of [`parse`](Self::parse).
    pub(crate) fn name(self) -> String {
        let extents = self.of.map(|extent| extent.to_string()).join("x");
        match self.dtype {
            DType::F32 => extents,
            dtype => format!("{extents} {dtype}"),
        }
    }
}
