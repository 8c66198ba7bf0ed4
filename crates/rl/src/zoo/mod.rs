//! The environments that are known by name, each with settings that solve it.
//!
//! Your own environment needs no name: make a [`Vectorized`] of it, and pass it to [`Ppo`](crate::Ppo),
//! [`Dqn`](crate::Dqn) or [`Sac`](crate::Sac).
//!
//! ```
//! use polygrad_reference::Reference;
//! use polygrad_rl::zoo::{self, Stepping};
//! use polygrad_tensor::Device;
//!
//! # fn main() -> polygrad_tensor::Result<()> {
//! let cartpole = zoo::find("cartpole")?;
//! let mut preset = cartpole.preset(Some("dqn"), Some("cleanrl"))?;
//! *preset.algorithm.seed_mut() = 1;
//! let envs = cartpole.make(preset.num_envs, Stepping::Serial)?;
//! let device = Device::<Reference>::default().into_any();
//! let agent = preset.algorithm.agent(envs, &preset.policy, &device, None)?;
//! assert_eq!((agent.algorithm(), agent.total_steps()), ("DQN", 500_000));
//! # Ok(())
//! # }
//! ```

mod algorithm;
mod presets;

use polygrad_core::{Error, Result};
use polygrad_tensor::Device;

use crate::{
    Acrobot, CartPole, ConnectFour, Env, Game, GridWorld, MountainCar, MountainCarContinuous, Pendulum, Play, Policy,
    PolicyConfig, Render, SelfPlay, SelfPlayConfig, TMaze, TicTacToe, TimeLimit, VectorEnv, Vectorized,
};
pub use algorithm::{Algorithm, Lesson};
pub use presets::Preset;
#[cfg(feature = "gym")]
pub(crate) use presets::presets_like;

/// An environment that is known by name.
pub struct EnvSpec {
    /// The name on the command line.
    pub name: &'static str,
    /// The task in one line.
    pub description: &'static str,
    /// The most steps of an episode, if there is a limit.
    pub max_episode_steps: Option<usize>,
    /// The mean return from which the environment counts as solved, if Gymnasium defines one.
    pub reward_threshold: Option<f64>,
    /// The meaning of each number of an observation; for images, of each channel.
    pub observations: &'static [&'static str],
    /// The meaning of each choice, or of each number of an action.
    pub actions: &'static [&'static str],
    pub(crate) factory: &'static dyn Factory,
}

/// The threads in which environments step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stepping {
    /// In the caller's thread: [`Vectorized::new`].
    #[default]
    Serial,
    /// In this number of threads, including the caller's: [`Vectorized::threaded`].
    Threaded(usize),
    /// In this number of threads besides the caller's, while the caller computes: [`Vectorized::asynchronous`].
    Asynchronous(usize),
}

impl EnvSpec {
    /// Makes `num_envs` environments.
    ///
    /// # Errors
    /// If `num_envs` or the number of threads is 0, or a thread cannot be started.
    pub fn make(&self, num_envs: usize, stepping: Stepping) -> Result<Box<dyn VectorEnv>> {
        self.factory.vectorize(num_envs, stepping)
    }

    /// A policy that plays in one environment.
    ///
    /// # Errors
    /// Those of [`Play::new`].
    pub fn play<'p>(&self, policy: &'p dyn Policy, seed: u64) -> Result<Play<'p>> {
        self.factory.play(Some(policy), seed)
    }

    /// One environment whose actions are [given](Play::step_by), such as those of a policy that played with this seed.
    ///
    /// # Errors
    /// If memory runs out; the failures of the environment if it is another program.
    pub fn replay(&self, seed: u64) -> Result<Play<'static>> {
        self.factory.play(None, seed)
    }

    /// The two-player game of this environment.
    ///
    /// # Errors
    /// If it is not a game.
    pub fn game(&self) -> Result<Box<dyn Game>> {
        self.factory.game().unwrap_or_else(|| {
            Err(Error::invalid(format!("{} is no game for two", self.name))
                .with_hint("tic-tac-toe and connect-four are"))
        })
    }

    /// A training of a new policy in this two-player game, against a pool of opponents.
    ///
    /// # Errors
    /// If it is not a game; those of [`SelfPlay::new`].
    pub fn self_play(
        &self,
        num_envs: usize,
        config: &SelfPlayConfig,
        (algorithm, policy): (&Algorithm, &PolicyConfig),
        device: &Device,
    ) -> Result<SelfPlay> {
        let (by, of, on) = (algorithm.clone(), policy.clone(), device.clone());
        let make = move || by.policy(&of, &on);
        let learn = |games| algorithm.agent(games, policy, device, None);
        SelfPlay::new(&*self.game()?, num_envs, config.clone(), make, learn)
    }

    /// Settings to train a policy with; at least one.
    pub fn presets(&self) -> Vec<Preset> {
        self.factory.presets()
    }

    /// The first settings with this algorithm and name; `None` matches any.
    ///
    /// # Errors
    /// If there are none; the error lists those that exist.
    pub fn preset(&self, algorithm: Option<&str>, name: Option<&str>) -> Result<Preset> {
        let fits = |preset: &&Preset| {
            algorithm.is_none_or(|wanted| wanted == preset.algorithm.name())
                && name.is_none_or(|wanted| wanted == preset.name)
        };
        let mut all = self.presets();
        if let Some(learner) = algorithm.and_then(Algorithm::of_others) {
            all.truncate(1);
            all.iter_mut()
                .for_each(|preset| preset.learn_from_others(learner.clone()));
        }
        all.iter().find(fits).cloned().ok_or_else(|| {
            let of = algorithm.map_or(String::new(), |algorithm| format!(" of {algorithm}"));
            let called = name.map_or(String::new(), |name| format!(" called {name:?}"));
            let names: Vec<String> = all
                .iter()
                .map(|x| format!("{} {}", x.algorithm.name(), x.name))
                .collect();
            Error::invalid(format!("there are no settings{of}{called} for {}", self.name))
                .with_hint(format!("there are: {}", names.join(", ")))
        })
    }
}

impl Preset {
    /// Keeps the network, for an algorithm whose settings do not depend on the environment.
    fn learn_from_others(&mut self, algorithm: Algorithm) {
        (self.policy.memory, self.policy.shared) = (None, false);
        (self.name, self.algorithm, self.self_play) = ("own", algorithm, None);
    }
}

/// Makes environments of one kind.
pub(crate) trait Factory: Send + Sync {
    fn presets(&self) -> Vec<Preset>;
    fn vectorize(&self, num_envs: usize, stepping: Stepping) -> Result<Box<dyn VectorEnv>>;
    fn play<'p>(&self, policy: Option<&'p dyn Policy>, seed: u64) -> Result<Play<'p>>;
    /// The two-player game, if it is one.
    fn game(&self) -> Option<Result<Box<dyn Game>>> {
        None
    }
}

struct Of<E, const A: usize>(fn() -> Result<E>, fn() -> Vec<Preset>);

impl<E: Env<A> + Render + Clone + Send + 'static, const A: usize> Factory for Of<E, A> {
    fn presets(&self) -> Vec<Preset> {
        (self.1)()
    }

    fn vectorize(&self, num_envs: usize, stepping: Stepping) -> Result<Box<dyn VectorEnv>> {
        let env = (self.0)()?;
        let make = |_| env.clone();
        Ok(Box::new(match stepping {
            Stepping::Serial => Vectorized::new(make, num_envs)?,
            Stepping::Threaded(threads) => Vectorized::threaded(make, num_envs, threads)?,
            Stepping::Asynchronous(threads) => Vectorized::asynchronous(make, num_envs, threads)?,
        }))
    }

    fn play<'p>(&self, policy: Option<&'p dyn Policy>, seed: u64) -> Result<Play<'p>> {
        Play::staged((self.0)()?, policy, seed)
    }
}

/// A two-player game.
struct Duel<E>(Of<E, 2>);

impl<E: Env<2> + Render + Clone + Send + 'static> Factory for Duel<E> {
    fn presets(&self) -> Vec<Preset> {
        self.0.presets()
    }

    fn vectorize(&self, num_envs: usize, stepping: Stepping) -> Result<Box<dyn VectorEnv>> {
        self.0.vectorize(num_envs, stepping)
    }

    fn play<'p>(&self, policy: Option<&'p dyn Policy>, seed: u64) -> Result<Play<'p>> {
        self.0.play(policy, seed)
    }

    fn game(&self) -> Option<Result<Box<dyn Game>>> {
        Some((self.0.0)().map(|game| Box::new(game) as Box<dyn Game>))
    }
}

/// All environments.
pub fn all() -> &'static [EnvSpec] {
    &ENVS
}

/// The environment of a name; with the feature `gym` those of Gymnasium, too, behind
#[cfg_attr(feature = "gym", doc = "[`gym:`](crate::gym::find),")]
#[cfg_attr(not(feature = "gym"), doc = "`gym:`,")]
/// as they are made without further settings.
///
/// # Errors
/// If there is none; the error lists those that exist.
pub fn find(name: &str) -> Result<&'static EnvSpec> {
    #[cfg(feature = "gym")]
    if let Some(name) = name.strip_prefix(crate::gym::PREFIX) {
        return crate::gym::find(name, &crate::gym::GymConfig::default());
    }
    ENVS.iter().find(|spec| spec.name == name).ok_or_else(|| {
        let names: Vec<&str> = ENVS.iter().map(|spec| spec.name).collect();
        Error::invalid(format!("there is no environment {name:?}")).with_hint(format!("there are {}", names.join(", ")))
    })
}

/// Steps from the sign to the junction.
const CORRIDOR: usize = 10;
const MAZE_STEPS: usize = 100;
/// Fields along a side.
const GRID: usize = 8;
const GRID_STEPS: usize = 100;

static ENVS: [EnvSpec; 9] = [
    EnvSpec {
        name: "cartpole",
        description: "balance a pole on a cart",
        max_episode_steps: Some(500),
        reward_threshold: Some(475.0),
        observations: &["cart position", "cart velocity", "pole angle", "pole angular velocity"],
        actions: &["push left", "push right"],
        factory: &Of::<_, 1>(|| Ok(CartPole::v1()), presets::cart_pole),
    },
    EnvSpec {
        name: "acrobot",
        description: "swing two links up by a motor between them",
        max_episode_steps: Some(500),
        reward_threshold: Some(-100.0),
        observations: &[
            "cosine of angle 1",
            "sine of angle 1",
            "cosine of angle 2",
            "sine of angle 2",
            "angular velocity 1",
            "angular velocity 2",
        ],
        actions: &["torque -1", "torque 0", "torque 1"],
        factory: &Of::<_, 1>(|| Ok(Acrobot::v1()), presets::acrobot),
    },
    EnvSpec {
        name: "mountain-car",
        description: "drive out of a valley with a motor too weak to climb at once",
        max_episode_steps: Some(200),
        reward_threshold: Some(-110.0),
        observations: &["position", "velocity"],
        actions: &["push left", "coast", "push right"],
        factory: &Of::<_, 1>(|| Ok(MountainCar::v0()), presets::mountain_car),
    },
    EnvSpec {
        name: "mountain-car-continuous",
        description: "the same with a force of any size, which costs",
        max_episode_steps: Some(999),
        reward_threshold: Some(90.0),
        observations: &["position", "velocity"],
        actions: &["force"],
        factory: &Of::<_, 1>(|| Ok(MountainCarContinuous::v0()), presets::mountain_car_continuous),
    },
    EnvSpec {
        name: "pendulum",
        description: "swing a pendulum up and keep it there",
        max_episode_steps: Some(200),
        reward_threshold: None,
        observations: &["cosine of angle", "sine of angle", "angular velocity"],
        actions: &["torque"],
        factory: &Of::<_, 1>(|| Ok(Pendulum::v1()), presets::pendulum),
    },
    EnvSpec {
        name: "t-maze",
        description: "remember a sign until the end of a corridor",
        max_episode_steps: Some(MAZE_STEPS),
        reward_threshold: None,
        observations: &["bit 1", "bit 2", "bit 3"],
        actions: &["north", "east", "south", "west"],
        factory: &Of::<_, 1>(|| TimeLimit::new(TMaze::new(CORRIDOR)?, MAZE_STEPS), presets::t_maze),
    },
    EnvSpec {
        name: "grid-world",
        description: "walk to a target on a square of fields",
        max_episode_steps: Some(GRID_STEPS),
        reward_threshold: None,
        observations: &["agent column", "agent row", "target column", "target row"],
        actions: &["right", "up", "left", "down"],
        factory: &Of::<_, 1>(
            || TimeLimit::new(GridWorld::new(GRID)?, GRID_STEPS),
            presets::grid_world,
        ),
    },
    EnvSpec {
        name: "connect-four",
        description: "bring four discs into a line before the other player does",
        max_episode_steps: Some(42),
        reward_threshold: None,
        observations: &["own discs", "other discs", "own turn"],
        actions: &[
            "column 1", "column 2", "column 3", "column 4", "column 5", "column 6", "column 7",
        ],
        factory: &Duel(Of(|| Ok(ConnectFour::new()), presets::connect_four)),
    },
    EnvSpec {
        name: "tic-tac-toe",
        description: "bring three marks into a line before the other player does",
        max_episode_steps: Some(9),
        reward_threshold: None,
        observations: &["own marks", "other marks", "own turn"],
        actions: &[
            "top left",
            "top",
            "top right",
            "left",
            "middle",
            "right",
            "bottom left",
            "bottom",
            "bottom right",
        ],
        factory: &Duel(Of(|| Ok(TicTacToe::new()), presets::tic_tac_toe)),
    },
];
