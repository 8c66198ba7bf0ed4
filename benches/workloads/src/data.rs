//! Pseudo-random numbers that are the same in every program and language: inputs, targets, and the initial weights.

/// The seed of a workload's input.
pub const INPUT: u64 = 1;
/// The seed of its targets.
pub const TARGET: u64 = 2;
/// The seed of its first parameter; each further parameter has the next seed.
pub const WEIGHTS: u64 = 3;

/// Numbers from −1 to 1: the upper 24 bits of a linear congruential generator.
pub fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// Classes from 0 to `of - 1`.
pub fn classes(count: usize, of: usize, seed: u64) -> Vec<i64> {
    let class = |x: f32| ((x + 1.0) * 0.4999 * of as f32) as i64;
    noise(count, seed).into_iter().map(class).collect()
}

/// The initial values of parameter `index` of a model. With two or more extents they are noise within 1/√(inputs),
/// where the inputs are all extents except the first. A vector is 1 if it scales (the weight of a normalization), and 0
/// otherwise.
pub fn weights(index: usize, shape: &[usize], scales: bool) -> Vec<f32> {
    let count = shape.iter().product();
    if shape.len() < 2 {
        return vec![f32::from(u8::from(scales)); count];
    }
    let bound = 1.0 / (shape[1..].iter().product::<usize>() as f32).sqrt();
    let noise = noise(count, WEIGHTS + index as u64);
    noise.into_iter().map(|x| x * bound).collect()
}
