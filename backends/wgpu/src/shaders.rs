//! The text of every shader, for tests and tools without an adapter.

use polygrad_core::compute::{ElementwiseProgram, Step};
use polygrad_core::{ArgOp, BinaryOp, CompareOp, DType, ReduceOp, Result, UnaryOp};

use crate::elementwise::{Form as Elementwise, Lie};
use crate::kernel::Kernel;
use crate::source::Slots;
use crate::team::Team;
use crate::{conv, flash, gemm, index, loss, pool, random, reduce, rows, scan, sort, tile};

const DTYPES: [DType; 7] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::Bool,
];
const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// One shader.
#[derive(Clone, Debug)]
pub struct Shader {
    /// What it computes.
    pub name: String,
    /// The WGSL text.
    pub text: String,
}

/// Every op of the table in every dtype, and every form of every other kernel. Programs of several steps are made of
/// the same parts.
///
/// # Errors
/// If an op has no shader.
pub fn all() -> Result<Vec<Shader>> {
    let mut out = Vec::new();
    let mut add = |name: String, kernel: &dyn Kernel| -> Result<()> {
        let accesses = kernel.accesses();
        let mut texts = vec![kernel.source(&Slots::distinct(&accesses))?];
        // All operands in one buffer.
        texts.push(kernel.source(&Slots::new(&vec![0; accesses.len()], &accesses))?);
        for text in texts {
            out.push(Shader {
                name: format!("{} {name}", kernel.name()),
                text,
            });
        }
        Ok(())
    };
    for (name, program) in programs()? {
        for form in forms(&program) {
            add(format!("{name} {:?}", form.lies), &form)?;
        }
    }
    for kernel in products().into_iter().chain(of_rows()).chain(others()) {
        add(format!("{kernel:?}"), &*kernel)?;
    }
    Ok(out)
}

fn programs() -> Result<Vec<(String, ElementwiseProgram)>> {
    let mut out = Vec::new();
    let mut add = |dtypes: &[DType], step: &dyn Fn(&[polygrad_core::compute::Value]) -> Step| -> Result<()> {
        let mut program = ElementwiseProgram::default();
        let inputs: Vec<_> = dtypes.iter().map(|&dtype| program.input(dtype)).collect();
        let y = program.push(step(&inputs))?;
        program.output(y);
        out.push((format!("{} {dtypes:?}", program.name()), program));
        Ok(())
    };
    for dtype in DTYPES {
        for &op in UnaryOp::ALL.iter().filter(|op| op.accepts(dtype)) {
            add(&[dtype], &|x| Step::Unary(op, x[0]))?;
        }
        for op in BinaryOp::core().filter(|op| op.accepts(dtype)) {
            add(&[dtype, dtype], &|x| Step::Binary(op, x[0], x[1]))?;
        }
        for &op in CompareOp::ALL {
            add(&[dtype, dtype], &|x| Step::Compare(op, x[0], x[1]))?;
        }
        add(&[DType::Bool, dtype, dtype], &|x| Step::Select(x[0], x[1], x[2]))?;
        for to in DTYPES {
            add(&[dtype], &|x| Step::Cast(x[0], to))?;
        }
    }
    for dtype in DTYPES {
        let mut fill = ElementwiseProgram::default();
        let x = fill.scalar(dtype);
        fill.output(x);
        out.push((format!("fill {dtype}"), fill));
    }
    Ok(out)
}

/// Contiguous and strided; outputs smaller than a word as whole words and one by one.
fn forms(program: &ElementwiseProgram) -> Vec<Elementwise> {
    let count = program.inputs().len() + program.outputs().len();
    let form = |rank, lie: &dyn Fn(usize) -> Lie, packed| Elementwise {
        program: program.clone(),
        rank,
        lies: (0..count).map(lie).collect(),
        packed,
    };
    let small = (program.outputs().iter()).any(|&value| program.dtype(value).is_some_and(|dtype| dtype.size() < 4));
    let mut out = vec![form(1, &|_| Lie::Linear, small), form(3, &|_| Lie::Strided, false)];
    if small {
        out.push(form(
            2,
            &|i| if i + 1 < count { Lie::Strided } else { Lie::Linear },
            true,
        ));
    }
    out
}

fn products() -> Vec<Box<dyn Kernel>> {
    let mut plans: Vec<_> = [tile::SMALL, tile::MIDDLE, tile::LARGE].map(gemm::Plan::Tiled).to_vec();
    for width in [1, 2, 4, 8, 16] {
        for (flip, dots) in [(false, false), (false, true), (true, false), (true, true)] {
            plans.push(gemm::Plan::Skinny { width, flip, dots });
        }
    }
    let mut out: Vec<Box<dyn Kernel>> = Vec::new();
    for plan in plans {
        for (dtype, beta) in [
            (DType::F32, false),
            (DType::F32, true),
            (DType::F16, false),
            (DType::BF16, false),
        ] {
            for (trans_a, trans_b) in [(false, false), (true, true)] {
                out.push(Box::new(gemm::Form {
                    plan,
                    dtype,
                    trans_a,
                    trans_b,
                    beta,
                }));
            }
        }
    }
    for tile in [tile::SMALL, tile::MIDDLE, tile::LARGE] {
        for gives in [conv::Gives::Output, conv::Gives::Input, conv::Gives::Weight] {
            for dtype in FLOATS {
                out.push(Box::new(conv::Form { gives, dtype, tile }));
            }
        }
    }
    out
}

const TEAMS: [Team; 2] = [Team::Group, Team::Single];

fn of_rows() -> Vec<Box<dyn Kernel>> {
    let mut out: Vec<Box<dyn Kernel>> = Vec::new();
    for team in TEAMS {
        for dtype in DTYPES {
            let folds = (ReduceOp::ALL
                .iter()
                .filter(|op| op.accepts(dtype))
                .map(|&op| reduce::Fold::Reduce(op)))
            .chain(ArgOp::ALL.iter().map(|&op| reduce::Fold::Arg(op)));
            for fold in folds {
                for ranks in [[1, 1], [2, 3]] {
                    out.push(Box::new(reduce::Form {
                        fold,
                        dtype,
                        team,
                        ranks,
                    }));
                }
            }
            if dtype != DType::Bool {
                out.push(Box::new(scan::Form { dtype, team, rank: 2 }));
            }
        }
        for dtype in FLOATS {
            let mut ops = Vec::new();
            for (a, b) in [(false, false), (false, true), (true, false), (true, true)] {
                ops.push(rows::RowOp::LayerNorm { weight: a, bias: b });
                ops.push(rows::RowOp::Softmax { log: a, causal: b });
            }
            ops.extend([false, true].map(|log| rows::RowOp::Backward { log }));
            for op in ops {
                out.push(Box::new(rows::Form { op, dtype, team }));
            }
            for smooth in [false, true] {
                let pass = loss::Pass::Forward(team);
                out.push(Box::new(loss::Form { pass, dtype, smooth }));
            }
        }
    }
    out
}

fn others() -> Vec<Box<dyn Kernel>> {
    let mut out: Vec<Box<dyn Kernel>> = vec![Box::new(sort::Form {
        stage: sort::Stage::Step,
        rank: 0,
    })];
    for dtype in FLOATS {
        for smooth in [false, true] {
            let pass = loss::Pass::Backward;
            out.push(Box::new(loss::Form { pass, dtype, smooth }));
        }
        for (head, value, causal) in [(16, 16, false), (32, 64, true), (128, 128, true)] {
            out.push(Box::new(flash::Form {
                dtype,
                head,
                value,
                causal,
            }));
        }
    }
    for dtype in DTYPES {
        let whole = dtype.size() >= 4;
        let mut does = vec![index::Do::Gather];
        if whole {
            does.extend([index::Do::Set, index::Do::Claim, index::Do::SetClaimed, index::Do::Add]);
        }
        for what in does {
            out.push(Box::new(index::Form { what, dtype, rank: 2 }));
        }
        for draw in [random::Draw::Bernoulli, random::Draw::Integers, random::Draw::Uniform] {
            let here = match draw {
                random::Draw::Uniform => dtype == DType::F32,
                random::Draw::Integers => !matches!(dtype, DType::F16 | DType::BF16),
                random::Draw::Bernoulli => true,
            };
            if here {
                out.push(Box::new(random::Form { draw, dtype }));
            }
        }
        for descending in [false, true] {
            let stage = sort::Stage::Keys { dtype, descending };
            out.push(Box::new(sort::Form { stage, rank: 2 }));
        }
        let stage = sort::Stage::Values { dtype };
        out.push(Box::new(sort::Form { stage, rank: 2 }));
        if dtype != DType::Bool {
            out.push(Box::new(pool::Form { max: true, dtype }));
        }
        if dtype.is_float() {
            out.push(Box::new(pool::Form { max: false, dtype }));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn kernels_are_told_apart_by_their_type_and_what_they_hold() {
        let kernels = || products().into_iter().chain(of_rows()).chain(others());
        let all: HashSet<_> = kernels().collect();
        assert_eq!(all.len(), kernels().count());
        assert!(kernels().all(|kernel| all.contains(&kernel)));
    }
}
