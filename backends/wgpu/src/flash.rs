//! Attention in one kernel: each workgroup handles some queries, iterates over keys and values tile by tile, and keeps
//! a running softmax. Source: Dao et al. 2022.

use std::fmt::Write as _;

use polygrad_core::DType;
use polygrad_core::Result;
use polygrad_core::compute::Attention;

use crate::gpu::Session;
use crate::kernel::Kernel;
use crate::source::{Access, Slots, Source, param};

/// The properties that the shader depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) dtype: DType,
    /// Room for the length of a query, and of a value: multiples of [`SIDE`].
    pub(crate) head: usize,
    pub(crate) value: usize,
    pub(crate) causal: bool,
}

/// Queries of a workgroup, and keys of a tile, with a thread for each pair.
const SIDE: usize = 16;
const THREADS: usize = SIDE * SIDE;
/// The longest queries and values that fit.
const MAX_WIDTH: usize = 128;

// Parameters, then the offsets of q, k, v and the output.
const QUERIES: usize = 0;
const KEYS: usize = 1;
const HEAD: usize = 2;
const VALUE: usize = 3;
const SCALE: usize = 4;
const OFFSETS: usize = 5;

impl Kernel for Form {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn accesses(&self) -> Vec<Access> {
        vec![Access::Read, Access::Read, Access::Read, Access::Write]
    }

    fn source(&self, slots: &Slots) -> Result<String> {
        let (head, value) = (self.head, self.value);
        let (pitch, pitch_kv, pitch_s) = (head + 1, head.max(value) + 1, SIDE + 1);
        let mut source = Source::new(slots);
        for (i, name) in ["q_at", "k_at", "v_at"].iter().enumerate() {
            source.loader(name, i, self.dtype);
        }
        source.storer("y_set", 3, DType::F32);
        source.share("queries", "f32", SIDE * pitch);
        source.share("tile", "f32", SIDE * pitch_kv);
        source.share("scores", "f32", SIDE * pitch_s);
        source.share("weights", "f32", SIDE * pitch_s);
        let seen = match self.causal {
            true => format!(
                "u32(clamp(i32(QUERY) + i32({keys}) - i32({queries}) + 1, 0, i32({keys})))",
                keys = param(KEYS),
                queries = param(QUERIES)
            ),
            false => param(KEYS),
        };
        let mut body = format!(
            "let z = wid.z;\nlet first = wg * {SIDE}u;\nif (first >= {queries}) {{ return; }}\n\
             let row = lane / {SIDE}u;\nlet column = lane % {SIDE}u;\n\
             let seen = {own};\nlet end = {last};\n\
             for (var e = lane; e < {total}u; e = e + {THREADS}u) {{\nlet r = e / {head}u;\nlet d = e % {head}u;\nvar v = 0.0;\n\
             if (first + r < {queries} && d < {length}) {{ v = q_at({q0} + (z * {queries} + first + r) * {length} + d); }}\n\
             queries[r * {pitch}u + d] = v;\n}}\nvar top = -f_inf();\nvar sum = 0.0;\n",
            queries = param(QUERIES),
            own = seen.replace("QUERY", "first + row"),
            last = seen.replace("QUERY", &format!("min(first + {}u, {} - 1u)", SIDE - 1, param(QUERIES))),
            total = SIDE * head,
            length = param(HEAD),
            q0 = param(OFFSETS),
        );
        for j in 0..value / SIDE {
            let _ = writeln!(body, "var c{j} = 0.0;");
        }
        let load = |name: &str, room: usize, length: String, base: String| {
            format!(
                "for (var e = lane; e < {}u; e = e + {THREADS}u) {{\nlet r = e / {room}u;\nlet d = e % {room}u;\nvar v = 0.0;\n\
                 if (k0 + r < {keys} && d < {length}) {{ v = {name}({base} + (z * {keys} + k0 + r) * {length} + d); }}\n\
                 tile[r * {pitch_kv}u + d] = v;\n}}\n",
                SIDE * room,
                keys = param(KEYS),
            )
        };
        let _ = write!(
            body,
            "for (var k0 = 0u; k0 < end; k0 = k0 + {SIDE}u) {{\n{keys}workgroupBarrier();\nvar s = 0.0;\n\
             for (var d = 0u; d < {length}; d++) {{ s = fma(queries[row * {pitch}u + d], tile[column * {pitch_kv}u + d], s); }}\n\
             s = s * bitcast<f32>({scale});\nif (k0 + column >= seen) {{ s = -f_inf(); }}\n\
             scores[row * {pitch_s}u + column] = s;\nworkgroupBarrier();\n{values}var most = top;\n\
             for (var c = 0u; c < {SIDE}u; c++) {{ most = f_max(most, scores[row * {pitch_s}u + c]); }}\n\
             let base = select(most, 0.0, bitcast<u32>(most) == 0xff800000u);\nlet shrink = p_exp(top - base);\n\
             weights[row * {pitch_s}u + column] = p_exp(s - base);\ntop = most;\nsum = sum * shrink;\nworkgroupBarrier();\n",
            keys = load("k_at", head, param(HEAD), param(OFFSETS + 1)),
            values = load("v_at", value, param(VALUE), param(OFFSETS + 2)),
            length = param(HEAD),
            scale = param(SCALE),
        );
        for j in 0..value / SIDE {
            let _ = writeln!(body, "c{j} = c{j} * shrink;");
        }
        let _ = writeln!(
            body,
            "for (var c = 0u; c < {SIDE}u; c++) {{\nlet w = weights[row * {pitch_s}u + c];\nsum = sum + w;"
        );
        for j in 0..value / SIDE {
            let at = format!("c * {pitch_kv}u + column + {}u", j * SIDE);
            // An invisible key adds nothing, even if its value is NaN.
            let _ = writeln!(body, "if (w != 0.0) {{ c{j} = fma(w, tile[{at}], c{j}); }}");
        }
        let _ = write!(
            body,
            "}}\nworkgroupBarrier();\n}}\nif (first + row < {}) {{\nlet y0 = {} + (z * {} + first + row) * {};\n",
            param(QUERIES),
            param(OFFSETS + 3),
            param(QUERIES),
            param(VALUE)
        );
        for j in 0..value / SIDE {
            let _ = writeln!(
                body,
                "if (column + {o}u < {length}) {{ var y = 0.0;\nif (seen > 0u) {{ y = p_div(c{j}, sum); }}\ny_set(y0 + column + {o}u, y); }}",
                o = j * SIDE,
                length = param(VALUE)
            );
        }
        body.push_str("}\n");
        Ok(source.finish(THREADS as u32, &body))
    }
}

impl Form {
    /// Bytes of workgroup memory.
    fn shared(self) -> usize {
        let longest = self.head.max(self.value);
        4 * SIDE * ((self.head + 1) + (longest + 1) + 2 * (SIDE + 1))
    }
}

impl Session<'_> {
    /// Computes attention if it fits; returns whether it did.
    pub(crate) fn flash(&mut self, call: &Attention) -> Result<bool> {
        let heads = call.batch * call.heads;
        let form = Form {
            dtype: call.dtype,
            head: call.head_dim.next_multiple_of(SIDE).max(SIDE),
            value: call.value_dim.next_multiple_of(SIDE).max(SIDE),
            causal: call.causal,
        };
        let room = self.gpu.limits.max_compute_workgroup_storage_size as usize;
        let most = self.gpu.limits.max_compute_workgroups_per_dimension as usize;
        if form.head.max(form.value) > MAX_WIDTH || form.shared() > room || heads > most {
            return Ok(false);
        }
        let (spans, size) = (call.spans()?, call.dtype.size());
        self.countable(spans.iter().copied().max().unwrap_or(0) / size)?;
        let target = self.words_for(call.output, spans[3] / size, call.dtype)?;
        let mut places = Vec::with_capacity(3);
        for (ptr, span) in [(call.q, spans[0]), (call.k, spans[1]), (call.v, spans[2])] {
            places.push(match span {
                0 => target.place.clone(),
                _ => self.typed(ptr, span, call.dtype)?,
            });
        }
        let mut params = [call.seq_q, call.seq_kv, call.head_dim, call.value_dim]
            .map(|x| x as u32)
            .to_vec();
        params.push((call.scale as f32).to_bits());
        params.extend(places.iter().map(|place| (place.at / size) as u32));
        params.push((target.place.at / 4) as u32);
        let operands = [&places[0], &places[1], &places[2], &target.place];
        let groups = [call.seq_q.div_ceil(SIDE) as u64, heads as u64];
        self.launch(Box::new(form), &operands, &params, groups)?;
        self.finish(&target)?;
        Ok(true)
    }
}
