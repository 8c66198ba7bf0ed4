//! Options of self-play.

use polygrad_core::Result;
use polygrad_nn::defaults;
use serde::{Deserialize, Serialize};

use crate::ranges::{in_range, is_rate, is_share};

/// An opponent that plays by fixed rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scripted {
    /// Plays random moves.
    Random,
    /// Wins at once if it can; otherwise prevents the other player from winning in the next move if it can; otherwise
    /// plays a random move.
    Greedy,
    /// Plays a random one of the moves that are best to the end of the game. For small games only.
    Solver,
}

impl Scripted {
    /// The name of the rules.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Greedy => "greedy",
            Self::Solver => "solver",
        }
    }

    /// The number of moves to look ahead; `None` for the end of the game.
    pub(crate) fn depth(self) -> Option<usize> {
        match self {
            Self::Random => Some(0),
            Self::Greedy => Some(2),
            Self::Solver => None,
        }
    }
}

defaults! {
    /// Options of [`SelfPlay`](super::SelfPlay).
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct SelfPlayConfig {
        /// Opponents that play by fixed rules. Default: `random` and `greedy`.
        pub scripted: Vec<Scripted> = vec![Scripted::Random, Scripted::Greedy],
        /// The most snapshots of the policy that are kept; a further one replaces the oldest. Default: 8.
        pub snapshots: usize = 8,
        /// Steps of all environments after which a snapshot is taken, unless one was taken earlier. Default: 50,000.
        pub snapshot_every: u64 = 50_000,
        /// A snapshot is taken earlier if the policy has this share of the points in at least 200 games against the
        /// pool since the last snapshot; a draw is half a point. Default: 0.8.
        pub snapshot_score: f64 = 0.8,
        /// The share of games that the policy plays against its current self. The others are against random members of
        /// the pool. Default: 0.5.
        pub itself: f64 = 0.5,
        /// The most random opening moves, of both players together; each game has from 0 to this number. Without them,
        /// only openings occur that players of the pool prefer. Default: 0.
        pub opening: usize = 0,
        /// The most that a game changes a rating. Default: 16.
        pub elo_k: f64 = 16.0,
    }
}

impl SelfPlayConfig {
    /// Fails if an option is out of range.
    ///
    /// # Errors
    /// The first option that is out of range.
    pub fn check(&self) -> Result<()> {
        let scripted = &self.scripted;
        let twice = (1..scripted.len()).any(|i| scripted[..i].contains(&scripted[i]));
        let options = in_range(&[
            ("scripted", !twice, "free of repetitions"),
            ("snapshots", self.snapshots <= 64, "at most 64"),
            ("snapshot_every", self.snapshot_every > 0, "at least 1"),
            ("snapshot_score", is_share(self.snapshot_score), "from 0 to 1"),
            ("itself", is_share(self.itself), "from 0 to 1"),
            ("opening", self.opening <= 1000, "at most 1000"),
            ("elo_k", is_rate(self.elo_k), "at least 0"),
        ]);
        options.map_err(|error| error.with_op("self-play"))
    }
}
