//! Each request gets its own rows, whichever requests it is joined with.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::support::{
    Counts, Function, accumulator, counted, delicate, floats, identity, numbers, output, request, shifted, signature,
    spec, whole,
};
use futures_util::future::join_all;
use polygrad_core::{DType, Error};
use polygrad_onnx::graph::ElementType;
use polygrad_serve::{InferRequest, Model, Pool, Reason, Repository, Settings, Value, VersionState};

pub(crate) fn repository(models: Vec<(&str, Arc<dyn Model>, Settings)>) -> Repository {
    let repository = Repository::new(Pool::new(2).unwrap());
    for (name, model, settings) in models {
        repository
            .add(name, 1, move || Ok(Arc::clone(&model)), settings)
            .unwrap();
        repository.load(name).unwrap();
    }
    repository
}

pub(crate) const SLOW: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_mixed_requests_get_their_own_rows() {
    let elements = [ElementType::F32, ElementType::I8, ElementType::I64, ElementType::F64];
    let settings = || Settings {
        max_queue: 100_000,
        ..Settings::default()
    };
    let names = ["a", "b", "c", "d"];
    let brief = names.iter().zip(elements);
    let mut models: Vec<_> = brief
        .map(|(name, element)| (*name, identity(element), settings()))
        .collect();
    let counts = Arc::<Counts>::default();
    models.push((
        "slow",
        counted(ElementType::F32, Arc::clone(&counts), Duration::from_millis(1)),
        settings(),
    ));
    let repository = repository(models);
    let mut tasks = Vec::new();
    for i in 0..10_000_usize {
        let repository = repository.clone();
        tasks.push(tokio::spawn(async move {
            let which = i % 5;
            let (name, element) = match which {
                4 => ("slow", ElementType::F32),
                which => (names[which], elements[which]),
            };
            let (rows, width) = (1 + i % 3, 1 + i % 4);
            let values: Vec<i64> = (0..rows * width)
                .map(|j| ((i * 31 + j * 7) % 251) as i64 - 125)
                .collect();
            let sent = whole(element, &[rows, width], &values);
            let model = repository.get(name, None).unwrap();
            let answer = model.infer(request([("x", sent.clone())]));
            if i % 7 == 0 {
                // A client that disconnects before, while or after its request is computed.
                let _ = tokio::time::timeout(Duration::from_micros(i as u64 % 500), answer).await;
                return;
            }
            let answer = answer.await.unwrap();
            let found = output(&answer, "y");
            assert_eq!(found.shape(), sent.shape());
            assert_eq!(found.element(), element);
            assert_eq!(numbers(found), numbers(&sent));
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let (runs, rows) = (counts.runs.load(Ordering::SeqCst), counts.rows.load(Ordering::SeqCst));
    assert!(rows > 5 * runs, "{runs} runs for {rows} rows: requests were not joined");
}

#[tokio::test]
async fn few_lone_requests_are_held_up_and_company_is_joined_again() {
    let counts = Arc::<Counts>::default();
    let quick = counted(ElementType::F32, Arc::clone(&counts), Duration::ZERO);
    let repository = repository(vec![("quick", quick, Settings::default())]);
    let model = repository.get("quick", None).unwrap();
    let ask = || model.infer(request([("x", floats(&[1, 1], vec![1.0]))]));
    let mut held_up = 0;
    for _ in 0..80 {
        let mut answer = pin!(ask());
        let first = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
        if first.is_pending() {
            held_up += 1;
            answer.await.unwrap();
        }
    }
    assert!(held_up < 60, "{held_up} of 80 lone requests were held up");
    let mut runs = counts.runs.load(Ordering::SeqCst);
    for round in 0..4 {
        for answer in join_all((0..16).map(|_| ask())).await {
            answer.unwrap();
        }
        let now = counts.runs.load(Ordering::SeqCst);
        assert!(round == 0 || now == runs + 1, "{} runs in round {round}", now - runs);
        runs = now;
    }
}

#[tokio::test]
async fn a_request_that_fails_does_not_spoil_those_it_was_joined_with() {
    let repository = repository(vec![("delicate", delicate(), Settings::default())]);
    let model = repository.get("delicate", None).unwrap();
    let one = |value: f32| model.infer(request([("x", floats(&[1, 1], vec![value]))]));
    let (good, bad, panicked, other) = tokio::join!(one(3.0), one(-1.0), one(-2.0), one(4.0));
    assert_eq!(numbers(output(&good.unwrap(), "y")), [3.0]);
    assert_eq!(numbers(output(&other.unwrap(), "y")), [4.0]);
    let bad = bad.unwrap_err();
    assert_eq!(bad.reason, Reason::Invalid);
    assert!(bad.message.contains("minus one"), "{bad}");
    let panicked = panicked.unwrap_err();
    assert_eq!(panicked.reason, Reason::Internal);
    assert!(panicked.message.contains("minus two"), "{panicked}");
}

/// A model `slow` that takes `time` for each request; requests wait for up to `timeout`.
fn one_by_one(time: Duration, timeout: Option<Duration>) -> (Repository, Arc<Counts>) {
    let counts = Arc::<Counts>::default();
    let slow = counted(ElementType::F32, Arc::clone(&counts), time);
    let settings = Settings {
        max_batch_size: 1,
        timeout,
        ..Settings::default()
    };
    let repository = Repository::new(Pool::new(1).unwrap());
    repository
        .add("slow", 1, move || Ok(Arc::clone(&slow)), settings)
        .unwrap();
    repository.load("slow").unwrap();
    (repository, counts)
}

#[tokio::test]
async fn what_is_late_or_given_up_is_not_computed() {
    let (repository, counts) = one_by_one(SLOW, None);
    let before = counts.rows.load(Ordering::SeqCst);
    let model = repository.get("slow", None).unwrap();
    let x = || request([("x", floats(&[1, 1], vec![1.0]))]);
    let late = InferRequest {
        deadline: Some(Instant::now() + SLOW / 4),
        ..x()
    };
    let first = model.infer(x());
    let late = model.infer(late);
    let given_up = tokio::time::timeout(SLOW / 4, model.infer(x()));
    let (first, late, given_up) = tokio::join!(first, late, given_up);
    first.unwrap();
    assert_eq!(late.unwrap_err().reason, Reason::Late);
    assert!(given_up.is_err());
    model.infer(x()).await.unwrap();
    assert_eq!(counts.rows.load(Ordering::SeqCst) - before, 2);
    let (_, _, statistics) = repository.statistics(Some("slow"), None).unwrap().remove(0);
    assert_eq!((statistics.late, statistics.cancelled), (1, 1));
    assert_eq!(statistics.success.count, 2);
}

#[tokio::test]
async fn what_would_be_late_makes_room_for_others() {
    let time = SLOW * 5;
    let (repository, counts) = one_by_one(time, None);
    let model = repository.get("slow", None).unwrap();
    let until = |time: Duration| InferRequest {
        deadline: Some(Instant::now() + time),
        ..request([("x", floats(&[1, 1], vec![1.0]))])
    };
    // Until the duration of a run is known.
    for _ in 0..6 {
        model.infer(until(time * 60)).await.unwrap();
    }
    let before = counts.rows.load(Ordering::SeqCst);
    // This request could begin after one run and end after two.
    let all = tokio::join!(
        model.infer(until(time * 60)),
        model.infer(until(time * 3 / 2)),
        model.infer(until(time * 60))
    );
    assert_eq!(all.1.unwrap_err().reason, Reason::Late);
    assert!(all.0.is_ok() && all.2.is_ok());
    // No other request waits, and the model might be faster this time.
    model.infer(until(time / 2)).await.unwrap();
    assert_eq!(counts.rows.load(Ordering::SeqCst) - before, 3);
}

#[tokio::test]
async fn a_request_without_a_deadline_waits_for_as_long_as_the_model_says() {
    let (repository, counts) = one_by_one(SLOW * 15, Some(SLOW * 5));
    let before = counts.rows.load(Ordering::SeqCst);
    let model = repository.get("slow", None).unwrap();
    let x = || request([("x", floats(&[1, 1], vec![1.0]))]);
    let patient = InferRequest {
        deadline: Some(Instant::now() + SLOW * 60),
        ..x()
    };
    // A run takes longer than the request may wait; that is no reason to drop a request that delays no other.
    let (first, second, patient) = tokio::join!(model.infer(x()), model.infer(x()), model.infer(patient));
    first.unwrap();
    patient.unwrap();
    let failure = second.unwrap_err();
    assert_eq!(failure.reason, Reason::Late);
    assert!(failure.message.contains("0.1 s"), "{failure}");
    assert_eq!(counts.rows.load(Ordering::SeqCst) - before, 2);
}

#[tokio::test]
async fn beyond_its_limit_a_queue_turns_requests_away() {
    let settings = Settings {
        max_queue: 3,
        max_batch_size: 1,
        ..Settings::default()
    };
    let slow = counted(ElementType::F32, Arc::default(), SLOW);
    let repository = repository(vec![("slow", slow, settings)]);
    let model = Arc::new(repository.get("slow", None).unwrap());
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let model = Arc::clone(&model);
            tokio::spawn(async move { model.infer(request([("x", floats(&[1, 1], vec![1.0]))])).await })
        })
        .collect();
    let (mut answered, mut refused) = (0, 0);
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => answered += 1,
            Err(failure) => {
                assert!(matches!(failure.reason, Reason::Busy(_)), "{failure:?}");
                refused += 1;
            }
        }
    }
    assert!((3..=6).contains(&answered), "{answered} answered, {refused} refused");
}

#[tokio::test]
async fn the_most_urgent_comes_first() {
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let signature = signature(vec![spec("x", DType::F32, &["1"])], vec![spec("y", DType::F32, &["1"])]);
    let run = move |inputs: &[Value]| {
        seen.lock().unwrap().push(numbers(&inputs[0])[0]);
        std::thread::sleep(SLOW);
        Ok(inputs.to_vec())
    };
    let model: Arc<dyn Model> = Arc::new(Function { signature, run });
    let repository = Repository::new(Pool::new(1).unwrap());
    repository
        .add("slow", 1, move || Ok(Arc::clone(&model)), Settings::default())
        .unwrap();
    repository.load("slow").unwrap();
    let model = repository.get("slow", None).unwrap();
    let with = |value: f32, priority: u64| {
        model.infer(InferRequest {
            priority,
            ..request([("x", floats(&[1], vec![value]))])
        })
    };
    let answers = tokio::join!(with(1.0, 1), with(30.0, 3), with(20.0, 0), with(10.0, 1), with(21.0, 2));
    let (first, second, third, fourth, fifth) = answers;
    for answer in [first, second, third, fourth, fifth] {
        answer.unwrap();
    }
    // The first was taken before the others arrived, or with them. The model ran on zeros when it was loaded.
    assert_eq!(*order.lock().unwrap(), [0.0, 1.0, 10.0, 20.0, 21.0, 30.0]);
    let failure = with(1.0, 4).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Invalid);
}

#[tokio::test]
async fn no_rows_are_answered_with_no_rows() {
    let repository = repository(vec![
        ("identity", identity(ElementType::F32), Settings::default()),
        ("sum", accumulator(), Settings::default()),
    ]);
    let model = repository.get("identity", None).unwrap();
    let none = || request([("x", floats(&[0, 3], vec![]))]);
    let one = request([("x", floats(&[1, 3], vec![1.0, 2.0, 3.0]))]);
    // Alone, and beside others.
    let alone = model.infer(none()).await;
    let (first, second, third) = tokio::join!(model.infer(none()), model.infer(one), model.infer(none()));
    for answer in [alone, first, third] {
        assert_eq!(output(&answer.unwrap(), "y").shape().dims(), [0, 3]);
    }
    assert_eq!(numbers(output(&second.unwrap(), "y")), [1.0, 2.0, 3.0]);
    let both = request([("x", floats(&[0, 1], vec![])), ("total", floats(&[1, 0], vec![]))]);
    let answer = repository.get("sum", None).unwrap().infer(both).await.unwrap();
    assert_eq!(output(&answer, "next_total").shape().dims(), [1, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replacing_a_model_loses_no_request_and_mixes_no_answer() {
    let generation = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let source = {
        let generation = Arc::clone(&generation);
        move || -> polygrad_core::Result<Arc<dyn Model>> {
            let number = generation.fetch_add(1, Ordering::SeqCst);
            if number % 10 == 9 {
                return Err(Error::invalid("a damaged file"));
            }
            let signature = signature(
                vec![spec("x", DType::F32, &["batch", "1"])],
                vec![
                    spec("a", DType::F32, &["batch", "1"]),
                    spec("b", DType::F32, &["batch", "1"]),
                ],
            );
            let run = move |inputs: &[Value]| {
                let rows = inputs[0].shape()[0];
                Ok(vec![floats(&[rows, 1], vec![number as f32; rows]); 2])
            };
            Ok(Arc::new(Function { signature, run }))
        }
    };
    let repository = Repository::new(Pool::new(1).unwrap());
    repository.add("model", 1, source, Settings::default()).unwrap();
    repository.load("model").unwrap();
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (repository, is_over) = (repository.clone(), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut last = 0.0;
                let mut count = 0;
                while !is_over.load(Ordering::SeqCst) || count < 10 {
                    let model = repository.get("model", None).unwrap();
                    let answer = model
                        .infer(request([("x", floats(&[2, 1], vec![0.0; 2]))]))
                        .await
                        .unwrap();
                    let (a, b) = (numbers(output(&answer, "a")), numbers(output(&answer, "b")));
                    assert_eq!(a, b);
                    assert_eq!(a[0], a[1]);
                    assert!(a[0] >= last, "an older model answered later");
                    last = a[0];
                    count += 1;
                }
                count
            })
        })
        .collect();
    let mut failed = 0;
    for _ in 0..200 {
        let repository = repository.clone();
        let result = tokio::task::spawn_blocking(move || repository.load("model"))
            .await
            .unwrap();
        failed += usize::from(result.is_err());
    }
    is_over.store(true, Ordering::SeqCst);
    for client in clients {
        assert!(client.await.unwrap() >= 10);
    }
    assert_eq!(failed, 20);
    assert_eq!(repository.index(), [("model".to_owned(), 1, VersionState::Ready)]);
    repository.unload("model").unwrap();
    assert_eq!(repository.index()[0].2, VersionState::Unloaded);
    assert!(repository.is_ready(), "what nobody wants is not waited for");
    assert_eq!(repository.get("model", None).err().unwrap().reason, Reason::Unavailable);
}

#[tokio::test]
async fn versions_are_chosen_by_number_and_the_highest_answers_by_default() {
    let constant = |value: f32| {
        move || -> polygrad_core::Result<Arc<dyn Model>> {
            let signature = signature(vec![spec("x", DType::F32, &["1"])], vec![spec("y", DType::F32, &["1"])]);
            let run = move |_: &[Value]| Ok(vec![floats(&[1], vec![value])]);
            Ok(Arc::new(Function { signature, run }))
        }
    };
    let repository = Repository::new(Pool::new(1).unwrap());
    for version in [1, 2, 10] {
        repository
            .add("model", version, constant(version as f32), Settings::default())
            .unwrap();
    }
    repository.load("model").unwrap();
    for (wanted, found) in [(None, 10), (Some(2), 2), (Some(1), 1)] {
        let model = repository.get("model", wanted).unwrap();
        assert_eq!(model.versions(), [1, 2, 10]);
        let answer = model.infer(request([("x", floats(&[1], vec![0.0]))])).await.unwrap();
        assert_eq!(answer.version, found);
        assert_eq!(numbers(output(&answer, "y")), [found as f32]);
    }
    assert_eq!(repository.get("model", Some(3)).err().unwrap().reason, Reason::NotFound);
    assert_eq!(repository.get("other", None).err().unwrap().reason, Reason::NotFound);
    let again = repository
        .add("model", 2, constant(0.0), Settings::default())
        .unwrap_err();
    assert!(again.to_string().contains("already"), "{again}");
    for name in ["", "../x", ".x", "a b"] {
        assert!(
            repository.add(name, 1, constant(0.0), Settings::default()).is_err(),
            "{name:?}"
        );
    }
}

#[tokio::test]
async fn what_does_not_fit_the_signature_is_told_by_name() {
    let repository = repository(vec![("identity", identity(ElementType::F32), Settings::default())]);
    let model = repository.get("identity", None).unwrap();
    let cases: Vec<(InferRequest, &str)> = vec![
        (request([]), "the input \"x\" is missing; the model takes x"),
        (
            request([("z", floats(&[1, 1], vec![0.0]))]),
            "no input \"z\"; it takes x",
        ),
        (
            request([("x", whole(ElementType::I64, &[1, 1], &[0]))]),
            "datatype FP32, and this is INT64",
        ),
        (
            request([("x", floats(&[1], vec![0.0]))]),
            "shape [-1, -1], and this is [1]",
        ),
        (
            request([("x", floats(&[1, 1], vec![0.0])), ("x", floats(&[1, 1], vec![0.0]))]),
            "given twice",
        ),
    ];
    for (request, words) in cases {
        let failure = model.infer(request).await.unwrap_err();
        assert_eq!(failure.reason, Reason::Invalid);
        assert!(failure.message.contains(words), "{failure}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_keeps_its_default_beside_others() {
    let repository = repository(vec![("shifted", shifted(), Settings::default())]);
    let mut tasks = Vec::new();
    for i in 0..200_u8 {
        let model = repository.get("shifted", None).unwrap();
        tasks.push(tokio::spawn(async move {
            let x = ("x", floats(&[1, 2], vec![0.0, f32::from(i)]));
            let by = ("by", floats(&[1], vec![f32::from(i)]));
            let given = i % 3 > 0;
            let inputs = if given { vec![x, by] } else { vec![x] };
            let answer = model.infer(request(inputs)).await.unwrap();
            let by = if given { f32::from(i) } else { 10.0 };
            assert_eq!(numbers(output(&answer, "y")), [by, by + f32::from(i)]);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}
