//! Selects parts of a model by name.

use std::collections::HashSet;

use polygrad_core::{nearest, printable};
use polygrad_tensor::{Backend, Error, Result};

use super::{Item, Visit, Visitor};

/// Names of parts of a model. Each matches the paths that are equal to it or end with it after a dot; `*` matches any
/// characters.
pub(crate) struct Names<'a>(&'a [String]);

impl<'a> Names<'a> {
    pub(crate) fn new(names: &'a [String]) -> Self {
        Self(names)
    }

    /// Whether one of the names matches a path.
    pub(crate) fn fit(&self, path: &str) -> bool {
        self.0.iter().any(|name| fits(name, path))
    }

    /// Fails if a name matches none of the paths; `what` says in the error what they are the paths of.
    pub(crate) fn all_fit<'p, I: Iterator<Item = &'p str>>(&self, paths: impl Fn() -> I, what: &str) -> Result<()> {
        let Some(name) = self.0.iter().find(|name| !paths().any(|path| fits(name, path))) else {
            return Ok(());
        };
        let error = Error::invalid(format!("{} is the name of no {what}", printable(name)));
        let last = |path: &'p str| path.rsplit('.').next().unwrap_or(path);
        let near = nearest(name, paths()).or_else(|| nearest(name, paths().map(last)));
        let hint = match (near, paths().next()) {
            (Some(near), _) => format!("perhaps {}", printable(near)),
            (None, Some(first)) => {
                let last = paths().last().unwrap_or(first);
                format!(
                    "there are {}, from {} to {}",
                    paths().count(),
                    printable(first),
                    printable(last)
                )
            }
            (None, None) => "the model has none".to_owned(),
        };
        Err(error.with_hint(hint))
    }
}

/// Whether a path equals a name, or ends with it after a dot.
pub(crate) fn fits(name: &str, path: &str) -> bool {
    let ends = path.match_indices('.').map(|(at, _)| &path[at + 1..]);
    std::iter::once(path).chain(ends).any(|end| is_like(name, end))
}

/// Whether a text matches a pattern in which `*` stands for any characters.
fn is_like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Sets whether the parameters matched by these names, or in modules matched by them, are trainable; returns their
/// number.
pub(super) fn set_trainable_of<B: Backend>(module: &dyn Visit<B>, names: &[String], trainable: bool) -> Result<usize> {
    let mut params = Vec::new();
    Visitor::walk(module, |path, item| {
        if let Item::Param(param) = item {
            params.push((path.to_owned(), param.clone()));
        }
    });
    let parts = |path: &'_ str| -> Vec<String> {
        let inner = path.match_indices('.').map(|(at, _)| path[..at].to_owned());
        inner.chain([path.to_owned()]).collect()
    };
    let all: Vec<String> = params.iter().flat_map(|(path, _)| parts(path)).collect();
    let names = Names::new(names);
    names.all_fit(|| all.iter().map(String::as_str), "parameter or module with parameters")?;
    params.retain(|(path, _)| parts(path).iter().any(|part| names.fit(part)));
    let changed: HashSet<usize> = params.iter().map(|(_, param)| param.id()).collect();
    params.iter().for_each(|(_, param)| param.set_trainable(trainable));
    Ok(changed.len())
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_name_is_a_path_or_its_end() {
        for (name, path, expected) in [
            ("q_proj", "q_proj", true),
            ("q_proj", "layers.0.q_proj", true),
            ("q_proj", "layers.0.xq_proj", false),
            ("0.q_proj", "layers.0.q_proj", true),
            ("0.q_proj", "layers.10.q_proj", false),
            ("layers.*.q_proj", "model.layers.11.self_attn.q_proj", true),
            ("*_proj", "layers.0.q_proj", true),
            ("*_proj", "layers.0.q_projection", false),
            ("a*b*b", "axbb", true),
            ("a*b*b", "axb", false),
            ("*", "anything", true),
            ("layers", "layers.0.q_proj", false),
            ("", "layers", false),
        ] {
            assert_eq!(fits(name, path), expected, "{name} {path}");
        }
    }
}
