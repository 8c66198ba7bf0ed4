//! Numbers and strings in JSON, converted directly to and from their types.

use std::borrow::Cow;

use bytes::Bytes;
use polygrad_core::{Element, HostTensor, Result as CoreResult, Shape, bf16, dispatch_dtype, f16};
use polygrad_onnx::graph::{ElementType, Literal};
use serde_json::value::RawValue;

use crate::value::shown;
use crate::{Failure, Strings, Value};

/// Reads the `data` of an input: a flat list, or lists nested according to the shape.
///
/// # Errors
/// A value not of the type; more or fewer values than the shape has; lists with another nesting.
pub(super) fn read(
    name: &str,
    element: ElementType,
    shape: Shape,
    data: &RawValue,
    body: &Bytes,
) -> Result<Value, Failure> {
    let list = List {
        name,
        element,
        shape,
        text: data.get(),
    };
    let wrong = |error| Failure::invalid(format!("the input {name:?}: {error}"));
    if element == ElementType::String {
        let strings = list.read(|token| string(token, body))?;
        return Ok(Value::Strings(Strings::new(shape, strings).map_err(wrong)?));
    }
    let host = match element {
        ElementType::F32 => host(
            shape,
            list.read(|token| token.parse().ok().filter(|v: &f32| v.is_finite()))?,
        ),
        ElementType::F64 => host(shape, list.read(double)?),
        ElementType::F16 => host(
            shape,
            list.read(|token| double(token).map(f16::from_f64).filter(|v| v.is_finite()))?,
        ),
        ElementType::BF16 => host(
            shape,
            list.read(|token| double(token).map(bf16::from_f64).filter(|v| v.is_finite()))?,
        ),
        ElementType::Bool => host(
            shape,
            list.read(|token| match token {
                "true" => Some(true),
                "false" => Some(false),
                _ => None,
            })?,
        ),
        ElementType::U8 => host(shape, list.read(|token| u8::try_from(integer(token, element)?).ok())?),
        ElementType::U32 | ElementType::U64 | ElementType::I64 => {
            host(shape, list.read(|token| integer(token, element))?)
        }
        _ => host(shape, list.read(|token| i32::try_from(integer(token, element)?).ok())?),
    };
    let literal = host.and_then(|host| Literal::new(element, host));
    Ok(Value::Tensor(literal.map_err(wrong)?))
}

fn host<T: Element>(shape: Shape, values: Vec<T>) -> CoreResult<HostTensor> {
    HostTensor::new(shape, values)
}

fn double(token: &str) -> Option<f64> {
    token.parse().ok().filter(|v: &f64| v.is_finite())
}

fn integer(token: &str, element: ElementType) -> Option<i64> {
    let (low, high) = element.range()?;
    token.parse().ok().filter(|v| (low..=high).contains(v))
}

/// A string, which shares the memory of the body if it has no escapes.
fn string(token: &str, body: &Bytes) -> Option<Bytes> {
    let quoted: Cow<'_, str> = serde_json::from_str::<Borrowed<'_>>(token).ok()?.0;
    Some(match quoted {
        Cow::Borrowed(text) => body.slice_ref(text.as_bytes()),
        Cow::Owned(text) => Bytes::from(text),
    })
}

#[derive(serde::Deserialize)]
struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);

/// The `data` of an input, known only to be valid JSON.
struct List<'a> {
    name: &'a str,
    element: ElementType,
    shape: Shape,
    text: &'a str,
}

impl<'a> List<'a> {
    /// Reads all values with `parse`, which returns `None` for a value not of the type.
    fn read<T>(&self, parse: impl Fn(&'a str) -> Option<T>) -> Result<Vec<T>, Failure> {
        let (text, rank) = (self.text.as_bytes(), self.shape.rank());
        if text.first() != Some(&b'[') {
            return Err(self.wrong("is no list"));
        }
        // A value and its comma take at least two bytes, so a shape cannot reserve more room than the text can fill.
        let mut values = Vec::with_capacity(self.shape.numel().min(text.len() / 2 + 1));
        let is_nested = rank > 1 && text[1..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
        let depth_of_values = if is_nested { rank } else { 1 };
        // The number of values so far in each open list.
        let mut counts = [0; polygrad_core::MAX_RANK + 1];
        let (mut depth, mut at) = (0, 0);
        while let Some(byte) = text.get(at) {
            match byte {
                b'[' => {
                    if depth == depth_of_values {
                        return Err(self.wrong(&format!("is nested more deeply than its shape {}", self.shape)));
                    }
                    depth += 1;
                    counts[depth] = 0;
                    at += 1;
                }
                b']' => {
                    let wanted = if is_nested {
                        self.shape[depth - 1]
                    } else {
                        self.shape.numel()
                    };
                    if counts[depth] != wanted {
                        return Err(self.wrong(&format!(
                            "has a list of {} where its shape {} has {wanted}",
                            counts[depth], self.shape
                        )));
                    }
                    depth -= 1;
                    counts[depth] += 1;
                    at += 1;
                }
                b',' | b' ' | b'\n' | b'\r' | b'\t' => at += 1,
                _ => {
                    let token = &self.text[at..end(text, at)];
                    if depth != depth_of_values {
                        return Err(self.wrong(&format!("is nested otherwise than its shape {}", self.shape)));
                    }
                    let value = parse(token).ok_or_else(|| self.no_value(token))?;
                    counts[depth] += 1;
                    values.push(value);
                    at += token.len();
                }
            }
        }
        Ok(values)
    }

    #[cold]
    fn wrong(&self, what: &str) -> Failure {
        Failure::invalid(format!("the data of {:?} {what}", self.name))
    }

    #[cold]
    fn no_value(&self, token: &str) -> Failure {
        let mut short: String = token.chars().take(40).collect();
        if short.len() < token.len() {
            short.push('…');
        }
        if self.element == ElementType::U64 && token.parse::<u64>().is_ok() {
            return self.wrong(&format!("has {short}, which is no uint64 that can be held in an i64"));
        }
        let wanted = match self.element {
            ElementType::Bool => "true or false",
            ElementType::String => "a string",
            element if element.range().is_some() => "an integer in its range",
            _ => "a number in its range",
        };
        self.wrong(&format!("has {short} where {} takes {wanted}", shown(self.element)))
    }
}

/// The end of the value that begins at `at`.
fn end(text: &[u8], at: usize) -> usize {
    let rest = &text[at..];
    if rest[0] == b'"' {
        let mut i = 1;
        while i < rest.len() && rest[i] != b'"' {
            i += if rest[i] == b'\\' { 2 } else { 1 };
        }
        return at + (i + 1).min(rest.len());
    }
    let ends = |byte: &u8| matches!(byte, b',' | b']' | b' ' | b'\n' | b'\r' | b'\t');
    at + rest.iter().position(ends).unwrap_or(rest.len()).max(1)
}

/// Writes values as a flat list.
///
/// # Errors
/// Numbers that JSON cannot represent, and strings that are not UTF-8.
pub(super) fn write(value: &Value, out: &mut Vec<u8>) -> Result<(), &'static str> {
    out.push(b'[');
    match value {
        Value::Strings(strings) => {
            for string in strings.strings() {
                let text = std::str::from_utf8(string).map_err(|_| "strings that are not UTF-8")?;
                write_text(text, out);
                out.push(b',');
            }
        }
        Value::Tensor(literal) => {
            let host = literal.host();
            let list =
                dispatch_dtype!(host.dtype(), T => host.as_slice::<T>().map(|values| write_numbers(values, out)));
            list.unwrap_or(Err("values that cannot be read"))?;
        }
    }
    match out.last_mut() {
        Some(last) if *last == b',' => *last = b']',
        _ => out.push(b']'),
    }
    Ok(())
}

fn write_numbers<T: Number>(values: &[T], out: &mut Vec<u8>) -> Result<(), &'static str> {
    out.reserve(values.len() * T::WIDTH);
    for value in values {
        value.write(out).ok_or("numbers that JSON lacks (NaN or infinity)")?;
        out.push(b',');
    }
    Ok(())
}

/// Writes a quoted string.
pub(super) fn write_text(text: &str, out: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(out, text);
}

/// Writes a number so that it reads back unchanged.
trait Number: Copy {
    /// Approximate number of bytes of a written number.
    const WIDTH: usize;

    /// `None` if JSON cannot represent the number.
    fn write(self, out: &mut Vec<u8>) -> Option<()>;
}

macro_rules! floats {
    ($($float:ty, $width:literal, $exact:expr;)*) => {$(
        impl Number for $float {
            const WIDTH: usize = $width;

            fn write(self, out: &mut Vec<u8>) -> Option<()> {
                let exact = $exact(self);
                let mut buffer = zmij::Buffer::new();
                exact.is_finite().then(|| out.extend_from_slice(buffer.format_finite(exact).as_bytes()))
            }
        }
    )*};
}

floats! {
    f32, 12, |v| v;
    f64, 20, |v| v;
    f16, 12, f32::from;
    bf16, 12, f32::from;
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Number for $integer {
            const WIDTH: usize = 4;

            fn write(self, out: &mut Vec<u8>) -> Option<()> {
                out.extend_from_slice(itoa::Buffer::new().format(self).as_bytes());
                Some(())
            }
        }
    )*};
}

integers! { u8 i32 i64 }

impl Number for bool {
    const WIDTH: usize = 6;

    fn write(self, out: &mut Vec<u8>) -> Option<()> {
        out.extend_from_slice(if self { b"true" } else { b"false" });
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(element: ElementType, number: &str) -> Result<Value, String> {
        let data: Box<RawValue> = serde_json::from_str(&format!("[{number}]")).unwrap();
        let shape = Shape::new(&[1]).unwrap();
        read("x", element, shape, &data, &Bytes::new()).map_err(|failure| failure.message)
    }

    #[test]
    fn integers_are_taken_to_the_ends_of_their_range() {
        let types = [
            (ElementType::I8, i8::MIN.into(), i8::MAX.into()),
            (ElementType::I16, i16::MIN.into(), i16::MAX.into()),
            (ElementType::I32, i32::MIN.into(), i32::MAX.into()),
            (ElementType::I64, i64::MIN.into(), i128::from(i64::MAX)),
            (ElementType::U8, 0, u8::MAX.into()),
            (ElementType::U16, 0, u16::MAX.into()),
            (ElementType::U32, 0, u32::MAX.into()),
            // Stored as an i64.
            (ElementType::U64, 0, i64::MAX.into()),
        ];
        let ends = types.iter().flat_map(|&(_, low, high)| [low, high]);
        let numbers: Vec<i128> = ends.flat_map(|end| [end - 1, end, end + 1]).collect();
        for (element, low, high) in types {
            for &number in &numbers {
                let found = sent(element, &number.to_string());
                match (low..=high).contains(&number) {
                    true => {
                        let mut text = Vec::new();
                        write(&found.unwrap(), &mut text).unwrap();
                        assert_eq!(String::from_utf8(text).unwrap(), format!("[{number}]"));
                    }
                    false => assert!(found.unwrap_err().contains(&number.to_string()), "{element} {number}"),
                }
            }
            let mut text = Vec::new();
            write(&sent(element, "-0").unwrap(), &mut text).unwrap();
            assert_eq!(text, b"[0]", "{element}");
            for strange in ["1.0", "1e2", "0.5", "true", "null", "\"1\"", "1e400"] {
                let error = sent(element, strange).unwrap_err();
                assert!(error.contains(&format!("has {strange} where")), "{error}");
            }
        }
    }
}
