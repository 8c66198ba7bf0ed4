//! Views, padding and concatenation.

use polygrad_core::{Op, Scalar, SliceRange};

use super::{axes, shape};
use crate::generated::fill::Fill;
use crate::generated::sample::{Operand, Sample};

fn any(dims: &[usize]) -> Operand {
    Operand::drawn(dims, Fill::Range(0.0, 99.0))
}

fn text(value: impl std::fmt::Debug) -> String {
    format!("{value:?}").replace(", ", ",")
}

pub(super) fn add(samples: &mut Vec<Sample>) {
    for (from, to) in [
        (&[][..], &[1, 1][..]),
        (&[12], &[3, 4]),
        (&[3, 4], &[12]),
        (&[2, 3, 4], &[4, 6]),
        (&[2, 3, 4], &[2, 1, 3, 4]),
        (&[1], &[]),
        (&[0, 3], &[3, 0]),
    ] {
        samples.push(Sample::new(
            Op::Reshape(shape(to)),
            vec![any(from)],
            &format!("to {}", text(to)),
        ));
    }
    for (from, order) in [
        (&[][..], &[][..]),
        (&[3, 5], &[1, 0]),
        (&[2, 3, 4], &[2, 0, 1]),
        (&[2, 3, 4], &[0, 2, 1]),
        (&[0, 3], &[1, 0]),
        (&[2, 1, 3, 2], &[3, 1, 0, 2]),
    ] {
        samples.push(Sample::new(Op::Permute(axes(order)), vec![any(from)], &text(order)));
    }
    for (from, to) in [
        (&[][..], &[2, 3][..]),
        (&[3], &[2, 3]),
        (&[3, 1], &[3, 4]),
        (&[1, 3, 1], &[2, 3, 4]),
        (&[1], &[0]),
        (&[2, 3], &[2, 3]),
    ] {
        samples.push(Sample::new(
            Op::Expand(shape(to)),
            vec![any(from)],
            &format!("to {}", text(to)),
        ));
    }
    let range = SliceRange::new;
    for (from, ranges) in [
        (&[][..], vec![]),
        (&[9], vec![range(2, 4, 1)]),
        (&[9], vec![range(8, 5, -2)]),
        (&[3, 5], vec![range(0, 3, 1), range(1, 2, 3)]),
        (&[2, 3, 4], vec![range(1, 1, 1), range(2, 3, -1), range(0, 2, 2)]),
        (&[4], vec![range(3, 0, 1)]),
        (&[0, 3], vec![range(0, 0, 1), range(1, 2, 1)]),
    ] {
        let words: Vec<String> = ranges
            .iter()
            .map(|r| format!("{}+{}x{}", r.start, r.len, r.step))
            .collect();
        samples.push(Sample::new(Op::Slice(ranges.into()), vec![any(from)], &words.join(",")));
    }
    for (from, padding) in [
        (&[4][..], vec![(1, 2)]),
        (&[3, 5], vec![(0, 0), (2, 0)]),
        (&[2, 3, 4], vec![(1, 0), (0, 1), (2, 2)]),
        (&[0, 2], vec![(1, 1), (0, 1)]),
        (&[], vec![]),
    ] {
        let words = text(&padding);
        let call = Op::Pad {
            padding: padding.into(),
            value: Scalar::Int(7),
        };
        samples.push(Sample::new(call, vec![any(from)], &words));
    }
    for (parts, axis) in [
        (&[&[2, 3][..], &[4, 3]][..], 0),
        (&[&[2, 3], &[2, 1], &[2, 0]], 1),
        (&[&[5]], 0),
        (&[&[0, 2], &[3, 2]], 0),
        (&[&[2, 2, 3], &[2, 4, 3]], 1),
    ] {
        let operands = parts.iter().map(|dims| any(dims)).collect();
        samples.push(Sample::new(Op::Concat { axis }, operands, &format!("axis {axis}")));
    }
}
