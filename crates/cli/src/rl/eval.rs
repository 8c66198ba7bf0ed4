//! `polygrad eval` of runs in environments: the returns of their policies.

use std::path::Path;

use polygrad::Device;
use polygrad::rl::zoo::Stepping;
use polygrad::rl::{EvaluateConfig, Policy, Rival, Scripted, contest, contest_in_full, evaluate};

use super::Settings;
use crate::args::Eval;
use crate::failure::{Failure, Result, Shown};
use crate::outcome::Outcome;
use crate::progress::{grouped, say, short};
use crate::trained::{self, Trained};

/// The number of environments that play at once. The episodes depend on it.
const ENVIRONMENTS: usize = 10;

/// Plays episodes with a run's policy, and reports their results.
///
/// # Errors
/// A run that is missing or damaged, or a policy that computes NaN or infinity; errors of the device.
pub(crate) fn command(args: &Eval) -> Result<Outcome> {
    let trained = trained::load::<Settings>(&args.run, args.backend.as_deref(), args.threads)?;
    let Trained { config, device, model } = trained;
    let config = config.strictly();
    config.check_sample(args.sample)?;
    let spec = config.spec()?;
    let options = EvaluateConfig {
        episodes: args.episodes.unwrap_or(100),
        seed: args.seed.unwrap_or(0),
        sample: args.sample,
    };
    if let Some(opponent) = &args.opponent {
        return against(args, opponent, (&config, &device), &*model, &options);
    }
    let mut envs = spec.make(ENVIRONMENTS.min(options.episodes), Stepping::Serial)?;
    say(&format!(
        "{}: {} in {} of {}, {}, on {device}",
        args.run.shown(),
        config.network(),
        match options.episodes {
            1 => "an episode".to_owned(),
            episodes => format!("{} episodes", grouped(episodes as u64)),
        },
        spec.name,
        if args.sample {
            "sampled actions"
        } else {
            "the most likely actions"
        },
    ));
    let found = evaluate(&*model, &mut envs, &options)?;
    let (mean, solved) = (found.mean(), spec.reward_threshold);
    let of = if envs.agents() > 1 { " of the first player" } else { "" };
    let spread = match options.episodes {
        1 => String::new(),
        _ => format!(
            " ± {:.2} (standard error), 95 % interval {}",
            found.std_error(),
            interval(found.mean_interval())
        ),
    };
    say(&format!("mean return{of} {mean:.2}{spread}"));
    if options.episodes > 1 {
        let iqm = found.iqm();
        say(&format!(
            "interquartile mean {iqm:.2}, 95 % interval {}",
            interval(found.iqm_interval())
        ));
    }
    say(&format!("mean length {:.1} steps", found.mean_length()));
    if let Some(threshold) = solved {
        let verdict = if mean >= threshold { "counts" } else { "does not count" };
        say(&format!("{verdict} as solved (from {} on)", short(threshold)));
    }
    Ok(Outcome::Done)
}

/// Plays against an opponent, as the first and as the second player.
fn against(
    args: &Eval,
    opponent: &Path,
    (config, device): (&Settings, &Device),
    model: &dyn Policy,
    options: &EvaluateConfig,
) -> Result<Outcome> {
    let spec = config.spec()?;
    let game = spec.game()?;
    let rival = match opponent.to_str() {
        Some("random") => Rival::Script(Scripted::Random),
        Some("greedy") => Rival::Script(Scripted::Greedy),
        Some("solver") => Rival::Script(Scripted::Solver),
        _ => {
            let other = trained::load::<Settings>(opponent, args.backend.as_deref(), args.threads)?;
            if other.config.environment != config.environment {
                return Err(Failure::new(format!(
                    "{} plays {}, and {} plays {}",
                    opponent.shown(),
                    other.config.environment,
                    args.run.shown(),
                    config.environment
                ))
                .fix("take a run in the same game"));
            }
            let draws = other.config.algorithm.refuses_sampling().is_none();
            Rival::Policy(other.model, draws)
        }
    };
    let in_full = matches!(rival, Rival::Script(Scripted::Solver));
    if in_full {
        let given = [
            ("--sample", args.sample),
            ("--episodes", args.episodes.is_some()),
            ("--seed", args.seed.is_some()),
        ];
        if let Some((option, _)) = given.into_iter().find(|(_, given)| *given) {
            return Err(Failure::new(format!(
                "{option} means nothing against solver: every game that it may play is played once"
            ))
            .fix("leave it out"));
        }
    }
    let games = match in_full {
        true => "every game that it may play".to_owned(),
        false => format!("{} games", grouped(options.episodes as u64)),
    };
    say(&format!(
        "{}: {} in {} against {}, {games}, on {device}",
        args.run.shown(),
        config.network(),
        spec.name,
        opponent.shown()
    ));
    let found = match in_full {
        true => contest_in_full(model, &*game, Scripted::Solver)?,
        false => contest(model, &*game, rival, options)?,
    };
    for (player, side) in ["first", "second"].into_iter().zip(&found.sides) {
        say(&format!(
            "as the {player} player {} games: {} won, {} drawn, {} lost",
            grouped(side.games() as u64),
            grouped(side.won as u64),
            grouped(side.drawn as u64),
            grouped(side.lost as u64)
        ));
    }
    let elo = match found.elo() {
        elo if elo.is_finite() && !in_full => format!(", Elo {elo:+.0} relative to the opponent"),
        _ => String::new(),
    };
    say(&format!("score {:.3}{elo}", found.score()));
    Ok(Outcome::Done)
}

fn interval((low, high): (f64, f64)) -> String {
    format!("{low:.2} to {high:.2}")
}
