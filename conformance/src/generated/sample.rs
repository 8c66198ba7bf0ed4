//! One call of an op as data: its arguments, and how its operands come about.

use polygrad_core::{DType, HostTensor, Op, Result, Shape};

use super::fill::{Fill, values};

/// How an operand lies in memory. The operand is the same tensor each time, made by views of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// As it comes from the host.
    Contiguous,
    /// Its axes reversed by a permutation.
    Permuted,
    /// Every second element of each axis of a larger tensor, from the second on.
    Sliced,
    /// Each axis walked backwards.
    Flipped,
    /// The last axis that is longer than 1, expanded from one element: so its values repeat.
    Expanded,
}

impl Layout {
    /// Every layout.
    pub(crate) const ALL: [Self; 5] = [
        Self::Contiguous,
        Self::Permuted,
        Self::Sliced,
        Self::Flipped,
        Self::Expanded,
    ];

    /// Its name in case names.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Contiguous => "contiguous",
            Self::Permuted => "permuted",
            Self::Sliced => "sliced",
            Self::Flipped => "flipped",
            Self::Expanded => "expanded",
        }
    }
}

/// What dtype an operand has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// That in which the case runs.
    Tested,
    /// One of its own.
    Fixed(DType),
}

/// Where an operand's values come from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// Numbers with a fixed seed.
    Drawn(Fill),
    /// Result number `output` of an op on operands that stand before this one, by their positions: what a forward
    /// saves for a backward.
    Derived {
        op: Box<Op>,
        operands: Vec<usize>,
        output: usize,
    },
}

/// A tensor that an op is given.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    pub(crate) shape: Vec<usize>,
    pub(crate) slot: Slot,
    pub(crate) origin: Origin,
    /// Whether its values may repeat, as an expanded layout has them.
    pub(crate) expandable: bool,
    /// Whether it stands here only for what is derived from it, and the op is not given it.
    pub(crate) helper: bool,
}

impl Operand {
    /// Numbers of this range, in the tested dtype.
    pub(crate) fn drawn(shape: &[usize], fill: Fill) -> Self {
        Self {
            shape: shape.to_vec(),
            slot: Slot::Tested,
            origin: Origin::Drawn(fill),
            expandable: true,
            helper: false,
        }
    }

    /// Positions below `below`, as i64.
    pub(crate) fn index(shape: &[usize], below: usize) -> Self {
        Self {
            slot: Slot::Fixed(DType::I64),
            expandable: false,
            ..Self::drawn(shape, Fill::Below(below))
        }
    }

    /// The numbers from 0 on in an irregular order, as i64: positions none of which occurs twice.
    pub(crate) fn distinct_index(shape: &[usize]) -> Self {
        Self {
            slot: Slot::Fixed(DType::I64),
            expandable: false,
            ..Self::drawn(shape, Fill::Distinct)
        }
    }

    /// Truth values.
    pub(crate) fn mask(shape: &[usize]) -> Self {
        Self {
            slot: Slot::Fixed(DType::Bool),
            ..Self::drawn(shape, Fill::Below(2))
        }
    }

    /// Result number `output` of `op` on earlier operands. `shape` is what that result has.
    pub(crate) fn derived(shape: &[usize], op: Op, operands: &[usize], output: usize) -> Self {
        Self {
            origin: Origin::Derived {
                op: Box::new(op),
                operands: operands.to_vec(),
                output,
            },
            expandable: false,
            ..Self::drawn(shape, Fill::Below(1))
        }
    }

    /// This with values that do not repeat in any layout.
    pub(crate) fn fixed(mut self) -> Self {
        self.expandable = false;
        self
    }

    /// This as one from which others are derived, and which the op is not given.
    pub(crate) fn helper(mut self) -> Self {
        self.helper = true;
        self
    }

    /// This in a dtype of its own.
    pub(crate) fn of(mut self, dtype: DType) -> Self {
        self.slot = Slot::Fixed(dtype);
        self
    }

    /// Its dtype, if that is the same in all cases.
    pub(crate) fn fixed_dtype(&self) -> Option<DType> {
        match self.slot {
            Slot::Tested => None,
            Slot::Fixed(own) => Some(own),
        }
    }

    /// Its dtype in a case that tests `dtype`.
    pub(crate) fn dtype(&self, dtype: DType) -> DType {
        self.fixed_dtype().unwrap_or(dtype)
    }

    /// The host tensor that it is made of, before its layout's views, for values that are drawn.
    pub(crate) fn base(&self, fill: &Fill, layout: Layout, dtype: DType, seed: u64) -> Result<HostTensor> {
        let mut shape = self.shape.clone();
        match self.effective(layout) {
            Layout::Contiguous | Layout::Flipped => {}
            Layout::Permuted => shape.reverse(),
            Layout::Sliced => shape.iter_mut().for_each(|dim| *dim = 2 * *dim + 1),
            Layout::Expanded => {
                if let Some(axis) = expanded_axis(&shape) {
                    shape[axis] = 1;
                }
            }
        }
        let shape = Shape::new(&shape)?;
        Ok(HostTensor::new(shape, values(fill, shape.numel(), seed))?.cast(self.dtype(dtype)))
    }

    /// The layout that it takes where the case's is `layout`.
    pub(crate) fn effective(&self, layout: Layout) -> Layout {
        if layout == Layout::Expanded && (!self.expandable || expanded_axis(&self.shape).is_none()) {
            return Layout::Contiguous;
        }
        // A cut out of distinct positions would leave their range.
        if layout == Layout::Sliced && matches!(self.origin, Origin::Drawn(Fill::Distinct)) {
            return Layout::Contiguous;
        }
        layout
    }
}

/// The axis along which the expanded layout repeats one element.
fn expanded_axis(shape: &[usize]) -> Option<usize> {
    shape.iter().rposition(|&dim| dim > 1)
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) op: Op,
    pub(crate) operands: Vec<Operand>,
    /// What tells it from others of the op: shapes and arguments in short.
    pub(crate) detail: String,
    /// Whether it runs in every layout; else in contiguous memory alone.
    pub(crate) layouts: bool,
    /// The dtypes that make sense for it beyond what the op takes; all if empty.
    pub(crate) only: Vec<DType>,
}

impl Sample {
    /// A call whose name is told by its operands' shapes and these words.
    pub(crate) fn new(op: Op, operands: Vec<Operand>, words: &str) -> Self {
        let shapes: Vec<String> = operands
            .iter()
            .filter(|operand| matches!(operand.origin, Origin::Drawn(_)))
            .map(|operand| {
                let dims: Vec<String> = operand.shape.iter().map(usize::to_string).collect();
                format!("[{}]", dims.join(","))
            })
            .collect();
        let words = if words.is_empty() {
            String::new()
        } else {
            format!("/{}", words.replace(' ', "_"))
        };
        Self {
            detail: format!("{}{words}", shapes.join("")),
            op,
            operands,
            layouts: true,
            only: Vec::new(),
        }
    }

    /// The dtype of its first tensor in a case that tests `dtype`.
    pub(crate) fn first(&self, dtype: DType) -> DType {
        self.operands.first().map_or(dtype, |operand| operand.dtype(dtype))
    }

    /// Whether there are cases of it that test `dtype`.
    pub(crate) fn tests(&self, dtype: DType) -> bool {
        (self.only.is_empty() || self.only.contains(&dtype)) && self.op.accepts(self.first(dtype))
    }

    /// This in contiguous memory alone.
    pub(crate) fn contiguous(mut self) -> Self {
        self.layouts = false;
        self
    }

    /// This in some dtypes alone.
    pub(crate) fn only(mut self, dtypes: &[DType]) -> Self {
        self.only = dtypes.to_vec();
        self
    }
}
