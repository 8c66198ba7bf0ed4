//! Memory for the values of runs, kept from run to run.

use std::sync::{Mutex, PoisonError};

use polygrad_core::Backend;

use super::known::Known;
use super::value::Value;

/// What one run works in.
pub(super) struct Room<B: Backend> {
    /// By slot.
    pub(super) values: Vec<Option<Value<B>>>,
    /// By step.
    pub(super) known: Vec<Known<B>>,
}

/// Rooms that no run is using. Runs of one plan at the same time have one each.
pub(crate) struct Rooms<B: Backend>(Mutex<Vec<Room<B>>>);

impl<B: Backend> Default for Rooms<B> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<B: Backend> Rooms<B> {
    /// One that holds the constants and no other values; made if all are in use.
    pub(super) fn take(&self, slots: usize, steps: usize, constants: &[(usize, Value<B>)]) -> Room<B> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| {
            let mut values = vec![None; slots];
            for (slot, value) in constants {
                values[*slot] = Some(value.clone());
            }
            let known = std::iter::repeat_with(|| None).take(steps).collect();
            Room { values, known }
        })
    }

    /// Gives one back, with the constants in their places and no other values.
    pub(super) fn give_back(&self, room: Room<B>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(room);
    }

    /// Forgets those there are: the constants have changed.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
