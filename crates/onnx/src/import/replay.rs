//! Runs of a plan as programs of the backend's ops, one for each set of types of the inputs.
//!
//! The first run on inputs of some types executes the plan. The next two are recorded, and if both made the same calls,
//! further runs are replayed: the same ops on the same constants, hence the same results bit by bit, without nodes,
//! values and checks of shapes. A run that reads a tensor on the host cannot be recorded (`core::program`), and values
//! that are on the host anyway depend only on the types of the inputs, since a recorded run gets all inputs on the
//! device. So a replay never reuses anything that was derived from the values of an input.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, TryLockError};

use polygrad_core::program::{Program, Replay, is_recording, record};
use polygrad_core::{AnyBackend, AnyTensor, Backend, DType, RandomKey, Result, Shape};
use polygrad_tensor::{Device, GeneratorState, Tensor, add_flops, autocast_dtype, flops_counted, has_op_hook};
use smallvec::SmallVec;

use super::call::{Made, Operands, Results};
use super::limits::Limits;
use super::options::Options;
use super::plan::Plan;
use super::value::Value;
use super::workspace::Workspace;
use crate::export::Onnx;
use crate::graph::ElementType;

/// The most sets of types with a program: more than the row counts of a server. Further ones run the plan.
const MAX_PROGRAMS: usize = 64;

/// The same on a device that records programs, whose recordings have their own memory.
const MAX_GRAPHS: usize = 8;

/// The most bytes of tensors that a run derives from shapes alone, such as tables of a Resize, and that all programs
/// together keep.
const MAX_KEPT: usize = 64 << 20;

/// The most ops of a program: a recurrent layer without a kernel has several for each time step.
const MAX_OPS: usize = 4096;

/// The programs of a plan.
pub(super) struct Replays {
    /// From the oldest to the newest.
    entries: RwLock<Vec<Arc<Entry>>>,
    /// The most entries.
    most: usize,
    /// Bytes that programs keep beyond those of the plan.
    kept: AtomicUsize,
    /// The reason why no run is replayed. One set of types decides for all.
    refusal: OnceLock<String>,
}

/// The state for one set of types of the inputs.
struct Entry {
    types: Types,
    stage: Mutex<Stage>,
    ready: OnceLock<Ready>,
}

type Types = SmallVec<[(Shape, DType, ElementType); 4]>;

/// The progress of the runs on such inputs. All runs before the replay share one workspace, so that steps memoized by
/// the first run are memoized in both recordings.
enum Stage {
    New,
    Warm(Workspace),
    Recorded(Workspace, Box<Program>),
    /// There is a program, or it is known that there will be none.
    Done,
}

struct Ready {
    replay: Box<dyn Replay>,
    outputs: SmallVec<[Output; 3]>,
    /// The number of operations of a run, for `count_flops`.
    flops: u64,
    /// A tensor on the device, to compare devices with.
    witness: AnyTensor,
}

enum Output {
    /// The next result of the program.
    Computed(ElementType),
    /// A value that depends only on the types of the inputs.
    Known(Value),
}

impl Replays {
    /// Replays of a plan; `None` if another engine runs the model.
    pub(super) fn new(plan: Option<&Plan>, options: &Options, device: &Device) -> Self {
        let Some(plan) = plan else {
            return Self::off("another engine runs the model");
        };
        let with_bodies = plan.steps.iter().find(|step| !step.bodies.is_empty());
        if let Some(step) = with_bodies {
            // The number of iterations is not known before a run, and each would be recorded.
            return Self::off(&format!("{} runs a body by condition or many times", step.node.op_type));
        }
        // The exporter records ops whole that a recording would decompose.
        let writes = device.inner().downcast_ref::<Onnx>().is_some();
        match (options.replay, writes) {
            (false, _) => Self::off("Options::replay is off"),
            (_, true) => Self::off("the device writes a file"),
            _ => Self::with(match AnyBackend::capabilities(device.inner()).graphs {
                true => MAX_GRAPHS,
                false => MAX_PROGRAMS,
            }),
        }
    }

    /// No replays, with the reason.
    pub(super) fn off(why: &str) -> Self {
        let replays = Self::with(0);
        replays.refuse(why.to_owned());
        replays
    }

    fn with(most: usize) -> Self {
        Self {
            entries: RwLock::default(),
            most,
            kept: AtomicUsize::new(0),
            refusal: OnceLock::new(),
        }
    }

    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.get().map(String::as_str)
    }

    /// How many programs are ready.
    pub(super) fn count(&self) -> usize {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.iter().filter(|entry| entry.ready.get().is_some()).count()
    }

    fn refuse(&self, why: String) {
        self.refusal.get_or_init(|| why);
        // The workspaces are no longer needed.
        self.entries.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The results of the plan on these inputs, by a run or a replay.
    pub(super) fn run(&self, plan: &Plan, inputs: Operands, device: &Device, limits: &Limits) -> Results {
        let Some(entry) = self.entry(&inputs) else {
            return plan.run(inputs, &[], device, limits);
        };
        if let Some(ready) = entry.ready.get() {
            return match ready.run(&inputs, device) {
                Ok(Some(results)) => Ok(results),
                // Running the plan gives an error that names the node.
                Ok(None) | Err(_) => plan.run(inputs, &[], device, limits),
            };
        }
        let mut stage = match entry.stage.try_lock() {
            Ok(stage) => stage,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread is already recording.
            Err(TryLockError::WouldBlock) => return plan.run(inputs, &[], device, limits),
        };
        self.advance(&entry, &mut stage, plan, inputs, device, limits)
    }

    /// A run before there is a replay. An error resets the entry to its initial state.
    fn advance(
        &self,
        entry: &Entry,
        stage: &mut Stage,
        plan: &Plan,
        inputs: Operands,
        device: &Device,
        limits: &Limits,
    ) -> Results {
        let (mut workspace, first) = match std::mem::replace(stage, Stage::New) {
            Stage::New => {
                let mut workspace = plan.workspace();
                let results = plan.run_in(&mut workspace, inputs, &[], device, limits)?;
                *stage = Stage::Warm(workspace);
                return Ok(results);
            }
            Stage::Done => {
                *stage = Stage::Done;
                return plan.run(inputs, &[], device, limits);
            }
            Stage::Warm(workspace) => (workspace, None),
            Stage::Recorded(workspace, first) => (workspace, Some(first)),
        };
        let Some((results, program)) = recorded(plan, &mut workspace, &inputs, device, limits)? else {
            *stage = Stage::Done;
            return plan.run(inputs, &[], device, limits);
        };
        let outcome = match (program, first) {
            (Err(why), _) => Err(why),
            (Ok((program, _)), None) => {
                *stage = Stage::Recorded(workspace, Box::new(program));
                return Ok(results);
            }
            (Ok(second), Some(first)) => self.ready(&first, second, &results, device),
        };
        *stage = Stage::Done;
        plan.workspaces.give_back(workspace);
        match outcome {
            Ok(Some(ready)) => drop(entry.ready.set(ready)),
            Ok(None) => {}
            Err(why) => self.refuse(why),
        }
        Ok(results)
    }

    /// The entry for the types of these inputs. `None` if the run must execute the plan.
    fn entry(&self, inputs: &[Value]) -> Option<Arc<Entry>> {
        // A recording, autocast or a hook around the run must see its ops.
        if self.refusal().is_some() || is_recording() || autocast_dtype().is_some() || has_op_hook() {
            return None;
        }
        let types: Types = inputs.iter().map(type_of).collect::<Option<_>>()?;
        let find = |entries: &[Arc<Entry>]| entries.iter().find(|entry| entry.types == types).cloned();
        let is_ready = |entry: &Arc<Entry>| entry.ready.get().is_some();
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let found = find(&entries);
        if found.is_some() || types.is_empty() || (entries.len() >= self.most && entries.iter().all(is_ready)) {
            return found;
        }
        drop(entries);
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = find(&entries) {
            return Some(found);
        }
        if entries.len() >= self.most {
            // Makes room for types that may be more frequent.
            let oldest = entries.iter().position(|entry| !is_ready(entry))?;
            entries.remove(oldest);
        }
        let entry = Arc::new(Entry {
            types,
            stage: Mutex::new(Stage::New),
            ready: OnceLock::new(),
        });
        entries.push(Arc::clone(&entry));
        Some(entry)
    }

    /// The program from two recordings. `None` if there is none for these types; an error if there will never be one.
    fn ready(
        &self,
        first: &Program,
        (second, flops): (Program, u64),
        results: &[Value],
        device: &Device,
    ) -> std::result::Result<Option<Ready>, String> {
        let text = |error: polygrad_core::Error| error.to_string();
        if second.ops().count() > MAX_OPS || first.difference(&second).map_err(text)?.is_some() {
            return Ok(None);
        }
        let bytes = first.bytes_made(&second);
        if self.kept.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > MAX_KEPT {
            self.kept.fetch_sub(bytes, Ordering::Relaxed);
            return Ok(None);
        }
        let output = |value: &Value| match (value.on_device(), value.element()) {
            (Some(_), Some(element)) => Output::Computed(element),
            _ => Output::Known(value.clone()),
        };
        let witness = Tensor::full(Shape::SCALAR, 0.0, (device, DType::F32)).map_err(text)?;
        Ok(Some(Ready {
            outputs: results.iter().map(output).collect(),
            replay: second.compile().map_err(text)?,
            flops,
            witness: witness.inner().clone(),
        }))
    }
}

impl Ready {
    /// The results; `None` if the inputs are on another device.
    fn run(&self, inputs: &[Value], device: &Device) -> Result<Option<Made>> {
        let tensors = tensors(inputs, device)?;
        if !tensors.iter().all(|x| AnyBackend::same_device(&self.witness, x)) {
            return Ok(None);
        }
        // Runs that draw random numbers are not replayed.
        let mut computed = self
            .replay
            .run(&tensors, &mut |_| RandomKey { seed: 0, offset: 0 })?
            .into_iter();
        add_flops(self.flops);
        let outputs = self.outputs.iter().map(|output| match output {
            Output::Computed(element) => {
                let tensor = computed.next().map(Tensor::from_inner);
                tensor.map(|tensor| Value::from(tensor).with_element(*element))
            }
            Output::Known(value) => Some(value.clone()),
        });
        Ok(outputs.collect())
    }
}

/// The type of a tensor that is not tracked.
fn type_of(value: &Value) -> Option<(Shape, DType, ElementType)> {
    match value.is_tracked() {
        true => None,
        false => Some((value.shape()?, value.dtype()?, value.element()?)),
    }
}

fn tensors(inputs: &[Value], device: &Device) -> Result<Vec<AnyTensor>> {
    let tensor = |value: &Value| Ok(value.tensor(device)?.inner().clone());
    inputs.iter().map(tensor).collect()
}

/// Results, and either the program that computes them with its flops, or the reason why there is none.
type Recorded = (Made, std::result::Result<(Program, u64), String>);

/// A recorded run, with all inputs on the device. `None` if they cannot be put there.
fn recorded(
    plan: &Plan,
    workspace: &mut Workspace,
    inputs: &[Value],
    device: &Device,
    limits: &Limits,
) -> Result<Option<Recorded>> {
    // New handles distinguish an input from other inputs, and from a constant of the plan that is the same tensor.
    let handle = |x: &AnyTensor| AnyBackend::reshape(x, x.shape());
    let given = tensors(inputs, device).and_then(|given| given.iter().map(handle).collect::<Result<Vec<_>>>());
    let Ok(given) = given else { return Ok(None) };
    let before = (GeneratorState::current(), flops_counted());
    let (_, results, program) = record(&given, || {
        let values = given.iter().zip(inputs).map(|(x, input)| {
            let value = Value::from(Tensor::from_inner(x.clone()));
            match input.element() {
                Some(element) => value.with_element(element),
                None => value,
            }
        });
        let results = plan.run_in(workspace, values.collect(), &[], device, limits)?;
        let computed = results.iter().filter_map(Value::on_device);
        let computed = computed.map(|x| x.inner().clone()).collect();
        Ok((computed, results))
    })?;
    let refusal = if results.iter().any(|value| value.shape().is_none()) {
        Some("an output is no tensor")
    } else if before.0 != GeneratorState::current() {
        Some("it draws random numbers")
    } else {
        None
    };
    Ok(Some((
        results,
        match refusal {
            Some(why) => Err(why.to_owned()),
            None => program.map(|program| (program, flops_counted().wrapping_sub(before.1))),
        },
    )))
}
