//! Products by tiles in workgroup memory: the common frame of matrix products and convolutions.

use std::fmt::Write as _;

use crate::source::{Source, param};

/// How the work is divided: a workgroup computes a tile of `m × n`, with `k` terms at a time; a thread computes `tm ×
/// tn` numbers of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tile {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) tm: usize,
    pub(crate) tn: usize,
}

/// For small results.
pub(crate) const SMALL: Tile = Tile {
    m: 32,
    n: 32,
    k: 16,
    tm: 2,
    tn: 2,
};
/// For most results.
pub(crate) const MIDDLE: Tile = Tile {
    m: 64,
    n: 64,
    k: 16,
    tm: 4,
    tn: 4,
};
/// For large results, on devices with enough registers.
pub(crate) const LARGE: Tile = Tile {
    m: 128,
    n: 128,
    k: 8,
    tm: 8,
    tn: 8,
};

/// Threads per workgroup, for any tile.
const THREADS: usize = 256;

/// The parameters that every product begins with.
pub(crate) const M: usize = 0;
pub(crate) const N: usize = 1;
pub(crate) const K: usize = 2;
/// Number of terms that a workgroup sums up.
pub(crate) const CHUNK: usize = 3;
/// Number of parts into which the terms are split.
pub(crate) const PARTS: usize = 4;
/// Start of a product's own parameters.
pub(crate) const OWN: usize = 5;

impl Tile {
    /// The tile for a result of `m × n`, of which `batch` are computed at a time.
    pub(crate) fn choose(m: usize, n: usize, batch: usize, software: bool) -> Self {
        let tiles = |tile: Self| m.div_ceil(tile.m) * n.div_ceil(tile.n) * batch;
        match () {
            () if !software && m >= 128 && n >= 128 && tiles(LARGE) >= 128 => LARGE,
            () if m >= 48 && n >= 48 && (software || tiles(MIDDLE) >= 64) => MIDDLE,
            () => SMALL,
        }
    }

    /// Number of workgroups.
    pub(crate) fn groups(self, m: usize, n: usize) -> u64 {
        m.div_ceil(self.m) as u64 * n.div_ceil(self.n) as u64
    }

    /// The shader, given functions `load_a(i, k, z)`, `load_b(k, j, z)` and `store(i, j, part, z, v)` in the source.
    /// The loaders are called only with indices in range. Neighbouring threads load along `k` if the operand is
    /// contiguous in that direction.
    pub(crate) fn shader(self, mut source: Source<'_>, a_along_k: bool, b_along_k: bool) -> String {
        let Self { m, n, k, tm, tn } = self;
        let (across, pa, pb) = (n / tn, m + 1, n + 1);
        source.share("sa", "f32", k * pa);
        source.share("sb", "f32", k * pb);
        let mut body = format!(
            "let tiles = ({pn} + {last}u) / {n}u;\nlet count = tiles * (({pm} + {last_m}u) / {m}u);\n\
             if (wg >= count) {{ return; }}\n\
             let row = (wg / tiles) * {m}u;\nlet column = (wg % tiles) * {n}u;\n\
             let part = wid.z % {parts};\nlet z = wid.z / {parts};\n\
             let begin = part * {chunk};\nlet end = min(begin + {chunk}, {pk});\n\
             let tx = lane % {across}u;\nlet ty = (lane / {across}u) * {tm}u;\n",
            pn = param(N),
            pm = param(M),
            pk = param(K),
            parts = param(PARTS),
            chunk = param(CHUNK),
            last = n - 1,
            last_m = m - 1,
        );
        for x in 0..tm {
            for y in 0..tn {
                let _ = writeln!(body, "var c{x}_{y} = 0.0;");
            }
        }
        let _ = writeln!(body, "for (var k0 = begin; k0 < end; k0 = k0 + {k}u) {{");
        let mut load = |name: &str, extent: usize, pitch: usize, along_k: bool, is_a: bool| {
            let split = match along_k {
                true => format!("let kk = e % {k}u;\nlet x = e / {k}u;"),
                false => format!("let x = e % {extent}u;\nlet kk = e / {extent}u;"),
            };
            let (at, bound, call) = match is_a {
                true => ("row + x", param(M), "load_a(row + x, k0 + kk, z)"),
                false => ("column + x", param(N), "load_b(k0 + kk, column + x, z)"),
            };
            let _ = writeln!(
                body,
                "for (var e = lane; e < {total}u; e = e + {THREADS}u) {{\n{split}\nvar v = 0.0;\n\
                 if ({at} < {bound} && k0 + kk < end) {{ v = {call}; }}\n{name}[kk * {pitch}u + x] = v;\n}}",
                total = extent * k
            );
        };
        load("sa", m, pa, a_along_k, true);
        load("sb", n, pb, b_along_k, false);
        let _ = writeln!(body, "workgroupBarrier();\nfor (var kk = 0u; kk < {k}u; kk++) {{");
        for x in 0..tm {
            let _ = writeln!(body, "let a{x} = sa[kk * {pa}u + ty + {x}u];");
        }
        for y in 0..tn {
            let _ = writeln!(body, "let d{y} = sb[kk * {pb}u + tx + {}u];", y * across);
        }
        for x in 0..tm {
            for y in 0..tn {
                let _ = writeln!(body, "c{x}_{y} = fma(a{x}, d{y}, c{x}_{y});");
            }
        }
        body.push_str("}\nworkgroupBarrier();\n}\n");
        for x in 0..tm {
            let _ = writeln!(body, "if (row + ty + {x}u < {}) {{", param(M));
            for y in 0..tn {
                let _ = writeln!(
                    body,
                    "if (column + tx + {o}u < {n}) {{ store(row + ty + {x}u, column + tx + {o}u, part, z, c{x}_{y}); }}",
                    o = y * across,
                    n = param(N)
                );
            }
            body.push_str("}\n");
        }
        source.finish(THREADS as u32, &body)
    }
}
