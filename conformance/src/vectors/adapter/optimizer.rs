//! The optimizers of `torch.optim`, and some that it lacks. Each argument is a list of parameters, a group. Options are
//! those of the class, by name, and `group1.<name>` overrides one for the second group. `grads` lists the gradients of
//! each step, of all parameters. The answer is the parameters after each step.

use polygrad_nn::Param;
use polygrad_nn::optim::{
    AdadeltaConfig, AdagradConfig, AdamConfig, AdamaxConfig, AdjustLr, LAMBConfig, LionConfig, MuonConfig, NAdamConfig,
    Optimizer, RAdamConfig, RMSpropConfig, SGDConfig,
};
use polygrad_tensor::{Backend, Error, Result, Tensor};

use crate::vectors::call::{Call, CaseError, CaseOutputs, CaseResult, NAMED, unsupported};

/// The options of one group.
struct Options<'a, 'b, B: Backend> {
    call: &'a Call<'b, B>,
    group: usize,
}

impl<B: Backend> Options<'_, '_, B> {
    /// The group's own value of this name, or else the common one.
    fn own<T>(&self, name: &str, read: impl Fn(&str) -> CaseResult<T>) -> CaseResult<T> {
        let own = format!("group{}.{name}", self.group);
        read(if self.call.given(&own) { &own } else { name })
    }

    fn number(&self, name: &str, default: f64) -> CaseResult<f64> {
        self.own(name, |name| self.call.float(NAMED, name, default))
    }

    fn flag(&self, name: &str, default: bool) -> CaseResult<bool> {
        self.own(name, |name| self.call.flag(NAMED, name, default))
    }

    fn numbers<const N: usize>(&self, name: &str, default: [f64; N]) -> CaseResult<[f64; N]> {
        let all = self.own(name, |name| self.call.floats(NAMED, name, N))?;
        let all = all.unwrap_or_else(|| default.to_vec());
        all.try_into()
            .or_else(|all| unsupported(format!("argument {name}={all:?}")))
    }

    fn sgd(&self) -> CaseResult<SGDConfig> {
        Ok(SGDConfig::new(self.number("lr", 1e-3)?)
            .momentum(self.number("momentum", 0.0)?)
            .dampening(self.number("dampening", 0.0)?)
            .weight_decay(self.number("weight_decay", 0.0)?)
            .nesterov(self.flag("nesterov", false)?)
            .maximize(self.flag("maximize", false)?))
    }

    fn rmsprop(&self) -> CaseResult<RMSpropConfig> {
        Ok(RMSpropConfig::new(self.number("lr", 1e-2)?)
            .alpha(self.number("alpha", 0.99)?)
            .eps(self.number("eps", 1e-8)?)
            .momentum(self.number("momentum", 0.0)?)
            .weight_decay(self.number("weight_decay", 0.0)?)
            .centered(self.flag("centered", false)?)
            .maximize(self.flag("maximize", false)?))
    }

    fn adam(&self, new: fn(f64) -> AdamConfig, decay: f64) -> CaseResult<AdamConfig> {
        let [first, second] = self.numbers("betas", [0.9, 0.999])?;
        Ok(new(self.number("lr", 1e-3)?)
            .betas(first, second)
            .eps(self.number("eps", 1e-8)?)
            .weight_decay(self.number("weight_decay", decay)?)
            .amsgrad(self.flag("amsgrad", false)?)
            .maximize(self.flag("maximize", false)?))
    }

    fn adagrad(&self) -> CaseResult<AdagradConfig> {
        Ok(AdagradConfig::new(self.number("lr", 1e-2)?)
            .lr_decay(self.number("lr_decay", 0.0)?)
            .weight_decay(self.number("weight_decay", 0.0)?)
            .initial_accumulator_value(self.number("initial_accumulator_value", 0.0)?)
            .eps(self.number("eps", 1e-10)?)
            .maximize(self.flag("maximize", false)?))
    }

    fn adadelta(&self) -> CaseResult<AdadeltaConfig> {
        Ok(AdadeltaConfig::new(self.number("lr", 1.0)?)
            .rho(self.number("rho", 0.9)?)
            .eps(self.number("eps", 1e-6)?)
            .weight_decay(self.number("weight_decay", 0.0)?)
            .maximize(self.flag("maximize", false)?))
    }

    fn adamax(&self) -> CaseResult<AdamaxConfig> {
        let [first, second] = self.numbers("betas", [0.9, 0.999])?;
        Ok(AdamaxConfig::new(self.number("lr", 2e-3)?)
            .betas(first, second)
            .eps(self.number("eps", 1e-8)?)
            .weight_decay(self.number("weight_decay", 0.0)?)
            .maximize(self.flag("maximize", false)?))
    }

    fn nadam(&self) -> CaseResult<NAdamConfig> {
        let [first, second] = self.numbers("betas", [0.9, 0.999])?;
        Ok(NAdamConfig::new(self.number("lr", 2e-3)?)
            .betas(first, second)
            .eps(self.number("eps", 1e-8)?)
            .weight_decay(self.number("weight_decay", 0.0)?)
            .momentum_decay(self.number("momentum_decay", 4e-3)?)
            .decoupled_weight_decay(self.flag("decoupled_weight_decay", false)?)
            .maximize(self.flag("maximize", false)?))
    }

    fn radam(&self) -> CaseResult<RAdamConfig> {
        let [first, second] = self.numbers("betas", [0.9, 0.999])?;
        Ok(RAdamConfig::new(self.number("lr", 1e-3)?)
            .betas(first, second)
            .eps(self.number("eps", 1e-8)?)
            .weight_decay(self.number("weight_decay", 0.0)?)
            .decoupled_weight_decay(self.flag("decoupled_weight_decay", false)?)
            .maximize(self.flag("maximize", false)?))
    }

    fn lion(&self) -> CaseResult<LionConfig> {
        let [first, second] = self.numbers("betas", [0.9, 0.99])?;
        Ok(LionConfig::new(self.number("lr", 1e-4)?)
            .betas(first, second)
            .weight_decay(self.number("weight_decay", 0.0)?))
    }

    fn lamb(&self) -> CaseResult<LAMBConfig> {
        let [first, second] = self.numbers("betas", [0.9, 0.999])?;
        Ok(LAMBConfig::new(self.number("lr", 1e-3)?)
            .betas(first, second)
            .eps(self.number("eps", 1e-6)?)
            .weight_decay(self.number("weight_decay", 0.01)?)
            .trust_clip(self.flag("trust_clip", false)?)
            .always_adapt(self.flag("always_adapt", false)?))
    }

    fn muon(&self) -> CaseResult<MuonConfig> {
        let [first, third, fifth] = self.numbers("ns_coefficients", [3.4445, -4.7750, 2.0315])?;
        let adjust = match self.own("adjust_lr_fn", |name| self.call.text(NAMED, name))? {
            None | Some("original") => AdjustLr::Original,
            Some("match_rms_adamw") => AdjustLr::MatchRmsAdamW,
            Some(other) => return unsupported(format!("argument adjust_lr_fn={other}")),
        };
        Ok(MuonConfig::new(self.number("lr", 1e-3)?)
            .weight_decay(self.number("weight_decay", 0.1)?)
            .momentum(self.number("momentum", 0.95)?)
            .nesterov(self.flag("nesterov", true)?)
            .ns_coefficients(first, third, fifth)
            .eps(self.number("eps", 1e-7)?)
            .ns_steps(self.own("ns_steps", |name| self.call.size(NAMED, name, 5))?)
            .adjust_lr(adjust))
    }
}

fn optimizer<B: Backend>(
    name: &str,
    call: &Call<'_, B>,
    groups: &[Vec<Param<B>>],
) -> CaseResult<Box<dyn Optimizer<B>>> {
    let options = |group: usize| Options { call, group };
    // Configs and optimizers share method names, but no trait.
    macro_rules! grouped {
        ($config:expr) => {{
            let config = $config;
            let Some((first, others)) = groups.split_first() else {
                return unsupported("an optimizer without parameters");
            };
            let mut optimizer = config(options(0))?.build(first.to_vec())?;
            for (i, params) in others.iter().enumerate() {
                optimizer.add_group(config(options(i + 1))?, params.to_vec())?;
            }
            Ok(Box::new(optimizer))
        }};
    }
    match name {
        "SGD" => grouped!(|options: Options<'_, '_, B>| options.sgd()),
        "RMSprop" => grouped!(|options: Options<'_, '_, B>| options.rmsprop()),
        "Adam" => grouped!(|options: Options<'_, '_, B>| options.adam(AdamConfig::new, 0.0)),
        "AdamW" => grouped!(|options: Options<'_, '_, B>| options.adam(AdamConfig::adamw, 1e-2)),
        "Adagrad" => grouped!(|options: Options<'_, '_, B>| options.adagrad()),
        "Adadelta" => grouped!(|options: Options<'_, '_, B>| options.adadelta()),
        "Adamax" => grouped!(|options: Options<'_, '_, B>| options.adamax()),
        "NAdam" => grouped!(|options: Options<'_, '_, B>| options.nadam()),
        "RAdam" => grouped!(|options: Options<'_, '_, B>| options.radam()),
        "Lion" => grouped!(|options: Options<'_, '_, B>| options.lion()),
        "LAMB" => grouped!(|options: Options<'_, '_, B>| options.lamb()),
        "Muon" => grouped!(|options: Options<'_, '_, B>| options.muon()),
        _ => Err(CaseError::OtherFamily),
    }
}

/// A scalar whose gradients with respect to the parameters are the given ones.
fn loss<B: Backend>(params: &[Param<B>], grads: &[&Tensor<B>]) -> Result<Tensor<B>> {
    let products = params
        .iter()
        .zip(grads)
        .map(|(param, grad)| param.tensor().mul(grad)?.sum_all());
    let total = products.reduce(|total, next| total?.add(&next?));
    total.unwrap_or_else(|| Err(Error::invalid("an optimizer without parameters")))
}

pub(super) fn answer<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let Some(name) = call.op().strip_prefix("optim.") else {
        return Err(CaseError::OtherFamily);
    };
    let mut groups = Vec::new();
    while call.has(groups.len(), "params") {
        let params = call.tensors(groups.len(), "params")?.into_iter().cloned();
        groups.push(params.map(Param::new).collect::<Result<Vec<Param<B>>>>()?);
    }
    let mut optimizer = optimizer(name, call, &groups)?;
    let params = groups.concat();
    let mut outputs = Vec::new();
    for grads in call.lists_of_tensors(NAMED, "grads")? {
        optimizer.step(&loss(&params, &grads)?.backward()?)?;
        outputs.extend(params.iter().map(Param::tensor));
    }
    Ok(outputs)
}
