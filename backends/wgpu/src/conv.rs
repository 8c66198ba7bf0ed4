//! Convolutions as products whose operands are addressed by index arithmetic.

use std::fmt::Write as _;

use polygrad_core::compute::{Conv2d, DeviceView, ReduceAxes};
use polygrad_core::{Axes, DType, Error, ReduceOp, Result, Shape};

use crate::gpu::Session;
use crate::kernel::Kernel;
use crate::source::{Access, Slots, Source, param};
use crate::state::Place;
use crate::tile::{OWN, Tile};

/// The tensor that is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Gives {
    Output,
    Input,
    Weight,
}

/// The properties that the shader depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) gives: Gives,
    pub(crate) dtype: DType,
    pub(crate) tile: Tile,
}

/// The parameters after those of the tiles: extents, channels per group (`cg` and `og`), strides, padding, dilation,
/// and the offsets of input, weight and output.
const NAMES: [&str; 20] = [
    "c", "h", "w", "o", "kh", "kw", "oh", "ow", "sh", "sw", "ph", "pw", "dh", "dw", "cg", "og", "x0", "w0", "y0",
    "unused",
];

/// The fewest terms that a workgroup sums up if terms are split into parts.
const PART: usize = 1024;
/// Number of workgroups that keep the device busy.
const BUSY: u64 = 256;

impl Kernel for Form {
    fn name(&self) -> &'static str {
        "conv"
    }

    /// The operands: two that are read, and one that is written.
    fn accesses(&self) -> Vec<Access> {
        vec![Access::Read, Access::Read, Access::Write]
    }

    fn source(&self, slots: &Slots) -> Result<String> {
        let mut source = Source::new(slots);
        let mut lets = String::new();
        for (i, name) in NAMES.iter().enumerate() {
            let _ = writeln!(lets, "let {name} = {};", param(OWN + i));
        }
        source.loader("a_at", 0, self.dtype);
        source.loader("b_at", 1, self.dtype);
        source.storer("y_set", 2, DType::F32);
        let (a, b, store) = match self.gives {
            Gives::Output => (
                "return a_at(w0 + (z * og + i) * (cg * kh * kw) + k);",
                "let at = k % (kh * kw);\nlet pixel = j % (oh * ow);\n\
                 let y = i32((pixel / ow) * sh + (at / kw) * dh) - i32(ph);\n\
                 let x = i32((pixel % ow) * sw + (at % kw) * dw) - i32(pw);\n\
                 if (y < 0 || x < 0 || y >= i32(h) || x >= i32(w)) { return 0.0; }\n\
                 let image = (j / (oh * ow)) * c + z * cg + k / (kh * kw);\n\
                 return b_at(x0 + (image * h + u32(y)) * w + u32(x));",
                "let pixels = oh * ow;\ny_set(y0 + ((j / pixels) * o + z * og + i) * pixels + j % pixels, v);",
            ),
            Gives::Input => (
                "let at = k % (kh * kw);\n\
                 return a_at(w0 + ((z * og + k / (kh * kw)) * cg + i) * (kh * kw) + at);",
                "let at = k % (kh * kw);\nlet pixel = j % (h * w);\n\
                 let y = i32(pixel / w + ph) - i32((at / kw) * dh);\n\
                 let x = i32(pixel % w + pw) - i32((at % kw) * dw);\n\
                 if (y < 0 || x < 0) { return 0.0; }\nlet p = u32(y) / sh;\nlet q = u32(x) / sw;\n\
                 if (p * sh != u32(y) || q * sw != u32(x) || p >= oh || q >= ow) { return 0.0; }\n\
                 let image = (j / (h * w)) * o + z * og + k / (kh * kw);\n\
                 return b_at(y0 + (image * oh + p) * ow + q);",
                "let pixels = h * w;\ny_set(x0 + ((j / pixels) * c + z * cg + i) * pixels + j % pixels, v);",
            ),
            Gives::Weight => (
                "let pixels = oh * ow;\nreturn a_at(y0 + ((k / pixels) * o + z * og + i) * pixels + k % pixels);",
                "let at = j % (kh * kw);\nlet pixel = k % (oh * ow);\n\
                 let y = i32((pixel / ow) * sh + (at / kw) * dh) - i32(ph);\n\
                 let x = i32((pixel % ow) * sw + (at % kw) * dw) - i32(pw);\n\
                 if (y < 0 || x < 0 || y >= i32(h) || x >= i32(w)) { return 0.0; }\n\
                 let image = (k / (oh * ow)) * c + z * cg + j / (kh * kw);\n\
                 return b_at(x0 + (image * h + u32(y)) * w + u32(x));",
                "y_set(w0 + (part * o + z * og + i) * (cg * kh * kw) + j, v);",
            ),
        };
        source.function(&format!("fn load_a(i: u32, k: u32, z: u32) -> f32 {{\n{lets}{a}\n}}"));
        source.function(&format!("fn load_b(k: u32, j: u32, z: u32) -> f32 {{\n{lets}{b}\n}}"));
        source.function(&format!(
            "fn store(i: u32, j: u32, part: u32, z: u32, v: f32) {{\n{lets}{store}\n}}"
        ));
        let (a_along, b_along) = match self.gives {
            Gives::Output => (true, false),
            Gives::Input => (false, false),
            Gives::Weight => (true, true),
        };
        Ok(self.tile.shader(source, a_along, b_along))
    }
}

impl Session<'_> {
    pub(crate) fn conv(&mut self, call: &Conv2d, gives: Gives) -> Result<()> {
        let dtype = call.dtype;
        if !dtype.is_float() {
            return Err(Error::dtype(format!("not defined for {dtype}")));
        }
        self.offers(dtype)?;
        let spans = call.spans()?;
        let out = call.output_shape()?;
        let [n, c, h, w] = call.input_shape;
        let [o, cg, kh, kw] = call.weight_shape;
        let groups = call.params.groups;
        let og = o / groups;
        let (pixels, taps) = (out[2] * out[3], kh * kw);
        let (m, cols, k) = match gives {
            Gives::Output => (og, n * pixels, cg * taps),
            Gives::Input => (cg, n * h * w, og * taps),
            Gives::Weight => (og, cg * taps, n * pixels),
        };
        let pointers = [call.input, call.weight, call.output];
        let written = match gives {
            Gives::Input => 0,
            Gives::Weight => 1,
            Gives::Output => 2,
        };
        if m * cols * groups == 0 {
            return Ok(());
        }
        self.countable(spans.iter().copied().max().unwrap_or(0) / dtype.size())?;
        let target = self.words_for(pointers[written], spans[written] / dtype.size(), dtype)?;
        let mut places: Vec<Place> = Vec::with_capacity(3);
        for (i, (&ptr, &span)) in pointers.iter().zip(&spans).enumerate() {
            places.push(match i == written || span == 0 {
                true => target.place.clone(),
                false => self.typed(ptr, span, dtype)?,
            });
        }
        let tile = Tile::choose(m, cols, groups, crate::adapter::is_software(&self.gpu.info));
        let busy = tile.groups(m, cols) * groups as u64;
        let parts = match gives {
            Gives::Weight => (k / PART).min((BUSY / busy.max(1)) as usize).clamp(1, 64),
            _ => 1,
        };
        let mut at: Vec<usize> = places.iter().map(|place| place.at / dtype.size()).collect();
        at[written] = target.place.at / 4;
        let weights = o * cg * taps;
        let between = match parts > 1 {
            true => Some(self.temporary(weights * parts * 4)?),
            false => None,
        };
        let result = match &between {
            Some(place) => {
                at[written] = 0;
                place.clone()
            }
            None => target.place.clone(),
        };
        let p = &call.params;
        let params = [
            m,
            cols,
            k,
            k.div_ceil(parts),
            parts,
            c,
            h,
            w,
            o,
            kh,
            kw,
            out[2],
            out[3],
            p.stride[0],
            p.stride[1],
            p.padding[0],
            p.padding[1],
            p.dilation[0],
            p.dilation[1],
            cg,
            og,
            at[0],
            at[1],
            at[2],
            0,
        ]
        .map(|x| x as u32);
        let read = match gives {
            Gives::Output => [&places[1], &places[0]],
            Gives::Input => [&places[1], &places[2]],
            Gives::Weight => [&places[2], &places[0]],
        };
        let form = Form { gives, dtype, tile };
        let count = [tile.groups(m, cols), (groups * parts) as u64];
        self.launch(Box::new(form), &[read[0], read[1], &result], &params, count)?;
        if let Some(between) = &between {
            let from = self.address(between, weights * parts * 4)?;
            let to = self.address(&target.place, weights * 4)?;
            self.reduce_axes(&ReduceAxes {
                op: ReduceOp::Sum,
                input: DeviceView::contiguous(from, DType::F32, Shape::new(&[parts, weights])?),
                axes: Axes::new([0])?,
                output: to,
            })?;
        }
        self.finish(&target)
    }
}
