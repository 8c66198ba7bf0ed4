//! Symbols behind plain numbers.
//!
//! Model code computes with extents as plain numbers. So during recording each symbol is represented by a prime that no
//! extent of the model is a multiple of, or near to a multiple of. Any extent that appears later can then be read back
//! as an expression of the symbols.

use std::collections::BTreeSet;

use polygrad_core::{Error, Result, Shape};

use super::extent::{Extent, Symbol};

/// The largest distance from a multiple of a symbol at which an extent is still read as that multiple plus an offset.
const SLACK: usize = 64;
/// Minimum distances, in order of preference, of the model's own extents from multiples of a symbol, and whether also
/// from its fractions. The model's extents are known and never read as symbols, but an extent computed from symbols
/// should not coincide with one of them.
const MARGINS: [(usize, bool); 6] = [(16, true), (4, true), (16, false), (4, false), (1, false), (0, false)];
/// The largest multiple of a symbol that may have an offset.
const MULTIPLES: usize = 16;
/// The largest denominator of a fraction of a symbol that is told apart from other numbers.
const PARTS: usize = 4;
/// The largest number that a symbol stands for while a model is recorded, unless its bound is lower.
pub(super) const LARGEST: usize = 7000;

/// A symbol and the number that stands for it.
#[derive(Clone, Debug)]
struct Entry {
    name: String,
    value: usize,
    slack: usize,
    /// Whether an op introduced it, for an extent that it computes by a formula that is not read back here.
    derived: bool,
}

/// The symbols of a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Symbols {
    entries: Vec<Entry>,
    /// Extents that are always plain numbers.
    known: BTreeSet<usize>,
}

impl Symbols {
    /// Chooses numbers for symbols of these names. Each is at most its bound and cannot be mistaken for an extent of
    /// these shapes.
    ///
    /// # Errors
    /// When there is no such number.
    pub(super) fn choose(names: &[(String, usize)], shapes: &[Shape]) -> Result<Self> {
        let mut symbols = Self::default();
        for shape in shapes {
            shape.iter().for_each(|&dim| symbols.know(dim));
            symbols.known.insert(shape.numel());
        }
        for (name, bound) in names {
            let largest = (*bound).min(LARGEST);
            let fitting = |margin: (usize, bool)| {
                let mut primes = ((largest / 4).max(2)..=largest).rev().filter(|&p| is_prime(p));
                primes.find(|&p| symbols.fits(p, margin))
            };
            let Some(value) = MARGINS.into_iter().find_map(fitting) else {
                return Err(Error::invalid(format!(
                    "no number up to {bound} can stand for the extent {name:?} while the model is recorded"
                ))
                .with_hint("give it a larger bound, or a fixed extent"));
            };
            symbols.entries.push(Entry {
                name: name.clone(),
                value,
                slack: SLACK.min(value / 16),
                derived: false,
            });
        }
        Ok(symbols)
    }

    /// Records that this number is an extent of the model, and so are its factors and small multiples.
    fn know(&mut self, extent: usize) {
        let parts = (1..)
            .take_while(|part| part * part <= extent)
            .filter(|part| extent.is_multiple_of(*part));
        let parts: Vec<usize> = parts.flat_map(|part| [part, extent / part]).collect();
        self.known.extend(parts);
        self.known.extend((1..=4).map(|factor| extent.saturating_mul(factor)));
    }

    /// Whether a number can stand for a new symbol beside the existing ones.
    fn fits(&self, p: usize, (margin, parts): (usize, bool)) -> bool {
        let apart = |extent: usize, margin: usize| {
            let nearest = ((extent + p / 2) / p).min(MULTIPLES);
            nearest == 0 || !extent.is_multiple_of(p) && extent.abs_diff(nearest * p) > margin
        };
        let halved = |extent: usize| (1..=5).any(|times| extent.abs_diff(p >> times) <= 2 && p >> times > SLACK);
        let others = || self.entries.iter().map(|entry| entry.value);
        self.known.iter().all(|&extent| apart(extent, margin.min(p / 16)))
            && (!parts || self.known.iter().all(|&extent| !halved(extent) && !is_part(extent, p)))
            && others().all(|other| other != p && apart(other, SLACK.min(p / 16)))
            && others().all(|other| !is_part(p, other) && !is_part(other, p))
    }

    /// The number that stands for a symbol of this name.
    pub(super) fn value(&self, name: &str) -> Option<usize> {
        self.entries
            .iter()
            .find(|entry| entry.name == name)
            .map(|entry| entry.value)
    }

    /// Names and numbers, for messages.
    pub(super) fn legend(&self) -> String {
        let entries = self.entries.iter().filter(|entry| !entry.derived);
        let parts: Vec<String> = entries
            .map(|entry| format!("{} = {}", entry.name, entry.value))
            .collect();
        parts.join(", ")
    }

    /// A symbol for an extent that an op computes.
    ///
    /// # Errors
    /// If the number is too small to be told apart from others.
    pub(super) fn derive(&mut self, value: usize) -> Result<Extent> {
        if value <= PARTS * PARTS || self.known.contains(&value) {
            return Err(Error::unsupported(format!(
                "an extent that is computed from a symbol has become {value} while the model was recorded ({}), as other extents are",
                self.legend()
            ))
            .with_hint("give the symbol a larger bound, or a fixed extent"));
        }
        let symbol = Symbol(self.entries.len() as u32);
        let count = self.entries.iter().filter(|entry| entry.derived).count();
        self.entries.push(Entry {
            name: format!("extent_{count}"),
            value,
            slack: 0,
            derived: true,
        });
        Ok(Extent::symbol(symbol))
    }

    /// The extent as text.
    pub(super) fn text(&self, extent: &Extent) -> String {
        extent.text(|symbol| self.entries[symbol.0 as usize].name.clone())
    }

    /// An extent in terms of the symbols.
    ///
    /// # Errors
    /// If it was computed from a symbol in a way that cannot be read back, such as a division.
    pub(super) fn read(&self, extent: usize) -> Result<Extent> {
        let own = self.entries.iter().position(|entry| entry.value == extent);
        if let Some(own) = own {
            return Ok(Extent::symbol(Symbol(own as u32)));
        }
        if extent == 0 || self.known.contains(&extent) {
            return Ok(Extent::fixed(extent as i64));
        }
        let (mut rest, mut product) = (extent, Extent::fixed(1));
        for (i, entry) in self.entries.iter().enumerate() {
            while (!entry.derived || entry.value > SLACK) && rest.is_multiple_of(entry.value) {
                rest /= entry.value;
                product = product.times(&Extent::symbol(Symbol(i as u32)));
            }
        }
        let factor = match self.sum(rest) {
            Some(sum) if !self.known.contains(&rest) => sum,
            _ => Extent::fixed(rest as i64),
        };
        if !factor.is_symbolic() && !self.known.contains(&rest) {
            let part = self
                .entries
                .iter()
                .find(|entry| !entry.derived && is_part(rest, entry.value));
            if let Some(entry) = part {
                return Err(Error::unsupported(format!(
                    "the extent {extent} was computed from {:?} in a way that cannot be recorded",
                    entry.name
                ))
                .with_hint(format!(
                    "while a model is recorded its symbols are numbers ({}), and extents may be sums and products of \
                     them; give the extent a fixed size, or another bound",
                    self.legend()
                )));
            }
        }
        Ok(product.times(&factor))
    }

    /// A number among the operands in terms of the symbols, if it is computed from them. Only sums and products of
    /// symbols are recognized, plus or minus one or two.
    pub(super) fn read_number(&self, number: f64) -> Option<Extent> {
        if !(number >= 2.0 && number.fract() == 0.0 && number < 2f64.powi(60)) {
            return None;
        }
        let number = number as usize;
        let (mut rest, mut product) = (number, Extent::fixed(1));
        for (i, entry) in self.entries.iter().enumerate().filter(|(_, entry)| entry.value > SLACK) {
            while rest.is_multiple_of(entry.value) {
                rest /= entry.value;
                product = product.times(&Extent::symbol(Symbol(i as u32)));
            }
        }
        if product.is_symbolic() {
            return Some(product.times(&Extent::fixed(rest as i64)));
        }
        self.sum(number)
            .filter(|sum| sum.is_symbolic() && sum.offset.abs() <= 2)
    }

    /// A number as a multiple of a symbol, or the sum of two, plus or minus a small number.
    fn sum(&self, number: usize) -> Option<Extent> {
        let mut best: Option<(usize, Extent)> = None;
        let mut offer = |value: usize, slack: usize, extent: Extent| {
            let away = number.abs_diff(value);
            if away <= slack && best.as_ref().is_none_or(|(known, _)| away < *known) {
                let offset = Extent::fixed(number as i64 - value as i64);
                best = Some((away, extent.plus(&offset)));
            }
        };
        let entries = || self.entries.iter().enumerate().filter(|(_, entry)| entry.value > 1);
        for (i, a) in entries() {
            let symbol = Extent::symbol(Symbol(i as u32));
            let factor = ((number + a.value / 2) / a.value).min(MULTIPLES);
            if factor > 0 {
                offer(factor * a.value, a.slack, symbol.times(&Extent::fixed(factor as i64)));
            }
            for (j, b) in entries().filter(|(j, _)| *j > i) {
                let other = Extent::symbol(Symbol(j as u32));
                offer(a.value + b.value, a.slack.min(b.slack), symbol.clone().plus(&other));
            }
        }
        best.map(|(_, extent)| extent)
    }
}

/// Whether a number is near a simple fraction of another.
fn is_part(number: usize, whole: usize) -> bool {
    (2..=PARTS).any(|parts| {
        (1..parts).any(|taken| {
            let (a, b) = (number.saturating_mul(parts), taken * whole);
            a.abs_diff(b) <= 2 * parts && whole > 16 * parts
        })
    })
}

fn is_prime(number: usize) -> bool {
    number > 1
        && (2..)
            .take_while(|part| part * part <= number)
            .all(|part| !number.is_multiple_of(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Symbols {
        let names = [("batch".to_owned(), usize::MAX), ("seq".to_owned(), 1024)];
        Symbols::choose(&names, &[Shape::from([768, 3072]), Shape::from([50257, 1024, 12])]).unwrap()
    }

    #[test]
    fn extents_are_read_back() {
        let symbols = table();
        let (b, s) = (symbols.value("batch").unwrap(), symbols.value("seq").unwrap());
        assert!(s <= 1024 && b != s);
        for (extent, text) in [
            (b, "batch"),
            (s, "seq"),
            (b * s, "batch*seq"),
            (b * s * 768, "768*batch*seq"),
            (12 * b, "12*batch"),
            (s + 1, "seq+1"),
            (s - 1, "seq-1"),
            (2 * s - 1, "2*seq-1"),
            (b * (s + 1), "batch*seq+batch"),
            (b + s, "batch+seq"),
            (s * s, "seq*seq"),
            (768, "768"),
            (1024, "1024"),
            (50257, "50257"),
            (64, "64"),
            (1, "1"),
            (0, "0"),
        ] {
            assert_eq!(symbols.text(&symbols.read(extent).unwrap()), text, "{extent}");
        }
    }

    #[test]
    fn what_is_divided_is_not_read() {
        let symbols = table();
        let s = symbols.value("seq").unwrap();
        let error = symbols.read(s / 2).unwrap_err();
        assert!(error.to_string().contains("\"seq\""), "{error}");
    }

    #[test]
    fn numbers_are_told_from_symbols() {
        let symbols = table();
        let s = symbols.value("seq").unwrap();
        assert!(symbols.read_number(1e4).is_none());
        assert!(symbols.read_number(0.125).is_none());
        assert_eq!(symbols.text(&symbols.read_number(s as f64).unwrap()), "seq");
    }

    #[test]
    fn a_bound_without_room_is_an_error() {
        assert!(Symbols::choose(&[("n".to_owned(), 1)], &[]).is_err());
    }
}
