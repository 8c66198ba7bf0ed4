//! Games against opponents, as single-agent environments.

use std::cell::RefCell;
use std::rc::Rc;

use polygrad_core::{Error, ErrorKind, Result, Rng};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::game::{Game, masks};
use super::pool::{Moves, Opponent, Pool};
use crate::vector::check_len;
use crate::vectorized::{read, write};
use crate::{Space, StepBuffers, StepSlices, VectorEnv, episode_rng};

/// Games in which opponents of a pool play one side. A step is a move and everything that follows until the next
/// choice. The sides change with each game.
pub(super) struct Matches {
    tables: Vec<Table>,
    pool: Rc<RefCell<Pool>>,
    spaces: (Space, Space),
    /// Of the side that is not the opponent's; empty if all actions are allowed.
    masks: Vec<bool>,
    seed: u64,
    begun: bool,
}

/// One game.
struct Table {
    game: Box<dyn Game>,
    index: usize,
    episode: u64,
    rng: Rng,
    opponent: Opponent,
    /// The side that is not the opponent's, and whether it has moved.
    side: usize,
    moved: bool,
    total: f64,
    /// Observations of both sides.
    observations: Vec<f32>,
    /// The next actions of both sides, and all earlier ones.
    actions: Vec<f32>,
    done: Vec<f32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    seed: u64,
    games: Vec<SavedGame>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedGame {
    episode: u64,
    opponent: Opponent,
    /// Actions of both sides, move by move.
    actions: Vec<f32>,
}

/// The side that plays against the opponent in an episode of a game.
pub(super) fn side(index: usize, episode: u64) -> usize {
    (index as u64 + episode) as usize % 2
}

impl Table {
    /// The generator of the opponent's choice at the current move.
    fn choice(&self, seed: u64) -> Rng {
        let own = episode_rng(seed ^ 0x9e37_79b9_7f4a_7c15, self.index, self.episode).next_u64();
        Rng::at(own, (self.done.len() as u64) << 16)
    }

    /// Begins an episode.
    fn reset(&mut self, seed: u64, episode: u64) {
        self.episode = episode;
        self.side = side(self.index, episode);
        self.rng = episode_rng(seed, self.index, episode);
        (self.moved, self.total) = (false, 0.0);
        self.done.clear();
        self.game.reset(&mut self.rng, &mut self.observations);
    }

    fn begin(&mut self, seed: u64, episode: u64, pool: &Pool) {
        self.reset(seed, episode);
        // A counter beyond all that moves use.
        let mut rng = Rng::at(self.choice(seed).next_u64(), 1 << 63);
        self.opponent = pool.draw(&mut rng);
        self.open(pool.draw_opening(&mut rng), &pool.spaces().1, &mut rng);
    }

    /// Plays some random moves, as long as they do not end the game.
    fn open(&mut self, moves: usize, space: &Space, rng: &mut Rng) {
        for _ in 0..moves {
            let masks = masks(&*self.game, space.flat_len());
            for side in 0..2 {
                let mut action = vec![0.0; space.len()];
                space.sample_masked(Self::part(&masks, side), rng, &mut action);
                self.put(side, &action);
            }
            let (mut next, mut seen) = (self.game.copy(), self.observations.clone());
            let mut chance = self.rng.clone();
            let step = next.step(&self.actions, &mut chance, &mut seen);
            if step.ended() {
                return;
            }
            self.total += step.rewards[self.side];
            (self.game, self.observations, self.rng) = (next, seen, chance);
            self.done.extend(&self.actions);
        }
    }

    /// The part of one side.
    fn part<T>(all: &[T], side: usize) -> &[T] {
        &all[side * all.len() / 2..(side + 1) * all.len() / 2]
    }

    fn waits(&self) -> bool {
        self.game.waits(self.side)
    }

    fn put(&mut self, side: usize, action: &[f32]) {
        let at = side * action.len();
        self.actions[at..at + action.len()].copy_from_slice(action);
    }

    /// Has waiting sides take an allowed action.
    fn wait(&mut self, space: &Space) {
        let masks = masks(&*self.game, space.flat_len());
        for side in 0..2 {
            if !self.game.waits(side) {
                continue;
            }
            let mut action = vec![0.0; space.len()];
            space.sample_masked(Self::part(&masks, side), &mut Rng::new(0), &mut action);
            self.put(side, &action);
        }
    }
}

impl Matches {
    pub(super) fn new(game: &dyn Game, num_envs: usize, pool: Rc<RefCell<Pool>>) -> Result<Self> {
        if num_envs == 0 {
            return Err(Error::invalid("0 environments do nothing").with_hint("use at least 1"));
        }
        let spaces = pool.borrow().spaces().clone();
        let table = |index| Table {
            game: game.copy(),
            index,
            episode: 0,
            rng: Rng::new(0),
            opponent: None,
            side: 0,
            moved: false,
            total: 0.0,
            observations: vec![0.0; 2 * spaces.0.len()],
            actions: vec![0.0; 2 * spaces.1.len()],
            done: Vec::new(),
        };
        let masked = game.has_action_mask();
        Ok(Self {
            tables: (0..num_envs).map(table).collect(),
            masks: vec![true; if masked { num_envs * spaces.1.flat_len() } else { 0 }],
            pool,
            spaces,
            seed: 0,
            begun: false,
        })
    }

    /// Has the opponents choose that are to move in some of the games.
    fn answer(&mut self, moving: &[usize]) -> Result<()> {
        let waiting = |i: &&usize| !self.tables[**i].game.waits(1 - self.tables[**i].side);
        let mut left: Vec<usize> = moving.iter().filter(waiting).copied().collect();
        while let Some(first) = left.first() {
            let place = self.tables[*first].opponent.map(|(place, _)| place);
            let is_next = |i: &usize| self.tables[*i].opponent.map(|(place, _)| place) == place;
            let (now, later): (Vec<usize>, Vec<usize>) = left.into_iter().partition(is_next);
            left = later;
            let mut moves = Moves {
                games: Vec::new(),
                observations: Vec::new(),
                masks: Vec::new(),
                rngs: Vec::new(),
            };
            for table in now.iter().map(|i| &self.tables[*i]) {
                let other = 1 - table.side;
                let masks = masks(&*table.game, self.spaces.1.flat_len());
                moves.observations.extend(Table::part(&table.observations, other));
                moves.masks.extend(Table::part(&masks, other));
                moves.rngs.push(table.choice(self.seed));
                moves.games.push(&*table.game);
            }
            let len = self.spaces.1.len();
            let mut chosen = vec![0.0; now.len() * len];
            self.pool.borrow_mut().moves(place, &mut moves, &mut chosen)?;
            for (i, action) in now.iter().zip(chosen.chunks(len)) {
                let table = &mut self.tables[*i];
                table.put(1 - table.side, action);
            }
        }
        Ok(())
    }

    /// Plays the chosen actions in some of the games, and continues there until the next choice.
    fn settle(&mut self, mut moving: Vec<usize>, out: &mut StepSlices<'_>) -> Result<()> {
        let mut idle = 0;
        while !moving.is_empty() {
            moving.iter().for_each(|i| self.tables[*i].wait(&self.spaces.1));
            self.answer(&moving)?;
            for &i in &moving {
                let table = &mut self.tables[i];
                table.done.extend(&table.actions);
                let step = table.game.step(&table.actions, &mut table.rng, &mut table.observations);
                let reward = step.rewards[table.side];
                if !reward.is_finite() || !table.observations.iter().all(|x| x.is_finite()) {
                    return Err(wrong("the game gives a reward or an observation that is not finite"));
                }
                table.total += reward;
                let (moved, episode) = (table.moved, table.episode);
                if moved {
                    out.rewards[i] += reward as f32;
                }
                match (step.ended(), moved) {
                    (false, _) => {}
                    (true, true) => {
                        (out.terminated[i], out.truncated[i]) = (step.terminated, step.truncated);
                        let width = self.spaces.0.len();
                        out.final_observations[i * width..(i + 1) * width]
                            .copy_from_slice(Table::part(&table.observations, table.side));
                        let mut pool = self.pool.borrow_mut();
                        pool.played(table.opponent, points(table.total));
                        table.begin(self.seed, episode + 1, &pool);
                    }
                    // The opening decided the game: another one of the same side follows.
                    (true, false) => table.begin(self.seed, episode + 2, &self.pool.borrow()),
                }
            }
            moving.retain(|i| self.tables[*i].waits());
            idle += 1;
            if idle > MOST_WAITS {
                return Err(wrong("a player has nothing to choose for ever"));
            }
        }
        Ok(())
    }

    /// Writes observations and masks.
    fn show(&mut self, observations: &mut [f32]) -> Result<()> {
        let (seen, actions) = (self.spaces.0.len(), self.spaces.1.flat_len());
        for (table, out) in self.tables.iter().zip(observations.chunks_mut(seen)) {
            out.copy_from_slice(Table::part(&table.observations, table.side));
        }
        for (table, out) in self.tables.iter().zip(self.masks.chunks_mut(actions)) {
            let masks = masks(&*table.game, actions);
            let checked = self.spaces.1.check_masks(&masks);
            checked.map_err(|what| wrong(&format!("the mask of actions {what}")))?;
            out.copy_from_slice(Table::part(&masks, table.side));
        }
        Ok(())
    }

    fn check_actions(&self, actions: &[f32]) -> Result<()> {
        let space = &self.spaces.1;
        check_len("actions", actions.len(), self.tables.len() * space.len())?;
        for (i, action) in actions.chunks(space.len()).enumerate() {
            let mask = self.masks.chunks(space.flat_len()).nth(i);
            if !action.iter().all(|x| x.is_finite()) || mask.is_some_and(|mask| !space.allows(mask, action)) {
                return Err(wrong(&format!("the action {action:?} is not allowed in game {i}")));
            }
        }
        Ok(())
    }
}

/// The most steps without a choice before that is an error.
const MOST_WAITS: usize = 10_000;

/// The points of a game with this return.
pub(super) fn points(total: f64) -> f64 {
    match total {
        total if total > 0.0 => 1.0,
        total if total < 0.0 => 0.0,
        _ => 0.5,
    }
}

impl VectorEnv for Matches {
    fn num_envs(&self) -> usize {
        self.tables.len()
    }

    fn observation_space(&self) -> &Space {
        &self.spaces.0
    }

    fn action_space(&self) -> &Space {
        &self.spaces.1
    }

    fn reset(&mut self, seed: u64, observations: &mut [f32]) -> Result<()> {
        check_len("observations", observations.len(), self.rows() * self.spaces.0.len())?;
        self.seed = seed;
        let pool = self.pool.borrow();
        self.tables.iter_mut().for_each(|table| table.begin(seed, 0, &pool));
        drop(pool);
        let mut buffers = StepBuffers::new(self);
        let waiting = (0..self.tables.len()).filter(|i| self.tables[*i].waits());
        self.settle(waiting.collect(), &mut buffers.as_mut())?;
        self.begun = true;
        self.show(observations)
    }

    fn step(&mut self, actions: &[f32], out: &mut StepSlices<'_>) -> Result<()> {
        out.check(self)?;
        if !self.begun {
            return Err(wrong("no game has begun").with_hint("call `reset` first"));
        }
        self.check_actions(actions)?;
        let len = self.spaces.1.len();
        for (table, action) in self.tables.iter_mut().zip(actions.chunks(len)) {
            table.put(table.side, action);
            table.moved = true;
        }
        out.rewards.fill(0.0);
        out.terminated.fill(false);
        out.truncated.fill(false);
        self.begun = false;
        self.settle((0..self.tables.len()).collect(), out)?;
        self.begun = true;
        self.show(out.observations)
    }

    fn action_masks(&self) -> Option<&[bool]> {
        (!self.masks.is_empty()).then_some(&self.masks)
    }

    fn state(&self) -> Result<Value> {
        if !self.begun {
            return Err(wrong("there is no game to save").with_hint("call `reset` first"));
        }
        let game = |table: &Table| SavedGame {
            episode: table.episode,
            opponent: table.opponent,
            actions: table.done.clone(),
        };
        let games = self.tables.iter().map(game).collect();
        write("games", &Saved { seed: self.seed, games })
    }

    fn restore(&mut self, state: &Value, observations: &mut [f32]) -> Result<()> {
        check_len("observations", observations.len(), self.rows() * self.spaces.0.len())?;
        let saved: Saved = read("games", state)?;
        let unfit = |what: &str| Error::new(ErrorKind::StateDict, format!("the state of games {what}"));
        if saved.games.len() != self.tables.len() {
            return Err(unfit("is of another number of them"));
        }
        self.begun = false;
        self.seed = saved.seed;
        for (table, game) in self.tables.iter_mut().zip(saved.games) {
            if game.actions.len() % table.actions.len() != 0 || !self.pool.borrow().knows(game.opponent) {
                return Err(unfit("is damaged"));
            }
            table.reset(saved.seed, game.episode);
            table.opponent = game.opponent;
            for actions in game.actions.chunks(table.actions.len()) {
                if !actions
                    .chunks(self.spaces.1.len())
                    .all(|action| self.spaces.1.contains(action))
                {
                    return Err(unfit("has actions that there are not"));
                }
                let step = table.game.step(actions, &mut table.rng, &mut table.observations);
                table.total += step.rewards[table.side];
                if step.ended() {
                    return Err(unfit("goes on behind the end of a game"));
                }
            }
            table.done = game.actions;
            if table.waits() {
                return Err(unfit("ends where an opponent is to move"));
            }
        }
        self.begun = true;
        self.show(observations)
    }
}

fn wrong(what: &str) -> Error {
    Error::invalid(what.to_owned()).with_op("self-play")
}
