//! Integers that shapes are computed from.

use polygrad_core::{DType, HostTensor};

use super::Found;
use super::rules::{BY_COUNT, Seen};
use super::state::{Count, Place, Reason, State};
use crate::graph::ElementType;
use crate::import::call::Call;
use crate::import::run::call_step;

/// Ops that only move elements, and the operands that they move.
fn moves(op: &str, operands: usize) -> Option<std::ops::Range<usize>> {
    match op {
        "Identity" | "Cast" | "Gather" | "Slice" | "Squeeze" | "Unsqueeze" | "Reshape" | "Flatten" | "Transpose" => {
            Some(0..1)
        }
        "Concat" => Some(0..operands),
        "Where" => Some(1..3),
        _ => None,
    }
}

impl Seen<'_> {
    /// The result of Shape and Size.
    pub(super) fn counted(&self, c: &Call<'_>) -> Found {
        let dims = self.dims(0)?;
        let axis = match self.find(0) {
            Ok(place) => place.map(|place| place.axis),
            // The shape of a list of counts does not depend on the counts.
            Err(_) if matches!(self.states[0], State::Counts(_)) => None,
            Err(reason) => return Err(reason),
        };
        let Some(axis) = axis else {
            return Ok(State::Free);
        };
        let total: usize = dims.iter().product();
        if self.op() == "Size" {
            return Ok(State::Counts(vec![Count::Rows(total / self.rows)]));
        }
        let rank = dims.len() as i64;
        let place = |at: i64| (if at < 0 { at.saturating_add(rank) } else { at }).clamp(0, rank) as usize;
        let (start, end) = (place(c.int("start", 0)?), place(c.int("end", rank)?));
        let counts = (start..end.max(start)).map(|at| match at == axis {
            true => Count::Rows(dims[at] / self.rows),
            false => Count::Free,
        });
        Ok(State::of_counts(counts.collect()))
    }

    /// The result of an op on counts; `None` for one that takes them as a shape.
    pub(super) fn counts(&self, c: &Call<'_>) -> Found<Option<State>> {
        let is_count = |i: usize| matches!(self.states.get(i), Some(State::Counts(_)));
        if let Some(data) = moves(self.op(), self.states.len())
            && data.clone().any(is_count)
        {
            let others = (0..self.states.len()).filter(|i| !data.contains(i));
            let mut all = others
                .map(|i| self.is_free(i))
                .chain(data.clone().map(|i| is_count(i) || self.is_free(i)));
            return match all.all(|is_known| is_known) {
                true => self.carried(data).map(Some),
                false => Err(Reason::Here("puts rows and their number together")),
            };
        }
        match self.op() {
            "Mul" | "Div" | "Equal" => self.arithmetic().map(Some),
            "ConstantOfShape" => self.filled().map(Some),
            "Expand" | "Tile" if is_count(1) && !is_count(0) => self.repeated(c).map(Some),
            _ => Ok(None),
        }
    }

    /// Moved counts: the op is run on numbered elements, to see where each of them goes.
    fn carried(&self, data: std::ops::Range<usize>) -> Found {
        let mut operands = self.operands.to_vec();
        let mut all = Vec::new();
        for i in data {
            let shape = operands[i].as_ref().and_then(|value| value.shape());
            let shape = shape.ok_or(Reason::Here("takes what is no tensor"))?;
            let first = all.len() as i64;
            match self.states.get(i) {
                Some(State::Counts(counts)) => all.extend_from_slice(counts),
                _ => all.resize(all.len() + shape.numel(), Count::Free),
            }
            let numbers = (first..all.len() as i64).collect();
            operands[i] = Some(HostTensor::new(shape, numbers)?.into());
        }
        if self.op() == "Cast" {
            let to = self.results.first().and_then(|value| value.element());
            return match to {
                Some(ElementType::I64 | ElementType::I32) => Ok(State::of_counts(all)),
                _ => Err(BY_COUNT),
            };
        }
        let moved = call_step(self.step, &operands, &[], self.device, self.limits)?;
        let numbers = moved.first().map(|value| value.host()).transpose()?;
        let numbers = numbers.ok_or(Reason::Here("gives nothing"))?.to_vec::<i64>()?;
        Ok(State::of_counts(
            numbers.iter().map(|&number| all[number as usize]).collect(),
        ))
    }

    /// For two operands, of which one may be a single number.
    fn arithmetic(&self) -> Found {
        let count: usize = self.result(0)?.iter().product();
        let mut both = Vec::new();
        for i in 0..2 {
            let value = self.operands.get(i).and_then(Option::as_ref);
            let host = value.ok_or(BY_COUNT)?.host()?;
            if host.dtype().is_float() {
                return Err(BY_COUNT);
            }
            let numbers: Vec<i64> = host.try_cast(DType::I64)?.to_vec()?;
            let counts = match &self.states[i] {
                State::Counts(counts) => counts.clone(),
                _ => vec![Count::Free; numbers.len()],
            };
            if numbers.len() != 1 && numbers.len() != count {
                return Err(BY_COUNT);
            }
            both.push((counts, numbers));
        }
        let at = |i: usize, place: usize| {
            let (counts, numbers) = &both[i];
            let place = place.min(numbers.len() - 1);
            (counts[place], numbers[place])
        };
        let one = |place: usize| match (self.op(), at(0, place), at(1, place)) {
            (_, (Count::Free, _), (Count::Free, _)) => Some(Count::Free),
            ("Mul", (Count::Rows(factor), _), (Count::Free, by))
            | ("Mul", (Count::Free, by), (Count::Rows(factor), _)) => {
                Some(Count::Rows(factor.checked_mul(usize::try_from(by).ok()?)?))
            }
            ("Div", (Count::Rows(factor), _), (Count::Free, by @ 1..)) if factor.is_multiple_of(by as usize) => {
                Some(Count::Rows(factor / by as usize))
            }
            // The number of rows is never negative.
            ("Equal", (Count::Rows(_), _), (Count::Free, i64::MIN..0))
            | ("Equal", (Count::Free, i64::MIN..0), (Count::Rows(_), _)) => Some(Count::Free),
            _ => None,
        };
        let counts: Option<Vec<Count>> = (0..count).map(one).collect();
        counts.map(State::of_counts).ok_or(BY_COUNT)
    }

    /// The axis at which a shape, given by an operand of counts, has the rows; the shape is aligned with the last axis
    /// of the result.
    fn axis_of_rows(&self, shape: usize) -> Found<Place> {
        let State::Counts(counts) = &self.states[shape] else {
            return Err(Reason::Here("takes rows for a shape"));
        };
        let rank = self.result(0)?.len();
        let mut found = counts.iter().enumerate().filter_map(|(axis, count)| match count {
            Count::Rows(factor) => Some((axis + rank - counts.len(), *factor)),
            Count::Free => None,
        });
        match (found.next(), found.next()) {
            (Some((axis, inner @ 1..)), None) => Ok(Place { axis, inner }),
            _ => Err(Reason::Here("makes a shape in which rows are not along one axis")),
        }
    }

    /// All elements are equal, so rows do not matter.
    fn filled(&self) -> Found {
        self.at(0, self.axis_of_rows(0)?)
    }

    /// The result of Expand or Tile by counts.
    fn repeated(&self, c: &Call<'_>) -> Found {
        let (place, dims) = (self.axis_of_rows(1)?, self.dims(0)?);
        let rank = self.result(0)?.len();
        let own = (place.axis + dims.len()).checked_sub(rank).map(|axis| dims[axis]);
        match self.find(0)? {
            // An operand with extent 1 there is the same for all rows.
            None if own.is_none_or(|extent| extent == 1) => self.at(0, place),
            Some(found) if c.node.op_type == "Expand" => {
                let moved = Place {
                    axis: found.axis + rank - dims.len(),
                    ..found
                };
                match moved.axis == place.axis && own == Some(place.inner * self.rows) {
                    true => self.at(0, moved),
                    false => Err(Reason::Here("repeats rows as often as there are rows")),
                }
            }
            _ => Err(Reason::Here("repeats rows as often as there are rows")),
        }
    }
}
