//! The search space of a sweep: settings, and the values that each may have.

use serde_json::{Map, Value};

/// A setting that is varied.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Setting {
    /// The option of `polygrad train`, without its dashes.
    option: String,
    /// The key, if the option takes `KEY=VALUE`, as `--set` does.
    key: Option<String>,
    values: Values,
}

/// The values of a setting.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Values {
    Uniform(f64, f64),
    /// Uniform in the logarithm.
    Log(f64, f64),
    Int(i64, i64),
    LogInt(i64, i64),
    Choice(Vec<Value>),
}

const KINDS: [&str; 5] = ["uniform", "log", "int", "log_int", "choice"];

/// The digits of a number, relative to it or to its range.
const DIGITS: usize = 4;

/// The settings of a table `[space]`. An error consists of a key, what is wrong with it, and a fix.
///
/// # Errors
/// The first setting with invalid values.
pub(super) fn read(space: &Map<String, Value>) -> Result<Vec<Setting>, (String, String, String)> {
    let mut settings = Vec::new();
    for (option, told) in space {
        let inner = told.as_object().filter(|told| !is_values(told));
        match inner {
            Some(keys) if !keys.is_empty() => {
                for (key, told) in keys {
                    settings.push(setting(option, Some(key), told)?);
                }
            }
            _ => settings.push(setting(option, None, told)?),
        }
    }
    Ok(settings)
}

/// Whether a table defines values rather than settings.
fn is_values(table: &Map<String, Value>) -> bool {
    table
        .iter()
        .any(|(kind, range)| KINDS.contains(&kind.as_str()) && range.is_array())
}

fn setting(option: &str, key: Option<&String>, told: &Value) -> Result<Setting, (String, String, String)> {
    let named = Setting {
        option: option.to_owned(),
        key: key.cloned(),
        values: Values::Int(0, 0),
    };
    let bad = |(what, fix): (String, &str)| (format!("space.{}", named.name()), what, fix.to_owned());
    let values = values(told).map_err(bad)?;
    Ok(Setting { values, ..named })
}

fn values(told: &Value) -> Result<Values, (String, &'static str)> {
    const FIX: &str = "write one of { uniform = [0.9, 1] }, { log = [1e-5, 1e-2] }, { int = [1, 8] }, \
                       { log_int = [16, 512] } and { choice = [\"sgd\", \"adamw\"] }";
    let one = told.as_object().filter(|told| told.len() == 1);
    let Some((kind, Value::Array(range))) = one.and_then(|told| told.iter().next()) else {
        return Err((format!("{told} says no values"), FIX));
    };
    if kind == "choice" {
        return match range.is_empty() {
            true => Err(("there is nothing to choose from".to_owned(), FIX)),
            false => Ok(Values::Choice(range.clone())),
        };
    }
    let bounds = |fix| match &range[..] {
        [low, high] => Ok((low.clone(), high.clone())),
        _ => Err((format!("{told} does not have two bounds"), fix)),
    };
    let values = match kind.as_str() {
        "uniform" | "log" => {
            let (low, high) = bounds(FIX)?;
            let (Some(low), Some(high)) = (low.as_f64(), high.as_f64()) else {
                return Err((format!("the bounds of {told} are no numbers"), FIX));
            };
            match kind.as_str() {
                "log" => Values::Log(low, high),
                _ => Values::Uniform(low, high),
            }
        }
        "int" | "log_int" => {
            let (low, high) = bounds(FIX)?;
            let (Some(low), Some(high)) = (low.as_i64(), high.as_i64()) else {
                return Err((format!("the bounds of {told} are no whole numbers"), FIX));
            };
            match kind.as_str() {
                "log_int" => Values::LogInt(low, high),
                _ => Values::Int(low, high),
            }
        }
        _ => return Err((format!("there are no values of the kind {kind}"), FIX)),
    };
    let (low, high) = values.bounds();
    if low >= high || !(high - low).is_finite() {
        return Err((
            format!("{low} to {high} is no range"),
            "write the lower bound first, and the higher one second",
        ));
    }
    if matches!(values, Values::Log(..) | Values::LogInt(..)) && low <= 0.0 {
        return Err((
            format!("the logarithm of {low} is no number"),
            "let both bounds be above 0",
        ));
    }
    Ok(values)
}

impl Values {
    /// For a choice, from 0 to the number of its values.
    fn bounds(&self) -> (f64, f64) {
        match self {
            Self::Uniform(low, high) | Self::Log(low, high) => (*low, *high),
            Self::Int(low, high) | Self::LogInt(low, high) => (*low as f64, *high as f64),
            Self::Choice(values) => (0.0, values.len() as f64),
        }
    }
}

impl Setting {
    /// Its name in the file, after `space.`.
    pub(super) fn name(&self) -> String {
        match &self.key {
            Some(key) => format!("{}.{key}", self.option),
            None => self.option.clone(),
        }
    }

    pub(super) fn values(&self) -> &Values {
        &self.values
    }

    /// The value at a position between 0 and 1, with few digits.
    pub(super) fn at(&self, place: f64) -> Value {
        let place = place.clamp(0.0, 1.0);
        match self.values {
            Values::Uniform(low, high) => {
                let decimals = DIGITS as i32 - 1 - (high - low).log10().floor() as i32;
                let x = low + place * (high - low);
                within(low, high, &format!("{x:.*}", decimals.max(0) as usize), x)
            }
            Values::Log(low, high) => {
                let x = (low.ln() + place * (high / low).ln()).exp();
                within(low, high, &format!("{x:.*e}", DIGITS - 1), x)
            }
            // Each integer has an interval of the same length.
            Values::Int(low, high) => {
                let x = low as f64 + (place * ((high - low) as f64 + 1.0)).floor();
                (x as i64).clamp(low, high).into()
            }
            Values::LogInt(low, high) => {
                let (from, to) = ((low as f64 - 0.5).ln(), (high as f64 + 0.5).ln());
                let x = (from + place * (to - from)).exp().round();
                (x as i64).clamp(low, high).into()
            }
            Values::Choice(ref values) => {
                let at = (place * values.len() as f64) as usize;
                values[at.min(values.len() - 1)].clone()
            }
        }
    }

    /// The position of a value between 0 and 1, the middle of those that map to it; `None` if the value is not one of
    /// this setting.
    pub(super) fn place(&self, value: &Value) -> Option<f64> {
        let place = match self.values {
            Values::Uniform(low, high) => (value.as_f64()? - low) / (high - low),
            Values::Log(low, high) => (value.as_f64()? / low).ln() / (high / low).ln(),
            Values::Int(low, high) => ((value.as_i64()? - low) as f64 + 0.5) / ((high - low) as f64 + 1.0),
            Values::LogInt(low, high) => {
                let (from, to) = ((low as f64 - 0.5).ln(), (high as f64 + 0.5).ln());
                ((value.as_i64()? as f64).ln() - from) / (to - from)
            }
            Values::Choice(ref values) => {
                let at = values.iter().position(|own| own == value)?;
                (at as f64 + 0.5) / values.len() as f64
            }
        };
        (0.0..=1.0).contains(&place).then_some(place)
    }

    /// The values that are checked on the command line before the sweep starts: the bounds, or all values of a choice.
    pub(super) fn extremes(&self) -> Vec<Value> {
        match &self.values {
            Values::Choice(values) => values.clone(),
            _ => vec![self.at(0.0), self.at(1.0)],
        }
    }

    /// The words that a value adds to the command line. For an option without a value, `true` adds the option.
    pub(super) fn words(&self, value: &Value) -> Vec<String> {
        let text = match value {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        let option = format!("--{}", self.option);
        match (&self.key, value) {
            (Some(key), _) => vec![option, format!("{key}={text}")],
            (None, Value::Bool(true)) => vec![option],
            (None, Value::Bool(false)) => Vec::new(),
            (None, _) if text.starts_with('-') => vec![format!("{option}={text}")],
            (None, _) => vec![option, text],
        }
    }
}

/// The number in a text, clamped to the bounds.
fn within(low: f64, high: f64, text: &str, exact: f64) -> Value {
    text.parse().unwrap_or(exact).clamp(low, high).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(text: &str) -> Result<Vec<Setting>, (String, String, String)> {
        read(&toml::from_str(text).unwrap())
    }

    const SPACE: &str = "
        lr = { log = [1e-5, 1e-1] }
        epochs = { int = [1, 4] }
        qat = { choice = [true, false] }
        optimizer = { choice = [\"sgd\", \"adamw\"] }
        [set]
        gamma = { uniform = [0.9, 0.9999] }
        batch_size = { log_int = [16, 512] }
        \"policy.encoder.mlp.hidden\" = { choice = [[64], [64, 64]] }
    ";

    #[test]
    fn every_value_has_its_place() {
        for setting in space(SPACE).unwrap() {
            for i in 0..=1000 {
                let value = setting.at(f64::from(i) / 1000.0);
                let place = setting
                    .place(&value)
                    .unwrap_or_else(|| panic!("{value} of {setting:?}"));
                assert_eq!(setting.at(place), value, "{setting:?}");
                let error = (place - f64::from(i) / 1000.0).abs();
                let width = match setting.values {
                    Values::Uniform(..) | Values::Log(..) => 1e-3,
                    _ => 0.26,
                };
                assert!(error <= width, "{setting:?}: {value} is {error} away");
            }
        }
    }

    #[test]
    fn values_are_words_of_the_command_line() {
        let settings = space(SPACE).unwrap();
        let words = |name: &str, place: f64| {
            let setting = settings.iter().find(|setting| setting.name() == name).unwrap();
            setting.words(&setting.at(place)).join(" ")
        };
        assert_eq!(words("lr", 0.5), "--lr 0.001");
        assert_eq!(
            (words("epochs", 0.0), words("epochs", 1.0)),
            ("--epochs 1".into(), "--epochs 4".into())
        );
        assert_eq!((words("qat", 0.0), words("qat", 1.0)), ("--qat".into(), String::new()));
        assert_eq!(words("optimizer", 0.9), "--optimizer adamw");
        assert_eq!(words("set.gamma", 0.5), "--set gamma=0.94995");
        assert_eq!(words("set.batch_size", 1.0), "--set batch_size=512");
        assert_eq!(
            words("set.policy.encoder.mlp.hidden", 1.0),
            "--set policy.encoder.mlp.hidden=[64,64]"
        );
        let below = space("x = { uniform = [-2, -1] }").unwrap();
        assert_eq!(below[0].words(&below[0].at(0.0)), ["--x=-2.0"]);
    }

    #[test]
    fn nonsense_is_told_with_its_key() {
        for (text, key, what) in [
            ("lr = 3", "space.lr", "3 says no values"),
            ("lr = { log = [1e-2, 1e-5] }", "space.lr", "0.01 to 0.00001 is no range"),
            ("lr = { log = [0, 1] }", "space.lr", "the logarithm of 0 is no number"),
            ("lr = { uniform = [1, 1] }", "space.lr", "1 to 1 is no range"),
            ("lr = { uniform = [1] }", "space.lr", "does not have two bounds"),
            ("lr = { uniform = [1, \"x\"] }", "space.lr", "are no numbers"),
            ("lr = { int = [1.5, 2] }", "space.lr", "are no whole numbers"),
            ("lr = { choice = [] }", "space.lr", "nothing to choose from"),
            ("lr = { int = [1, 2], log = [1, 2] }", "space.lr", "says no values"),
            (
                "set = { gamma = { normal = [0, 1] } }",
                "space.set.gamma",
                "no values of the kind normal",
            ),
            ("set = {}", "space.set", "says no values"),
        ] {
            let (found, message, fix) = space(text).unwrap_err();
            assert!(
                found == key && message.contains(what) && !fix.is_empty(),
                "{text}: {found}: {message}"
            );
        }
    }
}
