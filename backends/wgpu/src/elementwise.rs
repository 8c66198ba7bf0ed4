//! Chains of element-wise ops as one kernel.

use std::fmt::Write as _;

use polygrad_core::compute::{DeviceView, Elementwise, ElementwiseProgram, Step, Value};
use polygrad_core::{BinaryOp, DType, Element, Error, Result, Scalar};

use crate::gpu::Session;
use crate::kernel::Kernel;
use crate::source::{Access, Slots, Source, param, type_of};
use crate::table;

/// The layout of an operand's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lie {
    /// All elements are the same.
    Constant,
    /// Contiguous.
    Linear,
    /// Any layout.
    Strided,
}

/// The properties that a program's shader depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) program: ElementwiseProgram,
    /// Number of axes after merging.
    pub(crate) rank: usize,
    /// Layouts of the inputs, then of the outputs.
    pub(crate) lies: Vec<Lie>,
    /// Whether each thread computes all elements of a word. Otherwise elements smaller than a word are stored
    /// atomically.
    pub(crate) packed: bool,
}

/// Elements that a thread computes.
const EACH: u32 = 4;
/// Threads of a workgroup.
const THREADS: u32 = 256;
/// Number of parameters before the axes: the number of elements.
const HEAD: usize = 1;

impl Kernel for Form {
    fn name(&self) -> &'static str {
        "elementwise"
    }

    fn accesses(&self) -> Vec<Access> {
        let inputs = self.program.inputs().len();
        let access = |(i, dtype): (usize, DType)| match i < inputs {
            true => Access::Read,
            false if dtype.size() >= 4 || self.packed => Access::Write,
            false => Access::Atomic,
        };
        self.dtypes().enumerate().map(access).collect()
    }

    fn source(&self, slots: &Slots) -> Result<String> {
        let mut source = Source::new(slots);
        let mut body = String::new();
        let (starts, scalars) = self.params();
        self.coordinates(&mut body);
        let dtypes: Vec<_> = self.dtypes().collect();
        for (i, (&lie, &start)) in self.lies.iter().zip(&starts).enumerate() {
            let _ = writeln!(body, "let at{i} = {};", self.index(lie, start));
        }
        for (i, &dtype) in self.program.inputs().iter().enumerate() {
            source.loader(&format!("load{i}"), i, dtype);
            let _ = writeln!(body, "let x{i} = load{i}(at{i});");
        }
        let mut next = scalars;
        for (i, &dtype) in self.program.scalars().iter().enumerate() {
            let word = param(next);
            let value = match dtype {
                DType::I64 => format!("i64_join({word}, {})", param(next + 1)),
                DType::Bool => format!("({word} != 0u)"),
                _ => format!("bitcast<{}>({word})", type_of(dtype)),
            };
            next += if dtype == DType::I64 { 2 } else { 1 };
            let _ = writeln!(body, "let c{i} = {value};");
        }
        self.steps(&mut body)?;
        let mut before = String::new();
        let mut after = String::new();
        for (o, &value) in self.program.outputs().iter().enumerate() {
            let operand = self.program.inputs().len() + o;
            let (dtype, value) = (dtypes[operand], name(value));
            match (dtype.size(), self.packed) {
                (4 | 8, _) => {
                    source.storer(&format!("store{o}"), operand, dtype);
                    let _ = writeln!(body, "store{o}(at{operand}, {value});");
                }
                (size, true) => self.pack(
                    &source,
                    o,
                    operand,
                    size,
                    &bits(dtype, &value),
                    [&mut before, &mut body, &mut after],
                    &param(starts[operand]),
                ),
                (size, false) => scatter(&source, operand, size, &bits(dtype, &value), &mut body),
            }
        }
        let text = match self.packed {
            false => format!(
                "for (var k = 0u; k < {EACH}u; k++) {{\nlet i = wg * {}u + k * {THREADS}u + lane;\nif (i < {}) {{\n{body}}}\n}}\n",
                EACH * THREADS,
                param(0)
            ),
            true => format!(
                "let first = (wg * {THREADS}u + lane) * {EACH}u;\nif (first >= {n}) {{ return; }}\n{before}\
                 for (var k = 0u; k < {EACH}u; k++) {{\nlet i = first + k;\nif (i < {n}) {{\n{body}}}\n}}\n{after}",
                n = param(0)
            ),
        };
        Ok(source.finish(THREADS, &text))
    }
}

impl Form {
    fn dtypes(&self) -> impl Iterator<Item = DType> {
        let outputs = self
            .program
            .outputs()
            .iter()
            .filter_map(|&value| self.program.dtype(value));
        self.program.inputs().iter().copied().chain(outputs)
    }

    /// Start of each operand's parameters, and of the scalars'.
    fn params(&self) -> (Vec<usize>, usize) {
        let mut next = HEAD + self.rank;
        let mut starts = Vec::with_capacity(self.lies.len());
        for lie in &self.lies {
            starts.push(next);
            next += 1 + if *lie == Lie::Strided { self.rank } else { 0 };
        }
        (starts, next)
    }

    /// Defines the element's coordinates, innermost axis last.
    fn coordinates(&self, body: &mut String) {
        if self.rank < 2 || !self.lies.contains(&Lie::Strided) {
            return;
        }
        body.push_str("var rest = i;\n");
        for axis in (1..self.rank).rev() {
            let dim = param(HEAD + axis);
            let _ = writeln!(body, "let k{axis} = rest % {dim};\nrest = rest / {dim};");
        }
        body.push_str("let k0 = rest;\n");
    }

    fn index(&self, lie: Lie, start: usize) -> String {
        let offset = param(start);
        match lie {
            Lie::Constant => offset,
            Lie::Linear => format!("{offset} + i"),
            Lie::Strided if self.rank == 1 => format!("{offset} + i * {}", param(start + 1)),
            Lie::Strided => {
                let terms: Vec<_> = (0..self.rank)
                    .map(|axis| format!("k{axis} * {}", param(start + 1 + axis)))
                    .collect();
                format!("{offset} + {}", terms.join(" + "))
            }
        }
    }

    fn steps(&self, body: &mut String) -> Result<()> {
        let program = &self.program;
        let of = |value: Value| program.dtype(value).unwrap_or(DType::F32);
        for (i, &(step, dtype)) in program.steps().iter().enumerate() {
            let text = match step {
                Step::Unary(op, x) => table::unary(op, of(x), &name(x)),
                Step::Binary(op, a, b) => table::binary(op, of(a), &name(a), &name(b)),
                Step::Compare(op, a, b) => table::compare(op, of(a), &name(a), &name(b)),
                Step::Select(c, a, b) => Some(format!("select({}, {}, {})", name(b), name(a), name(c))),
                Step::Cast(x, to) => Some(table::cast(of(x), to, &name(x))),
                _ => None,
            };
            let Some(text) = text else {
                return Err(Error::unsupported(format!("{} of {}", step.name(), dtype)).with_op(program.name()));
            };
            let text = match step {
                Step::Select(..) => text,
                Step::Cast(x, to) if of(x) == to => text,
                _ => table::rounded(dtype, &text),
            };
            // Otherwise a compiler might fuse it with a later addition, with one rounding less than the separate steps.
            let text = match dtype == DType::F32 && self.is_added(Value::Step(i as u16)) {
                true => format!("opaque({text})"),
                false => text,
            };
            let _ = writeln!(body, "let s{i} = {text};");
        }
        Ok(())
    }

    /// Whether a later step adds it to something.
    fn is_added(&self, value: Value) -> bool {
        self.program.steps().iter().any(|(step, _)| match *step {
            Step::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => a == value || b == value,
            _ => false,
        })
    }

    /// Packs elements into words, and writes the words.
    #[allow(clippy::too_many_arguments, reason = "the parts of one text")]
    fn pack(
        &self,
        source: &Source<'_>,
        o: usize,
        operand: usize,
        size: usize,
        bits: &str,
        [before, body, after]: [&mut String; 3],
        start: &str,
    ) {
        let (per_word, width) = (4 / size, 8 * size);
        let words = EACH as usize / per_word;
        let mask = (1u64 << width) - 1;
        let _ = writeln!(
            before,
            "var w{o} = array<u32, {words}>();\nvar m{o} = array<u32, {words}>();"
        );
        let _ = writeln!(
            body,
            "let shift{o} = {width}u * (k % {per_word}u);\n\
             w{o}[k / {per_word}u] = w{o}[k / {per_word}u] | (({bits}) << shift{o});\n\
             m{o}[k / {per_word}u] = m{o}[k / {per_word}u] | ({mask}u << shift{o});"
        );
        for word in 0..words {
            let at = format!("(({start} + first) / {per_word}u + {word}u)");
            let all = source.set_word(operand, &at, &format!("w{o}[{word}]"));
            let old = source.word(operand, &at);
            let part = source.set_word(operand, &at, &format!("({old} & ~m{o}[{word}]) | w{o}[{word}]"));
            let _ = writeln!(
                after,
                "if (m{o}[{word}] == 0xffffffffu) {{ {all} }} else if (m{o}[{word}] != 0u) {{ {part} }}"
            );
        }
    }
}

/// Stores an element that is smaller than a word atomically, since other threads write to the same word.
fn scatter(source: &Source<'_>, operand: usize, size: usize, bits: &str, body: &mut String) {
    let (per_word, width) = (4 / size, 8 * size);
    let mask = (1u64 << width) - 1;
    let at = format!("at{operand} / {per_word}u");
    let _ = writeln!(
        body,
        "{{ let shift = {width}u * (at{operand} % {per_word}u);\n{};\n{}; }}",
        source.atomic("atomicAnd", operand, &at, &format!("~({mask}u << shift)")),
        source.atomic("atomicOr", operand, &at, &format!("({bits}) << shift")),
    );
}

/// The bits of a value as stored in memory, for dtypes smaller than a word.
fn bits(dtype: DType, value: &str) -> String {
    match dtype {
        DType::Bool => format!("select(0u, 1u, {value})"),
        DType::U8 => value.to_owned(),
        _ => format!("{}_bits({value})", dtype.name()),
    }
}

fn name(value: Value) -> String {
    match value {
        Value::Input(i) => format!("x{i}"),
        Value::Scalar(i) => format!("c{i}"),
        Value::Step(i) => format!("s{i}"),
    }
}

/// Appends a number in the format of the parameters.
pub(crate) fn scalar_words(scalar: Scalar, dtype: DType, words: &mut Vec<u32>) {
    match dtype {
        DType::F32 | DType::F64 => words.push(f32::from_scalar(scalar).to_bits()),
        DType::F16 => words.push(half::f16::from_scalar(scalar).to_f32().to_bits()),
        DType::BF16 => words.push(half::bf16::from_scalar(scalar).to_f32().to_bits()),
        DType::I32 => words.push(i32::from_scalar(scalar) as u32),
        DType::U8 => words.push(u8::from_scalar(scalar).into()),
        DType::Bool => words.push(bool::from_scalar(scalar).into()),
        DType::I64 => {
            let value = i64::from_scalar(scalar) as u64;
            words.extend([value as u32, (value >> 32) as u32]);
        }
    }
}

/// Axes and strides of several operands with the fewest axes: axes of extent 1 are dropped, and axes that all operands
/// step through evenly are merged.
pub(crate) fn collapse(dims: &[usize], strides: &[&[isize]]) -> (Vec<usize>, Vec<Vec<isize>>) {
    let mut kept: Vec<usize> = Vec::new();
    let mut steps: Vec<Vec<isize>> = vec![Vec::new(); strides.len()];
    for (axis, &dim) in dims.iter().enumerate() {
        if dim == 1 {
            continue;
        }
        let joins = !kept.is_empty()
            && (steps.iter().zip(strides)).all(|(step, all)| step.last() == Some(&(all[axis] * dim as isize)));
        match kept.last_mut() {
            Some(last) if joins => {
                *last *= dim;
                for (step, all) in steps.iter_mut().zip(strides) {
                    if let Some(last) = step.last_mut() {
                        *last = all[axis];
                    }
                }
            }
            _ => {
                kept.push(dim);
                for (step, all) in steps.iter_mut().zip(strides) {
                    step.push(all[axis]);
                }
            }
        }
    }
    (kept, steps)
}

impl Session<'_> {
    /// Checks that the device computes in a dtype.
    pub(crate) fn offers(&self, dtype: DType) -> Result<()> {
        match dtype {
            DType::F64 => Err(Error::unsupported("the driver has no f64").with_hint("f32, or another backend")),
            DType::I64 if !self.gpu.int64 => Err(Error::unsupported(format!(
                "{} has no 64-bit integers",
                self.gpu.info.name
            ))),
            _ => Ok(()),
        }
    }

    pub(crate) fn elementwise(&mut self, call: &Elementwise<'_>) -> Result<()> {
        let program = call.program;
        call.check().map_err(|error| error.with_op(program.name()))?;
        let views: Vec<&DeviceView> = call.inputs.iter().chain(call.outputs).collect();
        let all = (program.inputs().iter().chain(program.scalars()).copied())
            .chain(program.steps().iter().map(|&(_, dtype)| dtype));
        for dtype in all {
            self.offers(dtype).map_err(|error| error.with_op(program.name()))?;
        }
        let numel = call.shape.numel();
        if numel == 0 {
            return Ok(());
        }
        if numel > i32::MAX as usize {
            return Err(Error::unsupported("more than 2^31 elements in one call").with_op(program.name()));
        }
        let mut places = Vec::with_capacity(views.len());
        for view in &views {
            places.push(self.typed(view.ptr, view.span()?.end, view.dtype)?);
        }
        let strides: Vec<&[isize]> = views.iter().map(|view| view.layout.strides()).collect();
        let (dims, steps) = collapse(call.shape.dims(), &strides);
        let mut natural = vec![1isize; dims.len()];
        for axis in (1..dims.len()).rev() {
            natural[axis - 1] = natural[axis] * dims[axis] as isize;
        }
        let lies: Vec<Lie> = (steps.iter())
            .map(|step| match step.iter().all(|&s| s == 0) {
                _ if *step == natural => Lie::Linear,
                true => Lie::Constant,
                false => Lie::Strided,
            })
            .collect();
        let small = |i: &usize| views[*i].dtype.size() < 4;
        let outputs = call.inputs.len()..views.len();
        let mut packs = outputs.clone().any(|i| small(&i));
        for i in outputs.clone().filter(small) {
            let start = places[i].at + views[i].layout.offset() * views[i].dtype.size();
            let alone = outputs.clone().all(|j| j == i || places[j].id != places[i].id);
            packs &= lies[i] == Lie::Linear && start.is_multiple_of(4) && alone;
        }
        let mut params = vec![numel as u32];
        params.extend(dims.iter().map(|&dim| dim as u32));
        for ((view, place), (lie, step)) in views.iter().zip(&places).zip(lies.iter().zip(&steps)) {
            params.push((place.at / view.dtype.size() + view.layout.offset()) as u32);
            if *lie == Lie::Strided {
                params.extend(step.iter().map(|&s| s as u32));
            }
        }
        for (&scalar, &dtype) in call.scalars.iter().zip(program.scalars()) {
            scalar_words(scalar, dtype, &mut params);
        }
        let kernel = Box::new(Form {
            program: program.clone(),
            rank: dims.len(),
            lies,
            packed: packs,
        });
        let places: Vec<_> = places.iter().collect();
        let groups = (numel as u64).div_ceil(u64::from(EACH * THREADS));
        (self.launch(kernel, &places, &params, [groups, 1])).map_err(|error| error.with_op(program.name()))
    }
}
