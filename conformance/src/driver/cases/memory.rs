//! Memory, and copies.

use polygrad_core::compute::{Binary, ByteCopy, DevicePtr, Fill, Random};
use polygrad_core::{BinaryOp, DType, Distribution, ErrorKind, RandomKey, Scalar, Shape, random_host};

use super::super::case::Cases;
use super::super::fixture::Fixture;
use super::super::numbers::{drawn, listed};
use super::super::outcome::{CaseResult, wrong};
use crate::tolerance::Bounds;

/// A pointer that belongs to no allocation.
const FOREIGN: DevicePtr = DevicePtr::new(0xdead_beef_0000);

pub(super) fn cases(all: &mut Cases) {
    all.add("memory: addresses are apart and aligned", addresses);
    all.add("memory: zero bytes", zero);
    all.add("memory: too much is an error", too_much);
    all.add("free: what is no allocation", frees);
    all.add("copy: interior and beyond", copies);
    all.add("copy: after free", after_free);
    all.add("copy_dtod: overlapping upwards and downwards", overlapping);
    all.add("copy_each: many, of any extents", together);
    all.add("record: calls run each time that they are replayed", recorded);
    for dtype in DType::ALL {
        all.add(format!("fill {dtype}"), move |fixture| fill(fixture, dtype));
        if dtype != DType::Bool {
            all.add(format!("random {dtype}"), move |fixture| random(fixture, dtype));
        }
    }
}

fn addresses(fixture: &Fixture<'_>) -> CaseResult {
    let sizes = [1, 8, 3, 4096, 100_000, 0, 0];
    let mut all = Vec::new();
    for bytes in sizes {
        let ptr = fixture.driver.alloc(bytes)?;
        if !ptr.get().is_multiple_of(8) {
            return wrong(format!("{ptr:?} is no address of f64"));
        }
        all.push((ptr, bytes));
    }
    for (i, (a, size)) in all.iter().enumerate() {
        for (b, other) in &all[..i] {
            let apart = a.get() + *size as u64 <= b.get() || b.get() + *other as u64 <= a.get();
            if !apart || a == b {
                return wrong(format!("{size} bytes at {a:?} and {other} at {b:?}"));
            }
        }
    }
    for (ptr, _) in all {
        fixture.driver.free(ptr)?;
    }
    Ok(())
}

fn zero(fixture: &Fixture<'_>) -> CaseResult {
    let driver = fixture.driver;
    let (none, some) = (driver.alloc(0)?, driver.alloc(4)?);
    for ptr in [none, some, some.add(4), DevicePtr::NULL, FOREIGN] {
        driver.copy_htod(ptr, &[])?;
        driver.copy_dtoh(&mut [], ptr)?;
        driver.copy_dtod(ptr, FOREIGN, 0)?;
    }
    fixture.fails(
        "a byte to no bytes",
        ErrorKind::InvalidArgument,
        driver.copy_htod(none, &[1]),
    )?;
    driver.free(none)?;
    driver.free(some)?;
    fixture.fails("free of no bytes again", ErrorKind::InvalidArgument, driver.free(none))
}

fn too_much(fixture: &Fixture<'_>) -> CaseResult {
    for bytes in [usize::MAX, usize::MAX - 4096] {
        fixture.fails("alloc", ErrorKind::OutOfMemory, fixture.driver.alloc(bytes).map(drop))?;
    }
    // The driver continues to work.
    let ptr = fixture.driver.alloc(64)?;
    Ok(fixture.driver.free(ptr)?)
}

fn frees(fixture: &Fixture<'_>) -> CaseResult {
    let driver = fixture.driver;
    let (a, b) = (driver.alloc(64)?, driver.alloc(64)?);
    let refused = |what, ptr| fixture.fails(what, ErrorKind::InvalidArgument, driver.free(ptr));
    refused("free of an interior pointer", a.add(8))?;
    refused("free of the end", a.add(64))?;
    refused("free of null", DevicePtr::NULL)?;
    refused("free of a foreign pointer", FOREIGN)?;
    driver.free(a)?;
    refused("a double free", a)?;
    driver.copy_htod(b, &[1; 64])?;
    driver.free(b)?;
    refused("a double free", b)
}

fn copies(fixture: &Fixture<'_>) -> CaseResult {
    let driver = fixture.driver;
    let host = drawn(DType::U8, &[100], 1)?;
    let block = fixture.put_to_change(&host)?;
    driver.copy_htod(block.ptr.add(37), &[9; 5])?;
    let mut right = host.to_vec::<u8>()?;
    right[37..42].fill(9);
    let mut part = [0; 10];
    driver.copy_dtoh(&mut part, block.ptr.add(35))?;
    if fixture.options.values && (fixture.bytes(&block)? != right || part != right[35..45]) {
        return wrong("interior pointers reach other bytes");
    }
    let (a, b) = (driver.alloc(64)?, driver.alloc(64)?);
    for (ptr, bytes) in [
        (a, 65),
        (a.add(1), 64),
        (a.add(64), 1),
        (a.add(1 << 40), 1),
        (DevicePtr::NULL, 1),
        (FOREIGN, 8),
    ] {
        let what = format!("{bytes} bytes at {ptr:?}, of 64 at {a:?}");
        let mut host = vec![0; bytes];
        let refused = |how: &str, result| fixture.fails(&format!("{how}: {what}"), ErrorKind::InvalidArgument, result);
        refused("copy_htod", driver.copy_htod(ptr, &host))?;
        refused("copy_dtoh", driver.copy_dtoh(&mut host, ptr))?;
        refused(
            "copy_dtod from",
            driver
                .copy_dtod(b, ptr, bytes.min(64))
                .and_then(|()| driver.copy_dtod(b, ptr, bytes)),
        )?;
        refused(
            "copy_dtod to",
            driver
                .copy_dtod(ptr, b, bytes.min(64))
                .and_then(|()| driver.copy_dtod(ptr, b, bytes)),
        )?;
    }
    let far = DevicePtr::new(u64::MAX);
    fixture.fails(
        "copy_dtod",
        ErrorKind::InvalidArgument,
        driver.copy_dtod(far, a, usize::MAX),
    )?;
    let (dtype, value) = (DType::F32, Scalar::Int(1));
    for len in [17, usize::MAX / 4, usize::MAX] {
        let call = Fill {
            dtype,
            len,
            value,
            output: a,
        };
        fixture.fails("fill", ErrorKind::InvalidArgument, driver.fill(&call))?;
    }
    driver.free(a)?;
    Ok(driver.free(b)?)
}

fn after_free(fixture: &Fixture<'_>) -> CaseResult {
    let driver = fixture.driver;
    let (ptr, kept) = (driver.alloc(16)?, driver.alloc(16)?);
    driver.copy_htod(ptr, &[5; 16])?;
    driver.copy_dtod(kept, ptr, 16)?;
    driver.free(ptr)?;
    let refused = |what, result| fixture.fails(what, ErrorKind::InvalidArgument, result);
    refused("copy_htod after free", driver.copy_htod(ptr, &[1]))?;
    refused("copy_dtoh after free", driver.copy_dtoh(&mut [0], ptr))?;
    refused("copy_dtod after free", driver.copy_dtod(kept, ptr, 4))?;
    refused("copy_dtod after free", driver.copy_dtod(ptr, kept, 4))?;
    // Work queued before the memory was freed has read it.
    let mut bytes = [0; 16];
    driver.copy_dtoh(&mut bytes, kept)?;
    driver.free(kept)?;
    match bytes == [5; 16] || !fixture.options.values {
        true => Ok(()),
        false => wrong("a copy that was ordered before the free reads something else"),
    }
}

fn overlapping(fixture: &Fixture<'_>) -> CaseResult {
    let values: Vec<u8> = (0..=255).collect();
    let host = listed(DType::U8, &values.iter().map(|&x| f64::from(x)).collect::<Vec<_>>())?;
    for (from, to, count) in [
        (0, 1, 255),
        (1, 0, 255),
        (10, 42, 100),
        (42, 10, 100),
        (5, 5, 50),
        (0, 128, 128),
    ] {
        let block = fixture.put_to_change(&host)?;
        fixture
            .driver
            .copy_dtod(block.ptr.add(to), block.ptr.add(from), count)?;
        let mut right = values.clone();
        right.copy_within(from..from + count, to);
        if fixture.bytes(&block)? != right && fixture.options.values {
            return wrong(format!(
                "{count} bytes from {from} to {to}: the source is not read as it was before"
            ));
        }
    }
    Ok(())
}

fn together(fixture: &Fixture<'_>) -> CaseResult {
    let values: Vec<u8> = (0..=255).collect();
    let host = listed(DType::U8, &values.iter().map(|&x| f64::from(x)).collect::<Vec<_>>())?;
    let (from, to) = (fixture.put(&host)?, fixture.put_to_change(&host)?);
    // Single bytes, whole and partial words, and empty copies.
    let extents = (0..140).map(|i| (255 - i, i, usize::from(i % 3 != 0)));
    let extents: Vec<_> = extents.chain([(0, 144, 48), (7, 192, 0), (3, 193, 61)]).collect();
    let copies: Vec<ByteCopy> = extents
        .iter()
        .map(|&(src, dst, bytes)| ByteCopy {
            dst: to.ptr.add(dst),
            src: from.ptr.add(src),
            bytes,
        })
        .collect();
    fixture.driver.copy_each(&copies)?;
    let mut right = values.clone();
    for &(src, dst, bytes) in &extents {
        right[dst..dst + bytes].copy_from_slice(&values[src..src + bytes]);
    }
    if fixture.bytes(&to)? != right && fixture.options.values {
        return wrong("what was copied is not what was there");
    }
    let beyond = ByteCopy {
        dst: to.ptr,
        src: from.ptr,
        bytes: 1 << 40,
    };
    fixture.fails(
        "a copy of too much among others",
        ErrorKind::InvalidArgument,
        fixture.driver.copy_each(&[copies[1], beyond]),
    )
}

fn recorded(fixture: &Fixture<'_>) -> CaseResult {
    let driver = fixture.driver;
    let host = listed(DType::F32, &[1.0, 2.0, 3.0])?;
    let block = fixture.put_to_change(&host)?;
    let double = || {
        driver.binary(&Binary {
            op: BinaryOp::Add,
            dtype: DType::F32,
            len: 3,
            a: block.ptr,
            b: block.ptr,
            output: block.ptr,
        })
    };
    // Kernels for it are compiled first.
    double()?;
    let recording = driver.record(&mut || double())?;
    if !driver.capabilities().records {
        return wrong("it records, and says that it does not");
    }
    for factor in [2.0, 4.0, 8.0] {
        let truth = listed(DType::F32, &[factor, 2.0 * factor, 3.0 * factor])?;
        fixture.check("record", &block, &truth, Bounds::EXACT)?;
        driver.replay(&recording)?;
    }
    let failed = driver.record(&mut || driver.copy_dtoh(&mut [0], block.ptr));
    fixture.fails(
        "a copy to the host while it records",
        ErrorKind::Unsupported,
        failed.map(drop),
    )?;
    double().and_then(|()| driver.synchronize()).map_err(Into::into)
}

fn fill(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    fixture.holds(dtype)?;
    for (len, value) in [(0, 1.0), (1, 1.0), (5, 0.0), (1000, 1.0), (70_001, 3.0)] {
        let block = fixture.out(dtype, &[len])?;
        let value = Scalar::Float(value);
        fixture.driver.fill(&Fill {
            dtype,
            len,
            value,
            output: block.ptr,
        })?;
        let truth = listed(dtype, &vec![value.to_f64(); len])?;
        fixture.check("fill", &block, &truth, Bounds::EXACT)?;
    }
    Ok(())
}

fn random(fixture: &Fixture<'_>, dtype: DType) -> CaseResult {
    fixture.holds(dtype)?;
    let wide: i64 = if dtype.size() < 4 { 300 } else { 1 << 53 };
    for (distribution, offset) in [
        (Distribution::Uniform { low: 1.0, high: 9.0 }, 11),
        (Distribution::Uniform { low: 0.0, high: 1.0 }, u64::from(u32::MAX) - 500),
        (Distribution::Uniform { low: 0.0, high: 64.0 }, u64::MAX - 500),
        (Distribution::Normal { mean: 20.0, std: 2.0 }, 11),
        (Distribution::Bernoulli { p: 0.3 }, 11),
        (Distribution::Bernoulli { p: 1.0 }, 0),
        (Distribution::Integers { low: -7, high: 90 }, 11),
        (Distribution::Integers { low: -wide, high: wide }, 1 << 40),
    ] {
        let key = RandomKey {
            seed: 7 << 32 | 5,
            offset,
        };
        let block = fixture.out(dtype, &[1001])?;
        let output = block.ptr;
        fixture.driver.random(&Random {
            dtype,
            len: 1001,
            distribution,
            key,
            output,
        })?;
        let truth = random_host(Shape::new(&[1001])?, distribution, dtype, key)?;
        fixture.check("random", &block, &truth, Bounds::EXACT)?;
    }
    Ok(())
}
