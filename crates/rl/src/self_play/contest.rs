//! Games of a policy against an opponent.

use std::cell::RefCell;
use std::rc::Rc;

use polygrad_core::{Error, Result, Rng};

use super::config::{Scripted, SelfPlayConfig};
use super::game::{Game, Search, masks};
use super::matches::{Matches, points, side};
use super::pool::{Brain, Pool};
use crate::act::evaluate::evaluation_seed;
use crate::{EvaluateConfig, Player, Policy, Space, StepBuffers, VectorEnv};

/// Games as one player: the numbers of won, drawn and lost ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Games with a return above 0.
    pub won: usize,
    /// Games with a return of 0.
    pub drawn: usize,
    /// Games with a return below 0.
    pub lost: usize,
}

/// Games as the first player and as the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contest {
    /// As agent 0, then as agent 1.
    pub sides: [Outcome; 2],
}

/// An opponent in a [`contest`].
pub enum Rival {
    /// An opponent that plays by fixed rules.
    Script(Scripted),
    /// A policy, and whether it samples its moves.
    Policy(Box<dyn Policy>, bool),
}

impl Outcome {
    /// The number of games.
    pub fn games(&self) -> usize {
        self.won + self.drawn + self.lost
    }

    fn add(&mut self, points: f64) {
        match points {
            1.0 => self.won += 1,
            0.0 => self.lost += 1,
            _ => self.drawn += 1,
        }
    }
}

impl Contest {
    /// The share of the points, where a draw is half a point; NaN without games.
    pub fn score(&self) -> f64 {
        let games: usize = self.sides.iter().map(Outcome::games).sum();
        let points = |side: &Outcome| side.won as f64 + 0.5 * side.drawn as f64;
        self.sides.iter().map(points).sum::<f64>() / games as f64
    }

    /// How far the policy's Elo is above the opponent's, from its score; infinite if one of them has all points.
    pub fn elo(&self) -> f64 {
        let score = self.score();
        400.0 * (score / (1.0 - score)).log10()
    }
}

/// Plays games against an opponent, half of them as each player. With [`EvaluateConfig::sample`] the policy samples its
/// moves instead of taking the likeliest; scripts always choose randomly among equally good ones.
///
/// # Errors
/// If the number of games is 0, the opponent cannot play the game or has memory; those of the policies.
pub fn contest(policy: &dyn Policy, game: &dyn Game, rival: Rival, config: &EvaluateConfig) -> Result<Contest> {
    /// The number of games played at the same time.
    const TABLES: usize = 10;
    if config.episodes == 0 {
        return Err(Error::invalid("0 games say nothing").with_hint("use at least 1"));
    }
    let scripted = match &rival {
        Rival::Script(script) => vec![*script],
        Rival::Policy(..) => Vec::new(),
    };
    let mut pool = Pool::new(
        SelfPlayConfig {
            scripted,
            itself: 0.0,
            ..SelfPlayConfig::default()
        },
        game,
    )?;
    if let Rival::Policy(policy, draws) = rival {
        let brain = Brain::new(policy, pool.actions(), draws)?;
        pool.add(brain, 0);
    }
    let tables = TABLES.min(config.episodes);
    let mut games = Matches::new(game, tables, Rc::new(RefCell::new(pool)))?;
    let seed = evaluation_seed(config.seed);
    let mut player = Player::new(policy, games.observation_space(), games.action_space(), tables)?;
    if config.sample {
        player = player.sampled(Rng::new(seed));
    }
    let mut buffers = StepBuffers::new(&games);
    let mut actions = vec![0.0; tables * games.action_space().len()];
    let (mut totals, mut played) = (vec![0.0; tables], vec![0; tables]);
    let (mut found, mut missing) = (Contest::default(), config.episodes);
    games.reset(seed, &mut buffers.observations)?;
    while missing > 0 {
        player.act(&buffers.observations, games.action_masks(), &mut actions)?;
        games.step(&actions, &mut buffers.as_mut())?;
        let ended: Vec<bool> = (0..tables)
            .map(|i| buffers.terminated[i] || buffers.truncated[i])
            .collect();
        player.begin(&ended)?;
        for i in 0..tables {
            totals[i] += f64::from(buffers.rewards[i]);
            if ended[i] {
                let quota = config.episodes / tables + usize::from(i < config.episodes % tables);
                if played[i] < quota {
                    found.sides[side(i, played[i] as u64)].add(points(totals[i]));
                    missing -= 1;
                }
                (totals[i], played[i]) = (0.0, played[i] + 1);
            }
        }
    }
    Ok(found)
}

/// Plays every game that an opponent's moves allow, each once: moves that the solver finds best, or all moves. The
/// policy plays its likeliest moves, as each player.
///
/// # Errors
/// If the game has randomness, is too large or not turn-based; if the policy has memory; those of the policy.
pub fn contest_in_full(policy: &dyn Policy, game: &dyn Game, replies: Scripted) -> Result<Contest> {
    let mut found = Contest::default();
    let space = game.action_space();
    if !policy.initial_state(1)?.parts().is_empty() {
        return Err(
            Error::unsupported("a policy with memory cannot go back to an earlier position")
                .with_hint("play against greedy or another run"),
        );
    }
    for side in 0..2 {
        let mut first = game.copy();
        let mut walk = Walk {
            player: Player::new(policy, &game.observation_space(), &space, 1)?,
            search: Search::new(game)?,
            replies,
            side,
            outcome: &mut found.sides[side],
            space: &space,
        };
        let mut seen = vec![0.0; 2 * game.observation_space().len()];
        first.reset(&mut Rng::new(0), &mut seen);
        walk.from(&*first, &seen, 0.0)?;
    }
    Ok(found)
}

/// Walks through all games of one side.
struct Walk<'a> {
    player: Player<'a>,
    search: Search,
    replies: Scripted,
    side: usize,
    outcome: &'a mut Outcome,
    space: &'a Space,
}

impl Walk<'_> {
    /// Continues from a position, in which the two sides observe `seen` and the policy has a return of `total`.
    fn from(&mut self, game: &dyn Game, seen: &[f32], total: f64) -> Result<()> {
        /// The most games of one side.
        const MOST_GAMES: usize = 1_000_000;
        let own = !game.waits(self.side);
        let mover = if own { self.side } else { 1 - self.side };
        let masks = masks(game, self.space.flat_len());
        let part = |side: usize| &masks[side * masks.len() / 2..(side + 1) * masks.len() / 2];
        let moves = match (own, self.replies) {
            (true, _) => {
                let width = seen.len() / 2;
                let mut action = [0.0];
                self.player.act(
                    &seen[mover * width..(mover + 1) * width],
                    Some(part(mover)),
                    &mut action,
                )?;
                action.to_vec()
            }
            (false, Scripted::Random) => {
                let actions = (0..part(mover).len()).filter(|action| part(mover)[*action]);
                actions.map(|action| action as f32).collect()
            }
            // Fails if the game cannot be searched.
            (false, script) => self.search.best(game, script.depth())?,
        };
        for action in moves {
            let (mut next, mut rng) = (game.copy(), Rng::new(0));
            let (mut actions, mut after) = ([0.0; 2], vec![0.0; seen.len()]);
            actions[mover] = action;
            let step = next.step(&actions, &mut rng, &mut after);
            let total = total + step.rewards[self.side];
            if !step.ended() {
                self.from(&*next, &after, total)?;
                continue;
            }
            self.outcome.add(points(total));
            if self.outcome.games() > MOST_GAMES {
                return Err(
                    Error::unsupported(format!("there are more than {MOST_GAMES} games to play"))
                        .with_hint("the game is too large: play against greedy"),
                );
            }
        }
        Ok(())
    }
}
