//! Sequences of requests with a state.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::batching::{SLOW, repository};
use crate::support::{accumulator, floats, numbers, output, request};
use polygrad_serve::{InferRequest, Model, Reason, SequenceId, SequenceStep, Settings, Value};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequences_keep_their_states_apart() {
    let repository = repository(vec![("sum", accumulator(), Settings::default())]);
    let mut tasks = Vec::new();
    for id in 1..=50_u64 {
        let repository = repository.clone();
        tasks.push(tokio::spawn(async move {
            let model = repository.get("sum", None).unwrap();
            let rows = 1 + id as usize % 2;
            let step = |i: u64| InferRequest {
                sequence: Some(SequenceStep {
                    id: SequenceId::Number(id),
                    start: i == 1,
                    end: i == 20,
                }),
                ..request([("x", floats(&[rows, 1], vec![(id * i) as f32; rows]))])
            };
            let mut total = 0;
            for i in 1..=20 {
                let answer = model.infer(step(i)).await.unwrap();
                total += id * i;
                assert_eq!(answer.outputs.len(), 1, "states stay at the server");
                assert_eq!(numbers(output(&answer, "sum")), vec![total as f32; rows]);
            }
            let failure = model.infer(step(2)).await.unwrap_err();
            assert_eq!(failure.reason, Reason::Invalid, "it has ended");
            assert!(failure.message.contains("sequence_start"), "{failure}");
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn steps_of_one_sequence_that_are_sent_at_once_are_computed_in_order() {
    let repository = repository(vec![("sum", accumulator(), Settings::default())]);
    let model = repository.get("sum", None).unwrap();
    let step = |i: usize| {
        model.infer(InferRequest {
            sequence: Some(SequenceStep {
                id: SequenceId::Text("one".to_owned()),
                start: i == 1,
                end: i == 3,
            }),
            ..request([("x", floats(&[1, 1], vec![i as f32]))])
        })
    };
    let (first, second, third) = tokio::join!(step(1), step(2), step(3));
    let sums = [first, second, third].map(|answer| numbers(output(&answer.unwrap(), "sum"))[0]);
    assert_eq!(sums, [1.0, 3.0, 6.0]);
}

#[tokio::test]
async fn sequences_have_limits_and_end_when_they_are_silent() {
    let settings = Settings {
        max_sequences: 2,
        sequence_timeout: SLOW,
        ..Settings::default()
    };
    let repository = repository(vec![("sum", accumulator(), settings)]);
    let model = repository.get("sum", None).unwrap();
    let step = |id: u64, start: bool| InferRequest {
        sequence: Some(SequenceStep {
            id: SequenceId::Number(id),
            start,
            end: false,
        }),
        ..request([("x", floats(&[1, 1], vec![1.0]))])
    };
    model.infer(step(1, true)).await.unwrap();
    model.infer(step(2, true)).await.unwrap();
    let failure = model.infer(step(3, true)).await.unwrap_err();
    assert!(matches!(failure.reason, Reason::Busy(_)), "{failure:?}");
    tokio::time::sleep(2 * SLOW).await;
    let failure = model.infer(step(1, false)).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Invalid, "it was silent for too long");
    model.infer(step(3, true)).await.unwrap();
    let without = model
        .infer(request([("x", floats(&[1, 1], vec![1.0]))]))
        .await
        .unwrap_err();
    assert!(without.message.contains("\"total\" is missing"), "{without}");
    let both = request([("x", floats(&[1, 1], vec![1.0])), ("total", floats(&[1, 1], vec![5.0]))]);
    let answer = model.infer(both).await.unwrap();
    assert_eq!(
        numbers(output(&answer, "next_total")),
        [6.0],
        "states may be the client's"
    );
}

fn steps_of(id: u64, rows: usize, start: bool, end: bool) -> InferRequest {
    InferRequest {
        sequence: Some(SequenceStep {
            id: SequenceId::Number(id),
            start,
            end,
        }),
        ..request([("x", floats(&[rows, 1], vec![1.0; rows]))])
    }
}

#[tokio::test]
async fn states_of_sequences_have_a_limit_in_bytes() {
    let settings = Settings {
        max_sequence_bytes: 100,
        ..Settings::default()
    };
    let repository = repository(vec![("sum", accumulator(), settings)]);
    let model = repository.get("sum", None).unwrap();
    // Four bytes for each row.
    model.infer(steps_of(1, 15, true, false)).await.unwrap();
    let failure = model.infer(steps_of(2, 11, true, false)).await.unwrap_err();
    assert!(matches!(failure.reason, Reason::Busy(_)), "{failure:?}");
    assert!(
        failure
            .message
            .contains("take 104 bytes, and this model's limit is 100"),
        "{failure}"
    );
    model.infer(steps_of(2, 11, false, false)).await.unwrap_err();
    model.infer(steps_of(2, 10, true, false)).await.unwrap();
    let failure = model.infer(steps_of(3, 1, true, false)).await.unwrap_err();
    assert!(matches!(failure.reason, Reason::Busy(_)), "{failure:?}");
    // The others are unchanged, and ended sequences make room.
    let answer = model.infer(steps_of(1, 15, false, true)).await.unwrap();
    assert_eq!(numbers(output(&answer, "sum")), [2.0; 15]);
    model.infer(steps_of(3, 15, true, false)).await.unwrap();
}

/// [`accumulator`] that counts the requests to return memory.
struct Trimmed(Arc<dyn Model>, Arc<std::sync::atomic::AtomicUsize>);

impl Model for Trimmed {
    fn signature(&self) -> &polygrad_serve::Signature {
        self.0.signature()
    }

    fn run(&self, inputs: &[Value]) -> polygrad_core::Result<Vec<Value>> {
        self.0.run(inputs)
    }

    fn trim(&self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn memory_of_silent_sequences_is_given_back_although_nobody_asks() {
    let settings = Settings {
        sequence_timeout: SLOW,
        max_sequence_bytes: 8 << 20,
        ..Settings::default()
    };
    let trimmed = Arc::<std::sync::atomic::AtomicUsize>::default();
    let model: Arc<dyn Model> = Arc::new(Trimmed(accumulator(), Arc::clone(&trimmed)));
    let repository = repository(vec![("sum", model, settings)]);
    let model = repository.get("sum", None).unwrap();
    model.infer(steps_of(1, 1 << 19, true, false)).await.unwrap();
    assert_eq!(trimmed.load(Ordering::SeqCst), 0);
    let began = Instant::now();
    while trimmed.load(Ordering::SeqCst) == 0 {
        assert!(began.elapsed() < Duration::from_secs(30), "it was not given back");
        tokio::time::sleep(SLOW).await;
    }
}
