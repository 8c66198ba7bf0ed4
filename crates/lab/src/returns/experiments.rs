//! The trainings, and their expected results.

use polygrad::rl::zoo::{self, EnvSpec, Preset};
use polygrad::rl::{MemoryConfig, MemoryKind};

/// A training with known results.
pub(super) struct Experiment {
    /// The environment and the name of the settings.
    pub(super) name: &'static str,
    settings: fn(&EnvSpec) -> polygrad::Result<Preset>,
    pub(super) figures: &'static [Figure],
}

/// A number that results from a training.
pub(super) struct Figure {
    pub(super) measure: Measure,
    /// The expected range.
    pub(super) wanted: (f64, f64),
    pub(super) judged: Judged,
    /// The published value.
    pub(super) published: &'static str,
}

#[derive(Clone, Copy)]
pub(super) enum Measure {
    /// The mean return of the episodes in the first this many steps.
    First(u64),
    /// The mean return of the last 100 episodes of the training.
    Last,
    /// The mean return of this many episodes with the likeliest actions.
    Greedy(usize),
    /// The share, in percent, of this many episodes with the likeliest actions that ended with a return above 0.
    Won(usize),
    /// The number of games that the solver wins against the likeliest actions, of all games that it may play, as both
    /// players.
    Lost,
}

/// Which numbers must be in the expected range.
pub(super) enum Judged {
    /// The mean over the seeds.
    Mean,
    /// Four of five seeds.
    Seeds,
    /// The mean over the seeds, within two standard errors of the difference from the published value. This is the
    /// standard error of the published value, which is the lower bound.
    Error(f64),
}

impl Experiment {
    /// The environment.
    ///
    /// # Errors
    /// If there is none of this name.
    pub(super) fn environment(&self) -> polygrad::Result<&'static EnvSpec> {
        zoo::find(self.name.split('/').next().unwrap_or_default())
    }

    /// The settings of the training.
    ///
    /// # Errors
    /// If the environment has no such settings.
    pub(super) fn settings(&self, known: &EnvSpec) -> polygrad::Result<Preset> {
        (self.settings)(known)
    }
}

impl Measure {
    pub(super) fn name(self) -> String {
        match self {
            Self::First(steps) => format!("episodes of the first {steps} steps"),
            Self::Last => "the last 100 episodes".to_owned(),
            Self::Greedy(episodes) => format!("{episodes} episodes, greedily"),
            Self::Lost => "games lost to the solver".to_owned(),
            Self::Won(episodes) => format!("{episodes} episodes, greedily: right, %"),
        }
    }
}

fn own(known: &EnvSpec) -> polygrad::Result<Preset> {
    known.preset(None, None)
}

fn clean_rl(known: &EnvSpec) -> polygrad::Result<Preset> {
    known.preset(Some("ppo"), Some("cleanrl"))
}

fn dqn_zoo(known: &EnvSpec) -> polygrad::Result<Preset> {
    known.preset(Some("dqn"), Some("zoo"))
}

fn dqn_clean_rl(known: &EnvSpec) -> polygrad::Result<Preset> {
    known.preset(Some("dqn"), Some("cleanrl"))
}

fn pqn(known: &EnvSpec) -> polygrad::Result<Preset> {
    known.preset(Some("pqn"), None)
}

/// The first settings of the algorithm SAC.
fn sac(known: &EnvSpec) -> polygrad::Result<Preset> {
    known.preset(Some("sac"), None)
}

fn sac_zoo(known: &EnvSpec) -> polygrad::Result<Preset> {
    known.preset(Some("sac"), Some("zoo"))
}

fn td3(known: &EnvSpec) -> polygrad::Result<Preset> {
    known.preset(Some("td3"), None)
}

fn without_memory(known: &EnvSpec) -> polygrad::Result<Preset> {
    let mut settings = own(known)?;
    settings.policy.memory = None;
    Ok(settings)
}

fn min_gru(known: &EnvSpec) -> polygrad::Result<Preset> {
    let mut settings = own(known)?;
    let size = settings.policy.memory.map_or(32, |memory| memory.hidden_size);
    settings.policy.memory = Some(MemoryConfig::new(MemoryKind::MinGru, size));
    Ok(settings)
}

/// At least this return in 100 episodes.
const fn greedy(least: f64, published: &'static str) -> Figure {
    Figure {
        measure: Measure::Greedy(100),
        wanted: (least, f64::INFINITY),
        judged: Judged::Seeds,
        published,
    }
}

/// For the last 100 episodes of a training: at least a published mean, given with its deviation over three seeds.
const fn last(mean: f64, deviation: f64, published: &'static str) -> Figure {
    /// The square root of the number of seeds.
    const ROOT: f64 = 1.732_050_807_568_877_2;
    Figure {
        measure: Measure::Last,
        wanted: (mean, f64::INFINITY),
        judged: Judged::Error(deviation / ROOT),
        published,
    }
}

/// Of 100 episodes: no less than a published mean of one policy, with the standard error of its episodes.
const fn like(mean: f64, error: f64, published: &'static str) -> Figure {
    Figure {
        measure: Measure::Greedy(100),
        wanted: (mean, f64::INFINITY),
        judged: Judged::Error(error),
        published,
    }
}

/// The percentage of mazes that are won, from `least` to `most`.
const fn turns_right(least: f64, most: f64) -> Figure {
    Figure {
        measure: Measure::Won(1000),
        wanted: (least, most),
        judged: Judged::Seeds,
        published: "",
    }
}

/// Sources of the published values: CleanRL, `docs/rl-algorithms/ppo.md`, `dqn.md` and `pqn.md`, returns of training,
/// three seeds; rl-zoo3, `benchmark.md`, one policy, its standard deviation over episodes.
pub(super) static EXPERIMENTS: [Experiment; 23] = [
    Experiment {
        name: "cartpole/cleanrl",
        settings: clean_rl,
        figures: &[
            Figure {
                measure: Measure::First(10_000),
                wanted: (37.0, 45.0),
                judged: Judged::Mean,
                published: "",
            },
            Figure {
                measure: Measure::Last,
                wanted: (475.0, f64::INFINITY),
                judged: Judged::Seeds,
                published: "490.0 ± 6.1",
            },
        ],
    },
    Experiment {
        name: "cartpole/zoo",
        settings: own,
        figures: &[greedy(490.0, "500.0 ± 0.0")],
    },
    Experiment {
        name: "cartpole/dqn-cleanrl",
        settings: dqn_clean_rl,
        figures: &[last(488.69, 16.11, "488.7 ± 16.1")],
    },
    Experiment {
        name: "cartpole/dqn-zoo",
        settings: dqn_zoo,
        figures: &[greedy(490.0, "500.0 ± 0.0")],
    },
    Experiment {
        name: "cartpole/pqn",
        settings: pqn,
        figures: &[last(495.13, 6.89, "495.1 ± 6.9")],
    },
    Experiment {
        name: "acrobot/cleanrl",
        settings: clean_rl,
        figures: &[Figure {
            measure: Measure::Last,
            wanted: (-91.0, -81.0),
            judged: Judged::Mean,
            published: "−86.4 ± 1.3",
        }],
    },
    Experiment {
        name: "acrobot/zoo",
        settings: own,
        figures: &[greedy(-85.0, "−73.5 ± 18.2")],
    },
    Experiment {
        name: "acrobot/dqn-cleanrl",
        settings: dqn_clean_rl,
        figures: &[last(-91.54, 7.2, "−91.5 ± 7.2")],
    },
    Experiment {
        name: "acrobot/dqn-zoo",
        settings: dqn_zoo,
        figures: &[greedy(-85.0, "−76.6 ± 11.8")],
    },
    Experiment {
        name: "acrobot/pqn",
        settings: pqn,
        figures: &[last(-95.63, 5.73, "−95.6 ± 5.7")],
    },
    Experiment {
        name: "mountain-car/cleanrl",
        settings: clean_rl,
        figures: &[Figure {
            measure: Measure::Last,
            wanted: (-200.0, -200.0),
            judged: Judged::Mean,
            published: "−200.0 ± 0.0",
        }],
    },
    Experiment {
        name: "mountain-car/zoo",
        settings: own,
        figures: &[greedy(-130.0, "−110.4 ± 19.5")],
    },
    Experiment {
        name: "pendulum/zoo",
        settings: own,
        figures: &[like(-172.2, 3.8, "−172.2 ± 104.2")],
    },
    Experiment {
        name: "pendulum/sac",
        settings: sac,
        figures: &[like(-157.0, 3.2, "−157.0 ± 88.7")],
    },
    Experiment {
        name: "pendulum/td3",
        settings: td3,
        figures: &[like(-151.9, 3.3, "−151.9 ± 90.0")],
    },
    Experiment {
        name: "mountain-car-continuous/zoo",
        settings: own,
        figures: &[greedy(85.0, "88.3 ± 2.6")],
    },
    Experiment {
        name: "mountain-car-continuous/sac-zoo",
        settings: sac_zoo,
        figures: &[greedy(94.0, "94.7 ± 1.1")],
    },
    Experiment {
        name: "mountain-car-continuous/sac",
        settings: sac,
        figures: &[greedy(94.0, "94.7 ± 1.1")],
    },
    Experiment {
        name: "mountain-car-continuous/td3",
        settings: td3,
        figures: &[greedy(93.0, "93.5 ± 0.1")],
    },
    Experiment {
        name: "t-maze/lstm",
        settings: own,
        figures: &[turns_right(95.0, 100.0)],
    },
    Experiment {
        name: "t-maze/mingru",
        settings: min_gru,
        figures: &[turns_right(95.0, 100.0)],
    },
    Experiment {
        name: "t-maze/mlp",
        settings: without_memory,
        figures: &[turns_right(45.0, 55.0)],
    },
    Experiment {
        name: "tic-tac-toe/own",
        settings: own,
        figures: &[Figure {
            measure: Measure::Lost,
            wanted: (0.0, 0.0),
            judged: Judged::Mean,
            published: "",
        }],
    },
];
