//! Matrices in panels of 32 columns, and products that read them in this layout.
//!
//! A matrix of r rows is a list of rows of 32 numbers: the r rows of its first panel, then those of the next; the last
//! panel is padded with zeros. Results are computed in tiles of eight rows, in sixteen AVX-512 registers, and finished
//! tile by tile.

/// Columns of a panel: two registers of AVX-512.
pub const WIDTH: usize = 32;

/// Rows computed at a time.
pub const TILE: usize = 8;

/// A row of a panel.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Row(pub [f32; WIDTH]);

pub const ZERO: Row = Row([0.0; WIDTH]);

/// All functions except the innermost take values: if operands might overlap, a compiler computes number by number.
impl Row {
    #[inline(always)]
    fn with(mut self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        for (x, y) in self.0.iter_mut().zip(&other.0) {
            *x = f(*x, *y);
        }
        self
    }

    #[inline(always)]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, |x, y| x + y)
    }

    /// Returns the sum with `factor` times `other`.
    #[inline(always)]
    pub fn plus_times(self, factor: f32, other: Self) -> Self {
        self.with(other, |x, y| factor.mul_add(y, x))
    }

    /// Adds `factor` times `other` in place, so that sums stay in registers.
    #[inline(always)]
    fn accumulate(&mut self, factor: f32, other: &Self) {
        for (sum, x) in self.0.iter_mut().zip(&other.0) {
            *sum = factor.mul_add(*x, *sum);
        }
    }

    /// Sets numbers to 0 if those of `other` are not positive.
    #[inline(always)]
    pub fn where_positive(self, other: Self) -> Self {
        self.with(other, |x, y| if y > 0.0 { x } else { 0.0 })
    }
}

/// Adds a bias and applies ReLU. The loop goes column by column, which a compiler vectorizes; row by row it would use
/// gathers.
#[inline(never)]
pub fn rectify(tile: &mut [Row; TILE], bias: &Row) {
    for (column, bias) in bias.0.iter().enumerate() {
        for row in tile.iter_mut() {
            let x = row.0[column] + bias;
            row.0[column] = if x > 0.0 { x } else { 0.0 };
        }
    }
}

/// Converts a row-major matrix to panels.
pub fn panels(values: &[f32], columns: usize) -> Vec<Row> {
    let rows = values.len() / columns;
    let mut panels = vec![ZERO; columns.div_ceil(WIDTH) * rows];
    for (r, values) in values.chunks(columns).enumerate() {
        for (panel, values) in values.chunks(WIDTH).enumerate() {
            panels[panel * rows + r].0[..values.len()].copy_from_slice(values);
        }
    }
    panels
}

/// The product of `a` of `rows` rows, a multiple of [`TILE`], and `b` of `inner` rows, written to `to`; `finish`
/// receives the panel, the index of the first row among all, and the sums of each tile.
#[inline(always)]
pub fn product(
    a: &[Row],
    rows: usize,
    b: &[Row],
    inner: usize,
    to: &mut [Row],
    mut finish: impl FnMut(usize, usize, &mut [Row; TILE]),
) {
    for (panel, b) in b.chunks_exact(inner).enumerate() {
        for (tile, to) in to[panel * rows..][..rows]
            .as_chunks_mut::<TILE>()
            .0
            .iter_mut()
            .enumerate()
        {
            let row = tile * TILE;
            multiplied(a, rows, row, b, to);
            finish(panel, panel * rows + row, to);
        }
    }
}

/// The product of the rows of `a` from `row` on and one panel.
///
/// Not inlined, since the code after it would make a compiler move the sums to memory.
#[inline(never)]
fn multiplied(a: &[Row], rows: usize, row: usize, b: &[Row], to: &mut [Row; TILE]) {
    let mut sums = [ZERO; TILE];
    for (panel, b) in b.chunks(WIDTH).enumerate() {
        let a = &a[panel * rows + row..][..TILE];
        for (k, b) in b.iter().enumerate().take(WIDTH) {
            for r in 0..TILE {
                sums[r].accumulate(a[r].0[k], b);
            }
        }
    }
    *to = sums;
}

/// The product of the transposed first `columns` columns of `a` with `b`, both of `rows` rows; `each` receives the
/// index among all rows, and the sums.
#[inline(always)]
pub fn turned_product(a: &[Row], columns: usize, b: &[Row], rows: usize, mut each: impl FnMut(usize, &Row)) {
    for (panel, b) in b.chunks_exact(rows).enumerate() {
        for (q, a) in a.chunks_exact(rows).enumerate() {
            let mut column = 0;
            let wide = (columns - q * WIDTH).min(WIDTH);
            while column < wide {
                let mut sums = [ZERO; TILE];
                let count = match wide - column {
                    TILE.. => turned::<TILE>(a, column, b, &mut sums),
                    4.. => turned::<4>(a, column, b, &mut sums),
                    2.. => turned::<2>(a, column, b, &mut sums),
                    _ => turned::<1>(a, column, b, &mut sums),
                };
                for (i, sums) in sums[..count].iter().enumerate() {
                    each(panel * columns + q * WIDTH + column + i, sums);
                }
                column += count;
            }
        }
    }
}

/// The product of R transposed columns of a panel, starting at a multiple of R, with another panel.
#[inline(never)]
fn turned<const R: usize>(a: &[Row], column: usize, b: &[Row], to: &mut [Row; TILE]) -> usize {
    let mut sums = [ZERO; R];
    for (a, b) in a.iter().zip(b) {
        let a = &a.0.as_chunks::<R>().0[column / R];
        for r in 0..R {
            sums[r].accumulate(a[r], b);
        }
    }
    to[..R].copy_from_slice(&sums);
    R
}
