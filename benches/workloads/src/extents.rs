//! Work of any extents in some dtypes, known by a name such as `4096x4096x4096 bf16`.

use polygrad_tensor::DType;

/// The largest extent that can be asked for.
const LARGEST: usize = 1 << 15;

/// What numbers there are, and what they are.
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

    /// What words mean: `4096x4096x4096`, and the dtype where it is not f32, `4096x4096x4096 bf16`: one that `takes`
    /// says yes to.
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

    /// Those words.
    pub(crate) fn name(self) -> String {
        let extents = self.of.map(|extent| extent.to_string()).join("x");
        match self.dtype {
            DType::F32 => extents,
            dtype => format!("{extents} {dtype}"),
        }
    }
}
