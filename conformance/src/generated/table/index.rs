//! Gathering, scattering and ordering.

use polygrad_core::Op;

use crate::generated::fill::Fill;
use crate::generated::sample::{Operand, Sample};

fn any(dims: &[usize]) -> Operand {
    Operand::drawn(dims, Fill::Range(0.0, 20.0))
}

pub(super) fn add(samples: &mut Vec<Sample>) {
    for (x, axis, index) in [
        (&[7][..], 0, &[4][..]),
        (&[3, 5], 1, &[3, 2]),
        (&[3, 5], 0, &[6, 5]),
        (&[3, 5], 0, &[2, 4]),
        (&[2, 3, 4], 1, &[2, 5, 3]),
        (&[3, 5], 1, &[0, 2]),
    ] {
        let words = format!("axis {axis}");
        let positions = || Operand::index(index, x[axis]);
        samples.push(Sample::new(Op::Gather { axis }, vec![any(x), positions()], &words));
        let operands = vec![any(x), positions(), any(index)];
        samples.push(Sample::new(Op::ScatterAdd { axis }, operands, &words));
    }
    // Of several writes to one position any may win, so each position is written once.
    for (x, axis, index) in [
        (&[7][..], 0, &[7][..]),
        (&[5, 1], 0, &[5, 1]),
        (&[1, 9], 1, &[1, 9]),
        (&[3, 5], 1, &[0, 5]),
    ] {
        let words = format!("axis {axis}");
        let operands = vec![any(x), Operand::distinct_index(index), any(index)];
        samples.push(Sample::new(Op::Scatter { axis }, operands, &words));
    }
    for (x, axis, count) in [
        (&[7][..], 0, 4),
        (&[3, 5], 1, 9),
        (&[3, 5], 0, 2),
        (&[2, 3, 4], 1, 3),
        (&[3, 5], 0, 0),
    ] {
        let words = format!("axis {axis}");
        let positions = || Operand::index(&[count], x[axis]);
        samples.push(Sample::new(Op::IndexSelect { axis }, vec![any(x), positions()], &words));
        let mut src = x.to_vec();
        src[axis] = count;
        samples.push(Sample::new(
            Op::IndexAdd { axis },
            vec![any(x), positions(), any(&src)],
            &words,
        ));
    }
    for (x, axis) in [
        (&[9][..], 0),
        (&[3, 5], 1),
        (&[3, 5], 0),
        (&[2, 3, 4], 1),
        (&[0, 3], 0),
        (&[1], 0),
        (&[2, 70], 1),
    ] {
        for descending in [false, true] {
            let words = format!("axis {axis}{}", if descending { " descending" } else { "" });
            // Few different values, since equal ones must keep their order.
            let few = Operand::drawn(x, Fill::Range(-3.0, 4.0));
            samples.push(Sample::new(Op::Sort { axis, descending }, vec![few], &words));
        }
    }
    let special = Operand::drawn(&[3, 14], Fill::Special);
    let call = Op::Sort {
        axis: 1,
        descending: false,
    };
    let floats = polygrad_core::DType::ALL
        .into_iter()
        .filter(|dtype| dtype.is_float())
        .collect::<Vec<_>>();
    samples.push(Sample::new(call, vec![special], "special").contiguous().only(&floats));
    for (index, padding_idx) in [(&[4][..], None), (&[2, 3], Some(1)), (&[], None), (&[0], None)] {
        let words = if padding_idx.is_some() { "padding" } else { "" };
        let positions = || Operand::index(index, 5);
        samples.push(Sample::new(
            Op::Embedding { padding_idx },
            vec![any(&[5, 3]), positions()],
            words,
        ));
        let mut grad = index.to_vec();
        grad.push(3);
        let call = Op::EmbeddingBackward {
            num_embeddings: 5,
            padding_idx,
        };
        samples.push(Sample::new(call, vec![any(&grad), positions()], words));
    }
}
