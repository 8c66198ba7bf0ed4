//! The thread pool and the buffer pool under many threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use polygrad_core::{Backend, DType, Scalar, Shape};
use polygrad_cpu::{Cpu, CpuDevice, Kernels, ThreadPool, memory};
use polygrad_tensor::{Compiled, Device, Tensor};

/// Under Miri every step costs a thousand times more.
const ROUNDS: usize = if cfg!(miri) { 3 } else { 2000 };

/// The counters are those of the process: tests that read them take turns with tests that allocate.
static COUNTERS: Mutex<()> = Mutex::new(());

/// Runs a job and says how often each chunk ran.
fn counts(pool: &ThreadPool, chunks: usize) -> Vec<usize> {
    let ran: Vec<AtomicUsize> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
    pool.run(chunks, |i| {
        ran[i].fetch_add(1, Ordering::Relaxed);
    });
    ran.into_iter().map(AtomicUsize::into_inner).collect()
}

#[test]
fn every_chunk_runs_once() {
    for threads in [0, 1, 2, 3, 8] {
        let pool = ThreadPool::new(threads);
        assert_eq!(pool.threads(), threads.max(1));
        for round in 0..ROUNDS {
            let chunks = round % 17;
            assert_eq!(
                counts(&pool, chunks),
                vec![1; chunks],
                "{threads} threads, {chunks} chunks"
            );
        }
    }
}

#[test]
fn sleeping_workers_wake_up() {
    let pool = ThreadPool::new(3);
    for _ in 0..5 {
        thread::sleep(Duration::from_millis(2));
        assert_eq!(counts(&pool, 64), vec![1; 64]);
    }
}

#[test]
fn callers_share_a_pool_and_may_nest() {
    let pool = ThreadPool::new(2);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..ROUNDS / 4 + 1 {
                    let sum = AtomicUsize::new(0);
                    pool.run(4, |i| {
                        pool.run(3, |j| {
                            sum.fetch_add(10 * i + j, Ordering::Relaxed);
                        });
                    });
                    assert_eq!(sum.into_inner(), 3 * 60 + 4 * 3);
                }
            });
        }
    });
}

#[test]
fn a_panic_goes_on_in_the_caller_and_the_pool_lives() {
    let pool = ThreadPool::new(2);
    for bad in [0, 7, 15] {
        let done = AtomicUsize::new(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.run(16, |i| {
                assert!(i != bad, "chunk {i} is bad");
                done.fetch_add(1, Ordering::Relaxed);
            });
        }));
        let panic = result.expect_err("the chunk panicked");
        assert_eq!(
            panic.downcast_ref::<String>().map(String::as_str),
            Some(format!("chunk {bad} is bad").as_str())
        );
        assert_eq!(done.into_inner(), 15, "the others run to their end");
        assert_eq!(counts(&pool, 16), vec![1; 16]);
    }
}

#[test]
fn the_last_owner_may_be_a_task() {
    let pool = std::sync::Arc::new(ThreadPool::new(2));
    let inner = Mutex::new(Some(std::sync::Arc::clone(&pool)));
    let weak = std::sync::Arc::downgrade(&pool);
    pool.run(2, |_| {
        drop(inner.lock().map(|mut inner| inner.take()));
    });
    drop(pool);
    assert!(weak.upgrade().is_none());
}

fn tensor(bytes: usize) -> <Cpu as Backend>::Tensor {
    let device = CpuDevice::new(1, Kernels::Simd).expect("a device");
    Cpu::full(Shape::from([bytes]), Scalar::Int(1), DType::U8, &device).expect("memory")
}

#[test]
fn counters_add_up_over_threads() {
    let _turn = COUNTERS.lock();
    let before = memory::stats();
    let one = tensor(1 << 16);
    let bytes = memory::stats().live_bytes - before.live_bytes;
    assert!((1 << 16..=5 << 14).contains(&bytes), "{bytes}");
    drop(one);
    let before = memory::stats();
    let kept: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (1..=4)
            .map(|worker| {
                scope.spawn(move || {
                    for size in 1..50 {
                        drop(tensor(size * 64 * worker));
                    }
                    tensor(1 << 16)
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().expect("no panic")).collect()
    });
    let held = memory::stats();
    assert_eq!(held.live_bytes, before.live_bytes + 4 * bytes);
    assert_eq!(held.allocations, before.allocations + 4 * 50);
    assert!(held.reuses > before.reuses);
    assert!(held.peak_bytes >= held.live_bytes);
    drop(kept);
    assert_eq!(memory::stats().live_bytes, before.live_bytes);
}

#[test]
fn a_block_may_be_dropped_on_another_thread() {
    let _turn = COUNTERS.lock();
    let before = memory::stats().live_bytes;
    for _ in 0..ROUNDS / 20 + 1 {
        let block = tensor(1000);
        let shared = block.clone();
        let other = thread::spawn(move || drop(shared));
        drop(block);
        other.join().expect("no panic");
    }
    assert_eq!(memory::stats().live_bytes, before);
}

#[test]
#[cfg_attr(miri, ignore = "products of a thousand rows")]
fn products_of_many_rows_keep_no_packed_weight() {
    let _turn = COUNTERS.lock();
    let device = Device::<Cpu>::default().into_any();
    let weight = Tensor::ones([480, 480], &device).expect("memory");
    let held = |rows: usize| {
        let x = Tensor::ones([rows, 480], &device).expect("memory");
        let before = memory::stats().live_bytes;
        let compiled = Compiled::new(std::slice::from_ref(&x), || Ok(vec![x.linear(&weight, None)?]));
        let compiled = compiled.expect("a recording");
        let sum = compiled
            .run(std::slice::from_ref(&x))
            .expect("a product")
            .remove(0)
            .sum_all();
        assert_eq!(
            sum.and_then(|sum| sum.item()).expect("a number"),
            (rows * 480 * 480) as f64
        );
        memory::stats().live_bytes - before
    };
    // The outputs are of one size class.
    let (few, many) = (held(1023), held(1024));
    let packed = weight.numel() * 4;
    assert!(
        few >= many + packed && few <= many + packed * 3 / 2,
        "{few} and {many} bytes"
    );
}

#[test]
fn caches_can_be_emptied_and_bounded() {
    let _turn = COUNTERS.lock();
    drop(tensor(3 << 20));
    assert!(memory::stats().cached_bytes >= 3 << 20);
    memory::flush();
    memory::set_limit(0);
    drop(tensor(3 << 20));
    assert!(memory::stats().cached_bytes < 3 << 20);
    memory::set_limit(1 << 30);
}
