//! Times of the kernels, the least of many runs: `cargo bench -p polygrad-cpu -- [dispatch|elementwise|gemm|conv|…]`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use polygrad_core::{
    Activation, AdamParams, Axes, Backend, BinaryOp, ConvParams, CrossEntropyParams, DType, Distribution, PoolParams,
    RandomKey, ReduceOp, Result, Scalar, SgdParams, Shape, SliceRange, UnaryOp,
};
use polygrad_cpu::{Cpu, CpuDevice, CpuTensor, Kernels};

/// Nanoseconds that a call takes: the least mean of some batches.
fn time<T>(mut f: impl FnMut() -> Result<T>) -> f64 {
    let mut count = 1u32;
    loop {
        let start = Instant::now();
        for _ in 0..count {
            black_box(f().expect("the benchmark's op works"));
        }
        if start.elapsed() > Duration::from_millis(2) || count > 1 << 20 {
            break;
        }
        count *= 2;
    }
    let mut best = f64::INFINITY;
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(250) {
        let start = Instant::now();
        for _ in 0..count {
            black_box(f().expect("the benchmark's op works"));
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(count));
    }
    best
}

fn random(dims: &[usize], device: CpuDevice) -> CpuTensor {
    let distribution = Distribution::Normal { mean: 0.0, std: 1.0 };
    let shape = Shape::new(dims).expect("a small shape");
    Cpu::random(
        shape,
        distribution,
        DType::F32,
        RandomKey { seed: 1, offset: 0 },
        &device,
    )
    .expect("memory")
}

fn dispatch(device: CpuDevice) {
    for n in [64, 1024] {
        let (a, b) = (random(&[n], device), random(&[n], device));
        println!(
            "add f32[{n}]          {:8.1} ns",
            time(|| Cpu::binary(BinaryOp::Add, &a, &b))
        );
        println!("mul_scalar f32[{n}]   {:8.1} ns", time(|| Cpu::mul_scalar(&a, 2.0)));
        println!(
            "relu f32[{n}]         {:8.1} ns",
            time(|| Cpu::unary(UnaryOp::Relu, &a))
        );
        println!(
            "sum f32[{n}]          {:8.1} ns",
            time(|| Cpu::reduce(ReduceOp::Sum, &a, Axes::one(0), false))
        );
        println!("clone f32[{n}]        {:8.1} ns", time(|| Ok(a.clone())));
    }
    let (x, row) = (random(&[32, 64], device), random(&[64], device));
    println!(
        "add [32,64]+[64]      {:8.1} ns",
        time(|| Cpu::binary(BinaryOp::Add, &x, &row))
    );
    println!(
        "sum_to [32,64]->[64]  {:8.1} ns",
        time(|| Cpu::sum_to(&x, Shape::from([64])))
    );
}

fn elementwise(device: CpuDevice) {
    println!("ns per element      1,024   65,536  1,048,576  16,777,216");
    let sizes = [1 << 10, 1 << 16, 1 << 20, 1 << 24];
    let row = |name: &str, f: &dyn Fn(&CpuTensor) -> Result<CpuTensor>| {
        print!("{name:16}");
        for n in sizes {
            let x = random(&[n / 1024, 1024], device);
            print!("{:10.3}", time(|| f(&x)) / n as f64);
        }
        println!();
    };
    row("add", &|x| Cpu::binary(BinaryOp::Add, x, x));
    row("exp", &|x| Cpu::unary(UnaryOp::Exp, x));
    row("log", &|x| Cpu::unary(UnaryOp::Log, x));
    row("tanh", &|x| Cpu::unary(UnaryOp::Tanh, x));
    row("sigmoid", &|x| Cpu::unary(UnaryOp::Sigmoid, x));
    row("sin", &|x| Cpu::unary(UnaryOp::Sin, x));
    row("gelu", &|x| Cpu::activation(Activation::Gelu, x));
    row("gelu backward", &|x| Cpu::activation_backward(Activation::Gelu, x, x));
    row("softmax", &|x| Cpu::softmax(x, 1));
    row("layer_norm", &|x| {
        let weight = Cpu::slice(x, &[SliceRange::new(0, 1, 1), SliceRange::full(1024)])?;
        let weight = Cpu::reshape(&weight, Shape::from([1024]))?;
        Ok(Cpu::layer_norm(x, Some(&weight), Some(&weight), 1, 1e-5)?.0)
    });
    row("sum all", &|x| Cpu::reduce(ReduceOp::Sum, x, Axes::all(2), false));
    row("sum rows", &|x| Cpu::reduce(ReduceOp::Sum, x, Axes::one(1), false));
    row("sum columns", &|x| Cpu::reduce(ReduceOp::Sum, x, Axes::one(0), false));
    row("transpose", &|x| {
        let turned = Cpu::permute(x, Axes::new([1, 0])?)?;
        Cpu::reshape(&turned, Shape::from([x.shape().numel()]))
    });
}

fn gemm(device: CpuDevice) {
    println!("GFLOP/s             A B     A Bt    At B");
    let mut shapes: Vec<_> = [64, 128, 256, 512, 1024].map(|n| (n, n, n)).to_vec();
    shapes.extend([
        (1, 512, 512),
        (32, 10, 128),
        (64, 128, 784),
        (4096, 32, 288),
        (32, 64, 4),
        (32, 64, 64),
        (32, 2, 64),
        (64, 64, 32),
        (128, 784, 64),
        (1024, 128, 512),
        (1024, 1024, 128),
    ]);
    for (m, n, k) in shapes {
        let turned = |x: &CpuTensor| Cpu::permute(x, Axes::new([1, 0])?);
        let (a, b) = (random(&[m, k], device), random(&[k, n], device));
        let bt = turned(&random(&[n, k], device)).expect("a view");
        let at = turned(&random(&[k, m], device)).expect("a view");
        let rate = |a: &CpuTensor, b: &CpuTensor| 2.0 * (m * n * k) as f64 / time(|| Cpu::matmul(a, b));
        println!(
            "{:16} {:7.1} {:7.1} {:7.1}",
            format!("{m}x{n}x{k}"),
            rate(&a, &b),
            rate(&a, &bt),
            rate(&at, &b)
        );
    }
}

fn conv(device: CpuDevice) {
    let params = ConvParams {
        padding: [1; 3],
        ..ConvParams::default()
    };
    for (input, weight) in [([64, 1, 28, 28], [32, 1, 3, 3]), ([64, 32, 14, 14], [64, 32, 3, 3])] {
        let (x, w) = (random(&input, device), random(&weight, device));
        let y = Cpu::conv(&x, &w, None, None, None, &params).expect("a convolution");
        let ms = |ns: f64| ns / 1e6;
        println!("conv {input:?} {weight:?}");
        println!(
            "  forward     {:8.3} ms",
            ms(time(|| Cpu::conv(&x, &w, None, None, None, &params)))
        );
        println!(
            "  input grad  {:8.3} ms",
            ms(time(|| Cpu::conv_input_grad(&y, &w, *x.shape(), &params)))
        );
        println!(
            "  weight grad {:8.3} ms",
            ms(time(|| Cpu::conv_weight_grad(&y, &x, *w.shape(), &params)))
        );
        let pool = PoolParams::new([2; 3]);
        let (z, at) = Cpu::max_pool(&y, &pool, true).expect("a pooling");
        let at = at.expect("positions");
        println!("  max_pool    {:8.3} ms", ms(time(|| Cpu::max_pool(&y, &pool, true))));
        println!(
            "  its gradient{:8.3} ms",
            ms(time(|| Cpu::max_pool_backward(&z, &at, *y.shape())))
        );
        println!("  relu        {:8.3} ms", ms(time(|| Cpu::unary(UnaryOp::Relu, &y))));
        println!(
            "  relu grad   {:8.3} ms",
            ms(time(|| Cpu::activation_backward(Activation::Relu, &y, &y)))
        );
        let bias = Cpu::reshape(&random(&[weight[0]], device), Shape::from([1, weight[0], 1, 1])).expect("a view");
        println!(
            "  add bias    {:8.3} ms",
            ms(time(|| Cpu::binary(BinaryOp::Add, &y, &bias)))
        );
        let axes = Axes::new([0, 2, 3]).expect("three axes");
        println!(
            "  bias grad   {:8.3} ms",
            ms(time(|| Cpu::reduce(ReduceOp::Sum, &y, axes, false)))
        );
    }
}

fn training(device: CpuDevice) {
    for (rows, classes) in [(32, 2), (64, 10), (1024, 1024)] {
        let logits = random(&[rows, classes], device);
        let target = Cpu::full(Shape::from([rows]), Scalar::Int(1), DType::I64, &device).expect("memory");
        let params = CrossEntropyParams::default();
        let (losses, lse) = Cpu::cross_entropy(&logits, &target, &params).expect("losses");
        println!("cross entropy [{rows},{classes}]");
        println!(
            "  forward   {:10.1} ns",
            time(|| Cpu::cross_entropy(&logits, &target, &params))
        );
        println!(
            "  backward  {:10.1} ns",
            time(|| Cpu::cross_entropy_backward(&losses, &logits, &target, &lse, &params))
        );
    }
    for n in [4096, 1 << 20] {
        let mut tensors = [(); 4].map(|()| random(&[n], device).to_owned());
        let grad = random(&[n], device);
        let [param, first, second, _] = &mut tensors;
        let adam = AdamParams {
            lr: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled: false,
            step: 3,
        };
        let ns = time(|| Cpu::adam_step(param, &grad, first, second, None, &adam));
        println!("adam_step f32[{n}]   {:8.3} ns per element", ns / n as f64);
        let sgd = SgdParams {
            lr: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            first: false,
        };
        let ns = time(|| Cpu::sgd_step(param, &grad, None, &sgd));
        println!("sgd_step f32[{n}]    {:8.3} ns per element", ns / n as f64);
        let mut acc = Some(random(&[n], device));
        let ns = time(|| {
            let sum = Cpu::accumulate_grad(acc.take().expect("put back below"), &grad)?;
            acc = Some(sum);
            Ok(())
        });
        println!("accumulate f32[{n}]  {:8.3} ns per element", ns / n as f64);
    }
}

/// Causal, over heads that lie side by side, as one linear layer gives them for queries, keys and values.
fn attention(device: CpuDevice) {
    for (texts, tokens, heads, width) in [(16, 64, 4, 32), (1, 512, 8, 64)] {
        let packed = random(&[texts, tokens, 3, heads, width], device);
        let part = |i: usize| {
            let mut ranges = [texts, tokens, 3, heads, width].map(SliceRange::full);
            ranges[2] = SliceRange::new(i, 1, 1);
            let x = Cpu::slice(&packed, &ranges)?;
            let x = Cpu::reshape(&x, Shape::from([texts, tokens, heads, width]))?;
            Cpu::permute(&x, Axes::new([0, 2, 1, 3])?)
        };
        let [q, k, v] = [0, 1, 2].map(|i| part(i).expect("a view"));
        let scale = 1.0 / (width as f64).sqrt();
        for causal in [false, true] {
            let grad = Cpu::attention(&q, &k, &v, None, scale, causal).expect("a result");
            let forward = time(|| Cpu::attention(&q, &k, &v, None, scale, causal));
            let backward = time(|| Cpu::attention_backward(&grad, &q, &k, &v, None, scale, causal));
            println!(
                "attention {texts}x{heads}x{tokens}x{width}, causal {causal:5}  {:8.3} ms   gradient {:8.3} ms",
                forward / 1e6,
                backward / 1e6
            );
        }
    }
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    type Bench = fn(CpuDevice);
    let all: [(&str, Bench); 6] = [
        ("dispatch", dispatch),
        ("elementwise", elementwise),
        ("gemm", gemm),
        ("conv", conv),
        ("training", training),
        ("attention", attention),
    ];
    for threads in [1, 2] {
        let device = CpuDevice::new(threads, Kernels::Simd).expect("a device");
        for (name, run) in all {
            if (wanted.is_empty() || wanted.iter().any(|w| w == name)) && (threads == 1 || name != "dispatch") {
                println!("\n== {name}, {threads} thread(s), {}", device.level().name());
                run(device);
            }
        }
    }
}
