//! The allocations of runs after the first: tensor handles and arguments of ops, but no memory for elements.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use polygrad_cpu::{Cpu, CpuDevice, Kernels, memory};
use polygrad_nn::models::{BertClassifier, BertConfig, BertInput, Mlp, MlpConfig};
use polygrad_nn::{Conv2dConfig, Flatten, LSTM, LSTMConfig, Linear, MaxPool2d, Module, ReLU, Sequential};
use polygrad_onnx::graph::Graph;
use polygrad_onnx::{Export, ExportOnnx, Input, OnnxModel, Options};
use polygrad_tensor::{DType, Device, Result, Tensor};

/// Counts a thread's allocations.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator.
#[allow(unsafe_code, reason = "an allocator is unsafe to write")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() + layout.size()));
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations and bytes of the fifth run, executed by the plan or replayed, and how many of the blocks hold tensors'
/// elements.
fn fifth_run(graph: &Graph, inputs: &[Tensor], device: &Device, replay: bool) -> (usize, usize, u64) {
    let options = Options {
        replay,
        ..Options::default()
    };
    let model = OnnxModel::from_graph(graph, device, options).unwrap();
    for _ in 0..4 {
        model.forward(inputs).unwrap();
    }
    let fresh = || {
        let stats = memory::stats();
        stats.allocations - stats.reuses
    };
    let (blocks, count, bytes) = (fresh(), COUNT.get(), BYTES.get());
    let outputs = model.forward(inputs).unwrap();
    let (count, bytes) = (COUNT.get() - count, BYTES.get() - bytes);
    drop(outputs);
    (count, bytes, fresh() - blocks)
}

fn measured<M: Module>(
    name: &str,
    model: &M,
    inputs: Vec<Input>,
    batch: usize,
    forward: impl Fn(&M, &[Tensor]) -> Result<Tensor>,
) -> [usize; 2] {
    let cpu = Device::<Cpu>::from_inner(CpuDevice::new(1, Kernels::default()).unwrap()).into_any();
    let graph = model
        .record_onnx(&Export::new(inputs.clone()), |x| forward(model, x))
        .unwrap();
    let made: Vec<Tensor> = inputs
        .iter()
        .map(|input| {
            let dims: Vec<usize> = input
                .dims()
                .iter()
                .map(|dim| match dim {
                    polygrad_onnx::graph::Dim::Fixed(extent) => *extent,
                    _ => batch,
                })
                .collect();
            Tensor::full(dims, 1.0, (&cpu, input.dtype())).unwrap()
        })
        .collect();
    [false, true].map(|replay| {
        let (count, bytes, blocks) = fifth_run(&graph, &made, &cpu, replay);
        println!("{name}, replay {replay}: {count} allocations, {bytes} bytes, {blocks} blocks of elements");
        assert_eq!(blocks, 0, "{name} allocates memory for elements");
        count
    })
}

#[derive(Module)]
struct Sequence {
    lstm: LSTM,
    head: Linear,
}

#[test]
fn later_runs_allocate_no_memory_for_elements() {
    let device = Device::<Cpu>::default().into_any();
    let images = vec![Input::new("x", DType::F32, ("batch", 1, 12, 12))];
    let mlp = Mlp::new(&MlpConfig::new([20, 16, 12, 3]), &device).unwrap();
    let x = vec![Input::new("x", DType::F32, ("batch", 20))];
    let count = measured("mlp", &mlp, x, 4, |m, x| m.forward(&x[0]));
    within("mlp", count, 3);
    let cnn = Sequential::new()
        .push(Conv2dConfig::new(1, 4, 3).padding(1).build(&device).unwrap())
        .push(ReLU)
        .push(MaxPool2d::new(2))
        .push(Flatten::default())
        .push(Linear::new(144, 10, &device).unwrap());
    let count = measured("cnn", &cnn, images, 4, |m, x| m.forward(&x[0]));
    within("cnn", count, 5);
    let lstm = Sequence {
        lstm: LSTMConfig::new(5, 7).batch_first(true).build(&device).unwrap(),
        head: Linear::new(7, 3, &device).unwrap(),
    };
    let x = vec![Input::new("x", DType::F32, ("batch", 11, 5))];
    let count = measured("lstm", &lstm, x, 4, |m, x| {
        let (_, (hidden, _)) = m.lstm.forward(&x[0], None)?;
        m.head.forward(&hidden.select(0, 0)?)
    });
    within("lstm", count, 13);
    let config = BertConfig {
        vocab_size: 40,
        hidden_size: 24,
        num_hidden_layers: 2,
        num_attention_heads: 3,
        intermediate_size: 32,
        ..BertConfig::default()
    };
    let bert = BertClassifier::new(&config, &device).unwrap();
    let tokens = |name, below| Input::new(name, DType::I64, ("batch", 8)).below(below);
    let inputs = vec![tokens("ids", 40), tokens("mask", 2)];
    let count = measured("bert", &bert, inputs, 4, |m, x| {
        m.forward(BertInput::new(&x[0]).attention_mask(&x[1]))
    });
    within("bert", count, 74);
}

/// With the plan at most as many as docs/onnx.md says, and at most 3 in a replay.
fn within(name: &str, [plan, replay]: [usize; 2], most: usize) {
    assert!(plan <= most, "{name}: {plan} allocations, at most {most} are wanted");
    assert!(replay <= 3, "{name}: {replay} allocations of a replay");
}
