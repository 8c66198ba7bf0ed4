//! Transposes rows to columns.

use crate::rows::{Row, WIDTH};

/// The numbers in a register.
const LANES: usize = 16;

/// Transposes a matrix of `rows` rows, both extents of which are multiples of [`WIDTH`], in squares.
pub fn transposed(from: &[Row], rows: usize, to: &mut [Row]) {
    let columns = from.len() / rows * WIDTH;
    for (p, from) in from.chunks_exact(rows).enumerate() {
        for (q, from) in from.as_chunks::<LANES>().0.iter().enumerate() {
            let (panel, column) = (q * LANES / WIDTH, q * LANES % WIDTH);
            let to = &mut to[panel * columns + p * WIDTH..][..WIDTH];
            for (half, to) in to.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                square(from, half * LANES, to, column);
            }
        }
    }
}

/// Transposes sixteen columns of sixteen rows. The columns begin at 0 or 16.
#[cfg(all(target_arch = "x86_64", target_feature = "avx512f"))]
fn square(from: &[Row; LANES], column: usize, to: &mut [Row; LANES], at: usize) {
    use std::arch::x86_64::{
        _mm512_castpd_ps, _mm512_castps_pd, _mm512_loadu_ps, _mm512_setzero_ps, _mm512_shuffle_f32x4, _mm512_storeu_ps,
        _mm512_unpackhi_pd, _mm512_unpackhi_ps, _mm512_unpacklo_pd, _mm512_unpacklo_ps,
    };
    // SAFETY: sixteen numbers are read from and written to slices of sixteen numbers; the condition above ensures that
    // the instructions exist.
    unsafe {
        let mut rows = [_mm512_setzero_ps(); LANES];
        for (row, from) in rows.iter_mut().zip(from) {
            *row = _mm512_loadu_ps(from.0[column..column + LANES].as_ptr());
        }
        // For each four rows, each quarter of a register holds one column.
        let mut fours = rows;
        for (four, rows) in fours.as_chunks_mut::<4>().0.iter_mut().zip(rows.as_chunks::<4>().0) {
            let [a, b, c, d] = *rows;
            let (low, low_after) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
            let (high, high_after) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
            let pairs = [(low, low_after), (high, high_after)].map(|(a, b)| (_mm512_castps_pd(a), _mm512_castps_pd(b)));
            let [(low, low_after), (high, high_after)] = pairs;
            *four = [
                _mm512_castpd_ps(_mm512_unpacklo_pd(low, low_after)),
                _mm512_castpd_ps(_mm512_unpackhi_pd(low, low_after)),
                _mm512_castpd_ps(_mm512_unpacklo_pd(high, high_after)),
                _mm512_castpd_ps(_mm512_unpackhi_pd(high, high_after)),
            ];
        }
        for i in 0..4 {
            let [a, b, c, d] = [fours[i], fours[4 + i], fours[8 + i], fours[12 + i]];
            // Even quarters, followed by odd ones.
            let (even, even_after) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0x88>(c, d));
            let (odd, odd_after) = (_mm512_shuffle_f32x4::<0xdd>(a, b), _mm512_shuffle_f32x4::<0xdd>(c, d));
            let columns = [
                _mm512_shuffle_f32x4::<0x88>(even, even_after),
                _mm512_shuffle_f32x4::<0x88>(odd, odd_after),
                _mm512_shuffle_f32x4::<0xdd>(even, even_after),
                _mm512_shuffle_f32x4::<0xdd>(odd, odd_after),
            ];
            for (quarter, values) in columns.into_iter().enumerate() {
                let to = &mut to[4 * quarter + i].0[at..at + LANES];
                _mm512_storeu_ps(to.as_mut_ptr(), values);
            }
        }
    }
}

/// On other targets, number by number.
#[cfg(not(all(target_arch = "x86_64", target_feature = "avx512f")))]
fn square(from: &[Row; LANES], column: usize, to: &mut [Row; LANES], at: usize) {
    for (i, from) in from.iter().enumerate() {
        for (to, x) in to.iter_mut().zip(&from.0[column..column + LANES]) {
            to.0[at + i] = *x;
        }
    }
}
