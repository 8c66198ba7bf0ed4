//! Our own kernels, for ops that Burn lacks or computes outside the contract. Each iterates once over the elements of
//! its result.

use burn_cubecl::ops::numeric::empty_device_dtype;
use burn_wgpu::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::client::Client;
use cubecl::prelude::*;
use cubecl::std::tensor::layout::linear::{LinearView, LinearViewMut};
use polygrad_core::{DType, Shape};

use crate::wgpu::elementary::{self, Function};
use crate::wgpu::tensor::{BurnWgpuTensor, burn_dtype, burn_shape};

/// Functions of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pair {
    Div,
    Remainder,
    Pow,
    Maximum,
    Minimum,
    Atan2,
}

#[cube(launch, address_type = "dynamic")]
fn map_floats(x: LinearView<'_, f32>, mut out: LinearViewMut<'_, f32>, #[comptime] function: Function) {
    if !out.is_in_bounds(ABSOLUTE_POS) {
        terminate!();
    }
    out.write(ABSOLUTE_POS, elementary::function(x.read(ABSOLUTE_POS), function));
}

#[cube(launch, address_type = "dynamic")]
fn zip_floats(
    a: LinearView<'_, f32>,
    b: LinearView<'_, f32>,
    mut out: LinearViewMut<'_, f32>,
    #[comptime] function: Pair,
) {
    if !out.is_in_bounds(ABSOLUTE_POS) {
        terminate!();
    }
    out.write(
        ABSOLUTE_POS,
        of_floats(a.read(ABSOLUTE_POS), b.read(ABSOLUTE_POS), function),
    );
}

#[cube]
fn of_floats(a: f32, b: f32, #[comptime] function: Pair) -> f32 {
    match function {
        Pair::Div => a / b,
        Pair::Remainder => remainder(a, b),
        Pair::Pow => elementary::power(a, b),
        Pair::Maximum => select(a > b || a.is_nan(), a, b),
        Pair::Minimum => select(a < b || a.is_nan(), a, b),
        Pair::Atan2 => elementary::angle(a, b),
    }
}

/// The remainder with the sign of the divisor. The quotient is exact as long as it has 24 bits.
#[cube]
fn remainder(a: f32, b: f32) -> f32 {
    let rest = a - b * (a / b).trunc();
    // An infinite divisor leaves the whole of a finite number, where the formula would compute 0 times infinity.
    let whole = b.abs() > f32::MAX && a.abs() <= f32::MAX;
    let rest = select(whole, a, rest);
    let other = rest != 0.0f32 && (rest < 0.0f32) != (b < 0.0f32);
    select(other, rest + b, rest)
}

#[cube(launch, address_type = "dynamic")]
fn zip_integers<I: Int>(
    a: LinearView<'_, I>,
    b: LinearView<'_, I>,
    mut out: LinearViewMut<'_, I>,
    #[comptime] function: Pair,
    #[define(I)] _dtype: ElemType,
) {
    if !out.is_in_bounds(ABSOLUTE_POS) {
        terminate!();
    }
    out.write(
        ABSOLUTE_POS,
        of_integers::<I>(a.read(ABSOLUTE_POS), b.read(ABSOLUTE_POS), function),
    );
}

#[cube]
fn of_integers<I: Int>(a: I, b: I, #[comptime] function: Pair) -> I {
    match function {
        Pair::Div => quotient::<I>(a, b),
        Pair::Remainder => {
            let rest = a - quotient::<I>(a, b) * b;
            let zero = I::from_int(0);
            // Dividing by 0 would leave the whole of a.
            let rest = select(b == zero, zero, rest);
            let other = rest != zero && (rest < zero) != (b < zero);
            select(other, rest + b, rest)
        }
        Pair::Pow => whole_power::<I>(a, b),
        Pair::Maximum => select(a > b, a, b),
        Pair::Minimum => select(a < b, a, b),
        // Not defined for integers.
        Pair::Atan2 => a,
    }
}

/// Avoids the divisions whose result a shader does not define.
#[cube]
fn quotient<I: Int>(a: I, b: I) -> I {
    let (zero, one) = (I::from_int(0), I::from_int(1));
    let minus = b == I::from_int(-1);
    let divisor = select(b == zero || minus, one, b);
    let quotient = a / divisor;
    select(b == zero, zero, select(minus, zero - a, quotient))
}

/// A power by repeated squaring.
#[cube]
fn whole_power<I: Int>(a: I, b: I) -> I {
    let (zero, one) = (I::from_int(0), I::from_int(1));
    let unit = a == one || a == I::from_int(-1);
    let mut rest = select(b < zero, select(unit, b & one, zero), b);
    let mut product = select(b < zero && !unit, zero, one);
    let mut square = a;
    while rest > zero {
        if (rest & one) == one {
            product *= square;
        }
        square *= square;
        rest >>= one;
    }
    product
}

/// Writes 1 and an index outside `0..dim` to `found`; if there are several, any of them.
#[cube(launch, address_type = "dynamic")]
fn find_outside(index: LinearView<'_, i64>, found: &mut Tensor<i64>, dim: i64) {
    if !index.is_in_bounds(ABSOLUTE_POS) {
        terminate!();
    }
    let i = index.read(ABSOLUTE_POS);
    if i < 0i64 || i >= dim {
        found[0] = 1i64;
        found[1] = i;
    }
}

/// Memory for a result.
pub(crate) fn room(like: &BurnWgpuTensor, shape: &Shape, dtype: DType) -> CubeTensor {
    let mut dtype = burn_dtype(dtype);
    if let burn_backend::DType::Bool(_) = dtype {
        dtype = burn_backend::DType::U32;
    }
    let cube = like.cube();
    empty_device_dtype(cube.client.clone(), cube.device.clone(), burn_shape(shape), dtype)
}

/// The launch size of a kernel over `count` elements.
pub(crate) fn units(client: &Client, count: usize) -> (CubeCount, CubeDim) {
    let dim = CubeDim::new(client, count);
    (calculate_cube_count_elemwise(client, count, dim), dim)
}

/// The address width that all of these tensors need.
macro_rules! addresses {
    ($($tensor:expr),*) => {
        [$($tensor.required_address_type()),*].into_iter().max().unwrap_or_default()
    };
}
pub(crate) use addresses;

pub(crate) fn map(function: Function, x: &BurnWgpuTensor) -> BurnWgpuTensor {
    let out = room(x, &x.shape(), x.dtype());
    let (count, dim) = units(&out.client, x.shape().numel());
    let input = x.operand();
    map_floats::launch(
        &out.client,
        count,
        dim,
        addresses!(input, out),
        input.into_linear_view(),
        out.clone().into_linear_view(),
        function,
    );
    x.like(out, x.shape(), x.dtype())
}

/// Both operands have the shape.
pub(crate) fn zip(function: Pair, a: &BurnWgpuTensor, b: &BurnWgpuTensor, shape: Shape) -> BurnWgpuTensor {
    let out = room(a, &shape, a.dtype());
    let (count, dim) = units(&out.client, shape.numel());
    let (left, right) = (a.operand(), b.operand());
    let addresses = addresses!(left, right, out);
    if a.dtype().is_float() {
        zip_floats::launch(
            &out.client,
            count,
            dim,
            addresses,
            left.into_linear_view(),
            right.into_linear_view(),
            out.clone().into_linear_view(),
            function,
        );
    } else {
        let dtype = burn_backend::cubecl::dtype_to_elem_type(out.dtype);
        zip_integers::launch(
            &out.client,
            count,
            dim,
            addresses,
            left.into_linear_view(),
            right.into_linear_view(),
            out.clone().into_linear_view(),
            function,
            dtype,
        );
    }
    a.like(out, shape, a.dtype())
}

/// Writes two integers: 1 if an index is outside `0..dim`, and that index.
pub(crate) fn outside(index: &BurnWgpuTensor, dim: usize, found: &BurnWgpuTensor) {
    let (cube, input) = (found.operand(), index.operand());
    let (count, units) = units(&cube.client, index.shape().numel());
    find_outside::launch(
        &cube.client.clone(),
        count,
        units,
        addresses!(input, cube),
        input.into_linear_view(),
        cube.into_tensor_arg(),
        i64::try_from(dim).unwrap_or(i64::MAX),
    );
}

/// Converts floats to integers: towards 0, saturating, NaN as 0. A shader's own conversion is undefined out of range.
#[cube(launch, address_type = "dynamic")]
fn cut_off<I: Int>(x: LinearView<'_, f32>, mut out: LinearViewMut<'_, I>, limit: f32, #[define(I)] _dtype: ElemType) {
    if !out.is_in_bounds(ABSOLUTE_POS) {
        terminate!();
    }
    let value = x.read(ABSOLUTE_POS);
    let inside = value < limit && value >= -limit;
    let whole = I::cast_from(select(inside, value, 0.0f32));
    let whole = select(value >= limit, I::max_value(), whole);
    out.write(ABSOLUTE_POS, select(value < -limit, I::min_value(), whole));
}

/// A tensor of floats converted to an integer dtype.
pub(crate) fn truncate(x: &BurnWgpuTensor, dtype: DType) -> BurnWgpuTensor {
    let out = room(x, &x.shape(), dtype);
    let (count, dim) = units(&out.client, x.shape().numel());
    let input = x.operand();
    let bits = dtype.size() as i32 * 8 - 1;
    cut_off::launch(
        &out.client,
        count,
        dim,
        addresses!(input, out),
        input.into_linear_view(),
        out.clone().into_linear_view(),
        2f32.powi(bits),
        burn_backend::cubecl::dtype_to_elem_type(out.dtype),
    );
    x.like(out, x.shape(), dtype)
}
