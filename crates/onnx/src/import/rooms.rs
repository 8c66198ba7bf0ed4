//! Memory for the values of runs, kept from run to run.

use std::sync::{Mutex, PoisonError};

use polygrad_core::Backend;

use super::value::Value;

/// The values of one run, by slot.
pub(super) type Room<B> = Vec<Option<Value<B>>>;

/// Rooms that no run is using. Runs of one plan at the same time have one each.
pub(crate) struct Rooms<B: Backend>(Mutex<Vec<Room<B>>>);

impl<B: Backend> Default for Rooms<B> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<B: Backend> Rooms<B> {
    /// One that holds the constants and nothing else; made if all are in use.
    pub(super) fn take(&self, slots: usize, constants: &[(usize, Value<B>)]) -> Room<B> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| {
            let mut room = vec![None; slots];
            for (slot, value) in constants {
                room[*slot] = Some(value.clone());
            }
            room
        })
    }

    /// Gives one back, with the constants in their places and nothing else.
    pub(super) fn give_back(&self, room: Room<B>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(room);
    }

    /// Forgets those there are: the constants have changed.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
