//! Wrappers around a single environment, or around many that step together.

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

use polygrad_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::VectorEnv;
use crate::vectorized::{read, write};

/// The state of a wrapper together with that of the environments inside.
fn nested<T: Serialize>(wrapper: &str, own: &T, env: &impl VectorEnv) -> Result<Value> {
    Ok(json!({ wrapper: write(wrapper, own)?, "env": env.state()? }))
}

/// Splits the two states that [`nested`] has put together.
fn opened<'a, T: Deserialize<'a>>(wrapper: &str, state: &'a Value) -> Result<(T, &'a Value)> {
    match (state.get(wrapper), state.get("env")) {
        (Some(own), Some(env)) => Ok((read(wrapper, own)?, env)),
        _ => {
            let message = format!("the state has nothing of a {wrapper} around environments");
            Err(Error::new(ErrorKind::StateDict, message)
                .with_hint("use the wrappers that were there when it was saved"))
        }
    }
}

/// The methods of an environment, or of a [`VectorEnv`](crate::VectorEnv), that a wrapper passes through.
macro_rules! as_inside {
    ($($method:ident $(($argument:ident: $type:ty))? -> $result:ty),*) => {$(
        fn $method(&self $(, $argument: $type)?) -> $result {
            self.env.$method($($argument)?)
        }
    )*};
}
use as_inside;

/// A wrapper around one environment is drawn like the environment inside.
macro_rules! drawn_as_inside {
    ($wrapper:ident) => {
        impl<E: crate::Render> crate::Render for $wrapper<E> {
            fn size(&self) -> [f32; 2] {
                self.env.size()
            }

            fn fps(&self) -> f64 {
                self.env.fps()
            }

            fn render(&self, canvas: &mut crate::Canvas) {
                self.env.render(canvas);
            }
        }
    };
}
use drawn_as_inside;
