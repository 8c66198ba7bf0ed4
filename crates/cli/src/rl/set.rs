//! Settings of an algorithm, one by one: from a TOML file, and from `--set`.

use std::path::Path;

use polygrad::rl::zoo::{Algorithm, Preset};
use serde_json::{Map, Value, json};

use crate::failure::{Failure, Result, Shown};

/// Changes a preset, first by a file, then by texts `key=value`.
///
/// # Errors
/// A file that cannot be read; an unknown setting, or an invalid value.
pub(super) fn apply(preset: &mut Preset, file: Option<&Path>, texts: &[String]) -> Result<()> {
    let mut given = Vec::new();
    if let Some(file) = file {
        given.extend(read(file)?);
    }
    for text in texts {
        given.push(pair("--set", "gamma=0.98", text)?);
    }
    for (key, value) in given {
        let mut all = settings(preset)?;
        put(&mut all, &key, "", value)?;
        *preset = changed(preset, all).map_err(|why| {
            Failure::new(format!("{key} cannot be set: {why}")).fix("write values as in JSON, such as gamma=0.98")
        })?;
    }
    Ok(())
}

/// Parses the text `key=value` of an option.
///
/// # Errors
/// A text without a value.
pub(super) fn pair(option: &str, example: &str, text: &str) -> Result<(String, Value)> {
    let (key, value) = text.split_once('=').ok_or_else(|| {
        Failure::new(format!("{option} {text} says no value"))
            .fix(format!("write KEY=VALUE, such as {option} {example}"))
    })?;
    // A value that is no JSON is a word.
    let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Ok((key.to_owned(), value))
}

/// The top-level settings of a file.
fn read(file: &Path) -> Result<Vec<(String, Value)>> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::new(format!("cannot read {}: {error}", file.shown())).fix("name a TOML file that is there")
    })?;
    let table: Map<String, Value> = toml::from_str(&text).map_err(|error| {
        Failure::new(format!("{} is no TOML file: {}", file.shown(), error.message()))
            .fix("write lines such as gamma = 0.98")
    })?;
    Ok(table.into_iter().collect())
}

/// All settings: the algorithm's, and beside them `envs`, `policy` and `self_play`.
fn settings(preset: &Preset) -> Result<Value> {
    let fail = |error| Failure::new(format!("cannot write settings: {error}"));
    let mut all = serde_json::to_value(&preset.algorithm).map_err(fail)?[preset.algorithm.name()].take();
    all["envs"] = preset.num_envs.into();
    all["policy"] = serde_json::to_value(&preset.policy).map_err(fail)?;
    // What config.json leaves out can be set, too.
    if let Some(policy) = all["policy"].as_object_mut() {
        policy.entry("memory").or_insert(Value::Null);
        policy.entry("ortho_init").or_insert(true.into());
    }
    all["self_play"] = serde_json::to_value(&preset.self_play).map_err(fail)?;
    Ok(all)
}

/// The inverse of [`settings`].
fn changed(preset: &Preset, mut all: Value) -> serde_json::Result<Preset> {
    let mut take = |key: &str| all.as_object_mut().and_then(|all| all.remove(key)).unwrap_or_default();
    let (envs, policy, self_play) = (take("envs"), take("policy"), take("self_play"));
    let algorithm: Algorithm = serde_json::from_value(json!({ preset.algorithm.name(): all }))?;
    Ok(Preset {
        name: preset.name,
        num_envs: serde_json::from_value(envs)?,
        policy: serde_json::from_value(policy)?,
        self_play: serde_json::from_value(self_play)?,
        algorithm,
    })
}

/// Sets the value of a key, whose parts are separated by dots. A table is merged entry by entry. `above` is the path of
/// `all`.
fn put(all: &mut Value, key: &str, above: &str, value: Value) -> Result<()> {
    let (first, rest) = key
        .split_once('.')
        .map_or((key, None), |(first, rest)| (first, Some(rest)));
    let path = if above.is_empty() {
        first.to_owned()
    } else {
        format!("{above}.{first}")
    };
    let Some(fields) = all.as_object_mut() else {
        return Err(Failure::new(format!("{above} is {all}, and has no setting {first}"))
            .fix(format!("set {above} as a whole, as JSON")));
    };
    let names: Vec<&str> = fields.keys().map(String::as_str).collect();
    let known = names.join(", ");
    let Some(old) = fields.get_mut(first) else {
        return Err(Failure::new(format!("there is no setting {path}")).fix(format!("there are: {known}")));
    };
    match (rest, value) {
        (Some(rest), value) => put(old, rest, &path, value),
        // A different variant of an enum.
        (None, Value::Object(other)) if is_other_variant(old, &other) => {
            *old = Value::Object(other);
            Ok(())
        }
        (None, Value::Object(entries)) if old.is_object() => entries
            .into_iter()
            .try_for_each(|(key, value)| put(old, &key, &path, value)),
        (None, value) => {
            *old = value;
            Ok(())
        }
    }
}

/// Whether both have one entry with different names, as variants of an enum with fields.
fn is_other_variant(old: &Value, new: &Map<String, Value>) -> bool {
    let old = old.as_object().filter(|old| old.len() == 1 && new.len() == 1);
    old.is_some_and(|old| new.keys().all(|name| !old.contains_key(name)))
}

#[cfg(test)]
mod tests {
    use polygrad::rl::{Annealed, MemoryConfig, MemoryKind, PriorityConfig};

    use super::*;

    fn preset() -> Preset {
        polygrad::rl::zoo::find("cartpole")
            .unwrap()
            .preset(Some("dqn"), Some("cleanrl"))
            .unwrap()
    }

    fn set(texts: &[&str]) -> Result<Preset> {
        let mut preset = preset();
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        apply(&mut preset, None, &texts).map(|()| preset)
    }

    #[test]
    fn every_setting_can_be_set_to_what_it_is() {
        for preset in polygrad::rl::zoo::all().iter().flat_map(|spec| spec.presets()) {
            let all = settings(&preset).unwrap();
            let fields = all.as_object().unwrap();
            assert!(fields.len() > 12);
            for (key, value) in fields {
                let mut same = preset.clone();
                apply(&mut same, None, &[format!("{key}={value}")]).unwrap();
                assert_eq!(same, preset, "{key}");
            }
        }
    }

    #[test]
    fn numbers_words_and_tables_are_set() {
        let Algorithm::Dqn(config) = set(&[
            "gamma=0.98",
            "learning_rate=[1e-3,0]",
            "epsilon=0.2",
            "prioritized={\"alpha\":0.5}",
            "prioritized.beta=0.7",
        ])
        .unwrap()
        .algorithm
        else {
            panic!("another algorithm");
        };
        assert_eq!(config.gamma, 0.98);
        assert_eq!(config.learning_rate, Annealed::Linear(1e-3, 0.0));
        assert_eq!(config.epsilon, Annealed::Constant(0.2));
        assert_eq!(config.prioritized, Some(PriorityConfig { alpha: 0.5, beta: 0.7 }));
        let preset = set(&[
            "envs=3",
            "policy.encoder.mlp.activation=tanh",
            "policy.ortho_init=false",
        ])
        .unwrap();
        assert_eq!((preset.num_envs, preset.policy.ortho_init), (3, false));
        let memory = set(&["policy.memory={\"kind\":\"gru\",\"hidden_size\":7}"])
            .unwrap()
            .policy
            .memory;
        assert_eq!(memory, Some(MemoryConfig::new(MemoryKind::Gru, 7)));
        assert!(serde_json::to_string(&preset.policy).unwrap().contains("\"tanh\""));
    }

    #[test]
    fn a_file_is_read_before_single_settings() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("own.toml");
        std::fs::write(&file, "gamma = 0.9\nn_step = 3\n[policy.encoder.mlp]\nhidden = [7]\n").unwrap();
        let mut preset = preset();
        apply(&mut preset, Some(&file), &["gamma=0.8".to_owned()]).unwrap();
        let Algorithm::Dqn(config) = &preset.algorithm else {
            panic!("another algorithm");
        };
        assert_eq!((config.gamma, config.n_step), (0.8, 3));
        assert!(serde_json::to_string(&preset.policy).unwrap().contains("[7]"));
        std::fs::write(&file, "gamma 0.9").unwrap();
        let error = apply(&mut preset, Some(&file), &[]).unwrap_err().to_string();
        assert!(error.contains("own.toml is no TOML file: "), "{error}");
        assert!(apply(&mut preset, Some(&folder.path().join("none.toml")), &[]).is_err());
    }

    #[test]
    fn what_cannot_be_set_is_told() {
        for (text, parts) in [
            ("gama=0.9", ["there is no setting gama", "there are: batch_size, "]),
            (
                "policy.hidden=3",
                [
                    "there is no setting policy.hidden",
                    "there are: action, encoder, memory, ",
                ],
            ),
            (
                "prioritized.alpha=0.5",
                ["prioritized is null, and has no setting alpha", "as a whole"],
            ),
            ("gamma", ["--set gamma says no value", "KEY=VALUE"]),
            (
                "gamma=much",
                ["gamma cannot be set: invalid type: string \"much\"", "expected f64"],
            ),
            ("epsilon=[1]", ["epsilon cannot be set: ", "a number, or [from, to]"]),
            ("batch_size=-1", ["batch_size cannot be set: ", "expected usize"]),
        ] {
            let error = format!("{:?}", set(&[text]).unwrap_err());
            assert!(
                parts
                    .iter()
                    .all(|part| error.contains(part) || error.replace('\\', "").contains(part)),
                "{error}"
            );
        }
    }
}
