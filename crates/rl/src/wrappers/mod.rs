//! What is put around environments: around one, or around many that step together.

mod action_repeat;
mod frame_stack;
mod normalize;
mod record;
mod time_limit;

pub use action_repeat::ActionRepeat;
pub use frame_stack::FrameStack;
pub use normalize::{NormalizeObservation, NormalizeReward};
pub use record::RecordEpisodeStatistics;
pub use time_limit::TimeLimit;

/// The methods of a [`VectorEnv`](crate::VectorEnv) that a wrapper leaves as they are.
macro_rules! as_inside {
    ($($method:ident -> $result:ty),*) => {$(
        fn $method(&self) -> $result {
            self.env.$method()
        }
    )*};
}
use as_inside;
