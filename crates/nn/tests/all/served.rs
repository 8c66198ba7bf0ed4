//! Models that are replaced while other threads use them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use polygrad_cpu::Cpu;
use polygrad_nn::*;
use polygrad_tensor::{Device, Tensor, no_grad};

fn net(device: &Device<Cpu>) -> Sequential<Cpu> {
    let linear = |inputs, outputs| Linear::new(inputs, outputs, device).unwrap();
    let net = Sequential::new()
        .push(linear(4, 16))
        .push(Tanh)
        .push(linear(16, 16))
        .push(Tanh);
    net.push(linear(16, 2))
}

/// Every answer is from one of the two models, while a thread loads them in turn.
#[test]
fn readers_never_see_a_mixture() {
    let device = Device::<Cpu>::default();
    let folder = tempfile::tempdir().unwrap();
    let x = Tensor::randn([2, 4], &device).unwrap();
    let answer = |net: &Sequential<Cpu>| -> Vec<u32> {
        let y = no_grad(|| net.forward(&x)).unwrap().to_vec::<f32>().unwrap();
        y.into_iter().map(f32::to_bits).collect()
    };
    let (paths, answers): (Vec<_>, Vec<_>) = (["a.safetensors", "b.safetensors"].iter())
        .map(|name| {
            let (path, net) = (folder.path().join(name), net(&device));
            net.save(&path).unwrap();
            (path, answer(&net))
        })
        .unzip();
    assert_ne!(answers[0], answers[1]);

    let load = |i: usize| {
        let next = net(&device);
        next.load(&paths[i]).unwrap();
        next
    };
    let served = Served::new(load(0));
    let (ready, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let reader = || {
            let mut seen = HashSet::new();
            while !done.load(Ordering::Relaxed) {
                seen.insert(answer(&served.current()));
                ready.fetch_add(1, Ordering::Relaxed);
            }
            seen
        };
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(reader)).collect();
        for i in 1..=200 {
            let before = served.replace(load(i % 2));
            assert_eq!(answer(&before), answers[(i - 1) % 2]);
            // Waits until a reader has read between two replacements.
            let seen = ready.load(Ordering::Relaxed);
            while ready.load(Ordering::Relaxed) == seen {
                std::thread::yield_now();
            }
        }
        done.store(true, Ordering::Relaxed);
        let seen: HashSet<Vec<u32>> = readers.into_iter().flat_map(|r| r.join().unwrap()).collect();
        assert_eq!(seen, answers.iter().cloned().collect());
    });
    assert_eq!(answer(&served.current()), answers[0]);
}
