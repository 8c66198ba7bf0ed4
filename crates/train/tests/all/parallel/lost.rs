//! Lost ranks: the others continue without them.

use super::*;

thread_local! {
    static SEEN: std::cell::RefCell<Vec<i64>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Trains with a loss that records the examples it sees. Returns the examples of completed steps, and the weights or
/// `None` if this rank fails.
fn counted(group: &Arc<dyn Communicator>, run: Option<Run>, failing: usize, at: u64) -> (Vec<i64>, Option<StateDict>) {
    manual_seed(5);
    let device = device();
    let examples: Vec<([f32; 2], i64)> = (0..211).map(|i| ([i as f32, 1.0], i % 2)).collect();
    let data = DataLoaderConfig::new(examples)
        .batch_size(4)
        .shuffle(1)
        .build(&device)
        .unwrap();
    let model = Linear::new(2, 2, &device).unwrap();
    let optimizer = adam(model.parameters()).unwrap();
    let rank = group.rank();
    let taken = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let told = std::rc::Rc::clone(&taken);
    let callback = move |event: Event<'_>, progress: &Progress<'_>| {
        if let Event::Step = event {
            told.borrow_mut().extend(SEEN.take());
            assert!(rank != failing || progress.step != at, "this rank is lost");
        }
        Ok(Control::Continue)
    };
    let loss = |model: &Linear, (x, y): &Batch| {
        let seen = x.narrow(1, 0, 1)?.to_f64_vec()?;
        // The batch of an incomplete step is seen again.
        SEEN.set(seen.into_iter().map(|x| x as i64).collect());
        cross_entropy(&model.forward(&(x / 211.0)?)?, y)
    };
    let mut options = TrainerConfig::epochs(3)
        .callback(callback)
        .parallel(Arc::clone(group))
        .log_every(5);
    if let Some(run) = run {
        options = options.run(run);
    }
    let mut trainer = options.build(model, optimizer, loss).unwrap();
    let fitted = catch_unwind(AssertUnwindSafe(|| trainer.fit(&data, None)));
    let weights = match fitted {
        Ok(fitted) => {
            fitted.unwrap();
            Some(trainer.model().state_dict().unwrap())
        }
        Err(_) => {
            assert_eq!(rank, failing);
            None
        }
    };
    let taken = taken.borrow().clone();
    (taken, weights)
}

#[test]
fn those_who_are_left_go_on_without_losing_an_example() {
    // The first rank is lost within an epoch, at the end of one, or before the last step of one.
    for (failing, at) in [(1, 7), (0, 18), (2, 17), (0, 30)] {
        let folder = tempdir().unwrap();
        let path = folder.path().join("run");
        let found = ranks(3, |group| {
            let run = (group.rank() == 0).then(|| Run::create(&path).unwrap());
            counted(&group, run, failing, at)
        });
        let mut seen: Vec<i64> = found.iter().flat_map(|(seen, _)| seen.clone()).collect();
        seen.sort_unstable();
        // At the end of an epoch a rank may get an example that belongs to another.
        let wanted: Vec<i64> = (0..211).flat_map(|i| [i, i, i]).collect();
        assert_eq!(seen, wanted, "rank {failing} at step {at}");
        let left: Vec<&StateDict> = found.iter().filter_map(|(_, weights)| weights.as_ref()).collect();
        assert_eq!(left.len(), 2);
        assert_close(left[0], left[1], 0.0);
        // The rank that keeps the run has saved the last state in it.
        let kept = StateDict::load(RunFolder::new(&path).model()).unwrap();
        assert_close(&kept, left[0], 0.0);
    }
}

type Trained = (Ended, Vec<String>, StateDict, Vec<(u64, Split)>);

/// Trains with sharded moments, in the folder of a run if there is one; returns the notices, the weights, and the rows.
fn spread(group: &Arc<dyn Communicator>, run: Option<&Path>, copy: Option<&Path>, stops_at: u64) -> Result<Trained> {
    let notices = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let (told, copied) = (std::rc::Rc::clone(&notices), copy.map(Path::to_owned));
    let mut wished = false;
    let callback = move |event: Event<'_>, progress: &Progress<'_>| {
        if let Event::Notice(notice) = event {
            told.borrow_mut().push(notice.to_owned());
        }
        copied.iter().for_each(|to| mortal::copy(event, progress, to));
        // Requests the stop only once.
        let stops = progress.step >= stops_at && !wished;
        wished |= stops;
        Ok(if stops { Control::Stop } else { Control::Continue })
    };
    let mut options = TrainerConfig::epochs(3)
        .checkpoint_every(4)
        .log_every(2)
        .callback(callback);
    if let Some(path) = run.filter(|_| group.rank() == 0) {
        options = options.run(Run::open(path)?);
    }
    let mut trainer = trainer(options, group, true);
    let summary = trainer.fit(&loader(203, 16), Some(&loader(51, 16)))?;
    let notices = notices.borrow().clone();
    let rows = trainer.history().iter().map(|row| (row.step, row.split)).collect();
    Ok((summary.ended, notices, trainer.model().state_dict()?, rows))
}

/// Trains with sharded moments while ranks are lost. The remaining ranks agree with each other, and with ranks that
/// continue from the same checkpoint.
fn check_spread(size: usize, deaths: &[(usize, usize)]) {
    let scene = tempdir().unwrap();
    let (path, copy) = (scene.path().join("run"), scene.path().join("copy"));
    let found = mortal::mortals(size, deaths, |group| spread(&group, Some(&path), Some(&copy), u64::MAX));
    for (rank, (found, _)) in found.iter().enumerate() {
        let is_lost = deaths.iter().any(|(lost, _)| *lost == rank);
        let error = found.as_ref().err();
        assert_eq!(is_lost, error.is_some(), "{deaths:?}, rank {rank}: {error:?}");
    }
    let left: Vec<_> = found.iter().filter_map(|(found, _)| found.as_ref().ok()).collect();
    for (ended, notices, weights, rows) in &left {
        assert_eq!(*ended, Ended::Done);
        assert_eq!(rows, &left[0].3, "{deaths:?}");
        let part = "processes are left, and go on from the checkpoint of step";
        assert!(
            notices.iter().any(|notice| notice.contains(part)),
            "{deaths:?}: {notices:?}"
        );
        assert_close(weights, &left[0].2, 0.0);
    }
    let resumed = ranks(left.len(), |group| {
        spread(&group, Some(&copy), None, u64::MAX).unwrap().2
    });
    assert_close(&resumed[0], &left[0].2, 0.0);
    assert_eq!(mortal::rows(&path), mortal::rows(&copy), "{deaths:?}");
    let kept = |path: &Path| Checkpoint::load(RunFolder::new(path).checkpoint()).unwrap();
    let (kept, resumed) = (kept(&path), kept(&copy));
    assert_close(&kept.optimizer, &resumed.optimizer, 0.0);
    assert_eq!((kept.step, kept.generator), (resumed.step, resumed.generator));
}

/// Number of collectives before training, and in total.
fn collectives(size: usize) -> (usize, usize) {
    let scene = tempdir().unwrap();
    let whole = mortal::mortals(size, &[], |group| {
        spread(&group, Some(&scene.path().join("whole")), None, u64::MAX)
    });
    let begun = mortal::mortals(size, &[], |group| {
        spread(&group, Some(&scene.path().join("begun")), None, 0)
    });
    (begun[0].1, whole[0].1)
}

#[test]
fn those_who_are_left_with_spread_moments_go_on_from_the_last_checkpoint() {
    let (begun, all) = collectives(3);
    // In steps, rows, evaluations, checkpoints and at the end.
    for (i, at) in (begun..all)
        .step_by((all - begun) / 23)
        .chain([all - 2, all - 1])
        .enumerate()
    {
        check_spread(3, &[(i % 3, at)]);
    }
}

#[test]
fn another_rank_may_be_lost_while_the_others_go_back() {
    let (begun, all) = collectives(4);
    let at = (begun + all) / 2;
    for later in 1..24 {
        check_spread(4, &[(0, at), (later % 3 + 1, at + later)]);
    }
}

#[test]
fn without_a_run_spread_moments_are_gone() {
    let (begun, _) = collectives(3);
    let found = mortal::mortals(3, &[(1, begun + 10)], |group| spread(&group, None, None, u64::MAX));
    for rank in [0, 2] {
        let error = found[rank].0.as_ref().err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Communication);
        let text = error.to_string();
        assert!(text.contains("its part of the optimizer's moments is gone"), "{text}");
        assert!(text.contains("TrainerConfig::run, --out"), "{text}");
    }
}

#[test]
fn who_wants_to_stop_stops_though_a_rank_is_lost() {
    let train = |deaths: &[(usize, usize)]| {
        let scene = tempdir().unwrap();
        let path = scene.path().join("run");
        mortal::mortals(3, deaths, |group| {
            let stops_at = if group.rank() == 1 { 6 } else { u64::MAX };
            spread(&group, Some(&path), None, stops_at)
        })
    };
    let all = train(&[])[0].1;
    let mut gone_back = 0;
    // Before rank 1 wants to stop, before the others know, and after.
    for at in all - 20..all {
        let found = train(&[(2, at)]);
        for (found, _) in &found[..2] {
            let (ended, notices, ..) = found.as_ref().unwrap();
            assert_eq!(*ended, Ended::Stopped, "{at}");
            gone_back += notices.len();
        }
    }
    assert!(gone_back >= 30, "{gone_back}");
}
