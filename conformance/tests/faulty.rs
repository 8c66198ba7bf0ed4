//! The suite finds faults: a backend that computes one op wrong fails, whichever op it is.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use polygrad_conformance::{Call, Hooks, Options, Outcome, Wrapped, cases, reference};
use polygrad_core::{AnyTensor, BinaryOp, HostTensor, Result, UnaryOp};

/// Changes the last element of every result of ops of one name.
#[derive(Default)]
struct Faulty {
    op: Mutex<String>,
}

impl Hooks for Faulty {
    fn after(&self, call: &Call<'_>, result: AnyTensor) -> Result<AnyTensor> {
        let breaks = matches!(call, Call::Op(op) if *self.op.lock().unwrap() == op.name());
        if breaks { disturbed(&result) } else { Ok(result) }
    }
}

/// The tensor with its last element another one.
fn disturbed(x: &AnyTensor) -> Result<AnyTensor> {
    let host = x.backend().to_host(x)?;
    let mut values = host.to_f64_vec();
    if let Some(last) = values.last_mut() {
        // At least 0.5 away, in every dtype.
        *last = if *last > 0.5 || !last.is_finite() {
            0.0
        } else {
            2.0 - *last
        };
    }
    let changed = HostTensor::new(*host.shape(), values)?.cast(host.dtype());
    x.backend().from_host(changed, &x.backend().device(x)?)
}

#[test]
fn every_op_that_is_wrong_is_found() {
    let faulty = Arc::new(Faulty::default());
    let device = Wrapped::new(&reference(), Arc::clone(&faulty)).device();
    let all = cases(&device, &Options::default()).unwrap();
    let generated: Vec<_> = all.iter().filter(|case| case.source().name() == "generated").collect();
    let ops: BTreeSet<&str> = generated.iter().map(|case| case.op()).collect();
    assert!(ops.contains(UnaryOp::Exp.name()) && ops.contains(BinaryOp::Add.name()) && ops.len() > 80);
    let run = |op: &str| {
        let of_op = generated.iter().filter(|case| case.op() == op);
        of_op.map(|case| case.run(&device)).collect::<Vec<_>>()
    };
    for op in ops {
        let passes = |outcome: &Outcome| outcome.sides().all(|(_, status)| status.passes());
        faulty.op.lock().unwrap().clear();
        assert!(run(op).iter().all(passes), "{op} is right, and fails");
        op.clone_into(&mut faulty.op.lock().unwrap());
        let outcomes = run(op);
        let found = outcomes.iter().filter(|outcome| !passes(outcome)).count();
        // Cases of no elements have nothing to be wrong in.
        assert!(
            found * 2 > outcomes.len(),
            "{op} is wrong, and {found} of {} cases notice",
            outcomes.len()
        );
    }
}
