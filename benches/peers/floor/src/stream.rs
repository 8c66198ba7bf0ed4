//! Passes over memory: the cost of elementwise ops if computing were free.

use std::convert::Infallible;

use polygrad_peer::data::{INPUT, TARGET, noise};
use polygrad_peer::{Step, call};
use rayon::prelude::*;

use crate::ways::{fastest, on_threads};

/// A line of the cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([f32; 16]);

const ZERO: Line = Line([0.0; 16]);

fn lines(size: usize, seed: u64) -> Vec<Line> {
    noise(size, seed).as_chunks().0.iter().map(|&line| Line(line)).collect()
}

/// How results are written.
#[derive(Clone, Copy, PartialEq)]
enum Store {
    Cached,
    /// Bypasses the caches, so that a line is not read before it is written.
    Streaming,
}

#[cfg(all(target_arch = "x86_64", target_feature = "avx512f"))]
#[inline(always)]
fn put<const STREAMING: bool>(to: &mut Line, line: Line) {
    use std::arch::x86_64::{_mm512_load_ps, _mm512_store_ps, _mm512_stream_ps};
    // SAFETY: both lines are 64 bytes, at addresses that are multiples of 64; the condition above ensures that the
    // instructions exist.
    unsafe {
        let (to, line) = (to.0.as_mut_ptr(), _mm512_load_ps(line.0.as_ptr()));
        match STREAMING {
            true => _mm512_stream_ps(to, line),
            false => _mm512_store_ps(to, line),
        }
    }
}

/// On other targets there is no difference.
#[cfg(not(all(target_arch = "x86_64", target_feature = "avx512f")))]
fn put<const STREAMING: bool>(to: &mut Line, line: Line) {
    *to = line;
}

/// Makes streamed writes visible to later reads.
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has SSE, and the instruction touches no memory.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

fn write(to: &mut [Line], lines: impl Iterator<Item = Line>, store: Store) {
    let pairs = to.iter_mut().zip(lines);
    match store {
        Store::Cached => pairs.for_each(|(to, line)| put::<false>(to, line)),
        Store::Streaming => {
            pairs.for_each(|(to, line)| put::<true>(to, line));
            fence();
        }
    }
}

/// Two reads and a write.
fn add(to: &mut [Line], a: &[Line], b: &[Line], store: Store) {
    let sums = a.iter().zip(b).map(|(a, b)| {
        let mut sum = *a;
        for (sum, b) in sum.0.iter_mut().zip(&b.0) {
            *sum += b;
        }
        sum
    });
    write(to, sums, store);
}

/// A read and a write.
fn negate(to: &mut [Line], a: &[Line], store: Store) {
    let negated = a.iter().map(|a| {
        let mut negated = *a;
        for x in &mut negated.0 {
            *x = -*x;
        }
        negated
    });
    write(to, negated, store);
}

/// A read.
fn sum(a: &[Line]) -> f32 {
    let (bundles, rest) = a.as_chunks::<8>();
    let mut sums = [ZERO; 8];
    for bundle in bundles {
        for i in 0..8 {
            for (sum, x) in sums[i].0.iter_mut().zip(&bundle[i].0) {
                *sum += x;
            }
        }
    }
    sums.iter().chain(rest).flat_map(|line| line.0).sum()
}

/// A pass that reads and writes as many bytes as the op must; `None` for an unknown op.
pub fn step(op: &str, size: usize, threads: usize) -> Option<Step> {
    let a = lines(size, INPUT);
    let (b, mut to) = match op {
        "add" => (lines(size, TARGET), vec![ZERO; a.len()]),
        "sum" => (Vec::new(), Vec::new()),
        "exp" | "tanh" | "gelu" | "layer_norm" | "softmax" => (Vec::new(), vec![ZERO; a.len()]),
        _ => return None,
    };
    let mut pass = move |(store, threads): (Store, usize)| {
        let part = a.len().div_ceil(threads);
        match (to.is_empty(), b.is_empty(), threads) {
            (true, _, 1) => {
                std::hint::black_box(sum(&a));
            }
            (true, ..) => {
                std::hint::black_box(a.par_chunks(part).map(sum).sum::<f32>());
            }
            (_, true, 1) => negate(&mut to, &a, store),
            (_, true, _) => (to.par_chunks_mut(part).zip(a.par_chunks(part))).for_each(|(to, a)| negate(to, a, store)),
            (_, _, 1) => add(&mut to, &a, &b, store),
            _ => (to.par_chunks_mut(part).zip(a.par_chunks(part)).zip(b.par_chunks(part)))
                .for_each(|((to, a), b)| add(to, a, b, store)),
        }
        std::hint::black_box(&mut to);
    };
    let way = fastest(&on_threads(&[Store::Cached, Store::Streaming], threads), &mut pass);
    Some(call(move || {
        pass(way);
        Ok::<_, Infallible>(())
    }))
}
