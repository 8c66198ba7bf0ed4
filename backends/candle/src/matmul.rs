//! Matrix products.

use polygrad_core::{Axes, DType, Error, Result, Scalar, Shape};

use crate::CandleTensor;
use crate::binary::cast;
use crate::engine::engine;
use crate::movement::{expand, permute, reshape};

pub(crate) fn matmul(a: &CandleTensor, b: &CandleTensor) -> Result<CandleTensor> {
    let (a_shape, b_shape) = (a.shape(), b.shape());
    let (&[ref a_batch @ .., m, k], &[ref b_batch @ .., _, n]) = (a_shape.dims(), b_shape.dims()) else {
        return Err(Error::shape("both must have rank 2 or more").with_op("matmul"));
    };
    let (a_batch, b_batch) = (Shape::new(a_batch)?, Shape::new(b_batch)?);
    let batch = a_batch.broadcast(&b_batch)?;
    let shape = Shape::new(&[batch.dims(), &[m, n]].concat())?;
    let dtype = a.dtype();
    if shape.numel() == 0 || k == 0 {
        return CandleTensor::full(shape, Scalar::Int(0), dtype, &a.device());
    }
    if matches!(dtype, DType::F16 | DType::BF16) {
        // candle has no bf16 product on CPUs, and its f16 one rounds partial sums.
        let wide = matmul(&cast(a, DType::F32)?, &cast(b, DType::F32)?)?;
        return cast(&wide, dtype);
    }
    // One right-hand matrix for a whole batch: one large product, with contiguous rows. candle 0.11.1 does the same,
    // but mistakes rows of transposed matrices for contiguous ones.
    if b_batch.numel() == 1 && !a_batch.is_empty() {
        let rows = Shape::from([batch.numel() * m, k]);
        let product = plain(&reshape(a, rows)?, &reshape(b, Shape::from([k, n]))?)?;
        return reshape(&product, shape);
    }
    let stretched = |x: &CandleTensor, dims: [usize; 2]| -> Result<CandleTensor> {
        if x.shape().numel() == dims[0] * dims[1] {
            // A single matrix for all products: its batch stride becomes 0, whatever its own strides are.
            let mut one = x.clone();
            while one.shape().rank() > 2 {
                one = one.view(engine("matmul", || one.raw().squeeze(0))?)?;
            }
            return expand(&one, Shape::from([batch.numel(), dims[0], dims[1]]));
        }
        let whole = Shape::new(&[batch.dims(), &dims].concat())?;
        let flat = Shape::from([batch.numel(), dims[0], dims[1]]);
        let x = expand(x, whole)?;
        // candle accepts a transposed matrix: transposed back, it can be flattened without a copy.
        let rank = whole.rank();
        let swapped = Axes::new((0..rank - 2).chain([rank - 1, rank - 2]))?;
        let turned = permute(&x, swapped)?;
        if !is_row_major(&x) && is_row_major(&turned) {
            let flat = Shape::from([batch.numel(), dims[1], dims[0]]);
            return permute(&reshape(&turned, flat)?, Axes::new([0, 2, 1])?);
        }
        reshape(&x, flat)
    };
    if batch.is_empty() {
        return plain(a, b);
    }
    let (mut a, b) = (stretched(a, [m, k])?, stretched(b, [k, n])?);
    // candle computes a batch that shares its right matrix as one product, with the left one's row stride. If each
    // matrix has a single row, that stride may be any number, so the layout is created anew.
    if b.raw().stride()[0] == 0 {
        let flat = a.shape();
        a = reshape(&reshape(&a, Shape::from([batch.numel() * m, k]))?, flat)?;
    }
    reshape(&plain(&a, &b)?, shape)
}

fn is_row_major(x: &CandleTensor) -> bool {
    x.raw().is_contiguous()
}

/// candle's own product, of two matrices or of equal batches.
fn plain(a: &CandleTensor, b: &CandleTensor) -> Result<CandleTensor> {
    let (a_shape, b_shape) = (a.shape(), b.shape());
    let rank = a_shape.rank();
    let n = b_shape[rank - 1];
    let elements = a_shape.numel() / a_shape[rank - 1] * n;
    CandleTensor::made("matmul", elements, a.dtype(), || a.raw().matmul(b.raw()))
}
