//! Learning a two-player game against earlier versions of the policy.

mod config;
mod contest;
mod game;
mod matches;
mod pool;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use polygrad_core::Result;
use polygrad_nn::{Checkpoint, Module};
use polygrad_tensor::Error;
use polygrad_train::{Learner, Measured};

pub use config::{Scripted, SelfPlayConfig};
pub use contest::{Contest, Outcome, Rival, contest, contest_in_full};
pub use game::Game;
pub use pool::Standing;

use crate::{Agent, Episode, Policy, VectorEnv};
use matches::Matches;
use pool::{Brain, Pool, unfit};

/// The key of the pool's state, except weights, in a checkpoint.
const RECORD: &str = "self_play";

type Make = Box<dyn Fn() -> Result<Box<dyn Policy>>>;

/// Has an [`Agent`] learn a two-player game. It plays each side in turn, against opponents of a pool: scripts,
/// snapshots of its own policy, and the policy itself.
///
/// Each game is against one of them, and they sample their moves. Elo ratings of all are computed from the games of the
/// training. Games, opponents, ratings and snapshots are in the checkpoint, and a training that is resumed ends as if
/// it had not been stopped, bit for bit.
///
/// ```
/// use polygrad_reference::Reference;
/// use polygrad_rl::zoo::Algorithm;
/// use polygrad_rl::{Agent, PpoConfig, SelfPlay, SelfPlayConfig, TicTacToe, zoo};
/// use polygrad_tensor::Device;
/// use polygrad_train::Learner;
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::<Reference>::default().into_any();
/// let preset = zoo::find("tic-tac-toe")?.preset(None, None)?;
/// let algorithm = Algorithm::Ppo(PpoConfig { total_steps: 64, num_steps: 8, ..PpoConfig::default() });
/// let (policy, learn) = (preset.policy.clone(), algorithm.clone());
/// let make = { let device = device.clone(); move || algorithm.policy(&policy, &device) };
/// let mut agent = SelfPlay::new(&TicTacToe::new(), 4, SelfPlayConfig::default(), make, |games| {
///     learn.agent(games, &preset.policy, &device, None)
/// })?;
/// while !agent.is_done() {
///     agent.advance()?;
/// }
/// for standing in agent.standings() {
///     println!("{}: {:.0}", standing.name, standing.rating);
/// }
/// # Ok(())
/// # }
/// ```
pub struct SelfPlay {
    agent: Box<dyn Agent>,
    pool: Rc<RefCell<Pool>>,
    make: Make,
    names: Vec<String>,
}

impl SelfPlay {
    /// A training that has not begun, in `num_envs` games at once. `make` creates policies like the one that the agent
    /// trains; `learn` creates the agent, for single-player environments.
    ///
    /// # Errors
    /// If an option is invalid, a script cannot play the game, or a policy has memory; those of `make` and `learn`.
    pub fn new(
        game: &dyn Game,
        num_envs: usize,
        config: SelfPlayConfig,
        make: impl Fn() -> Result<Box<dyn Policy>> + 'static,
        learn: impl FnOnce(Box<dyn VectorEnv>) -> Result<Box<dyn Agent>>,
    ) -> Result<Self> {
        let pool = Pool::new(config, game)?;
        let (names, actions) = (pool.names(), pool.actions().clone());
        let pool = Rc::new(RefCell::new(pool));
        let agent = learn(Box::new(Matches::new(game, num_envs, Rc::clone(&pool))?))?;
        pool.borrow_mut().set_itself(Brain::new(make()?, &actions, true)?);
        Ok(Self {
            agent,
            pool,
            make: Box::new(make),
            names,
        })
    }

    fn snapshot(&self) -> Result<()> {
        let steps = self.agent.steps();
        if !self.pool.borrow().wants_snapshot(steps) {
            return Ok(());
        }
        let policy = (self.make)()?;
        policy.load_state_dict(&self.agent.trained_policy()?.state_dict()?, true)?;
        let mut pool = self.pool.borrow_mut();
        let brain = Brain::new(policy, pool.actions(), true)?;
        pool.add(brain, steps);
        Ok(())
    }
}

impl Learner for SelfPlay {
    fn unit(&self) -> &'static str {
        self.agent.unit()
    }

    /// The agent's metrics, followed by `elo`, the `score` of the last games against the pool (about 200; a draw is
    /// half a point), and the Elo of each place in the pool.
    fn metrics(&self) -> Vec<&str> {
        let own = self.names.iter().map(String::as_str);
        self.agent.metrics().into_iter().chain(own).collect()
    }

    fn steps(&self) -> u64 {
        self.agent.steps()
    }

    fn is_done(&self) -> bool {
        self.agent.is_done()
    }

    fn advance(&mut self) -> Result<Measured> {
        let weights = self.agent.trained_policy()?.state_dict()?;
        self.pool.borrow_mut().follow(&weights)?;
        let mut measured = self.agent.advance()?;
        self.snapshot()?;
        measured.metrics.extend(self.pool.borrow().numbers());
        Ok(measured)
    }

    fn watch(&mut self, stop: Option<&Arc<AtomicBool>>) -> bool {
        self.agent.watch(stop)
    }

    /// Its own Elo, since returns depend on the opponents.
    fn score(&self) -> Option<f64> {
        self.agent.score().map(|_| self.pool.borrow().rating())
    }

    fn checkpoint(&self) -> Result<Checkpoint> {
        let checkpoint = self.agent.checkpoint()?;
        let mut config = checkpoint.config.clone();
        let (checkpoint, record) = self.pool.borrow().save(checkpoint)?;
        config[RECORD] = record;
        Ok(checkpoint.with_config(config))
    }

    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<Vec<String>> {
        let record = checkpoint.config.get(RECORD);
        let record = record.ok_or_else(|| unfit("it has no pool of opponents"))?;
        let notices = self.agent.restore(checkpoint)?;
        self.pool.borrow_mut().restore(checkpoint, record, &self.make)?;
        Ok(notices)
    }

    fn take_notices(&mut self) -> Vec<String> {
        self.agent.take_notices()
    }

    fn survives(&self, error: &Error) -> bool {
        self.agent.survives(error)
    }

    fn model(&self) -> Option<&dyn Module> {
        self.agent.model()
    }

    fn save_model(&self, path: &Path, metadata: &BTreeMap<String, String>) -> Result<()> {
        self.agent.save_model(path, metadata)
    }
}

impl Agent for SelfPlay {
    fn algorithm(&self) -> &'static str {
        self.agent.algorithm()
    }

    fn total_steps(&self) -> u64 {
        self.agent.total_steps()
    }

    fn steps_per_advance(&self) -> u64 {
        self.agent.steps_per_advance()
    }

    fn num_parameters(&self) -> usize {
        self.agent.num_parameters()
    }

    fn mean_return(&self) -> Option<f64> {
        self.agent.mean_return()
    }

    fn episodes(&self) -> &[Episode] {
        self.agent.episodes()
    }

    fn trained_policy(&self) -> Result<Box<dyn Policy + '_>> {
        self.agent.trained_policy()
    }

    fn standings(&self) -> Vec<Standing> {
        self.pool.borrow().standings()
    }
}
