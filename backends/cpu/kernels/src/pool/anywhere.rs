//! What takes the place of `placement` on systems where threads are left where they are.

#[derive(Default)]
pub(super) struct Placement;

impl Placement {
    pub(super) fn add_worker(&self) {}

    pub(super) fn caller_is_here(&self) {}
}
