//! Tensors by dotted name, from the objects of a pickle.

use std::collections::{HashMap, HashSet};

use polygrad_core::printable;
use polygrad_tensor::{Error, Result};

use crate::file::Skipped;
use crate::pickle::{Heap, Id, Object, Value, refused};
use crate::source::damaged;

/// The name given to the tensor of a file with a single unnamed tensor.
pub(crate) const UNNAMED: &str = "tensor";

/// The deepest nesting of containers.
const MAX_DEPTH: usize = 64;
/// The most values visited; a container may occur in many places.
const MAX_VISITS: usize = 1 << 20;
/// The most bytes of all names together.
const MAX_NAMES: usize = 1 << 26;

/// The tensors in a pickle's result, and everything skipped.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Names with the objects of their tensors.
    pub(super) tensors: Vec<(String, Id)>,
    pub(super) skipped: Vec<Skipped>,
}

impl Tree {
    /// Objects that only a refused global could create are left out.
    ///
    /// # Errors
    /// When names collide, limits are exceeded, or all tensors are left out.
    pub(super) fn new(heap: &Heap, root: Value, attributes: &[Value]) -> Result<Self> {
        let mut walk = Walk {
            heap,
            holding: holding(heap),
            names: HashSet::new(),
            visits: 0,
            bytes: 0,
            tree: Self::default(),
            left_out: None,
        };
        if attributes.iter().any(|&value| walk.holds(value)) {
            walk.leave_out("", Error::unsupported("it has tensors that are attributes of a dict"));
        }
        walk.visit(root, "", 0)?;
        let (tree, left_out) = (walk.tree, walk.left_out);
        match (tree.tensors.is_empty(), left_out, first_refused(heap)) {
            (true, Some(error), _) => Err(error),
            (true, None, Some(global)) => Err(refused(
                global,
                "its pickle has it, and no tensor that is reached without it",
            )
            .with_hint("in PyTorch, save the state dict alone: torch.save(model.state_dict(), path)")),
            _ => Ok(tree),
        }
    }
}

/// The first global whose object was not created.
fn first_refused(heap: &Heap) -> Option<&str> {
    let foreign = |id: &Id| matches!(heap.object(*id), Some(Object::Foreign { .. }));
    let id = (0..heap.len() as Id).find(foreign)?;
    heap.global(Value::Object(id))
}

/// For each object, whether it contains tensors or storages at any depth.
fn holding(heap: &Heap) -> Vec<bool> {
    let mut holding = vec![false; heap.len()];
    let mut parents: Vec<(Id, Id)> = Vec::new();
    let mut found: Vec<Id> = Vec::new();
    for id in 0..heap.len() as Id {
        let mut part = |value: &Value| {
            if let Value::Object(part) = *value {
                parents.push((part, id));
            }
        };
        match heap.object(id) {
            Some(Object::Tensor(_) | Object::Storage(_) | Object::Foreign { why: Some(_), .. }) => found.push(id),
            Some(Object::List(values) | Object::Tuple(values) | Object::Foreign { parts: values, .. }) => {
                values.iter().for_each(part);
            }
            Some(Object::Dict(entries)) => entries.iter().for_each(|(key, value)| {
                part(key);
                part(value);
            }),
            _ => {}
        }
    }
    parents.sort_unstable();
    found.iter().for_each(|&id| holding[id as usize] = true);
    while let Some(id) = found.pop() {
        let from = parents.partition_point(|&(part, _)| part < id);
        for &(_, parent) in parents[from..].iter().take_while(|&&(part, _)| part == id) {
            if !std::mem::replace(&mut holding[parent as usize], true) {
                found.push(parent);
            }
        }
    }
    holding
}

struct Walk<'a> {
    heap: &'a Heap,
    holding: Vec<bool>,
    names: HashSet<String>,
    visits: usize,
    bytes: usize,
    tree: Tree,
    /// Why the first tensor was left out.
    left_out: Option<Error>,
}

impl Walk<'_> {
    fn holds(&self, value: Value) -> bool {
        matches!(value, Value::Object(id) if self.holding.get(id as usize).is_some_and(|&holds| holds))
    }

    fn visit(&mut self, value: Value, name: &str, depth: usize) -> Result<()> {
        self.visits += 1;
        self.bytes += name.len();
        if self.visits > MAX_VISITS || self.bytes > MAX_NAMES {
            return Err(damaged(format!(
                "it has more than {MAX_VISITS} values, or names of more than {MAX_NAMES} bytes"
            )));
        }
        if depth > MAX_DEPTH {
            return Err(damaged(format!(
                "its containers stand in each other more than {MAX_DEPTH} deep"
            )));
        }
        if !self.holds(value) {
            self.skip(value, name);
            return Ok(());
        }
        let heap = self.heap;
        let below = |key: &str| match name {
            "" => key.to_owned(),
            _ => format!("{name}.{key}"),
        };
        match (heap.get(value), value) {
            (Some(Object::Tensor(_)), Value::Object(id)) => {
                let name = if name.is_empty() { UNNAMED } else { name };
                if !self.names.insert(name.to_owned()) {
                    return Err(damaged(format!("two of its tensors are called {}", printable(name))));
                }
                self.tree.tensors.push((name.to_owned(), id));
            }
            (Some(Object::List(values) | Object::Tuple(values)), _) => {
                for (i, &value) in values.iter().enumerate() {
                    self.visit(value, &below(&i.to_string()), depth + 1)?;
                }
            }
            (Some(Object::Dict(entries)), _) => {
                for (key, value) in self.items(entries, name)? {
                    self.visit(value, &below(&key), depth + 1)?;
                }
            }
            (Some(Object::Foreign { why: Some(why), .. }), _) => {
                let name = if name.is_empty() { UNNAMED } else { name };
                self.leave_out(name, Error::unsupported(format!("tensor {}: {why}", printable(name))));
            }
            (Some(Object::Foreign { .. }), _) => {
                let global = heap.global(value).unwrap_or_default();
                let place = if name.is_empty() {
                    "the whole file".to_owned()
                } else {
                    printable(name).into_owned()
                };
                let error = refused(global, &format!("it would make {place}, in which tensors are"))
                    .with_hint("in PyTorch, save the state dict alone: torch.save(model.state_dict(), path)");
                self.leave_out(name, error);
            }
            _ => self.skip(value, name),
        }
        Ok(())
    }

    /// The items of a dict by the text of their keys. For a repeated key, the last value is at the place of the first.
    fn items(&mut self, entries: &[(Value, Value)], name: &str) -> Result<Vec<(String, Value)>> {
        // A dict that occurs in many places is traversed each time.
        self.visits += entries.len();
        let mut items: Vec<(String, Value)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for &(key, value) in entries {
            let text = match (self.heap.text(key), key) {
                (Some(text), _) => text.to_owned(),
                (None, Value::Int(number)) => number.to_string(),
                _ if self.holds(value) => {
                    let what = format!("{} has a tensor under a key that is no text", printable(name));
                    self.leave_out(name, Error::unsupported(what));
                    continue;
                }
                _ => self.heap.describe(key),
            };
            self.bytes += text.len();
            match places.get(&text) {
                Some(&place) => items[place].1 = value,
                None => {
                    places.insert(text.clone(), items.len());
                    items.push((text, value));
                }
            }
        }
        Ok(items)
    }

    fn leave_out(&mut self, name: &str, why: Error) {
        self.tree.skipped.push(Skipped::tensor(name, &why));
        let whole = why.with_hint("save a state dict of ordinary tensors with torch.save");
        self.left_out.get_or_insert(whole);
    }

    fn skip(&mut self, value: Value, name: &str) {
        let refused = self.refused_in(value);
        let what = match (refused, self.heap.describe(value)) {
            (Some(global), what) if !what.starts_with("refuses ") => {
                format!("{what}; refuses {}", printable(global))
            }
            (_, what) => what,
        };
        self.tree.skipped.push(Skipped {
            name: name.to_owned(),
            what,
            holds_tensors: false,
        });
    }

    /// The first refused global among the direct parts of a skipped container.
    fn refused_in(&self, value: Value) -> Option<&str> {
        let foreign = |value: &Value| matches!(self.heap.get(*value), Some(Object::Foreign { .. } | Object::Global(_)));
        let part = match self.heap.get(value)? {
            Object::List(values) | Object::Tuple(values) => values.iter().copied().find(|value| foreign(value)),
            Object::Dict(entries) => entries.iter().map(|&(_, value)| value).find(|value| foreign(value)),
            _ => None,
        };
        self.heap.global(part?)
    }
}
