//! Pointers and extents of every operand of every call.

use polygrad_core::compute::{Batch, DevicePtr, DeviceView, Gemm, Kernel};
use polygrad_core::{DType, ErrorKind, Layout, Shape, UnaryOp};

use super::super::case::Cases;
use super::super::fixture::{Block, Fixture};
use super::super::outcome::{CaseError, CaseResult};
use super::super::probe::{Probe, probes, product};

pub(super) fn cases(all: &mut Cases) {
    for probe in probes(DType::F32) {
        all.add(format!("pointers: {}", probe.name), move |fixture| {
            hold(fixture, &probe)
        });
    }
    all.add("pointers: products that make no sense", products);
    all.add("pointers: views that leave the memory", views);
}

fn hold(fixture: &Fixture<'_>, probe: &Probe) -> CaseResult {
    if let Some(kernel) = probe.kernel {
        fixture.needs(kernel, DType::F32)?;
    }
    let driver = fixture.driver;
    let mut good = Vec::new();
    for &bytes in &probe.operands {
        let ptr = driver.alloc(bytes)?;
        driver.copy_htod(ptr, &vec![0; bytes])?;
        good.push(ptr);
    }
    // Buffers of exactly the touched size suffice.
    (probe.call)(driver, &good)?;
    driver.synchronize()?;
    for (i, (&bytes, &size)) in probe.operands.iter().zip(&probe.sizes).enumerate() {
        let short = driver.alloc(bytes - size)?;
        let freed = driver.alloc(bytes)?;
        driver.free(freed)?;
        let bad = [
            ("one element too short", short),
            ("freed", freed),
            ("null", DevicePtr::NULL),
            ("one element further on", good[i].add(size)),
            ("at its end", good[i].add(bytes)),
            ("nobody's", DevicePtr::new(u64::MAX - 7)),
        ];
        for (what, ptr) in bad {
            let mut pointers = good.clone();
            pointers[i] = ptr;
            let what = format!("{} with operand {i} {what}", probe.name);
            fixture.fails(&what, ErrorKind::InvalidArgument, (probe.call)(driver, &pointers))?;
        }
        driver.free(short)?;
    }
    for ptr in good {
        driver.free(ptr)?;
    }
    Ok(())
}

fn products(fixture: &Fixture<'_>) -> CaseResult {
    let [a, b, c] = [
        fixture.out(DType::F32, &[400])?,
        fixture.out(DType::F32, &[400])?,
        fixture.out(DType::F32, &[400])?,
    ];
    let good = product(DType::F32, &[a.ptr, b.ptr, c.ptr]);
    let batch = Batch {
        count: 2,
        stride_a: 20,
        stride_b: 15,
        stride_c: 12,
    };
    let refused = |what: &str, result| fixture.fails(what, ErrorKind::InvalidArgument, result);
    for (what, call) in [
        ("lda below k", Gemm { lda: 4, ..good }),
        ("ldb below n", Gemm { ldb: 2, ..good }),
        ("ldc below n", Gemm { ldc: 2, ..good }),
        (
            "c of another dtype",
            Gemm {
                dtype_c: DType::I64,
                ..good
            },
        ),
        (
            "integers",
            Gemm {
                dtype: DType::I64,
                dtype_c: DType::I64,
                ..good
            },
        ),
        ("a beyond counting", Gemm { m: usize::MAX, ..good }),
        (
            "lda beyond counting",
            Gemm {
                lda: usize::MAX,
                ..good
            },
        ),
    ] {
        refused(what, fixture.driver.gemm(&call))?;
        refused(what, fixture.driver.batched_gemm(&call, &batch))?;
    }
    for (what, batch) in [
        ("results that overlap", Batch { stride_c: 11, ..batch }),
        ("results in one place", Batch { stride_c: 0, ..batch }),
        (
            "a batch beyond counting",
            Batch {
                count: usize::MAX,
                ..batch
            },
        ),
        (
            "a stride beyond counting",
            Batch {
                stride_a: usize::MAX,
                ..batch
            },
        ),
        ("more than there is", Batch { count: 40, ..batch }),
    ] {
        refused(what, fixture.driver.batched_gemm(&good, &batch))?;
    }
    Ok(())
}

fn views(fixture: &Fixture<'_>) -> CaseResult {
    let dtype = DType::F32;
    fixture.needs(Kernel::Elementwise, dtype)?;
    let (x, y) = (fixture.out(dtype, &[64])?, fixture.out(dtype, &[64])?);
    let four = Shape::new(&[4])?;
    let good = |block: &Block| DeviceView::contiguous(block.ptr, dtype, four);
    let refused = |what: &str, result| fixture.fails(what, ErrorKind::InvalidArgument, result);
    let bad = |ptr, strides: &[isize], offset| DeviceView::new(ptr, dtype, Layout::strided(four, strides, offset));
    for (what, strides, offset) in [
        ("backwards out of the memory", [-100], 2),
        ("forwards out of it", [100], 0),
        ("from beyond it", [1], 1000),
        ("from far beyond", [1], usize::MAX / 2),
        ("in steps beyond counting", [isize::MAX], 0),
    ] {
        let view = bad(x.ptr, &strides, offset);
        refused(what, fixture.driver.unary_strided(UnaryOp::Neg, &view, &good(&y)))?;
        let view = bad(y.ptr, &strides, offset);
        refused(what, fixture.driver.unary_strided(UnaryOp::Neg, &good(&x), &view))?;
    }
    let twice = bad(y.ptr, &[0], 0);
    refused(
        "an output that is one element",
        fixture.driver.unary_strided(UnaryOp::Neg, &good(&x), &twice),
    )?;
    // A view of an empty tensor needs no address.
    let none = DeviceView::contiguous(DevicePtr::NULL, dtype, Shape::new(&[0, 4])?);
    fixture
        .driver
        .unary_strided(UnaryOp::Neg, &none, &none)
        .map_err(CaseError::from)
}
