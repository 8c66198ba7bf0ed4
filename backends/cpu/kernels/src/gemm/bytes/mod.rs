//! Exact products of matrices of bytes.
//!
//! `C = (A - zero points of its rows) (B - zero points of its columns)` in i32, which wraps. The instructions multiply
//! unsigned bytes by signed ones, so 128 is subtracted from one operand. With `a' = a`, `b' = b - 128` and the zero
//! points `x` and `y` of a row and a column
//!
//! ```text
//! Σ (a - x) (b - y) = Σ a' b' + (Σ a' - k x) (128 - y) - x Σ b'
//! ```
//!
//! and likewise with the operands exchanged: the sum of products that the processor computes, and two products of a
//! number per row and a number per column. Everything wraps, so the order of additions does not matter, and results are
//! the same for any number of threads and for all ways in `dot`.

mod dot;
mod few;
mod most;
mod pack;
mod tile;
pub mod windows;

use polygrad_core::Result;

pub use self::dot::Way;
pub(super) use self::dot::{Dot, Work};
pub use self::most::multiplied;
use self::pack::{Bytes, PackPanels, PackTile, row_sum};
use self::tile::{Rows, Terms};
use super::{Dims, Mat};
use crate::CpuDevice;
use crate::Pointer;
use crate::buffers::Buffer;

/// Panels that are packed at a time.
const AT_ONCE: usize = 8;

/// The most rows of a task.
const BAND: usize = 96;

/// Zero points: one for all rows or columns, or one for each.
#[derive(Clone, Copy)]
pub struct Zeros<'a>(pub &'a [u8]);

impl Zeros<'_> {
    #[inline]
    pub fn get(self, i: usize) -> i32 {
        i32::from(if self.0.len() == 1 { self.0[0] } else { self.0[i] })
    }

    /// Whether all of them equal `x`.
    fn are(self, x: u8) -> bool {
        self.0.iter().all(|&zero| zero == x)
    }
}

/// A buffer of i32.
struct Numbers(Buffer);

impl Numbers {
    fn new(count: usize, value: impl Fn(usize) -> i32) -> Result<Self> {
        let buffer = Buffer::alloc((count * size_of::<i32>()).max(1))?;
        for i in 0..count {
            // SAFETY: the buffer has room for `count`.
            unsafe { buffer.as_ptr().cast::<i32>().add(i).write(value(i)) };
        }
        Ok(Self(buffer))
    }

    fn as_ptr(&self) -> *const i32 {
        self.0.as_ptr().cast_const().cast()
    }

    /// Number `i`, which must exist.
    fn get(&self, i: usize) -> i32 {
        // SAFETY: all of them were written by `new`.
        unsafe { self.as_ptr().add(i).read() }
    }
}

/// A packed into words, in tiles of rows.
struct Tiles {
    way: Way,
    words: Buffer,
    /// Number of parts; tiles do not extend from one part into the next.
    parts: usize,
    /// Rows of each part.
    rows: usize,
    k: usize,
    /// Words from one group of a tile to the next.
    step: usize,
    /// The sum of each row's packed numbers, if wanted.
    sums: Option<Numbers>,
}

/// A, and the factors of its rows in the terms.
struct Left {
    tiles: Tiles,
    terms: [Option<Numbers>; 2],
}

/// Whether the first and the second of the terms are needed, since they are not always 0: zero points of B cost nothing
/// if all are 128, as for i8 that is symmetric about 0, and those of A if all are 0.
fn needs(a: Zeros<'_>, b: Zeros<'_>) -> [bool; 2] {
    [!b.are(128), !a.are(0)]
}

impl Tiles {
    /// Packs A, which has `parts` times `rows` rows of `k` elements.
    ///
    /// # Safety
    /// A must be readable.
    ///
    /// # Errors
    /// When memory runs out.
    unsafe fn new(
        device: CpuDevice,
        way: Way,
        (parts, rows, k): (usize, usize, usize),
        a: Mat<u8>,
        bytes: Bytes,
        summed: bool,
    ) -> Result<Self> {
        let (groups, step) = (k.div_ceil(way.group()), way.rows().min(rows));
        let tiles = rows.div_ceil(way.rows());
        let words = Buffer::alloc((parts * tiles * step * groups * 4).max(1))?;
        let to = Pointer(words.as_ptr().cast::<u32>());
        device.each(parts * tiles, (k * step) as f32 * 0.1, |tile| {
            let first = tile % tiles * way.rows();
            way.run(PackTile {
                from: a,
                k,
                rows: (tile / tiles * rows + first, way.rows().min(rows - first)),
                step,
                bytes,
                to: to.at(tile * step * groups),
            });
        });
        let sums = || Numbers::new(parts * rows, |row| row_sum(a, row, k, bytes));
        let sums = summed.then(sums).transpose()?;
        Ok(Self {
            way,
            words,
            parts,
            rows,
            k,
            step,
            sums,
        })
    }

    /// The sum of a row's packed numbers, which must have been wanted.
    fn sum(&self, row: usize) -> i32 {
        self.sums.as_ref().map_or(0, |sums| sums.get(row))
    }

    fn words(&self) -> *const u32 {
        self.words.as_ptr().cast_const().cast()
    }
}

impl Left {
    /// A as tiles, with the zero points of its rows, for products with a B whose zero points are `other`.
    ///
    /// # Safety
    /// A must be readable.
    ///
    /// # Errors
    /// When memory runs out.
    unsafe fn new(tiles: Tiles, a: Mat<u8>, zeros: Zeros<'_>, other: Zeros<'_>) -> Result<Self> {
        let Tiles { rows, k, .. } = tiles;
        let sum = |row: usize| row_sum(a, row, k, Bytes::Unsigned);
        let [first, second] = needs(zeros, other);
        let term = |needed: bool, value: &dyn Fn(usize) -> i32| needed.then(|| Numbers::new(rows, value)).transpose();
        let terms = [
            term(first, &|i| sum(i).wrapping_sub((k as i32).wrapping_mul(zeros.get(i))))?,
            term(second, &|i| zeros.get(i))?,
        ];
        Ok(Self { tiles, terms })
    }

    fn terms(&self) -> [*const i32; 2] {
        [0, 1].map(|i| self.terms[i].as_ref().map_or(std::ptr::null(), Numbers::as_ptr))
    }
}

/// The panels of a matrix B, `k` rows of `n`, with the sums of its columns.
pub struct Panels {
    way: Way,
    n: usize,
    k: usize,
    words: Buffer,
    sums: Buffer,
}

impl Panels {
    /// Packs B.
    ///
    /// # Safety
    /// B must be readable.
    ///
    /// # Errors
    /// When memory runs out.
    pub unsafe fn new(device: CpuDevice, n: usize, k: usize, b: Mat<u8>) -> Result<Self> {
        // SAFETY: passed on.
        unsafe { Self::packed(device, Way::of(device), (n, k), b, true) }
    }

    unsafe fn packed(device: CpuDevice, way: Way, (n, k): (usize, usize), b: Mat<u8>, summed: bool) -> Result<Self> {
        let (width, groups) = (way.columns(), k.div_ceil(way.group()));
        let panels = n.div_ceil(width);
        let words = Buffer::alloc((panels * width * groups * 4).max(1))?;
        let sums = Buffer::alloc((panels * width * 4).max(1))?;
        let (to, to_sums) = (
            Pointer(words.as_ptr().cast::<u32>()),
            Pointer(sums.as_ptr().cast::<i32>()),
        );
        device.each(panels.div_ceil(AT_ONCE), (k * width * AT_ONCE) as f32 * 0.1, |block| {
            let left = block * AT_ONCE * width;
            way.run(PackPanels {
                from: b,
                k,
                columns: (left, (AT_ONCE * width).min(n - left)),
                to: to.at(left * groups),
                sums: if summed { to_sums.at(left) } else { std::ptr::null_mut() },
            });
        });
        Ok(Self { way, n, k, words, sums })
    }

    /// The sum of a column's packed numbers.
    fn sum(&self, column: usize) -> i32 {
        // SAFETY: there is a sum for each column.
        unsafe { self.sums.as_ptr().cast::<i32>().add(column).read() }
    }

    /// The factors of the columns in the [terms](Terms), as many for each panel as it has columns.
    fn terms(&self, needs: [bool; 2], zeros: Zeros<'_>) -> Result<[Option<Numbers>; 2]> {
        let n = self.n;
        let room = n.next_multiple_of(self.way.columns());
        let term = |needed: bool, value: &dyn Fn(usize) -> i32| {
            let value = |i: usize| if i < n { value(i) } else { 0 };
            needed.then(|| Numbers::new(room, value)).transpose()
        };
        let [first, second] = needs;
        Ok([
            term(first, &|i| 128 - zeros.get(i))?,
            term(second, &|i| self.sum(i).wrapping_neg())?,
        ])
    }
}

/// A product's operands.
#[derive(Clone, Copy)]
pub struct Product<'a> {
    pub dims: Dims,
    pub a: Mat<u8>,
    pub b: Mat<u8>,
    /// Zero points: one for all rows of A, or one for each.
    pub zero_a: Zeros<'a>,
    /// Zero points: one for all columns of B, or one for each.
    pub zero_b: Zeros<'a>,
    /// The panels of B, if it was packed before.
    pub panels: Option<&'a Panels>,
}

/// Where a product goes.
#[derive(Clone, Copy)]
pub enum To<'a> {
    /// To memory, row by row.
    Sums(*mut i32),
    /// To this function, which is called once for each block, on any thread.
    Blocks(&'a (dyn Fn(Block<'_>) + Sync)),
}

/// Rows of some columns of a product, which stay in the first-level cache.
pub struct Block<'a> {
    /// Row by row.
    pub sums: &'a [i32],
    pub row: usize,
    pub column: usize,
    /// Columns, which are not 0.
    pub columns: usize,
}

/// Columns of a block, at most.
const BLOCK: usize = 512;

impl Product<'_> {
    /// Computes the product.
    ///
    /// # Safety
    /// A and B must be readable, and memory for the result have room for it, apart from them.
    ///
    /// # Errors
    /// When memory runs out.
    pub unsafe fn run(&self, device: CpuDevice, c: To<'_>) -> Result<()> {
        // SAFETY: passed on.
        unsafe { self.run_by(device, Way::of(device), c) }
    }

    /// Approximate nanoseconds of the product.
    pub fn cost(&self, device: CpuDevice) -> f32 {
        let Dims { m, n, k } = self.dims;
        (m * n * k) as f32 * Way::of(device).cost()
    }

    unsafe fn run_by(&self, device: CpuDevice, way: Way, c: To<'_>) -> Result<()> {
        let Dims { m, n, k } = self.dims;
        if m == 0 || n == 0 {
            return Ok(());
        }
        let kept = self
            .panels
            .filter(|panels| (panels.way, panels.n, panels.k) == (way, n, k));
        if kept.is_none() && few::fits(self) {
            // SAFETY: passed on.
            return unsafe { few::run(self, device, c) };
        }
        let needs = needs(self.zero_a, self.zero_b);
        let packed;
        // SAFETY: the operands by the caller.
        let (left, panels) = unsafe {
            let tiles = Tiles::new(device, way, (1, m, k), self.a, Bytes::Unsigned, false)?;
            let left = Left::new(tiles, self.a, self.zero_a, self.zero_b)?;
            let panels = match kept {
                Some(panels) => panels,
                None => {
                    packed = Panels::packed(device, way, (n, k), self.b, needs[1])?;
                    &packed
                }
            };
            (left, panels)
        };
        let columns = panels.terms(needs, self.zero_b)?;
        let terms = Terms {
            rows: left.terms(),
            columns: [0, 1].map(|i| columns[i].as_ref().map_or(std::ptr::null(), Numbers::as_ptr)),
        };
        let threads = device.threads();
        let (tiles, width) = (m.div_ceil(way.rows()), way.columns());
        let bands = m.div_ceil(BAND);
        let count = n.div_ceil(width);
        let wanted = if threads == 1 { 1 } else { 2 * threads };
        let parts = wanted.div_ceil(bands).min(count);
        let each = count.div_ceil(parts);
        let ns = (m * n * k) as f32 * way.cost() / (bands * parts) as f32;
        let task = |task: usize| {
            let (band, part) = (task / parts, task % parts);
            let tiles = (band * tiles / bands, (band + 1) * tiles / bands);
            let columns = (part * each * width, ((part + 1) * each * width).min(n));
            (tiles, columns)
        };
        match c {
            To::Sums(c) => {
                let to = Pointer(c);
                device.each(bands * parts, ns, |i| {
                    let (tiles, (start, end)) = task(i);
                    for column in (start..end).step_by(width) {
                        let columns = (column, width.min(end - column));
                        left.times(tiles, panels, columns, terms, (to.at(column), n));
                    }
                });
                Ok(())
            }
            To::Blocks(give) => device.try_each(bands * parts, ns.min(1e6), |i| {
                let (tiles, columns) = task(i);
                left.blocks(tiles, panels, columns, terms, give)
            }),
        }
    }
}

impl Left {
    /// Some tiles times columns from one, with which a panel begins, to before another, block by block.
    fn blocks(
        &self,
        (first, past): (usize, usize),
        panels: &Panels,
        (start, end): (usize, usize),
        terms: Terms,
        give: &dyn Fn(Block<'_>),
    ) -> Result<()> {
        let height = self.tiles.way.rows();
        let room = Buffer::alloc(height * BLOCK * size_of::<i32>())?;
        let to = room.as_ptr().cast::<i32>();
        for column in (start..end).step_by(BLOCK) {
            let columns = BLOCK.min(end - column);
            for tile in first..past {
                let row = tile * height;
                let origin = to.wrapping_sub(row * columns);
                self.times((tile, tile + 1), panels, (column, columns), terms, (origin, columns));
                let rows = height.min(self.tiles.rows - row);
                // SAFETY: the rows of the tile have been written.
                let sums = unsafe { std::slice::from_raw_parts(to, rows * columns) };
                give(Block {
                    sums,
                    row,
                    column,
                    columns,
                });
            }
        }
        Ok(())
    }

    /// Some tiles times some columns, which begin with a panel; `to` is where the first row is written, whose rows are
    /// `to_row` apart.
    fn times(
        &self,
        (first, end): (usize, usize),
        panels: &Panels,
        (column, n): (usize, usize),
        terms: Terms,
        (to, to_row): (*mut i32, usize),
    ) {
        let tiles = &self.tiles;
        let way = tiles.way;
        let groups = panels.k.div_ceil(way.group());
        let row = first * way.rows();
        way.run(Rows {
            rows: (end * way.rows()).min(tiles.rows) - row,
            groups,
            a: tiles.words().wrapping_add(first * tiles.step * groups),
            step: tiles.step,
            b: panels
                .words
                .as_ptr()
                .cast_const()
                .cast::<u32>()
                .wrapping_add(column * groups),
            to: to.wrapping_add(row * to_row),
            to_row,
            n,
            terms: terms.at(row, column),
        });
    }
}

#[cfg(test)]
mod tests;
