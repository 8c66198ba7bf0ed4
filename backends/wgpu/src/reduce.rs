//! Reductions, and positions of extremes.

use std::fmt::Write as _;

use polygrad_core::compute::{ArgReduce, DevicePtr, DeviceView, Reduce, ReduceAxes};
use polygrad_core::{ArgOp, Axes, DType, Error, Layout, ReduceOp, Result, Shape};

use crate::elementwise::collapse;
use crate::gpu::Session;
use crate::kernel::Kernel;
use crate::source::{Access, Slots, Source, param, type_of};
use crate::state::Place;
use crate::table::Kind;
use crate::team::{THREADS, Team, walk};

/// The kind of result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fold {
    Reduce(ReduceOp),
    Arg(ArgOp),
}

/// The properties that a reduction's shader depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) fold: Fold,
    pub(crate) dtype: DType,
    pub(crate) team: Team,
    /// Numbers of kept and reduced axes.
    pub(crate) ranks: [usize; 2],
}

// Parameters: results, elements of each result, elements of each part, parts, first element, first result; extents and
// strides of the kept axes, then of the reduced axes.
const ROWS: usize = 0;
const LEN: usize = 1;
const CHUNK: usize = 2;
const PARTS: usize = 3;
const INPUT: usize = 4;
const OUTPUT: usize = 5;
const AXES: usize = 6;

/// If there are few rows, long ones are split into parts of at least this many elements, …
const PART: usize = 4096;
/// … so that about this many workgroups are busy.
const BUSY: usize = 256;

impl Kernel for Form {
    fn name(&self) -> &'static str {
        "reduce"
    }

    fn accesses(&self) -> Vec<Access> {
        vec![Access::Read, Access::Write]
    }

    fn source(&self, slots: &Slots) -> Result<String> {
        let mut source = Source::new(slots);
        let [kept, gone] = self.ranks;
        source.loader("load", 0, self.dtype);
        walk(&mut source, "row_at", kept, AXES, AXES + kept);
        walk(&mut source, "element_at", gone, AXES + 2 * kept, AXES + 2 * kept + gone);
        let mut body = self.team.head(ROWS);
        let _ = writeln!(
            body,
            "let base = {input} + row_at(row);\nlet begin = wid.z * {chunk};\nlet end = min(begin + {chunk}, {len});\n\
             let out = {output} + row * {parts} + wid.z;",
            input = param(INPUT),
            output = param(OUTPUT),
            parts = param(PARTS),
            chunk = param(CHUNK),
            len = param(LEN),
        );
        match self.fold {
            Fold::Reduce(op) => self.reduction(&mut source, &mut body, op),
            Fold::Arg(op) => self.position(&mut source, &mut body, op),
        }
        Ok(source.finish(THREADS as u32, &body))
    }
}

impl Form {
    /// Writes the loop over a thread's elements, with statements that use `r` and `x`.
    fn each(self, body: &mut String, statements: &str) {
        let _ = writeln!(
            body,
            "for (var r = begin + me; r < end; r = r + {}u) {{\nlet x = load(base + element_at(r));\n{statements}\n}}",
            self.team.step()
        );
    }

    fn reduction(self, source: &mut Source<'_>, body: &mut String, op: ReduceOp) {
        let kind = Kind::of(self.dtype);
        let (ty, x) = number(self.dtype);
        let (start, expression) = identity(op, kind);
        source.share("all", ty, THREADS);
        let _ = writeln!(body, "var v: {ty} = {start};");
        if kind == Kind::Float && matches!(op, ReduceOp::Sum | ReduceOp::Mean) {
            // Kahan summation; the rounding error of an infinite sum would be NaN.
            body.push_str("var lost = 0.0;\n");
            self.each(
                body,
                "let y = x - lost;\nlet t = opaque(v + y);\n\
                 lost = select(0.0, opaque(t - v) - y, f_is_finite(t));\nv = t;",
            );
        } else {
            let step = expression.replace("$a", "v").replace("$b", x);
            self.each(body, &format!("v = {step};"));
        }
        self.team.fold(body, "all", "v", "total", expression);
        let value = match (kind, op) {
            (_, ReduceOp::Mean) => format!("p_div(total, f32({}))", param(LEN)),
            (Kind::Bool, _) => "i32(total)".to_owned(),
            (Kind::U8, _) => "i32(total & 255u)".to_owned(),
            _ => "total".to_owned(),
        };
        source.storer("store", 1, word_dtype(self.dtype));
        let _ = writeln!(body, "if (me == 0u) {{ store(out, {value}); }}");
    }

    fn position(self, source: &mut Source<'_>, body: &mut String, op: ArgOp) {
        let (ty, value) = number(self.dtype);
        let sign = if op == ArgOp::Max { ">" } else { "<" };
        let (nan, compare) = match Kind::of(self.dtype) {
            Kind::Float => (
                "let xn = f_is_nan(x);\nlet yn = f_is_nan(y);\nif (xn != yn) { return xn; }\nif (xn) { return i < j; }\n",
                format!("x {sign} y"),
            ),
            _ => ("", format!("x {sign} y")),
        };
        source.function(&format!(
            "fn better(x: {ty}, i: u32, y: {ty}, j: u32) -> bool {{\nif (i == 0xffffffffu) {{ return false; }}\n\
             if (j == 0xffffffffu) {{ return true; }}\n{nan}if (x == y) {{ return i < j; }}\nreturn {compare};\n}}"
        ));
        source.share("values", ty, THREADS);
        source.share("places", "u32", THREADS);
        let _ = writeln!(body, "var v: {ty};\nvar p = 0xffffffffu;");
        self.each(
            body,
            &format!("let y = {value};\nif (better(y, r, v, p)) {{ v = y; p = r; }}"),
        );
        self.team
            .combine(body, &["values", "places"], &["v", "p"], &["best", "place"], |a, b| {
                format!(
                    "if (better({}, {}, {}, {})) {{ {} = {}; {} = {}; }}",
                    b[0], b[1], a[0], a[1], a[0], b[0], a[1], b[1]
                )
            });
        let words = [
            source.set_word(1, "2u * out", "place"),
            source.set_word(1, "2u * out + 1u", "0u"),
        ];
        let _ = writeln!(body, "_ = best;\nif (me == 0u) {{ {} }}", words.join(" "));
    }
}

/// The type in which elements are compared and combined, and the expression for a loaded `x`. Bools become numbers,
/// since NVIDIA's compiler (580.159) returns the wrong position if they are compared as `bool`.
fn number(dtype: DType) -> (&'static str, &'static str) {
    match dtype {
        DType::Bool => ("u32", "select(0u, 1u, x)"),
        _ => (type_of(dtype), "x"),
    }
}

/// The identity of an op, and the expression that combines `$a` and `$b`.
fn identity(op: ReduceOp, kind: Kind) -> (&'static str, &'static str) {
    let zero = match kind {
        Kind::Float => "0.0",
        Kind::I32 => "0",
        Kind::I64 => "0li",
        _ => "0u",
    };
    let one = match kind {
        Kind::Float => "1.0",
        Kind::I32 => "1",
        Kind::I64 => "1li",
        _ => "1u",
    };
    let (least, most) = match kind {
        Kind::Float => ("-f_inf()", "f_inf()"),
        Kind::I32 => ("-2147483647 - 1", "2147483647"),
        Kind::I64 => ("i64_join(0u, 0x80000000u)", "i64_join(0xffffffffu, 0x7fffffffu)"),
        _ => ("0u", "255u"),
    };
    match (op, kind) {
        (ReduceOp::Prod, _) => (one, "$a * $b"),
        (ReduceOp::Max, Kind::Float) => (least, "f_max($a, $b)"),
        (ReduceOp::Min, Kind::Float) => (most, "f_min($a, $b)"),
        (ReduceOp::Max, _) => (least, "max($a, $b)"),
        (ReduceOp::Min, _) => (most, "min($a, $b)"),
        (ReduceOp::Any, _) => ("0u", "$a | $b"),
        (ReduceOp::All, _) => ("1u", "$a & $b"),
        _ => (zero, "$a + $b"),
    }
}

/// The dtype that kernels write in place of one that is smaller than a word.
pub(crate) fn word_dtype(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        DType::U8 | DType::Bool => DType::I32,
        other => other,
    }
}

/// A view split into kept and reduced axes.
struct Cut {
    kept: (Vec<usize>, Vec<isize>),
    gone: (Vec<usize>, Vec<isize>),
    rows: usize,
    len: usize,
}

impl Cut {
    fn new(layout: &Layout, goes: impl Fn(usize) -> bool) -> Self {
        let side = |gone: bool| {
            let axes = (0..layout.shape().rank()).filter(|&axis| goes(axis) == gone);
            let (dims, strides): (Vec<_>, Vec<_>) = axes
                .map(|axis| (layout.shape().dims()[axis], layout.strides()[axis]))
                .unzip();
            let numel: usize = dims.iter().product();
            let (dims, mut strides) = collapse(&dims, &[&strides]);
            ((dims, strides.remove(0)), numel)
        };
        let ((kept, rows), (gone, len)) = (side(false), side(true));
        Self { kept, gone, rows, len }
    }
}

impl Session<'_> {
    pub(crate) fn reduce(&mut self, call: &Reduce) -> Result<()> {
        call.spans()?;
        let shape = Shape::new(&[call.outer, call.len, call.inner])?;
        self.reduce_axes(&ReduceAxes {
            op: call.op,
            input: DeviceView::contiguous(call.input, call.dtype, shape),
            axes: Axes::new([1])?,
            output: call.output,
        })
    }

    pub(crate) fn reduce_axes(&mut self, call: &ReduceAxes) -> Result<()> {
        let view = call.input;
        let (op, dtype) = (call.op, view.dtype);
        if !op.accepts(dtype) {
            return Err(Error::dtype(format!("not defined for {dtype}")));
        }
        self.offers(dtype)?;
        let cut = Cut::new(&view.layout, |axis| call.axes.contains(axis));
        if cut.rows == 0 {
            return Ok(());
        }
        if cut.len == 0 && op.needs_elements() {
            return Err(Error::invalid(format!("{} over no elements", op.name())));
        }
        self.fold(Fold::Reduce(op), &view, &cut, call.output, dtype)
    }

    pub(crate) fn arg_reduce(&mut self, call: &ArgReduce) -> Result<()> {
        let view = call.input;
        self.offers(view.dtype)?;
        if call.axis >= view.shape().rank() {
            return Err(Error::invalid(format!("axis {} of {}", call.axis, view.shape())));
        }
        let cut = Cut::new(&view.layout, |axis| axis == call.axis);
        if cut.rows == 0 {
            return Ok(());
        }
        if cut.len == 0 {
            return Err(Error::invalid("the position of an extreme of no elements"));
        }
        self.fold(Fold::Arg(call.op), &view, &cut, call.output, DType::I64)
    }

    fn fold(&mut self, fold: Fold, view: &DeviceView, cut: &Cut, output: DevicePtr, to: DType) -> Result<()> {
        let (rows, len) = (cut.rows, cut.len);
        self.countable(rows.max(len))?;
        let target = self.typed(output, rows * to.size(), to)?;
        let input = match len {
            0 => target.clone(),
            _ => self.typed(view.ptr, view.span()?.end, view.dtype)?,
        };
        let first = input.at / view.dtype.size() + view.layout.offset();
        let input = (input, if len == 0 { 0 } else { first });
        // Results narrower than words are written to temporary memory first.
        let word = word_dtype(to);
        let (place, wide) = match word == to {
            true => (target, None),
            false => {
                let place = self.temporary(rows * 4)?;
                let ptr = self.address(&place, rows * 4)?;
                (place, Some(ptr))
            }
        };
        let coalesced = cut.kept.1.last() == Some(&1) && rows >= 4096;
        let team = if coalesced { Team::Single } else { Team::choose(len) };
        let form = Form {
            fold,
            dtype: view.dtype,
            team,
            ranks: [cut.kept.0.len(), cut.gone.0.len()],
        };
        let parts = (len / PART).min(BUSY / rows.max(1)).max(1);
        match fold {
            Fold::Reduce(op) if parts > 1 && team == Team::Group => {
                let between = self.temporary(rows * parts * word.size())?;
                let inner = if op == ReduceOp::Mean { ReduceOp::Sum } else { op };
                let chunk = len.div_ceil(parts);
                let form = Form {
                    fold: Fold::Reduce(inner),
                    ..form
                };
                self.launch_fold(form, cut, input, (&between, 0), len, [chunk, parts])?;
                // The parts' results: whole words, contiguous for each row.
                let rest = Cut {
                    kept: (vec![rows], vec![parts as isize]),
                    gone: (vec![parts], vec![1]),
                    rows,
                    len: parts,
                };
                let form = Form {
                    fold: Fold::Reduce(last_of(op, view.dtype)),
                    dtype: word,
                    team: Team::choose(parts),
                    ranks: [1, 1],
                };
                let at = (&place, place.at / word.size());
                self.launch_fold(form, &rest, (between, 0), at, parts, [parts, 1])?;
                if op == ReduceOp::Mean {
                    self.scale(&place, rows, len)?;
                }
            }
            _ => {
                let at = (&place, place.at / word.size());
                self.launch_fold(form, cut, input, at, len, [len.max(1), 1])?;
            }
        }
        if let Some(wide) = wide {
            let shape = Shape::new(&[rows])?;
            let from = DeviceView::contiguous(wide, word, shape);
            self.convert(&from, &DeviceView::contiguous(output, to, shape))?;
        }
        Ok(())
    }

    /// Turns sums into means.
    fn scale(&mut self, place: &Place, rows: usize, len: usize) -> Result<()> {
        use polygrad_core::compute::{Elementwise, ElementwiseProgram, Step};
        let base = self.address(place, rows * 4)?;
        let shape = Shape::new(&[rows])?;
        let view = DeviceView::contiguous(base, DType::F32, shape);
        let mut program = ElementwiseProgram::default();
        let (x, n) = (program.input(DType::F32), program.scalar(DType::F32));
        let y = program.push(Step::Binary(polygrad_core::BinaryOp::Div, x, n))?;
        program.output(y);
        self.elementwise(&Elementwise {
            program: &program,
            shape,
            inputs: &[view],
            scalars: &[polygrad_core::Scalar::Float(len as f64)],
            outputs: &[view],
        })
    }

    fn launch_fold(
        &mut self,
        form: Form,
        cut: &Cut,
        (input, first): (Place, usize),
        (output, at): (&Place, usize),
        len: usize,
        [chunk, parts]: [usize; 2],
    ) -> Result<()> {
        let mut params: Vec<u32> = [cut.rows, len, chunk, parts, first, at].map(|x| x as u32).to_vec();
        for (dims, strides) in [&cut.kept, &cut.gone] {
            params.extend(dims.iter().map(|&dim| dim as u32));
            params.extend(strides.iter().map(|&stride| stride as u32));
        }
        let groups = [form.team.groups(cut.rows), parts as u64];
        self.launch(Box::new(form), &[&input, output], &params, groups)
    }

    /// Fails for numbers of elements that 32 bits cannot count.
    pub(crate) fn countable(&self, elements: usize) -> Result<()> {
        match i32::try_from(elements) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::unsupported("more than 2^31 elements in one call")),
        }
    }
}

/// The op that combines the parts' results, which are whole words.
fn last_of(op: ReduceOp, dtype: DType) -> ReduceOp {
    match op {
        ReduceOp::Mean => ReduceOp::Sum,
        ReduceOp::Any if dtype == DType::Bool => ReduceOp::Max,
        ReduceOp::All => ReduceOp::Min,
        other => other,
    }
}
