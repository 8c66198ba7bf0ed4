//! Indexing, and random numbers.

use polygrad_core::compute::{ComputeBackend, DeviceView, Gather, Random, Scatter};
use polygrad_core::{Axes, Backend, DType, Distribution, ErrorKind, Layout, RandomKey, Shape, random_host};
use polygrad_reference::Reference;

use crate::support::{close, each, empty, filled, numbers, read, reference, samples};

#[test]
fn elements_are_found_written_and_added_by_index() {
    each(|driver| {
        for dtype in DType::ALL {
            let (shape, order) = (Shape::from([5, 4, 3]), Axes::new([2, 0, 1]).unwrap());
            let clean = |n| -> Vec<f64> {
                samples(dtype, n)
                    .iter()
                    .map(|&x| if x.is_finite() { x } else { 1.0 })
                    .collect()
            };
            let (x, source) = (clean(60), clean(80).split_off(20));
            let target = filled(driver, dtype, &x);
            // [3, 5, 4] permuted; an index of [2, 9, 4] with many duplicates.
            let view = DeviceView::new(target, dtype, Layout::contiguous(shape).permute(order));
            let names: Vec<f64> = (0..72).map(|i| f64::from((i * 7) % 5)).collect();
            let index = filled(driver, DType::I64, &names);
            let index_view = DeviceView::contiguous(index, DType::I64, Shape::from([2, 9, 4]));
            let tensor = Reference::permute(&reference(dtype, shape, &x), order).unwrap();
            let index_tensor = reference(DType::I64, Shape::from([2, 9, 4]), &names);
            let output = empty(driver, dtype, 72);
            driver
                .gather(&Gather {
                    input: view,
                    axis: 1,
                    index: index_view,
                    output,
                })
                .unwrap();
            let wanted = numbers(&Reference::gather(&tensor, 1, &index_tensor).unwrap());
            close(dtype, &read(driver, dtype, output, 72), &wanted, 0.0, 0.0, "gather");

            // Distinct positions, so that the result is unique.
            let distinct: Vec<f64> = (0..24).map(|i| f64::from((i / 4) % 3)).collect();
            let places = filled(driver, DType::I64, &distinct);
            let part = Shape::from([2, 3, 4]);
            let values = filled(driver, dtype, &source);
            let call = Scatter {
                target: view,
                axis: 1,
                index: DeviceView::contiguous(places, DType::I64, part),
                source: DeviceView::new(
                    values,
                    dtype,
                    Layout::contiguous(Shape::from([2, 5, 4])).slice(&[
                        polygrad_core::SliceRange::full(2),
                        polygrad_core::SliceRange::new(0, 3, 1),
                        polygrad_core::SliceRange::full(4),
                    ]),
                ),
            };
            let whole = reference(dtype, Shape::from([2, 5, 4]), &source[..40]);
            let taken = Reference::slice(
                &whole,
                &[
                    polygrad_core::SliceRange::full(2),
                    polygrad_core::SliceRange::new(0, 3, 1),
                    polygrad_core::SliceRange::full(4),
                ],
            );
            let place_tensor = reference(DType::I64, part, &distinct);
            driver.scatter(&call).unwrap();
            let wanted = Reference::scatter(&tensor, 1, &place_tensor, &taken.unwrap()).unwrap();
            let back = numbers(&Reference::permute(&wanted, order.inverse()).unwrap());
            close(dtype, &read(driver, dtype, target, 60), &back, 0.0, 0.0, "scatter");

            if dtype != DType::Bool {
                let adds = filled(driver, dtype, &clean(72));
                let added = reference(dtype, Shape::from([2, 9, 4]), &clean(72));
                let call = Scatter {
                    target: view,
                    axis: 1,
                    index: index_view,
                    source: DeviceView::contiguous(adds, dtype, Shape::from([2, 9, 4])),
                };
                driver.scatter_add(&call).unwrap();
                let wanted = Reference::scatter_add(&wanted, 1, &index_tensor, &added).unwrap();
                let back = numbers(&Reference::permute(&wanted, order.inverse()).unwrap());
                close(dtype, &read(driver, dtype, target, 60), &back, 2.0, 1e-5, "scatter_add");
                driver.free(adds).unwrap();
            }
            for ptr in [target, index, output, places, values] {
                driver.free(ptr).unwrap();
            }
        }
    });
}

#[test]
fn an_index_outside_its_axis_is_told_and_moves_nothing() {
    each(|driver| {
        let dtype = DType::F32;
        let x = filled(driver, dtype, &[1.0, 2.0, 3.0]);
        let index = filled(driver, DType::I64, &[0.0, 3.0, -1.0]);
        let view = |ptr, dtype| DeviceView::contiguous(ptr, dtype, Shape::from([3]));
        let call = Scatter {
            target: view(x, dtype),
            axis: 0,
            index: view(index, DType::I64),
            source: view(x, dtype),
        };
        driver.scatter(&call).unwrap();
        let error = driver.synchronize().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange);
        assert!(error.to_string().contains("index 3 is outside an axis of 3"), "{error}");
        driver.synchronize().unwrap();
        driver
            .gather(&Gather {
                input: view(x, dtype),
                axis: 0,
                index: view(index, DType::I64),
                output: x,
            })
            .unwrap();
        let error = driver.copy_dtoh(&mut [0; 4], x).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange);
        assert_eq!(read(driver, dtype, x, 3), [1.0, 2.0, 3.0]);
        driver.free(x).unwrap();
        driver.free(index).unwrap();
    });
}

#[test]
fn random_numbers_are_the_hosts_bit_by_bit() {
    each(|driver| {
        let len = 301;
        for dtype in DType::ALL {
            for distribution in [
                Distribution::Uniform { low: -1.0, high: 3.0 },
                Distribution::Uniform { low: 0.0, high: 1e-40 },
                Distribution::Normal { mean: 1.0, std: 2.0 },
                Distribution::Bernoulli { p: 0.3 },
                Distribution::Integers { low: -5, high: 1 << 40 },
            ] {
                let key = RandomKey {
                    seed: 0x1234_5678_9abc_def0,
                    offset: 0xffff_fff0,
                };
                let output = empty(driver, dtype, len);
                driver
                    .random(&Random {
                        dtype,
                        len,
                        distribution,
                        key,
                        output,
                    })
                    .unwrap();
                let mut bytes = vec![0; len * dtype.size()];
                driver.copy_dtoh(&mut bytes, output).unwrap();
                let wanted = random_host(Shape::from([len]), distribution, dtype, key).unwrap();
                assert!(bytes == wanted.bytes(), "{distribution:?} {dtype}");
                driver.free(output).unwrap();
            }
        }
        let bad = Distribution::Bernoulli { p: 2.0 };
        let key = RandomKey { seed: 0, offset: 0 };
        let output = empty(driver, DType::F32, 1);
        let call = Random {
            dtype: DType::F32,
            len: 1,
            distribution: bad,
            key,
            output,
        };
        assert_eq!(driver.random(&call).unwrap_err().kind(), ErrorKind::InvalidArgument);
        driver.free(output).unwrap();
    });
}
