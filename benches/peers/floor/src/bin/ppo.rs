//! PPO on CartPole with CleanRL's settings, hand-written for this task: the time that a program without a tensor API
//! takes for the workload `cartpole-cleanrl` of `cargo bench -p polygrad-rl --bench ppo`, on one thread.
//!
//! ```sh
//! cargo run --release --bin ppo -- 1     # the seed
//! ```
//!
//! Networks' features are stored in panels, as in the perceptrons of the floor. Bias, tanh and tanh's gradient are
//! computed tile by tile with the products, loss and gradient in one pass over the rows, and an iteration allocates
//! nothing. The arithmetic is that of CleanRL's `ppo.py`, in f32; the environment's is in f64.

#[path = "../loss.rs"]
#[allow(dead_code, reason = "perceptrons need the rest")]
mod loss;
#[path = "../rows.rs"]
#[allow(dead_code, reason = "perceptrons need the rest")]
mod rows;
#[path = "../turn.rs"]
mod turn;

use std::time::Instant;

use loss::{exp, reduce};
use rows::{Row, TILE, WIDTH, ZERO, panels, product, turned_product};
use turn::transposed;

const ENVS: usize = 4;
const STEPS: usize = 128;
const BATCH: usize = ENVS * STEPS;
const MINIBATCH: usize = BATCH / 4;
const EPOCHS: usize = 4;
const ITERATIONS: usize = 500_000 / BATCH;
const INPUTS: usize = 4;
const HIDDEN: usize = 64;
const PANELS: usize = HIDDEN / WIDTH;

const RATE: f32 = 2.5e-4;
const GAMMA: f32 = 0.99;
const LAMBDA: f32 = 0.95;
const CLIP: f32 = 0.2;
const ENTROPY: f32 = 0.01;
const VALUE: f32 = 0.5;
const MAX_NORM: f32 = 0.5;

/// The offsets of a network's parameters among its rows. Weights of hidden layers are [in, out], those of the last
/// layer [out, in].
const BIAS_1: usize = PANELS * INPUTS;
const WEIGHT_2: usize = BIAS_1 + PANELS;
const BIAS_2: usize = WEIGHT_2 + PANELS * HIDDEN;
const WEIGHT_3: usize = BIAS_2 + PANELS;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// From 0 to 1.
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// tanh as a quotient of polynomials, accurate to a few units in the last place.
#[inline(always)]
fn tanh(x: f32) -> f32 {
    let x = x.clamp(-7.905_311, 7.905_311);
    let y = x * x;
    let mut over = -2.760_768_5e-16f32;
    for c in [
        2.000_188e-13,
        -8.604_672e-11,
        5.122_297_1e-8,
        1.485_722_4e-5,
        6.372_619_3e-4,
        4.893_525e-3,
    ] {
        over = over.mul_add(y, c);
    }
    let mut under = 1.198_258_4e-6f32;
    for c in [1.185_347_1e-4, 2.268_434_7e-3, 4.893_525e-3] {
        under = under.mul_add(y, c);
    }
    x * over / under
}

/// A matrix with orthogonal columns or, if there are fewer rows than columns, orthogonal rows, times `gain`.
fn orthogonal(rows: usize, columns: usize, gain: f64, random: &mut Random) -> Vec<f32> {
    let (long, short) = (rows.max(columns), rows.min(columns));
    let mut vectors: Vec<Vec<f64>> = Vec::new();
    while vectors.len() < short {
        let mut vector: Vec<f64> = (0..long).map(|_| random.normal()).collect();
        for other in &vectors {
            let along: f64 = vector.iter().zip(other).map(|(a, b)| a * b).sum();
            vector.iter_mut().zip(other).for_each(|(x, y)| *x -= along * y);
        }
        let norm = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
        vector.iter_mut().for_each(|x| *x /= norm);
        vectors.push(vector);
    }
    let at = |row: usize, column: usize| {
        if rows < columns {
            vectors[row][column]
        } else {
            vectors[column][row]
        }
    };
    (0..rows * columns)
        .map(|i| (gain * at(i / columns, i % columns)) as f32)
        .collect()
}

/// A network with `OUT` outputs, and the buffers for Adam and a step; `N` rows at a time, in panels.
struct Net<const OUT: usize> {
    params: Vec<Row>,
    gradients: Vec<Row>,
    moments: Vec<[Row; 2]>,
    turned: Vec<Row>,
    h1: Vec<Row>,
    h2: Vec<Row>,
    d1: Vec<Row>,
    d2: Vec<Row>,
}

impl<const OUT: usize> Net<OUT> {
    fn new(gain: f64, random: &mut Random) -> Self {
        let mut params = panels(&orthogonal(INPUTS, HIDDEN, std::f64::consts::SQRT_2, random), HIDDEN);
        params.extend([ZERO; PANELS]);
        params.extend(panels(
            &orthogonal(HIDDEN, HIDDEN, std::f64::consts::SQRT_2, random),
            HIDDEN,
        ));
        params.extend([ZERO; PANELS]);
        params.extend(panels(&orthogonal(OUT, HIDDEN, gain, random), HIDDEN));
        params.push(ZERO);
        let features = || vec![ZERO; PANELS * MINIBATCH];
        Self {
            gradients: vec![ZERO; params.len()],
            moments: vec![[ZERO; 2]; params.len()],
            params,
            turned: vec![ZERO; PANELS * HIDDEN],
            h1: features(),
            h2: features(),
            d1: features(),
            d2: features(),
        }
    }

    fn layer<const N: usize>(x: &[Row], weight: &[Row], inputs: usize, bias: &[Row], to: &mut [Row]) {
        product(x, N, weight, inputs, to, |panel, _, tile| {
            let bias = bias[panel];
            for row in tile {
                *row = activated(*row, bias);
            }
        });
    }

    /// The outputs for `N` rows.
    fn forward<const N: usize>(&mut self, x: &[Row], outputs: &mut [[f32; N]; OUT]) {
        let params = &self.params;
        Self::layer::<N>(x, &params[..BIAS_1], INPUTS, &params[BIAS_1..WEIGHT_2], &mut self.h1);
        Self::layer::<N>(
            &self.h1,
            &params[WEIGHT_2..BIAS_2],
            HIDDEN,
            &params[BIAS_2..WEIGHT_3],
            &mut self.h2,
        );
        let bias = params[params.len() - 1];
        for (out, outputs) in outputs.iter_mut().enumerate() {
            let weight: [Row; PANELS] = std::array::from_fn(|panel| params[WEIGHT_3 + panel * OUT + out]);
            for (row, output) in outputs.iter_mut().enumerate() {
                let mut sums = [0.0; WIDTH];
                for (panel, weight) in weight.iter().enumerate() {
                    for (sum, (x, y)) in sums.iter_mut().zip(self.h2[panel * N + row].0.iter().zip(&weight.0)) {
                        *sum = x.mul_add(*y, *sum);
                    }
                }
                *output = reduce(sums, |a, b| a + b) + bias.0[out];
            }
        }
    }

    /// Computes the gradients from those of the outputs, which have one row for each row of the minibatch; returns the
    /// sum of their squares.
    fn backward(&mut self, x: &[Row], outputs: &[Row]) -> f32 {
        let Self {
            params,
            gradients,
            turned,
            h1,
            h2,
            d1,
            d2,
            ..
        } = self;
        let (weight_3, last) = (&params[WEIGHT_3..WEIGHT_3 + PANELS * OUT], params.len() - 1);
        gradients[last] = outputs.iter().fold(ZERO, |sum, row| sum.plus(*row));
        let back = |from: &[Row], weight: &[Row], inner: usize, h: &[Row], to: &mut [Row], biases: &mut [Row]| {
            biases.fill(ZERO);
            product(from, MINIBATCH, weight, inner, to, |panel, at, tile| {
                let mut sum = biases[panel];
                for (row, h) in tile.iter_mut().zip(&h[at..]) {
                    *row = through_tanh(*row, *h);
                    sum = sum.plus(*row);
                }
                biases[panel] = sum;
            });
        };
        back(outputs, weight_3, OUT, h2, d2, &mut gradients[BIAS_2..WEIGHT_3]);
        turned_product(outputs, OUT, h2, MINIBATCH, |at, row| gradients[WEIGHT_3 + at] = *row);
        transposed(&params[WEIGHT_2..BIAS_2], HIDDEN, turned);
        back(d2, turned, HIDDEN, h1, d1, &mut gradients[BIAS_1..WEIGHT_2]);
        turned_product(h1, HIDDEN, d2, MINIBATCH, |at, row| gradients[WEIGHT_2 + at] = *row);
        turned_product(x, INPUTS, d1, MINIBATCH, |at, row| gradients[at] = *row);
        let mut squares = [ZERO; 4];
        for row in gradients.chunks(4) {
            for (sum, row) in squares.iter_mut().zip(row) {
                *sum = squared(*sum, *row);
            }
        }
        let [a, b, c, d] = squares;
        reduce(a.plus(b).plus(c.plus(d)).0, |a, b| a + b)
    }

    /// Adam's update with gradients times `factor`.
    fn update(&mut self, factor: f32, rate: f32, scale: f32) {
        let rows = self.params.iter_mut().zip(&mut self.moments).zip(&self.gradients);
        for ((param, [mean, square]), gradient) in rows {
            let numbers = param.0.iter_mut().zip(&mut mean.0).zip(&mut square.0);
            for (((param, mean), square), gradient) in numbers.zip(gradient.0) {
                let gradient = gradient * factor;
                *mean = 0.9 * *mean + 0.1 * gradient;
                *square = 0.999 * *square + 0.001 * gradient * gradient;
                *param -= rate * *mean / (square.sqrt() * scale + 1e-5);
            }
        }
    }
}

#[inline(always)]
fn activated(mut row: Row, bias: Row) -> Row {
    for (x, bias) in row.0.iter_mut().zip(&bias.0) {
        *x = tanh(*x + bias);
    }
    row
}

#[inline(always)]
fn through_tanh(mut row: Row, h: Row) -> Row {
    for (x, h) in row.0.iter_mut().zip(&h.0) {
        *x *= h.mul_add(-h, 1.0);
    }
    row
}

#[inline(always)]
fn squared(mut sum: Row, row: Row) -> Row {
    for (sum, x) in sum.0.iter_mut().zip(&row.0) {
        *sum = x.mul_add(*x, *sum);
    }
    sum
}

/// CartPole-v1.
struct CartPole {
    state: [f64; 4],
    steps: usize,
}

impl CartPole {
    fn reset(&mut self, random: &mut Random) {
        self.state = [(); 4].map(|()| 0.1 * random.uniform() - 0.05);
        self.steps = 0;
    }

    /// Whether the episode ends.
    fn step(&mut self, right: bool) -> bool {
        let [x, speed, angle, turn] = self.state;
        let force = if right { 10.0 } else { -10.0 };
        let (sin, cos) = angle.sin_cos();
        let push = (force + 0.05 * (turn * turn) * sin) / 1.1;
        let turning = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * (cos * cos) / 1.1));
        let pushing = push - 0.05 * turning * cos / 1.1;
        self.state = [
            x + 0.02 * speed,
            speed + 0.02 * pushing,
            angle + 0.02 * turn,
            turn + 0.02 * turning,
        ];
        self.steps += 1;
        let fell = self.state[0].abs() > 2.4 || self.state[2].abs() > 24.0 * std::f64::consts::PI / 360.0;
        fell || self.steps == 500
    }

    fn observation(&self) -> Row {
        let mut row = ZERO;
        for (x, y) in row.0.iter_mut().zip(self.state) {
            *x = y as f32;
        }
        row
    }
}

/// A rollout, step after step, or a minibatch of it.
struct Rows<const N: usize> {
    observations: Vec<Row>,
    /// 1 for the second action.
    actions: [f32; N],
    log_probs: [f32; N],
    values: [f32; N],
    advantages: [f32; N],
    returns: [f32; N],
}

impl<const N: usize> Rows<N> {
    fn new() -> Self {
        Self {
            observations: vec![ZERO; N],
            actions: [0.0; N],
            log_probs: [0.0; N],
            values: [0.0; N],
            advantages: [0.0; N],
            returns: [0.0; N],
        }
    }

    fn gather<const M: usize>(&mut self, from: &Rows<M>, order: &[usize]) {
        for (i, &at) in order.iter().enumerate() {
            self.observations[i] = from.observations[at];
            self.actions[i] = from.actions[at];
            self.log_probs[i] = from.log_probs[at];
            self.values[i] = from.values[at];
            self.advantages[i] = from.advantages[at];
            self.returns[i] = from.returns[at];
        }
    }

    fn normalize(&mut self) {
        let mean = self.advantages.iter().sum::<f32>() / N as f32;
        let squares: f32 = self.advantages.iter().map(|x| (x - mean) * (x - mean)).sum();
        let factor = 1.0 / ((squares / (N as f32 - 1.0)).sqrt() + 1e-8);
        for x in &mut self.advantages {
            *x = (*x - mean) * factor;
        }
    }
}

/// The logarithms of both actions' probabilities.
#[inline(always)]
fn log_softmax(a: f32, b: f32) -> [f32; 2] {
    let most = if a > b { a } else { b };
    let apart = exp(-(a - b).abs());
    let log = most + apart.ln_1p();
    [a - log, b - log]
}

/// Gradients of the loss for logits and values.
fn gradients(
    batch: &Rows<MINIBATCH>,
    [first, second]: &[[f32; MINIBATCH]; 2],
    [values]: &[[f32; MINIBATCH]; 1],
    logits_to: &mut [Row],
    values_to: &mut [Row],
) {
    let share = 1.0 / MINIBATCH as f32;
    for i in 0..MINIBATCH {
        let logs = log_softmax(first[i], second[i]);
        let probs = logs.map(exp);
        let second = batch.actions[i];
        let log_prob = if second > 0.0 { logs[1] } else { logs[0] };
        let ratio = exp(log_prob - batch.log_probs[i]);
        let (gain, clipped) = (
            batch.advantages[i] * ratio,
            batch.advantages[i] * ratio.clamp(1.0 - CLIP, 1.0 + CLIP),
        );
        let of_log_prob = if clipped < gain { 0.0 } else { -share * gain };
        // The entropy's gradient: p (entropy + log p).
        let entropy = -(probs[0] * logs[0] + probs[1] * logs[1]);
        let of =
            |action: f32, prob: f32, log: f32| of_log_prob * (action - prob) + ENTROPY * share * prob * (entropy + log);
        logits_to[i].0[0] = of(1.0 - second, probs[0], logs[0]);
        logits_to[i].0[1] = of(second, probs[1], logs[1]);
        let (error, change) = (values[i] - batch.returns[i], values[i] - batch.values[i]);
        let bounded = batch.values[i] + change.clamp(-CLIP, CLIP) - batch.returns[i];
        let is_clipped = change.abs() > CLIP && bounded * bounded > error * error;
        values_to[i].0[0] = if is_clipped { 0.0 } else { VALUE * share * error };
    }
}

fn main() {
    let seed = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut fastest = f64::INFINITY;
    let mut result = 0.0;
    for _ in 0..5 {
        let started = Instant::now();
        result = train(seed);
        fastest = fastest.min(started.elapsed().as_secs_f64());
    }
    let steps = (ITERATIONS * BATCH) as f64;
    println!(
        "cartpole-cleanrl {:.0} steps/s  {fastest:.3} s  return {result:.1}",
        steps / fastest
    );
}

/// Trains, and returns the mean return of the last 100 episodes.
fn train(seed: u64) -> f64 {
    let mut random = Random(seed);
    let (mut actor, mut critic) = (Net::<2>::new(0.01, &mut random), Net::<1>::new(1.0, &mut random));
    let mut envs = [(); ENVS].map(|()| CartPole {
        state: [0.0; 4],
        steps: 0,
    });
    envs.iter_mut().for_each(|env| env.reset(&mut random));
    let (mut all, mut batch) = (Rows::<BATCH>::new(), Rows::<MINIBATCH>::new());
    // Whether an episode ended at each step.
    let mut ended = [false; BATCH];
    let mut order: [usize; BATCH] = std::array::from_fn(|i| i);
    let (mut logits_to, mut values_to) = (vec![ZERO; MINIBATCH], vec![ZERO; MINIBATCH]);
    let mut seen = [ZERO; TILE];
    let mut returns = std::collections::VecDeque::with_capacity(101);
    let mut updates = 0;
    for iteration in 0..ITERATIONS {
        let rate = RATE * (1.0 - iteration as f32 / ITERATIONS as f32);
        let (mut logits, mut values) = ([[0.0; TILE]; 2], [[0.0; TILE]; 1]);
        for step in 0..STEPS {
            for (row, env) in seen.iter_mut().zip(&envs) {
                *row = env.observation();
            }
            actor.forward(&seen, &mut logits);
            critic.forward(&seen, &mut values);
            for (i, env) in envs.iter_mut().enumerate() {
                let at = step * ENVS + i;
                let logs = log_softmax(logits[0][i], logits[1][i]);
                let second = random.uniform() as f32 >= exp(logs[0]);
                all.observations[at] = seen[i];
                all.actions[at] = f32::from(u8::from(second));
                all.log_probs[at] = logs[usize::from(second)];
                all.values[at] = values[0][i];
                ended[at] = env.step(second);
                if ended[at] {
                    if returns.len() == 100 {
                        returns.pop_front();
                    }
                    returns.push_back(env.steps as f64);
                    env.reset(&mut random);
                }
            }
        }
        for (row, env) in seen.iter_mut().zip(&envs) {
            *row = env.observation();
        }
        critic.forward(&seen, &mut values);
        let mut next = values[0];
        let mut advantage = [0.0; ENVS];
        for at in (0..BATCH).rev() {
            let env = at % ENVS;
            let goes_on = f32::from(u8::from(!ended[at]));
            let delta = 1.0 + GAMMA * next[env] * goes_on - all.values[at];
            advantage[env] = delta + GAMMA * LAMBDA * goes_on * advantage[env];
            next[env] = all.values[at];
            all.advantages[at] = advantage[env];
            all.returns[at] = advantage[env] + all.values[at];
        }
        for _ in 0..EPOCHS {
            for i in (1..BATCH).rev() {
                order.swap(i, (random.next() % (i as u64 + 1)) as usize);
            }
            for part in order.chunks(MINIBATCH) {
                batch.gather(&all, part);
                batch.normalize();
                let (mut logits, mut values) = ([[0.0; MINIBATCH]; 2], [[0.0; MINIBATCH]; 1]);
                actor.forward(&batch.observations, &mut logits);
                critic.forward(&batch.observations, &mut values);
                gradients(&batch, &logits, &values, &mut logits_to, &mut values_to);
                let squares =
                    actor.backward(&batch.observations, &logits_to) + critic.backward(&batch.observations, &values_to);
                let factor = (MAX_NORM / (squares.sqrt() + 1e-6)).min(1.0);
                updates += 1;
                let [first, second] = [0.9f64, 0.999].map(|beta| 1.0 - beta.powi(updates));
                let (rate, scale) = (rate / first as f32, (1.0 / second.sqrt()) as f32);
                actor.update(factor, rate, scale);
                critic.update(factor, rate, scale);
            }
        }
    }
    returns.iter().sum::<f64>() / returns.len() as f64
}
