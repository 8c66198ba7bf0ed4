//! One call of an op as data: its arguments, and the origin of its operands.

use polygrad_core::{DType, HostTensor, Op, Result, Shape};

use super::fill::{Fill, values};

/// The memory layout of an operand. Its values are the same for each layout, selected by views of another tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// As it comes from the host.
    Contiguous,
    /// Its axes reversed by a permutation.
    Permuted,
    /// Every second element of each axis of a larger tensor, from the second on.
    Sliced,
    /// Each axis reversed.
    Flipped,
    /// The last axis longer than 1, expanded from one element, so that its values repeat.
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

/// The dtype of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// The tested dtype.
    Tested,
    /// A fixed dtype.
    Fixed(DType),
}

/// The origin of an operand's values.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// Random numbers with a fixed seed.
    Drawn(Fill),
    /// Result number `output` of an op on operands listed before this one, given by index: a value that a forward pass
    /// saves for the backward pass.
    Derived {
        op: Box<Op>,
        operands: Vec<usize>,
        output: usize,
    },
}

/// A tensor operand of an op.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    pub(crate) shape: Vec<usize>,
    pub(crate) slot: Slot,
    pub(crate) origin: Origin,
    /// Whether its values may repeat, as in an expanded layout.
    pub(crate) expandable: bool,
    /// Whether it is only used to derive other operands, and is not passed to the op.
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

    /// i64 indices below `below`.
    pub(crate) fn index(shape: &[usize], below: usize) -> Self {
        Self {
            slot: Slot::Fixed(DType::I64),
            expandable: false,
            ..Self::drawn(shape, Fill::Below(below))
        }
    }

    /// The integers from 0 on in an irregular order, as i64: indices without repetitions.
    pub(crate) fn distinct_index(shape: &[usize]) -> Self {
        Self {
            slot: Slot::Fixed(DType::I64),
            expandable: false,
            ..Self::drawn(shape, Fill::Distinct)
        }
    }

    /// Bools.
    pub(crate) fn mask(shape: &[usize]) -> Self {
        Self {
            slot: Slot::Fixed(DType::Bool),
            ..Self::drawn(shape, Fill::Below(2))
        }
    }

    /// Result number `output` of `op` on earlier operands. `shape` is that of the result.
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

    /// This operand with values that do not repeat in any layout.
    pub(crate) fn fixed(mut self) -> Self {
        self.expandable = false;
        self
    }

    /// This operand only as the origin of others, not passed to the op.
    pub(crate) fn helper(mut self) -> Self {
        self.helper = true;
        self
    }

    /// This operand with a fixed dtype.
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

    /// The host tensor before the layout's views, for random values.
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

    /// The layout that it takes if the case's is `layout`.
    pub(crate) fn effective(&self, layout: Layout) -> Layout {
        if layout == Layout::Expanded && (!self.expandable || expanded_axis(&self.shape).is_none()) {
            return Layout::Contiguous;
        }
        // A slice of distinct indices would have indices out of their range.
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
    /// Distinguishes it from other samples of the op: shapes and arguments in short form.
    pub(crate) detail: String,
    /// Whether it runs in every layout, rather than only in contiguous memory.
    pub(crate) layouts: bool,
    /// The dtypes that are meaningful, of those that the op accepts; all if empty.
    pub(crate) only: Vec<DType>,
}

impl Sample {
    /// A call whose name consists of its operands' shapes and these words.
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

    /// This sample only in contiguous memory.
    pub(crate) fn contiguous(mut self) -> Self {
        self.layouts = false;
        self
    }

    /// This sample only in some dtypes.
    pub(crate) fn only(mut self, dtypes: &[DType]) -> Self {
        self.only = dtypes.to_vec();
        self
    }
}
