//! Two-player games, and the values of moves in them.

use std::collections::HashMap;

use polygrad_core::{Error, Result, Rng};

use crate::hash::Hash;
use crate::{Env, Space};

/// A two-player environment that can be copied in the middle of an episode.
pub trait Game: Env<2> + Send {
    /// An independent copy.
    fn copy(&self) -> Box<dyn Game>;
}

impl<E: Env<2> + Clone + Send + 'static> Game for E {
    fn copy(&self) -> Box<dyn Game> {
        Box::new(self.clone())
    }
}

/// The most positions that a search visits.
const MOST_POSITIONS: usize = 1_000_000;

/// The allowed actions of each agent, out of `actions`.
pub(crate) fn masks(game: &dyn Game, actions: usize) -> Vec<bool> {
    let mut masks = vec![true; 2 * actions];
    if game.has_action_mask() {
        game.action_mask(&mut masks);
    }
    masks
}

/// Searches the best moves in a turn-based zero-sum game without randomness. Positions with the same observations of
/// both players count as the same.
pub(crate) struct Search {
    start: i64,
    actions: usize,
    seen: Vec<f32>,
    positions: usize,
    /// The values of positions for the player to move, to the end of the game; keyed by a hash of both observations.
    known: HashMap<u64, f64>,
}

impl Search {
    /// For a game of this kind.
    ///
    /// # Errors
    /// If moves are not discrete.
    pub(crate) fn new(game: &dyn Game) -> Result<Self> {
        match game.action_space() {
            Space::Discrete { n, start } => Ok(Self {
                start,
                actions: n,
                seen: vec![0.0; 2 * game.observation_space().len()],
                positions: 0,
                known: HashMap::new(),
            }),
            other => Err(no_search(format!(
                "a move is to be one of several actions, not of {other:?}"
            ))),
        }
    }

    /// The best moves, considering only rewards of the next `depth` moves; without `depth`, to the end of the game.
    ///
    /// # Errors
    /// If both players move at once, there is randomness, rewards do not add up to 0, or there are too many positions.
    pub(crate) fn best(&mut self, game: &dyn Game, depth: Option<usize>) -> Result<Vec<f32>> {
        self.positions = 0;
        let worth = self.worth(game, depth)?;
        let most = most(&worth);
        let best = worth.into_iter().filter(|(_, worth)| *worth == most);
        Ok(best.map(|(action, _)| action).collect())
    }

    /// The value of each allowed move for its player.
    fn worth(&mut self, game: &dyn Game, depth: Option<usize>) -> Result<Vec<(f32, f64)>> {
        let mover = match [game.waits(0), game.waits(1)] {
            [false, true] => 0,
            [true, false] => 1,
            _ => return Err(no_search("the players do not move by turns".to_owned())),
        };
        let masks = masks(game, self.actions);
        let allowed = (0..self.actions).filter(|action| masks[mover * self.actions + action]);
        let allowed: Vec<f32> = allowed.map(|action| (action as i64 + self.start) as f32).collect();
        let mut all = Vec::with_capacity(allowed.len());
        for action in allowed {
            self.positions += 1;
            if self.positions > MOST_POSITIONS {
                let text = format!("there are more than {MOST_POSITIONS} positions to look at");
                return Err(no_search(text).with_hint("the game is too large to be solved: take greedy"));
            }
            let (mut next, mut rng) = (game.copy(), Rng::new(0));
            let mut actions = [self.start as f32; 2];
            actions[mover] = action;
            let step = next.step(&actions, &mut rng, &mut self.seen);
            if rng != Rng::new(0) {
                return Err(no_search("there is chance in the game".to_owned()));
            }
            if step.rewards[0] + step.rewards[1] != 0.0 {
                return Err(no_search("the rewards of both players do not add up to 0".to_owned()));
            }
            let mut worth = step.rewards[mover];
            if !step.ended() && depth.is_none_or(|depth| depth > 1) {
                let best = self.answer(&*next, depth)?;
                worth += if next.waits(mover) { -best } else { best };
            }
            all.push((action, worth));
        }
        Ok(all)
    }

    /// The value of the last visited position for the player to move.
    fn answer(&mut self, game: &dyn Game, depth: Option<usize>) -> Result<f64> {
        if let Some(depth) = depth {
            return Ok(most(&self.worth(game, Some(depth - 1))?));
        }
        let position = Hash::new().numbers(&self.seen).value();
        if let Some(known) = self.known.get(&position) {
            return Ok(*known);
        }
        let best = most(&self.worth(game, None)?);
        self.known.insert(position, best);
        Ok(best)
    }
}

fn most(worth: &[(f32, f64)]) -> f64 {
    worth.iter().map(|(_, worth)| *worth).fold(f64::NEG_INFINITY, f64::max)
}

fn no_search(what: String) -> Error {
    Error::unsupported(what).with_op("a search for the best move")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConnectFour, TicTacToe};

    fn after(fields: &[usize]) -> TicTacToe {
        let (mut board, mut seen) = (TicTacToe::new(), [0.0; 38]);
        for field in fields {
            board.step(&[*field as f32; 2], &mut Rng::new(0), &mut seen);
        }
        board
    }

    #[test]
    fn the_best_moves_are_found() {
        let mut search = Search::new(&TicTacToe::new()).unwrap();
        let mut best = |fields: &[usize], depth| search.best(&after(fields), depth).unwrap();
        // No first move wins or loses.
        assert_eq!(best(&[], None).len(), 9);
        // A corner is answered in the centre, and the centre in a corner.
        assert_eq!(best(&[0], None), [4.0]);
        assert_eq!(best(&[4], None), [0.0, 2.0, 6.0, 8.0]);
        // X X _ / O O _: the player to move wins, and sees it one move ahead.
        assert_eq!(best(&[0, 3, 1, 4], Some(1)), [2.0]);
        assert_eq!(best(&[0, 3, 1, 4, 8], Some(1)), [5.0]);
        // X X _ / _ O _: O prevents it, which it sees two moves ahead.
        assert_eq!(best(&[0, 4, 1], Some(2)), [2.0]);
        assert_eq!(best(&[0, 4, 1], Some(1)).len(), 6);
    }

    #[test]
    fn what_cannot_be_solved_is_told() {
        let game = ConnectFour::new();
        let error = Search::new(&game).unwrap().best(&game, None).unwrap_err();
        assert!(error.message().contains("more than 1000000 positions"), "{error}");
        assert_eq!(Search::new(&game).unwrap().best(&game, Some(2)).unwrap().len(), 7);
    }
}
