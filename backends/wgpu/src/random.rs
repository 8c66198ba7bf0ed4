//! Random numbers that equal the host's in every bit: those that need only integers and one rounding.

use polygrad_core::compute::Random;
use polygrad_core::{DType, Distribution, Result, Shape, random_host};

use crate::gpu::Session;
use crate::kernel::Kernel;
use crate::reduce::word_dtype;
use crate::source::{Access, Slots, Source, param};

/// The kind of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Draw {
    /// From 0 up to a power of two, in f32.
    Uniform,
    /// 1 if 53 bits are below a threshold.
    Bernoulli,
    /// Integers.
    Integers,
}

/// The properties that the shader depends on. It has one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) draw: Draw,
    pub(crate) dtype: DType,
}

// All except the first and the last take two words.
const COUNT: usize = 0;
const SEED: usize = 1;
const OFFSET: usize = 3;
/// For uniform numbers the bound and the value of one bit, as f32; or the threshold; or the smallest integer.
const FROM: usize = 5;
/// The number of integers.
const SPAN: usize = 7;
const OUTPUT: usize = 9;

const THREADS: u32 = 256;

fn pair(i: usize) -> String {
    format!("vec2<u32>({}, {})", param(i), param(i + 1))
}

impl Kernel for Form {
    fn name(&self) -> &'static str {
        "random"
    }

    fn accesses(&self) -> Vec<Access> {
        vec![Access::Write]
    }

    fn source(&self, slots: &Slots) -> Result<String> {
        let mut source = Source::new(slots);
        let word = word_dtype(self.dtype);
        if word != DType::I64 {
            source.storer("put", 0, word);
        }
        let (i64_low, i64_high) = (
            source.set_word(0, "2u * at", "value.x"),
            source.set_word(0, "2u * at + 1u", "value.y"),
        );
        let head = format!(
            "let i = wg * {THREADS}u + lane;\nif (i >= {count}) {{ return; }}\nlet at = {output} + i;\n\
             let bits = philox({seed}, u64_sum({offset}, vec2<u32>(i, 0u)));\n\
             let unit = vec2<u32>((bits.x >> 11u) | (bits.y << 21u), bits.y >> 11u);\n",
            count = param(COUNT),
            output = param(OUTPUT),
            seed = pair(SEED),
            offset = pair(OFFSET),
        );
        let act = match (self.draw, word) {
            (Draw::Uniform, _) => format!(
                "let high = {high};\nlet value = u64_to_f32(unit) * {bit};\n\
                 put(at, select(value, bitcast<f32>(bitcast<u32>(high) - 1u), value >= high));\n",
                high = format_args!("bitcast<f32>({})", param(FROM)),
                bit = format_args!("bitcast<f32>({})", param(FROM + 1)),
            ),
            (Draw::Bernoulli, DType::I64) => format!(
                "let value = vec2<u32>(select(0u, 1u, u64_less(unit, {})), 0u);\n{i64_low}\n{i64_high}\n",
                pair(FROM)
            ),
            (Draw::Bernoulli, _) => {
                let (zero, one) = if word == DType::F32 { ("0.0", "1.0") } else { ("0", "1") };
                format!("put(at, select({zero}, {one}, u64_less(unit, {})));\n", pair(FROM))
            }
            (Draw::Integers, _) => {
                let cut = match self.dtype {
                    DType::I64 => format!("{i64_low}\n{i64_high}"),
                    DType::Bool => "put(at, select(0, 1, (value.x | value.y) != 0u));".to_owned(),
                    DType::U8 => "put(at, i32(select(select(min(value.x, 255u), 255u, value.y != 0u), 0u, negative)));"
                        .to_owned(),
                    DType::I32 => "let sign = bitcast<u32>(bitcast<i32>(value.x) >> 31u);\n\
                         let most = bitcast<i32>(select(0x7fffffffu, 0x80000000u, negative));\n\
                         put(at, select(most, bitcast<i32>(value.x), value.y == sign));"
                        .to_owned(),
                    _ => "let size = select(value, u64_sum(~value, vec2<u32>(1u, 0u)), vec2<bool>(negative));\n\
                         let whole = u64_to_f32(size);\nput(at, select(whole, f_neg(whole), negative));"
                        .to_owned(),
                };
                format!(
                    "let value = u64_sum({}, u64_product_high(bits, {}));\nlet negative = value.y >= 0x80000000u;\n{cut}\n",
                    pair(FROM),
                    pair(SPAN)
                )
            }
        };
        Ok(source.finish(THREADS, &(head + &act)))
    }
}

fn words(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

/// The kind and parameters by which the shader draws from a distribution in a dtype, or `None` if the host must draw.
fn plan(distribution: Distribution, dtype: DType) -> Option<(Draw, [u32; 4])> {
    let none = [0; 2];
    let (draw, from, span) = match distribution {
        // Other bounds need products and sums of f64, and more than one rounding.
        Distribution::Uniform { low: 0.0, high } if dtype == DType::F32 && is_power(high) => {
            let bit = high / (1u64 << 53) as f64;
            (Draw::Uniform, [high as f32, bit as f32].map(f32::to_bits), none)
        }
        Distribution::Bernoulli { p } if dtype != DType::F64 => {
            (Draw::Bernoulli, words((p * (1u64 << 53) as f64).ceil() as u64), none)
        }
        // For 16-bit floats the host rounds an intermediate result.
        Distribution::Integers { low, high } if !matches!(dtype, DType::F16 | DType::BF16 | DType::F64) => (
            Draw::Integers,
            words(low.cast_unsigned()),
            words(high.wrapping_sub(low).cast_unsigned()),
        ),
        _ => return None,
    };
    Some((draw, [from[0], from[1], span[0], span[1]]))
}

/// Whether it is a power of two for which the lowest bit of a draw is a normal f32.
fn is_power(x: f64) -> bool {
    let digits = x.to_bits() & ((1 << 52) - 1);
    digits == 0 && (f64::powi(2.0, -64)..=f64::powi(2.0, 64)).contains(&x)
}

impl Session<'_> {
    /// Draws if the shader can; returns whether it did.
    pub(crate) fn random(&mut self, call: &Random) -> Result<bool> {
        let Some((draw, numbers)) = plan(call.distribution, call.dtype) else {
            return Ok(false);
        };
        // Drawing no number on the host checks the parameters.
        random_host(Shape::new(&[0])?, call.distribution, call.dtype, call.key)?;
        if call.len == 0 {
            return Ok(true);
        }
        self.countable(call.len)?;
        let target = self.words_for(call.output, call.len, call.dtype)?;
        let mut params = vec![call.len as u32];
        params.extend(words(call.key.seed));
        params.extend(words(call.key.offset));
        params.extend(numbers);
        params.push((target.place.at / word_dtype(call.dtype).size()) as u32);
        let form = Form {
            draw,
            dtype: call.dtype,
        };
        let groups = (call.len as u64).div_ceil(THREADS.into());
        self.launch(Box::new(form), &[&target.place], &params, [groups, 1])?;
        self.finish(&target)?;
        Ok(true)
    }
}
