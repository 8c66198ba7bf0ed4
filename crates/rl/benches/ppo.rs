//! PPO's speed: `cargo bench -p polygrad-rl --bench ppo`, or a part of it:
//! `… --bench ppo -- cartpole-cleanrl act --threads 1 --seed 3 --runs 5`.
//!
//! Whole trainings, each with the mean return of its last 100 episodes, so that a training that learns nothing does not
//! pass for a fast one; and `act`, the cost of one action. The fastest of several runs is reported, since other load on
//! the machine only makes them slower.

use std::hint::black_box;
use std::time::Instant;

use polygrad_cpu::{Cpu, CpuDevice, Kernels};
use polygrad_nn::distributions::Distribution;
use polygrad_nn::models::ActivationFn;
use polygrad_rl::{
    ActionSpace, ActorCritic, Annealed, CartPole, EncoderConfig, MlpEncoderConfig, Pendulum, Player, Policy,
    PolicyConfig, PolicyState, Ppo, PpoConfig, Rng, VectorEnv, Vectorized,
};
use polygrad_tensor::{Compiled, Device, Error, Result, Tensor, manual_seed};

const ACT: &str = "act";

struct Training {
    name: &'static str,
    threads: usize,
    envs: fn() -> Result<Box<dyn VectorEnv>>,
    policy: fn() -> PolicyConfig,
    log_std: f32,
    config: fn() -> PpoConfig,
}

/// Actor and critic each have a network of two layers of 64 features, as everywhere in this file.
fn cart_pole_policy() -> PolicyConfig {
    PolicyConfig::mlp(4, ActionSpace::Discrete(2))
}

fn cart_poles<const N: usize>() -> Result<Box<dyn VectorEnv>> {
    Ok(Box::new(Vectorized::new(|_| CartPole::v1(), N)?))
}

static TRAININGS: [Training; 4] = [
    // 4 environments, 128 steps, 4 minibatches of 128, 4 epochs.
    Training {
        name: "cartpole-cleanrl",
        threads: 1,
        envs: cart_poles::<4>,
        policy: cart_pole_policy,
        log_std: 0.0,
        config: PpoConfig::cleanrl,
    },
    // RLtools' own benchmark: 4 environments, 1024 steps, minibatches of 256, 2 epochs, ReLU.
    Training {
        name: "pendulum-rltools",
        threads: 1,
        envs: || Ok(Box::new(Vectorized::new(|_| Pendulum::v1(), 4)?)),
        policy: || {
            let encoder = MlpEncoderConfig {
                activation: ActivationFn::Relu,
                ..MlpEncoderConfig::new(3)
            };
            PolicyConfig::new(EncoderConfig::Mlp(encoder), ActionSpace::Continuous(1))
        },
        log_std: std::f32::consts::LN_2,
        config: || PpoConfig {
            total_steps: 307_200,
            num_steps: 1024,
            num_minibatches: 16,
            update_epochs: 2,
            learning_rate: 1e-3.into(),
            gamma: 0.9,
            clip_value: false,
            entropy_coefficient: 0.0.into(),
            normalize_observations: Some(10.0),
            ..PpoConfig::default()
        },
    },
    // As `benches/peers/modurl`: 8 environments, 256 steps, minibatches of 64, 10 epochs.
    Training {
        name: "cartpole-modurl",
        threads: 1,
        envs: cart_poles::<8>,
        policy: cart_pole_policy,
        log_std: 0.0,
        config: || PpoConfig {
            total_steps: 102_400,
            num_steps: 256,
            num_minibatches: 32,
            update_epochs: 10,
            learning_rate: 3e-4.into(),
            clip_value: false,
            entropy_coefficient: 0.0.into(),
            ..PpoConfig::default()
        },
    },
    // 1,024 environments, 32 steps, 8 minibatches of 4,096, one epoch.
    Training {
        name: "cartpole-1024",
        threads: 2,
        envs: cart_poles::<1024>,
        policy: cart_pole_policy,
        log_std: 0.0,
        config: || PpoConfig {
            total_steps: 3_276_800,
            num_steps: 32,
            num_minibatches: 8,
            update_epochs: 1,
            learning_rate: Annealed::Linear(3e-3, 0.0),
            ..PpoConfig::default()
        },
    },
];

/// Measurements of one run.
struct Run {
    seconds: f64,
    steps: u64,
    /// Shares of the time: environments, choosing actions, learning.
    shares: [f64; 3],
    mean_return: Option<f64>,
}

impl Training {
    fn run(&self, device: &Device, seed: u64) -> Result<Run> {
        manual_seed(seed);
        let policy = ActorCritic::new(&(self.policy)(), device)?;
        if let Some(log_std) = &policy.log_std {
            log_std.set(&Tensor::full([1], self.log_std, device)?)?;
        }
        let config = PpoConfig {
            seed,
            ..(self.config)()
        };
        let mut ppo = Ppo::new((self.envs)()?, policy, config)?;
        let (start, mut parts) = (Instant::now(), [0.0; 3]);
        while !ppo.is_done() {
            let iteration = ppo.iterate()?;
            let seconds = [iteration.env_seconds, iteration.act_seconds, iteration.learn_seconds];
            parts.iter_mut().zip(seconds).for_each(|(sum, x)| *sum += x);
        }
        let seconds = start.elapsed().as_secs_f64();
        match ppo.refusal() {
            Some(why) => Err(Error::invalid(format!("its steps are not replayed: {why}")).with_op(self.name)),
            None => Ok(Run {
                seconds,
                steps: ppo.steps(),
                shares: parts.map(|part| part / seconds),
                mean_return: ppo.mean_return(),
            }),
        }
    }

    fn measure(&self, options: &Options) -> Result<()> {
        let threads = options.threads.unwrap_or(self.threads);
        let device = cpu(threads)?;
        let mut fastest = self.run(&device, options.seed)?;
        for _ in 1..options.runs {
            let run = self.run(&device, options.seed)?;
            if run.seconds < fastest.seconds {
                fastest = run;
            }
        }
        let Run {
            seconds,
            steps,
            shares,
            mean_return,
        } = fastest;
        let [env, act, learn] = shares.map(|share| 100.0 * share);
        println!(
            "{:<18} {:>9.0} steps/s  {seconds:.3} s  threads {threads}  return {:.1}  \
             environments {env:.1} %, acting {act:.1} %, learning {learn:.1} %",
            self.name,
            steps as f64 / seconds,
            mean_return.unwrap_or(f64::NAN)
        );
        Ok(())
    }
}

fn cpu(threads: usize) -> Result<Device> {
    let device = CpuDevice::new(threads, Kernels::default())?;
    Ok(Device::<Cpu>::from_inner(device).into_any())
}

/// Measures an action for one observation of CartPole: by the actor alone, and with everything that a rollout step
/// needs.
fn act(options: &Options) -> Result<()> {
    let device = cpu(options.threads.unwrap_or(1))?;
    manual_seed(options.seed);
    let policy = ActorCritic::new(&cart_pole_policy(), &device)?;
    let inputs = [Tensor::randn([1, 4], &device)?];
    let answer = || policy.forward(&inputs[0], &PolicyState::new(Vec::new()));
    let actor = Compiled::new(&inputs, || Ok(vec![answer()?.action.output().clone()]))?;
    let whole = Compiled::new(&inputs, || {
        let answer = answer()?;
        let distribution = answer.action.distribution(None)?;
        let action = distribution.sample()?;
        let log_prob = distribution.log_prob(&action)?;
        Ok(vec![action, log_prob, answer.value()?.clone()])
    })?;
    let compiled = [("actor", actor), ("actor, critic, sample, log-probability", whole)];
    for (name, compiled) in &compiled {
        let ops = compiled.ops().join(" ");
        fastest_call(options, &format!("{name}: {ops}"), || compiled.run(&inputs))?;
    }
    let envs = cart_poles::<1>()?;
    let player = Player::new(&policy, envs.observation_space(), envs.action_space(), 1)?;
    let (mut player, mut action) = (player.sampled(Rng::new(options.seed)), [0.0]);
    let observation = inputs[0].to_vec::<f32>()?;
    fastest_call(options, "Player, from numbers to an action", || {
        player.act(&observation, None, &mut action)
    })
}

fn fastest_call<T>(options: &Options, name: &str, mut call: impl FnMut() -> Result<T>) -> Result<()> {
    let mut fastest = f64::INFINITY;
    for _ in 0..100 * options.runs {
        let start = Instant::now();
        for _ in 0..1000 {
            black_box(call()?);
        }
        fastest = fastest.min(start.elapsed().as_secs_f64() * 1e3);
    }
    println!("{ACT:<18} {fastest:>9.2} µs  {name}");
    Ok(())
}

struct Options {
    names: Vec<String>,
    threads: Option<usize>,
    seed: u64,
    runs: usize,
}

impl Options {
    fn parse(mut given: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self {
            names: Vec::new(),
            threads: None,
            seed: 1,
            runs: 3,
        };
        while let Some(word) = given.next() {
            let mut number = || -> Result<u64> {
                let text = given.next().unwrap_or_default();
                text.parse()
                    .map_err(|_| Error::invalid(format!("{word} needs a number, not {text:?}")))
            };
            match word.as_str() {
                // Given by cargo.
                "--bench" => {}
                "--threads" => options.threads = Some(number()? as usize),
                "--seed" => options.seed = number()?,
                "--runs" => options.runs = number()?.max(1) as usize,
                name if name == ACT || TRAININGS.iter().any(|training| training.name == name) => {
                    options.names.push(word);
                }
                _ => {
                    let names: Vec<&str> = TRAININGS.iter().map(|training| training.name).collect();
                    return Err(Error::invalid(format!("there is no {word}")).with_hint(format!(
                        "there are {}, {ACT}, --threads, --seed and --runs",
                        names.join(", ")
                    )));
                }
            }
        }
        Ok(options)
    }

    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }
}

fn main() -> Result<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    for training in TRAININGS.iter().filter(|training| options.wants(training.name)) {
        training.measure(&options)?;
    }
    if options.wants(ACT) {
        act(&options)?;
    }
    Ok(())
}
