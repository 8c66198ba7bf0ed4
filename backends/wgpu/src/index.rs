//! Indexing. Indices are checked by the kernels that use them.

use polygrad_core::compute::{DeviceView, Elementwise, ElementwiseProgram, Gather, Scatter};
use polygrad_core::{DType, Error, Layout, Result, Scalar, Shape};

use crate::elementwise::collapse;
use crate::gpu::Session;
use crate::kernel::Kernel;
use crate::reduce::word_dtype;
use crate::source::{Access, Slots, Source, param};
use crate::team::walk;

/// The operation on the indexed elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Do {
    /// Reads them.
    Gather,
    /// Writes them.
    Set,
    /// For elements of two words: finds the last of several writers, …
    Claim,
    /// … which then writes.
    SetClaimed,
    /// Adds to them.
    Add,
}

/// The properties that the shader depends on. Operands are the index, the indexed tensor, the other tensor, and the
/// word of bad indices; for claims, the claims as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) what: Do,
    pub(crate) dtype: DType,
    pub(crate) rank: usize,
}

// Parameters; then the extents, and the strides of the index, of the indexed tensor (0 along the axis) and of the other
// tensor.
const COUNT: usize = 0;
const CALL: usize = 1;
const EXTENT: usize = 2;
const INDEX: usize = 3;
const BASE: usize = 4;
const STEP: usize = 5;
const OTHER: usize = 6;
const LOW: usize = 7;
const AXES: usize = 8;

const THREADS: u32 = 256;

impl Kernel for Form {
    fn name(&self) -> &'static str {
        "index"
    }

    fn accesses(&self) -> Vec<Access> {
        let [indexed, other] = match self.what {
            Do::Gather => [Access::Read, Access::Write],
            Do::Set | Do::SetClaimed => [Access::Write, Access::Read],
            Do::Claim => [Access::Read, Access::Read],
            Do::Add => [Access::Atomic, Access::Read],
        };
        let mut all = vec![Access::Read, indexed, other, Access::Atomic];
        if matches!(self.what, Do::Claim | Do::SetClaimed) {
            all.push(Access::Atomic);
        }
        all
    }

    fn source(&self, slots: &Slots) -> Result<String> {
        let mut source = Source::new(slots);
        for (i, name) in ["index_at", "indexed_at", "other_at"].iter().enumerate() {
            walk(&mut source, name, self.rank, AXES, AXES + (i + 1) * self.rank);
        }
        let at = format!("{} + index_at(i)", param(INDEX));
        let body = format!(
            "let i = wg * {THREADS}u + lane;\nif (i >= {count}) {{ return; }}\nlet place = {at};\n\
             let low = {low};\nlet high = {high};\n\
             if (high != 0u || low >= {extent}) {{ {report} return; }}\n\
             let at = {base} + indexed_at(i) + low * {step};\nlet other = {other} + other_at(i);\n{act}",
            count = param(COUNT),
            low = source.word(0, "2u * place"),
            high = source.word(0, "2u * place + 1u"),
            extent = param(EXTENT),
            report = report(&source, 3, "low", "high", &param(CALL)),
            base = param(BASE),
            step = param(STEP),
            other = param(OTHER),
            act = self.act(&mut source),
        );
        Ok(source.finish(THREADS, &body))
    }
}

impl Form {
    fn act(self, source: &mut Source<'_>) -> String {
        let two = self.dtype == DType::I64;
        let pairs = |source: &Source<'_>, from: usize, to: usize, [a, b]: [&str; 2]| match two {
            true => (0..2)
                .map(|word| {
                    let value = source.word(from, &format!("2u * {b} + {word}u"));
                    source.set_word(to, &format!("2u * {a} + {word}u"), &value)
                })
                .collect::<String>(),
            false => source.set_word(to, a, &source.word(from, b)),
        };
        let claim = format!("at - {}", param(LOW));
        match self.what {
            Do::Gather if word_dtype(self.dtype) != self.dtype => {
                source.loader("load", 1, self.dtype);
                source.storer("store", 2, word_dtype(self.dtype));
                let value = match self.dtype {
                    DType::U8 => "i32(load(at))",
                    DType::Bool => "select(0, 1, load(at))",
                    _ => "load(at)",
                };
                format!("store(other, {value});\n")
            }
            Do::Gather => pairs(source, 1, 2, ["other", "at"]),
            Do::Set => pairs(source, 2, 1, ["at", "other"]),
            Do::Claim => format!("{};\n", source.atomic("atomicMax", 4, &claim, "i + 1u")),
            Do::SetClaimed => format!(
                "if ({} == i + 1u) {{ {} }}\n",
                source.word(4, &claim),
                pairs(source, 2, 1, ["at", "other"])
            ),
            Do::Add => self.add(source),
        }
    }

    fn add(self, source: &mut Source<'_>) -> String {
        match self.dtype {
            DType::F32 => {
                let swap = source.atomic(
                    "atomicCompareExchangeWeak",
                    1,
                    "at",
                    "old, bitcast<u32>(bitcast<f32>(old) + x)",
                );
                format!(
                    "let x = bitcast<f32>({});\nvar old = {};\nloop {{\nlet result = {swap};\n\
                     if (result.exchanged) {{ break; }}\nold = result.old_value;\n}}\n",
                    source.word(2, "other"),
                    source.word(1, "at"),
                )
            }
            DType::I64 => format!(
                "let x = {low};\nlet before = {add_low};\nlet carry = select(0u, 1u, before + x < before);\n{add_high};\n",
                low = source.word(2, "2u * other"),
                add_low = source.atomic("atomicAdd", 1, "2u * at", "x"),
                add_high = source.atomic(
                    "atomicAdd",
                    1,
                    "2u * at + 1u",
                    &format!("{} + carry", source.word(2, "2u * other + 1u"))
                )
            ),
            _ => format!("{};\n", source.atomic("atomicAdd", 1, "at", &source.word(2, "other"))),
        }
    }
}

/// The statement that reports a bad index of two words in `status`, an operand, unless an index has been reported
/// already.
pub(crate) fn report(source: &Source<'_>, status: usize, low: &str, high: &str, call: &str) -> String {
    let store = |word: &str, value: &str| source.atomic("atomicStore", status, word, value);
    format!(
        "if ({} == 0u) {{ {}; {}; {}; }}",
        source.atomic("atomicOr", status, "0u", "1u"),
        store("1u", low),
        store("2u", high),
        store("3u", call)
    )
}

impl Session<'_> {
    pub(crate) fn gather(&mut self, call: &Gather) -> Result<()> {
        let shape = *call.index.shape();
        let out = Layout::contiguous(shape);
        self.offers_storage(call.input.dtype)?;
        check_axes("gather", &call.input, call.axis, &call.index)?;
        let numel = shape.numel();
        if numel == 0 {
            return Ok(());
        }
        let dtype = call.input.dtype;
        let target = self.words_for(call.output, numel, dtype)?;
        let extent = call.input.shape().dims()[call.axis];
        let input = match call.input.shape().numel() {
            0 => target.place.clone(),
            _ => self.typed(call.input.ptr, call.input.span()?.end, dtype)?,
        };
        let form = Form {
            what: Do::Gather,
            dtype,
            rank: 0,
        };
        let first = input.at / dtype.size() + call.input.layout.offset();
        let other = (&target.place, target.place.at / word_dtype(dtype).size(), out.strides());
        self.by_index(
            form,
            &call.index,
            (&input, first, &call.input, call.axis),
            other,
            extent,
            None,
        )?;
        self.finish(&target)
    }

    pub(crate) fn scatter(&mut self, call: &Scatter, adds: bool) -> Result<()> {
        let (dtype, op) = (call.target.dtype, if adds { "scatter_add" } else { "scatter" });
        self.offers_storage(dtype)?;
        if adds && dtype == DType::Bool {
            return Err(Error::dtype("not defined for bool"));
        }
        check_axes(op, &call.target, call.axis, &call.index)?;
        if call.source.dtype != dtype || call.source.shape() != call.index.shape() {
            return Err(Error::invalid(format!(
                "a source {}{} for an index {} and a target of {dtype}",
                call.source.dtype,
                call.source.shape(),
                call.index.shape()
            )));
        }
        if !call.target.is_injective() {
            return Err(Error::invalid("the target has an element twice"));
        }
        if call.index.shape().numel() == 0 {
            return Ok(());
        }
        let word = word_dtype(dtype);
        if word != dtype {
            return self.scatter_narrow(call, adds, word);
        }
        let extent = call.target.shape().dims()[call.axis];
        let source = self.typed(call.source.ptr, call.source.span()?.end, dtype)?;
        let span = call.target.span()?;
        let target = match span.is_empty() {
            true => source.clone(),
            false => self.typed(call.target.ptr, span.end, dtype)?,
        };
        let size = dtype.size();
        let first = target.at / size + call.target.layout.offset();
        let other = (
            &source,
            source.at / size + call.source.layout.offset(),
            call.source.layout.strides(),
        );
        let indexed = (&target, first, &call.target, call.axis);
        let form = |what| Form { what, dtype, rank: 0 };
        if adds {
            return self.by_index(form(Do::Add), &call.index, indexed, other, extent, None);
        }
        if dtype != DType::I64 || span.is_empty() {
            return self.by_index(form(Do::Set), &call.index, indexed, other, extent, None);
        }
        // Two words are not written at once, so one of several writers must be chosen.
        let words = (span.end - span.start) / size;
        let claims = self.temporary(words * 4)?;
        let ptr = self.address(&claims, words * 4)?;
        self.fill_words(ptr, words)?;
        let low = target.at / size + span.start / size;
        self.by_index(
            form(Do::Claim),
            &call.index,
            indexed,
            other,
            extent,
            Some((&claims, low)),
        )?;
        self.by_index(
            form(Do::SetClaimed),
            &call.index,
            indexed,
            other,
            extent,
            Some((&claims, low)),
        )
    }

    /// Scatters elements smaller than a word: the target is widened, changed, and narrowed again.
    fn scatter_narrow(&mut self, call: &Scatter, adds: bool, word: DType) -> Result<()> {
        let mut widen = |view: &DeviceView| {
            let shape = *view.shape();
            let place = self.temporary(shape.numel() * 4)?;
            let ptr = self.address(&place, shape.numel() * 4)?;
            let wide = DeviceView::contiguous(ptr, word, shape);
            self.convert(view, &wide)?;
            Ok::<_, Error>(wide)
        };
        let wide = Scatter {
            target: widen(&call.target)?,
            source: widen(&call.source)?,
            ..*call
        };
        self.scatter(&wide, adds)?;
        self.convert(&wide.target, &call.target)
    }

    /// Sets words to zero.
    fn fill_words(&mut self, ptr: polygrad_core::compute::DevicePtr, words: usize) -> Result<()> {
        let shape = Shape::new(&[words])?;
        let mut program = ElementwiseProgram::default();
        let zero = program.scalar(DType::I32);
        program.output(zero);
        self.elementwise(&Elementwise {
            program: &program,
            shape,
            inputs: &[],
            scalars: &[Scalar::Int(0)],
            outputs: &[DeviceView::contiguous(ptr, DType::I32, shape)],
        })
    }

    /// Moving elements needs no arithmetic, so i64 is supported on every device.
    fn offers_storage(&self, dtype: DType) -> Result<()> {
        if dtype == DType::I64 {
            Ok(())
        } else {
            self.offers(dtype)
        }
    }

    #[allow(clippy::type_complexity, reason = "place, first element, and how it is walked")]
    fn by_index(
        &mut self,
        form: Form,
        index: &DeviceView,
        (indexed, first, view, axis): (&crate::state::Place, usize, &DeviceView, usize),
        (other, other_first, other_strides): (&crate::state::Place, usize, &[isize]),
        extent: usize,
        claims: Option<(&crate::state::Place, usize)>,
    ) -> Result<()> {
        let shape = *index.shape();
        self.countable(shape.numel())?;
        let index_place = self.typed(index.ptr, index.span()?.end, DType::I64)?;
        let mut along = view.layout.strides().to_vec();
        along[axis] = 0;
        let (dims, strides) = collapse(shape.dims(), &[index.layout.strides(), &along, other_strides]);
        let op = match form.what {
            Do::Gather => "gather",
            Do::Add => "scatter_add",
            _ => "scatter",
        };
        let (status, call) = self.checked(op, extent);
        let mut params: Vec<u32> = [
            shape.numel(),
            call as usize,
            extent,
            index_place.at / 8 + index.layout.offset(),
            first,
            view.layout.strides()[axis] as usize,
            other_first,
            claims.map_or(0, |(_, low)| low),
        ]
        .map(|x| x as u32)
        .to_vec();
        params.extend(dims.iter().map(|&dim| dim as u32));
        params.extend(strides.iter().flatten().map(|&stride| stride as u32));
        let form = Form {
            rank: dims.len(),
            ..form
        };
        let mut places = vec![&index_place, indexed, other, &status];
        places.extend(claims.map(|(place, _)| place));
        let groups = (shape.numel() as u64).div_ceil(THREADS.into());
        self.launch(Box::new(form), &places, &params, [groups, 1])
    }
}

/// Checks that the index has the rank of the indexed tensor, and is not larger on the other axes.
fn check_axes(op: &'static str, view: &DeviceView, axis: usize, index: &DeviceView) -> Result<()> {
    let (shape, by) = (view.shape(), index.shape());
    let fits = shape.rank() == by.rank()
        && axis < shape.rank()
        && index.dtype == DType::I64
        && (0..shape.rank()).all(|i| i == axis || by.dims()[i] <= shape.dims()[i]);
    match fits {
        true => Ok(()),
        false => Err(Error::invalid(format!("an index {}{by} along axis {axis} of {shape}", index.dtype)).with_op(op)),
    }
}
