//! The replay buffer: its contents, sampling, and exact resumption.

use polygrad_nn::StateDict;
use polygrad_rl::{PriorityConfig, ReplayBuffer, Rng, Transition};

/// Transition `i` of a stream.
fn push(replay: &mut ReplayBuffer, i: usize) {
    let x = i as f32;
    let transition = Transition {
        observation: &[x, -x],
        action: &[x + 0.5],
        reward: 2.0 * x,
        discount: 0.9,
        next_observation: &[x + 1.0, -x - 1.0],
    };
    replay.push(&transition).unwrap();
}

/// The numbers of the transitions, by index.
fn numbers(replay: &ReplayBuffer) -> Vec<f32> {
    (0..replay.len())
        .map(|place| replay.get(place).unwrap().observation[0])
        .collect()
}

#[test]
fn new_transitions_replace_the_oldest() {
    let mut replay = ReplayBuffer::new(4, 2, 1).unwrap();
    assert!(replay.is_empty() && replay.sample(1, &mut Rng::new(0)).is_err());
    (0..3).for_each(|i| push(&mut replay, i));
    assert_eq!((replay.len(), numbers(&replay)), (3, vec![0.0, 1.0, 2.0]));
    (3..6).for_each(|i| push(&mut replay, i));
    assert_eq!((replay.len(), numbers(&replay)), (4, vec![4.0, 5.0, 2.0, 3.0]));
    let last = replay.get(1).unwrap();
    assert_eq!((last.action, last.reward, last.discount), (&[5.5][..], 10.0, 0.9));
    assert_eq!(last.next_observation, [6.0, -6.0]);
    assert_eq!(replay.get(4), None);
}

#[test]
fn all_are_drawn_as_often() {
    let mut replay = ReplayBuffer::new(8, 2, 1).unwrap();
    (0..5).for_each(|i| push(&mut replay, i));
    let mut counts = [0; 5];
    for place in replay.sample(50_000, &mut Rng::new(3)).unwrap() {
        counts[place] += 1;
    }
    // Six standard deviations of a binomial distribution around 10,000.
    assert!(
        counts.iter().all(|count| (9_460..=10_540).contains(count)),
        "{counts:?}"
    );
}

#[test]
fn a_saved_buffer_goes_on_bit_for_bit() {
    for prioritized in [false, true] {
        let make = || {
            let replay = ReplayBuffer::new(7, 2, 1).unwrap();
            match prioritized {
                true => replay.prioritized(PriorityConfig::default()).unwrap(),
                false => replay,
            }
        };
        for pushed in [0, 3, 7, 18] {
            let (mut replay, mut other) = (make(), make());
            (0..pushed).for_each(|i| push(&mut replay, i));
            (0..5).for_each(|i| push(&mut other, 100 + i));
            let bytes = replay.state_dict().unwrap().to_bytes(&Default::default()).unwrap();
            other
                .load_state_dict(&StateDict::from_bytes(&bytes).unwrap().0)
                .unwrap();
            (50..54).for_each(|i| {
                push(&mut replay, i);
                push(&mut other, i);
            });
            assert_eq!(numbers(&replay), numbers(&other), "{pushed}");
            let drawn = |replay: &ReplayBuffer| replay.sample(20, &mut Rng::new(9)).unwrap();
            assert_eq!(drawn(&replay), drawn(&other), "{pushed}");
        }
    }
}

#[test]
fn states_of_others_are_refused() {
    let mut filled = ReplayBuffer::new(4, 2, 1).unwrap();
    (0..6).for_each(|i| push(&mut filled, i));
    let state = filled.state_dict().unwrap();
    let others = [
        ReplayBuffer::new(3, 2, 1),
        ReplayBuffer::new(8, 2, 1),
        ReplayBuffer::new(4, 3, 1),
        ReplayBuffer::new(4, 2, 1).and_then(|replay| replay.prioritized(PriorityConfig::default())),
    ];
    for other in others {
        let mut other = other.unwrap();
        let error = other.load_state_dict(&state).unwrap_err().to_string();
        assert!(
            error.contains("of other sizes, or is damaged") && other.is_empty(),
            "{error}"
        );
    }
    assert!(filled.load_state_dict(&StateDict::new()).is_err());
    assert_eq!(numbers(&filled), [4.0, 5.0, 2.0, 3.0]);
}

#[test]
fn bad_sizes_are_told() {
    for (capacity, observation, action) in [
        (0, 2, 1),
        (4, 0, 1),
        (4, 2, 0),
        (usize::MAX, 2, 1),
        (1 << 60, 2, 1),
        (4, 2, usize::MAX),
    ] {
        assert!(ReplayBuffer::new(capacity, observation, action).is_err(), "{capacity}");
    }
    let mut replay = ReplayBuffer::new(4, 2, 1).unwrap();
    let transition = Transition {
        observation: &[1.0],
        action: &[0.0],
        reward: 0.0,
        discount: 1.0,
        next_observation: &[1.0, 2.0],
    };
    let error = replay.push(&transition).unwrap_err().to_string();
    assert!(error.contains("1, 1 and 2 numbers is none of 2, 1 and 2"), "{error}");
    let odd = PriorityConfig { alpha: 1.5, beta: 0.4 };
    assert!(replay.prioritized(odd).is_err());
}
