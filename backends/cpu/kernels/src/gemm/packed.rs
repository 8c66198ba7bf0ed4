//! The vector form: B in panels, A in row tiles.

use std::sync::OnceLock;

use polygrad_core::Result;

use super::blocks::{Blocks, Pack, second_level, tile_size};
use super::tile::{Even, Input, NV, Out, any_tile, most_rows};
use super::vector::by_vectors;
use super::{Dims, Gemm, Mat, MatMut, Panels, Real, Strided, Update, cost};
use crate::CpuDevice;
use crate::Pointer;
use crate::buffers::Buffer;
use crate::simd::{Kernel, Lanes, Level, Simd};

/// The most rows of A in a task.
const MAX_M: usize = 96;

/// Lanes of the largest register.
const MAX_LANES: usize = 16;

/// Rows whose distance is a multiple of this many bytes map to the same sets of the first-level cache.
const CLASH: usize = 4096;

/// The fewest rows of a task if a product is cut for several threads, so that loading panels of B into the first-level
/// cache pays.
const LEAST_M: usize = 48;

/// Approximate nanoseconds of a task if a product is cut for several threads.
const TASK_NS: f32 = 5_000.0;

/// The most elements of a B that needs no packing if its layout is right: they stay in the first cache levels in place.
const SMALL_B: usize = 16 << 10;

/// A larger B that fits the second-level cache is not packed for products of at most this many tiles of rows, since
/// packing would take longer than it saves.
const FEW_TILES: usize = 6;

/// The most elements of an A that needs no packing, whatever its layout.
const SMALL_A: usize = 8 << 10;

/// If A's columns are contiguous, a result with fewer than `NARROW` columns and at least `WIDE` rows is computed
/// transposed.
const NARROW: usize = 8;
const WIDE: usize = 16;

/// The shortest sums for which packing A into tiles costs more than transposing the result.
const DEEP: usize = 64;

/// Products by vector instructions.
pub struct Packed(pub Level);

impl<T: Real> Gemm<T> for Packed {
    unsafe fn gemm(
        &self,
        device: CpuDevice,
        dims: Dims,
        a: Mat<T>,
        b: Mat<T>,
        c: MatMut<T>,
        update: Update<T>,
    ) -> Result<()> {
        // SAFETY: passed on; a transposed product is the product of the transposed matrices.
        unsafe {
            if c.cols != 1 && c.rows == 1 && update.bias.is_null() {
                let Dims { m, n, k } = dims;
                let dims = Dims { m: n, n: m, k };
                return self.gemm(device, dims, b.transposed(), a.transposed(), c.transposed(), update);
            }
            if by_vectors(device, self.0, dims, a, b, c, update) {
                return Ok(());
            }
            if c.cols != 1 {
                return self.by_way_of_rows(device, dims, a, b, c, update);
            }
            if a.rows == 1 && b.cols == 1 && update.bias.is_null() && better_turned(dims) {
                let Dims { m, n, k } = dims;
                let dims = Dims { m: n, n: m, k };
                return self.by_way_of_rows(device, dims, b.transposed(), a.transposed(), c.transposed(), update);
            }
            product(device, self.0, dims, a, Source::Pack(&Strided(b), Some(b)), c, update)
        }
    }
}

/// Whether a product is better computed transposed; the matrices have contiguous rows, except that A is transposed.
fn better_turned(dims: Dims) -> bool {
    let Dims { m, n, k } = dims;
    // Columns of A fill registers, while those of B would not. Or fewer rows must be packed into tiles, which costs
    // more than packing columns.
    (n < NARROW && m >= WIDE) || (m >= 2 * n && k >= DEEP && m * k > SMALL_A)
}

impl Packed {
    /// Computes a product whose C has gaps in both directions in a buffer, and then copies it to C.
    ///
    /// # Safety
    /// As for [`Gemm::gemm`].
    unsafe fn by_way_of_rows<T: Real>(
        &self,
        device: CpuDevice,
        dims: Dims,
        a: Mat<T>,
        b: Mat<T>,
        c: MatMut<T>,
        update: Update<T>,
    ) -> Result<()> {
        let Dims { m, n, .. } = dims;
        let buffer = Buffer::alloc(m * n * size_of::<T>())?;
        let apart = MatMut::new(buffer.as_ptr().cast(), n.cast_signed(), 1);
        let Update { alpha, beta, bias } = update;
        // SAFETY: the buffer has room for the result; C by the caller.
        unsafe {
            let update = Update {
                alpha,
                bias,
                ..Update::set()
            };
            product(
                device,
                self.0,
                dims,
                a,
                Source::Pack(&Strided(b), Some(b)),
                apart,
                update,
            )?;
            if c.rows == 1 && beta == T::ZERO {
                let strip = MAX_M;
                device.each(n.div_ceil(strip), (m * strip) as f32 * 0.15, |i| {
                    let first = i * strip;
                    self.0.run(Turn {
                        rows: m,
                        columns: strip.min(n - first),
                        from: Mat::new(apart.at(0, first).cast_const(), apart.rows, 1),
                        to: MatMut::new(c.at(0, first), 1, c.cols),
                    });
                });
                return Ok(());
            }
            // In the order of C, since C is written.
            for j in 0..n {
                for i in 0..m {
                    let mut y = apart.at(i, j).read();
                    if beta != T::ZERO {
                        y = y.plus(beta.times(c.at(i, j).read()));
                    }
                    c.at(i, j).write(y);
                }
            }
        }
        Ok(())
    }
}

/// Copies a matrix with contiguous rows to one with contiguous columns.
struct Turn<T> {
    rows: usize,
    columns: usize,
    from: Mat<T>,
    to: MatMut<T>,
}

impl<T: Real> Kernel for Turn<T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self {
            rows,
            columns,
            from,
            to,
        } = self;
        let l = T::lanes(s);
        let side = <T::Lanes<S> as Lanes>::N;
        let whole = |n: usize| n / side * side;
        // SAFETY: both matrices have the rows and columns.
        unsafe {
            for j in (0..whole(columns)).step_by(side) {
                for i in (0..whole(rows)).step_by(side) {
                    l.transpose(from.at(i, j), from.rows, to.at(i, j), to.cols.cast_unsigned());
                }
            }
            for j in 0..columns {
                let first = if j < whole(columns) { whole(rows) } else { 0 };
                (first..rows).for_each(|i| to.at(i, j).write(from.at(i, j).read()));
            }
        }
    }
}

/// The source of B's panels.
pub(super) enum Source<'a, T, P> {
    /// B is packed block by block, unless it is a matrix in memory that can be used in place.
    Pack(&'a P, Option<Mat<T>>),
    /// All panels are packed already, block after block, as [`pack_all`] writes them.
    Panels(*const T),
}

/// `C ← α A B + β C`.
///
/// # Safety
/// As for [`Gemm::gemm`]; `source` has the rows and columns of B.
pub(super) unsafe fn product<T: Real, P: Panels<T>>(
    device: CpuDevice,
    level: Level,
    dims: Dims,
    a: Mat<T>,
    source: Source<'_, T, P>,
    c: MatMut<T>,
    update: Update<T>,
) -> Result<()> {
    let Dims { m, n, k } = dims;
    let (mr, nr) = tile_size::<T>(level);
    let blocks = Blocks::new::<T>(n, k, nr);
    let near = n * k <= SMALL_B || m <= FEW_TILES * mr && n * k * size_of::<T>() <= second_level();
    let room = match source {
        // Registers must not extend past the end of B's rows.
        Source::Pack(_, Some(b)) if near && b.cols == 1 && n.is_multiple_of(nr / NV) => None,
        Source::Pack(..) => Some(Buffer::alloc(
            blocks.room(n.min(blocks.width), blocks.depth) * size_of::<T>(),
        )?),
        Source::Panels(_) => None,
    };
    for (columns, rows) in blocks.each() {
        let (left, top) = (columns.0, rows.0);
        let panels = |ptr: *const T| B {
            ptr,
            panel: nr * rows.1,
            row: nr.cast_signed(),
        };
        let b = match (&source, &room) {
            (Source::Panels(all), _) => panels(all.wrapping_add(blocks.start(columns, top))),
            (Source::Pack(from, _), Some(room)) => {
                let to = Pointer(room.as_ptr().cast::<T>());
                device.each(columns.1.div_ceil(nr), (rows.1 * nr) as f32 * 0.15, |panel| {
                    level.run(Pack::panel(*from, rows, columns, panel, nr, to.at(0)));
                });
                panels(to.0.cast_const())
            }
            (Source::Pack(_, Some(b)), None) => B {
                ptr: b.at(top, left),
                panel: nr,
                row: b.rows,
            },
            (Source::Pack(_, None), None) => unreachable!("what is no matrix is packed"),
        };
        let update = if top == 0 {
            update.at_column(left)
        } else {
            Update::add_scaled(update.alpha)
        };
        let block = Block {
            m,
            n: columns.1,
            k: rows.1,
            a: Mat::new(a.at(0, top), a.rows, a.cols),
            b,
            c: MatMut::new(c.at(0, left), c.rows, c.cols),
            update,
            pack_a: m * k > SMALL_A && (a.cols != 1 || clashes(a) && n > nr),
        };
        block.run(device, level, mr, nr)?;
    }
    Ok(())
}

/// Whether rows of a tile would evict each other from the first-level cache if they were used in place.
fn clashes<T>(a: Mat<T>) -> bool {
    (a.rows.unsigned_abs() * size_of::<T>()).is_multiple_of(CLASH)
}

/// B as tiles read it: panels of columns, `panel` elements apart. Their rows are `row` elements apart, and readable to
/// the end of a register.
#[derive(Clone, Copy)]
pub(crate) struct B<T> {
    pub(crate) ptr: *const T,
    pub(crate) panel: usize,
    pub(crate) row: isize,
}

// SAFETY: B is only read.
unsafe impl<T> Sync for B<T> {}

/// A product whose B is packed.
struct Block<T> {
    m: usize,
    n: usize,
    k: usize,
    a: Mat<T>,
    b: B<T>,
    c: MatMut<T>,
    update: Update<T>,
    pack_a: bool,
}

impl<T: Real> Block<T> {
    /// Cuts the product into tasks by rows and, if these are too few, by panels.
    fn run(&self, device: CpuDevice, level: Level, mr: usize, nr: usize) -> Result<()> {
        let Self { m, n, k, .. } = *self;
        let ns = cost(Dims { m, n, k }, level);
        let (threads, panels) = (device.threads(), n.div_ceil(nr));
        // Tasks of equal size, the same number for each thread. Not more than keep the threads busy, since each packs
        // its rows of A again.
        let wanted = match threads {
            1 => 1,
            _ => (((ns / TASK_NS) as usize / threads).min(2) * threads).max(1),
        };
        let bands = match m.div_ceil(MAX_M) {
            few if few < wanted => few.max(wanted.min(m / LEAST_M)),
            many => many.next_multiple_of(threads),
        };
        let parts = wanted.div_ceil(bands).min(panels);
        let part = panels.div_ceil(parts);
        let parts = panels.div_ceil(part);
        // Even numbers of rows, as tiles have.
        let start = |band: usize| m.min(band * m.div_ceil(2) / bands * 2);
        let failed = OnceLock::new();
        device.each(bands * parts, ns / (bands * parts) as f32, |task| {
            let (first, end) = (start(task / parts), start(task / parts + 1));
            let panel = task % parts * part;
            let rows = end - first;
            let a = Mat::new(self.a.at(first, 0), self.a.rows, self.a.cols);
            let room = match self
                .pack_a
                .then(|| Buffer::alloc((mr * k + MAX_LANES) * size_of::<T>()))
            {
                None => None,
                Some(Ok(buffer)) => Some(buffer),
                Some(Err(error)) => {
                    let _ = failed.set(error);
                    return;
                }
            };
            level.run(Rows {
                rows,
                a,
                tile: room.as_ref().map(|room| room.as_ptr().cast()),
                columns: (n - panel * nr).min(part * nr),
                k,
                b: B {
                    ptr: self.b.ptr.wrapping_add(panel * self.b.panel),
                    ..self.b
                },
                c: MatMut::new(self.c.at(first, panel * nr), self.c.rows, self.c.cols),
                update: self.update.at_column(panel * nr),
            });
        });
        failed.into_inner().map_or(Ok(()), Err)
    }
}

/// How `rows` are cut into tiles of at most `mr`, which is even: the number of tiles, and a function from a tile to its
/// first row. Tiles are about equal, so that the last is not a sliver, and have even numbers of rows, for which there
/// are kernels.
#[inline(always)]
pub fn tiles(rows: usize, mr: usize) -> (usize, impl Fn(usize) -> usize) {
    let pairs = rows.div_ceil(2);
    let count = pairs.div_ceil(mr / 2);
    (count, move |tile| rows.min(tile * pairs / count * 2))
}

/// Packs a tile of rows: for each column its elements, in `mr` places per column.
struct PackTile<T> {
    a: Mat<T>,
    /// The tile's first row, its number of rows, and that of A.
    start: usize,
    width: usize,
    rows: usize,
    k: usize,
    mr: usize,
    /// Has room for `mr * k` elements, and for one register more.
    to: *mut T,
}

impl<T: Real> PackTile<T> {
    /// # Safety
    /// A must have the rows and columns.
    #[inline(always)]
    unsafe fn run<L: Lanes<T = T>>(self, l: L) {
        let Self {
            a,
            start,
            width,
            rows,
            k,
            mr,
            to,
        } = self;
        // SAFETY: all elements are inside A and the room. Stores extend past the end of a column; the next column
        // overwrites that.
        unsafe {
            if a.rows == 1 {
                for p in 0..k {
                    for row in (0..width).step_by(L::N) {
                        let n = L::N.min(width - row);
                        l.store(to.add(p * mr + row), l.load_part(a.at(start + row, p), n));
                    }
                }
                return;
            }
            let whole = if a.cols == 1 && rows >= L::N && width <= L::N {
                k / L::N * L::N
            } else {
                0
            };
            let mut square = [T::ZERO; MAX_LANES * MAX_LANES];
            let base = start.min(rows.saturating_sub(L::N));
            for p in (0..whole).step_by(L::N) {
                l.transpose(a.at(base, p), a.rows, square.as_mut_ptr(), L::N);
                for column in 0..L::N {
                    let from = square.as_ptr().add(column * L::N + start - base);
                    l.store(to.add((p + column) * mr), l.load_part(from, width));
                }
            }
            for p in whole..k {
                (0..width).for_each(|row| to.add(p * mr + row).write(a.at(start + row, p).read()));
            }
        }
    }
}

/// Some rows of a product times some panels.
pub(crate) struct Rows<T> {
    pub(crate) rows: usize,
    pub(crate) a: Mat<T>,
    /// Where tiles of A are packed, with the room that [`PackTile`] needs, or `None` if they are used in place.
    pub(crate) tile: Option<*mut T>,
    pub(crate) columns: usize,
    pub(crate) k: usize,
    pub(crate) b: B<T>,
    pub(crate) c: MatMut<T>,
    pub(crate) update: Update<T>,
}

impl<T: Real> Kernel for Rows<T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self {
            rows,
            a,
            tile: room,
            columns,
            k,
            b,
            c,
            update,
        } = self;
        let l = T::lanes(s);
        let mr = most_rows::<T::Lanes<S>>();
        let nr = NV * <T::Lanes<S> as Lanes>::N;
        let (count, first) = tiles(rows, mr);
        // A tile stays in the first-level cache, all panels in the second.
        for tile in 0..count {
            let (start, end) = (first(tile), first(tile + 1));
            let width = end - start;
            let a = match room {
                Some(to) => {
                    let pack = PackTile {
                        a,
                        start,
                        width,
                        rows,
                        k,
                        mr,
                        to,
                    };
                    // SAFETY: A has the rows and columns.
                    unsafe { pack.run(l) };
                    Even {
                        ptr: to.cast_const(),
                        rows: 1,
                        cols: mr.cast_signed(),
                    }
                }
                None => Even {
                    ptr: a.at(start, 0),
                    rows: a.rows,
                    cols: a.cols,
                },
            };
            for (panel, left) in (0..columns).step_by(nr).enumerate() {
                let input = Input {
                    k,
                    a,
                    b: b.ptr.wrapping_add(panel * b.panel),
                    b_rows: b.row,
                };
                let out = Out {
                    ptr: c.at(start, left),
                    rows: c.rows,
                    n: nr.min(columns - left),
                };
                // SAFETY: the tile is inside the product; the caller of `product` guarantees its matrices.
                unsafe {
                    any_tile(l, width, input, out, update.at_column(left));
                }
            }
        }
    }
}
