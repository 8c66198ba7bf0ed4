//! Matrix products.

use std::fmt::Write as _;

use polygrad_core::compute::{Batch, DeviceView, Elementwise, ElementwiseProgram, Gemm, Step};
use polygrad_core::{DType, Layout, Result, Shape};

use crate::gpu::Session;
use crate::kernel::Kernel;
use crate::source::{Access, Slots, Source, param};
use crate::tile::{K, M, N, OWN, Tile};

/// Parameters of a product: offset, leading dimension and batch stride of A, B and C, then alpha and beta.
const A: usize = OWN;
const B: usize = OWN + 3;
const C: usize = OWN + 6;
const ALPHA: usize = OWN + 9;
const BETA: usize = OWN + 10;

/// How the product is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Plan {
    /// By tiles.
    Tiled(Tile),
    /// For at most this many columns of C (or rows, if `flip`), all of which a thread handles. `dots`: the long operand
    /// is contiguous along the terms, and a workgroup computes one row; otherwise neighbouring threads handle
    /// neighbouring rows.
    Skinny { width: usize, flip: bool, dots: bool },
}

/// The properties that a product's shader depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) plan: Plan,
    /// The dtype of A and B; C is f32.
    pub(crate) dtype: DType,
    pub(crate) trans_a: bool,
    pub(crate) trans_b: bool,
    /// Whether C is read.
    pub(crate) beta: bool,
}

/// Threads of a workgroup for skinny products.
const THREADS: usize = 128;
/// Of these, the threads on neighbouring rows, if the long operand is contiguous across the terms.
const ROWS: usize = 32;

impl Kernel for Form {
    fn name(&self) -> &'static str {
        "gemm"
    }

    fn accesses(&self) -> Vec<Access> {
        vec![Access::Read, Access::Read, Access::Write]
    }

    fn source(&self, slots: &Slots) -> Result<String> {
        let mut source = Source::new(slots);
        source.loader("a_at", 0, self.dtype);
        source.loader("b_at", 1, self.dtype);
        source.loader("c_at", 2, DType::F32);
        source.storer("c_set", 2, DType::F32);
        let index = |base: usize, row: &str, column: &str, swapped: bool| {
            let (row, column) = if swapped { (column, row) } else { (row, column) };
            format!(
                "{} + z * {} + {row} * {} + {column}",
                param(base),
                param(base + 2),
                param(base + 1)
            )
        };
        source.function(&format!(
            "fn load_a(i: u32, k: u32, z: u32) -> f32 {{ return a_at({}); }}\n\
             fn load_b(k: u32, j: u32, z: u32) -> f32 {{ return b_at({}); }}",
            index(A, "i", "k", self.trans_a),
            index(B, "k", "j", self.trans_b)
        ));
        let value = format!("bitcast<f32>({}) * v", param(ALPHA));
        let value = match self.beta {
            true => format!("{value} + bitcast<f32>({}) * c_at(at)", param(BETA)),
            false => value,
        };
        source.function(&format!(
            "fn store(i: u32, j: u32, part: u32, z: u32, v: f32) {{ let at = {};\nc_set(at, {value}); }}",
            index(C, "i", "j", false)
        ));
        Ok(match self.plan {
            Plan::Tiled(tile) => tile.shader(source, !self.trans_a, self.trans_b),
            Plan::Skinny { width, flip, dots } => skinny(source, width, flip, dots),
        })
    }
}

/// For short rows of C, or of its transpose: each thread sums up some terms of all elements, and a workgroup adds up
/// its threads' sums.
fn skinny(mut source: Source<'_>, width: usize, flip: bool, dots: bool) -> String {
    // Rows of a workgroup, and threads per row.
    let (rows, slices) = if dots { (1, THREADS) } else { (ROWS, THREADS / ROWS) };
    source.share("sums", "f32", THREADS * width);
    let (long, short) = if flip {
        (param(N), param(M))
    } else {
        (param(M), param(N))
    };
    let k = param(K);
    let mut body = format!(
        "let z = wid.z;\nif (wg * {rows}u >= {long}) {{ return; }}\n\
         let i = wg * {rows}u + lane % {rows}u;\nlet slice = lane / {rows}u;\n"
    );
    for j in 0..width {
        let _ = writeln!(body, "var c{j} = 0.0;");
    }
    let one = if flip { "load_b(k, i, z)" } else { "load_a(i, k, z)" };
    let _ = writeln!(
        body,
        "if (i < {long}) {{\nfor (var k = slice; k < {k}; k = k + {slices}u) {{\nlet v = {one};"
    );
    for j in 0..width {
        let other = if flip {
            format!("load_a({j}u, k, z)")
        } else {
            format!("load_b(k, {j}u, z)")
        };
        let _ = writeln!(body, "if ({j}u < {short}) {{ c{j} = fma(v, {other}, c{j}); }}");
    }
    body.push_str("}\n}\n");
    for j in 0..width {
        let _ = writeln!(body, "sums[{}u + lane] = c{j};", j * THREADS);
    }
    body.push_str("workgroupBarrier();\n");
    let mut step = slices / 2;
    while step > 0 {
        let _ = writeln!(body, "if (slice < {step}u) {{");
        for j in 0..width {
            let base = j * THREADS;
            let _ = writeln!(
                body,
                "sums[{base}u + lane] = sums[{base}u + lane] + sums[{base}u + lane + {}u];",
                step * rows
            );
        }
        body.push_str("}\nworkgroupBarrier();\n");
        step /= 2;
    }
    let _ = writeln!(body, "if (slice == 0u && i < {long}) {{");
    for j in 0..width {
        let at = if flip { format!("{j}u, i") } else { format!("i, {j}u") };
        let _ = writeln!(
            body,
            "if ({j}u < {short}) {{ store({at}, 0u, z, sums[{}u + lane]); }}",
            j * THREADS
        );
    }
    body.push_str("}\n");
    source.finish(THREADS as u32, &body)
}

impl Form {
    fn new(call: &Gemm, count: usize, software: bool) -> Self {
        let (trans_a, trans_b) = (call.trans_a.swaps(), call.trans_b.swaps());
        let narrow = call.m.min(call.n);
        let plan = match narrow < 16 && call.k >= 32 {
            true => {
                let flip = call.m < call.n;
                Plan::Skinny {
                    width: narrow.next_power_of_two(),
                    flip,
                    dots: if flip { trans_b } else { !trans_a },
                }
            }
            false => Plan::Tiled(Tile::choose(call.m, call.n, count, software)),
        };
        Self {
            plan,
            dtype: call.dtype,
            trans_a,
            trans_b,
            beta: call.beta != 0.0,
        }
    }

    fn groups(self, m: usize, n: usize) -> u64 {
        match self.plan {
            Plan::Tiled(tile) => tile.groups(m, n),
            Plan::Skinny { flip, dots, .. } => {
                let long = if flip { n } else { m };
                (if dots { long } else { long.div_ceil(ROWS) }) as u64
            }
        }
    }
}

impl Session<'_> {
    pub(crate) fn gemm(&mut self, call: &Gemm, batch: &Batch) -> Result<()> {
        let [_, _, span_c] = batch.spans(call)?;
        self.offers(call.dtype)?;
        if span_c == 0 {
            return Ok(());
        }
        if call.dtype_c != DType::F32 {
            return self.gemm_narrow(call, batch, span_c);
        }
        let software = crate::adapter::is_software(&self.gpu.info);
        self.gemm_by(Form::new(call, batch.count, software), call, batch)
    }

    /// Computes the product in f32, in a given form.
    fn gemm_by(&mut self, form: Form, call: &Gemm, batch: &Batch) -> Result<()> {
        let [span_a, span_b, span_c] = batch.spans(call)?;
        let c = self.typed(call.c, span_c, call.dtype_c)?;
        let operand = |ptr, span| match span {
            0 => Ok(c.clone()),
            _ => self.typed(ptr, span, call.dtype),
        };
        let (a, b) = (operand(call.a, span_a)?, operand(call.b, span_b)?);
        let size = call.dtype.size();
        let most = self.gpu.limits.max_compute_workgroups_per_dimension as usize;
        let mut first = 0;
        while first < batch.count {
            let count = (batch.count - first).min(most);
            let params = [
                call.m,
                call.n,
                call.k,
                call.k.max(1),
                1,
                a.at / size + first * batch.stride_a,
                call.lda,
                batch.stride_a,
                b.at / size + first * batch.stride_b,
                call.ldb,
                batch.stride_b,
                c.at / 4 + first * batch.stride_c,
                call.ldc,
                batch.stride_c,
            ];
            let mut params: Vec<u32> = params.iter().map(|&x| x as u32).collect();
            params.extend([(call.alpha as f32).to_bits(), (call.beta as f32).to_bits()]);
            let groups = [form.groups(call.m, call.n), count as u64];
            self.launch(Box::new(form), &[&a, &b, &c], &params, groups)?;
            first += count;
        }
        Ok(())
    }

    /// Computes a product of a dtype smaller than a word, in f32, and rounds it once.
    fn gemm_narrow(&mut self, call: &Gemm, batch: &Batch, span_c: usize) -> Result<()> {
        self.typed(call.c, span_c, call.dtype_c)?;
        let shape = Shape::new(&[batch.count, call.m, call.n])?;
        let wide = self.temporary(shape.numel() * 4)?;
        let wide = self.address(&wide, shape.numel() * 4)?;
        let strides = [batch.stride_c as isize, call.ldc as isize, 1];
        let narrow = DeviceView::new(call.c, call.dtype_c, Layout::strided(shape, &strides, 0));
        let between = DeviceView::contiguous(wide, DType::F32, shape);
        if call.beta != 0.0 {
            self.convert(&narrow, &between)?;
        }
        let call = Gemm {
            c: wide,
            ldc: call.n,
            dtype_c: DType::F32,
            ..*call
        };
        let batch = Batch {
            stride_c: call.m * call.n,
            ..*batch
        };
        self.gemm(&call, &batch)?;
        self.convert(&between, &narrow)
    }

    /// Converts elements to another dtype.
    pub(crate) fn convert(&mut self, from: &DeviceView, to: &DeviceView) -> Result<()> {
        let mut program = ElementwiseProgram::default();
        let mut x = program.input(from.dtype);
        if from.dtype != to.dtype {
            x = program.push(Step::Cast(x, to.dtype))?;
        }
        program.output(x);
        self.elementwise(&Elementwise {
            program: &program,
            shape: *to.shape(),
            inputs: &[*from],
            scalars: &[],
            outputs: &[*to],
        })
    }
}

#[cfg(test)]
mod tests {
    use polygrad_core::compute::{ComputeBackend, Transpose};

    use super::*;
    use crate::WgpuDriver;
    use crate::tile::LARGE;

    /// Large tiles are otherwise never chosen on a software adapter.
    #[test]
    fn large_tiles_compute_the_same() {
        let driver = WgpuDriver::open(None);
        if let Err(error) = driver.init() {
            assert!(std::env::var_os("CI").is_none(), "no adapter: {error}");
            eprintln!("skipped: large_tiles_compute_the_same: {error}");
            return;
        }
        let (m, n, k) = (130, 129, 19);
        let numbers = |len: usize, step: usize| (0..len).map(|i| (i * step % 17) as f32 - 8.0).collect::<Vec<_>>();
        let (a, b) = (numbers(m * k, 5), numbers(k * n, 3));
        let [pa, pb, pc] = [m * k, k * n, m * n].map(|len| driver.alloc(len * 4).unwrap());
        driver.copy_htod(pa, bytemuck::cast_slice(&a)).unwrap();
        driver.copy_htod(pb, bytemuck::cast_slice(&b)).unwrap();
        let call = Gemm {
            dtype: DType::F32,
            dtype_c: DType::F32,
            trans_a: Transpose::No,
            trans_b: Transpose::No,
            m,
            n,
            k,
            alpha: 1.0,
            beta: 0.0,
            a: pa,
            lda: k,
            b: pb,
            ldb: n,
            c: pc,
            ldc: n,
        };
        let form = Form {
            plan: Plan::Tiled(LARGE),
            ..Form::new(&call, 1, true)
        };
        driver.session().unwrap().gemm_by(form, &call, &Batch::ONE).unwrap();
        let mut c = vec![0f32; m * n];
        driver.copy_dtoh(bytemuck::cast_slice_mut(&mut c), pc).unwrap();
        for i in 0..m {
            for j in 0..n {
                let truth: f32 = (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum();
                assert_eq!(c[i * n + j], truth, "at {i}, {j}");
            }
        }
    }
}
