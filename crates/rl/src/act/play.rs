//! Plays episodes to be watched.

use polygrad_core::{Error, Result, Rng};

use super::evaluate::evaluation_seed;
use crate::fault::not_finite;
use crate::hash::Hash;
use crate::vector::check_len;
use crate::{Canvas, Env, Player, Policy, Render, Space, Step, episode_rng};

/// A policy that plays episode after episode in one environment, whose state can be inspected after each step.
///
/// ```
/// use polygrad_reference::Reference;
/// use polygrad_rl::{ActionSpace, ActorCritic, CartPole, Play, PolicyConfig};
/// use polygrad_tensor::Device;
///
/// # fn main() -> polygrad_tensor::Result<()> {
/// let device = Device::<Reference>::default().into_any();
/// let policy = ActorCritic::new(&PolicyConfig::mlp(4, ActionSpace::Discrete(2)), &device)?;
/// let mut play = Play::new(CartPole::v1(), &policy, 0)?;
/// play.reset()?;
/// while !play.step()? {
///     let picture = play.picture(600, 400);
///     // … show it.
///     # assert_eq!(picture.pixels().len(), 600 * 400);
/// }
/// println!("a return of {}", play.returns()[0]);
/// # Ok(())
/// # }
/// ```
pub struct Play<'p> {
    scene: Box<dyn Scene>,
    /// `None` if the caller gives the actions.
    player: Option<Player<'p>>,
    action_space: Space,
    seed: u64,
    episode: u64,
    rng: Rng,
    observations: Vec<f32>,
    actions: Vec<f32>,
    /// Empty if all actions are allowed.
    masks: Vec<bool>,
    returns: Vec<f64>,
    steps: usize,
    /// Whether an episode is running.
    running: bool,
}

impl<'p> Play<'p> {
    /// Plays the likeliest actions. The episodes are those of environment 0 in an [evaluation](crate::evaluate()) with
    /// this seed.
    ///
    /// # Errors
    /// When the policy has no parameters, or memory runs out.
    pub fn new<E: Env<A> + Render + 'static, const A: usize>(
        env: E,
        policy: &'p dyn Policy,
        seed: u64,
    ) -> Result<Self> {
        Self::staged(env, Some(policy), seed)
    }

    pub(crate) fn staged<E: Env<A> + Render + 'static, const A: usize>(
        env: E,
        policy: Option<&'p dyn Policy>,
        seed: u64,
    ) -> Result<Self> {
        let (observation, action) = (env.observation_space(), env.action_space());
        let scene = Staged::<E, A> {
            env,
            action: action.clone(),
        };
        Self::of(Box::new(scene), policy, seed, (&observation, &action))
    }

    /// Plays in a scene with these observation and action spaces. Without a policy, the actions are
    /// [given](Self::step_by).
    pub(crate) fn of(
        scene: Box<dyn Scene>,
        policy: Option<&'p dyn Policy>,
        seed: u64,
        (observation, action): (&Space, &Space),
    ) -> Result<Self> {
        let agents = scene.agents();
        let masks = if scene.is_masked() {
            agents * action.flat_len()
        } else {
            0
        };
        Ok(Self {
            player: policy
                .map(|policy| Player::new(policy, observation, action, agents))
                .transpose()?,
            action_space: action.clone(),
            seed: evaluation_seed(seed),
            episode: 0,
            rng: Rng::new(0),
            observations: vec![0.0; agents * observation.len()],
            actions: vec![0.0; agents * action.len()],
            masks: vec![true; masks],
            returns: vec![0.0; agents],
            steps: 0,
            running: false,
            scene,
        })
    }

    /// Samples actions, as in training.
    #[must_use]
    pub fn sampled(mut self) -> Self {
        self.player = self.player.map(|player| player.sampled(Rng::new(self.seed)));
        self
    }

    /// Begins the next episode.
    ///
    /// # Errors
    /// If an observation or a mask is invalid; the failures of the environment if it is another program.
    pub fn reset(&mut self) -> Result<()> {
        self.rng = episode_rng(self.seed, 0, self.episode);
        self.episode += 1;
        self.returns.fill(0.0);
        self.steps = 0;
        let reset = self.scene.reset(&mut self.rng, &mut self.observations);
        reset.map_err(|what| self.fault(&what))?;
        if let Some(player) = &mut self.player {
            player.begin(&vec![true; self.returns.len()])?;
        }
        self.running = true;
        self.look()
    }

    /// Takes a step and returns whether it ended the episode.
    ///
    /// # Errors
    /// If no episode is running; those of the policy and of [`reset`](Self::reset).
    pub fn step(&mut self) -> Result<bool> {
        self.must_run()?;
        let masks = (!self.masks.is_empty()).then_some(&self.masks[..]);
        let Some(player) = &mut self.player else {
            return Err(Error::invalid("there is no policy that acts").with_hint("give the actions, by `step_by`"));
        };
        player.act(&self.observations, masks, &mut self.actions)?;
        self.advance()
    }

    /// Takes a step with these actions instead of the policy's and returns whether it ended the episode. The actions
    /// have the form that [`actions`](Self::actions) returns.
    ///
    /// # Errors
    /// If no episode is running, if an action is invalid, and those of [`reset`](Self::reset).
    pub fn step_by(&mut self, actions: &[f32]) -> Result<bool> {
        self.must_run()?;
        check_len("actions", actions.len(), self.actions.len())?;
        let (width, entries) = (self.action_space.len(), self.action_space.flat_len());
        for (at, own) in actions.chunks(width).enumerate() {
            let masks = self.masks.get(at * entries..(at + 1) * entries);
            let is_allowed = masks.is_none_or(|masks| self.action_space.allows(masks, own));
            if !self.action_space.contains(own) || !is_allowed {
                return Err(Error::invalid(format!("the action {own:?} is not allowed")));
            }
        }
        self.actions.copy_from_slice(actions);
        self.advance()
    }

    fn must_run(&self) -> Result<()> {
        match self.running {
            true => Ok(()),
            false => Err(Error::invalid("there is no episode to go on with").with_hint("call `reset` first")),
        }
    }

    fn advance(&mut self) -> Result<bool> {
        let (observations, returns) = (&mut self.observations, &mut self.returns);
        let stepped = self.scene.step(&self.actions, &mut self.rng, observations, returns);
        self.steps += 1;
        let ended = stepped.map_err(|what| self.fault(&what))?;
        self.running = !ended;
        self.look()?;
        Ok(ended)
    }

    /// Checks the observations and asks for masks.
    fn look(&mut self) -> Result<()> {
        let fault = if !self.observations.iter().all(|x| x.is_finite()) {
            Err(not_finite(&self.observations))
        } else if self.running && !self.masks.is_empty() {
            self.scene.ask_masks(&mut self.masks)
        } else {
            Ok(())
        };
        fault.map_err(|what| self.fault(&what))
    }

    fn fault(&self, what: &str) -> Error {
        Error::invalid(format!("the environment {what} (step {})", self.steps))
    }

    /// Checks whether the environment has pictures.
    ///
    /// # Errors
    /// The reason why there are none, if the environment is another program.
    pub fn drawable(&self) -> Result<()> {
        match self.scene.undrawable() {
            Some(why) => {
                let message = format!("the environment cannot be drawn: {why}");
                Err(Error::unsupported(message).with_hint("look at its steps in words"))
            }
            None => Ok(()),
        }
    }

    /// The action space of one agent.
    pub fn action_space(&self) -> &Space {
        &self.action_space
    }

    /// The last actions as they were given to the environment, agents one after another.
    pub fn actions(&self) -> &[f32] {
        &self.actions
    }

    /// The current observations, agents one after another.
    pub fn observations(&self) -> &[f32] {
        &self.observations
    }

    /// A fingerprint of all bits of the observations and of the returns so far; the same in every build.
    pub fn fingerprint(&self) -> u64 {
        let returns = self.returns.iter().map(|sum| sum.to_bits());
        Hash::new().numbers(&self.observations).add_all(returns).value()
    }

    /// The return of each agent in the episode so far.
    pub fn returns(&self) -> &[f64] {
        &self.returns
    }

    /// Steps of the episode so far.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Steps per second for a viewer.
    pub fn fps(&self) -> f64 {
        self.scene.render().fps()
    }

    /// Width and height of a picture, in pixels, if space is not limited.
    pub fn size(&self) -> [f32; 2] {
        self.scene.render().size()
    }

    /// The state as a picture, as large as fits into `width` by `height` pixels.
    pub fn picture(&self, width: usize, height: usize) -> Canvas {
        self.scene.render().picture(width, height)
    }
}

/// An environment of any number of agents, whose steps can fail.
pub(crate) trait Scene {
    fn agents(&self) -> usize {
        1
    }
    fn is_masked(&self) -> bool {
        false
    }
    fn reset(&mut self, rng: &mut Rng, observations: &mut [f32]) -> Result<(), String>;
    /// Adds the rewards to `returns` and returns whether the episode has ended.
    fn step(
        &mut self,
        actions: &[f32],
        rng: &mut Rng,
        observations: &mut [f32],
        returns: &mut [f64],
    ) -> Result<bool, String>;
    fn ask_masks(&self, masks: &mut [bool]) -> Result<(), String> {
        let _ = masks;
        Ok(())
    }
    /// The reason why the scene cannot be drawn, if it cannot.
    fn undrawable(&self) -> Option<&str> {
        None
    }
    fn render(&self) -> &dyn Render;
}

struct Staged<E, const A: usize> {
    env: E,
    action: Space,
}

impl<E: Env<A> + Render, const A: usize> Scene for Staged<E, A> {
    fn agents(&self) -> usize {
        A
    }

    fn is_masked(&self) -> bool {
        self.env.has_action_mask()
    }

    fn reset(&mut self, rng: &mut Rng, observations: &mut [f32]) -> Result<(), String> {
        self.env.reset(rng, observations);
        Ok(())
    }

    fn step(
        &mut self,
        actions: &[f32],
        rng: &mut Rng,
        observations: &mut [f32],
        returns: &mut [f64],
    ) -> Result<bool, String> {
        let step: Step<A> = self.env.step(actions, rng, observations);
        let rewards = returns.iter_mut().zip(step.rewards);
        rewards.for_each(|(sum, reward)| *sum += reward);
        Ok(step.ended())
    }

    fn ask_masks(&self, masks: &mut [bool]) -> Result<(), String> {
        masks.fill(true);
        self.env.action_mask(masks);
        self.action.check_masks(masks)
    }

    fn render(&self) -> &dyn Render {
        &self.env
    }
}
