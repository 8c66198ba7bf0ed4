//! A step allocates nothing, even with resets, wrappers and threads.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use polygrad_rl::{
    ActionRepeat, CartPole, FrameStack, NormalizeObservation, NormalizeReward, RecordEpisodeStatistics, StepBuffers,
    TimeLimit, VectorEnv, Vectorized,
};

/// Counts the process's allocations.
struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: forwards every call to the system's allocator.
#[allow(unsafe_code, reason = "an allocator is unsafe to write")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn env(_index: usize) -> FrameStack<ActionRepeat<TimeLimit<CartPole>>> {
    FrameStack::new(ActionRepeat::new(CartPole::v1(), 2).unwrap(), 3).unwrap()
}

/// The number of allocations in some steps, and of episodes that ended in them.
fn counted<V: VectorEnv>(envs: V) -> (usize, usize) {
    let envs = RecordEpisodeStatistics::new(envs);
    let mut envs = NormalizeReward::new(NormalizeObservation::new(envs).unwrap(), 0.99).unwrap();
    let mut buffers = StepBuffers::new(&envs);
    envs.reset(0, &mut buffers.observations).unwrap();
    let (mut before, mut ended) = (0, 0);
    for step in 0..300 {
        // Excludes one-time allocations, such as space for actions.
        if step == 50 {
            before = COUNT.load(Ordering::Relaxed);
        }
        envs.step(&[(step / 3 % 2) as f32; 8], &mut buffers.as_mut()).unwrap();
        ended += buffers.terminated.iter().filter(|ended| **ended).count();
    }
    (COUNT.load(Ordering::Relaxed) - before, ended)
}

/// A single test, since the allocations of the whole process are counted.
#[test]
fn steps_allocate_nothing() {
    let (count, ended) = counted(Vectorized::new(env, 8).unwrap());
    assert!(count == 0 && ended > 50, "{count}, {ended} episodes");
    // The standard library allocates when a thread first has to wait, which may happen at any time.
    for envs in [
        Vectorized::threaded(env, 8, 3).unwrap(),
        Vectorized::asynchronous(env, 8, 1).unwrap(),
    ] {
        let (count, ended) = counted(envs);
        assert!(count <= 12 && ended > 50, "{count}, {ended} episodes");
    }
}
