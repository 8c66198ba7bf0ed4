//! Pooling.

use std::fmt::Write as _;

use polygrad_core::compute::Pool2d;
use polygrad_core::{DType, Error, Result, Shape};

use crate::gpu::Session;
use crate::kernel::Kernel;
use crate::reduce::word_dtype;
use crate::source::{Access, Slots, Source, param, type_of};
use crate::table::Kind;

/// The properties that the shader depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    /// Whether the result is the maximum, with positions, or the mean.
    pub(crate) max: bool,
    pub(crate) dtype: DType,
}

const THREADS: u32 = 256;
const NAMES: [&str; 18] = [
    "count", "h", "w", "oh", "ow", "kh", "kw", "sh", "sw", "ph", "pw", "dh", "dw", "with_pad", "x0", "y0", "p0",
    "unused",
];

impl Kernel for Form {
    fn name(&self) -> &'static str {
        "pool"
    }

    fn accesses(&self) -> Vec<Access> {
        let mut all = vec![Access::Read, Access::Write];
        if self.max {
            all.push(Access::Write);
        }
        all
    }

    fn source(&self, slots: &Slots) -> Result<String> {
        let mut source = Source::new(slots);
        source.loader("load", 0, self.dtype);
        source.storer("store", 1, word_dtype(self.dtype));
        let mut body = String::new();
        for (i, name) in NAMES.iter().enumerate() {
            let _ = writeln!(body, "let {name} = {};", param(i));
        }
        let _ = write!(
            body,
            "let i = wg * {THREADS}u + lane;\nif (i >= count) {{ return; }}\n\
             let column = i % ow;\nlet row = (i / ow) % oh;\nlet image = x0 + (i / (ow * oh)) * h * w;\n\
             let top = i32(row * sh) - i32(ph);\nlet left = i32(column * sw) - i32(pw);\n"
        );
        let ty = type_of(self.dtype);
        let (start, inner, end) = match self.max {
            true => {
                let wins = match Kind::of(self.dtype) {
                    Kind::Float => "x > best || (f_is_nan(x) && !f_is_nan(best))",
                    Kind::Bool => "(x && !best)",
                    _ => "x > best",
                };
                let value = match self.dtype {
                    DType::U8 => "i32(best)",
                    DType::Bool => "select(0, 1, best)",
                    _ => "best",
                };
                let words = [
                    source.set_word(2, "2u * (p0 + i)", "place"),
                    source.set_word(2, "2u * (p0 + i) + 1u", "0u"),
                ];
                (
                    format!("var best: {ty};\nvar place = 0u;\nvar found = false;\n"),
                    format!(
                        "let x = load(at);\nif (!found || {wins}) {{ best = x; place = at - image; found = true; }}\n"
                    ),
                    format!("store(y0 + i, {value});\n{}\n", words.join(" ")),
                )
            }
            false => (
                "var sum = 0.0;\nvar seen = 0u;\n".to_owned(),
                "sum = sum + load(at);\nseen = seen + 1u;\n".to_owned(),
                // The part of a window beyond the border never counts.
                "let bottom = min(top + i32(kh), i32(h + ph));\nlet right = min(left + i32(kw), i32(w + pw));\n\
                 let all = u32(max((bottom - top) * (right - left), 1));\n\
                 store(y0 + i, p_div(sum, f32(select(max(seen, 1u), all, with_pad != 0u))));\n"
                    .to_owned(),
            ),
        };
        let _ = write!(
            body,
            "{start}for (var r = 0u; r < kh; r++) {{\nlet y = top + i32(r * dh);\nif (y < 0 || y >= i32(h)) {{ continue; }}\n\
             for (var c = 0u; c < kw; c++) {{\nlet z = left + i32(c * dw);\nif (z < 0 || z >= i32(w)) {{ continue; }}\n\
             let at = image + u32(y) * w + u32(z);\n{inner}}}\n}}\n{end}"
        );
        Ok(source.finish(THREADS, &body))
    }
}

impl Session<'_> {
    pub(crate) fn pool(&mut self, call: &Pool2d, max: bool) -> Result<()> {
        let dtype = call.dtype;
        if dtype == DType::Bool || (!max && !dtype.is_float()) {
            return Err(Error::dtype(format!("not defined for {dtype}")));
        }
        self.offers(dtype)?;
        let out = call.params.output_shape(&Shape::new(&call.input_shape)?)?;
        let (numel, read) = (out.numel(), call.input_shape.iter().product::<usize>());
        if numel == 0 {
            return Ok(());
        }
        self.countable(numel.max(read))?;
        let input = self.typed(call.input, read * dtype.size(), dtype)?;
        let positions = match max {
            true => Some(self.typed(call.positions, numel * 8, DType::I64)?),
            false => None,
        };
        let target = self.words_for(call.output, numel, dtype)?;
        let p = &call.params;
        let [_, _, h, w] = call.input_shape;
        let params = [
            numel,
            h,
            w,
            out[2],
            out[3],
            p.kernel[0],
            p.kernel[1],
            p.stride[0],
            p.stride[1],
            p.padding[0],
            p.padding[1],
            p.dilation[0],
            p.dilation[1],
            usize::from(p.count_include_pad),
            input.at / dtype.size(),
            target.place.at / word_dtype(dtype).size(),
            positions.as_ref().map_or(0, |place| place.at / 8),
            0,
        ]
        .map(|x| x as u32);
        let mut places = vec![&input, &target.place];
        places.extend(&positions);
        let groups = (numel as u64).div_ceil(THREADS.into());
        self.launch(Box::new(Form { max, dtype }), &places, &params, [groups, 1])?;
        self.finish(&target)
    }
}
