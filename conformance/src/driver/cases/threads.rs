//! Concurrent calls from several threads.

use polygrad_core::compute::{Binary, Unary};
use polygrad_core::{BinaryOp, DType, ErrorKind, UnaryOp};

use super::super::case::Cases;
use super::super::fixture::Fixture;
use super::super::outcome::{CaseError, CaseResult, wrong};
use super::super::probe::product;

pub(super) fn cases(all: &mut Cases) {
    all.add("threads: calls at once", at_once);
    all.add("threads: a pointer that another one frees", freed);
}

fn at_once(fixture: &Fixture<'_>) -> CaseResult {
    let (driver, values) = (fixture.driver, fixture.options.values);
    let work = |seed: usize| -> CaseResult {
        let n = 3000;
        for round in 0..8 {
            let start = (seed * 100 + round) as f32;
            let bytes: Vec<u8> = (0..n).flat_map(|i| (start + i as f32).to_ne_bytes()).collect();
            let (x, y) = (driver.alloc(bytes.len())?, driver.alloc(bytes.len())?);
            driver.copy_htod(x, &bytes)?;
            let dtype = DType::F32;
            driver.unary(&Unary {
                op: UnaryOp::Neg,
                dtype,
                len: n,
                input: x,
                output: y,
            })?;
            driver.binary(&Binary {
                op: BinaryOp::Mul,
                dtype,
                len: n,
                a: x,
                b: y,
                output: y,
            })?;
            driver.gemm(&product(dtype, &[x, x.add(400), y.add(4000)]))?;
            let mut out = vec![0; 4000];
            driver.copy_dtoh(&mut out, y)?;
            driver.free(x)?;
            driver.free(y)?;
            for (i, chunk) in out.chunks_exact(4).enumerate() {
                let (x, mut number) = (start + i as f32, [0; 4]);
                number.copy_from_slice(chunk);
                let answer = f32::from_ne_bytes(number);
                if values && answer != -x * x {
                    return wrong(format!("thread {seed} reads {answer} where {} is right", -x * x));
                }
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || work(seed))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(done) => done,
            Err(_) => wrong("a thread panics"),
        })
    })
}

fn freed(fixture: &Fixture<'_>) -> CaseResult {
    let driver = fixture.driver;
    for _ in 0..20 {
        let ptr = driver.alloc(4096)?;
        driver.copy_htod(ptr, &[0; 4096])?;
        let call = Unary {
            op: UnaryOp::Neg,
            dtype: DType::F32,
            len: 1024,
            input: ptr,
            output: ptr,
        };
        let outcome = std::thread::scope(|scope| {
            let user = scope.spawn(move || (0..10).try_for_each(|_| driver.unary(&call)));
            let freed = driver.free(ptr);
            (freed, user.join())
        });
        let (freed, used) = outcome;
        freed?;
        match used {
            Ok(Ok(())) => {}
            Ok(Err(error)) if error.kind() == ErrorKind::InvalidArgument => {}
            Ok(Err(error)) => return Err(CaseError::from(error)),
            Err(_) => return wrong("a thread panics"),
        }
    }
    Ok(())
}
