//! Every case makes steps on the CPU backend.

use polygrad_cpu::{Cpu, CpuDevice, Kernels};
use polygrad_tensor::{Device, count_flops};
use polygrad_workloads::{Case, cases, select, workloads};

fn device() -> Device<Cpu> {
    Device::from_inner(CpuDevice::new(1, Kernels::Simd).unwrap())
}

/// Whether a case is fast without optimization; the others are run only once.
fn small(case: &Case) -> bool {
    case.amount().elements <= 1 << 20 && case.amount().flops < 5_000_000_000
}

#[test]
fn losses_are_finite_and_fall() {
    for case in cases().into_iter().filter(Case::trains) {
        let mut training = case.prepare(&device()).unwrap();
        let mut step = || training.step().unwrap().unwrap();
        let (first, second) = (step(), step());
        assert!(
            second.is_finite() && second < first,
            "{}: {first} then {second}",
            case.name()
        );
    }
}

#[test]
fn other_cases_have_no_loss() {
    for case in cases().into_iter().filter(|case| !case.trains() && small(case)) {
        assert_eq!(
            case.prepare(&device()).unwrap().step().unwrap(),
            None,
            "{}",
            case.name()
        );
    }
}

#[test]
fn flops_are_those_that_are_counted() {
    for case in cases()
        .into_iter()
        .filter(|case| case.amount().flops > 0 && small(case))
    {
        let mut prepared = case.prepare(&device()).unwrap();
        let (loss, flops) = count_flops(|| prepared.step());
        loss.unwrap();
        assert_eq!(case.amount().flops, flops, "{}", case.name());
    }
}

#[test]
fn weights_are_the_same_numbers_every_time() {
    let case = select("cnn").unwrap()[0];
    let weights = || case.prepare(&device()).unwrap().weights().unwrap();
    let (first, second) = (weights(), weights());
    assert_eq!(first, second);
    let (name, shape, values) = &first[0];
    assert_eq!((name.as_str(), shape.as_slice()), ("0.weight", &[32, 1, 3, 3][..]));
    assert!(values.iter().all(|x| x.abs() <= 1.0 / 3.0) && values[0] != values[1]);
    assert_eq!(first[1].2, [0.0; 32]);
}

#[test]
fn names_choose_cases_and_wrong_ones_list_them() {
    for case in cases() {
        assert_eq!(select(&case.name().replace(' ', "/")).unwrap(), [case]);
    }
    assert_eq!(select("mlp-rl").unwrap().len(), 2);
    assert_eq!(select("elementwise/exp").unwrap().len(), 4);
    assert_eq!(workloads().len(), 13);
    let error = select("mlp").unwrap_err().to_string();
    assert!(error.contains("\"mlp\"") && error.contains("mlp-act"), "{error}");
    let error = select("mlp-rl/rmsprop").unwrap_err().to_string();
    assert!(error.contains("rmsprop") && error.contains("mlp-rl/adam"), "{error}");
}

/// The floor's own table; the floor is a program without our crates.
#[path = "../../peers/floor/src/flops.rs"]
mod floor;

#[test]
fn the_floor_does_the_operations_of_the_networks() {
    for (name, flops) in floor::FLOPS {
        assert_eq!(select(name).unwrap()[0].amount().flops, flops, "{name}");
    }
}

#[test]
fn products_of_any_extents_and_floats_can_be_asked_for() {
    for name in [
        "gemm 3x5x7",
        "gemm 3x5x7 bf16",
        "gemm 8192x8192x8192 f16",
        "attention 1x2x3x4x5 f64",
    ] {
        let [case] = select(name).unwrap()[..] else {
            panic!("{name}")
        };
        assert_eq!(case.name(), name);
        assert!(!cases().contains(&case));
    }
    let small = select("gemm/3x5x7/bf16").unwrap()[0];
    assert_eq!(small.amount().flops, 2 * 3 * 5 * 7);
    assert_eq!(small.prepare(&device()).unwrap().step().unwrap(), None);
    assert_eq!(select("attention/1x2x3x4x5").unwrap()[0].amount().flops, 4 * 120);
    for wrong in [
        "gemm/0x5x7",
        "gemm/3x5",
        "gemm/3x5x7/i64",
        "gemm/3x5x7/f16/f16",
        "gemm/40000x1x1",
    ] {
        let error = select(wrong).unwrap_err().to_string();
        assert!(error.contains("gemm/32x10x128"), "{error}");
    }
}

#[test]
fn training_under_autocast_is_asked_for_by_name() {
    let case = select("mlp-small/adam/bf16").unwrap()[0];
    assert_eq!(case.name(), "mlp-small adam bf16");
    assert!(!cases().contains(&case));
    let losses = |name: &str| {
        let mut training = select(name).unwrap()[0].prepare(&device()).unwrap();
        [(); 3].map(|()| training.step().unwrap().unwrap())
    };
    let (full, mixed) = (losses("mlp-small/adam"), losses("mlp-small/adam/bf16"));
    assert_ne!(full, mixed);
    for (a, b) in full.iter().zip(mixed) {
        assert!((a - b).abs() < 0.02 * a, "{full:?} {mixed:?}");
    }
    assert!(select("dispatch/add/bf16").is_err());
    assert_eq!(select("gemm/8x8x8/bf16").unwrap()[0].name(), "gemm 8x8x8 bf16");
}

#[test]
fn a_language_model_may_have_any_size() {
    let case = select("gpt/124m/bf16").unwrap()[0];
    assert_eq!(case.name(), "gpt 124m bf16");
    // Six for each weight that multiplies and each of 8,192 tokens, and attention.
    let (weights, attention) = (12 * 12 * 768 * 768 + 768 * 50304, 12 * 2 * 1024 * 768);
    assert_eq!(case.amount().flops, 6 * 8192 * (weights + attention));
    let small = select("gpt/2x16x32x2x2x97").unwrap()[0];
    assert_eq!(
        (small.name().as_str(), cases().contains(&small)),
        ("gpt 2x16x32x2x2x97", false)
    );
    let losses = |name: &str| {
        let mut training = select(name).unwrap()[0].prepare(&device()).unwrap();
        [(); 3].map(|()| training.step().unwrap().unwrap())
    };
    let (full, mixed) = (losses("gpt/2x16x32x2x2x97"), losses("gpt/2x16x32x2x2x97/bf16"));
    assert!(
        full[1] < full[0] && full[2] < full[1] && full != mixed,
        "{full:?} {mixed:?}"
    );
    for (a, b) in full.iter().zip(mixed) {
        assert!((a - b).abs() < 0.02 * a, "{full:?} {mixed:?}");
    }
    let (counted, flops) = count_flops(|| small.prepare(&device()).unwrap().step());
    counted.unwrap();
    let scores_again = 2 * 2 * 2 * 16 * 16 * 32;
    assert_eq!(small.amount().flops + scores_again, flops);
    assert!(
        select("gpt/2x16x30x4x2x97").is_err(),
        "a width that heads do not divide"
    );
}

#[test]
fn attention_is_timed_with_its_gradient() {
    let case = select("attention/backward/1x2x8x8x4/bf16").unwrap()[0];
    assert_eq!(case.name(), "attention backward 1x2x8x8x4 bf16");
    let mut step = case.prepare(&device()).unwrap();
    let (done, flops) = count_flops(|| step.step());
    let scores_again = 2 * 2 * 8 * 8 * 4;
    assert_eq!((done.unwrap(), flops), (None, case.amount().flops + scores_again));
}
