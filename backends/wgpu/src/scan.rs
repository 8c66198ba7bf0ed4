//! Running sums.

use std::fmt::Write as _;

use polygrad_core::compute::{CumSum, DeviceView};
use polygrad_core::{DType, Error, Layout, Result};

use crate::elementwise::collapse;
use crate::gpu::Session;
use crate::kernel::Kernel;
use crate::reduce::word_dtype;
use crate::source::{Access, Slots, Source, param, type_of};
use crate::table::Kind;
use crate::team::{THREADS, Team, walk};

/// The properties that the shader depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) dtype: DType,
    pub(crate) team: Team,
    /// Number of axes except the summed one.
    pub(crate) rank: usize,
}

// Parameters; then the other axes' extents, and their strides in the input and the output.
const ROWS: usize = 0;
const LEN: usize = 1;
const INPUT: usize = 2;
const STEP: usize = 3;
const OUTPUT: usize = 4;
const OUTPUT_STEP: usize = 5;
const AXES: usize = 6;

impl Kernel for Form {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn accesses(&self) -> Vec<Access> {
        vec![Access::Read, Access::Write]
    }

    fn source(&self, slots: &Slots) -> Result<String> {
        let mut source = Source::new(slots);
        source.loader("load", 0, self.dtype);
        let word = word_dtype(self.dtype);
        source.storer("store", 1, word);
        walk(&mut source, "input_at", self.rank, AXES, AXES + self.rank);
        walk(&mut source, "output_at", self.rank, AXES, AXES + 2 * self.rank);
        let float = Kind::of(self.dtype) == Kind::Float;
        let ty = type_of(self.dtype);
        let value = |sum: &str| match Kind::of(self.dtype) {
            Kind::U8 => format!("i32({sum} & 255u)"),
            _ => sum.to_owned(),
        };
        // A sum with its rounding error; for an infinite sum that would be NaN.
        let add = |x: &str| match float {
            true => format!(
                "let y = {x} - lost;\nlet t = opaque(sum + y);\n\
                 lost = select(0.0, opaque(t - sum) - y, f_is_finite(t));\nsum = t;"
            ),
            false => format!("sum = sum + {x};"),
        };
        let mut body = self.team.head(ROWS);
        let _ = writeln!(
            body,
            "let source_at = {} + input_at(row);\nlet target_at = {} + output_at(row);\nvar sum: {ty};\nvar lost = 0.0;",
            param(INPUT),
            param(OUTPUT)
        );
        let (len, step, output_step) = (param(LEN), param(STEP), param(OUTPUT_STEP));
        match self.team {
            Team::Single => {
                let _ = writeln!(
                    body,
                    "for (var r = 0u; r < {len}; r++) {{\nlet x = load(source_at + r * {step});\n{}\n\
                     store(target_at + r * {output_step}, {});\n}}",
                    add("x"),
                    value("sum")
                );
            }
            Team::Group => {
                source.share("all", ty, THREADS);
                // Block by block: a scan within the block, with doubling distances, plus the sum of the blocks before.
                let _ = writeln!(
                    body,
                    "for (var first = 0u; first < {len}; first = first + {THREADS}u) {{\nlet r = first + lane;\n\
                     var v: {ty};\nif (r < {len}) {{ v = load(source_at + r * {step}); }}\nall[lane] = v;\nworkgroupBarrier();\n\
                     for (var s = 1u; s < {THREADS}u; s = s << 1u) {{\nvar other: {ty};\n\
                     if (lane >= s) {{ other = all[lane - s]; }}\nworkgroupBarrier();\n\
                     if (lane >= s) {{ v = other + v; all[lane] = v; }}\nworkgroupBarrier();\n}}\n\
                     if (r < {len}) {{ store(target_at + r * {output_step}, {}); }}\n\
                     let block = all[{}u];\nworkgroupBarrier();\n{}\n}}",
                    value(if float { "(sum + (v - lost))" } else { "(sum + v)" }),
                    THREADS - 1,
                    add("block")
                );
            }
        }
        Ok(source.finish(THREADS as u32, &body))
    }
}

/// All axes of a view except one, with their strides and those of contiguous memory of its shape.
pub(crate) struct Lines {
    pub(crate) dims: Vec<usize>,
    pub(crate) strides: Vec<isize>,
    pub(crate) contiguous: Vec<isize>,
    pub(crate) rows: usize,
    pub(crate) len: usize,
    /// Strides along the excepted axis.
    pub(crate) step: isize,
    pub(crate) contiguous_step: isize,
}

impl Lines {
    pub(crate) fn new(view: &DeviceView, axis: usize) -> Result<Self> {
        let shape = *view.shape();
        if axis >= shape.rank() {
            return Err(Error::invalid(format!("axis {axis} of {shape}")));
        }
        let natural = Layout::contiguous(shape);
        let but = |all: &[isize]| -> Vec<isize> { (0..shape.rank()).filter(|&i| i != axis).map(|i| all[i]).collect() };
        let dims: Vec<usize> = (0..shape.rank())
            .filter(|&i| i != axis)
            .map(|i| shape.dims()[i])
            .collect();
        let (input, output) = (but(view.layout.strides()), but(natural.strides()));
        let rows = dims.iter().product();
        let (dims, mut strides) = collapse(&dims, &[&input, &output]);
        let contiguous = strides.remove(1);
        Ok(Self {
            dims,
            strides: strides.remove(0),
            contiguous,
            rows,
            len: shape.dims()[axis],
            step: view.layout.strides()[axis],
            contiguous_step: natural.strides()[axis],
        })
    }

    /// Appends the extents and both strides to the parameters.
    pub(crate) fn extend(&self, params: &mut Vec<u32>) {
        params.extend(self.dims.iter().map(|&dim| dim as u32));
        for strides in [&self.strides, &self.contiguous] {
            params.extend(strides.iter().map(|&stride| stride as u32));
        }
    }
}

impl Session<'_> {
    pub(crate) fn cumsum(&mut self, call: &CumSum) -> Result<()> {
        let view = call.input;
        let dtype = view.dtype;
        if dtype == DType::Bool {
            return Err(Error::dtype("not defined for bool"));
        }
        self.offers(dtype)?;
        let lines = Lines::new(&view, call.axis)?;
        let numel = view.shape().numel();
        if numel == 0 {
            return Ok(());
        }
        self.countable(numel)?;
        let input = self.typed(view.ptr, view.span()?.end, dtype)?;
        let target = self.words_for(call.output, numel, dtype)?;
        let team = Team::choose(lines.len);
        let mut params: Vec<u32> = [
            lines.rows,
            lines.len,
            input.at / dtype.size() + view.layout.offset(),
            lines.step as usize,
            target.place.at / word_dtype(dtype).size(),
            lines.contiguous_step as usize,
        ]
        .map(|x| x as u32)
        .to_vec();
        lines.extend(&mut params);
        let form = Form {
            dtype,
            team,
            rank: lines.dims.len(),
        };
        self.launch(
            Box::new(form),
            &[&input, &target.place],
            &params,
            [team.groups(lines.rows), 1],
        )?;
        self.finish(&target)
    }
}
