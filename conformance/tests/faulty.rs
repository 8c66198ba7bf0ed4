//! The suite detects faults: a backend that computes any single op wrong fails.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use polygrad_conformance::{Call, Hooks, Options, Outcome, Wrapped, cases, reference};
use polygrad_core::{AnyTensor, BinaryOp, DType, HostTensor, Result, UnaryOp};

/// Changes every result of the ops with one name.
#[derive(Default)]
struct Faulty {
    broken: Mutex<Option<(String, Fault)>>,
}

type Fault = fn(&mut [f64]);

impl Hooks for Faulty {
    fn after(&self, call: &Call<'_>, result: AnyTensor) -> Result<AnyTensor> {
        match (call, &*self.broken.lock().unwrap()) {
            (Call::Op(op), Some((name, fault))) if *name == op.name() => disturbed(&result, *fault),
            _ => Ok(result),
        }
    }
}

fn disturbed(x: &AnyTensor, fault: Fault) -> Result<AnyTensor> {
    let host = x.backend().to_host(x)?;
    let mut values = host.to_f64_vec();
    fault(&mut values);
    let changed = HostTensor::new(*host.shape(), values)?.cast(host.dtype());
    x.backend().from_host(changed, &x.backend().device(x)?)
}

/// Replaces the last element.
fn last(values: &mut [f64]) {
    if let Some(last) = values.last_mut() {
        // Differs by at least 0.5, in every dtype.
        *last = if *last > 0.5 || !last.is_finite() {
            0.0
        } else {
            2.0 - *last
        };
    }
}

fn zeros(values: &mut [f64]) {
    values.fill(0.0);
}

#[test]
fn every_op_that_is_wrong_is_found() {
    let faulty = Arc::new(Faulty::default());
    let device = Wrapped::new(&reference(), Arc::clone(&faulty)).device();
    let all = cases(&device, &Options::default()).unwrap();
    let generated: Vec<_> = all.iter().filter(|case| case.source().name() == "generated").collect();
    let ops: BTreeSet<&str> = generated.iter().map(|case| case.op()).collect();
    assert!(ops.contains(UnaryOp::Exp.name()) && ops.contains(BinaryOp::Add.name()) && ops.len() > 80);
    let run = |op: &str, fault: Option<Fault>| {
        *faulty.broken.lock().unwrap() = fault.map(|fault| (op.to_owned(), fault));
        let of_op = generated.iter().filter(|case| case.op() == op);
        of_op.map(|case| (case.dtype(), case.run(&device))).collect::<Vec<_>>()
    };
    for op in ops {
        let passes = |(_, outcome): &(DType, Outcome)| outcome.sides().all(|(_, status)| status.passes());
        assert!(run(op, None).iter().all(passes), "{op} is right, and fails");
        let outcomes = run(op, Some(last));
        let found = outcomes.iter().filter(|outcome| !passes(outcome)).count();
        // Cases without elements cannot detect it.
        assert!(
            found * 2 > outcomes.len(),
            "{op} is wrong, and {found} of {} cases notice",
            outcomes.len()
        );
        let outcomes = run(op, Some(zeros));
        let floats: BTreeSet<&str> = outcomes
            .iter()
            .filter(|(dtype, _)| dtype.is_float())
            .map(|(dtype, _)| dtype.name())
            .collect();
        for dtype in floats {
            let of_dtype: Vec<_> = outcomes.iter().filter(|(tested, _)| tested.name() == dtype).collect();
            let found = of_dtype.iter().filter(|outcome| !passes(outcome)).count();
            // Most comparisons return false, which is 0.
            assert!(
                found > 0,
                "{op} is 0 in {dtype}, and {found} of {} cases notice",
                of_dtype.len()
            );
        }
    }
}
