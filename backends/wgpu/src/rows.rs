//! Softmax and layer normalisation: kernels that read a row several times.

use std::fmt::Write as _;

use polygrad_core::compute::{DevicePtr, DeviceView, LayerNorm, Softmax};
use polygrad_core::{DType, Error, Result, Shape};

use crate::gpu::Session;
use crate::kernel::Kernel;
use crate::reduce::word_dtype;
use crate::source::{Access, Slots, Source, param};
use crate::state::Place;
use crate::team::{THREADS, Team};

/// The operation on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RowOp {
    /// Softmax or its logarithm. Row `i` of each `queries` rows sees `columns − queries + i + 1` elements, if `causal`.
    Softmax { log: bool, causal: bool },
    /// The gradient of softmax or its logarithm.
    Backward { log: bool },
    /// Layer normalisation, with or without weight and bias.
    LayerNorm { weight: bool, bias: bool },
}

/// The properties that the shader depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) op: RowOp,
    pub(crate) dtype: DType,
    pub(crate) team: Team,
}

const ROWS: usize = 0;
const COLUMNS: usize = 1;
const QUERIES: usize = 2;
const EPS: usize = 3;
/// Offsets of the operands, in their order.
const OFFSETS: usize = 4;

impl Kernel for Form {
    fn name(&self) -> &'static str {
        "rows"
    }

    fn accesses(&self) -> Vec<Access> {
        match self.op {
            RowOp::Softmax { .. } => vec![Access::Read, Access::Write],
            RowOp::Backward { .. } => vec![Access::Read, Access::Read, Access::Write],
            RowOp::LayerNorm { weight, bias } => {
                let mut all = vec![Access::Read; 1 + usize::from(weight) + usize::from(bias)];
                all.extend([Access::Write; 3]);
                all
            }
        }
    }

    fn source(&self, slots: &Slots) -> Result<String> {
        let mut source = Source::new(slots);
        source.share("all", "f32", THREADS);
        source.loader("x_at", 0, self.dtype);
        let mut body = self.team.head(ROWS);
        let _ = writeln!(
            body,
            "let columns = {};\nlet start = row * columns;\nlet x0 = {} + start;",
            param(COLUMNS),
            param(OFFSETS)
        );
        match self.op {
            RowOp::Softmax { log, causal } => self.softmax(&mut source, &mut body, log, causal),
            RowOp::Backward { log } => self.backward(&mut source, &mut body, log),
            RowOp::LayerNorm { weight, bias } => self.layer_norm(&mut source, &mut body, weight, bias),
        }
        Ok(source.finish(THREADS as u32, &body))
    }
}

impl Form {
    fn each(self, body: &mut String, count: &str, statements: &str) {
        let _ = writeln!(
            body,
            "for (var i = me; i < {count}; i = i + {}u) {{\n{statements}\n}}",
            self.team.step()
        );
    }

    fn softmax(self, source: &mut Source<'_>, body: &mut String, log: bool, causal: bool) {
        source.storer("y_set", 1, DType::F32);
        let _ = writeln!(body, "let y0 = {} + start;", param(OFFSETS + 1));
        let seen = match causal {
            true => format!(
                "u32(clamp(i32(row % {q}) + i32(columns) - i32({q}) + 1, 0, i32(columns)))",
                q = param(QUERIES)
            ),
            false => "columns".to_owned(),
        };
        let _ = writeln!(body, "let seen = {seen};\nvar top = -f_inf();");
        self.each(body, "seen", "top = f_max(top, x_at(x0 + i));");
        self.team.fold(body, "all", "top", "most", "f_max($a, $b)");
        body.push_str("var sum = 0.0;\n");
        self.each(body, "seen", "sum = sum + p_exp(x_at(x0 + i) - most);");
        self.team.fold(body, "all", "sum", "total", "$a + $b");
        match log {
            true => {
                body.push_str("let log_total = p_log(total);\n");
                self.each(body, "seen", "y_set(y0 + i, opaque(x_at(x0 + i) - most) - log_total);");
            }
            false => self.each(body, "seen", "y_set(y0 + i, p_div(p_exp(x_at(x0 + i) - most), total));"),
        }
        if causal {
            self.each(body, "columns", "if (i >= seen) { y_set(y0 + i, 0.0); }");
        }
    }

    fn backward(self, source: &mut Source<'_>, body: &mut String, log: bool) {
        source.loader("s_at", 1, self.dtype);
        source.storer("y_set", 2, DType::F32);
        let _ = writeln!(
            body,
            "let s0 = {} + start;\nlet y0 = {} + start;\nvar sum = 0.0;",
            param(OFFSETS + 1),
            param(OFFSETS + 2)
        );
        let term = if log {
            "x_at(x0 + i)"
        } else {
            "x_at(x0 + i) * s_at(s0 + i)"
        };
        self.each(body, "columns", &format!("sum = sum + {term};"));
        self.team.fold(body, "all", "sum", "total", "$a + $b");
        let value = match log {
            true => "x_at(x0 + i) - p_exp(s_at(s0 + i)) * total",
            false => "s_at(s0 + i) * (x_at(x0 + i) - total)",
        };
        self.each(body, "columns", &format!("y_set(y0 + i, {value});"));
    }

    fn layer_norm(self, source: &mut Source<'_>, body: &mut String, weight: bool, bias: bool) {
        let mut operand = 1;
        let mut value = "(x_at(x0 + i) - mean) * rstd".to_owned();
        for (there, name, sign) in [(weight, "w", "*"), (bias, "b", "+")] {
            if there {
                source.loader(&format!("{name}_at"), operand, self.dtype);
                let at = format!("{name}_at({} + i)", param(OFFSETS + operand));
                value = format!("({value}) {sign} {at}");
                operand += 1;
            }
        }
        for (i, name) in ["y", "mean", "rstd"].iter().enumerate() {
            source.storer(&format!("{name}_set"), operand + i, DType::F32);
        }
        let _ = writeln!(
            body,
            "let y0 = {} + start;\nlet n = f32(columns);\nvar sum = 0.0;",
            param(OFFSETS + operand)
        );
        self.each(body, "columns", "sum = sum + x_at(x0 + i);");
        self.team.fold(body, "all", "sum", "total", "$a + $b");
        body.push_str("let mean = p_div(total, n);\nvar square = 0.0;\n");
        self.each(
            body,
            "columns",
            "let d = x_at(x0 + i) - mean;\nsquare = square + d * d;",
        );
        self.team.fold(body, "all", "square", "squares", "$a + $b");
        let _ = writeln!(
            body,
            "let rstd = p_rsqrt(p_div(squares, n) + bitcast<f32>({}));",
            param(EPS)
        );
        self.each(body, "columns", &format!("y_set(y0 + i, {value});"));
        let _ = writeln!(
            body,
            "if (me == 0u) {{ mean_set({} + row, mean); rstd_set({} + row, rstd); }}",
            param(OFFSETS + operand + 1),
            param(OFFSETS + operand + 2)
        );
    }
}

impl Session<'_> {
    pub(crate) fn floats(&self, dtype: DType) -> Result<()> {
        match dtype.is_float() {
            true => self.offers(dtype),
            false => Err(Error::dtype(format!("not defined for {dtype}"))),
        }
    }

    /// Memory for results as whole words: that of the results if the dtype fits, else temporary memory.
    pub(crate) fn words_for(&mut self, ptr: DevicePtr, len: usize, dtype: DType) -> Result<Target> {
        let place = self.typed(ptr, len * dtype.size(), dtype)?;
        let word = word_dtype(dtype);
        if dtype == word {
            return Ok(Target { place, to: None });
        }
        let place = self.temporary(len * word.size())?;
        let from = self.address(&place, len * word.size())?;
        Ok(Target {
            place,
            to: Some((from, ptr, len, dtype)),
        })
    }

    /// The elements as f32: in place, or as a copy.
    pub(crate) fn wide(&mut self, ptr: DevicePtr, len: usize, dtype: DType) -> Result<DevicePtr> {
        if dtype == DType::F32 || len == 0 {
            return Ok(ptr);
        }
        let place = self.temporary(len * 4)?;
        let wide = self.address(&place, len * 4)?;
        let shape = Shape::new(&[len])?;
        let to = DeviceView::contiguous(wide, DType::F32, shape);
        self.convert(&DeviceView::contiguous(ptr, dtype, shape), &to)?;
        Ok(wide)
    }

    /// Rounds results into their final memory.
    pub(crate) fn finish(&mut self, target: &Target) -> Result<()> {
        let Some((from, to, len, dtype)) = target.to else {
            return Ok(());
        };
        let shape = Shape::new(&[len])?;
        let from = DeviceView::contiguous(from, word_dtype(dtype), shape);
        self.convert(&from, &DeviceView::contiguous(to, dtype, shape))
    }

    /// Softmax of rows; causal if `queries` is given.
    pub(crate) fn softmax(&mut self, call: &Softmax, queries: Option<usize>) -> Result<()> {
        self.floats(call.dtype)?;
        let len = call.rows.saturating_mul(call.columns);
        if len == 0 {
            return Ok(());
        }
        self.countable(len)?;
        let input = self.typed(call.input, len * call.dtype.size(), call.dtype)?;
        let target = self.words_for(call.output, len, call.dtype)?;
        let op = RowOp::Softmax {
            log: call.log,
            causal: queries.is_some(),
        };
        let at = [input.at / call.dtype.size(), target.place.at / 4];
        self.launch_rows(
            op,
            call.dtype,
            [call.rows, call.columns, queries.unwrap_or(1)],
            0.0,
            &[&input, &target.place],
            &at,
        )?;
        self.finish(&target)
    }

    pub(crate) fn softmax_backward(&mut self, call: &Softmax) -> Result<()> {
        self.floats(call.dtype)?;
        let len = call.rows.saturating_mul(call.columns);
        if len == 0 {
            return Ok(());
        }
        self.countable(len)?;
        let bytes = len * call.dtype.size();
        let input = self.typed(call.input, bytes, call.dtype)?;
        let saved = self.typed(call.saved, bytes, call.dtype)?;
        let target = self.words_for(call.output, len, call.dtype)?;
        let size = call.dtype.size();
        let at = [input.at / size, saved.at / size, target.place.at / 4];
        let op = RowOp::Backward { log: call.log };
        self.launch_rows(
            op,
            call.dtype,
            [call.rows, call.columns, 1],
            0.0,
            &[&input, &saved, &target.place],
            &at,
        )?;
        self.finish(&target)
    }

    pub(crate) fn layer_norm(&mut self, call: &LayerNorm) -> Result<()> {
        self.floats(call.dtype)?;
        let len = call.rows.saturating_mul(call.columns);
        if call.rows == 0 || call.columns == 0 {
            return Ok(());
        }
        self.countable(len)?;
        let (dtype, size) = (call.dtype, call.dtype.size());
        let mut places = vec![self.typed(call.input, len * size, dtype)?];
        for ptr in [call.weight, call.bias].into_iter().flatten() {
            places.push(self.typed(ptr, call.columns * size, dtype)?);
        }
        let mut at: Vec<usize> = places.iter().map(|place| place.at / size).collect();
        let targets = [
            self.words_for(call.output, len, dtype)?,
            self.words_for(call.mean, call.rows, dtype)?,
            self.words_for(call.rstd, call.rows, dtype)?,
        ];
        for target in &targets {
            places.push(target.place.clone());
            at.push(target.place.at / 4);
        }
        let op = RowOp::LayerNorm {
            weight: call.weight.is_some(),
            bias: call.bias.is_some(),
        };
        let places: Vec<_> = places.iter().collect();
        self.launch_rows(op, dtype, [call.rows, call.columns, 1], call.eps as f32, &places, &at)?;
        targets.iter().try_for_each(|target| self.finish(target))
    }

    fn launch_rows(
        &mut self,
        op: RowOp,
        dtype: DType,
        [rows, columns, queries]: [usize; 3],
        eps: f32,
        places: &[&Place],
        at: &[usize],
    ) -> Result<()> {
        let team = Team::choose(columns);
        let mut params = vec![rows as u32, columns as u32, queries as u32, eps.to_bits()];
        params.extend(at.iter().map(|&at| at as u32));
        let form = Form { op, dtype, team };
        self.launch(Box::new(form), places, &params, [team.groups(rows), 1])
    }
}

/// Where a kernel writes whole words, and the final conversion: source, target, number of elements, dtype.
pub(crate) struct Target {
    pub(crate) place: Place,
    to: Option<(DevicePtr, DevicePtr, usize, DType)>,
}
