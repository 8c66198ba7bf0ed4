//! Recorded calls.

use polygrad_core::compute::{Binary, ByteCopy, ComputeBackend, DeviceView, Gather, Reduce};
use polygrad_core::{BinaryOp, DType, ErrorKind, ReduceOp, Shape};

use crate::support::{each, empty, filled, read};

#[test]
fn what_is_recorded_runs_when_it_is_replayed() {
    each(|driver| {
        let dtype = DType::F32;
        let x = filled(driver, dtype, &vec![1.0; 4000]);
        let sum = empty(driver, dtype, 1);
        let graph = driver.record(&mut || {
            driver.binary(&Binary {
                op: BinaryOp::Add,
                dtype,
                len: 4000,
                a: x,
                b: x,
                output: x,
            })?;
            // In parts, with scratch memory.
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
        // Memory that is allocated while recording stays, and bytes from the host are copied in each replay.
        let mut place = None;
        let graph = driver.record(&mut || {
            let ptr = *place.insert(driver.alloc(4)?);
            driver.copy_htod(ptr, &5f32.to_ne_bytes())
        });
        let (graph, place) = (graph.unwrap(), place.unwrap());
        for _ in 0..2 {
            driver.replay(&graph).unwrap();
            assert_eq!(read(driver, dtype, place, 1), [5.0]);
            driver.copy_htod(place, &[0; 4]).unwrap();
        }
        // A panic ends the recording, too.
        let panics = || driver.record(&mut || panic!("on purpose")).map(drop);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert_eq!(read(driver, dtype, place, 1), [0.0]);
        let error = driver.record(&mut || driver.copy_dtoh(&mut [0; 4], x)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        driver.free(place).unwrap();
        driver.free(x).unwrap();
        driver.free(sum).unwrap();

        let index = filled(driver, DType::I64, &[0.0, 9.0]);
        let view = |dtype| DeviceView::contiguous(index, dtype, Shape::from([2]));
        let output = empty(driver, DType::I64, 2);
        let (input, index_view) = (view(DType::I64), view(DType::I64));
        let graph = driver.record(&mut || {
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

#[test]
fn many_places_are_copied_together() {
    each(|driver| {
        let values: Vec<f64> = (0..250).map(f64::from).collect();
        let from = filled(driver, DType::U8, &values);
        let to = filled(driver, DType::U8, &[255.0; 250]);
        // More than fit one launch; whole and partial groups of sixteen bytes, and empty copies.
        let copies: Vec<ByteCopy> = (0..140)
            .map(|i| ByteCopy {
                dst: to.add(i),
                src: from.add(i),
                bytes: usize::from(i % 3 != 2),
            })
            .chain([(160, 48), (208, 0), (209, 41)].map(|(at, bytes)| ByteCopy {
                dst: to.add(at),
                src: from.add(at),
                bytes,
            }))
            .collect();
        driver.copy_each(&copies).unwrap();
        let copied = |i: usize| (i < 140 && i % 3 != 2) || (160..208).contains(&i) || i >= 209;
        let wanted: Vec<f64> = (0..250).map(|i| if copied(i) { i as f64 } else { 255.0 }).collect();
        assert_eq!(read(driver, DType::U8, to, 250), wanted);
        let beyond = ByteCopy {
            dst: to,
            src: from.add(200),
            bytes: 51,
        };
        assert_eq!(
            driver.copy_each(&[beyond]).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
        driver.free(from).unwrap();
        driver.free(to).unwrap();
    });
}
