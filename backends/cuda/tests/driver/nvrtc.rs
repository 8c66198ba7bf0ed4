//! Compiles every kernel that calls make with NVIDIA's compiler, for two generations of devices.

use std::any::Any;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use polygrad_core::compute::{
    ArgReduce, Attention, AttentionBackward, ComputeBackend, Conv2d, CrossEntropy, CumSum, DevicePtr, DeviceView,
    Elementwise, ElementwiseProgram, Gather, Kernel, LayerNorm, Pool2d, Random, Reduce, Scatter, Softmax, Sort, Step,
};
use polygrad_core::{
    ArgOp, Axes, BinaryOp, CompareOp, ConvParams, CrossEntropyParams, DType, Distribution, Layout, PoolParams,
    RandomKey, ReduceOp, Result, Shape, UnaryOp,
};
use polygrad_cuda::CudaDriver;
use polygrad_cuda::runtime::nvrtc::{self, Image};
use polygrad_cuda::runtime::{Facts, Function, Product, Readback, Runtime};

/// A device that compiles kernels, has addresses without memory, and runs nothing.
#[derive(Clone, Debug)]
struct Compiler {
    facts: Facts,
    next: Arc<AtomicU64>,
    sources: Arc<Mutex<HashSet<(String, String)>>>,
}

struct Zeros(usize);

impl Readback for Zeros {
    fn wait(self: Box<Self>) -> Result<Vec<u8>> {
        Ok(vec![0; self.0])
    }
}

impl Runtime for Compiler {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn alloc(&self, bytes: usize) -> Result<u64> {
        Ok(self.next.fetch_add(bytes as u64, Ordering::Relaxed))
    }

    fn free(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn write(&self, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn read(&self, _: u64, bytes: usize) -> Result<Box<dyn Readback>> {
        Ok(Box::new(Zeros(bytes)))
    }

    fn copy(&self, _: u64, _: u64, _: usize) -> Result<()> {
        Ok(())
    }

    fn compile(&self, source: &str, name: &str) -> Result<Function> {
        self.sources
            .lock()
            .unwrap()
            .insert((name.to_owned(), source.to_owned()));
        Ok(Function(0))
    }

    fn launch(&self, _: Function, blocks: u32, threads: u32, args: &[u64]) -> Result<()> {
        assert!(blocks > 0 && (1..=1024).contains(&threads) && args.len() <= 512);
        Ok(())
    }

    fn gemm(&self, _: &Product) -> Result<()> {
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn begin_capture(&self) -> Result<()> {
        Ok(())
    }

    fn end_capture(&self) -> Result<Box<dyn Any + Send + Sync>> {
        Ok(Box::new(()))
    }

    fn aside(&self, calls: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        calls()
    }

    fn replay(&self, _: &(dyn Any + Send + Sync)) -> Result<()> {
        Ok(())
    }
}

/// Whether NVRTC is present; under CI it must be.
fn present() -> bool {
    match nvrtc::present() {
        Ok(()) => true,
        Err(error) => {
            assert!(
                std::env::var_os("CI").is_none_or(|ci| ci != "true"),
                "cargo xtask setup nvrtc: {error}"
            );
            println!("skipped: {error}");
            false
        }
    }
}

/// The sources that the calls need, without duplicates.
fn sources(calls: impl Fn(&CudaDriver, DevicePtr) -> Result<()>) -> Vec<(String, String)> {
    let compiler = Compiler {
        facts: Facts {
            name: "a compiler".to_owned(),
            block: 256,
            busy: 1024,
            matrices: true,
        },
        next: Arc::new(AtomicU64::new(1 << 20)),
        sources: Arc::default(),
    };
    let driver = CudaDriver::over(Box::new(compiler.clone()));
    driver.init().unwrap();
    let ptr = driver.alloc(1 << 36).unwrap();
    calls(&driver, ptr).unwrap();
    driver.synchronize().unwrap();
    let sources = compiler.sources.lock().unwrap();
    sources.iter().cloned().collect()
}

/// Compiles sources for two generations of devices.
fn compile(what: &str, sources: &[(String, String)]) {
    if !present() {
        return;
    }
    assert!(!sources.is_empty());
    for (name, source) in sources {
        let ptx = nvrtc::ptx(source, 80).unwrap();
        assert!(String::from_utf8_lossy(ptx.bytes()).contains(&format!(".entry {name}(")));
        // Through PTX to machine code, so that the assembler checks it as well.
        match nvrtc::compile(source, 90).unwrap() {
            Image::Cubin(bytes) => assert!(bytes.starts_with(b"\x7fELF")),
            other => panic!("{other:?}"),
        }
    }
    println!("{what}: {} kernels for sm_80 and sm_90", sources.len());
}

fn program(inputs: &[DType], steps: impl Fn(&[polygrad_core::compute::Value]) -> Vec<Step>) -> ElementwiseProgram {
    let mut program = ElementwiseProgram::default();
    let values: Vec<_> = inputs.iter().map(|&dtype| program.input(dtype)).collect();
    for step in steps(&values) {
        let value = program.push(step).unwrap();
        program.output(value);
    }
    program
}

/// Runs a program over contiguous elements, and over axes that cannot be merged.
fn run(driver: &CudaDriver, ptr: DevicePtr, program: &ElementwiseProgram) -> Result<()> {
    let shape = Shape::from([16, 32]);
    let exchanged = Layout::contiguous(Shape::from([32, 16])).permute(Axes::new([1, 0])?);
    for layout in [Layout::contiguous(shape), exchanged] {
        let inputs: Vec<_> = program
            .inputs()
            .iter()
            .map(|&dtype| DeviceView::new(ptr, dtype, layout))
            .collect();
        let outputs: Vec<_> = (program.outputs().iter().enumerate())
            .map(|(i, &value)| {
                let dtype = program.dtype(value).unwrap();
                DeviceView::contiguous(ptr.add((i + 1) << 20), dtype, shape)
            })
            .collect();
        driver.elementwise(&Elementwise {
            program,
            shape,
            inputs: &inputs,
            scalars: &[],
            outputs: &outputs,
        })?;
    }
    Ok(())
}

#[test]
fn element_wise_kernels_compile() {
    let all = sources(|driver, ptr| {
        for dtype in DType::ALL {
            let unary = program(&[dtype], |x| {
                let ops = UnaryOp::ALL.iter().filter(|op| op.accepts(dtype));
                ops.map(|&op| Step::Unary(op, x[0])).collect()
            });
            let binary = program(&[dtype, dtype], |x| {
                let ops = BinaryOp::core().filter(|op| op.accepts(dtype));
                let binary = ops.map(|op| Step::Binary(op, x[0], x[1]));
                binary
                    .chain(CompareOp::ALL.iter().map(|&op| Step::Compare(op, x[0], x[1])))
                    .collect()
            });
            let cast = program(&[dtype, DType::Bool], |x| {
                let casts = DType::ALL.into_iter().map(|to| Step::Cast(x[0], to));
                casts.chain([Step::Select(x[1], x[0], x[0])]).collect()
            });
            for program in [unary, binary, cast] {
                run(driver, ptr, &program)?;
            }
        }
        Ok(())
    });
    compile("element-wise", &all);
}

#[test]
fn reductions_compile() {
    let all = sources(|driver, ptr| {
        let output = ptr.add(1 << 35);
        for dtype in DType::ALL {
            for op in ReduceOp::ALL.iter().copied().filter(|op| op.accepts(dtype)) {
                // One thread each, one block each, and in chunks.
                for (outer, len, inner) in [(1, 8, 4096), (512, 4096, 1), (1, 1 << 22, 1)] {
                    driver.reduce(&Reduce {
                        op,
                        dtype,
                        outer,
                        len,
                        inner,
                        input: ptr,
                        output,
                    })?;
                }
            }
        }
        Ok(())
    });
    compile("reductions", &all);
}

#[test]
fn lines_rows_and_indices_compile() {
    let all = sources(|driver, ptr| {
        let (index, output) = (ptr.add(1 << 34), ptr.add(1 << 35));
        for dtype in DType::ALL {
            let shape = Shape::from([16, 32, 8]);
            let input = DeviceView::contiguous(ptr, dtype, shape);
            for &op in ArgOp::ALL {
                driver.arg_reduce(&ArgReduce {
                    op,
                    input,
                    axis: 1,
                    output,
                })?;
            }
            for descending in [false, true] {
                driver.sort(&Sort {
                    input,
                    axis: 1,
                    descending,
                    values: output,
                    positions: index,
                })?;
            }
            let names = DeviceView::contiguous(index, DType::I64, shape);
            let scatter = Scatter {
                target: input,
                axis: 1,
                index: names,
                source: DeviceView::contiguous(output, dtype, shape),
            };
            driver.gather(&Gather {
                input,
                axis: 1,
                index: names,
                output,
            })?;
            driver.scatter(&scatter)?;
            for distribution in [
                Distribution::Uniform { low: 0.0, high: 1.0 },
                Distribution::Bernoulli { p: 0.5 },
                Distribution::Integers { low: 0, high: 9 },
            ] {
                driver.random(&Random {
                    dtype,
                    len: 100,
                    distribution,
                    key: RandomKey { seed: 1, offset: 2 },
                    output,
                })?;
            }
            if dtype != DType::Bool {
                driver.cumsum(&CumSum { input, axis: 1, output })?;
                driver.scatter_add(&scatter)?;
            }
            if !dtype.is_float() {
                continue;
            }
            for (log, columns) in [(false, 1000), (true, 1000), (false, 7)] {
                let call = Softmax {
                    dtype,
                    rows: 9,
                    columns,
                    log,
                    input: ptr,
                    saved: index,
                    output,
                };
                driver.softmax(&call)?;
                driver.softmax_backward(&call)?;
            }
            for columns in [1000, 7] {
                let call = CrossEntropy {
                    dtype,
                    rows: 9,
                    columns,
                    params: CrossEntropyParams::default(),
                    logits: ptr,
                    target: index,
                    loss: output,
                    logsumexp: output.add(1 << 20),
                    grad: output.add(1 << 21),
                };
                driver.cross_entropy(&call)?;
                driver.cross_entropy_backward(&call)?;
            }
            driver.layer_norm(&LayerNorm {
                dtype,
                rows: 9,
                columns: 1000,
                eps: 1e-5,
                input: ptr,
                weight: Some(ptr),
                bias: None,
                output,
                mean: index,
                rstd: index.add(1 << 20),
            })?;
        }
        Ok(())
    });
    compile("lines, rows and indices", &all);
}

#[test]
fn windows_and_attention_compile() {
    let all = sources(|driver, ptr| {
        let (weight, output) = (ptr.add(1 << 34), ptr.add(1 << 35));
        for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::Bool) {
            let params = PoolParams::new([2, 2, 1]);
            let pool = Pool2d {
                dtype,
                input_shape: [2, 3, 32, 32],
                params,
                input: ptr,
                output,
                positions: weight,
            };
            driver.max_pool2d(&pool)?;
            if !dtype.is_float() {
                continue;
            }
            driver.avg_pool2d(&pool)?;
            let conv = Conv2d {
                dtype,
                input_shape: [8, 16, 32, 32],
                weight_shape: [16, 16, 3, 3],
                params: ConvParams::default(),
                input: ptr,
                weight,
                output,
            };
            driver.conv2d_forward(&conv)?;
            driver.conv2d_input_grad(&conv)?;
            driver.conv2d_weight_grad(&conv)?;
            for (head, causal) in [(64, true), (64, false), (128, true), (40, false), (2000, true)] {
                if head > 1000 && dtype == DType::F64 {
                    continue;
                }
                let call = Attention {
                    dtype,
                    batch: 2,
                    heads: 4,
                    seq_q: 100,
                    seq_kv: 100,
                    head_dim: head,
                    value_dim: head,
                    scale: 0.125,
                    causal,
                    q: ptr,
                    k: ptr,
                    v: ptr,
                    output,
                };
                driver.attention(&call)?;
                if head <= 128 && driver.supports(Kernel::AttentionBackward, dtype) {
                    driver.attention_backward(&AttentionBackward {
                        forward: call,
                        grad: ptr,
                        to_q: output,
                        to_k: output,
                        to_v: output,
                    })?;
                }
            }
        }
        Ok(())
    });
    compile("windows and attention", &all);
}
