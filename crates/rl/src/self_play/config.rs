//! Options of self-play.

use polygrad_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// An opponent that plays by a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scripted {
    /// Does any move.
    Random,
    /// Wins at once if it can, does not let the other player win in the next move if it can, and does any move else.
    Greedy,
    /// Does any of the moves that are best to the end of the game. For small games only.
    Solver,
}

impl Scripted {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Greedy => "greedy",
            Self::Solver => "solver",
        }
    }

    /// How many moves ahead it looks; `None` to the end of the game.
    pub(crate) fn depth(self) -> Option<usize> {
        match self {
            Self::Random => Some(0),
            Self::Greedy => Some(2),
            Self::Solver => None,
        }
    }
}

/// Options of [`SelfPlay`](super::SelfPlay).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SelfPlayConfig {
    /// Opponents that play by a rule. Default: `random` and `greedy`.
    pub scripted: Vec<Scripted>,
    /// The most snapshots of the policy that are kept; a further one replaces the oldest. Default: 8.
    pub snapshots: usize,
    /// Steps of all environments after which a snapshot is taken, if none was before. Default: 50,000.
    pub snapshot_every: u64,
    /// A snapshot is taken earlier if the policy had this share of the points of at least 200 games against the pool
    /// since the last one; a draw is half a point. Default: 0.8.
    pub snapshot_score: f64,
    /// The share of games that the policy plays against itself as it is. The others are against any of the pool.
    /// Default: 0.5.
    pub itself: f64,
    /// The most moves of chance that a game begins with, of both players; each game has from 0 to so many. Without them
    /// only openings are seen that players of the pool like. Default: 0.
    pub opening: usize,
    /// The most by which a game changes a rating. Default: 16.
    pub elo_k: f64,
}

impl Default for SelfPlayConfig {
    fn default() -> Self {
        Self {
            scripted: vec![Scripted::Random, Scripted::Greedy],
            snapshots: 8,
            snapshot_every: 50_000,
            snapshot_score: 0.8,
            itself: 0.5,
            opening: 0,
            elo_k: 16.0,
        }
    }
}

impl SelfPlayConfig {
    /// Fails unless all options make sense.
    ///
    /// # Errors
    /// The first option that does not.
    pub fn check(&self) -> Result<()> {
        let is_share = |x: f64| (0.0..=1.0).contains(&x);
        let scripted = &self.scripted;
        let twice = (1..scripted.len()).any(|i| scripted[..i].contains(&scripted[i]));
        let options = [
            ("scripted", !twice, "free of repetitions"),
            ("snapshots", self.snapshots <= 64, "at most 64"),
            ("snapshot_every", self.snapshot_every > 0, "at least 1"),
            ("snapshot_score", is_share(self.snapshot_score), "from 0 to 1"),
            ("itself", is_share(self.itself), "from 0 to 1"),
            ("opening", self.opening <= 1000, "at most 1000"),
            ("elo_k", self.elo_k.is_finite() && self.elo_k >= 0.0, "at least 0"),
        ];
        match options.iter().find(|(_, holds, _)| !holds) {
            Some((name, _, range)) => Err(Error::invalid(format!("{name} is not {range}")).with_op("self-play")),
            None => Ok(()),
        }
    }
}
