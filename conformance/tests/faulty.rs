//! The suite finds faults: a backend that computes one op wrong fails, whichever op it is.

use std::any::TypeId;
use std::collections::BTreeSet;
use std::sync::OnceLock;

use polygrad_conformance::{Options, cases};
use polygrad_core::{
    AnyDevice, AnyTensor, BinaryOp, Capabilities, DType, Distribution, DynBackend, HostTensor, Op, OpDesc, Outputs,
    RandomKey, Result, Scalar, Shape, Support, UnaryOp,
};
use polygrad_reference::{Reference, ReferenceDevice};
use polygrad_tensor::{AnyBackend, Device};

/// The reference, with every result of ops of one name changed in its last element.
struct Faulty {
    op: std::sync::Mutex<&'static str>,
}

impl Faulty {
    fn breaks(&self, op: &Op) -> bool {
        *self.op.lock().unwrap() == op.name()
    }
}

fn inner() -> &'static AnyDevice {
    static INNER: OnceLock<AnyDevice> = OnceLock::new();
    INNER.get_or_init(|| AnyDevice::new::<Reference>(ReferenceDevice))
}

fn faulty() -> &'static Faulty {
    static FAULTY: OnceLock<Faulty> = OnceLock::new();
    FAULTY.get_or_init(|| Faulty {
        op: std::sync::Mutex::new(""),
    })
}

/// A tensor of the reference as one of this backend.
fn wrapped(x: AnyTensor) -> AnyTensor {
    let (shape, dtype) = (x.shape(), x.dtype());
    AnyTensor::from_parts(faulty(), x, shape, dtype)
}

fn bare(x: &AnyTensor) -> &AnyTensor {
    x.inner().unwrap()
}

/// The tensor with its last element another one.
fn disturbed(x: &AnyTensor) -> Result<AnyTensor> {
    let host = inner().backend().to_host(x)?;
    let mut values = host.to_f64_vec();
    if let Some(last) = values.last_mut() {
        *last = if last.is_finite() { 2.0 * *last + 1.0 } else { 0.0 };
        if host.dtype() == DType::Bool {
            *last = if *last > 1.5 { 0.0 } else { 1.0 };
        }
    }
    let changed = HostTensor::new(*host.shape(), values)?.cast(host.dtype());
    inner().backend().from_host(changed, inner())
}

impl DynBackend for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }
    fn id(&self) -> TypeId {
        TypeId::of::<Self>()
    }
    fn capabilities(&self, _: &AnyDevice) -> Result<Capabilities> {
        inner().backend().capabilities(inner())
    }
    fn supports(&self, _: &AnyDevice, op: &OpDesc<'_>) -> Result<Support> {
        inner().backend().supports(inner(), op)
    }
    fn synchronize(&self, _: &AnyDevice) -> Result<()> {
        Ok(())
    }
    fn device(&self, _: &AnyTensor) -> Result<AnyDevice> {
        Ok(device())
    }
    fn same_device(&self, _: &AnyTensor, _: &AnyTensor) -> bool {
        true
    }
    fn from_host(&self, host: HostTensor, _: &AnyDevice) -> Result<AnyTensor> {
        inner().backend().from_host(host, inner()).map(wrapped)
    }
    fn to_host(&self, x: &AnyTensor) -> Result<HostTensor> {
        inner().backend().to_host(bare(x))
    }
    fn full(&self, shape: Shape, value: Scalar, dtype: DType, _: &AnyDevice) -> Result<AnyTensor> {
        inner().backend().full(shape, value, dtype, inner()).map(wrapped)
    }
    fn iota(&self, len: usize, start: Scalar, step: Scalar, dtype: DType, _: &AnyDevice) -> Result<AnyTensor> {
        inner().backend().iota(len, start, step, dtype, inner()).map(wrapped)
    }
    fn random(
        &self,
        shape: Shape,
        from: Distribution,
        dtype: DType,
        key: RandomKey,
        _: &AnyDevice,
    ) -> Result<AnyTensor> {
        inner().backend().random(shape, from, dtype, key, inner()).map(wrapped)
    }
    fn execute(&self, op: &Op, inputs: &[&AnyTensor]) -> Result<Outputs> {
        let inputs: Vec<&AnyTensor> = inputs.iter().map(|x| bare(x)).collect();
        let mut outputs = inner().backend().execute(op, &inputs)?;
        for output in outputs.iter_mut() {
            let result = if self.breaks(op) {
                disturbed(output)?
            } else {
                output.clone()
            };
            *output = wrapped(result);
        }
        Ok(outputs)
    }
    fn update(&self, op: &Op, targets: &mut [&mut AnyTensor], grad: &AnyTensor) -> Result<()> {
        let mut own: Vec<AnyTensor> = targets.iter().map(|x| bare(x).clone()).collect();
        let mut handles: Vec<&mut AnyTensor> = own.iter_mut().collect();
        inner().backend().update(op, &mut handles, bare(grad))?;
        for (target, result) in targets.iter_mut().zip(own) {
            let result = if self.breaks(op) { disturbed(&result)? } else { result };
            **target = wrapped(result);
        }
        Ok(())
    }
}

fn device() -> AnyDevice {
    AnyDevice::from_parts(faulty(), std::sync::Arc::new(ReferenceDevice))
}

#[test]
fn every_op_that_is_wrong_is_found() {
    let device = Device::<AnyBackend>::from_inner(device());
    let all = cases(&device, &Options::default()).unwrap();
    let generated: Vec<_> = all.iter().filter(|case| case.source().name() == "generated").collect();
    let ops: BTreeSet<&str> = generated.iter().map(|case| case.op()).collect();
    assert!(ops.contains(UnaryOp::Exp.name()) && ops.contains(BinaryOp::Add.name()) && ops.len() > 80);
    let run = |op: &str| {
        let of_op = generated.iter().filter(|case| case.op() == op);
        of_op.map(|case| case.run(&device)).collect::<Vec<_>>()
    };
    for op in ops {
        let passes = |outcome: &polygrad_conformance::Outcome| outcome.sides().all(|(_, status)| status.passes());
        *faulty().op.lock().unwrap() = "";
        assert!(run(op).iter().all(passes), "{op} is right, and fails");
        *faulty().op.lock().unwrap() = Box::leak(op.to_owned().into_boxed_str());
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
