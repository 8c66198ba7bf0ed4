//! Spaces of actions and observations.

use polygrad_core::{DType, Error, ErrorKind, Result, Rng};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A set of values, with Gymnasium's names and meanings. A value is a slice of [`len`](Self::len) numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Space {
    /// An integer from `start` to `start + n - 1`.
    Discrete {
        /// The number of values, at least one.
        n: usize,
        /// The first value.
        start: i64,
    },
    /// Numbers between bounds, which may be infinite.
    Box {
        /// The least value of each number, rows first.
        low: Vec<f32>,
        /// The greatest value of each number.
        high: Vec<f32>,
        /// The layout of the numbers, such as channels, height and width.
        shape: Vec<usize>,
        /// The dtype of the numbers outside of this crate; with an integer dtype they have no fractions.
        dtype: DType,
    },
    /// Several integers, each with its own range.
    MultiDiscrete {
        /// The number of values of each, at least one.
        nvec: Vec<usize>,
        /// The first value of each.
        start: Vec<i64>,
    },
    /// `n` numbers that are 0 or 1.
    MultiBinary {
        /// How many.
        n: usize,
    },
}

/// A space in JSON, with Gymnasium's words.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
enum Written {
    Discrete {
        n: usize,
        start: i64,
    },
    /// Infinite bounds are null.
    Box {
        low: Vec<Option<f32>>,
        high: Vec<Option<f32>>,
        shape: Vec<usize>,
        dtype: String,
    },
    MultiDiscrete {
        nvec: Vec<usize>,
        start: Vec<i64>,
    },
    MultiBinary {
        n: usize,
    },
}

/// Above this, f32 cannot represent all integers.
const EXACT: i64 = 1 << 24;

fn is_among(value: f32, n: usize, start: i64) -> bool {
    let place = f64::from(value) - start as f64;
    place >= 0.0 && place < n as f64 && value.fract() == 0.0
}

/// Whether there is no finite number between the bounds.
fn is_empty(low: f32, high: f32) -> bool {
    low.is_nan() || high.is_nan() || low > high || low == f32::INFINITY || high == f32::NEG_INFINITY
}

fn check_range(n: usize, start: i64) -> Result<()> {
    if n == 0 {
        return Err(Error::invalid("a discrete space has no values: n is 0"));
    }
    let last = i64::try_from(n).ok().and_then(|n| start.checked_add(n - 1));
    if start < -EXACT || last.is_none_or(|last| last > EXACT) {
        return Err(Error::invalid(format!(
            "{n} values from {start} on: only whole numbers from -2^24 to 2^24 are exact in f32"
        )));
    }
    Ok(())
}

impl Space {
    /// `n` values from 0.
    pub fn discrete(n: usize) -> Self {
        Self::Discrete { n, start: 0 }
    }

    /// A row of f32 numbers with these bounds.
    pub fn boxed(low: &[f32], high: &[f32]) -> Self {
        Self::Box {
            low: low.to_vec(),
            high: high.to_vec(),
            shape: vec![low.len()],
            dtype: DType::F32,
        }
    }

    /// f32 numbers of a shape, all with the same bounds.
    pub fn boxed_in(low: f32, high: f32, shape: &[usize]) -> Self {
        let len = shape.iter().product();
        Self::Box {
            low: vec![low; len],
            high: vec![high; len],
            shape: shape.to_vec(),
            dtype: DType::F32,
        }
    }

    /// Integers from 0, with the numbers of values in `nvec`.
    pub fn multi_discrete(nvec: &[usize]) -> Self {
        Self::MultiDiscrete {
            nvec: nvec.to_vec(),
            start: vec![0; nvec.len()],
        }
    }

    /// `n` numbers that are 0 or 1.
    pub fn multi_binary(n: usize) -> Self {
        Self::MultiBinary { n }
    }

    /// The space as JSON, with Gymnasium's words: `{"type": "Discrete", "n": 2, "start": 0}`. Infinite bounds are null.
    pub fn to_json(&self) -> Value {
        let finite = |bounds: &[f32]| bounds.iter().map(|x| Some(*x).filter(|x| x.is_finite())).collect();
        let written = match self.clone() {
            Self::Discrete { n, start } => Written::Discrete { n, start },
            Self::MultiDiscrete { nvec, start } => Written::MultiDiscrete { nvec, start },
            Self::MultiBinary { n } => Written::MultiBinary { n },
            Self::Box {
                low,
                high,
                shape,
                dtype,
            } => Written::Box {
                low: finite(&low),
                high: finite(&high),
                shape,
                dtype: dtype.name().to_owned(),
            },
        };
        serde_json::to_value(written).unwrap_or_default()
    }

    /// The space that [`to_json`](Self::to_json) has written.
    ///
    /// # Errors
    /// If it is not a space, or one that is [invalid](Self::check).
    pub fn from_json(json: &Value) -> Result<Self> {
        let wrong = |what: String| Error::new(ErrorKind::Format, format!("this is no space: {what}"));
        let bounds = |bounds: Vec<Option<f32>>, none: f32| bounds.into_iter().map(|x| x.unwrap_or(none)).collect();
        let space = match Written::deserialize(json).map_err(|error| wrong(error.to_string()))? {
            Written::Discrete { n, start } => Self::Discrete { n, start },
            Written::MultiDiscrete { nvec, start } => Self::MultiDiscrete { nvec, start },
            Written::MultiBinary { n } => Self::MultiBinary { n },
            Written::Box {
                low,
                high,
                shape,
                dtype,
            } => Self::Box {
                low: bounds(low, f32::NEG_INFINITY),
                high: bounds(high, f32::INFINITY),
                shape,
                dtype: DType::ALL
                    .into_iter()
                    .find(|known| known.name() == dtype)
                    .ok_or_else(|| wrong(format!("there is no dtype {dtype:?}")))?,
            },
        };
        space.check()?;
        Ok(space)
    }

    /// The number of numbers in a value.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        match self {
            Self::Discrete { .. } => 1,
            Self::Box { low, .. } => low.len(),
            Self::MultiDiscrete { nvec, .. } => nvec.len(),
            Self::MultiBinary { n } => *n,
        }
    }

    /// The number of inputs of a network: integers count as one-hot vectors (Gymnasium's `flatdim`).
    pub fn flat_len(&self) -> usize {
        match self {
            Self::Discrete { n, .. } => *n,
            Self::MultiDiscrete { nvec, .. } => nvec.iter().sum(),
            Self::Box { .. } | Self::MultiBinary { .. } => self.len(),
        }
    }

    /// Writes a value of this space as [`flat_len`](Self::flat_len) numbers, with integers as one-hot vectors
    /// (Gymnasium's `flatten`).
    ///
    /// # Errors
    /// If a length is not the space's, or an integer is outside of its range.
    pub fn flatten(&self, value: &[f32], flat: &mut [f32]) -> Result<()> {
        if value.len() != self.len() || flat.len() != self.flat_len() {
            let (len, flat_len) = (self.len(), self.flat_len());
            return Err(Error::shape(format!(
                "{} and {} numbers, but a value of this space has {len}, and flat {flat_len}",
                value.len(),
                flat.len()
            )));
        }
        match self {
            Self::Discrete { n, start } => one_hot(value[0], *n, *start, flat),
            Self::MultiDiscrete { nvec, start } => {
                let mut rest = flat;
                for ((value, n), start) in value.iter().zip(nvec).zip(start) {
                    let (part, after) = rest.split_at_mut(*n);
                    one_hot(*value, *n, *start, part)?;
                    rest = after;
                }
                Ok(())
            }
            Self::Box { .. } | Self::MultiBinary { .. } => {
                flat.copy_from_slice(value);
                Ok(())
            }
        }
    }

    /// Whether a value is in the space; NaN never is.
    #[inline]
    pub fn contains(&self, value: &[f32]) -> bool {
        if value.len() != self.len() {
            return false;
        }
        match self {
            Self::Discrete { n, start } => is_among(value[0], *n, *start),
            Self::Box { low, high, dtype, .. } => {
                let within = value
                    .iter()
                    .zip(low)
                    .zip(high)
                    .all(|((x, low), high)| x >= low && x <= high);
                within && (dtype.is_float() || value.iter().all(|x| x.fract() == 0.0))
            }
            Self::MultiDiscrete { nvec, start } => {
                let mut ranges = value.iter().zip(nvec).zip(start);
                ranges.all(|((value, n), start)| is_among(*value, *n, *start))
            }
            Self::MultiBinary { .. } => value.iter().all(|x| *x == 0.0 || *x == 1.0),
        }
    }

    /// Writes a random value, like Gymnasium's `sample`: uniform between two bounds, exponential from one bound, normal
    /// without bounds.
    ///
    /// The slice has [`len`](Self::len) numbers; further ones stay as they were.
    pub fn sample(&self, rng: &mut Rng, value: &mut [f32]) {
        match self {
            Self::Discrete { n, start } => {
                let drawn = whole(*n, *start, rng);
                value.iter_mut().take(1).for_each(|x| *x = drawn);
            }
            Self::Box { low, high, dtype, .. } => {
                for ((x, low), high) in value.iter_mut().zip(low).zip(high) {
                    *x = between(*low, *high, dtype.is_float(), rng);
                }
            }
            Self::MultiDiscrete { nvec, start } => {
                for ((x, n), start) in value.iter_mut().zip(nvec).zip(start) {
                    *x = whole(*n, *start, rng);
                }
            }
            Self::MultiBinary { n } => value.iter_mut().take(*n).for_each(|x| *x = rng.below(2) as f32),
        }
    }

    /// Checks whether the space is valid.
    ///
    /// # Errors
    /// If lengths of bounds differ from each other or the shape, a lower bound is NaN or above the upper one, or a
    /// range of integers is empty or beyond 2²⁴.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Discrete { n, start } => check_range(*n, *start),
            Self::Box { low, high, shape, .. } => {
                let len = shape.iter().try_fold(1, |len: usize, extent| len.checked_mul(*extent));
                if len != Some(low.len()) || len != Some(high.len()) {
                    let len = len.map_or("too many".to_owned(), |len| len.to_string());
                    return Err(Error::shape(format!(
                        "a box of shape {shape:?} has {len} numbers, but {} lower and {} upper bounds",
                        low.len(),
                        high.len()
                    )));
                }
                match low.iter().zip(high).position(|(low, high)| is_empty(*low, *high)) {
                    Some(i) => Err(Error::invalid(format!(
                        "bounds {i} of a box are {} and {}, between which nothing is",
                        low[i], high[i]
                    ))),
                    None => Ok(()),
                }
            }
            Self::MultiDiscrete { nvec, start } => {
                if nvec.len() != start.len() {
                    let (n, starts) = (nvec.len(), start.len());
                    return Err(Error::shape(format!(
                        "{n} ranges of whole numbers, but {starts} first values"
                    )));
                }
                let mut ranges = nvec.iter().zip(start);
                ranges.try_for_each(|(n, start)| check_range(*n, *start))
            }
            Self::MultiBinary { .. } => Ok(()),
        }
    }
}

fn one_hot(value: f32, n: usize, start: i64, flat: &mut [f32]) -> Result<()> {
    if !is_among(value, n, start) {
        return Err(Error::out_of_range(format!(
            "{value} is none of the {n} values from {start} on"
        )));
    }
    flat.fill(0.0);
    flat[(f64::from(value) - start as f64) as usize] = 1.0;
    Ok(())
}

fn whole(n: usize, start: i64, rng: &mut Rng) -> f32 {
    (rng.below(n) as f64 + start as f64) as f32
}

fn between(low: f32, high: f32, fractions: bool, rng: &mut Rng) -> f32 {
    let (least, greatest) = (f64::from(low), f64::from(high));
    // Integers are rounded down below, and the last of them needs an equal share.
    let extra = if fractions { 0.0 } else { 1.0 };
    let drawn = match (low.is_finite(), high.is_finite()) {
        (true, true) => least + rng.uniform() * (greatest - least + extra),
        (true, false) => least - (1.0 - rng.uniform()).ln(),
        (false, true) => greatest + extra + (1.0 - rng.uniform()).ln(),
        (false, false) => rng.normal(),
    };
    let drawn = if fractions { drawn } else { drawn.floor() };
    // Not `clamp`, which panics for bounds that `check` refuses.
    (drawn as f32).max(low).min(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes() -> Space {
        Space::Box {
            low: vec![0.0; 4],
            high: vec![255.0; 4],
            shape: vec![2, 2],
            dtype: DType::U8,
        }
    }

    fn every() -> Vec<Space> {
        vec![
            Space::discrete(3),
            Space::Discrete { n: 2, start: -1 },
            Space::boxed(&[-1.0, 0.0, f32::NEG_INFINITY], &[1.0, f32::INFINITY, f32::INFINITY]),
            Space::boxed(&[f32::NEG_INFINITY], &[3.0]),
            bytes(),
            Space::multi_discrete(&[2, 5]),
            Space::multi_binary(3),
        ]
    }

    #[test]
    fn samples_are_inside_and_cover_the_space() {
        for space in every() {
            space.check().unwrap();
            let mut rng = Rng::new(1);
            let mut value = vec![f32::NAN; space.len()];
            assert!(!space.contains(&value));
            let mut seen = std::collections::HashSet::new();
            for _ in 0..2000 {
                space.sample(&mut rng, &mut value);
                assert!(space.contains(&value), "{space:?}: {value:?}");
                seen.insert(value[0].to_bits());
            }
            let expected = match &space {
                Space::Discrete { n, .. } => *n..=*n,
                Space::Box { dtype, .. } if *dtype == DType::U8 => 250..=256,
                Space::Box { .. } => 1000..=2000,
                _ => 2..=2,
            };
            assert!(expected.contains(&seen.len()), "{space:?}: {}", seen.len());
        }
    }

    #[test]
    fn a_space_comes_back_from_json() {
        for space in every() {
            assert_eq!(Space::from_json(&space.to_json()).unwrap(), space);
        }
        for (text, message) in [
            (r#"{"type": "Sphere"}"#, "unknown variant `Sphere`"),
            (r#"{"type": "Discrete", "n": 0, "start": 0}"#, "n is 0"),
            (
                r#"{"type": "Box", "low": [], "high": [], "shape": [0], "dtype": "f8"}"#,
                "there is no dtype \"f8\"",
            ),
        ] {
            let error = Space::from_json(&serde_json::from_str(text).unwrap()).unwrap_err();
            assert!(error.message().contains(message), "{error}");
        }
    }

    #[test]
    fn what_is_outside_is_not_contained() {
        let cases: [(Space, &[f32]); 9] = [
            (Space::discrete(3), &[3.0]),
            (Space::discrete(3), &[-1.0]),
            (Space::discrete(3), &[0.5]),
            (Space::discrete(3), &[0.0, 1.0]),
            (Space::Discrete { n: 2, start: 5 }, &[4.0]),
            (Space::boxed(&[0.0], &[1.0]), &[1.1]),
            (bytes(), &[0.0, 1.0, 2.5, 3.0]),
            (Space::multi_discrete(&[2, 5]), &[1.0, 5.0]),
            (Space::multi_binary(2), &[0.0, 2.0]),
        ];
        for (space, value) in cases {
            assert!(!space.contains(value), "{space:?}: {value:?}");
        }
    }

    #[test]
    fn whole_numbers_are_flat_as_one_hot_vectors() {
        let flat = |space: Space, value: &[f32]| {
            let mut flat = vec![9.0; space.flat_len()];
            space.flatten(value, &mut flat).map(|()| flat)
        };
        assert_eq!(
            flat(Space::Discrete { n: 3, start: -1 }, &[1.0]).unwrap(),
            [0.0, 0.0, 1.0]
        );
        assert_eq!(
            flat(Space::multi_discrete(&[2, 3]), &[1.0, 0.0]).unwrap(),
            [0.0, 1.0, 1.0, 0.0, 0.0]
        );
        assert_eq!(flat(Space::boxed(&[0.0], &[4.0]), &[2.5]).unwrap(), [2.5]);
        let error = flat(Space::discrete(3), &[3.0]).unwrap_err();
        assert_eq!(error.message(), "3 is none of the 3 values from 0 on");
        assert!(flat(Space::discrete(3), &[]).is_err());
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let crooked = Space::MultiDiscrete {
            nvec: vec![2, 2],
            start: vec![0],
        };
        let endless = Space::Box {
            low: vec![0.0],
            high: vec![1.0],
            shape: vec![usize::MAX, 2],
            dtype: DType::F32,
        };
        let far = Space::Discrete { n: 3, start: i64::MAX };
        for (space, message) in [
            (endless, "has too many numbers"),
            (far, "2^24"),
            (Space::discrete(0), "n is 0"),
            (Space::discrete(1 << 25), "2^24"),
            (Space::boxed(&[0.0, 1.0], &[1.0]), "2 lower and 1 upper bounds"),
            (Space::boxed(&[0.0, 2.0], &[1.0, 1.0]), "bounds 1 of a box are 2 and 1"),
            (Space::boxed(&[f32::NAN], &[1.0]), "NaN"),
            (Space::boxed(&[f32::INFINITY], &[f32::INFINITY]), "bounds 0"),
            (crooked, "2 ranges of whole numbers, but 1 first values"),
        ] {
            let error = space.check().unwrap_err();
            assert!(error.message().contains(message), "{error}");
            // Such a space has no values, but sampling one does not panic.
            space.sample(&mut Rng::new(0), &mut [0.0; 3]);
            space.sample_masked(&[true; 4], &mut Rng::new(0), &mut [0.0; 3]);
        }
    }
}
