//! Extents that are known when the model runs: sums of products of symbols.

use std::fmt::Write;

/// A symbol: its index in the table of symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Symbol(pub(super) u32);

/// `offset + Σ factor · symbol · symbol · …`, each product of symbols once, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Extent {
    pub(super) terms: Vec<(i64, Vec<Symbol>)>,
    pub(super) offset: i64,
}

impl Extent {
    /// A number.
    pub(crate) const fn fixed(value: i64) -> Self {
        Self {
            terms: Vec::new(),
            offset: value,
        }
    }

    /// The symbol itself.
    pub(super) fn symbol(symbol: Symbol) -> Self {
        Self {
            terms: vec![(1, vec![symbol])],
            offset: 0,
        }
    }

    /// The number, if it has no symbol.
    pub(crate) fn as_fixed(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.offset)
    }

    /// Whether it has a symbol.
    pub(crate) fn is_symbolic(&self) -> bool {
        !self.terms.is_empty()
    }

    pub(super) fn plus(mut self, other: &Self) -> Self {
        self.offset = self.offset.saturating_add(other.offset);
        for (factor, symbols) in &other.terms {
            match self.terms.iter_mut().find(|(_, known)| known == symbols) {
                Some((known, _)) => *known = known.saturating_add(*factor),
                None => self.terms.push((*factor, symbols.clone())),
            }
        }
        self.terms.retain(|(factor, _)| *factor != 0);
        self.terms.sort_by(|a, b| (b.1.len(), &a.1).cmp(&(a.1.len(), &b.1)));
        self
    }

    pub(crate) fn times(&self, other: &Self) -> Self {
        let all = |extent: &Self| -> Vec<(i64, Vec<Symbol>)> {
            let own = (extent.offset, Vec::new());
            extent
                .terms
                .iter()
                .cloned()
                .chain([own])
                .filter(|(factor, _)| *factor != 0)
                .collect()
        };
        let mut product = Self::fixed(0);
        for (a, left) in all(self) {
            for (b, right) in all(other) {
                let mut symbols = [&left[..], &right[..]].concat();
                symbols.sort();
                let factor = a.saturating_mul(b);
                let part = if symbols.is_empty() {
                    Self::fixed(factor)
                } else {
                    Self {
                        terms: vec![(factor, symbols)],
                        offset: 0,
                    }
                };
                product = product.plus(&part);
            }
        }
        product
    }

    /// As text, such as `2*batch*seq+1`.
    pub(super) fn text(&self, name: impl Fn(Symbol) -> String) -> String {
        let mut text = String::new();
        for (factor, symbols) in &self.terms {
            if !text.is_empty() && *factor > 0 {
                text.push('+');
            }
            match factor {
                1 => {}
                -1 => text.push('-'),
                factor => {
                    let _ = write!(text, "{factor}*");
                }
            }
            let names: Vec<String> = symbols.iter().map(|&symbol| name(symbol)).collect();
            text.push_str(&names.join("*"));
        }
        if self.offset != 0 || text.is_empty() {
            let plus = if text.is_empty() || self.offset < 0 { "" } else { "+" };
            let _ = write!(text, "{plus}{}", self.offset);
        }
        text
    }
}
