//! Memory for the values of runs, kept from run to run.

use std::sync::{Mutex, PoisonError};

use super::memo::Memo;
use super::value::Value;

/// The values of one run.
pub(super) struct Workspace {
    /// By slot.
    pub(super) values: Vec<Option<Value>>,
    /// The bytes of this run's values, by slot.
    pub(super) bytes: Vec<usize>,
    /// By step.
    pub(super) memos: Vec<Memo>,
}

/// The workspaces that no run is using. Runs of one plan at the same time have one each.
pub(crate) struct WorkspacePool(Mutex<Vec<Workspace>>);

impl Default for WorkspacePool {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl WorkspacePool {
    /// A workspace with only the constants; created if all are in use.
    pub(super) fn take(&self, slots: usize, steps: usize, constants: &[(usize, Value)]) -> Workspace {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| {
            let mut values = vec![None; slots];
            for (slot, value) in constants {
                values[*slot] = Some(value.clone());
            }
            let memos = std::iter::repeat_with(|| None).take(steps).collect();
            Workspace {
                values,
                bytes: vec![0; slots],
                memos,
            }
        })
    }

    /// Returns a workspace that has only the constants.
    pub(super) fn give_back(&self, workspace: Workspace) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(workspace);
    }

    /// Drops all workspaces, since the constants have changed.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
