//! Matrix products, with the operands' layouts in the driver's terms.

use polygrad_core::compute::{Batch, DevicePtr, Gemm, Transpose};
use polygrad_core::{Backend, ErrorKind, Result, Scalar, Shape};
use polygrad_reference::Reference;

use crate::array::Array;
use crate::elementwise::full;
use crate::host::one_on_host;
use crate::movement::contiguous;

/// The most calls for one product; if it would take more, the operands are copied into one batch.
const MAX_CALLS: usize = 4;

/// The product of floats.
pub(crate) fn matmul(a: &Array, b: &Array) -> Result<Array> {
    match by_driver(a, b) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            one_on_host(a.context(), &[a, b], |x| Reference::matmul(&x[0], &x[1]))
        }
        other => other,
    }
}

fn by_driver(a: &Array, b: &Array) -> Result<Array> {
    let (rank_a, rank_b) = (a.shape().rank(), b.shape().rank());
    let (m, k, n) = (a.shape()[rank_a - 2], a.shape()[rank_a - 1], b.shape()[rank_b - 1]);
    let lead = Shape::new(&a.shape()[..rank_a - 2])?.broadcast(&Shape::new(&b.shape()[..rank_b - 2])?)?;
    let shape = Shape::new(&[lead.dims(), &[m, n]].concat())?;
    if shape.numel() == 0 || k == 0 {
        return full(a.context(), shape, Scalar::Int(0), a.dtype());
    }
    let rows: usize = shape[..shape.rank() - 1].iter().product();
    // A single right-hand matrix: the left one becomes one tall matrix, if its rows are evenly spaced.
    if b.shape()[..rank_b - 2].iter().all(|&dim| dim == 1)
        && lead.numel() > 1
        && let Some(tall) = a.layout.reshape(Shape::from([rows, k]))
        && let Some(out) = one(&a.with_layout(tall), b, shape)?
    {
        return Ok(out);
    }
    let (mut left, mut right) = (Matrices::of(a, &lead)?, Matrices::of(b, &lead)?);
    let (mut count, mut calls) = batches(&lead, &left, &right);
    if calls.len() > MAX_CALLS {
        (left, right) = (
            Matrices::of(&left.spread(&lead)?, &lead)?,
            Matrices::of(&right.spread(&lead)?, &lead)?,
        );
        (count, calls) = batches(&lead, &left, &right);
    }
    let out = Array::empty(a.context(), shape, a.dtype())?;
    let size = a.dtype().size();
    let (start_a, start_b, start_c) = (left.start()?, right.start()?, out.start()?);
    let inner = lead.rank().saturating_sub(1);
    let stride = |matrices: &Matrices| {
        matrices
            .lead
            .get(innermost(&lead).unwrap_or(inner))
            .copied()
            .unwrap_or(0)
    };
    for (i, (at_a, at_b)) in calls.into_iter().enumerate() {
        let gemm = Gemm {
            dtype: a.dtype(),
            dtype_c: a.dtype(),
            trans_a: left.trans,
            trans_b: right.trans,
            m,
            n,
            k,
            alpha: 1.0,
            beta: 0.0,
            a: start_a.add(at_a * size),
            lda: left.ld,
            b: start_b.add(at_b * size),
            ldb: right.ld,
            c: start_c.add(i * count * m * n * size),
            ldc: n,
        };
        let batch = Batch {
            count,
            stride_a: stride(&left),
            stride_b: stride(&right),
            stride_c: m * n,
        };
        a.context().launch("matmul", |driver| match count {
            1 => driver.gemm(&gemm),
            _ => driver.batched_gemm(&gemm, &batch),
        })?;
    }
    Ok(out)
}

/// A product of two matrices, reshaped to `shape`; `None` if the left one would have to be copied.
fn one(a: &Array, b: &Array, shape: Shape) -> Result<Option<Array>> {
    if orientation(a).is_none() {
        return Ok(None);
    }
    let rank = b.shape().rank();
    let b = b.with_layout(
        match b
            .layout
            .reshape(Shape::from([b.shape()[rank - 2], b.shape()[rank - 1]]))
        {
            Some(layout) => layout,
            None => return Ok(None),
        },
    );
    let product = by_driver(a, &b)?;
    Ok(Some(crate::movement::reshape(&product, shape)?))
}

/// Whether the last two axes of a tensor form a matrix as they are or transposed, and its leading dimension in
/// elements. `None` if they do not.
fn orientation(x: &Array) -> Option<(Transpose, usize)> {
    let rank = x.shape().rank();
    let (rows, columns) = (x.shape()[rank - 2], x.shape()[rank - 1]);
    let (down, across) = (x.layout.strides()[rank - 2], x.layout.strides()[rank - 1]);
    let lies = |length: usize, inside: isize, count: usize, between: isize| {
        let fits = (length == 1 || inside == 1) && (count == 1 || between >= length as isize);
        fits.then_some(if count == 1 { length } else { between as usize })
    };
    lies(columns, across, rows, down)
        .map(|ld| (Transpose::No, ld))
        .or_else(|| lies(rows, down, columns, across).map(|ld| (Transpose::Yes, ld)))
}

/// A tensor as a stack of matrices for a driver.
struct Matrices {
    array: Array,
    trans: Transpose,
    ld: usize,
    /// Elements from one matrix to the next along each leading axis of the result.
    lead: Vec<usize>,
}

impl Matrices {
    fn of(x: &Array, lead: &Shape) -> Result<Self> {
        let turned = x.layout.strides().iter().any(|&stride| stride < 0);
        let (array, (trans, ld)) = match orientation(x) {
            Some(found) if !turned => (x.clone(), found),
            _ => {
                let copy = contiguous(x)?;
                // It is row-major, but may have any strides along axes of extent 1.
                let layout = polygrad_core::Layout::contiguous(*copy.shape());
                let offset = copy.layout.offset();
                let copy = copy.with_layout(polygrad_core::Layout::strided(
                    *layout.shape(),
                    layout.strides(),
                    offset,
                ));
                let found = (Transpose::No, copy.shape()[copy.shape().rank() - 1]);
                (copy, found)
            }
        };
        let own = array.shape().rank() - 2;
        let mut strides = vec![0; lead.rank() - own];
        for axis in 0..own {
            let stride = if array.shape()[axis] == 1 {
                0
            } else {
                array.layout.strides()[axis]
            };
            strides.push(stride as usize);
        }
        Ok(Self {
            array,
            trans,
            ld,
            lead: strides,
        })
    }

    fn start(&self) -> Result<DevicePtr> {
        self.array.start()
    }

    /// Copies the matrices so that each product of the result has one of its own.
    fn spread(&self, lead: &Shape) -> Result<Array> {
        let shape = self.array.shape();
        let dims = [lead.dims(), &shape[shape.rank() - 2..]].concat();
        contiguous(&self.array.with_layout(self.array.layout.expand(Shape::new(&dims)?)))
    }
}

/// The last axis whose extent is not 1.
fn innermost(lead: &Shape) -> Option<usize> {
    (0..lead.rank()).rev().find(|&axis| lead[axis] != 1)
}

/// The number of evenly spaced products per batch, and the start of each batch in A and B, in elements.
fn batches(lead: &Shape, a: &Matrices, b: &Matrices) -> (usize, Vec<(usize, usize)>) {
    let mut count = 1;
    let mut outer = lead.rank();
    if let Some(inner) = innermost(lead) {
        for axis in (0..lead.rank()).rev() {
            let even = |matrices: &Matrices| matrices.lead[axis] == matrices.lead[inner] * count;
            if lead[axis] != 1 && axis != inner && !(even(a) && even(b)) {
                break;
            }
            count *= lead[axis];
            outer = axis;
        }
    }
    let mut starts = vec![(0, 0)];
    for axis in 0..outer {
        starts = starts
            .iter()
            .flat_map(|&(at_a, at_b)| (0..lead[axis]).map(move |i| (at_a + i * a.lead[axis], at_b + i * b.lead[axis])))
            .collect();
    }
    (count, starts)
}
