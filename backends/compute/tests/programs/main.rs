//! Random whole programs: on the CPU's kernels as a backend and as a driver, and on backends with a fault, which must
//! be found.

mod mutant;

use std::sync::Arc;
use std::time::Duration;

use polygrad_compute::{Compute, ComputeDevice};
use polygrad_conformance::programs::{Engine, Found, Kept, Programs, replay, search};
use polygrad_cpu::{Cpu, CpuDriver};
use polygrad_tensor::{DType, Device, Error, Result, Tensor};

use mutant::{Fault, Mutant, Place};

fn held(device: &Device, options: &Programs) -> Found {
    let found = search(device, options, |_, _| {});
    let shown = found.failures.iter().map(|kept| {
        let rust = kept.to_rust("cpu").unwrap_or_else(|error| error.to_string());
        format!("number {} of seed {}\n{rust}", kept.from.1, kept.from.0)
    });
    let shown: Vec<String> = shown.collect();
    assert!(shown.is_empty(), "{found}\n{}", shown.join("\n"));
    found
}

fn options(tested: DType, count: u64) -> Programs {
    Programs {
        tested,
        count,
        ..Programs::default()
    }
}

#[test]
fn programs_hold_on_the_cpu() {
    let device = Device::<Cpu>::default().into_any();
    for (tested, count) in [(DType::F32, 300), (DType::F64, 100), (DType::BF16, 100)] {
        let found = held(&device, &options(tested, count));
        println!("{tested}: {found}");
    }
}

/// Reduced programs that failed in the past.
const KEPT: [&str; 3] = [
    include_str!("cases/f32-1-208.json"),
    include_str!("cases/f64-31-2748.json"),
    include_str!("cases/f32-41-13044.json"),
];

#[test]
fn kept_programs_hold() -> Result<()> {
    let driver = Device::<Compute<CpuDriver>>::from_inner(ComputeDevice::new(CpuDriver::default())?);
    for text in KEPT {
        let kept = Kept::from_json(text)?;
        for device in [Device::<Cpu>::default().into_any(), driver.clone().into_any()] {
            assert_eq!(replay(&device, &kept, &Programs::default()), None, "{text}");
        }
    }
    Ok(())
}

#[test]
fn programs_hold_on_the_kernels_as_a_driver() -> Result<()> {
    let device = Device::<Compute<CpuDriver>>::from_inner(ComputeDevice::new(CpuDriver::default())?);
    let memory = device.clone();
    let options = Programs {
        live: Some(Arc::new(move || memory.inner().stats().memory.live_bytes)),
        ..options(DType::F32, 60)
    };
    held(&device.into_any(), &options);
    Ok(())
}

#[test]
fn an_engine_is_asked_although_another_one_lacks_what_it_takes() {
    let lacks: Arc<Engine> = Arc::new(|_, _, _| Err(Error::unsupported("no such tensors")));
    let is_wrong: Arc<Engine> = Arc::new(|program, inputs, dtypes| {
        let outputs = program.forward(inputs, dtypes)?;
        outputs.iter().map(Tensor::zeros_like).collect()
    });
    let options = Programs {
        engines: [("first", lacks), ("second", is_wrong)]
            .map(|(name, engine)| (name.to_owned(), engine))
            .to_vec(),
        most_failures: 1,
        reducing: Duration::from_secs(1),
        ..options(DType::F32, 20)
    };
    let found = search(&Device::<Cpu>::default().into_any(), &options, |_, _| {});
    assert!(found.unsupported.contains_key("no such tensors"), "{found}");
    let [kept] = &found.failures[..] else {
        panic!("{found}");
    };
    assert!(kept.failure.reason.starts_with("second: "), "{}", kept.failure.reason);
}

/// The most programs that it may take to find a fault.
const MOST: u64 = 2000;

#[test]
fn each_kind_of_fault_is_found() {
    let below = Device::<Cpu>::default().into_any().inner().clone();
    let device = |fault: Fault| {
        let place = Place {
            below: below.clone(),
            fault,
        };
        Device::<Mutant>::from_inner(place).into_any()
    };
    held(&device(Fault::None), &options(DType::F32, 40));
    for fault in [
        Fault::DroppedEpilogue,
        Fault::WrongStrides,
        Fault::ReusedBuffer,
        Fault::AddedTwice,
        Fault::StaleInput,
    ] {
        let options = Programs {
            most_failures: 1,
            reducing: Duration::from_secs(1),
            ..options(DType::F32, MOST)
        };
        let found = search(&device(fault), &options, |_, _| {});
        let [kept] = &found.failures[..] else {
            panic!("{fault:?} is not found: {found}");
        };
        println!(
            "{fault:?} is found by program {}: {}",
            found.programs, kept.failure.reason
        );
        assert!(kept.program.steps.len() < 10, "{}", kept.to_json());
        let again = Kept::from_json(&kept.to_json()).unwrap();
        assert_eq!(again, *kept);
        assert!(replay(&device(fault), &again, &options).is_some(), "{}", kept.to_json());
    }
}
