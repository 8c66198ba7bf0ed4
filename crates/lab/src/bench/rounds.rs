//! Contestants take turns, so that temporary disturbances of the machine affect all of them.

use std::thread;
use std::time::{Duration, Instant};

use super::contestant::Contestant;

/// The step whose loss is compared, the same for all contestants.
const LOSS_AT: usize = 5;
/// The shortest sample in seconds, of at least one step: shorter ones are below the clock's useful resolution.
const SAMPLE: f64 = 2e-4;
/// The least number of steps.
const LEAST: usize = 30;
/// The most time for them, as a multiple of the requested seconds.
const MAX_OVERTIME: f64 = 5.0;

/// The rhythm of the turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The length of a turn in seconds, unless a single step takes longer.
    turn: f64,
    /// The pause before each turn if there are several contestants.
    pause: Duration,
}

impl Pace {
    /// For contestants with this many threads. Worker threads of the previous contestant may spin on a core while they
    /// wait for work; those of OpenMP do so for some 20 ms.
    pub(crate) fn new(threads: usize) -> Self {
        let (turn, pause) = if threads == 1 { (5e-3, 3) } else { (2e-2, 40) };
        Self {
            turn,
            pause: Duration::from_millis(pause),
        }
    }
}

/// The outcome of a contestant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// Its name and version.
    pub(crate) name: String,
    /// Its results, or the reason why there are none.
    pub(crate) figures: Result<Figures, String>,
}

/// Seconds per step, over all samples.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figures {
    pub(crate) median: f64,
    pub(crate) minimum: f64,
    /// The lower and upper quartile of the samples.
    pub(crate) quartiles: [f64; 2],
    /// The number of timed steps.
    pub(crate) steps: usize,
    /// The loss of the fifth step, if the steps train.
    pub(crate) loss: Option<f64>,
}

impl Figures {
    fn of(mut times: Vec<f64>, steps: usize, loss: Option<f64>) -> Result<Self, String> {
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied();
        match (at(0.0), at(0.25), at(0.5), at(0.75)) {
            (Some(minimum), Some(first), Some(median), Some(third)) => Ok(Self {
                median,
                minimum,
                quartiles: [first, third],
                steps,
                loss,
            }),
            _ => Err("no step was timed".to_owned()),
        }
    }

    /// The interquartile range relative to the median.
    pub(crate) fn spread(&self) -> f64 {
        (self.quartiles[1] - self.quartiles[0]) / self.median
    }
}

/// Times a case for about `seconds` per contestant.
pub(crate) fn measure(case: &str, contestants: &mut [&mut dyn Contestant], pace: Pace, seconds: f64) -> Vec<Outcome> {
    let several = contestants.len() > 1;
    let mut racers: Vec<Racer> = contestants
        .iter_mut()
        .map(|contestant| Racer::new(&mut **contestant, case, pace, seconds))
        .collect();
    while racers.iter().any(|racer| !racer.done(seconds)) {
        for racer in &mut racers {
            if several {
                thread::sleep(pace.pause);
            }
            racer.turn();
        }
    }
    racers.into_iter().map(Racer::finish).collect()
}

/// A contestant during the measurement.
struct Racer<'a> {
    contestant: &'a mut dyn Contestant,
    /// Samples per turn, and steps per sample.
    turn: (usize, usize),
    times: Vec<f64>,
    spent: f64,
    loss: Option<f64>,
    failure: Option<String>,
}

impl<'a> Racer<'a> {
    /// Prepares the case and warms up.
    fn new(contestant: &'a mut dyn Contestant, case: &str, pace: Pace, seconds: f64) -> Self {
        let mut racer = Self {
            contestant,
            turn: (1, 1),
            times: Vec::new(),
            spent: 0.0,
            loss: None,
            failure: None,
        };
        racer.failure = racer.warm_up(case, pace, seconds.min(1.0) / 4.0).err();
        racer
    }

    fn warm_up(&mut self, case: &str, pace: Pace, seconds: f64) -> Result<(), String> {
        self.contestant.case(case)?;
        self.loss = self.contestant.run(1, LOSS_AT)?.loss;
        let start = Instant::now();
        loop {
            let took = self.contestant.run(2, self.turn.1)?.seconds;
            let step = took.into_iter().fold(f64::INFINITY, f64::min).max(1e-9);
            let steps = (SAMPLE / step).ceil().max(1.0);
            self.turn = ((pace.turn / (step * steps)).max(1.0) as usize, steps as usize);
            if start.elapsed().as_secs_f64() >= seconds {
                return Ok(());
            }
        }
    }

    fn done(&self, seconds: f64) -> bool {
        let enough = self.spent >= seconds && self.times.len() * self.turn.1 >= LEAST;
        self.failure.is_some() || enough || self.spent >= MAX_OVERTIME * seconds
    }

    fn turn(&mut self) {
        if self.failure.is_some() {
            return;
        }
        let start = Instant::now();
        match self.contestant.run(self.turn.0, self.turn.1) {
            Ok(times) => self.times.extend(times.seconds),
            Err(reason) => self.failure = Some(reason),
        }
        self.spent += start.elapsed().as_secs_f64();
    }

    fn finish(self) -> Outcome {
        let steps = self.times.len() * self.turn.1;
        Outcome {
            name: self.contestant.name(),
            figures: match self.failure {
                Some(reason) => Err(reason),
                None => Figures::of(self.times, steps, self.loss),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::contestant::{Times, time};
    use super::*;

    /// A contestant with steps of a given duration, which records its turns.
    struct Sleeper<'a>(&'static str, Duration, &'a std::cell::RefCell<String>);

    impl Contestant for Sleeper<'_> {
        fn name(&self) -> String {
            self.0.to_owned()
        }

        fn case(&mut self, name: &str) -> Result<(), String> {
            self.2.borrow_mut().clear();
            match name {
                "both" => Ok(()),
                _ => Err(format!("{name} is not there")),
            }
        }

        fn run(&mut self, samples: usize, steps: usize) -> Result<Times, String> {
            self.2.borrow_mut().push_str(self.0);
            let step = || {
                thread::sleep(self.1);
                Ok(Some(0.5))
            };
            time(samples, steps, step, || Ok(()))
        }
    }

    #[test]
    fn turns_alternate_and_figures_are_per_step() {
        let turns = std::cell::RefCell::default();
        let mut fast = Sleeper("a", Duration::from_micros(50), &turns);
        let mut slow = Sleeper("b", Duration::from_millis(7), &turns);
        let outcomes = measure("both", &mut [&mut fast, &mut slow], Pace::new(1), 0.5);
        let [a, b] = outcomes.map_to();
        assert!(a.median >= 5e-5 && b.minimum >= 7e-3 && b.median > a.median);
        // On a busy machine a turn takes long.
        assert!(a.steps >= 3 && b.steps >= 3);
        assert_eq!(a.loss, Some(0.5));
        let turns = turns.borrow();
        assert!(turns.ends_with("ababab"), "{turns}");
    }

    #[test]
    fn one_that_cannot_does_not_stop_the_others() {
        let turns = std::cell::RefCell::default();
        let mut only = Sleeper("a", Duration::ZERO, &turns);
        let outcomes = measure("none", &mut [&mut only], Pace::new(1), 0.01);
        assert_eq!(outcomes[0].figures, Err("none is not there".to_owned()));
    }

    #[test]
    fn quartiles_and_median() {
        let figures = Figures::of(vec![4.0, 1.0, 3.0, 2.0], 4, None).unwrap();
        assert_eq!(
            (figures.minimum, figures.median, figures.quartiles),
            (1.0, 3.0, [2.0, 4.0])
        );
        assert!(Figures::of(Vec::new(), 0, None).is_err());
    }

    trait Both {
        fn map_to(self) -> [Figures; 2];
    }

    impl Both for Vec<Outcome> {
        fn map_to(self) -> [Figures; 2] {
            let figures: Vec<Figures> = self.into_iter().map(|outcome| outcome.figures.unwrap()).collect();
            figures.try_into().unwrap()
        }
    }
}
