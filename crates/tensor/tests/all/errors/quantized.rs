//! Products of bytes.

use polygrad_core::BinaryOp;
use polygrad_tensor::ErrorKind::{DType as BadDType, InvalidArgument, NoGradient, Shape};
use polygrad_tensor::inference::{
    binary_requantize_u8, conv_requantize_u8, conv_u8, dequantize_u8, dynamic_quantize_u8, lookup_u8,
    matmul_requantize_u8, matmul_rescale_u8, matmul_u8, quantize_u8,
};
use polygrad_tensor::{BlockScheme, ConvParams, DType};

use super::{Tensor, f32, fails, of};

fn bytes(shape: &[usize]) -> Tensor {
    of(DType::U8, shape)
}

#[test]
fn products() {
    let (a, b, one) = (bytes(&[2, 3]), bytes(&[3, 4]), bytes(&[1]));
    let op = "matmul_u8";
    let product = |a: &Tensor, b: &Tensor, zeros: [&Tensor; 2]| matmul_u8(a, b, zeros).map(drop);
    fails(product(&a, &a, [&one, &one]), Shape, &[op, "3 columns", "2 rows"]);
    fails(product(&one, &b, [&one, &one]), Shape, &[op, "matrices"]);
    fails(product(&a, &b, [&bytes(&[3]), &one]), Shape, &[op, "[3]", "[2]"]);
    fails(product(&a, &b, [&one, &bytes(&[2])]), Shape, &[op, "[2]", "[4]"]);
    let fix = "an i8 as the byte that is 128 more";
    fails(product(&f32(&[2, 3]), &b, [&one, &one]), BadDType, &[op, "f32", fix]);
    fails(product(&a, &b, [&one, &f32(&[1])]), BadDType, &[op, "f32", fix]);
}

#[test]
fn convolutions() {
    let (x, weight, one) = (bytes(&[1, 2, 5]), bytes(&[3, 2, 2]), bytes(&[1]));
    let params = ConvParams::default();
    let convolved = |x: &Tensor, zeros: [&Tensor; 2]| conv_u8(x, &weight, zeros, &params).map(drop);
    fails(
        convolved(&bytes(&[1, 3, 5]), [&one, &one]),
        Shape,
        &["conv_u8", "[1, 3, 5]"],
    );
    fails(convolved(&x, [&bytes(&[2]), &one]), Shape, &["conv_u8", "[2]", "[1]"]);
    fails(convolved(&x, [&one, &bytes(&[2])]), Shape, &["conv_u8", "[2]", "[3]"]);
    fails(convolved(&f32(&[1, 2, 5]), [&one, &one]), BadDType, &["conv_u8", "f32"]);
}

#[test]
fn products_that_give_bytes_or_floats() {
    let (a, b, one, scale) = (bytes(&[2, 4]), bytes(&[4, 3]), bytes(&[1]), f32(&[3]));
    let op = "matmul_requantize_u8";
    let made = |a: &Tensor, scale: &Tensor, zero: &Tensor, bias: &Tensor| {
        matmul_requantize_u8(a, &b, [&one, &one], (scale, zero, Some(bias))).map(drop)
    };
    let bias = of(DType::I32, &[3]);
    fails(made(&bytes(&[2, 3]), &scale, &one, &bias), Shape, &[op, "3 columns"]);
    fails(made(&a, &f32(&[2]), &one, &bias), Shape, &[op, "[2]", "[3]"]);
    fails(made(&a, &scale, &bytes(&[3]), &bias), Shape, &[op, "[3]", "[1]"]);
    fails(
        made(&a, &scale, &one, &of(DType::I32, &[2])),
        Shape,
        &[op, "[2]", "[3]"],
    );
    fails(made(&a, &scale, &one, &scale), BadDType, &[op, "f32", "i32"]);
    let op = "matmul_rescale_u8";
    let real = |zero: &Tensor, scale: &Tensor, bias: &Tensor| {
        matmul_rescale_u8(&a, &b, [&one, zero], scale, Some(bias)).map(drop)
    };
    fails(real(&bytes(&[2]), &scale, &scale), Shape, &[op, "[2]", "[3]"]);
    fails(real(&one, &one, &scale), BadDType, &[op, "u8", "f32"]);
    fails(real(&one, &scale, &f32(&[2])), Shape, &[op, "[2]", "[3]"]);
    fails(real(&one, &scale, &one), BadDType, &[op, "u8", "f32"]);
    fails(real(&one, &scale, &of(DType::I32, &[2])), Shape, &[op, "[2]", "[3]"]);
}

#[test]
fn convolutions_that_give_bytes() {
    let (x, weight, one) = (bytes(&[1, 2, 5]), bytes(&[3, 2, 2]), bytes(&[1]));
    let convolved = |scale: &Tensor, bias: &Tensor| {
        let rescale = (scale, &one, Some(bias));
        conv_requantize_u8(&x, &weight, [&one, &one], rescale, &ConvParams::default()).map(drop)
    };
    let (op, bias) = ("conv_requantize_u8", of(DType::I32, &[3]));
    fails(convolved(&f32(&[2]), &bias), Shape, &[op, "[2]", "[3]"]);
    fails(convolved(&f32(&[3]), &of(DType::I32, &[2])), Shape, &[op, "[2]", "[3]"]);
    fails(convolved(&one, &bias), BadDType, &[op, "u8", "f32"]);
}

#[test]
fn conversions() {
    let (x, one, zero) = (f32(&[2, 3]), f32(&[1]), bytes(&[1]));
    let quantized = |x: &Tensor, scale: &Tensor| quantize_u8(x, scale, &zero).map(drop);
    fails(quantized(&zero, &one), BadDType, &["quantize_u8", "u8"]);
    fails(quantized(&x, &f32(&[3])), Shape, &["quantize_u8", "[3]", "[1]"]);
    let dynamic = |x: &Tensor| dynamic_quantize_u8(x).map(drop);
    fails(dynamic(&zero), BadDType, &["dynamic_quantize_u8", "u8"]);
    fails(dynamic(&f32(&[0, 2])), Shape, &["dynamic_quantize_u8", "no number"]);
    let real = |x: &Tensor, zero: &Tensor| dequantize_u8(x, &one, zero).map(drop);
    fails(real(&x, &zero), BadDType, &["dequantize_u8", "f32", "u8"]);
    fails(
        real(&bytes(&[2]), &bytes(&[2])),
        Shape,
        &["dequantize_u8", "[2]", "[1]"],
    );
    let found = |x: &Tensor, table: &Tensor| lookup_u8(x, table).map(drop);
    fails(found(&zero, &f32(&[255])), Shape, &["lookup_u8", "[255]", "[256]"]);
    fails(found(&x, &f32(&[256])), BadDType, &["lookup_u8", "f32", "u8"]);
}

#[test]
fn sums_of_bytes() {
    let (a, b, zero, one) = (bytes(&[2, 3]), bytes(&[3]), bytes(&[1]), f32(&[1]));
    let name = "binary_requantize_u8";
    let sum = |op, b: &Tensor, zeros: [&Tensor; 2], scale: &Tensor| {
        binary_requantize_u8(op, (&a, b), zeros, [&one, scale], &zero).map(drop)
    };
    sum(BinaryOp::Add, &b, [&zero, &zero], &one).unwrap();
    fails(
        sum(BinaryOp::Sub, &b, [&zero, &zero], &one),
        InvalidArgument,
        &[name, "sub"],
    );
    fails(
        sum(BinaryOp::Mul, &bytes(&[2]), [&zero, &zero], &one),
        Shape,
        &[name, "[2]", "[2, 3]"],
    );
    fails(sum(BinaryOp::Add, &b, [&zero, &b], &one), Shape, &[name, "[3]", "[1]"]);
    fails(
        sum(BinaryOp::Add, &b, [&zero, &zero], &zero),
        BadDType,
        &[name, "u8", "f32"],
    );
}

#[test]
fn weights_in_blocks() {
    let (x, weight, scales, zero) = (f32(&[2, 64]), bytes(&[3, 32]), f32(&[3, 2]), bytes(&[1]));
    let op = "quantized_linear";
    let product = |x: &Tensor, weight: [&Tensor; 3]| x.quantized_linear(weight, BlockScheme::Q4).map(drop);
    let given = [&weight, &scales, &zero];
    product(&x, given).unwrap();
    fails(product(&f32(&[2, 32]), given), Shape, &[op, "[2, 32]", "64 features"]);
    fails(product(&f32(&[]), given), Shape, &[op, "64 features"]);
    fails(product(&bytes(&[2, 64]), given), BadDType, &[op, "u8", "convert"]);
    fails(
        product(&x, [&bytes(&[3, 40]), &scales, &zero]),
        Shape,
        &[op, "40 bytes", "32"],
    );
    fails(
        product(&x, [&weight, &f32(&[3, 1]), &zero]),
        Shape,
        &[op, "[3, 1]", "[3, 2]"],
    );
    fails(
        product(&x, [&weight, &scales, &bytes(&[3])]),
        Shape,
        &[op, "[3]", "[3, 2]"],
    );
    fails(product(&x, [&scales, &scales, &zero]), BadDType, &[op, "f32", "u8"]);
    fails(
        product(&x, [&weight, &bytes(&[3, 2]), &zero]),
        BadDType,
        &[op, "u8", "floats"],
    );
    let tracked = scales.clone().requires_grad().unwrap();
    fails(product(&x, [&weight, &tracked, &zero]), NoGradient, &[op, "adapter"]);
    let narrow = weight
        .dequantize_blocks(&scales, &zero, BlockScheme::Q4, DType::F16)
        .map(drop);
    fails(narrow, BadDType, &["dequantize_blocks", "f16"]);
}
