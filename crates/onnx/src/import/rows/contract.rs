//! Products of matrices, and sums over named axes.

use super::Found;
use super::rules::{OVER_ROWS, Seen};
use super::state::{Place, Reason, State};
use crate::import::call::Call;

const DIFFERENT: Reason = Reason::Here("multiplies rows by other rows");

impl Seen<'_> {
    /// A product of operands `a` and `b`, as MatMul has it.
    pub(super) fn product(&self, a: usize, b: usize) -> Found<State> {
        let (left, right, rank) = (self.rank(a)?, self.rank(b)?, self.result(0)?.len());
        // The number of axes after the rows, in the result and in a matrix.
        let behind = |place: Place, own: usize| own - 1 - place.axis;
        let mut found = None;
        if let Some(place) = self.find(a)? {
            let behind = behind(place, left);
            if behind == 0 {
                return Err(OVER_ROWS);
            }
            found = Some((behind > 1, rank - behind - usize::from(right > 1), place.inner));
        }
        if let Some(place) = self.find(b)? {
            let behind = behind(place, right);
            if behind == 1 || right == 1 {
                return Err(OVER_ROWS);
            }
            let lost = usize::from(left == 1 && behind > 1);
            let own = (behind > 1, rank - 1 + lost - behind, place.inner);
            // Both operands have the rows before their matrices, or only one has them.
            if found.is_some_and(|found| found != own || !own.0) {
                return Err(DIFFERENT);
            }
            found = Some(own);
        }
        let (_, axis, inner) = found.ok_or(DIFFERENT)?;
        self.at(0, Place { axis, inner })
    }

    pub(super) fn gemm(&self, c: &Call<'_>) -> Found<State> {
        self.only(&[0, 2])?;
        let place = self.place(0)?;
        if place.axis != usize::from(c.flag("transA", false)?) {
            return Err(OVER_ROWS);
        }
        let place = Place { axis: 0, ..place };
        if let Some(added) = self.find(2)?
            && (self.rank(2)? != 2 || added != place)
        {
            return Err(DIFFERENT);
        }
        self.at(0, place)
    }

    pub(super) fn einsum(&self, c: &Call<'_>) -> Found<State> {
        let equation: String = c.text("equation", "")?.chars().filter(|c| !c.is_whitespace()).collect();
        let unknown = Reason::Here("has an equation in which rows are not followed");
        let Some((terms, result)) = equation.split_once("->").filter(|_| !equation.contains('.')) else {
            return Err(unknown);
        };
        let terms: Vec<Vec<char>> = terms.split(',').map(|term| term.chars().collect()).collect();
        let mut found: Option<(char, usize)> = None;
        for (i, term) in terms.iter().enumerate() {
            let Some(place) = self.find(i)? else { continue };
            let Some(&label) = term.get(place.axis) else {
                return Err(unknown);
            };
            if *found.get_or_insert((label, place.inner)) != (label, place.inner) {
                return Err(DIFFERENT);
            }
        }
        let (label, inner) = found.ok_or(DIFFERENT)?;
        // On a diagonal, or in an operand that is the same for all rows, the label would combine rows.
        let is_twice = |term: &Vec<char>| term.iter().filter(|c| **c == label).count() > 1;
        let mut free = terms.iter().enumerate().filter(|(i, _)| self.is_free(*i));
        if terms.iter().any(is_twice) || free.any(|(_, term)| term.contains(&label)) {
            return Err(DIFFERENT);
        }
        let axis = result.chars().position(|c| c == label).ok_or(OVER_ROWS)?;
        self.at(0, Place { axis, inner })
    }
}
