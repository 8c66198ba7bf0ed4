//! Recorded calls.

use polygrad_core::compute::{Binary, ComputeBackend, DeviceView, Gather, Reduce};
use polygrad_core::{BinaryOp, DType, ErrorKind, ReduceOp, Shape};

use crate::support::{each, empty, filled, read};

#[test]
fn what_is_recorded_runs_when_it_is_replayed() {
    each(|driver| {
        let dtype = DType::F32;
        let x = filled(driver, dtype, &vec![1.0; 4000]);
        let sum = empty(driver, dtype, 1);
        let graph = driver.capture(|| {
            driver.binary(&Binary {
                op: BinaryOp::Add,
                dtype,
                len: 4000,
                a: x,
                b: x,
                output: x,
            })?;
            // In parts, with memory of its own.
            driver.reduce(&Reduce {
                op: ReduceOp::Sum,
                dtype,
                outer: 1,
                len: 4000,
                inner: 1,
                input: x,
                output: sum,
            })
        });
        let graph = graph.unwrap();
        assert_eq!(read(driver, dtype, x, 2), [1.0, 1.0]);
        for factor in [2.0, 4.0] {
            driver.replay(&graph).unwrap();
            assert_eq!(read(driver, dtype, sum, 1), [4000.0 * factor]);
        }
        let error = driver.capture(|| driver.alloc(4).map(drop)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        driver.alloc(4).and_then(|ptr| driver.free(ptr)).unwrap();
        driver.free(x).unwrap();
        driver.free(sum).unwrap();

        let index = filled(driver, DType::I64, &[0.0, 9.0]);
        let view = |dtype| DeviceView::contiguous(index, dtype, Shape::from([2]));
        let output = empty(driver, DType::I64, 2);
        let (input, index_view) = (view(DType::I64), view(DType::I64));
        let graph = driver.capture(|| {
            driver.gather(&Gather {
                input,
                axis: 0,
                index: index_view,
                output,
            })
        });
        let graph = graph.unwrap();
        driver.synchronize().unwrap();
        for _ in 0..2 {
            driver.replay(&graph).unwrap();
            assert_eq!(driver.synchronize().unwrap_err().kind(), ErrorKind::OutOfRange);
        }
        driver.free(index).unwrap();
        driver.free(output).unwrap();
    });
}
