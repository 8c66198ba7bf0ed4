//! The axes of charts.

use crate::canvas::Colour;
use crate::colours::{FAINT, INK};

/// The values along one side of a chart, and their labels.
#[derive(Clone, Debug)]
pub struct Axis {
    kind: Kind,
    low: f64,
    high: f64,
    /// The positions and texts of the labels.
    pub(crate) ticks: Vec<(f64, String)>,
    pub(crate) title: String,
    pub(crate) grid: bool,
    pub(crate) stressed: Option<f64>,
    pub(crate) above: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Linear,
    Logarithmic,
    Names,
}

impl Axis {
    fn new(kind: Kind, low: f64, high: f64, ticks: Vec<(f64, String)>) -> Self {
        Self {
            kind,
            low,
            high,
            ticks,
            title: String::new(),
            grid: false,
            stressed: None,
            above: false,
        }
    }

    /// From `low` to `high`, with about `most` round numbers at most.
    pub fn linear(low: f64, high: f64, most: u8) -> Self {
        Self::new(Kind::Linear, low, high, ticks(low, high, most))
    }

    /// Linear, covering all finite `values` with a margin; from 0 to 1 if there are none.
    pub fn around(values: impl Iterator<Item = f64>, most: u8) -> Self {
        let values = values.filter(|value| value.is_finite());
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        if low > high {
            return Self::linear(0.0, 1.0, most);
        }
        let margin = f64::max((high - low) * 0.06, 1e-3 * high.abs().max(1.0));
        Self::linear(low - margin, high + margin, most)
    }

    /// Logarithmic from `low` to `high`, both above 0, with 1, 2 and 5 of each power of ten; only with the powers if
    /// the range is wide.
    pub fn logarithmic(low: f64, high: f64) -> Self {
        Self::new(Kind::Logarithmic, low, high, powers(low, high))
    }

    /// A position for each name, from left to right or from the top down: the first is at 0.5, the next at 1.5.
    pub fn names(names: impl IntoIterator<Item = String>) -> Self {
        let ticks: Vec<(f64, String)> = (0..).zip(names).map(|(i, name)| (f64::from(i) + 0.5, name)).collect();
        Self::new(Kind::Names, 0.0, ticks.len().max(1) as f64, ticks)
    }

    /// Sets the title, which describes the values.
    pub fn title(self, title: &str) -> Self {
        Self {
            title: title.to_owned(),
            ..self
        }
    }

    /// Draws a line across the chart at each tick.
    pub fn grid(self) -> Self {
        Self { grid: true, ..self }
    }

    /// Draws the line at this tick thicker.
    pub fn stress(self, tick: f64) -> Self {
        Self {
            stressed: Some(tick),
            ..self
        }
    }

    /// Puts the tick labels above the chart rather than below it: for a high chart, which is read from the top.
    pub fn above(self) -> Self {
        Self { above: true, ..self }
    }

    /// The distance of a value from the axis' low end, relative to the whole axis; not finite if the value has no
    /// position.
    pub(crate) fn share(&self, value: f64) -> f32 {
        let share = match self.kind {
            Kind::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
            Kind::Linear | Kind::Names => (value - self.low) / (self.high - self.low),
        };
        share as f32
    }

    pub(crate) fn has_names(&self) -> bool {
        self.kind == Kind::Names
    }

    /// The colour of the tick labels.
    pub(crate) fn colour(&self) -> Colour {
        if self.has_names() { INK } else { FAINT }
    }
}

/// At most about `most` round numbers between `low` and `high`, with as many decimals as they need.
fn ticks(low: f64, high: f64, most: u8) -> Vec<(f64, String)> {
    let raw = (high - low) / f64::from(most);
    if !(raw.is_finite() && raw > 0.0) {
        return Vec::new();
    }
    let power = 10_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|s| s * power)
        .find(|&s| s >= raw * 0.999)
        .unwrap_or(10.0 * power);
    let decimals = (-(step * 1.001).log10().floor()).clamp(0.0, 12.0) as usize;
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last)
        .map(|i| {
            let tick = i as f64 * step;
            (tick, format!("{tick:.decimals$}"))
        })
        .collect()
}

/// 1, 2 and 5 of each power of ten between `low` and `high`; only the powers if the range is wide.
fn powers(low: f64, high: f64) -> Vec<(f64, String)> {
    if !(low > 0.0 && high.is_finite()) {
        return Vec::new();
    }
    let steps: &[f64] = if high / low > 300.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let ticks = (low.log10().floor() as i32..=high.log10().ceil() as i32).flat_map(|power| {
        // A division gives the nearest number to 0.1, a product may not.
        let power_of_ten = 10f64.powi(power.abs());
        steps.iter().map(move |step| match power < 0 {
            true => step / power_of_ten,
            false => step * power_of_ten,
        })
    });
    let within = ticks.filter(|tick| (low..=high).contains(tick));
    within.map(|tick| (tick, tick.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers() {
        let labels = |low, high, most| -> Vec<String> { ticks(low, high, most).into_iter().map(|t| t.1).collect() };
        assert_eq!(labels(0.0, 8.0, 10), ["0", "1", "2", "3", "4", "5", "6", "7", "8"]);
        assert_eq!(labels(0.17, 0.61, 6), ["0.2", "0.3", "0.4", "0.5", "0.6"]);
        assert_eq!(labels(-0.5, 30.0, 6), ["0", "10", "20", "30"]);
        assert!(labels(1.0, 1.0, 6).is_empty());
    }

    #[test]
    fn ticks_of_powers_rise_and_are_on_the_axis() {
        for (low, high) in [(0.45, 2.2), (0.18, 44.0), (9e-4, 1.1e4)] {
            let axis = Axis::logarithmic(low, high);
            assert!(axis.ticks.iter().any(|tick| tick.0 == 1.0) && axis.ticks.is_sorted_by_key(|tick| tick.0));
            assert!(axis.ticks.iter().all(|tick| (0.0..=1.0).contains(&axis.share(tick.0))));
        }
        let labels: Vec<String> = powers(0.05, 3.0).into_iter().map(|tick| tick.1).collect();
        assert_eq!(labels, ["0.05", "0.1", "0.2", "0.5", "1", "2"]);
    }

    #[test]
    fn all_values_are_on_the_axis_with_a_margin() {
        let axis = Axis::around([3.0, f64::NAN, 5.0, f64::INFINITY].into_iter(), 6);
        assert!(axis.share(3.0) > 0.02 && axis.share(5.0) < 0.98);
        let axis = Axis::around([7.0].into_iter(), 6);
        assert_eq!(axis.share(7.0), 0.5);
        assert_eq!(Axis::around([].into_iter(), 6).share(0.25), 0.25);
    }
}
