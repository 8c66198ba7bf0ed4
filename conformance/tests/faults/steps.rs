//! Training steps: every layer reports the fault, and the step after it succeeds.

use polygrad_conformance::{Fault, Faults};
use polygrad_cpu::Cpu;
use polygrad_null::Null;
use polygrad_tensor::{Backend, Device, manual_seed};

use crate::sweep::check;
use crate::training::*;

/// A training step with each fault at each of its calls, after `warm` successful steps.
fn fails_well<B: Backend>(device: &Device<B>, has_values: bool, make: Build, warm: usize) {
    let ready = || {
        let faults = Faults::over(device);
        manual_seed(3);
        let mut training = make(&faults.device()).unwrap();
        training.by_norm = has_values;
        (0..warm).for_each(|_| training.step().unwrap());
        (faults, training)
    };
    let (faults, mut undisturbed) = ready();
    let values = |training: &Training| has_values.then(|| training.values());
    let before = values(&undisturbed);
    faults.disarm();
    undisturbed.step().unwrap();
    let calls = faults.calls();
    let after = values(&undisturbed);
    assert!(calls > 10 && (before.is_none() || before != after));

    for (n, fault) in (1..=calls).flat_map(|n| Fault::ALL.map(|fault| (n, fault))) {
        let (faults, mut training) = ready();
        let names = training.names();
        let live = faults.live_tensors();
        faults.arm(n, fault);
        let error = training.step().expect_err("a device that fails");
        let phase = training.phase.get();
        let case = format!("call {n} of {calls}, {fault:?}, {phase:?}");
        check(&error, &faults, fault, &case);
        let made_state = warm == 0 && phase == Phase::Step;
        assert!(
            faults.live_tensors() == live || made_state,
            "{case}: leaks while the model lives"
        );

        let path = error.module_path();
        let failed_at = match phase {
            Phase::Forward => {
                let layer = path.unwrap_or_else(|| panic!("{case}: {error} names no layer"));
                assert!(
                    layer.parse::<usize>().is_ok_and(|i| i < training.model.len()),
                    "{case}: {error}"
                );
                0
            }
            Phase::Step => {
                let path = path.unwrap_or_else(|| panic!("{case}: {error} names no parameter"));
                names
                    .iter()
                    .position(|name| *name == path)
                    .unwrap_or_else(|| panic!("{case}: {error}"))
            }
            _ => 0,
        };

        faults.disarm();
        // Parameters before the named one have been updated; that one and the later ones, and their state, are
        // unchanged.
        if let (Some(before), Some(after)) = (&before, &after) {
            let now = training.values();
            for (i, name) in names.iter().enumerate() {
                let expected = if i < failed_at { after } else { before };
                assert!(now[name] == expected[name], "{case}: {name}");
            }
        }
        training
            .step()
            .unwrap_or_else(|e| panic!("{case}: the next step fails with {e}"));
        if let Some(after) = &after {
            assert!(training.is_finite(), "{case}");
            assert!(
                failed_at > 0 || training.values() == *after,
                "{case}: the next step differs"
            );
        }
        drop((training, error));
        assert_eq!(faults.live_tensors(), 0, "{case}: leaks");
    }

    // There is no call after the last.
    let (faults, mut training) = ready();
    faults.arm(calls + 1, Fault::DeviceLost);
    training.step().unwrap();
    assert_eq!(faults.struck(), None);
}

fn fails_well_everywhere(make: Build) {
    for warm in [0, 1] {
        fails_well(&Device::<Cpu>::default(), true, make, warm);
        let null = Device::<Null>::default();
        fails_well(&null, false, make, warm);
        assert_eq!(null.inner().stats().live_tensors, 0);
    }
}

#[test]
fn an_mlp_with_adam() {
    fails_well_everywhere(mlp);
}

#[test]
fn an_mlp_with_rmsprop() {
    fails_well_everywhere(mlp_with_rmsprop);
}

#[test]
fn an_mlp_with_lamb_in_groups() {
    fails_well_everywhere(mlp_with_lamb);
}

#[test]
fn an_mlp_with_lion() {
    fails_well_everywhere(mlp_with_lion);
}

#[test]
fn an_mlp_with_muon() {
    fails_well_everywhere(mlp_with_muon);
}

#[test]
fn a_cnn_with_sgd() {
    fails_well_everywhere(cnn);
}

#[test]
fn embeddings_and_layer_norm_with_adamw() {
    fails_well_everywhere(embedded);
}
