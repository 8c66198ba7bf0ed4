//! Runs the suite for drivers on the drivers of this repository, and tests that the suite detects faults.

use std::sync::Arc;

use polygrad_conformance::driver::{
    DriverCall, DriverFault, DriverHooks, DriverOptions, FaultyDriver, Hooked, driver_harness, run_driver,
};
use polygrad_conformance::libtest_mimic::{self, Arguments, Failed, Trial};
use polygrad_core::compute::ComputeBackend;
use polygrad_core::{ErrorKind, Result};
use polygrad_cpu::{CpuDevice, CpuDriver, Kernels};
use polygrad_null::NullDriver;

fn cpu(kernels: Kernels) -> impl Fn() -> Result<Box<dyn ComputeBackend>> + Send + Sync + Clone {
    move || Ok(Box::new(CpuDriver::new(CpuDevice::new(2, kernels)?)))
}

/// Changes the last element written by each call with this name.
struct Breaks(&'static str);

impl DriverHooks for Breaks {
    fn after(&self, call: &DriverCall<'_>, driver: &dyn ComputeBackend) -> Result<()> {
        if call.name() != self.0 {
            return Ok(());
        }
        for output in call.outputs()? {
            let size = output.dtype.size();
            if output.span.is_empty() {
                continue;
            }
            let (last, mut bytes) = (output.ptr.add(output.span.end - size), vec![0; size]);
            driver.copy_dtoh(&mut bytes, last)?;
            bytes.iter_mut().for_each(|byte| *byte = !*byte);
            driver.copy_htod(last, &bytes)?;
        }
        Ok(())
    }
}

/// Each method, and cases that must detect a fault in it.
const BREAKABLE: [(&str, &str); 30] = [
    ("copy_htod", "copy: interior"),
    ("copy_dtod", "copy_dtod: overlapping"),
    ("fill", "fill"),
    ("random", "random"),
    ("gemm", "gemm f32: shapes"),
    ("gemm", "gemm f64: transposed"),
    ("gemm", "gemm bf16 into f32"),
    ("batched_gemm", "batched_gemm f32"),
    ("unary", "unary"),
    ("binary", "binary"),
    ("elementwise", "elementwise"),
    ("compare_strided", "compare_strided"),
    ("select_strided", "select_strided"),
    ("copy_strided", "copy_strided"),
    ("reduce", "reduce sum"),
    ("reduce", "reduce: a long sum"),
    ("reduce_axes", "reduce_axes"),
    ("arg_reduce", "arg_reduce"),
    ("cumsum", "cumsum"),
    ("sort", "sort"),
    ("gather", "gather i64"),
    ("scatter", "scatter f32"),
    ("scatter_add", "scatter_add f32"),
    ("softmax", "softmax f32"),
    ("softmax_backward", "softmax_backward"),
    ("layer_norm", "layer_norm"),
    ("attention", "attention f32"),
    ("conv2d_forward", "conv2d_forward f32"),
    ("conv2d_weight_grad", "conv2d_weight_grad f32"),
    ("max_pool2d", "max_pool2d f32"),
];

fn noticed(method: &'static str, cases: &str) -> std::result::Result<(), Failed> {
    let options = DriverOptions {
        case: Some(cases.to_owned()),
        long: 100_000,
        ..DriverOptions::default()
    };
    let make = || -> Result<Box<dyn ComputeBackend>> {
        let driver = CpuDriver::new(CpuDevice::new(1, Kernels::Simd)?);
        Ok(Box::new(Hooked::new(driver, Arc::new(Breaks(method)))))
    };
    let report = run_driver(&make, &options)?;
    let [pass, fail, lacks] = report.counts();
    // Cases with rejected pointers or without elements cannot detect it.
    if lacks > 0 || fail <= pass {
        return Err(format!(
            "{method} is wrong, and {pass} of {} cases pass\n{report}",
            pass + fail + lacks
        )
        .into());
    }
    Ok(())
}

/// A lost device fails every case, and no case panics.
fn lost() -> std::result::Result<(), Failed> {
    let options = DriverOptions {
        case: Some("gemm f32".to_owned()),
        ..DriverOptions::default()
    };
    let make = || -> Result<Box<dyn ComputeBackend>> {
        let driver = FaultyDriver::over(NullDriver::default());
        driver.init()?;
        driver.hooks().arm(Some("alloc"), 1, DriverFault::Lost);
        Ok(Box::new(driver))
    };
    let report = run_driver(&make, &options)?;
    let of_device = |what: &String| what.contains(ErrorKind::DeviceError.as_str());
    if report.counts()[1] != report.records.len() || !report.complaints().iter().all(of_device) {
        return Err(report.to_string().into());
    }
    Ok(())
}

fn main() {
    let options = DriverOptions::default();
    let mut tests = driver_harness("compute-cpu", cpu(Kernels::Simd), &options);
    let short = DriverOptions {
        long: 1_000_000,
        ..options.clone()
    };
    tests.extend(driver_harness(
        "compute-cpu:kernels=scalar",
        cpu(Kernels::Scalar),
        &short,
    ));
    let nothing = DriverOptions {
        values: false,
        ..options
    };
    tests.extend(driver_harness(
        "compute-null",
        || Ok(Box::new(NullDriver::default())),
        &nothing,
    ));
    tests.extend(BREAKABLE.iter().map(|&(method, cases)| {
        Trial::test(format!("a wrong {method} is noticed by {cases}"), move || {
            noticed(method, cases)
        })
    }));
    tests.push(Trial::test("a lost device is an error", lost));
    libtest_mimic::run(&Arguments::from_args(), tests).exit()
}
