//! PPO continues from the last checkpoint of its run after ranks are lost.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use polygrad_core::communicator::Communicator;
use polygrad_core::{ErrorKind, Result};
use polygrad_rl::*;
use polygrad_tensor::{Device, manual_seed};
use polygrad_testing::ranks as mortal;
use polygrad_train::{Control, Ended, Event, Progress, Run, RunConfig};

const ROWS: usize = 4;
const STEPS: usize = 8;

/// Iterations of three ranks.
const ITERATIONS: u64 = 5;

/// A training whose episodes end often, with all statistics, and a policy that has memory if `remembers`.
fn training(remembers: bool) -> Ppo {
    let device = Device::<polygrad_cpu::Cpu>::default().into_any();
    manual_seed(5);
    let config = PpoConfig {
        total_steps: ITERATIONS * (3 * ROWS * STEPS) as u64,
        num_steps: STEPS,
        num_minibatches: 2,
        update_epochs: 2,
        learning_rate: Annealed::Linear(1e-2, 0.0),
        normalize_observations: (!remembers).then_some(10.0),
        normalize_rewards: Some(10.0),
        seed: 7,
        ..PpoConfig::default()
    };
    let mut policy = PolicyConfig::mlp(4, ActionSpace::Discrete(2));
    policy.memory = remembers.then(|| MemoryConfig::new(MemoryKind::Lstm, 8));
    let envs = Vectorized::new(|_| TimeLimit::new(CartPole::v1(), 11).unwrap(), ROWS).unwrap();
    Ppo::new(envs, ActorCritic::new(&policy, &device).unwrap(), config).unwrap()
}

/// Trains in the folder of a run, if there is one. Returns the end, the reported events, and the bytes of a checkpoint.
fn trained(
    group: &Arc<dyn Communicator>,
    remembers: bool,
    run: Option<&Path>,
    copy: Option<&Path>,
    stops_at: u64,
) -> Result<(Ended, Vec<String>, Vec<u8>)> {
    let mut ppo = training(remembers).parallel(Arc::clone(group))?;
    let notices = Rc::new(RefCell::new(Vec::new()));
    let (told, copied) = (Rc::clone(&notices), copy.map(Path::to_owned));
    let mut wished = false;
    let callback = move |event: Event<'_>, progress: &Progress<'_>| {
        if let Event::Notice(notice) = event {
            told.borrow_mut().push(notice.to_owned());
        }
        copied.iter().for_each(|to| mortal::copy(event, progress, to));
        // Wishes to stop once.
        let stops = progress.step >= stops_at && !wished;
        wished |= stops;
        Ok(if stops { Control::Stop } else { Control::Continue })
    };
    let mut options = RunConfig::steps(ppo.config().total_steps)
        .log_every(1)
        .checkpoint_every(2 * ppo.steps_per_iteration())
        .callback(callback)
        .parallel(Arc::clone(group));
    if let Some(path) = run.filter(|_| group.rank() == 0) {
        options = options.run(Run::open(path)?);
    }
    let summary = options.train(&mut ppo)?;
    assert_eq!(ppo.refusal(), None);
    let notices = notices.borrow().clone();
    Ok((summary.ended, notices, ppo.checkpoint()?.to_bytes()?))
}

/// The number of collectives before the training, and in total.
fn collectives(size: usize, remembers: bool) -> (usize, usize) {
    let scene = tempfile::tempdir().unwrap();
    let count = |name: &str, stops_at: u64| {
        let path = scene.path().join(name);
        mortal::mortals(size, &[], |group| {
            trained(&group, remembers, Some(&path), None, stops_at).unwrap()
        })[0]
            .1
    };
    // The last ones belong to the returned checkpoint, in which the other ranks take no part.
    (count("begun", 0), count("whole", u64::MAX) - 3)
}

/// Trains while ranks are lost: the remaining ranks end with the same result as ranks that continue from the same
/// checkpoint.
fn check(size: usize, remembers: bool, deaths: &[(usize, usize)]) {
    let scene = tempfile::tempdir().unwrap();
    let (path, copy) = (scene.path().join("run"), scene.path().join("copy"));
    let found = mortal::mortals(size, deaths, |group| {
        trained(&group, remembers, Some(&path), Some(&copy), u64::MAX)
    });
    for (rank, (found, _)) in found.iter().enumerate() {
        let is_lost = deaths.iter().any(|(lost, _)| *lost == rank);
        assert_eq!(
            is_lost,
            found.is_err(),
            "{deaths:?}, rank {rank}: {:?}",
            found.as_ref().err()
        );
    }
    let left: Vec<_> = found.iter().filter_map(|(found, _)| found.as_ref().ok()).collect();
    for (ended, notices, everything) in &left {
        assert_eq!(*ended, Ended::Done);
        let part = "processes are left, and go on from the checkpoint of step";
        assert!(
            notices.iter().any(|notice| notice.contains(part)),
            "{deaths:?}: {notices:?}"
        );
        assert!(*everything == left[0].2, "{deaths:?}: two trainings");
    }
    let resumed = mortal::mortals(left.len(), &[], |group| {
        trained(&group, remembers, Some(&copy), None, u64::MAX).unwrap().2
    });
    assert!(
        resumed[0].0 == left[0].2,
        "{deaths:?}: not that of those who go on from the checkpoint"
    );
    assert_eq!(mortal::rows(&path), mortal::rows(&copy), "{deaths:?}");
}

#[test]
fn those_who_are_left_go_on_from_the_last_checkpoint() {
    for remembers in [false, true] {
        let (begun, all) = collectives(3, remembers);
        for (i, at) in (begun..all).step_by((all - begun) / 17).enumerate() {
            check(3, remembers, &[(i % 3, at)]);
        }
    }
}

#[test]
fn another_rank_may_be_lost_while_the_others_go_back() {
    let (begun, all) = collectives(4, false);
    let at = (begun + all) / 2;
    for later in 1..24 {
        check(4, false, &[(0, at), (later % 3 + 1, at + later)]);
    }
}

#[test]
fn without_a_run_the_environments_are_gone() {
    let (begun, _) = collectives(3, false);
    let found = mortal::mortals(3, &[(1, begun + 10)], |group| {
        trained(&group, false, None, None, u64::MAX)
    });
    for rank in [0, 2] {
        let error = found[rank].0.as_ref().err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Communication);
        let text = error.to_string();
        assert!(text.contains("what its learner had is gone"), "{text}");
        assert!(text.contains("TrainerConfig::run, --out"), "{text}");
    }
}

#[test]
fn who_wants_to_stop_stops_though_a_rank_is_lost() {
    let train = |deaths: &[(usize, usize)]| {
        let scene = tempfile::tempdir().unwrap();
        let path = scene.path().join("run");
        mortal::mortals(3, deaths, |group| {
            let stops_at = match group.rank() {
                1 => 3 * (3 * ROWS * STEPS) as u64,
                _ => u64::MAX,
            };
            trained(&group, false, Some(&path), None, stops_at)
        })
    };
    let all = train(&[])[0].1 - 3;
    let mut gone_back = 0;
    // Before rank 1 wishes to stop, and after.
    for at in all - 12..all {
        let found = train(&[(2, at)]);
        for (found, _) in &found[..2] {
            let (ended, notices, _) = found.as_ref().unwrap();
            assert_eq!(*ended, Ended::Stopped, "{at}");
            gone_back += usize::from(!notices.is_empty());
        }
    }
    assert_eq!(gone_back, 24);
}
