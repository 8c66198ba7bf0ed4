//! `polygrad eval` of runs in environments: what returns their policies get.

use polygrad::rl::zoo::Stepping;
use polygrad::rl::{EvaluateConfig, evaluate};

use super::Settings;
use crate::args::Eval;
use crate::failure::{Result, Shown};
use crate::outcome::Outcome;
use crate::progress::{grouped, say, short};
use crate::trained::{self, Trained};

/// How many environments play at once. Which episodes there are depends on it.
const ENVIRONMENTS: usize = 10;

/// Plays episodes with a run's policy, and says what came of them.
///
/// # Errors
/// A run that is missing or damaged, or a policy that computes no numbers; those of the device.
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
            "actions by chance"
        } else {
            "the likeliest actions"
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

fn interval((low, high): (f64, f64)) -> String {
    format!("{low:.2} to {high:.2}")
}
