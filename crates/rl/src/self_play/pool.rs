//! The opponents and their ratings.

use polygrad_core::{Error, ErrorKind, Result, Rng};
use polygrad_nn::{Checkpoint, StateDict};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::config::{Scripted, SelfPlayConfig};
use super::game::{Game, Search};
use crate::act::actor::{Actor, Asked};
use crate::act::sampler::choose;
use crate::act::spaces::{flatten, for_environment, observation_shape};
use crate::{ActionSpace, Policy, PolicyState, Space};

/// The initial rating.
const FIRST_RATING: f64 = 1000.0;
/// The least number of games since the last snapshot whose score is used.
const JUDGED_BY: u64 = 200;
/// The window of the reported score, in games.
const TOLD: f64 = 200.0;

/// A member of the pool, as reported.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// A script's name, or the step of the snapshot.
    pub name: String,
    /// Its Elo.
    pub rating: f64,
    /// The number of rated games.
    pub games: u64,
}

/// A playing policy, with what runs it.
pub(super) struct Brain {
    policy: Box<dyn Policy>,
    actor: Actor,
    /// Whether it samples its moves.
    draws: bool,
}

enum Mind {
    Script(Scripted),
    Policy(Brain),
}

struct Member {
    mind: Mind,
    stand: Stand,
}

/// The saved state of a member.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stand {
    /// The step at which a snapshot was taken; 0 for scripts.
    born: u64,
    rating: f64,
    games: u64,
}

/// The saved state of the pool, without the snapshots' weights.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    scripted: Vec<Scripted>,
    members: Vec<Stand>,
    score: Score,
}

/// The standing of the policy that learns.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Score {
    rating: f64,
    /// The number of snapshots so far, and the step of the last one.
    taken: u64,
    taken_at: u64,
    /// Games and points against the pool since then.
    games: u64,
    points: f64,
    /// The mean points of the last games; `None` before the first.
    recent: Option<f64>,
}

/// The opponent in a game: `None` for the policy itself, otherwise the place in the pool and the step at which its
/// snapshot was taken.
pub(super) type Opponent = Option<(usize, u64)>;

/// The opponents of the policy that learns.
pub(super) struct Pool {
    config: SelfPlayConfig,
    spaces: (Space, Space),
    actions: ActionSpace,
    members: Vec<Member>,
    score: Score,
    /// The current policy that learns.
    itself: Option<Brain>,
    search: Option<Search>,
}

/// Positions in which a player is to move.
pub(super) struct Moves<'a> {
    pub(super) games: Vec<&'a dyn Game>,
    /// Observations of all positions, one after another.
    pub(super) observations: Vec<f32>,
    pub(super) masks: Vec<bool>,
    pub(super) rngs: Vec<Rng>,
}

impl Brain {
    pub(super) fn new(policy: Box<dyn Policy>, actions: &ActionSpace, draws: bool) -> Result<Self> {
        let Some(device) = policy.parameters().first().map(|param| param.device()) else {
            return Err(Error::invalid("the policy has no parameters").with_op("self-play"));
        };
        if !policy.initial_state(1)?.parts().is_empty() {
            let message = "a policy with memory cannot be an opponent";
            return Err(Error::unsupported(message)
                .with_op("self-play")
                .with_hint("take a policy without memory (--policy mlp)"));
        }
        Ok(Self {
            actor: Actor::new(device, actions.clone(), Asked::default()),
            policy,
            draws,
        })
    }

    fn set(&mut self, weights: &StateDict) -> Result<()> {
        self.policy.load_state_dict(weights, true)?;
        self.actor.forget();
        Ok(())
    }

    /// Writes the moves. Rows are padded to a power of 2, so that few programs are compiled.
    fn moves(&mut self, pool: (&(Space, Space), &ActionSpace), moves: &mut Moves<'_>, out: &mut [f32]) -> Result<()> {
        let ((seen, done), actions) = pool;
        let count = moves.rngs.len();
        let rows = count.next_power_of_two();
        let mut input = vec![0.0; rows * seen.flat_len()];
        flatten(seen, &moves.observations, &mut input[..count * seen.flat_len()])?;
        let shape = observation_shape(seen);
        let answer = self.actor.run(
            &*self.policy,
            (&input, &shape),
            &vec![0.0; rows],
            &PolicyState::new(Vec::new()),
        )?;
        let mut chosen = vec![0.0; actions.len()];
        for (row, out) in out.chunks_mut(done.len()).enumerate() {
            let masks = moves.masks.chunks(done.flat_len()).nth(row);
            let rng = self.draws.then(|| &mut moves.rngs[row]);
            let log_prob = choose(actions, &answer.row(row, rows, masks), rng, &mut chosen);
            if !log_prob.is_finite() {
                return Err(Error::invalid("an opponent computes NaN or infinity").with_op("self-play"));
            }
            for_environment(done, &chosen, out);
        }
        Ok(())
    }
}

impl Pool {
    /// A pool of the config's scripts, for games of this kind.
    pub(super) fn new(config: SelfPlayConfig, game: &dyn Game) -> Result<Self> {
        config.check()?;
        let spaces = (game.observation_space(), game.action_space());
        let looks = |script: &Scripted| *script != Scripted::Random;
        let mut search = config
            .scripted
            .iter()
            .any(looks)
            .then(|| Search::new(game))
            .transpose()?;
        for script in &config.scripted {
            if let Some(search) = &mut search {
                // Fails before the training if the game cannot be searched.
                let mut seen = vec![0.0; 2 * spaces.0.len()];
                let mut first = game.copy();
                first.reset(&mut Rng::new(0), &mut seen);
                search.best(&*first, script.depth())?;
            }
        }
        let members = config.scripted.iter().map(|script| Member {
            mind: Mind::Script(*script),
            stand: Stand {
                born: 0,
                rating: FIRST_RATING,
                games: 0,
            },
        });
        Ok(Self {
            members: members.collect(),
            actions: ActionSpace::from(&spaces.1),
            spaces,
            score: Score {
                rating: FIRST_RATING,
                taken: 0,
                taken_at: 0,
                games: 0,
                points: 0.0,
                recent: None,
            },
            itself: None,
            search,
            config,
        })
    }

    pub(super) fn spaces(&self) -> &(Space, Space) {
        &self.spaces
    }

    /// The Elo of the policy that learns.
    pub(super) fn rating(&self) -> f64 {
        self.score.rating
    }

    pub(super) fn actions(&self) -> &ActionSpace {
        &self.actions
    }

    /// Makes the policy that learns one of its own opponents, too.
    pub(super) fn set_itself(&mut self, brain: Brain) {
        self.itself = Some(brain);
    }

    /// Updates the weights of the policy that learns.
    pub(super) fn follow(&mut self, weights: &StateDict) -> Result<()> {
        self.itself.as_mut().map_or(Ok(()), |brain| brain.set(weights))
    }

    /// Adds a policy, which keeps its weights.
    pub(super) fn add(&mut self, brain: Brain, steps: u64) {
        let member = Member {
            mind: Mind::Policy(brain),
            stand: Stand {
                born: steps,
                rating: self.score.rating,
                games: 0,
            },
        };
        let scripts = self.config.scripted.len();
        let score = &mut self.score;
        let place = scripts + score.taken as usize % self.config.snapshots.max(1);
        match self.members.get_mut(place) {
            Some(old) => *old = member,
            None => self.members.push(member),
        }
        (score.taken, score.taken_at) = (score.taken + 1, steps);
        (score.games, score.points) = (0, 0.0);
    }

    /// Whether a snapshot is due.
    pub(super) fn wants_snapshot(&self, steps: u64) -> bool {
        let Score {
            taken_at,
            games,
            points,
            ..
        } = self.score;
        let better = games >= JUDGED_BY && points >= self.config.snapshot_score * games as f64;
        self.config.snapshots > 0 && (better || steps - taken_at >= self.config.snapshot_every)
    }

    /// The next opponent.
    pub(super) fn draw(&self, rng: &mut Rng) -> Opponent {
        let itself = rng.chance(self.config.itself) && self.itself.is_some();
        match (itself, self.members.len()) {
            (true, _) | (_, 0) => None,
            (false, count) => {
                let place = rng.below(count);
                Some((place, self.members[place].stand.born))
            }
        }
    }

    /// The number of random opening moves of a game.
    pub(super) fn draw_opening(&self, rng: &mut Rng) -> usize {
        rng.below(self.config.opening + 1)
    }

    /// Whether this opponent exists or existed.
    pub(super) fn knows(&self, opponent: Opponent) -> bool {
        opponent.is_none_or(|(place, _)| place < self.config.scripted.len() + self.config.snapshots)
    }

    /// The moves of an opponent.
    pub(super) fn moves(&mut self, opponent: Option<usize>, moves: &mut Moves<'_>, out: &mut [f32]) -> Result<()> {
        let brain = match opponent.map(|place| self.members.get_mut(place).map(|member| &mut member.mind)) {
            None => self.itself.as_mut(),
            Some(Some(Mind::Policy(brain))) => Some(brain),
            Some(Some(Mind::Script(script))) => return scripted(*script, &self.spaces.1, &mut self.search, moves, out),
            Some(None) => None,
        };
        match brain {
            Some(brain) => brain.moves((&self.spaces, &self.actions), moves, out),
            None => Err(Error::invalid("there is no such opponent").with_op("self-play")),
        }
    }

    /// Counts the points of the policy that learns, from 0 to 1, in a game.
    ///
    /// Source: Elo, "The rating of chessplayers, past and present" (1978).
    pub(super) fn played(&mut self, opponent: Opponent, points: f64) {
        let Some((place, born)) = opponent else { return };
        // Another member may have taken the place during the game.
        let Some(member) = self.members.get_mut(place).filter(|member| member.stand.born == born) else {
            return;
        };
        let (stand, score) = (&mut member.stand, &mut self.score);
        let expected = 1.0 / (1.0 + 10f64.powf((stand.rating - score.rating) / 400.0));
        let change = self.config.elo_k * (points - expected);
        (score.rating, stand.rating) = (score.rating + change, stand.rating - change);
        stand.games += 1;
        (score.games, score.points) = (score.games + 1, score.points + points);
        score.recent = Some(score.recent.map_or(points, |mean| mean + (points - mean) / TOLD));
    }

    /// The names of the metrics: the policy's Elo, its score against the pool, and the Elo of each place.
    pub(super) fn names(&self) -> Vec<String> {
        let scripts = self
            .config
            .scripted
            .iter()
            .map(|script| format!("elo_{}", script.name()));
        let snapshots = (1..=self.config.snapshots).map(|place| format!("elo_snapshot_{place}"));
        let own = ["elo", "score"].map(str::to_owned).into_iter();
        own.chain(scripts).chain(snapshots).collect()
    }

    /// The values of these metrics; NaN if there is none yet.
    pub(super) fn numbers(&self) -> Vec<f64> {
        let places = self.config.scripted.len() + self.config.snapshots;
        let rating = |place: usize| self.members.get(place).map_or(f64::NAN, |member| member.stand.rating);
        let own = [self.score.rating, self.score.recent.unwrap_or(f64::NAN)];
        own.into_iter().chain((0..places).map(rating)).collect()
    }

    /// The policy that learns, followed by all members.
    pub(super) fn standings(&self) -> Vec<Standing> {
        let members = self.members.iter().map(|member| Standing {
            name: match &member.mind {
                Mind::Script(script) => script.name().to_owned(),
                Mind::Policy(_) => format!("snapshot of step {}", member.stand.born),
            },
            rating: member.stand.rating,
            games: member.stand.games,
        });
        let own = Standing {
            name: "policy".to_owned(),
            rating: self.score.rating,
            games: self.members.iter().map(|member| member.stand.games).sum(),
        };
        std::iter::once(own).chain(members).collect()
    }

    /// Adds the snapshots to a checkpoint; also returns the rest of the state.
    pub(super) fn save(&self, mut checkpoint: Checkpoint) -> Result<(Checkpoint, Value)> {
        for (place, member) in self.members.iter().enumerate() {
            if let Mind::Policy(brain) = &member.mind {
                checkpoint = checkpoint.with_part(&part(place), brain.policy.state_dict()?);
            }
        }
        let record = Record {
            scripted: self.config.scripted.clone(),
            members: self.members.iter().map(|member| member.stand.clone()).collect(),
            score: self.score.clone(),
        };
        Ok((checkpoint, serde_json::to_value(record).map_err(unfit)?))
    }

    /// The reverse. `make` creates policies.
    pub(super) fn restore(
        &mut self,
        checkpoint: &Checkpoint,
        record: &Value,
        make: &dyn Fn() -> Result<Box<dyn Policy>>,
    ) -> Result<()> {
        let Record {
            scripted,
            members,
            score,
        } = Record::deserialize(record).map_err(unfit)?;
        let scripts = scripted.len();
        let known = scripts..=scripts + self.config.snapshots;
        if scripted != self.config.scripted || !known.contains(&members.len()) {
            return Err(unfit("its pool has other places"));
        }
        self.members.truncate(scripts);
        for (place, stand) in members.into_iter().enumerate() {
            if place < scripts {
                self.members[place].stand = stand;
                continue;
            }
            let mut brain = Brain::new(make()?, &self.actions, true)?;
            brain.set(checkpoint.part(&part(place))?)?;
            self.members.push(Member {
                mind: Mind::Policy(brain),
                stand,
            });
        }
        self.score = score;
        Ok(())
    }
}

/// The part of a checkpoint with the weights of the policy in a place.
fn part(place: usize) -> String {
    format!("opponent{place}")
}

fn scripted(
    script: Scripted,
    space: &Space,
    search: &mut Option<Search>,
    moves: &mut Moves<'_>,
    out: &mut [f32],
) -> Result<()> {
    let rows = moves.masks.chunks(space.flat_len()).zip(out.chunks_mut(space.len()));
    for (((mask, out), rng), game) in rows.zip(&mut moves.rngs).zip(&moves.games) {
        match search {
            Some(search) if script != Scripted::Random => {
                let best = search.best(*game, script.depth())?;
                out[0] = best[rng.below(best.len())];
            }
            _ => space.sample_masked(mask, rng, out),
        }
    }
    Ok(())
}

pub(super) fn unfit(what: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::StateDict,
        format!("cannot go on from this checkpoint: {what}"),
    )
    .with_op("self-play")
    .with_hint("go on with the game and the options that it was made with")
}
