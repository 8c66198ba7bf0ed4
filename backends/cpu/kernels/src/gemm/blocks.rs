//! How B is cut into blocks and panels, and packed.

use std::marker::PhantomData;
use std::sync::OnceLock;

use polygrad_core::Result;

use super::tile::{NV, most_rows};
use super::{Mat, Panels, Real, Strided};
use crate::Pointer;
use crate::buffers::Buffer;
use crate::simd::{Kernel, Lanes, Level, Simd};

/// The most rows of B that are packed at a time.
const MAX_K: usize = 384;

/// The largest panel in bytes, if registers are wide: a panel and a row tile of A fit the first-level cache.
const MAX_PANEL: usize = 24 << 10;

/// The most columns of B that are packed at a time.
const MAX_N: usize = 1024;

/// Size in bytes of a core's second-level cache.
pub(super) fn second_level() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| described().unwrap_or(512 << 10))
}

/// The size of the second-level cache as the processor reports it.
fn described() -> Option<usize> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        // The leaf that describes one cache per subleaf; it depends on the maker.
        let amd = [*b"Auth", *b"Hygo"].contains(&__cpuid(0).ebx.to_le_bytes());
        let leaf = if amd { 0x8000_001d } else { 4 };
        if __cpuid(leaf & 0x8000_0000).eax >= leaf {
            let caches = (0..8).map(|i| __cpuid_count(leaf, i));
            let second = caches.into_iter().find(|cache| (cache.eax >> 5) & 7 == 2)?;
            let field = |from: u32, bits: u32| ((second.ebx >> from) & ((1 << bits) - 1)) as usize + 1;
            return Some(field(22, 10) * field(12, 10) * field(0, 12) * (second.ecx as usize + 1));
        }
    }
    None
}

/// Rows and columns of a level's largest tile.
pub(super) fn tile_size<T: Real>(level: Level) -> (usize, usize) {
    level.run(TileSize::<T>(PhantomData))
}

/// Rows and columns of the largest tile.
struct TileSize<T>(PhantomData<T>);

impl<T: Real> Kernel for TileSize<T> {
    type Out = (usize, usize);

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> (usize, usize) {
        (most_rows::<T::Lanes<S>>(), NV * <T::Lanes<S> as Lanes>::N)
    }
}

/// How B is cut into blocks, each of which is packed and multiplied at a time.
pub(super) struct Blocks {
    n: usize,
    k: usize,
    /// Columns of a panel.
    nr: usize,
    /// The most columns and rows of a block.
    pub(super) width: usize,
    pub(super) depth: usize,
}

impl Blocks {
    pub(super) fn new<T>(n: usize, k: usize, nr: usize) -> Self {
        let most = (MAX_PANEL / (nr * size_of::<T>())).clamp(1, MAX_K);
        let depth = k.div_ceil(k.div_ceil(most).max(1));
        // A block leaves a quarter of the second-level cache to A and C. The width does not affect the sums.
        let fits = second_level() / 4 * 3 / (depth.max(1) * size_of::<T>());
        let width = (fits.min(MAX_N) / nr).max(1) * nr;
        Self { n, k, nr, width, depth }
    }

    /// The first column, number of columns, first row, and number of rows of each block, in the order of
    /// multiplication.
    pub(super) fn each(&self) -> impl Iterator<Item = ((usize, usize), (usize, usize))> {
        let Self { n, k, width, depth, .. } = *self;
        (0..n).step_by(width).flat_map(move |left| {
            let tops = (0..k.max(1)).step_by(depth.max(1));
            tops.map(move |top| ((left, width.min(n - left)), (top, depth.min(k - top))))
        })
    }

    /// Number of elements of a packed block.
    pub(super) fn room(&self, columns: usize, rows: usize) -> usize {
        columns.next_multiple_of(self.nr) * rows
    }

    /// Offset of a block if all are packed one after another.
    pub(super) fn start(&self, (left, columns): (usize, usize), top: usize) -> usize {
        left * self.k + self.room(columns, top)
    }
}

/// Packs all of B, `k` rows and `n` columns, as [`Source::Panels`](super::packed::Source::Panels).
///
/// # Safety
/// B must be readable.
///
/// # Errors
/// When memory runs out.
pub(super) unsafe fn pack_all<T: Real>(level: Level, n: usize, k: usize, b: Mat<T>) -> Result<Buffer> {
    let (_, nr) = tile_size::<T>(level);
    let blocks = Blocks::new::<T>(n, k, nr);
    let buffer = Buffer::alloc(blocks.room(n, k) * size_of::<T>())?;
    for (columns, rows) in blocks.each() {
        let to = Pointer(buffer.as_ptr().cast::<T>()).at(blocks.start(columns, rows.0));
        for panel in 0..columns.1.div_ceil(nr) {
            level.run(Pack::panel(&Strided(b), rows, columns, panel, nr, to));
        }
    }
    Ok(buffer)
}

/// Packs one panel.
pub(super) struct Pack<'a, T, P> {
    panels: &'a P,
    rows: (usize, usize),
    columns: (usize, usize),
    width: usize,
    to: *mut T,
}

impl<'a, T, P> Pack<'a, T, P> {
    /// Packs panel number `panel` of a block, whose panels begin at `to`.
    pub(super) fn panel(
        panels: &'a P,
        rows: (usize, usize),
        (left, columns): (usize, usize),
        panel: usize,
        nr: usize,
        to: *mut T,
    ) -> Self {
        let first = panel * nr;
        Self {
            panels,
            rows,
            columns: (left + first, nr.min(columns - first)),
            width: nr,
            to: to.wrapping_add(first * rows.1),
        }
    }
}

impl<T: Real, P: Panels<T>> Kernel for Pack<'_, T, P> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self {
            panels,
            rows,
            columns,
            width,
            to,
        } = self;
        // SAFETY: `product` asks for rows and columns of B, and its buffer has room for every panel.
        unsafe { panels.pack(T::lanes(s), rows, columns, width, to) };
    }
}
