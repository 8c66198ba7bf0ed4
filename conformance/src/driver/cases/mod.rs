//! The cases, by topic.

mod attention;
mod elementwise;
mod index;
mod life;
mod maps;
mod memory;
mod pointers;
mod products;
mod reductions;
mod rows;
mod threads;
mod windows;

use super::case::Cases;

/// All of them.
pub(super) fn collect(all: &mut Cases) {
    life::cases(all);
    memory::cases(all);
    pointers::cases(all);
    products::cases(all);
    maps::cases(all);
    elementwise::cases(all);
    reductions::cases(all);
    index::cases(all);
    rows::cases(all);
    attention::cases(all);
    windows::cases(all);
    threads::cases(all);
}
