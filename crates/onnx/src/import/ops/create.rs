//! Tensors created from nothing, or from little.

use polygrad_core::{DType, Distribution, Error, HostTensor, Result, Scalar, Shape};
use polygrad_tensor::Tensor;
use smallvec::smallvec;

use super::row::{Row, rows};
use crate::graph::{Attribute, ElementType, Literal, malformed};
use crate::import::call::{Call, Results, one, sizes};
use crate::import::host::SMALL;
use crate::import::value::Value;

rows! {
    Row::new("Constant", 1, constant);
    Row::new("ConstantOfShape", 9, constant_of_shape);
    Row::new("Range", 11, range).like(0);
    Row::new("EyeLike", 9, eye_like);
    Row::new("OneHot", 9, one_hot).like(2);
    Row::new("Trilu", 14, trilu).like(0);
    Row::new("HannWindow", 17, |c| window(c, &[0.5, 0.5]));
    Row::new("HammingWindow", 17, |c| window(c, &[25.0 / 46.0, 21.0 / 46.0]));
    Row::new("BlackmanWindow", 17, |c| window(c, &[0.42, 0.5, 0.08]));
    Row::new("RandomUniform", 1, |c| random(c, &shape_attribute(c)?, Kind::Uniform)).random();
    Row::new("RandomNormal", 1, |c| random(c, &shape_attribute(c)?, Kind::Normal)).random();
    Row::new("RandomUniformLike", 1, |c| random(c, &c.shape(0)?, Kind::Uniform)).random();
    Row::new("RandomNormalLike", 1, |c| random(c, &c.shape(0)?, Kind::Normal)).random();
    Row::new("Bernoulli", 15, bernoulli).random();
    Row::new("Multinomial", 7, multinomial).random();
    Row::new("Dropout", 1, dropout).random();
}

fn constant(c: &Call<'_>) -> Results {
    let Some((_, attribute)) = c
        .node
        .attributes
        .iter()
        .find(|(name, _)| name.starts_with("value") || name == "sparse_value")
    else {
        return Err(malformed("the constant has no value"));
    };
    let list = |len| Shape::new(&[len]);
    Ok(smallvec![match attribute {
        Attribute::Tensor(literal) => literal.clone().into(),
        Attribute::Float(v) => HostTensor::scalar(*v).into(),
        Attribute::Int(v) => HostTensor::scalar(*v).into(),
        Attribute::Floats(v) => HostTensor::new(list(v.len())?, v.clone())?.into(),
        Attribute::String(v) => Literal::text(Shape::SCALAR, vec![v.as_str().into()])?.into(),
        Attribute::Strings(v) => {
            let texts = v.iter().map(|text| text.as_str().into()).collect();
            Literal::text(list(v.len())?, texts)?.into()
        }
        Attribute::Ints(v) => HostTensor::new(list(v.len())?, v.clone())?.into(),
        other => {
            return Err(Error::dtype(format!(
                "a constant that is {} is not held here",
                other.kind()
            )));
        }
    }])
}

fn constant_of_shape(c: &Call<'_>) -> Results {
    let dims = sizes(&c.ints(0)?)?;
    let Some(literal) = c.literal("value")? else {
        return one(c.full(&dims, 0.0, DType::F32)?);
    };
    let host = literal.host();
    if host.shape().numel() != 1 {
        return Err(malformed(format!(
            "the value has shape {}, not one element",
            host.shape()
        )));
    }
    let shape = c.reserve(&dims, host.dtype())?;
    if literal.element() == ElementType::I64 && shape.numel() <= SMALL {
        // Probably part of a shape, so it stays on the host.
        let value = host.as_slice::<i64>()?[0];
        return Ok(smallvec![HostTensor::new(shape, vec![value; shape.numel()])?.into()]);
    }
    let value = match host.dtype() {
        dtype if dtype.is_float() => Scalar::Float(host.to_f64_vec()[0]),
        _ => Scalar::Int(host.cast(DType::I64).as_slice::<i64>()?[0]),
    };
    Ok(smallvec![
        Value::from(c.full(&dims, value, host.dtype())?).with_element(literal.element()),
    ])
}

fn range(c: &Call<'_>) -> Results {
    let (start, end, step) = (c.scalar(0)?, c.scalar(1)?, c.scalar(2)?);
    let dtype = c.need(0)?.dtype().unwrap_or(DType::F32);
    if step.to_f64() == 0.0 || !step.to_f64().is_finite() {
        return Err(malformed(format!("a range in steps of {step}")));
    }
    if let (Scalar::Int(start), Scalar::Int(end), Scalar::Int(step)) = (start, end, step) {
        let span = i128::from(end) - i128::from(start);
        let step = i128::from(step);
        let count = if span.signum() == step.signum() {
            span.unsigned_abs().div_ceil(step.unsigned_abs())
        } else {
            0
        };
        let count = usize::try_from(count).map_err(|_| Error::shape("the range is larger than memory"))?;
        c.reserve(&[count], DType::I64)?;
        let values = c.collect((0..count).map(|i| (i128::from(start) + i as i128 * step) as i64))?;
        let host = HostTensor::new(Shape::new(&[count])?, values)?;
        return Ok(smallvec![host.try_cast(dtype)?.into()]);
    }
    let (start, end, step) = (start.to_f64(), end.to_f64(), step.to_f64());
    let count = ((end - start) / step).ceil().max(0.0);
    if !count.is_finite() {
        return Err(malformed("a range without end"));
    }
    let count = count as usize;
    c.reserve(&[count], dtype)?;
    let values = c.collect((0..count).map(|i| start + i as f64 * step))?;
    let host = HostTensor::new(Shape::new(&[count])?, values)?;
    Ok(smallvec![host.try_cast(dtype)?.into()])
}

fn eye_like(c: &Call<'_>) -> Results {
    let shape = c.shape(0)?;
    let [rows, columns] = shape.dims() else {
        return Err(Error::shape(format!("{shape} is no matrix")));
    };
    let element = match c.element_attribute("dtype")? {
        Some(element) => element,
        None => c.element(0)?,
    };
    let k = c.int("k", 0)?;
    if shape.numel() == 0 {
        return Ok(smallvec![
            Value::from(c.full(&shape, 0.0, element.dtype()?)?).with_element(element),
        ]);
    }
    let ones = (0..*rows as i64).flat_map(|row| (0..*columns as i64).map(move |column| column.checked_sub(row)));
    c.reserve(&shape, DType::F64)?;
    let mut list: Vec<bool> = c.list(shape.numel())?;
    list.extend(ones.map(|distance| distance == Some(k)));
    let ones = list;
    let y = c.make_as(ones, &shape, element.dtype()?)?;
    Ok(smallvec![Value::from(y).with_element(element)])
}

fn one_hot(c: &Call<'_>) -> Results {
    let index = c.x(0)?.to_dtype(DType::I64)?;
    let depth = c.scalar(1)?.to_f64();
    let depth = if (1.0..1e15).contains(&depth) {
        depth as usize
    } else {
        return Err(malformed(format!("a depth of {depth}")));
    };
    let values = c.x(2)?;
    if values.numel() != 2 {
        return Err(malformed("the values are not two: off and on"));
    }
    let axis = c.axis("axis", -1, index.rank() + 1)?;
    let mut dims = index.dims();
    dims.insert(axis, depth);
    c.reserve(&dims, DType::I64)?;
    c.reserve(&[depth], DType::I64)?;
    let index = super::gather::from_front(&index, depth)?.unsqueeze(axis as isize)?;
    let mut along = vec![1; dims.len()];
    along[axis] = depth;
    let hit = index.eq(&c.make(c.collect((0..depth).map(|i| i as i64))?, &along)?)?;
    let values = values.reshape([2])?;
    one(Tensor::where_(&hit, &values.select(0, 1)?, &values.select(0, 0)?)?)
}

fn trilu(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let k = match c.value(1) {
        Some(_) => c.int_scalar(1)?.clamp(-(1 << 40), 1 << 40) as isize,
        None => 0,
    };
    if x.numel() == 0 {
        return one(x);
    }
    one(if c.flag("upper", true)? { x.triu(k)? } else { x.tril(k)? })
}

/// A sum of cosines, alternating in sign: `w₀ − w₁ cos(2πi / N) + w₂ cos(4πi / N)`.
fn window(c: &Call<'_>, weights: &[f64]) -> Results {
    let count = crate::import::call::size(c.int_scalar(0)?)?;
    let element = c.element_attribute("output_datatype")?.unwrap_or(ElementType::F32);
    c.reserve(&[count], DType::F64)?;
    let length = if c.flag("periodic", true)? {
        count as f64
    } else {
        count as f64 - 1.0
    };
    let value = |i: usize| {
        let angle = std::f64::consts::TAU * i as f64 / length;
        let terms = weights.iter().enumerate();
        terms
            .map(|(k, w)| w * (angle * k as f64).cos() * if k % 2 == 0 { 1.0 } else { -1.0 })
            .sum::<f64>()
    };
    let host = HostTensor::new(Shape::new(&[count])?, c.collect((0..count).map(value))?)?;
    Ok(smallvec![host.try_cast(element.dtype()?)?.into()])
}

enum Kind {
    Uniform,
    Normal,
}

fn shape_attribute(c: &Call<'_>) -> Result<Shape> {
    let dims = c.int_list("shape")?.ok_or_else(|| malformed("the shape is missing"))?;
    Shape::new(&sizes(dims)?)
}

/// Drawn from the thread's generator. The seed attribute is ignored, since ONNX leaves the generator open.
fn random(c: &Call<'_>, shape: &Shape, kind: Kind) -> Results {
    let dtype = match c.element_attribute("dtype")? {
        Some(element) => element.dtype()?,
        None => c.value(0).and_then(Value::dtype).unwrap_or(DType::F32),
    };
    let distribution = match kind {
        Kind::Uniform => Distribution::Uniform {
            low: c.float("low", 0.0)?,
            high: c.float("high", 1.0)?,
        },
        Kind::Normal => Distribution::Normal {
            mean: c.float("mean", 0.0)?,
            std: c.float("scale", 1.0)?,
        },
    };
    c.limits.check(shape, dtype)?;
    one(Tensor::random(shape, distribution, (c.device, dtype))?)
}

fn bernoulli(c: &Call<'_>) -> Results {
    let p = c.x(0)?;
    let dtype = match c.element_attribute("dtype")? {
        Some(element) => element.dtype()?,
        None => p.dtype(),
    };
    let uniform = Tensor::random(
        p.shape(),
        Distribution::Uniform { low: 0.0, high: 1.0 },
        (c.device, p.dtype()),
    )?;
    one(uniform.lt(&p)?.to_dtype(dtype)?)
}

fn multinomial(c: &Call<'_>) -> Results {
    let logits = c.x(0)?;
    let shape = logits.shape();
    let [batch, classes] = shape.dims() else {
        return Err(Error::shape(format!("{shape} is not [batch, classes]")));
    };
    let count = c.count("sample_size", 1)?;
    let dtype = c.element_attribute("dtype")?.unwrap_or(ElementType::I32).dtype()?;
    let dims = c.reserve(&[*batch, count, *classes], DType::F64)?;
    let float = c.wide();
    // The argmax of logits plus Gumbel noise is a draw from their softmax.
    let uniform = Tensor::random(dims, Distribution::Uniform { low: 1e-20, high: 1.0 }, (c.device, float))?;
    let noisy = (logits.to_dtype(float)?.unsqueeze(1)? - uniform.log()?.neg()?.log()?)?;
    one(noisy.argmax(2)?.to_dtype(dtype)?)
}

/// Dropout only drops in training, which newer files say by an operand, and the oldest by an attribute.
fn dropout(c: &Call<'_>) -> Results {
    let x = c.x(0)?;
    let training = match c.version {
        ..=6 => !c.flag("is_test", false)?,
        7..=11 => false,
        _ => c.has(2) && c.scalar(2)?.to_f64() != 0.0,
    };
    let ratio = match c.value(1) {
        Some(_) if c.version >= 12 => c.scalar(1)?.to_f64(),
        _ => c.float("ratio", 0.5)?,
    };
    if !training || ratio == 0.0 {
        let mask = if c.wants(1) {
            Some(c.full(&x.dims(), true, DType::Bool)?)
        } else {
            None
        };
        return Ok(std::iter::once(x).chain(mask).map(Into::into).collect());
    }
    if !(0.0..1.0).contains(&ratio) {
        return Err(malformed(format!("a ratio of {ratio}")));
    }
    let uniform = Tensor::random(
        x.shape(),
        Distribution::Uniform { low: 0.0, high: 1.0 },
        (c.device, DType::F32),
    )?;
    let mask = uniform.ge(ratio)?;
    let y = (&x * (mask.to_dtype(x.dtype())? / (1.0 - ratio))?)?;
    Ok(smallvec![y.into(), mask.into()])
}
