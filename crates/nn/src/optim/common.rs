//! What all optimizers have in common.

/// Implements [`Optimizer`](crate::Optimizer) for a type with `slots`, `config.lr` and `update`.
macro_rules! optimizer {
    ($name:ident) => {
        impl<B: Backend> $crate::Optimizer<B> for $name<B> {
            fn step(&mut self, gradients: &Gradients<B>) -> Result<()> {
                let config = &self.config;
                self.slots.step(gradients, |param, gradient, state, step| {
                    Self::update(config, param, gradient, state, step)
                })
            }

            fn allow_unused(&mut self, allow: bool) {
                self.slots.allow_unused = allow;
            }

            fn lr(&self) -> f64 {
                self.config.lr
            }

            fn set_lr(&mut self, lr: f64) {
                self.config.lr = lr;
            }

            fn state_dict(&self) -> Result<$crate::StateDict> {
                self.slots.state_dict(self.config.lr)
            }

            fn load_state_dict(&mut self, state: &$crate::StateDict) -> Result<()> {
                self.config.lr = self.slots.load_state_dict(state)?;
                Ok(())
            }
        }
    };
}

pub(super) use optimizer;
