//! Einstein summation, by permutations and one matrix product for each pair of operands.

use std::borrow::Borrow;

use polygrad_core::{Backend, Error, Result};

use super::context;
use super::join::borrowed;
use super::wide::narrow;
use crate::Tensor;
use crate::autocast::Lower;

impl<B: Backend> Tensor<B> {
    /// Sums products over the indices that the equation does not keep: `Tensor::einsum("ij,jk->ik", &[&a, &b])`.
    /// Letters name axes; a letter that occurs twice in one operand takes its diagonal. `...` stands for any further
    /// axes, aligned at the last one; extents of 1 broadcast. Without `->`, the axes of `...` are kept, then the
    /// letters that occur once, in alphabetical order.
    ///
    /// # Errors
    /// When the equation is malformed or does not fit the operands.
    pub fn einsum<T: Borrow<Self>>(equation: &str, operands: &[T]) -> Result<Self> {
        let operands = &*borrowed(operands);
        if let Some(lower) = Lower::wanted() {
            let operands = operands.iter().map(|x| lower.cast(x)).collect::<Result<Vec<_>>>()?;
            return lower.run(|| Self::einsum(equation, &operands));
        }
        let fail = |e: Error| context(e.with_hint("write it like \"ij,jk->ik\""), "einsum", operands);
        let ranks: Vec<usize> = operands.iter().map(|tensor| tensor.rank()).collect();
        let (terms, output) = parse(equation, &ranks).map_err(fail)?;
        if let Some(dtype) = narrow(operands).filter(|_| takes_steps(&terms, &output)) {
            let wide = operands.iter().map(|x| x.widened()).collect::<Result<Vec<_>>>()?;
            let wide: Vec<&Self> = wide.iter().collect();
            return Self::einsum(equation, &wide)?.to_dtype(dtype);
        }
        let mut remaining = Vec::new();
        for (letters, &tensor) in terms.into_iter().zip(operands) {
            remaining.push(Factor::new(letters, tensor).map_err(fail)?);
        }
        remaining.reverse();
        let Some(mut result) = remaining.pop() else {
            return Err(fail(Error::invalid("there are no operands")));
        };
        while let Some(next) = remaining.pop() {
            let kept = |letter: &char| output.contains(letter) || remaining.iter().any(|f| f.letters.contains(letter));
            result = result.times(next, kept).map_err(fail)?;
        }
        result
            .reduced_to(|letter| output.contains(letter))
            .and_then(|f| f.ordered(&output))
            .map_err(fail)
    }
}

/// Whether the equation takes more than one matrix product or one sum: several products, or sums before a product.
fn takes_steps(terms: &[Vec<char>], output: &[char]) -> bool {
    let uses = |letter: &char| terms.iter().filter(|term| term.contains(letter)).count();
    let alone = |letter: &char| uses(letter) == 1 && !output.contains(letter);
    terms.len() > 2 || (terms.len() == 2 && terms.iter().flatten().any(alone))
}

/// The letters of each operand's axes, and those of the output.
fn parse(equation: &str, ranks: &[usize]) -> Result<(Vec<Vec<char>>, Vec<char>)> {
    let compact: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, output) = match compact.split_once("->") {
        Some((inputs, output)) => (inputs, Some(output)),
        None => (compact.as_str(), None),
    };
    let texts: Vec<&str> = inputs.split(',').collect();
    if texts.len() != ranks.len() {
        return Err(Error::invalid(format!(
            "{equation:?} names {} operands, {} were given",
            texts.len(),
            ranks.len()
        )));
    }
    let mut widest = 0;
    let mut terms = Vec::with_capacity(texts.len());
    for (text, &rank) in texts.into_iter().zip(ranks) {
        let named = text.replacen("...", "", 1).chars().count();
        let further = rank.checked_sub(named).filter(|&n| n == 0 || text.contains("..."));
        let Some(further) = further else {
            return Err(Error::shape(format!(
                "{text:?} names {named} axes of a tensor of rank {rank}"
            )));
        };
        widest = widest.max(further);
        terms.push(letters(text, further)?);
    }
    let all: Vec<char> = terms.concat();
    let output = match output {
        Some(output) => letters(output, widest)?,
        None => {
            let once = |c: &char| c.is_ascii() && all.iter().filter(|d| *d == c).count() == 1;
            let mut named: Vec<char> = all.iter().copied().filter(once).collect();
            named.sort_unstable();
            [letters("...", widest)?, named].concat()
        }
    };
    for (i, letter) in output.iter().enumerate() {
        if !all.contains(letter) {
            return Err(Error::invalid(format!(
                "the output letter {letter:?} names no axis of an operand"
            )));
        }
        if output[..i].contains(letter) {
            return Err(Error::invalid(format!("the output letter {letter:?} stands twice")));
        }
    }
    Ok((terms, output))
}

/// The letters of one term. The axes of `...`, counted from the last axis, get private letters that no equation can
/// contain.
fn letters(term: &str, further: usize) -> Result<Vec<char>> {
    let (before, after) = term.split_once("...").unwrap_or((term, ""));
    if let Some(bad) = before.chars().chain(after.chars()).find(|c| !c.is_ascii_alphabetic()) {
        return Err(Error::invalid(format!("{bad:?} in {term:?} is no letter")));
    }
    let further = if term.contains("...") { further } else { 0 };
    let inner = (0..further)
        .rev()
        .filter_map(|i| char::from_u32('\u{E000}' as u32 + i as u32));
    Ok(before.chars().chain(inner).chain(after.chars()).collect())
}

/// The name of an axis in errors.
fn axis_name(letter: char) -> String {
    match letter {
        'a'..='z' | 'A'..='Z' => format!("{letter:?}"),
        other => format!("axis -{} of ...", other as u32 - '\u{E000}' as u32 + 1),
    }
}

/// A tensor whose axes have distinct letters.
struct Factor<B: Backend> {
    letters: Vec<char>,
    tensor: Tensor<B>,
}

impl<B: Backend> Factor<B> {
    /// Takes diagonals until no letter occurs twice.
    fn new(letters: Vec<char>, tensor: &Tensor<B>) -> Result<Self> {
        let mut out = Self {
            letters,
            tensor: tensor.clone(),
        };
        while let Some((first, second)) = repeated(&out.letters) {
            let shape = out.tensor.shape();
            if shape[first] != shape[second] {
                return Err(Error::shape(format!(
                    "{:?} has extents {} and {} in one operand",
                    out.letters[first], shape[first], shape[second]
                )));
            }
            out.tensor = out.tensor.diagonal(0, first as isize, second as isize)?;
            let letter = out.letters.remove(second);
            out.letters.remove(first);
            out.letters.push(letter);
        }
        Ok(out)
    }

    fn dim(&self, letter: char) -> Option<usize> {
        let axis = self.letters.iter().position(|&l| l == letter)?;
        Some(self.tensor.shape()[axis])
    }

    /// Sums over letters that are not kept.
    fn reduced_to(self, kept: impl Fn(&char) -> bool) -> Result<Self> {
        let gone: Vec<isize> = self
            .letters
            .iter()
            .enumerate()
            .filter(|(_, l)| !kept(l))
            .map(|(axis, _)| axis as isize)
            .collect();
        if gone.is_empty() {
            return Ok(self);
        }
        Ok(Self {
            tensor: self.tensor.sum(&gone)?,
            letters: self.letters.into_iter().filter(|letter| kept(letter)).collect(),
        })
    }

    fn ordered(&self, letters: &[char]) -> Result<Tensor<B>> {
        let axes: Vec<isize> = letters
            .iter()
            .filter_map(|letter| self.letters.iter().position(|l| l == letter))
            .map(|axis| axis as isize)
            .collect();
        self.tensor.permute(&axes)
    }

    /// The product of two factors, summed over shared letters that are not needed later: one batched matrix product.
    fn times(self, other: Self, kept: impl Fn(&char) -> bool) -> Result<Self> {
        let shared = |letter: &char| self.letters.contains(letter) && other.letters.contains(letter);
        for letter in self.letters.iter().filter(|l| shared(l)) {
            let (a, b) = (self.dim(*letter), other.dim(*letter));
            if a != b && a != Some(1) && b != Some(1) {
                return Err(Error::shape(format!(
                    "{} has extent {} in one operand and {} in another",
                    axis_name(*letter),
                    a.unwrap_or(0),
                    b.unwrap_or(0)
                )));
            }
        }
        let is_shared: Vec<char> = self.letters.iter().copied().filter(|l| shared(l)).collect();
        let left = self.reduced_to(|l| kept(l) || is_shared.contains(l))?;
        let right = other.reduced_to(|l| kept(l) || is_shared.contains(l))?;
        let batch: Vec<char> = is_shared.iter().copied().filter(|l| kept(l)).collect();
        let inner: Vec<char> = is_shared.iter().copied().filter(|l| !kept(l)).collect();
        let rows: Vec<char> = left
            .letters
            .iter()
            .copied()
            .filter(|l| !is_shared.contains(l))
            .collect();
        let columns: Vec<char> = right
            .letters
            .iter()
            .copied()
            .filter(|l| !is_shared.contains(l))
            .collect();

        let extent = |letter: &char| match left.dim(*letter) {
            None | Some(1) => right.dim(*letter).unwrap_or(1),
            Some(dim) => dim,
        };
        let extents = |letters: &[char]| letters.iter().map(extent).collect::<Vec<_>>();
        let size = |letters: &[char]| extents(letters).iter().product::<usize>();
        let matrix = |factor: &Self, order: [&[char]; 3], dims: [usize; 3]| -> Result<Tensor<B>> {
            let letters = order.concat();
            factor.ordered(&letters)?.expand(extents(&letters))?.reshape(dims)
        };
        let (b, m, k, n) = (size(&batch), size(&rows), size(&inner), size(&columns));
        let product = matrix(&left, [&batch, &rows, &inner], [b, m, k])?.matmul(&matrix(
            &right,
            [&batch, &inner, &columns],
            [b, k, n],
        )?)?;
        let letters = [batch, rows, columns].concat();
        Ok(Self {
            tensor: product.reshape(extents(&letters))?,
            letters,
        })
    }
}

fn repeated(letters: &[char]) -> Option<(usize, usize)> {
    letters.iter().enumerate().find_map(|(i, letter)| {
        let later = letters[i + 1..].iter().position(|l| l == letter)?;
        Some((i, i + 1 + later))
    })
}

impl<B: Backend> Tensor<B> {
    /// The diagonal of two axes, which are replaced by one at the end: elements whose position on axis `b` is `offset`
    /// more than on axis `a`.
    ///
    /// # Errors
    /// When an axis is out of range, or both are the same.
    pub fn diagonal(&self, offset: isize, a: isize, b: isize) -> Result<Self> {
        let fail = |e| context(e, "diagonal", &[self]);
        let shape = self.shape();
        let (a, b) = (shape.axis(a).map_err(fail)?, shape.axis(b).map_err(fail)?);
        if a == b {
            return Err(fail(Error::invalid(format!("axis {a} is given twice"))));
        }
        let order: Vec<isize> = (0..shape.rank())
            .filter(|&axis| axis != a && axis != b)
            .chain([a, b])
            .map(|axis| axis as isize)
            .collect();
        let (rows, columns) = (shape[a], shape[b]);
        let (first_row, first_column) = (offset.min(0).unsigned_abs(), offset.max(0) as usize);
        let len = rows.saturating_sub(first_row).min(columns.saturating_sub(first_column));
        let outer: Vec<usize> = (0..shape.rank())
            .filter(|&axis| axis != a && axis != b)
            .map(|axis| shape[axis])
            .collect();
        let flat = self
            .permute(&order)?
            .reshape([outer.as_slice(), &[rows * columns]].concat())?;
        // If nothing is taken, the offset may be out of range.
        let start = if len == 0 {
            0
        } else {
            first_row * columns + first_column
        };
        let range = polygrad_core::SliceRange::new(start, len, columns as isize + 1);
        flat.slice_axis(-1, range, "diagonal")
    }
}
