//! A GPU emulated on the CPU: the machine's C++ compiler compiles the generated CUDA C, which runs block by block over
//! host memory.
#![allow(unsafe_code)]

use std::any::Any;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use libloading::Library;
use polygrad_core::compute::Transpose;
use polygrad_core::{DType, Element, Error, ErrorKind, Result, bf16, f16};
use polygrad_cuda::runtime::{Facts, Function, Product, Readback, Runtime};

const BEFORE: &str = include_str!("cuda.h");
const BEHIND: &str = include_str!("launch.h");

/// Bytes of the largest allocation.
const MEMORY: usize = 1 << 30;

/// Compiler flags. As with NVRTC, products and sums are not fused, and arithmetic is IEEE's.
const FLAGS: [&str; 8] = [
    "-std=c++20",
    "-O1",
    "-shared",
    "-fPIC",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-w",
    "-U_FORTIFY_SOURCE",
];

type Launch = unsafe extern "C" fn(*const u64, u32, u32, i32);

struct Kernel {
    launch: Launch,
    size: usize,
    waits: bool,
    _library: Library,
}

/// Memory, which the kernels access directly.
struct Block {
    address: u64,
    layout: std::alloc::Layout,
}

/// Recorded calls, the recording thread, and the recording's scratch memory.
struct Recording {
    thread: ThreadId,
    calls: Vec<Call>,
    scratch: Vec<Block>,
}

/// A recorded call.
enum Call {
    Launch(Function, u32, u32, Vec<u64>),
    Gemm(Product),
    Copy(u64, u64, usize),
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout and is freed once.
        unsafe { std::alloc::dealloc(self.address as *mut u8, self.layout) };
    }
}

#[derive(Default)]
struct State {
    recording: Option<Recording>,
    kernels: Vec<Kernel>,
    blocks: Vec<Block>,
}

impl State {
    /// The recording of this thread, if any.
    fn recording(&mut self) -> Option<&mut Recording> {
        let thread = std::thread::current().id();
        self.recording.as_mut().filter(|recording| recording.thread == thread)
    }
}

/// The emulated device, see the [module](self). `busy` and `block` can be chosen, so that small inputs take the code
/// paths of large ones.
#[derive(Clone)]
pub(crate) struct Emulator {
    facts: Facts,
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for Emulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Emulator({} threads a block)", self.facts.block)
    }
}

/// Whether there is a C++ compiler; under CI there must be one.
pub(crate) fn present() -> bool {
    let found = Command::new("c++")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    if !found {
        assert!(
            std::env::var_os("CI").is_none_or(|ci| ci != "true"),
            "c++ is missing: apt-get install g++"
        );
        println!("skipped: no C++ compiler emulates CUDA");
    }
    found
}

impl Emulator {
    pub(crate) fn new(block: u32, busy: u32, matrices: bool) -> Self {
        Self {
            facts: Facts {
                name: "an emulated GPU".to_owned(),
                block,
                busy,
                matrices,
            },
            state: Arc::default(),
        }
    }

    /// Number of current allocations.
    pub(crate) fn allocations(&self) -> usize {
        self.state.lock().unwrap().blocks.len()
    }
}

/// The library compiled from a source, kept between test runs.
fn library(source: &str) -> PathBuf {
    let text = format!("{BEFORE}\n{source}\n{BEHIND}");
    let mut hasher = DefaultHasher::new();
    (&text, FLAGS).hash(&mut hasher);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{:016x}.so", hasher.finish()));
    if path.exists() {
        return path;
    }
    // Other processes may make the same library: each writes a file of its own, and the last one stays.
    let unique = format!("{}-{:?}", std::process::id(), std::thread::current().id());
    let beside = path.with_extension(unique.replace(['(', ')'], ""));
    let (input, output) = (beside.with_added_extension("cpp"), beside.with_added_extension("new"));
    std::fs::write(&input, &text).unwrap();
    let done = Command::new("c++")
        .args(FLAGS)
        .arg("-o")
        .arg(&output)
        .arg(&input)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}\n{source}",
        String::from_utf8_lossy(&done.stderr)
    );
    std::fs::rename(&output, &path).unwrap();
    let _ = std::fs::remove_file(&input);
    path
}

struct Done(Vec<u8>);

impl Readback for Done {
    fn wait(self: Box<Self>) -> Result<Vec<u8>> {
        Ok(self.0)
    }
}

impl Runtime for Emulator {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn alloc(&self, bytes: usize) -> Result<u64> {
        let none = || Error::new(ErrorKind::OutOfMemory, "the emulated device has no such memory");
        if bytes > MEMORY {
            return Err(none());
        }
        let layout = std::alloc::Layout::from_size_align(bytes, 256).map_err(|_| none())?;
        // SAFETY: the layout is not empty.
        let address = unsafe { std::alloc::alloc(layout) };
        if address.is_null() {
            return Err(none());
        }
        // SAFETY: it has this many bytes. No kernel computes the number 0xa5a5…, so elements that were not written are
        // noticed.
        unsafe { address.write_bytes(0xa5, bytes) };
        let address = address as u64;
        self.state.lock().unwrap().blocks.push(Block { address, layout });
        Ok(address)
    }

    fn free(&self, address: u64) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        let at = state
            .blocks
            .iter()
            .position(|block| block.address == address)
            .expect("freed twice");
        let block = state.blocks.swap_remove(at);
        if let Some(recording) = state.recording() {
            recording.scratch.push(block);
        }
        Ok(())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        assert!(
            self.state.lock().unwrap().recording().is_none(),
            "a copy from the host cannot be recorded"
        );
        // SAFETY: the driver has checked the place.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
        Ok(())
    }

    fn read(&self, address: u64, bytes: usize) -> Result<Box<dyn Readback>> {
        if self.state.lock().unwrap().recording().is_some() {
            return Err(Error::unsupported("a copy to the host cannot be recorded"));
        }
        // SAFETY: the driver has checked the place.
        let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, bytes) };
        Ok(Box::new(Done(bytes.to_vec())))
    }

    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        assert!(to.abs_diff(from) >= bytes as u64, "a copy between places that overlap");
        if let Some(recording) = self.state.lock().unwrap().recording() {
            recording.calls.push(Call::Copy(to, from, bytes));
            return Ok(());
        }
        // SAFETY: the driver has checked the places.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
        Ok(())
    }

    fn compile(&self, source: &str, _name: &str) -> Result<Function> {
        let path = library(source);
        // SAFETY: the library is generated above, and has no initializers except C++'s own.
        let library = unsafe { Library::new(&path) }.unwrap();
        // SAFETY: the symbols are of these types.
        let (launch, size) = unsafe {
            let launch: Launch = *library.get(b"emulated_launch").unwrap();
            let size: unsafe extern "C" fn() -> u64 = *library.get(b"emulated_size").unwrap();
            (launch, size() as usize)
        };
        let mut state = self.state.lock().unwrap();
        state.kernels.push(Kernel {
            launch,
            size,
            waits: source.contains("__syncthreads"),
            _library: library,
        });
        Ok(Function(state.kernels.len() - 1))
    }

    fn launch(&self, function: Function, blocks: u32, threads: u32, args: &[u64]) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        if let Some(recording) = state.recording() {
            recording
                .calls
                .push(Call::Launch(function, blocks, threads, args.to_vec()));
            return Ok(());
        }
        let kernel = &state.kernels[function.0];
        assert_eq!(kernel.size, args.len() * 8, "the arguments are not the kernel's");
        // SAFETY: there are as many arguments as the kernel has, and the driver has checked what they point to.
        unsafe { (kernel.launch)(args.as_ptr(), blocks, threads, kernel.waits.into()) };
        Ok(())
    }

    fn gemm(&self, product: &Product) -> Result<()> {
        if let Some(recording) = self.state.lock().unwrap().recording() {
            recording.calls.push(Call::Gemm(*product));
            return Ok(());
        }
        match (product.dtype, product.dtype_c) {
            (DType::F64, _) => multiply::<f64, f64>(product),
            (DType::F32, _) => multiply::<f32, f32>(product),
            (DType::F16, DType::F32) => multiply::<f16, f32>(product),
            (DType::F16, _) => multiply::<f16, f16>(product),
            (DType::BF16, DType::F32) => multiply::<bf16, f32>(product),
            (DType::BF16, _) => multiply::<bf16, bf16>(product),
            (other, _) => panic!("cuBLAS multiplies no {other}"),
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn begin_capture(&self) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        assert!(state.recording.is_none(), "two threads record");
        state.recording = Some(Recording {
            thread: std::thread::current().id(),
            calls: Vec::new(),
            scratch: Vec::new(),
        });
        Ok(())
    }

    fn end_capture(&self) -> Result<Box<dyn Any + Send + Sync>> {
        Ok(Box::new(
            self.state
                .lock()
                .unwrap()
                .recording
                .take()
                .expect("nothing is recorded"),
        ))
    }

    fn aside(&self, calls: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        let own = match state.recording() {
            Some(_) => state.recording.take(),
            None => None,
        };
        drop(state);
        let done = calls();
        if own.is_some() {
            self.state.lock().unwrap().recording = own;
        }
        done
    }

    fn replay(&self, graph: &(dyn Any + Send + Sync)) -> Result<()> {
        let recording: &Recording = graph.downcast_ref().expect("a recording");
        recording.calls.iter().try_for_each(|call| match call {
            Call::Launch(function, blocks, threads, args) => self.launch(*function, *blocks, *threads, args),
            Call::Gemm(product) => self.gemm(product),
            Call::Copy(to, from, bytes) => self.copy(*to, *from, *bytes),
        })
    }
}

/// Products as cuBLAS defines them, summed in f64.
fn multiply<T: Element, U: Element>(product: &Product) {
    let ([m, n, k], [a, b, c]) = (product.dims.map(|dim| dim as usize), product.matrices);
    let leading = product.leading.map(|ld| ld as usize);
    let strides = product.strides.map(|stride| stride as usize);
    let rows = |trans: Transpose, rows, columns| if trans.swaps() { columns } else { rows };
    // Preconditions that cuBLAS checks.
    assert!(m > 0 && n > 0 && k > 0 && product.count > 0);
    assert!(leading[0] >= rows(product.trans_a, m, k) && leading[1] >= rows(product.trans_b, k, n) && leading[2] >= m);
    let at = |trans: Transpose, row: usize, column: usize, ld: usize| match trans.swaps() {
        true => column + row * ld,
        false => row + column * ld,
    };
    let mut done = HashSet::new();
    for i in 0..product.count as usize {
        for row in 0..m {
            for column in 0..n {
                // SAFETY: the driver has checked the matrices.
                unsafe {
                    let sum: f64 = (0..k)
                        .map(|term| {
                            let a = *(a as *const T).add(i * strides[0] + at(product.trans_a, row, term, leading[0]));
                            let b =
                                *(b as *const T).add(i * strides[1] + at(product.trans_b, term, column, leading[1]));
                            a.to_f64() * b.to_f64()
                        })
                        .sum();
                    let to = i * strides[2] + row + column * leading[2];
                    assert!(done.insert(to), "an element is written twice");
                    let to = (c as *mut U).add(to);
                    let before = if product.beta == 0.0 {
                        0.0
                    } else {
                        product.beta * (*to).to_f64()
                    };
                    *to = U::from_f64(product.alpha * sum + before);
                }
            }
        }
    }
}
