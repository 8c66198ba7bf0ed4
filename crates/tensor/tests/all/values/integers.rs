//! Integers stay integers: they wrap in their dtype, and are never rounded through floats.

use polygrad_core::BinaryOp;
use polygrad_cpu::Cpu;
use polygrad_reference::Reference;
use polygrad_tensor::{
    Backend, ClampBound, ConvParams, DType, Device, Element, ErrorKind, Result, RoundingMode, Tensor,
};

/// Not representable in f64.
const ODD: i64 = (1 << 53) + 1;

on_backends!(
    products_wrap,
    products_in_other_forms_wrap,
    convolutions_wrap,
    limits_are_exact,
    large_numbers_stay_exact,
);

fn list<T: Element, B: Backend>(values: &[T], shape: &[usize], device: &Device<B>) -> Result<Tensor<B>> {
    Tensor::from_slice(values, shape, device)
}

#[track_caller]
fn gives<T: Element, B: Backend>(x: &Tensor<B>, shape: &[usize], values: &[T]) {
    assert_eq!((x.dims(), x.dtype()), (shape.to_vec(), T::DTYPE));
    assert_eq!(x.to_vec::<T>().unwrap(), values);
}

fn products_wrap<B: Backend>(device: &Device<B>) -> Result<()> {
    let a = list(&[65_536i32, 1], &[1, 2], device)?;
    gives(&a.matmul(&list(&[65_536i32, 5], &[2, 1], device)?)?, &[1, 1], &[5i32]);
    let a = list(&[(1i64 << 27) + 1, 1], &[1, 2], device)?;
    gives(&a.matmul(&a.t()?)?, &[1, 1], &[(1i64 << 54) + (1 << 28) + 2]);
    let a = list(&[6_364_136_223_846_793_005i64, 1_442_695_040_888_963_407], &[2], device)?;
    let b = list(&[3i64, 7], &[2], device)?;
    gives(&a.matmul(&b)?, &[], &[-7_702_214_189_655_980_368i64]);
    let a = list(&[200u8, 100], &[1, 2], device)?;
    gives(&a.matmul(&list(&[2u8, 3], &[2, 1], device)?)?, &[1, 1], &[188u8]);
    // Promotion.
    let narrow = list(&[2i32, 3], &[1, 2], device)?;
    gives(
        &narrow.matmul(&list(&[ODD, 1], &[2, 1], device)?)?,
        &[1, 1],
        &[2 * ODD + 3],
    );
    // No terms, and no elements.
    let none = list::<i64, B>(&[], &[2, 0], device)?;
    gives(&none.matmul(&none.t()?)?, &[2, 2], &[0i64; 4]);
    gives(&none.t()?.matmul(&none)?, &[0, 0], &[0i64; 0]);
    Ok(())
}

/// The product of matrices, batch by batch, in arithmetic that wraps.
fn product(a: &[i64], b: &[i64], [m, k, n]: [usize; 3]) -> Vec<i64> {
    let element = |i: usize| {
        let (batch, row, column) = (i / (m * n), i / n % m, i % n);
        let terms = (0..k).map(|p| a[(batch * m + row) * k + p].wrapping_mul(b[(batch * k + p) * n + column]));
        terms.fold(0, i64::wrapping_add)
    };
    (0..a.len() / k * n).map(element).collect()
}

/// Numbers over the whole range.
fn wild(count: usize, seed: i64) -> Vec<i64> {
    let number = |i: usize| {
        (i as i64 + seed)
            .wrapping_mul(6_364_136_223_846_793_005)
            .rotate_left(17)
    };
    (0..count).map(number).collect()
}

fn products_in_other_forms_wrap<B: Backend>(device: &Device<B>) -> Result<()> {
    // More rows, columns and terms than stay in a cache.
    for [m, k, n] in [[3, 5, 4], [1, 130, 1], [70, 65, 515]] {
        let (a, b) = (wild(2 * m * k, 1), wild(2 * k * n, 2));
        let (x, y) = (list(&a, &[2, m, k], device)?, list(&b, &[2, k, n], device)?);
        let wanted = product(&a, &b, [m, k, n]);
        gives(&x.bmm(&y)?, &[2, m, n], &wanted);
        let turned = Tensor::from_host(y.transpose(1, 2)?.to_host()?, device)?.transpose(1, 2)?;
        gives(&x.matmul(&turned)?, &[2, m, n], &wanted);
        let narrow: Vec<i32> = wanted.iter().map(|&v| v as i32).collect();
        let (x, y) = (x.to_dtype(DType::I32)?, y.to_dtype(DType::I32)?);
        gives(&x.matmul(&y)?, &[2, m, n], &narrow);
    }
    let (a, b) = (wild(6, 3), wild(6, 4));
    let (x, y) = (list(&a, &[2, 3], device)?, list(&b, &[3, 2], device)?);
    let wanted = product(&a, &b, [2, 3, 2]);
    gives(&Tensor::einsum("ij,jk->ik", &[&x, &y])?, &[2, 2], &wanted);
    let bias = list(&[ODD, -ODD], &[2], device)?;
    let shifted: Vec<i64> = wanted
        .iter()
        .zip([ODD, -ODD, ODD, -ODD])
        .map(|(y, b)| y.wrapping_add(b))
        .collect();
    gives(&x.linear(&y.t()?, Some(&bias))?, &[2, 2], &shifted);
    gives(&bias.addmm(&x, &y, 1, 1)?, &[2, 2], &shifted);
    let scaled: Vec<i64> = wanted
        .iter()
        .zip([ODD, -ODD, ODD, -ODD])
        .map(|(y, b)| y.wrapping_mul(-3).wrapping_add(b * 2))
        .collect();
    gives(&bias.addmm(&x, &y, 2, -3)?, &[2, 2], &scaled);
    gives(&bias.addmm(&x, &y, 0, 1)?, &[2, 2], &wanted);
    Ok(())
}

fn convolutions_wrap<B: Backend>(device: &Device<B>) -> Result<()> {
    // For numbers that f64 represents, the result is the same as in f64.
    let small = |count: usize, seed: i64| -> Vec<i64> { wild(count, seed).iter().map(|v| v % 50).collect() };
    let shapes: [(&[usize], &[usize], ConvParams); 4] = [
        (
            &[2, 4, 9],
            &[6, 2, 3],
            ConvParams {
                groups: 2,
                padding: [2; 3],
                ..ConvParams::default()
            },
        ),
        (
            &[1, 2, 6, 7],
            &[3, 2, 3, 2],
            ConvParams {
                stride: [2, 1, 1],
                dilation: [1, 2, 1],
                ..ConvParams::default()
            },
        ),
        (
            &[1, 1, 3, 4, 5],
            &[2, 1, 2, 2, 2],
            ConvParams {
                padding: [1, 0, 1],
                ..ConvParams::default()
            },
        ),
        (&[0, 2, 5], &[3, 2, 2], ConvParams::default()),
    ];
    for (input, kernel, params) in shapes {
        let x = list(&small(input.iter().product(), 5), input, device)?;
        let weight = list(&small(kernel.iter().product(), 6), kernel, device)?;
        let (wide_x, wide_weight) = (x.to_dtype(DType::F64)?, weight.to_dtype(DType::F64)?);
        let wanted = wide_x.conv(&wide_weight, None, &params)?.to_dtype(DType::I64)?;
        let y = x.conv(&weight, None, &params)?;
        gives(&y, &wanted.dims(), &wanted.to_vec::<i64>()?);
        let back = y.conv_transpose(&weight, &params, [0; 3])?;
        let wanted = y.to_dtype(DType::F64)?.conv_transpose(&wide_weight, &params, [0; 3])?;
        gives(&back, &wanted.dims(), &wanted.to_dtype(DType::I64)?.to_vec::<i64>()?);
    }
    // Larger numbers, in their own width.
    let x = list(&[i64::MAX, 2, ODD], &[1, 1, 3], device)?;
    let weight = list(&[2i64, 3], &[1, 1, 2], device)?;
    gives(
        &x.conv(&weight, None, &ConvParams::default())?,
        &[1, 1, 2],
        &[4, 3 * ODD + 4],
    );
    let bias = list(&[ODD], &[1], device)?;
    let y = x.conv(&weight, Some(&bias), &ConvParams::default())?;
    gives(&y, &[1, 1, 2], &[4 + ODD, 4 * ODD + 4]);
    let bytes = x
        .to_dtype(DType::U8)?
        .conv(&weight.to_dtype(DType::U8)?, None, &ConvParams::default())?;
    gives(&bytes, &[1, 1, 2], &[4u8, 7]);
    Ok(())
}

fn limits_are_exact<B: Backend>(device: &Device<B>) -> Result<()> {
    let x = list(&[16_777_217i64, -3], &[2], device)?;
    gives(&x.clamp(Some(0), None)?, &[2], &[16_777_217i64, 0]);
    let x = list(&[i64::MIN, ODD - 1, ODD, ODD + 1, i64::MAX], &[5], device)?;
    gives(
        &x.clamp(Some(ODD), Some(ODD + 2))?,
        &[5],
        &[ODD, ODD, ODD, ODD + 1, ODD + 2],
    );
    let (low, high) = (list(&[ODD], &[1], device)?, list(&[ODD + 1], &[1], device)?);
    gives(
        &x.clamp(Some(&low), Some(&high))?,
        &[5],
        &[ODD, ODD, ODD, ODD + 1, ODD + 1],
    );
    assert_eq!(x.clamp(Some(0.5), None)?.dtype(), DType::F32);
    // A bound that no number of the dtype exceeds does not limit.
    let bytes = list(&[7u8, 255], &[2], device)?;
    gives(&bytes.clamp(Some(-5), Some(300))?, &[2], &[7u8, 255]);
    assert_eq!(bytes.clamp(Some(256), None).unwrap_err().kind(), ErrorKind::OutOfRange);
    let (low, high) = (list(&[9u8], &[], device)?, ClampBound::Number(300.into()));
    gives(
        &bytes.clamp(Some(ClampBound::Tensor(&low)), Some(high))?,
        &[2],
        &[9u8, 255],
    );
    gives(
        &bytes.clamp(None, Some(&list(&[300i32], &[], device)?))?,
        &[2],
        &[7i32, 255],
    );
    Ok(())
}

fn large_numbers_stay_exact<B: Backend>(device: &Device<B>) -> Result<()> {
    gives(&Tensor::full([2], ODD, (device, DType::I64))?, &[2], &[ODD; 2]);
    let x = list(&[ODD, ODD - 1, ODD + 1, ODD], &[4], device)?;
    gives(&x.eq(ODD)?, &[4], &[true, false, false, true]);
    gives(&x.gt(ODD)?, &[4], &[false, false, true, false]);
    gives(
        &x.le(&Tensor::full((), ODD, (device, DType::I64))?)?,
        &[4],
        &[true, true, false, true],
    );
    let mask = x.ne(ODD)?;
    gives(&x.masked_fill(&mask, ODD + 2)?, &[4], &[ODD, ODD + 2, ODD + 2, ODD]);
    gives(&x.sort(0, false)?.0, &[4], &[ODD - 1, ODD, ODD, ODD + 1]);
    gives(&x.sort(0, true)?.1, &[4], &[2i64, 0, 3, 1]);
    gives(&x.topk(2, 0, true)?.0, &[2], &[ODD + 1, ODD]);
    gives(&x.argmin(0)?, &[], &[1i64]);
    gives(&x.amax(())?, &[], &[ODD + 1]);
    gives(&x.cumsum(0)?, &[4], &[ODD, 2 * ODD - 1, 3 * ODD, 4 * ODD]);
    gives(&x.sum_all()?, &[], &[4 * ODD]);
    let product = ODD.wrapping_mul(ODD - 1).wrapping_mul(ODD + 1).wrapping_mul(ODD);
    gives(&x.prod(())?, &[], &[product]);
    gives(&(&x + 1)?, &[4], &[ODD + 1, ODD, ODD + 2, ODD + 1]);
    gives(&(&x % ODD)?, &[4], &[0, ODD - 1, 1, 0]);
    gives(
        &x.binary_scalar(BinaryOp::Sub, 1, true)?,
        &[4],
        &[1 - ODD, 2 - ODD, -ODD, 1 - ODD],
    );
    gives(&x.abs()?, &[4], &[ODD, ODD - 1, ODD + 1, ODD]);
    gives(
        &Tensor::arange(ODD, ODD + 3, 1, device)?,
        &[3],
        &[ODD, ODD + 1, ODD + 2],
    );
    gives(&Tensor::arange(ODD, ODD - 4, -3, device)?, &[2], &[ODD, ODD - 3]);
    gives(
        &Tensor::arange(i64::MIN, i64::MAX, i64::MAX, device)?,
        &[3],
        &[i64::MIN, -1, i64::MAX - 1],
    );
    gives(&Tensor::<B>::arange(5, 5, -1, device)?, &[0], &[0i64; 0]);
    assert!(Tensor::<B>::arange(0, 3, -1, device).is_err());
    assert!(Tensor::<B>::arange(0, 3, 0, device).is_err());
    // Quotients at the ends of the range.
    let (a, b) = (
        list(&[i64::MIN, i64::MIN, i64::MAX, 7, ODD], &[5], device)?,
        list(&[3i64, -1, -4, 0, 2], &[5], device)?,
    );
    let floors = [-3_074_457_345_618_258_603, i64::MIN, -(1 << 61), 0, 1i64 << 52];
    gives(&a.div_rounded(&b, RoundingMode::Floor)?, &[5], &floors);
    Ok(())
}

/// The decomposition for engines without integer products, with so many terms that it splits them.
#[test]
fn the_decomposition_gives_the_same() -> Result<()> {
    use polygrad_core::{HostTensor, Shape, decompose};
    let tensor = |values: Vec<i64>, shape: &[usize]| -> Result<_> {
        Cpu::from_host(HostTensor::new(Shape::new(shape)?, values)?, &Default::default())
    };
    for [m, k, n] in [[2, 3, 2], [1, 5001, 1], [40, 70, 900], [1100, 3, 1000]] {
        let (a, b) = (
            tensor(wild(m * k, 7), &[m, k])?,
            tensor(wild(3 * k * n, 8), &[3, 1, k, n])?,
        );
        for dtype in [DType::I64, DType::I32, DType::U8] {
            let (a, b) = (Cpu::cast(&a, dtype)?, Cpu::cast(&b, dtype)?);
            let wanted = Cpu::to_host(&Cpu::matmul(&a, &b)?)?;
            let found = Cpu::to_host(&decompose::integer_matmul::<Cpu>(&a, &b)?)?;
            assert_eq!((found.shape(), found.dtype()), (wanted.shape(), dtype));
            assert!(found.bytes() == wanted.bytes(), "{m} × {k} × {n} in {dtype}");
        }
    }
    let bools = Reference::full(Shape::from([1, 1]), true.into(), DType::Bool, &Default::default())?;
    let refused = decompose::integer_matmul::<Reference>(&bools, &bools)
        .err()
        .map(|error| error.kind());
    assert_eq!(refused, Some(ErrorKind::DType));
    Ok(())
}
