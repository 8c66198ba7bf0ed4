//! Which memory each call uses: calls on several threads run at the same time, as long as none writes memory that
//! another one uses.

use std::cell::RefCell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use polygrad_core::compute::DevicePtr;
use polygrad_core::{Error, Result};

use super::memory::Table;
use crate::buffers::Buffer;

/// A driver's allocations and their current uses.
#[derive(Debug, Default)]
pub(super) struct Memory {
    table: Mutex<Table>,
    /// Held by the call that is looking up its operands. It may wait for memory while it holds claims of its own, since
    /// the calls that it waits for already have all of theirs.
    turn: Mutex<()>,
    /// Notified when calls release their memory.
    released: Condvar,
}

/// What a call does with an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// An allocation in use, by its address.
#[derive(Debug)]
pub(super) struct Use {
    at: usize,
    readers: usize,
    written: bool,
}

impl Memory {
    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call.
    pub(super) fn begin(&self) -> Claims<'_> {
        Claims {
            memory: self,
            search: RefCell::default(),
        }
    }
}

/// The memory that a call has looked up and uses: no other call writes it meanwhile, and no other call uses what this
/// one writes.
pub(super) struct Claims<'a> {
    memory: &'a Memory,
    search: RefCell<Search<'a>>,
}

#[derive(Default)]
struct Search<'a> {
    /// Set while the look-up goes on.
    guards: Option<(MutexGuard<'a, ()>, MutexGuard<'a, Table>)>,
    is_over: bool,
    held: Vec<(usize, Access)>,
}

impl Claims<'_> {
    /// The allocation that contains `bytes` bytes at `ptr`, and their offset in it. Waits until this access is allowed.
    pub(super) fn find(&self, ptr: DevicePtr, bytes: usize, access: Access) -> Result<(Buffer, usize)> {
        let mut search = self.search.borrow_mut();
        if search.is_over {
            // A later look-up could deadlock: it might wait for a call that waits for this one.
            return Err(Error::invalid("a call looks for memory after it began to compute"));
        }
        let (turn, mut table) = match search.guards.take() {
            Some(guards) => guards,
            None => {
                let turn = self.memory.turn.lock().unwrap_or_else(PoisonError::into_inner);
                (turn, self.memory.table())
            }
        };
        let found = table.find(ptr, bytes).map(|(buffer, at)| (buffer.clone(), at));
        if let Ok((buffer, _)) = &found {
            let at = buffer.as_ptr().addr();
            let own = search.held.iter().position(|(held, _)| *held == at);
            match own.map(|i| (i, search.held[i].1)) {
                Some((_, held)) if held == access || held == Access::Write => {}
                own => {
                    // A call's own reading does not keep it from writing.
                    let own_readers = usize::from(own.is_some());
                    while !table.uses.is_free(at, access, own_readers) {
                        table.uses.is_waited_for = true;
                        let waited = self.memory.released.wait(table);
                        table = waited.unwrap_or_else(PoisonError::into_inner);
                    }
                    table.uses.enter(at, access);
                    match own {
                        Some((i, _)) => {
                            table.uses.leave(at, Access::Read);
                            search.held[i].1 = Access::Write;
                        }
                        None => search.held.push((at, access)),
                    }
                }
            }
        }
        search.guards = Some((turn, table));
        found
    }

    /// Ends the look-up: other calls may look up their operands while this one computes.
    pub(super) fn found(&self) {
        let mut search = self.search.borrow_mut();
        search.is_over = true;
        search.guards = None;
    }
}

impl Drop for Claims<'_> {
    fn drop(&mut self) {
        let search = self.search.get_mut();
        let table = search.guards.take().map(|(_, table)| table);
        if search.held.is_empty() {
            return;
        }
        let mut table = table.unwrap_or_else(|| self.memory.table());
        for (at, access) in search.held.drain(..) {
            table.uses.leave(at, access);
        }
        // Only if a call waits, since a notification costs a system call even without waiters.
        if std::mem::take(&mut table.uses.is_waited_for) {
            self.memory.released.notify_all();
        }
    }
}

/// The uses of all allocations: a list, since few are in use at a time.
#[derive(Debug, Default)]
pub(super) struct Uses {
    list: Vec<Use>,
    is_waited_for: bool,
}

impl Uses {
    fn of(&self, at: usize) -> Option<&Use> {
        self.list.iter().find(|used| used.at == at)
    }

    /// Whether the access is allowed beside the caller's `own` readers.
    pub(super) fn is_free(&self, at: usize, access: Access, own: usize) -> bool {
        self.of(at)
            .is_none_or(|used| !used.written && (access == Access::Read || used.readers == own))
    }

    pub(super) fn enter(&mut self, at: usize, access: Access) {
        let i = self.list.iter().position(|used| used.at == at).unwrap_or_else(|| {
            self.list.push(Use {
                at,
                readers: 0,
                written: false,
            });
            self.list.len() - 1
        });
        match access {
            Access::Read => self.list[i].readers += 1,
            Access::Write => self.list[i].written = true,
        }
    }

    pub(super) fn leave(&mut self, at: usize, access: Access) {
        let Some(i) = self.list.iter().position(|used| used.at == at) else {
            return;
        };
        let used = &mut self.list[i];
        match access {
            Access::Read => used.readers -= 1,
            Access::Write => used.written = false,
        }
        if used.readers == 0 && !used.written {
            self.list.swap_remove(i);
        }
    }
}
