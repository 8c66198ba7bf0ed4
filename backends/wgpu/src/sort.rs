//! A stable sort: Batcher's bitonic network over pairs of key and position, no two of which are equal.

use polygrad_core::compute::Sort;
use polygrad_core::{DType, Result};

use crate::gpu::Session;
use crate::kernel::Kernel;
use crate::reduce::word_dtype;
use crate::scan::Lines;
use crate::source::{Access, Slots, Source, param};
use crate::team::walk;

/// A stage of the sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// Computes keys, which are ordered like 64-bit numbers, and positions.
    Keys { dtype: DType, descending: bool },
    /// One step of the network.
    Step,
    /// Writes values and positions in order.
    Values { dtype: DType },
}

/// The properties that the shader depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) stage: Stage,
    pub(crate) rank: usize,
}

// Parameters; then the lines' extents and strides in input and output. For a step: the number of pairs, the block that
// is merged, and the distance.
const COUNT: usize = 0;
const LEN: usize = 1;
const PADDED: usize = 2;
const INPUT: usize = 3;
const STEP: usize = 4;
const VALUES: usize = 5;
const POSITIONS: usize = 6;
const OUTPUT_STEP: usize = 7;
const AXES: usize = 8;

const THREADS: u32 = 256;

impl Kernel for Form {
    fn name(&self) -> &'static str {
        "sort"
    }

    fn accesses(&self) -> Vec<Access> {
        match self.stage {
            Stage::Keys { .. } => vec![Access::Read, Access::Write],
            Stage::Step => vec![Access::Write],
            Stage::Values { .. } => vec![Access::Read, Access::Read, Access::Write, Access::Write],
        }
    }

    fn source(&self, slots: &Slots) -> Result<String> {
        let mut source = Source::new(slots);
        let head = format!(
            "let i = wg * {THREADS}u + lane;\nif (i >= {}) {{ return; }}\n",
            param(COUNT)
        );
        let body = match self.stage {
            Stage::Keys { dtype, descending } => self.keys(&mut source, dtype, descending),
            Stage::Step => Self::step(&source),
            Stage::Values { dtype } => self.values(&mut source, dtype),
        };
        Ok(source.finish(THREADS, &(head + &body)))
    }
}

impl Form {
    /// Three words per element: the key's upper and lower half, and the position.
    fn keys(self, source: &mut Source<'_>, dtype: DType, descending: bool) -> String {
        walk(source, "line_at", self.rank, AXES, AXES + self.rank);
        source.loader("load", 0, dtype);
        let key = match dtype {
            DType::F32 | DType::F16 | DType::BF16 => {
                "var high = bitcast<u32>(x);\nif (f_is_zero(x)) { high = 0u; }\n\
                 high = select(high | 0x80000000u, ~high, high >= 0x80000000u);\n\
                 if (f_is_nan(x)) { high = 0xffffffffu; }\nvar low = 0u;\n"
            }
            DType::I64 => "var high = i64_high(x) ^ 0x80000000u;\nvar low = i64_low(x);\n",
            DType::Bool => "var high = select(0u, 1u, x);\nvar low = 0u;\n",
            DType::U8 => "var high = x;\nvar low = 0u;\n",
            _ => "var high = bitcast<u32>(x) ^ 0x80000000u;\nvar low = 0u;\n",
        };
        let flip = if descending { "high = ~high;\nlow = ~low;\n" } else { "" };
        format!(
            "let r = i % {padded};\nlet line = i / {padded};\n\
             if (r >= {len}) {{ {pad} return; }}\n\
             let x = load({input} + line_at(line) + r * {step});\n{key}{flip}{set}\n",
            padded = param(PADDED),
            len = param(LEN),
            input = param(INPUT),
            step = param(STEP),
            pad = triple(source, 1, "i", ["0xffffffffu", "0xffffffffu", "r"]),
            set = triple(source, 1, "i", ["high", "low", "r"]),
        )
    }

    fn step(source: &Source<'_>) -> String {
        let (block, distance) = (param(LEN), param(PADDED));
        let get = |index: &str, word: usize| source.word(0, &format!("3u * {index} + {word}u"));
        format!(
            "let a = (i / {distance}) * 2u * {distance} + i % {distance};\nlet b = a + {distance};\n\
             let ah = {};\nlet al = {};\nlet ap = {};\nlet bh = {};\nlet bl = {};\nlet bp = {};\n\
             var after = ap > bp;\nif (al != bl) {{ after = al > bl; }}\nif (ah != bh) {{ after = ah > bh; }}\n\
             let up = (a & {block}) == 0u;\nif (after == up) {{\n{}\n{}\n}}\n",
            get("a", 0),
            get("a", 1),
            get("a", 2),
            get("b", 0),
            get("b", 1),
            get("b", 2),
            triple(source, 0, "a", ["bh", "bl", "bp"]),
            triple(source, 0, "b", ["ah", "al", "ap"]),
        )
    }

    fn values(self, source: &mut Source<'_>, dtype: DType) -> String {
        walk(source, "line_at", self.rank, AXES, AXES + self.rank);
        walk(source, "out_at", self.rank, AXES, AXES + 2 * self.rank);
        source.loader("load", 1, dtype);
        source.storer("store", 2, word_dtype(dtype));
        let value = match dtype {
            DType::U8 => "i32(x)",
            DType::Bool => "select(0, 1, x)",
            _ => "x",
        };
        format!(
            "let r = i % {len};\nlet line = i / {len};\nlet place = {place};\n\
             let x = load({input} + line_at(line) + place * {step});\n\
             let out = out_at(line) + r * {out_step};\nstore({values} + out, {value});\n\
             let at = 2u * ({positions} + out);\n{low}\n{high}\n",
            len = param(LEN),
            place = source.word(0, &format!("3u * (line * {} + r) + 2u", param(PADDED))),
            input = param(INPUT),
            step = param(STEP),
            out_step = param(OUTPUT_STEP),
            values = param(VALUES),
            positions = param(POSITIONS),
            low = source.set_word(3, "at", "place"),
            high = source.set_word(3, "at + 1u", "0u"),
        )
    }
}

fn triple(source: &Source<'_>, operand: usize, index: &str, values: [&str; 3]) -> String {
    let set = |(i, value): (usize, &&str)| source.set_word(operand, &format!("3u * {index} + {i}u"), value);
    values.iter().enumerate().map(set).collect::<Vec<_>>().join(" ")
}

impl Session<'_> {
    pub(crate) fn sort(&mut self, call: &Sort) -> Result<()> {
        let view = call.input;
        let dtype = view.dtype;
        self.offers(dtype)?;
        let lines = Lines::new(&view, call.axis)?;
        let numel = view.shape().numel();
        if numel == 0 {
            return Ok(());
        }
        let padded = lines.len.next_power_of_two();
        let total = lines.rows.saturating_mul(padded);
        self.countable(total.saturating_mul(3))?;
        let input = self.typed(view.ptr, view.span()?.end, dtype)?;
        let positions = self.typed(call.positions, numel * 8, DType::I64)?;
        let target = self.words_for(call.values, numel, dtype)?;
        let keys = self.temporary(total * 12)?;
        let params = |count: usize| {
            let mut params: Vec<u32> = [
                count,
                lines.len,
                padded,
                input.at / dtype.size() + view.layout.offset(),
                lines.step as usize,
                target.place.at / word_dtype(dtype).size(),
                positions.at / 8,
                lines.contiguous_step as usize,
            ]
            .map(|x| x as u32)
            .to_vec();
            lines.extend(&mut params);
            params
        };
        let groups = |count: usize| [(count as u64).div_ceil(THREADS.into()), 1];
        let form = |stage| {
            let rank = if stage == Stage::Step { 0 } else { lines.dims.len() };
            Box::new(Form { stage, rank })
        };
        let first = Stage::Keys {
            dtype,
            descending: call.descending,
        };
        self.launch(form(first), &[&input, &keys], &params(total), groups(total))?;
        let mut block = 2;
        while block <= padded {
            let mut distance = block / 2;
            while distance > 0 {
                // The last block is the whole line, and every line is sorted in ascending order.
                let direction = if block == padded { 0 } else { block };
                let step = [total / 2, direction, distance].map(|x| x as u32);
                self.launch(form(Stage::Step), &[&keys], &step, groups(total / 2))?;
                distance /= 2;
            }
            block *= 2;
        }
        let places = [&keys, &input, &target.place, &positions];
        self.launch(form(Stage::Values { dtype }), &places, &params(numel), groups(numel))?;
        self.finish(&target)
    }
}
