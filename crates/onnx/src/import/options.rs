//! Options for loading and running a model.

use super::memory;
use crate::engine::Engine;

/// Options for loading and running a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The engine. Those other than native run on the CPU, whatever the device, and without gradients.
    pub engine: Engine,
    /// The number of threads of an engine other than native; by default the engine decides. Native uses the threads of
    /// the device.
    pub threads: Option<usize>,
    /// Whether values that do not depend on the inputs are computed once, when the model is loaded; on by default.
    pub fold_constants: bool,
    /// Whether several ops are replaced by one with the same result, and weights are prepacked, which may take twice
    /// their memory; on by default. Trained parameters are left as they are.
    pub fuse: bool,
    /// Whether the ops of earlier runs on inputs of the same shapes are replayed without the nodes, if no node depends
    /// on values; on by default. See [`OnnxModel::replays`](crate::OnnxModel::replays).
    pub replay: bool,
    /// The most bytes of one tensor, since a small file can ask for any size. 8 GiB by default.
    pub max_tensor_bytes: usize,
    /// The most bytes of the model in all: the content of its files, and the values of a run that are alive at once.
    /// Values count as if each had its own memory. Not counted are temporary memory of ops, prepacked weights, and runs
    /// of an engine other than native. Three quarters of the machine's memory by default.
    pub max_memory_bytes: usize,
    /// The most bytes of the values of one run that are alive at once, beside the model itself. They are counted as in
    /// [`Options::max_memory_bytes`], which bounds both together and is the default.
    pub max_run_bytes: usize,
    /// The most nodes that one run may execute, counting each iteration of a loop. 2⁴⁰ by default. At most 2²⁰ are
    /// computed when the model is loaded: the rest is left to its runs.
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
