//! Each fault at each call.

use polygrad_conformance::{Fault, Faults};
use polygrad_tensor::{Backend, Device, Error, Result, is_grad_enabled};

/// Checks the properties that every error of a failing device has.
pub(crate) fn check(error: &Error, faults: &Faults, fault: Fault, case: &str) {
    let op = faults.struck().unwrap_or_else(|| panic!("{case}: {error}"));
    assert_eq!(error.kind(), fault.kind(), "{case}: {error}");
    assert!(error.to_string().contains(op), "{case}: {error} does not name {op}");
    // The device itself names the op only in its message.
    assert!(error.op().is_some(), "{case}: {error} has no op");
    assert!(is_grad_enabled(), "{case}");
}

/// Runs `f` with each fault at each of its calls: it must report the fault and leave nothing behind. `prepare` runs
/// without faults.
pub(crate) fn every_call<B: Backend, T>(
    device: &Device<B>,
    prepare: impl Fn(&Device) -> T,
    run: impl Fn(&Device, &mut T) -> Result<()>,
    check_after: impl Fn(&T),
) {
    let mut n = 0;
    loop {
        n += 1;
        for fault in Fault::ALL {
            let faults = Faults::over(device);
            let mut prepared = prepare(&faults.device());
            let live = faults.live_tensors();
            faults.arm(n, fault);
            let outcome = run(&faults.device(), &mut prepared);
            if faults.struck().is_none() {
                outcome.unwrap();
                assert!(n > 1, "nothing was called");
                return;
            }
            let case = format!("call {n}, {fault:?}");
            check(&outcome.expect_err(&case), &faults, fault, &case);
            assert_eq!(faults.live_tensors(), live, "{case}: leaks");
            faults.disarm();
            check_after(&prepared);
            drop(prepared);
            assert_eq!(faults.live_tensors(), 0, "{case}: leaks");
        }
    }
}
