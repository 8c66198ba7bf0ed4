//! The effect of each op on rows.

use std::rc::Rc;

use polygrad_core::Result;
use polygrad_tensor::Device;

use super::state::{Count, Place, Reason, State, dims};
use super::{Found, shown};
use crate::import::call::{Call, Made, axes, axis};
use crate::import::limits::Limits;
use crate::import::plan::{Action, Step};
use crate::import::run::with_call;
use crate::import::value::Value;

/// A node with its operands and results.
pub(super) struct Seen<'a> {
    pub(super) step: &'a Step,
    pub(super) operands: &'a [Option<Value>],
    pub(super) states: &'a [State],
    pub(super) captured: &'a [State],
    pub(super) results: &'a Made,
    pub(super) rows: usize,
    pub(super) device: &'a Device,
    pub(super) limits: &'a Limits,
}

/// Ops that compute each element from those at the same position of operands that broadcast.
const BY_ELEMENT: &[&str] = &[
    "Abs",
    "Neg",
    "Sign",
    "Exp",
    "Log",
    "Sqrt",
    "Reciprocal",
    "Floor",
    "Ceil",
    "Round",
    "Sin",
    "Cos",
    "Tan",
    "Erf",
    "IsNaN",
    "Not",
    "IsInf",
    "Asin",
    "Acos",
    "Atan",
    "Sinh",
    "Cosh",
    "Asinh",
    "Acosh",
    "Atanh",
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Mod",
    "Pow",
    "Max",
    "Min",
    "Sum",
    "Mean",
    "And",
    "Or",
    "Xor",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "BitwiseNot",
    "BitShift",
    "Equal",
    "Less",
    "LessOrEqual",
    "Greater",
    "GreaterOrEqual",
    "Where",
    "Clip",
    "Relu",
    "Tanh",
    "Sigmoid",
    "Softplus",
    "Softsign",
    "Elu",
    "LeakyRelu",
    "Celu",
    "Selu",
    "HardSigmoid",
    "HardSwish",
    "ThresholdedRelu",
    "Mish",
    "Gelu",
    "Swish",
    "SwiGLU",
    "Shrink",
    "PRelu",
    "Identity",
    "Cast",
];

/// Ops that compute each position of axis 0 independently, and the operands that may have rows there.
const BY_FIRST_AXIS: &[(&str, &[usize])] = &[
    ("Conv", &[0]),
    ("ConvTranspose", &[0]),
    ("ConvInteger", &[0]),
    ("QLinearConv", &[0]),
    ("MaxPool", &[0]),
    ("AveragePool", &[0]),
    ("LpPool", &[0]),
    ("GlobalAveragePool", &[0]),
    ("GlobalMaxPool", &[0]),
    ("GlobalLpPool", &[0]),
    ("InstanceNormalization", &[0]),
    ("GroupNormalization", &[0]),
    ("LRN", &[0]),
    ("DepthToSpace", &[0]),
    ("SpaceToDepth", &[0]),
    ("GridSample", &[0, 1]),
    ("AffineGrid", &[0]),
    ("DeformConv", &[0, 2, 4]),
    ("Attention", &[0, 1, 2, 3, 4, 5, 6]),
    ("RotaryEmbedding", &[0, 1, 2, 3]),
];

pub(super) const UNKNOWN: Reason = Reason::Here("is not known to keep rows apart");
pub(super) const OVER_ROWS: Reason = Reason::Here("computes over several rows");
pub(super) const BY_COUNT: Reason = Reason::Here("computes with how many rows there are");

impl<'a> Seen<'a> {
    /// The states of the results, in order.
    pub(super) fn states(&self) -> Result<Vec<State>> {
        let all = || self.states.iter().chain(self.captured);
        let count = self.results.len();
        if let Some(mixed) = all().find(|state| matches!(state, State::Mixed(_))) {
            return Ok(vec![mixed.clone(); count]);
        }
        let is_random = matches!(&self.step.action, Action::Op(row) if row.random);
        let is_free = all().all(|state| matches!(state, State::Free));
        if is_free && (!is_random || self.op() == "Dropout") {
            return Ok(vec![State::Free; count]);
        }
        let found = match self.step.bodies.is_empty() {
            true => self.with_call(|call| self.rule(call)),
            false => Err(Reason::Here("runs a body, in which rows are not followed")),
        };
        let reason = match found {
            Ok(states) => return Ok(states),
            Err(Reason::Here(reason)) => reason.to_owned(),
            Err(Reason::Failed(error)) => error.to_string(),
        };
        Ok(vec![State::Mixed(Rc::from(shown(self.step, &reason))); count])
    }

    pub(super) fn op(&self) -> &'a str {
        &self.step.node.op_type
    }

    pub(super) fn with_call<T>(&self, work: impl FnOnce(&Call<'_>) -> T) -> T {
        with_call(self.step, self.operands, &[], self.device, self.limits, work)
    }

    fn rule(&self, c: &Call<'_>) -> Found<Vec<State>> {
        if !self.step.node.domain.is_empty() {
            return self.foreign(c);
        }
        if self.op() == "Size" || self.op() == "Shape" {
            return Ok(vec![self.counted(c)?]);
        }
        if self.states.iter().any(|state| matches!(state, State::Counts(_)))
            && let Some(state) = self.counts(c)?
        {
            return Ok(vec![state]);
        }
        if BY_ELEMENT.contains(&self.op()) {
            return Ok(vec![self.by_element()?]);
        }
        if let Some((_, operands)) = BY_FIRST_AXIS.iter().find(|(op, _)| *op == self.op()) {
            return self.by_first_axis(c, operands);
        }
        match self.op() {
            "MatMul" => {
                self.only(&[0, 1])?;
                Ok(vec![self.product(0, 1)?])
            }
            "MatMulInteger" => {
                self.only(&[0, 1])?;
                Ok(vec![self.product(0, 1)?])
            }
            "QLinearMatMul" => {
                self.only(&[0, 3])?;
                Ok(vec![self.product(0, 3)?])
            }
            "Gemm" => Ok(vec![self.gemm(c)?]),
            "Einsum" => Ok(vec![self.einsum(c)?]),
            "LSTM" | "GRU" | "RNN" => self.recurrent(c),
            "Dropout" => {
                self.only(&[0])?;
                let is_training = c.version >= 12 && c.has(2) && c.scalar(2)?.to_f64() != 0.0;
                if is_training {
                    return Err(Reason::Here("draws numbers"));
                }
                self.beside(&[])
            }
            // Of the second operand only the type counts.
            "CastLike" => match self.states.first() {
                Some(State::Free) => Ok(vec![State::Free]),
                _ => Ok(vec![self.at(0, self.place(0)?)?]),
            },
            "BitCast" | "QuantizeLinear" | "DequantizeLinear" => {
                self.only(&[0])?;
                self.beside(&[])
            }
            "DynamicQuantizeLinear" => Err(Reason::Here("takes one scale for all rows")),
            "BatchNormalization" => {
                self.only(&[0])?;
                if c.version < 7 || c.flag("training_mode", false)? || c.wants(1) {
                    return Err(Reason::Here("normalizes by what all rows are"));
                }
                self.beside(&[1])
            }
            "LayerNormalization" | "RMSNormalization" => {
                self.only(&[0])?;
                let rank = self.rank(0)?;
                let from = c.axis("axis", -1, rank)?;
                self.beside(&(from..rank).collect::<Vec<_>>())
            }
            "LpNormalization" => self.beside(&[c.axis("axis", -1, self.rank(0)?)?]),
            "MeanVarianceNormalization" => {
                let list = c.int_list("axes")?.unwrap_or(&[0, 2, 3]);
                self.beside(&axes(list, self.rank(0)?)?)
            }
            "Softmax" | "LogSoftmax" | "Hardmax" => {
                let rank = self.rank(0)?;
                match c.version >= 13 {
                    true => self.beside(&[c.axis("axis", -1, rank)?]),
                    false => match c.int("axis", 1)? {
                        number if number == rank as i64 => self.beside(&[]),
                        number => self.beside(&(axis(number, rank)?..rank).collect::<Vec<_>>()),
                    },
                }
            }
            "CumSum" | "CumProd" => {
                self.only(&[0])?;
                self.beside(&[axis(c.int_scalar(1)?, self.rank(0)?)?])
            }
            "TopK" => {
                self.only(&[0])?;
                self.beside(&[c.axis("axis", -1, self.rank(0)?)?])
            }
            "Trilu" | "Det" => {
                self.only(&[0])?;
                let rank = self.rank(0)?;
                self.beside(&[rank.saturating_sub(2), rank.saturating_sub(1)])
            }
            _ => match self.moved(c)? {
                Some(states) => Ok(states),
                None => Err(UNKNOWN),
            },
        }
    }

    // What rules are made of.

    pub(super) fn dims(&self, i: usize) -> Found<Vec<usize>> {
        let found = self.operands.get(i).and_then(Option::as_ref).and_then(dims);
        found.ok_or(Reason::Here("takes what is no tensor"))
    }

    pub(super) fn rank(&self, i: usize) -> Found<usize> {
        Ok(self.dims(i)?.len())
    }

    pub(super) fn result(&self, i: usize) -> Found<Vec<usize>> {
        let found = self.results.get(i).and_then(dims);
        found.ok_or(Reason::Here("gives what is no tensor"))
    }

    /// Whether an operand is the same for all rows, or missing.
    pub(super) fn is_free(&self, i: usize) -> bool {
        matches!(self.states.get(i), None | Some(State::Free))
    }

    /// Fails unless all operands except these are the same for all rows.
    pub(super) fn only(&self, operands: &[usize]) -> Found<()> {
        let mut others = (0..self.states.len()).filter(|i| !operands.contains(i));
        match others.all(|i| self.is_free(i)) {
            true => Ok(()),
            false => Err(UNKNOWN),
        }
    }

    /// The position of the rows in an operand; `None` if it is the same for all.
    pub(super) fn find(&self, i: usize) -> Found<Option<Place>> {
        match self.states.get(i) {
            None | Some(State::Free) => Ok(None),
            Some(State::Rows { below }) => {
                let place = Place::of(&self.dims(i)?, *below, self.rows);
                place
                    .map(Some)
                    .ok_or(Reason::Here("takes a tensor in which rows share places"))
            }
            Some(State::Counts(_) | State::Mixed(_)) => Err(BY_COUNT),
        }
    }

    /// [`Seen::find`] of an operand that has rows.
    pub(super) fn place(&self, i: usize) -> Found<Place> {
        self.find(i)?.ok_or(UNKNOWN)
    }

    /// The state of a result that has its rows at `place`.
    pub(super) fn at(&self, result: usize, place: Place) -> Found {
        let value = self.results.get(result).ok_or(UNKNOWN)?;
        match State::along(value, place, self.rows) {
            State::Mixed(_) => Err(Reason::Here("gives a tensor whose extents are not those of the rows")),
            state => Ok(state),
        }
    }

    /// All results have the state of operand 0. The op combines elements along `axes`, of which the rows must not be
    /// one.
    pub(super) fn beside(&self, axes: &[usize]) -> Found<Vec<State>> {
        let place = self.place(0)?;
        if axes.contains(&place.axis) {
            return Err(OVER_ROWS);
        }
        (0..self.results.len()).map(|i| self.at(i, place)).collect()
    }

    /// For operands that broadcast: the rows are at the same position of the result.
    pub(super) fn by_element(&self) -> Found {
        let rank = self.result(0)?.len();
        let mut found: Option<Place> = None;
        for i in 0..self.states.len() {
            let Some(place) = self.find(i)? else { continue };
            let moved = Place {
                axis: place.axis + rank - self.rank(i)?,
                ..place
            };
            if *found.get_or_insert(moved) != moved {
                return Err(Reason::Here("meets rows along different axes"));
            }
        }
        self.at(0, found.ok_or(UNKNOWN)?)
    }

    pub(super) fn by_first_axis(&self, c: &Call<'_>, operands: &[usize]) -> Found<Vec<State>> {
        let is_size = |i: usize| self.op() == "AffineGrid" && i == 1 && self.is_count_of_rows(i, 0);
        let mut others = (0..self.states.len()).filter(|i| !operands.contains(i));
        if !others.all(|i| self.is_free(i) || is_size(i)) {
            return Err(UNKNOWN);
        }
        let mut found: Option<Place> = None;
        for &i in operands {
            let Some(place) = self.find(i)? else { continue };
            let is_alike = *found.get_or_insert(place) == place;
            // The first axis of a mask with fewer than four axes is not that of the rows.
            let is_mask = c.node.domain.is_empty() && self.op() == "Attention" && i == 3 && self.rank(i)? != 4;
            // Tables that positions index have no rows.
            let is_table = self.op() == "RotaryEmbedding" && (1..3).contains(&i) && c.has(3);
            if place.axis != 0 || !is_alike || is_mask || is_table {
                return Err(OVER_ROWS);
            }
        }
        // It counts positions from the first row of the batch.
        if self.op() == "MaxPool" && c.wants(1) {
            return Err(Reason::Here("counts places over all rows"));
        }
        let place = found.ok_or(UNKNOWN)?;
        (0..self.results.len()).map(|i| self.at(i, place)).collect()
    }

    fn recurrent(&self, c: &Call<'_>) -> Found<Vec<State>> {
        self.only(&[0, 4, 5, 6])?;
        let batch_first = c.version >= 14 && c.flag("layout", false)?;
        let at = |usual: usize| if batch_first { 0 } else { usual };
        let mut inner = None;
        for (i, usual) in [(0, 1), (4, 0), (5, 1), (6, 1)] {
            let Some(place) = self.find(i)? else { continue };
            if place.axis != at(usual) || *inner.get_or_insert(place.inner) != place.inner {
                return Err(OVER_ROWS);
            }
        }
        let inner = inner.ok_or(UNKNOWN)?;
        let results = (0..self.results.len()).map(|i| {
            let axis = at(if i == 0 { 2 } else { 1 });
            self.at(i, Place { axis, inner })
        });
        results.collect()
    }

    /// Whether the only row count in an operand of counts is at `axis`, and equals the extent of operand 0 there.
    pub(super) fn is_count_of_rows(&self, i: usize, axis: usize) -> bool {
        let (Some(State::Counts(counts)), Ok(dims)) = (self.states.get(i), self.dims(0)) else {
            return false;
        };
        let fits = |(at, count): (usize, &Count)| match count {
            Count::Free => true,
            Count::Rows(factor) => at == axis && dims.get(axis) == Some(&(factor * self.rows)),
        };
        counts.iter().enumerate().all(fits)
    }
}
