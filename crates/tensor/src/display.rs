//! Printing, in PyTorch's form.

use std::fmt;

use polygrad_core::{Backend, DType, HostTensor};

use crate::Tensor;

/// Above this many elements, long axes are cut in the middle.
const SUMMARIZE_ABOVE: usize = 1000;
/// How many entries a cut axis shows at each end.
const EDGE: usize = 3;
/// Columns per line.
const WIDTH: usize = 80;

impl<B: Backend> fmt::Display for Tensor<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const OPENING: &str = "tensor(";
        let mut text = OPENING.to_owned();
        match self.to_host() {
            Ok(_) if self.numel() == 0 => text.push_str("[]"),
            Ok(host) => Printer::new(&host, f.precision()).print(&mut text, 0, 0, OPENING.len()),
            Err(error) => text.push_str(&format!("<{error}>")),
        }
        let mut line = text.len() - text.rfind('\n').map_or(0, |at| at + 1);
        for note in self.notes() {
            if line + note.len() + 2 >= WIDTH {
                text.push_str(&format!(",\n{:1$}", "", OPENING.len()));
                line = OPENING.len();
            } else {
                text.push_str(", ");
                line += 2;
            }
            line += note.len();
            text.push_str(&note);
        }
        text.push(')');
        f.write_str(&text)
    }
}

impl<B: Backend> Tensor<B> {
    /// Notes after the values: the size, dtype and gradient state, unless they are obvious.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let dtype = self.dtype();
        let empty = self.numel() == 0;
        if empty && self.rank() != 1 {
            let dims: Vec<String> = self.shape().iter().map(ToString::to_string).collect();
            notes.push(format!("size=({})", dims.join(", ")));
        }
        if dtype != DType::F32 && (empty || !matches!(dtype, DType::I64 | DType::Bool)) {
            notes.push(format!("dtype={dtype}"));
        }
        if self.is_leaf() {
            notes.push("requires_grad=True".into());
        } else if self.is_tracked() {
            notes.push("tracked".into());
        }
        notes
    }
}

struct Printer {
    dims: Vec<usize>,
    strides: Vec<usize>,
    values: Vec<String>,
    width: usize,
    summarize: bool,
}

impl Printer {
    fn new(host: &HostTensor, precision: Option<usize>) -> Self {
        let shape = host.shape();
        let mut out = Self {
            dims: shape.to_vec(),
            strides: shape.contiguous_strides()[..shape.rank()]
                .iter()
                .map(|&s| s as usize)
                .collect(),
            values: Vec::new(),
            width: 0,
            summarize: shape.numel() > SUMMARIZE_ABOVE,
        };
        let mut shown = Vec::new();
        out.shown(0, 0, &mut shown);
        let all = host.to_f64_vec();
        let style = Style::of(host.dtype(), shown.iter().map(|&i| all[i]), precision);
        // Only shown values are formatted; the others stay empty strings.
        out.values = vec![String::new(); all.len()];
        for i in shown {
            out.values[i] = style.format(host, i, all[i]);
            // Zeros, infinities and NaN do not count for the width, as in PyTorch.
            if !host.dtype().is_float() || (all[i].is_finite() && all[i] != 0.0) {
                out.width = out.width.max(out.values[i].len());
            }
        }
        out
    }

    /// The entries of an axis to show, with `None` for the gap.
    fn entries(&self, axis: usize) -> Vec<Option<usize>> {
        let dim = self.dims[axis];
        if self.summarize && dim > 2 * EDGE {
            (0..EDGE)
                .map(Some)
                .chain([None])
                .chain((dim - EDGE..dim).map(Some))
                .collect()
        } else {
            (0..dim).map(Some).collect()
        }
    }

    fn shown(&self, axis: usize, offset: usize, out: &mut Vec<usize>) {
        if axis == self.dims.len() {
            out.push(offset);
            return;
        }
        for entry in self.entries(axis).into_iter().flatten() {
            self.shown(axis + 1, offset + entry * self.strides[axis], out);
        }
    }

    fn print(&self, out: &mut String, axis: usize, offset: usize, indent: usize) {
        if axis == self.dims.len() {
            out.push_str(&self.values[offset]);
            return;
        }
        out.push('[');
        let last = axis + 1 == self.dims.len();
        let per_line = (WIDTH.saturating_sub(indent) / (self.width + 2)).max(1);
        let indent = indent + 1;
        for (i, entry) in self.entries(axis).into_iter().enumerate() {
            if i > 0 {
                if last && i % per_line != 0 {
                    out.push_str(", ");
                } else {
                    let lines = if last { 1 } else { self.dims.len() - 1 - axis };
                    out.push_str(&format!(",{}{:indent$}", "\n".repeat(lines), ""));
                }
            }
            match entry {
                None => out.push_str(if last { " ..." } else { "..." }),
                Some(entry) if last => out.push_str(&format!("{:>1$}", self.values[offset + entry], self.width)),
                Some(entry) => self.print(out, axis + 1, offset + entry * self.strides[axis], indent),
            }
        }
        out.push(']');
    }
}

/// How all numbers of a tensor are written, chosen by their range as PyTorch does.
enum Style {
    Exact,
    Whole,
    Fixed(usize),
    Scientific(usize),
}

impl Style {
    fn of(dtype: DType, values: impl Iterator<Item = f64>, precision: Option<usize>) -> Self {
        if !dtype.is_float() {
            return Self::Exact;
        }
        let precision = precision.unwrap_or(4);
        let magnitudes: Vec<f64> = values.filter(|v| v.is_finite() && *v != 0.0).map(f64::abs).collect();
        let largest = magnitudes.iter().copied().fold(0.0, f64::max);
        let smallest = magnitudes.iter().copied().fold(f64::INFINITY, f64::min);
        if largest > 1e8 || smallest < 1e-4 || largest / smallest > 1000.0 {
            Self::Scientific(precision)
        } else if magnitudes.iter().all(|v| v.fract() == 0.0) {
            Self::Whole
        } else {
            Self::Fixed(precision)
        }
    }

    fn format(&self, host: &HostTensor, i: usize, value: f64) -> String {
        match self {
            Self::Exact => match host.as_slice::<i64>() {
                // Through f64, large integers would be rounded.
                Ok(integers) => integers[i].to_string(),
                Err(_) if host.dtype() == DType::Bool => if value == 0.0 { "False" } else { "True" }.into(),
                Err(_) => value.to_string(),
            },
            _ if !value.is_finite() => if value.is_nan() {
                "nan"
            } else if value > 0.0 {
                "inf"
            } else {
                "-inf"
            }
            .into(),
            Self::Whole => format!("{value:.0}."),
            Self::Fixed(precision) => format!("{value:.precision$}"),
            Self::Scientific(precision) => {
                let text = format!("{value:.precision$e}");
                match text.split_once('e') {
                    Some((mantissa, exponent)) => {
                        let exponent: i32 = exponent.parse().unwrap_or(0);
                        format!(
                            "{mantissa}e{}{:02}",
                            if exponent < 0 { '-' } else { '+' },
                            exponent.abs()
                        )
                    }
                    None => text,
                }
            }
        }
    }
}
