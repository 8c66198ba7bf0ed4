//! Memory use of a program.

use super::{Action, Program, Slot, Step};
use crate::{DType, Op, Shape};

/// The values of a program during a walk through its steps. Views lie in the memory of other values.
struct Memory {
    /// For each value, the value whose memory it lies in.
    owner: Vec<usize>,
    /// Whether its elements are contiguous.
    contiguous: Vec<bool>,
    /// For each owner: its bytes, and how many live values lie in its memory.
    bytes: Vec<usize>,
    holders: Vec<usize>,
    held: usize,
    peak: usize,
}

impl Program {
    /// The most bytes that the values of a run take at once: constants, results that later steps use, and outputs.
    /// Inputs belong to the caller and are not counted. Views have no memory of their own. Temporary memory of a
    /// backend within an op is not counted.
    pub fn peak_bytes(&self) -> usize {
        let mut memory = Memory::new(self);
        for step in &self.steps {
            memory.take(step, &self.types);
        }
        memory.peak
    }
}

impl Memory {
    fn new(program: &Program) -> Self {
        let count = program.types.len();
        let mut memory = Self {
            owner: (0..count).collect(),
            contiguous: vec![true; count],
            bytes: vec![0; count],
            holders: vec![0; count],
            held: 0,
            peak: 0,
        };
        for input in 0..program.inputs {
            memory.holders[input] = 1;
        }
        for (constant, _) in &program.constants {
            memory.allocate(*constant, &program.types);
        }
        memory
    }

    fn allocate(&mut self, slot: Slot, types: &[(Shape, DType)]) {
        let (shape, dtype) = &types[slot.index()];
        let bytes = shape.numel() * dtype.size();
        self.bytes[slot.index()] = bytes;
        self.holders[slot.index()] = 1;
        self.held += bytes;
        self.peak = self.peak.max(self.held);
    }

    fn take(&mut self, step: &Step, types: &[(Shape, DType)]) {
        for &output in &step.outputs {
            match self.lender(step) {
                Some(input) => {
                    let owner = self.owner[input.index()];
                    self.owner[output.index()] = owner;
                    self.holders[owner] += 1;
                    let moves = matches!(step.action, Action::Op(Op::Permute(_) | Op::Expand(_) | Op::Slice(_)));
                    self.contiguous[output.index()] = self.contiguous[input.index()] && !moves;
                }
                None => self.allocate(output, types),
            }
        }
        for slot in &step.last {
            let owner = self.owner[slot.index()];
            self.holders[owner] -= 1;
            if self.holders[owner] == 0 {
                self.held -= self.bytes[owner];
            }
        }
    }

    /// The input whose memory the result uses, if it has none of its own.
    fn lender(&self, step: &Step) -> Option<Slot> {
        let Action::Op(op) = &step.action else { return None };
        let input = *step.inputs.first()?;
        let lends = match op {
            Op::Permute(_) | Op::Expand(_) | Op::Slice(_) => true,
            Op::Reshape(_) => self.contiguous[input.index()],
            // These run in place if nothing else needs the old values.
            Op::AccumulateGrad | Op::SliceScatter { .. } => {
                self.holders[self.owner[input.index()]] == 1 && step.last.contains(&input)
            }
            _ => false,
        };
        lends.then_some(input)
    }
}
