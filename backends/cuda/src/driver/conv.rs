//! Convolutions as matrix products: kernels copy the windows of the images to columns, cuBLAS multiplies.
//!
//! For each group, `output = weight · columns`, where a column is the window at one position of one image. The
//! gradients are `weightᵀ · grad`, whose elements are added up where windows overlap, and `grad · columnsᵀ`.

use polygrad_core::compute::{Batch, Conv2d, DevicePtr, DeviceView, Gemm, Transpose};
use polygrad_core::{DType, Layout, Result, Scalar};

use super::memory::{Allocation, Space, shape_of};
use super::queue::Queue;
use super::{elementwise, floats, products};
use crate::source::{Args, File, file};

const COLUMNS: File = file!("columns");

/// The tensor that is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// By `weight · columns`.
    Output,
    /// The input's gradient, by `weightᵀ · grad`.
    Input,
    /// The weight's gradient, by `grad · columnsᵀ`.
    Weight,
}

/// Elements of the columns that are copied at a time, per thread of a fully occupied device: half a gigabyte on a large
/// device.
const EACH: usize = 512;

/// See [`polygrad_core::compute::ComputeBackend::conv2d_forward`] and its two gradients.
pub(super) fn conv2d(queue: &Queue, space: &Space<'_>, call: &Conv2d, side: Side) -> Result<()> {
    floats(call.dtype)?;
    let (spans, output_shape) = (call.spans()?, call.output_shape()?);
    let input = space.span(call.input, call.dtype, spans[0])?;
    let weight = space.span(call.weight, call.dtype, spans[1])?;
    let output = space.span(call.output, call.dtype, spans[2])?;
    let [batch, channels, ..] = call.input_shape;
    let [_, filters, out_height, out_width] = output_shape;
    let (rows, plane) = (
        channels * call.weight_shape[2] * call.weight_shape[3],
        out_height * out_width,
    );
    if [batch, filters, rows, plane].contains(&0) {
        let (ptr, dims) = match side {
            Side::Output => (call.output, output_shape),
            Side::Input => (call.input, call.input_shape),
            Side::Weight => (call.weight, call.weight_shape),
        };
        let sums = DeviceView::contiguous(ptr, call.dtype, shape_of(&dims)?);
        return elementwise::fill(queue, space, &sums, Scalar::Float(0.0));
    }
    let facts = queue.runtime.facts();
    let most = facts.busy as usize * facts.block as usize * EACH;
    let run = Run {
        queue,
        call,
        filters,
        rows,
        out: [out_height, out_width],
        images: (most / (rows * plane)).clamp(1, batch),
    };
    match side {
        Side::Output => run.forward(input, weight, output),
        Side::Input => run.input_grad(input, weight, output),
        Side::Weight => run.weight_grad(input, weight, output),
    }
}

struct Run<'a> {
    queue: &'a Queue,
    call: &'a Conv2d,
    filters: usize,
    /// The rows of the columns, over all groups.
    rows: usize,
    out: [usize; 2],
    /// Number of images that are computed at a time.
    images: usize,
}

impl Run<'_> {
    fn forward(&self, input: u64, weight: u64, output: u64) -> Result<()> {
        let columns = self.scratch(self.rows, self.call.dtype)?;
        let turned = self.scratch(self.filters, self.call.dtype)?;
        for (first, images) in self.chunks() {
            self.columns(images, self.image(input, first), columns.address(), false)?;
            let to = self.at(output, first);
            // The results of a single image are in the right order already.
            let made = if images == 1 { to } else { turned.address() };
            let matrices = [weight, columns.address(), made];
            self.product(Side::Output, images, matrices, self.call.dtype, 0.0)?;
            if images > 1 {
                self.turn(images, made, to, true)?;
            }
        }
        columns.release()?;
        turned.release()
    }

    fn input_grad(&self, input: u64, weight: u64, output: u64) -> Result<()> {
        let wide = wide(self.call.dtype);
        let columns = self.scratch(self.rows, wide)?;
        let turned = self.scratch(self.filters, self.call.dtype)?;
        for (first, images) in self.chunks() {
            let grad = self.turned(first, images, output, &turned)?;
            self.product(Side::Input, images, [weight, grad, columns.address()], wide, 0.0)?;
            self.columns(images, self.image(input, first), columns.address(), true)?;
        }
        columns.release()?;
        turned.release()
    }

    fn weight_grad(&self, input: u64, weight: u64, output: u64) -> Result<()> {
        let dtype = self.call.dtype;
        let columns = self.scratch(self.rows, dtype)?;
        let turned = self.scratch(self.filters, dtype)?;
        // Sums over several parts are rounded once, at the end.
        let wide = if self.images < self.call.input_shape[0] {
            wide(dtype)
        } else {
            dtype
        };
        let count = self.call.weight_shape.iter().product::<usize>();
        let sums = (wide != dtype)
            .then(|| self.queue.scratch(count * wide.size()))
            .transpose()?;
        let to = sums.as_ref().map_or(weight, Allocation::address);
        for (first, images) in self.chunks() {
            let grad = self.turned(first, images, output, &turned)?;
            self.columns(images, self.image(input, first), columns.address(), false)?;
            let beta = if first == 0 { 0.0 } else { 1.0 };
            self.product(Side::Weight, images, [grad, columns.address(), to], wide, beta)?;
        }
        if let Some(sums) = sums {
            elementwise::narrow(self.queue, (wide, to), (dtype, weight), count)?;
            sums.release()?;
        }
        columns.release()?;
        turned.release()
    }

    /// The first image and the number of images of each part.
    fn chunks(&self) -> impl Iterator<Item = (usize, usize)> {
        let batch = self.call.input_shape[0];
        (0..batch)
            .step_by(self.images)
            .map(move |first| (first, self.images.min(batch - first)))
    }

    fn plane(&self) -> usize {
        self.out[0] * self.out[1]
    }

    /// Scratch memory with `rows` elements per position of each image of a part.
    fn scratch(&self, rows: usize, dtype: DType) -> Result<Allocation> {
        self.queue.scratch(rows * self.images * self.plane() * dtype.size())
    }

    /// The address of an image of the input.
    fn image(&self, input: u64, image: usize) -> u64 {
        let [_, channels, height, width] = self.call.input_shape;
        input + (image * channels * height * width * self.call.dtype.size()) as u64
    }

    /// The address of an image of the output.
    fn at(&self, output: u64, image: usize) -> u64 {
        output + (image * self.filters * self.plane() * self.call.dtype.size()) as u64
    }

    /// Copies the windows of images to columns, or adds columns up to images.
    fn columns(&self, images: usize, at: u64, columns: u64, gather: bool) -> Result<()> {
        let [_, channels, height, width] = self.call.input_shape;
        let [_, _, kernel_h, kernel_w] = self.call.weight_shape;
        let source = self.queue.source(COLUMNS, self.call.dtype).flag("GATHER", gather);
        let args = Args::default()
            .all(&[at, columns])
            .all(&[images, channels, height, width, kernel_h, kernel_w])
            .all(&self.out)
            .all(&self.call.params.stride[..2])
            .all(&self.call.params.padding[..2])
            .all(&self.call.params.dilation[..2]);
        let count = match gather {
            true => images * channels * height * width,
            false => channels * images * self.plane(),
        };
        self.queue.launch_each(source, count, &args)
    }

    /// Exchanges the first two axes, between `[filters, images, positions]` for products and `[images, filters,
    /// positions]` for tensors.
    fn turn(&self, images: usize, from: u64, to: u64, back: bool) -> Result<()> {
        let (filters, plane) = (self.filters, self.plane());
        let shape = shape_of(&[images, filters, plane])?;
        let dtype = self.call.dtype;
        // The addresses are passed separately.
        let tensor = DeviceView::contiguous(DevicePtr::NULL, dtype, shape);
        let strides = [plane, images * plane, 1].map(usize::cast_signed);
        let product = DeviceView::new(DevicePtr::NULL, dtype, Layout::strided(shape, &strides, 0));
        let (source, target) = if back { (&product, &tensor) } else { (&tensor, &product) };
        elementwise::convert(self.queue, shape, (source, from), (target, to))
    }

    /// The output's gradient of some images, in the order that the product needs.
    fn turned(&self, first: usize, images: usize, output: u64, scratch: &Allocation) -> Result<u64> {
        let from = self.at(output, first);
        if images == 1 {
            return Ok(from);
        }
        self.turn(images, from, scratch.address(), false)?;
        Ok(scratch.address())
    }

    /// Runs a product for each group, with matrices at these addresses.
    fn product(&self, side: Side, images: usize, matrices: [u64; 3], dtype_c: DType, beta: f64) -> Result<()> {
        let groups = self.call.params.groups;
        let (filters, rows) = (self.filters / groups, self.rows / groups);
        let (no, yes, places) = (Transpose::No, Transpose::Yes, images * self.plane());
        // The weight's rows have the length of a column; all other matrices' rows run over positions.
        let ((trans_a, trans_b), [m, n, k], widths) = match side {
            Side::Output => ((no, no), [filters, places, rows], [rows, places, places]),
            Side::Input => ((yes, no), [rows, places, filters], [rows, places, places]),
            Side::Weight => ((no, yes), [filters, rows, places], [places, places, rows]),
        };
        let call = Gemm {
            dtype: self.call.dtype,
            dtype_c,
            trans_a,
            trans_b,
            m,
            n,
            k,
            alpha: 1.0,
            beta,
            a: DevicePtr::NULL,
            lda: widths[0],
            b: DevicePtr::NULL,
            ldb: widths[1],
            c: DevicePtr::NULL,
            ldc: widths[2],
        };
        let batch = Batch {
            count: groups,
            stride_a: m * k,
            stride_b: k * n,
            stride_c: m * n,
        };
        products::multiply(self.queue, &call, &batch, matrices)
    }
}

/// The dtype in which sums are accumulated.
fn wide(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}
