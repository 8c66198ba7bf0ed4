//! Implementation of [`Module`](super::Module)'s methods, outside the trait so that it is not compiled again for each
//! type of module.

use std::collections::{BTreeMap, HashMap, HashSet};

use polygrad_tensor::{Backend, Result, Tensor};

use super::{Buffer, Item, Param, StateDict, Visit, Visitor};

pub(super) fn named_parameters<B: Backend>(module: &dyn Visit<B>) -> Vec<(String, Param<B>)> {
    let mut out: Vec<(String, Param<B>)> = Vec::new();
    let mut places = HashMap::new();
    let mut tied = BTreeMap::<usize, Vec<String>>::new();
    Visitor::walk(module, |name, item| {
        if let Item::Param(param) = item {
            match places.get(&param.id()) {
                None => {
                    param.set_name(name);
                    places.insert(param.id(), out.len());
                    out.push((name.to_owned(), param.clone()));
                }
                Some(&i) => {
                    let names = tied.entry(i).or_insert_with(|| vec![out[i].0.clone()]);
                    names.push(name.to_owned());
                }
            }
        }
    });
    for (i, names) in tied {
        out[i].1.set_names(&names);
    }
    out
}

pub(super) fn named_buffers<B: Backend>(module: &dyn Visit<B>) -> Vec<(String, Buffer<B>)> {
    let mut out = Vec::new();
    Visitor::walk(module, |name, item| {
        if let Item::Buffer(buffer) = item {
            out.push((name.to_owned(), buffer.clone()));
        }
    });
    out
}

pub(super) fn num_parameters<B: Backend>(module: &dyn Visit<B>) -> usize {
    let mut seen = HashSet::new();
    let mut count = 0;
    Visitor::walk(module, |_, item| {
        if let Item::Param(param) = item
            && seen.insert(param.id())
        {
            count += param.shape().numel();
        }
    });
    count
}

pub(super) fn set_mode<B: Backend>(module: &dyn Visit<B>, training: bool) {
    Visitor::walk(module, |_, item| {
        if let Item::Mode(mode) = item {
            mode.set_training(training);
        }
    });
}

pub(super) fn set_trainable<B: Backend>(module: &dyn Visit<B>, trainable: bool) {
    Visitor::walk(module, |_, item| {
        if let Item::Param(param) = item {
            param.set_trainable(trainable);
        }
    });
}

pub(super) fn state_dict<B: Backend>(module: &dyn Visit<B>) -> Result<StateDict> {
    let mut state = StateDict::new();
    let mut outcome = Ok(());
    Visitor::walk(module, |name, item| {
        let value: Option<Result<Tensor<B>>> = match item {
            Item::Param(param) => Some(Ok(param.tensor())),
            Item::Buffer(buffer) => Some(buffer.plain()),
            Item::Mode(_) | Item::Sync(_) | Item::Adapters(_) | Item::Module(_) | Item::Unused => None,
        };
        if let Some(value) = value.filter(|_| outcome.is_ok()) {
            match value.and_then(|value| value.to_host()) {
                Ok(host) => state.insert(name, host),
                Err(error) => outcome = Err(error.in_module(name)),
            }
        }
    });
    outcome.map(|()| state)
}
