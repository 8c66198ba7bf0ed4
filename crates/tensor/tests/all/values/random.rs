//! The generator: one stream for each thread, the same on every backend.

use polygrad_cpu::Cpu;
use polygrad_tensor::{DType, Device, Distribution, GeneratorState, Result, manual_seed};

use super::{Tensor, device};

fn moments(x: &Tensor) -> Result<(f64, f64)> {
    let x = x.to_dtype(DType::F64)?;
    Ok((x.mean_all()?.item()?, x.variance((), 1)?.item()?))
}

#[track_caller]
fn near(value: f64, expected: f64, tolerance: f64) {
    assert!((value - expected).abs() < tolerance, "{value} is not {expected}");
}

#[test]
fn one_seed_gives_the_same_numbers_on_every_backend() -> Result<()> {
    let draw = || -> Result<Vec<Vec<f64>>> {
        manual_seed(7);
        let d = &device();
        let draws = [
            Tensor::rand([5], d)?,
            Tensor::randn([2, 2], d)?,
            Tensor::randint(-3, 9, [6], d)?,
            Tensor::randperm(8, d)?,
        ];
        draws.iter().map(Tensor::to_f64_vec).collect()
    };
    let first = draw()?;
    assert_eq!(first, draw()?);
    manual_seed(7);
    let cpu = polygrad_tensor::Tensor::<Cpu>::rand([5], &Device::default())?;
    assert_eq!(cpu.to_f64_vec()?, first[0]);
    manual_seed(8);
    assert_ne!(Tensor::rand([5], &device())?.to_f64_vec()?, first[0]);
    Ok(())
}

#[test]
fn a_stream_goes_on_where_it_was_left() -> Result<()> {
    manual_seed(1);
    let whole = Tensor::randn([10], &device())?.to_vec::<f32>()?;
    manual_seed(1);
    let head = Tensor::randn([4], &device())?.to_vec::<f32>()?;
    let state = GeneratorState::current();
    assert_eq!((state.seed, state.offset), (1, 4));
    let tail = Tensor::randn([6], &device())?.to_vec::<f32>()?;
    assert_eq!([head, tail.clone()].concat(), whole);
    state.restore();
    assert_eq!(Tensor::randn([6], &device())?.to_vec::<f32>()?, tail);
    // Another thread has a stream of its own.
    let state = GeneratorState::current();
    std::thread::spawn(|| manual_seed(99)).join().unwrap();
    assert_eq!(GeneratorState::current(), state);
    Ok(())
}

#[test]
fn numbers_are_distributed_as_asked() -> Result<()> {
    manual_seed(3);
    let d = &device();
    let n = 40_000;
    let (mean, variance) = moments(&Tensor::rand([n], d)?)?;
    near(mean, 0.5, 0.01);
    near(variance, 1.0 / 12.0, 0.003);
    let (mean, variance) = moments(&Tensor::randn([n], d)?)?;
    near(mean, 0.0, 0.02);
    near(variance, 1.0, 0.03);
    let normal = Distribution::Normal { mean: -2.0, std: 0.5 };
    let (mean, variance) = moments(&Tensor::random([n], normal, (d, DType::F64))?)?;
    near(mean, -2.0, 0.01);
    near(variance, 0.25, 0.01);
    let integers = Tensor::randint(2, 5, [n], d)?;
    assert_eq!((integers.amin(())?.item()?, integers.amax(())?.item()?), (2.0, 4.0));
    near(moments(&integers)?.0, 3.0, 0.02);
    let mut order = Tensor::randperm(100, d)?.to_vec::<i64>()?;
    assert_ne!(order, (0..100).collect::<Vec<i64>>());
    order.sort_unstable();
    assert_eq!(order, (0..100).collect::<Vec<i64>>());
    Ok(())
}

#[test]
fn dropout_keeps_the_mean() -> Result<()> {
    manual_seed(5);
    let dropped = Tensor::ones([20_000], &device())?.dropout(0.25)?;
    near(moments(&dropped)?.0, 1.0, 0.02);
    let kept = dropped.ne(0.0)?.to_dtype(DType::F64)?.mean_all()?.item()?;
    near(kept, 0.75, 0.02);
    near(dropped.amax(())?.item()?, 1.0 / 0.75, 1e-6);
    Ok(())
}

#[test]
fn multinomial_draws_by_weight() -> Result<()> {
    manual_seed(3);
    // Weights that do not sum to 1, and one that is never drawn.
    let weights = Tensor::new([[1.0, 0.0, 3.0], [5.0, 5.0, 0.0]], &device())?;
    let drawn = weights.multinomial(4000, true)?;
    assert_eq!((drawn.dims(), drawn.dtype()), (vec![2, 4000], DType::I64));
    let share = |row: usize, class: usize| {
        drawn
            .narrow(0, row, 1)?
            .eq(class)?
            .to_dtype(DType::F32)?
            .mean_all()?
            .item()
    };
    near(share(0, 0)?, 0.25, 0.03);
    near(share(0, 1)?, 0.0, 1e-9);
    near(share(1, 0)?, 0.5, 0.03);
    near(share(1, 2)?, 0.0, 1e-9);
    // Without replacement: each index once, the likelier one first in most cases.
    let (mut first, rounds) = (0.0, 500);
    for _ in 0..rounds {
        let order = Tensor::new([1.0, 3.0], &device())?
            .multinomial(2, false)?
            .to_vec::<i64>()?;
        assert_eq!(order.iter().sum::<i64>(), 1, "{order:?}");
        first += order[0] as f64;
    }
    near(first / f64::from(rounds), 0.75, 0.07);
    let error = weights.multinomial(4, false).unwrap_err();
    assert!(
        error.to_string().contains("4 samples cannot be drawn from 3 weights"),
        "{error}"
    );
    assert!(Tensor::new(1.0, &device())?.multinomial(1, true).is_err());
    Ok(())
}
