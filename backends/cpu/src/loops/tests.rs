use polygrad_core::{Axes, Element, HostTensor, Layout, SliceRange};

use super::*;
use crate::CpuTensor;
use crate::simd::{Level, StorePolicy};

fn tensor<T: Element>(dims: &[usize], values: impl Fn(usize) -> T) -> CpuTensor {
    let shape = Shape::new(dims).unwrap();
    let host = HostTensor::new(shape, (0..shape.numel()).map(values).collect()).unwrap();
    CpuTensor::from_host(&host, CpuDevice::default()).unwrap()
}

fn indices(layout: &Layout) -> Vec<usize> {
    let mut out = vec![layout.offset().cast_signed()];
    for (&dim, &stride) in layout.shape().iter().zip(layout.strides()) {
        out = out
            .iter()
            .flat_map(|&base| (0..dim.cast_signed()).map(move |i| base + i * stride))
            .collect();
    }
    out.into_iter().map(isize::cast_unsigned).collect()
}

#[test]
fn copies_any_layout() {
    let big = [7, 45, 70];
    let x = tensor(&big, |i| i as i32);
    let full = |dims: &[usize]| dims.iter().map(|&d| SliceRange::full(d)).collect::<Vec<_>>();
    let mut backwards = full(&big);
    backwards[2] = SliceRange::new(69, 35, -2);
    let layouts = [
        x.layout(),
        x.layout().permute(Axes::new([2, 1, 0]).unwrap()),
        x.layout().permute(Axes::new([0, 2, 1]).unwrap()),
        x.layout().permute(Axes::new([1, 0, 2]).unwrap()),
        x.layout().slice(&backwards),
        x.layout().slice(&[
            SliceRange::new(3, 1, 1),
            SliceRange::full(45),
            SliceRange::new(1, 2, 30),
        ]),
        x.layout()
            .slice(&[SliceRange::full(7), SliceRange::full(45), SliceRange::new(1, 1, 1)])
            .expand(Shape::from([7, 45, 33])),
        x.layout()
            .slice(&[SliceRange::full(7), SliceRange::new(0, 0, 1), SliceRange::full(70)]),
    ];
    for layout in layouts {
        let expected: Vec<i32> = indices(&layout).into_iter().map(|i| i as i32).collect();
        let copy = x.with_layout(layout).copied().unwrap();
        assert_eq!(copy.slice::<i32>().unwrap(), expected, "{layout:?}");
    }
    let bytes = tensor(&[9, 40], |i| i as u8);
    let turned = bytes.with_layout(bytes.layout().permute(Axes::new([1, 0]).unwrap()));
    let expected: Vec<u8> = indices(&turned.layout()).into_iter().map(|i| i as u8).collect();
    assert_eq!(turned.copied().unwrap().slice::<u8>().unwrap(), expected);
}

#[test]
fn scatters_into_any_layout() {
    let x = tensor(&[3, 40], |i| i as i64);
    let mut out = tensor(&[40, 6], |_| -1i64);
    let layout = out
        .layout()
        .permute(Axes::new([1, 0]).unwrap())
        .slice(&[SliceRange::new(4, 3, -2), SliceRange::full(40)]);
    let start = out.ptr_mut().wrapping_add(layout.offset() * 8);
    // SAFETY: the layout is a part of `out`, which has just been made.
    unsafe { copy_into(&x, start, &layout) };
    let values = out.slice::<i64>().unwrap();
    for column in 0..40 {
        assert_eq!(
            values[column * 6..][..6],
            [80 + column as i64, -1, 40 + column as i64, -1, column as i64, -1]
        );
    }
}

#[test]
fn maps_broadcast_operands() {
    // Long rows, short rows, a single run, one value, and more than one task.
    for (a, b, out) in [
        (vec![5, 1, 100], vec![3, 1], vec![5, 3, 100]),
        (vec![2000, 3], vec![3], vec![2000, 3]),
        (vec![300, 1], vec![1, 700], vec![300, 700]),
        (vec![70_000], vec![70_000], vec![70_000]),
        (vec![100_000], vec![], vec![100_000]),
        (vec![70], vec![], vec![70]),
        (vec![1, 1], vec![9, 40], vec![9, 40]),
        (vec![400, 1], vec![400, 2], vec![400, 2]),
        (vec![3, 1, 5], vec![70, 1], vec![3, 70, 5]),
        (vec![], vec![], vec![]),
        (vec![0, 4], vec![4], vec![0, 4]),
    ] {
        let (a, b) = (tensor(&a, |i| i as i32), tensor(&b, |i| 7 * i as i64));
        let shape = Shape::new(&out).unwrap();
        let mut y = CpuTensor::empty(shape, polygrad_core::DType::I64, a.device()).unwrap();
        let to = y.ptr_mut();
        // SAFETY: operands and output have the shapes and types that the kernel takes.
        unsafe {
            map(
                a.device(),
                &shape,
                [Operand::new(&a, &shape), Operand::new(&b, &shape)],
                to,
                8,
                1.0,
                &|[a, b], y, n| {
                    for i in 0..n {
                        *y.cast::<i64>().add(i) = i64::from(*a.cast::<i32>().add(i)) + *b.cast::<i64>().add(i);
                    }
                },
            );
        }
        let (a, b) = (indices(&a.layout().expand(shape)), indices(&b.layout().expand(shape)));
        let expected: Vec<i64> = a.iter().zip(&b).map(|(&a, &b)| (a + 7 * b) as i64).collect();
        assert_eq!(y.slice::<i64>().unwrap(), expected);
    }
}

/// Three times each element of a slice, by the compiler's own loop.
struct Thrice<'a, T>(&'a [T]);

impl<T: Copy + std::ops::Add<Output = T>> Each for Thrice<'_, T> {
    type T = T;

    #[inline(always)]
    unsafe fn at(&self, i: usize) -> T {
        // SAFETY: by the caller.
        let x = unsafe { *self.0.get_unchecked(i) };
        x + x + x
    }
}

#[test]
fn what_goes_past_the_caches_is_what_stays() {
    fn check<T: Copy + Default + PartialEq + std::fmt::Debug + std::ops::Add<Output = T>>(x: &[T]) {
        for level in Level::available() {
            let past = StorePolicy::new(Some(level), usize::MAX);
            for start in 0..9 {
                for n in [0, 1, 15, 16, 64, 67, 200] {
                    let run = |policy: StorePolicy| {
                        let mut y = vec![T::default(); start + n + 1];
                        let (each, to) = (Thrice(x), y[start..].as_mut_ptr());
                        policy.run_loops(Fill { each, to, n });
                        y
                    };
                    assert_eq!(
                        run(past),
                        run(StorePolicy::cached(Some(level))),
                        "{} {start} {n}",
                        level.name()
                    );
                }
            }
        }
    }
    let x: Vec<f32> = (0..200u8).map(f32::from).collect();
    check(&x);
    check(&x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
    check(&(0..200u8).map(|x| x / 3).collect::<Vec<_>>());
    check(&(0..200i64).collect::<Vec<_>>());
    for level in Level::available() {
        for start in 0..17 {
            for n in [0, 5, 16, 48, 150] {
                let run = |policy: StorePolicy| {
                    let mut y = vec![0f32; start + n + 1];
                    // SAFETY: there are as many elements of both.
                    unsafe { crate::math::map(policy, crate::math::Exp, x.as_ptr(), y[start..].as_mut_ptr(), n) };
                    y
                };
                let past = StorePolicy::new(Some(level), usize::MAX);
                assert_eq!(
                    run(past),
                    run(StorePolicy::cached(Some(level))),
                    "{} {start} {n}",
                    level.name()
                );
            }
        }
    }
}
