//! Runs a case on the reference backend and on CPU devices, and compares what comes out.

use polygrad_core::{
    AnyBackend, AnyDevice, AnyTensor, Axes, Backend, DType, Element, HostTensor, Result, Shape, SliceRange,
    dispatch_dtype,
};
use polygrad_cpu::{Cpu, CpuDevice, Kernels};
use polygrad_reference::{Reference, ReferenceDevice};

pub(crate) type Case<'a> = &'a dyn Fn(&AnyDevice) -> Result<Vec<AnyTensor>>;

pub(crate) fn cpu(threads: usize, kernels: Kernels) -> AnyDevice {
    AnyDevice::new::<Cpu>(CpuDevice::new(threads, kernels).unwrap())
}

fn devices() -> Vec<AnyDevice> {
    let mut out = vec![cpu(1, Kernels::Simd), cpu(3, Kernels::Simd), cpu(2, Kernels::Scalar)];
    if cfg!(feature = "blas") {
        out.push(cpu(1, Kernels::Blas));
    }
    out
}

fn run(device: &AnyDevice, case: Case<'_>) -> Result<Vec<HostTensor>> {
    case(device)?.iter().map(AnyBackend::to_host).collect()
}

/// How far results may be from the reference's, relative to the larger of 1 and the value: a few
/// units of the last place.
pub(crate) fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-13,
        DType::F32 => 1e-6,
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        _ => 0.0,
    }
}

/// Checks that every CPU device gives what the reference gives, or an error of the same kind. `slack` multiplies the
/// tolerance.
pub(crate) fn check(name: &str, slack: f64, case: Case<'_>) {
    let expected = run(&AnyDevice::new::<Reference>(ReferenceDevice), case);
    let mut first: Option<Vec<HostTensor>> = None;
    for device in devices() {
        let got = run(&device, case);
        match (&expected, got) {
            (Ok(expected), Ok(got)) => {
                compare(&format!("{name} on {device}"), slack, &got, expected);
                // The second device differs from the first by its threads alone.
                match &first {
                    Some(first) if device == cpu(3, Kernels::Simd) => {
                        for (a, b) in first.iter().zip(&got) {
                            assert_eq!(a.bytes(), b.bytes(), "{name} depends on the number of threads");
                        }
                    }
                    Some(_) => {}
                    None => first = Some(got),
                }
            }
            (Err(expected), Err(got)) => {
                assert_eq!(expected.kind(), got.kind(), "{name} on {device}: {got} / {expected}")
            }
            (Ok(_), Err(got)) => panic!("{name} on {device}: {got}"),
            (Err(expected), Ok(_)) => panic!("{name} on {device} gives a result, the reference {expected}"),
        }
    }
}

pub(crate) fn compare(name: &str, slack: f64, got: &[HostTensor], expected: &[HostTensor]) {
    assert_eq!(got.len(), expected.len(), "{name}");
    for (part, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert_eq!(
            (got.shape(), got.dtype()),
            (expected.shape(), expected.dtype()),
            "{name}, result {part}"
        );
        if !got.dtype().is_float() {
            assert_eq!(
                got.bytes(),
                expected.bytes(),
                "{name}, result {part}: {got:?} / {expected:?}"
            );
            continue;
        }
        let bound = slack * tolerance(got.dtype());
        for (i, (x, y)) in got.to_f64_vec().into_iter().zip(expected.to_f64_vec()).enumerate() {
            let close = x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= bound * y.abs().max(1.0);
            assert!(close, "{name}, result {part} at {i}: {x:e}, expected {y:e}");
        }
    }
}

/// Numbers without a pattern, from -2 to 2.
pub(crate) fn noise(i: usize, seed: u64) -> f64 {
    let mixed = (i as u64 + seed * 1_000_003).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((mixed ^ (mixed >> 27)) >> 11) as f64 / (1u64 << 51) as f64 - 2.0
}

/// A host tensor of noise; integers from -8 to 8 or 0 to 16, half of the bools set.
pub(crate) fn host(dims: &[usize], dtype: DType, seed: u64) -> HostTensor {
    let shape = Shape::new(dims).unwrap();
    dispatch_dtype!(dtype, T => {
        let value = |i| match dtype {
            DType::Bool => T::from_i64((noise(i, seed) > 0.0).into()),
            DType::U8 => T::from_i64((noise(i, seed) * 4.0) as i64 + 8),
            DType::I32 | DType::I64 => T::from_i64((noise(i, seed) * 4.0) as i64),
            _ => T::from_f64(noise(i, seed)),
        };
        HostTensor::new(shape, (0..shape.numel()).map(value).collect()).unwrap()
    })
}

pub(crate) fn tensor(device: &AnyDevice, dims: &[usize], dtype: DType, seed: u64) -> Result<AnyTensor> {
    AnyBackend::from_host(host(dims, dtype, seed), device)
}

pub(crate) fn floats(device: &AnyDevice, values: &[f32]) -> Result<AnyTensor> {
    AnyBackend::from_host(HostTensor::new(Shape::new(&[values.len()])?, values.to_vec())?, device)
}

pub(crate) fn integers(device: &AnyDevice, dims: &[usize], values: Vec<i64>) -> Result<AnyTensor> {
    AnyBackend::from_host(HostTensor::new(Shape::new(dims)?, values)?, device)
}

/// How a tensor came to its layout.
#[derive(Clone, Copy, Debug)]
pub(crate) enum View {
    Contiguous,
    Permuted,
    Stepped,
    Backwards,
    Expanded,
    Offset,
}

pub(crate) const VIEWS: [View; 6] = [
    View::Contiguous,
    View::Permuted,
    View::Stepped,
    View::Backwards,
    View::Expanded,
    View::Offset,
];

/// A tensor of these extents in a certain layout.
pub(crate) fn viewed(device: &AnyDevice, dims: &[usize], dtype: DType, seed: u64, view: View) -> Result<AnyTensor> {
    let rank = dims.len();
    let full: Vec<_> = dims.iter().map(|&dim| SliceRange::full(dim)).collect();
    match view {
        View::Contiguous => tensor(device, dims, dtype, seed),
        View::Permuted => {
            let reversed: Vec<_> = dims.iter().rev().copied().collect();
            AnyBackend::permute(&tensor(device, &reversed, dtype, seed)?, Axes::new((0..rank).rev())?)
        }
        View::Stepped => {
            let large: Vec<_> = dims.iter().map(|&dim| 2 * dim + 1).collect();
            let ranges: Vec<_> = dims.iter().map(|&dim| SliceRange::new(1, dim, 2)).collect();
            AnyBackend::slice(&tensor(device, &large, dtype, seed)?, &ranges)
        }
        View::Backwards => {
            let ranges: Vec<_> = dims
                .iter()
                .map(|&dim| SliceRange::new(dim.saturating_sub(1), dim, -1))
                .collect();
            AnyBackend::slice(&tensor(device, dims, dtype, seed)?, &ranges)
        }
        View::Expanded => {
            let mut small = dims.to_vec();
            small.iter_mut().step_by(2).for_each(|dim| *dim = 1.min(*dim));
            AnyBackend::expand(&tensor(device, &small, dtype, seed)?, Shape::new(dims)?)
        }
        View::Offset => {
            let mut large = dims.to_vec();
            let mut ranges = full;
            if let (Some(dim), Some(range)) = (large.first_mut(), ranges.first_mut()) {
                *dim += 3;
                range.start = 2;
            }
            AnyBackend::slice(&tensor(device, &large, dtype, seed)?, &ranges)
        }
    }
}
