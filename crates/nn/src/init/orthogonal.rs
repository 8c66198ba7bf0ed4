//! Orthogonal matrices.

use polygrad_tensor::{Error, Result, Shape};

use super::host_normal;

/// A matrix `[rows, rest]` with orthonormal rows or columns, times `gain`, in row-major order: the Q of a random
/// matrix, with the signs that make it uniform over all such matrices.
///
/// Source: Mezzadri, "How to generate random matrices from the classical compact groups" (2007).
pub(super) fn orthogonal(shape: &Shape, gain: f64) -> Result<Vec<f64>> {
    if shape.rank() < 2 {
        return Err(Error::shape(format!(
            "a tensor of shape {shape} is no matrix: orthogonal needs two axes"
        )));
    }
    let rows = shape[0];
    let columns = shape[1..].iter().product::<usize>();
    let (tall, wide) = (rows.max(columns), rows.min(columns));
    let mut q = householder_q(host_normal(tall * wide)?, tall, wide);
    for value in &mut q {
        *value *= gain;
    }
    if rows >= columns {
        return Ok(q);
    }
    Ok((0..rows * columns)
        .map(|i| q[(i % columns) * wide + i / columns])
        .collect())
}

/// The first `n` columns of Q for a row-major `m × n` matrix, `m ≥ n`, times the signs of R's diagonal.
///
/// Source: Golub and Van Loan, "Matrix Computations", 4th edition, algorithms 5.1.1, 5.2.1 and section 5.1.6.
fn householder_q(mut a: Vec<f64>, m: usize, n: usize) -> Vec<f64> {
    let mut reflectors: Vec<Vec<f64>> = Vec::with_capacity(n);
    let mut signs = Vec::with_capacity(n);
    for k in 0..n {
        let mut v: Vec<f64> = (k..m).map(|i| a[i * n + k]).collect();
        let norm = dot(&v, &v).sqrt();
        // R's diagonal entry is -copysign(norm, v[0]).
        signs.push(if v[0] < 0.0 { 1.0 } else { -1.0 });
        v[0] += norm.copysign(v[0]);
        let length = dot(&v, &v).sqrt();
        if length > 0.0 {
            v.iter_mut().for_each(|x| *x /= length);
        }
        reflect(&mut a, n, k, k, &v);
        reflectors.push(v);
    }
    let mut q = vec![0.0; m * n];
    for k in 0..n {
        q[k * n + k] = signs[k];
    }
    for (k, v) in reflectors.iter().enumerate().rev() {
        // The columns before have nothing in these rows yet.
        reflect(&mut q, n, k, k, v);
    }
    q
}

/// Columns that are reflected at a time: they stay in the cache between the two passes over their rows.
const STRIP: usize = 16;

/// Applies `1 - 2 v vᵀ` to the rows from `top` and the columns from `left` of a row-major matrix with `n` columns.
fn reflect(a: &mut [f64], n: usize, top: usize, left: usize, v: &[f64]) {
    for from in (left..n).step_by(STRIP) {
        let columns = from..n.min(from + STRIP);
        let mut along = [-0.0; STRIP];
        for (x, row) in v.iter().zip(a[top * n..].chunks(n)) {
            along
                .iter_mut()
                .zip(&row[columns.clone()])
                .for_each(|(sum, a)| *sum += x * a);
        }
        for (x, row) in v.iter().zip(a[top * n..].chunks_mut(n)) {
            row[columns.clone()]
                .iter_mut()
                .zip(&along)
                .for_each(|(a, sum)| *a -= 2.0 * sum * x);
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_or_columns_are_orthonormal() {
        for (rows, columns) in [(5, 5), (7, 3), (3, 7), (1, 4), (4, 1), (64, 32)] {
            let q = orthogonal(&Shape::from([rows, columns]), 2.0).unwrap();
            let short = rows.min(columns);
            for i in 0..short {
                for j in 0..short {
                    let product: f64 = (0..rows.max(columns))
                        .map(|k| {
                            let at = |line: usize| {
                                if rows <= columns {
                                    line * columns + k
                                } else {
                                    k * columns + line
                                }
                            };
                            q[at(i)] * q[at(j)]
                        })
                        .sum();
                    let expected = if i == j { 4.0 } else { 0.0 };
                    assert!(
                        (product - expected).abs() < 1e-12,
                        "{rows}x{columns}: {i} {j} {product}"
                    );
                }
            }
        }
    }

    /// One column after the other, and all of them: the same bits, so that seeds keep their weights.
    #[test]
    fn strips_of_columns_change_no_bit() {
        let (m, n) = (50, 37);
        let a: Vec<f64> = (0..m * n).map(|i| ((i * i + 3 * i) as f64).sin()).collect();
        let v: Vec<f64> = (0..m - 2).map(|i| ((7 * i) as f64).cos()).collect();
        let (mut found, mut expected) = (a.clone(), a);
        reflect(&mut found, n, 2, 3, &v);
        for j in 3..n {
            let along: f64 = v.iter().enumerate().map(|(i, x)| x * expected[(2 + i) * n + j]).sum();
            for (i, x) in v.iter().enumerate() {
                expected[(2 + i) * n + j] -= 2.0 * along * x;
            }
        }
        let bits = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&found), bits(&expected));
    }

    #[test]
    fn signs_are_those_of_a_positive_diagonal() {
        // Q of a matrix whose R already has a positive diagonal: the identity's Q is the identity.
        let q = householder_q(vec![3.0, 1.0, 0.0, 2.0], 2, 2);
        let expected = [1.0, 0.0, 0.0, 1.0];
        assert!(q.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-15), "{q:?}");
    }
}
