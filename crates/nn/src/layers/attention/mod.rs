//! Attention: heads, masks, and the cache of keys and values.

mod cache;
mod heads;
mod masks;
mod multihead;

pub use cache::KvCache;
pub(crate) use cache::{Caches, all_or_nothing};
pub(crate) use heads::{Attend, merge_heads, split_heads};
pub use masks::Masks;
pub use multihead::{MultiheadAttention, MultiheadAttentionConfig};
