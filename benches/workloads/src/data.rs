//! Numbers that look random and are the same in every program and language: inputs, targets, and the weights
//! before the first step.

/// The seed of a workload's input.
pub const INPUT: u64 = 1;
/// The seed of its targets.
pub const TARGET: u64 = 2;
/// The seed of its first parameter; each further one has the next.
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

/// Classes from 0 up to `of`, which is not among them.
pub fn classes(count: usize, of: usize, seed: u64) -> Vec<i64> {
    let class = |x: f32| ((x + 1.0) * 0.4999 * of as f32) as i64;
    noise(count, seed).into_iter().map(class).collect()
}

/// What parameter number `index` of a model begins with. With two or more extents it is noise within 1/√(inputs), where
/// the inputs are all extents but the first; a vector is 1 where it scales (a normalisation's weight), and 0 elsewhere.
pub fn weights(index: usize, shape: &[usize], scales: bool) -> Vec<f32> {
    let count = shape.iter().product();
    if shape.len() < 2 {
        return vec![f32::from(u8::from(scales)); count];
    }
    let bound = 1.0 / (shape[1..].iter().product::<usize>() as f32).sqrt();
    let noise = noise(count, WEIGHTS + index as u64);
    noise.into_iter().map(|x| x * bound).collect()
}
