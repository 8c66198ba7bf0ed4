//! How a model is loaded and run.

use super::memory;
use crate::engine::Engine;

/// How a model is loaded and run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What runs it. Those other than native run on the CPU, whatever the device, and without gradients.
    pub engine: Engine,
    /// How many threads an engine other than native uses; as many as it pleases by default. Native uses
    /// those of the device.
    pub threads: Option<usize>,
    /// Compute what does not depend on the inputs once, when it is loaded; on by default.
    pub fold_constants: bool,
    /// Put one op in the place of several where that gives the same result, and make weights ready for the ops that use
    /// them, which may take twice their memory; on by default. What is trained is left as it is.
    pub fuse: bool,
    /// Replay the ops of earlier runs on inputs of the same shapes, without the nodes, where none of them depends on
    /// values; on by default. [`OnnxModel::replays`](crate::OnnxModel::replays) tells of it.
    pub replay: bool,
    /// The most bytes that one tensor may take: a few bytes of a file can ask for any size. 8 GiB by default.
    pub max_tensor_bytes: usize,
    /// The most bytes that the model may take in all: what its file and the files beside it hold, and the values of a
    /// run that are alive at once. Counted are values as if each had memory of its own, not what ops need for
    /// themselves or the weights in the order of the backend's products, and of a run of an engine other than native
    /// nothing. Three quarters of the machine's memory by default.
    pub max_memory_bytes: usize,
    /// The most bytes that the values of one run that are alive at once may take beside what the model itself takes,
    /// counted as in [`Options::max_memory_bytes`], which bounds both together. As many by default.
    pub max_run_bytes: usize,
    /// The most nodes that one run may execute, those in loops counted each time. 2⁴⁰ by default. What is computed when
    /// the model is loaded takes 2²⁰ at most: the rest is left to its runs.
    pub max_steps: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            engine: Engine::Native,
            threads: None,
            fold_constants: true,
            fuse: true,
            replay: true,
            max_tensor_bytes: 8 << 30,
            max_memory_bytes: memory::most(),
            max_run_bytes: usize::MAX,
            max_steps: 1 << 40,
        }
    }
}
