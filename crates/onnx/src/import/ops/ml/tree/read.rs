//! Reads the trees of a node from its attributes.

use std::collections::{HashMap, HashSet};

use polygrad_core::{DType, Error, Result};

use super::super::scores::Transform;
use super::{Aggregate, Branch, Forest, Mode, Next};
use crate::graph::malformed;
use crate::import::call::Call;

/// Real numbers of an attribute: a list or a tensor.
fn reals(c: &Call<'_>, name: &str) -> Result<Vec<f64>> {
    if let Some(literal) = c.literal(&format!("{name}_as_tensor"))? {
        return literal.host().try_to_f64_vec();
    }
    let list = c.float_list(name)?.unwrap_or(&[]);
    Ok(list.iter().map(|&value| f64::from(value)).collect())
}

/// The numbers of a required tensor.
fn tensor(c: &Call<'_>, name: &str) -> Result<Vec<f64>> {
    match c.literal(name)? {
        Some(literal) => literal.host().try_to_f64_vec(),
        None => Err(malformed(format!("{name} is missing"))),
    }
}

fn ints<'c>(c: &'c Call<'_>, name: &str) -> Result<&'c [i64]> {
    Ok(c.int_list(name)?.unwrap_or(&[]))
}

fn same_length(lists: &[(&str, usize)]) -> Result<()> {
    match lists.iter().find(|(_, count)| *count != lists[0].1) {
        None => Ok(()),
        Some((name, count)) => Err(malformed(format!(
            "{} has {} numbers, and {name} has {count}",
            lists[0].0, lists[0].1
        ))),
    }
}

/// Targets with their weights, by tree and node of a leaf.
type Weights = HashMap<(i64, i64), Vec<(usize, f64)>>;

/// Weights of leaves for targets, from four attributes with a common prefix.
fn weights(c: &Call<'_>, start: &str, targets: usize) -> Result<Weights> {
    let name = |end: &str| format!("{start}_{end}");
    let (trees, nodes) = (ints(c, &name("treeids"))?, ints(c, &name("nodeids"))?);
    let (ids, values) = (ints(c, &name("ids"))?, reals(c, &name("weights"))?);
    same_length(&[
        ("weights", values.len()),
        ("treeids", trees.len()),
        ("nodeids", nodes.len()),
        ("ids", ids.len()),
    ])?;
    let mut found = Weights::new();
    for i in 0..values.len() {
        let target = usize::try_from(ids[i]).ok().filter(|&target| target < targets);
        let target = target.ok_or_else(|| malformed(format!("a leaf speaks for target {} of {targets}", ids[i])))?;
        found.entry((trees[i], nodes[i])).or_default().push((target, values[i]));
    }
    Ok(found)
}

impl Forest {
    pub(super) fn regressor(c: &Call<'_>) -> Result<Self> {
        let aggregate = match c.text("aggregate_function", "SUM")? {
            "SUM" => Aggregate::Sum,
            "AVERAGE" => Aggregate::Average,
            "MIN" => Aggregate::Min,
            "MAX" => Aggregate::Max,
            other => return Err(malformed(format!("there is no aggregate_function {other:?}"))),
        };
        Self::by_node_ids(c, "target", c.count("n_targets", 1)?, aggregate)
    }

    pub(super) fn classifier(c: &Call<'_>) -> Result<Self> {
        let texts = c.texts("classlabels_strings")?.map_or(0, <[String]>::len);
        let count = texts.max(ints(c, "classlabels_int64s")?.len());
        let mut forest = Self::by_node_ids(c, "class", count, Aggregate::Sum)?;
        let classes: HashSet<i64> = ints(c, "class_ids")?.iter().copied().collect();
        if count == 2 && classes.len() == 1 {
            let mut weights = forest.weights.iter();
            let class = forest.weights.first().map_or(0, |&(class, _)| class as usize);
            forest.binary = Some((class, weights.all(|&(_, weight)| weight >= 0.0)));
        }
        Ok(forest)
    }

    /// Trees whose nodes are identified by ids.
    fn by_node_ids(c: &Call<'_>, start: &str, targets: usize, aggregate: Aggregate) -> Result<Self> {
        let (trees, ids) = (ints(c, "nodes_treeids")?, ints(c, "nodes_nodeids")?);
        let modes = c.texts("nodes_modes")?.unwrap_or(&[]);
        let features = ints(c, "nodes_featureids")?;
        let (yes, no) = (ints(c, "nodes_truenodeids")?, ints(c, "nodes_falsenodeids")?);
        let (values, missing) = (reals(c, "nodes_values")?, ints(c, "nodes_missing_value_tracks_true")?);
        same_length(&[
            ("nodes_nodeids", ids.len()),
            ("nodes_treeids", trees.len()),
            ("nodes_modes", modes.len()),
            ("nodes_featureids", features.len()),
            ("nodes_truenodeids", yes.len()),
            ("nodes_falsenodeids", no.len()),
            ("nodes_values", values.len()),
        ])?;
        let mut weights = weights(c, start, targets)?;
        let mut forest = Self::empty(targets, aggregate, Transform::read(c)?);
        // Branches and leaves are numbered separately.
        let mut places = HashMap::with_capacity(ids.len());
        for i in 0..ids.len() {
            let place = if modes[i] == "LEAF" {
                let mut weights = weights.remove(&(trees[i], ids[i])).unwrap_or_default();
                // If there is one target, ONNX Runtime reads the first weight of a leaf; scikit-learn's converter
                // relies on that for the numbers of leaves.
                weights.truncate(if targets == 1 { 1 } else { weights.len() });
                forest.add_leaf(weights)
            } else {
                forest.branches.push(Branch {
                    feature: feature(features[i])?,
                    mode: mode(&modes[i])?,
                    value: values[i],
                    missing: missing.get(i).is_some_and(|&flag| flag != 0),
                    yes: Next::Leaf(0),
                    no: Next::Leaf(0),
                });
                Next::Branch(forest.branches.len() as u32 - 1)
            };
            if places.insert((trees[i], ids[i]), place).is_some() {
                return Err(malformed(format!(
                    "node {} of tree {} is given twice",
                    ids[i], trees[i]
                )));
            }
        }
        let mut reached = HashSet::new();
        for i in 0..ids.len() {
            let Some(&Next::Branch(at)) = places.get(&(trees[i], ids[i])) else {
                continue;
            };
            let mut find = |id: i64| {
                let next = places.get(&(trees[i], id)).copied();
                let next = next.ok_or_else(|| malformed(format!("tree {} has no node {id}", trees[i])))?;
                reached.insert((trees[i], id));
                Ok::<_, Error>(next)
            };
            let branch = &mut forest.branches[at as usize];
            (branch.yes, branch.no) = (find(yes[i])?, find(no[i])?);
        }
        let root = |i: &usize| !reached.contains(&(trees[*i], ids[*i]));
        forest.roots = (0..ids.len())
            .filter(root)
            .map(|i| places[&(trees[i], ids[i])])
            .collect();
        forest.base = reals(c, "base_values")?;
        let values = c.literal("nodes_values_as_tensor")?;
        forest.narrow = values.is_none_or(|values| values.host().dtype() != DType::F64);
        forest.checked()
    }

    fn empty(targets: usize, aggregate: Aggregate, transform: Transform) -> Self {
        Self {
            branches: Vec::new(),
            leaves: Vec::new(),
            weights: Vec::new(),
            features: 0,
            sets: Vec::new(),
            roots: Vec::new(),
            targets,
            aggregate,
            base: Vec::new(),
            transform,
            binary: None,
            narrow: true,
        }
    }

    fn add_leaf(&mut self, weights: Vec<(usize, f64)>) -> Next {
        let start = self.weights.len() as u32;
        let narrow = weights.into_iter().map(|(target, weight)| (target as u32, weight));
        self.weights.extend(narrow);
        self.leaves.push((start, self.weights.len() as u32));
        Next::Leaf(self.leaves.len() as u32 - 1)
    }

    /// Fails unless every walk ends and the base values fit.
    fn checked(mut self) -> Result<Self> {
        let features = self.branches.iter().map(|branch| branch.feature as usize + 1);
        self.features = features.max().unwrap_or(0);
        if ![0, 1, self.targets].contains(&self.base.len()) {
            return Err(malformed(format!(
                "{} base values for {} targets",
                self.base.len(),
                self.targets
            )));
        }
        if self.roots.is_empty() || self.targets == 0 {
            return Err(malformed("there is no tree, or no target"));
        }
        match self.ends() {
            true => Ok(self),
            false => Err(malformed("branches of a tree go in a circle")),
        }
    }

    /// Whether every walk ends. Several branches may lead to the same one, as LightGBM's converter writes categories.
    fn ends(&self) -> bool {
        let after = |i: usize| [self.branches[i].yes, self.branches[i].no];
        let branch = |next: Next| match next {
            Next::Leaf(_) => None,
            Next::Branch(i) => Some(i as usize),
        };
        let mut parents = vec![0u32; self.branches.len()];
        for i in (0..self.branches.len()).flat_map(after).filter_map(branch) {
            parents[i] += 1;
        }
        // A branch is passed after all of its parents, which never happens in a circle.
        let mut open: Vec<usize> = (0..parents.len()).filter(|&i| parents[i] == 0).collect();
        let mut passed = 0;
        while let Some(i) = open.pop() {
            passed += 1;
            for next in after(i).into_iter().filter_map(branch) {
                parents[next] -= 1;
                if parents[next] == 0 {
                    open.push(next);
                }
            }
        }
        passed == parents.len()
    }

    /// The trees of TreeEnsemble, whose branches and leaves are identified by index.
    pub(super) fn ensemble(c: &Call<'_>) -> Result<Self> {
        let aggregate = match c.int("aggregate_function", 1)? {
            0 => Aggregate::Average,
            1 => Aggregate::Sum,
            2 => Aggregate::Min,
            3 => Aggregate::Max,
            other => return Err(malformed(format!("there is no aggregate_function {other}"))),
        };
        let transform = Transform::numbered(c.int("post_transform", 0)?)?;
        let targets = c.count("n_targets", 1)?;
        let mut forest = Self::empty(targets, aggregate, transform);
        forest.sets = sets(c)?;
        let weights = c.literal("leaf_weights")?;
        forest.narrow = weights.is_none_or(|weights| weights.host().dtype() != DType::F64);
        let weights = tensor(c, "leaf_weights")?;
        let ids = ints(c, "leaf_targetids")?;
        same_length(&[("leaf_weights", weights.len()), ("leaf_targetids", ids.len())])?;
        for (&id, &weight) in ids.iter().zip(&weights) {
            let target = usize::try_from(id).ok().filter(|&target| target < targets);
            let target = target.ok_or_else(|| malformed(format!("a leaf speaks for target {id} of {targets}")))?;
            forest.add_leaf(vec![(target, weight)]);
        }
        forest.branches = branches(c, forest.leaves.len(), forest.sets.len())?;
        let count = forest.branches.len();
        let root = |&root: &i64| place(root, count).map(Next::Branch);
        forest.roots = ints(c, "tree_roots")?.iter().map(root).collect::<Result<_>>()?;
        forest.checked()
    }
}

fn mode(name: &str) -> Result<Mode> {
    Ok(match name {
        "BRANCH_LEQ" => Mode::Leq,
        "BRANCH_LT" => Mode::Lt,
        "BRANCH_GTE" => Mode::Gte,
        "BRANCH_GT" => Mode::Gt,
        "BRANCH_EQ" => Mode::Eq,
        "BRANCH_NEQ" => Mode::Neq,
        other => return Err(malformed(format!("nodes have no mode {other:?}"))),
    })
}

fn feature(number: i64) -> Result<u32> {
    u32::try_from(number).map_err(|_| malformed(format!("there is no feature {number}")))
}

fn place(number: i64, count: usize) -> Result<u32> {
    let found = u32::try_from(number).ok().filter(|&place| (place as usize) < count);
    found.ok_or_else(|| malformed(format!("there is no node {number} of {count}")))
}

/// Sets of members; in the attribute each ends with a NaN.
fn sets(c: &Call<'_>) -> Result<Vec<Vec<f64>>> {
    let Some(literal) = c.literal("membership_values")? else {
        return Ok(Vec::new());
    };
    let values = literal.host().try_to_f64_vec()?;
    let values = match values.split_last() {
        Some((last, rest)) if last.is_nan() => rest,
        _ => &values,
    };
    Ok(values.split(|value| value.is_nan()).map(<[f64]>::to_vec).collect())
}

fn branches(c: &Call<'_>, leaves: usize, sets: usize) -> Result<Vec<Branch>> {
    let (modes, splits) = (tensor(c, "nodes_modes")?, tensor(c, "nodes_splits")?);
    let features = ints(c, "nodes_featureids")?;
    let (yes, no) = (ints(c, "nodes_truenodeids")?, ints(c, "nodes_falsenodeids")?);
    let (yes_leaf, no_leaf) = (ints(c, "nodes_trueleafs")?, ints(c, "nodes_falseleafs")?);
    let missing = ints(c, "nodes_missing_value_tracks_true")?;
    same_length(&[
        ("nodes_modes", modes.len()),
        ("nodes_splits", splits.len()),
        ("nodes_featureids", features.len()),
        ("nodes_truenodeids", yes.len()),
        ("nodes_falsenodeids", no.len()),
        ("nodes_trueleafs", yes_leaf.len()),
        ("nodes_falseleafs", no_leaf.len()),
    ])?;
    let next = |id: i64, leaf: i64| match leaf {
        0 => place(id, modes.len()).map(Next::Branch),
        _ => place(id, leaves).map(Next::Leaf),
    };
    let mut members = 0;
    (0..modes.len())
        .map(|i| {
            let mode = match modes[i] as i64 {
                0 => Mode::Leq,
                1 => Mode::Lt,
                2 => Mode::Gte,
                3 => Mode::Gt,
                4 => Mode::Eq,
                5 => Mode::Neq,
                6 if members < sets => {
                    members += 1;
                    Mode::Member(members as u32 - 1)
                }
                6 => {
                    return Err(malformed(
                        "membership_values has fewer sets than there are nodes for them",
                    ));
                }
                other => return Err(malformed(format!("nodes have no mode {other}"))),
            };
            Ok(Branch {
                feature: feature(features[i])?,
                mode,
                value: splits[i],
                missing: missing.get(i).is_some_and(|&flag| flag != 0),
                yes: next(yes[i], yes_leaf[i])?,
                no: next(no[i], no_leaf[i])?,
            })
        })
        .collect()
}
