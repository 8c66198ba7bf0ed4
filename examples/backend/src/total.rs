//! Sums that do not lose many small terms.

use polygrad::backend::Element;

/// A running sum. Floats are summed in f64, together with the rounding error of each addition; integers wrap.
///
/// Source: Knuth, "The Art of Computer Programming", volume 2, 4.2.2, theorem B (the rounding error of a sum).
#[derive(Clone, Copy, Default)]
pub(crate) struct Total {
    real: f64,
    lost: f64,
    int: i64,
}

impl Total {
    pub(crate) fn add<T: Element>(&mut self, term: T) {
        if !T::DTYPE.is_float() {
            self.int = self.int.wrapping_add(term.to_i64());
            return;
        }
        let (before, term) = (self.real, term.to_f64());
        self.real = before + term;
        let added = self.real - before;
        self.lost += (before - (self.real - added)) + (term - added);
    }

    /// The sum of floats.
    pub(crate) fn real(self) -> f64 {
        // An infinite sum has no rounding error.
        if self.real.is_finite() {
            self.real + self.lost
        } else {
            self.real
        }
    }

    /// The sum, rounded to the dtype.
    pub(crate) fn value<T: Element>(self) -> T {
        if T::DTYPE.is_float() {
            T::from_f64(self.real())
        } else {
            T::from_i64(self.int)
        }
    }

    pub(crate) fn of<T: Element>(terms: impl IntoIterator<Item = T>) -> Self {
        let mut total = Self::default();
        terms.into_iter().for_each(|term| total.add(term));
        total
    }
}
