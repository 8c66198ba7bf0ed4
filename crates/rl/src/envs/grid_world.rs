use polygrad_core::{Error, Result, Rng};

use super::BLACK;
use crate::{Canvas, Env, Render, Space, Step};

/// Walk to a target on a square of `size` by `size` fields, as in Gymnasium's tutorial.
///
/// Observation `[4]`: column and row of the agent, then of the target. Actions 0, 1, 2, 3: right, up, left, down; at
/// the border the agent stays where it is. The reward is 1 for the step that reaches the target, which terminates, and
/// 0 otherwise.
#[derive(Clone, Debug)]
pub struct GridWorld {
    size: usize,
    agent: [usize; 2],
    target: [usize; 2],
}

impl GridWorld {
    /// Without a time limit.
    ///
    /// # Errors
    /// If `size` is below 2, since then there is no second field.
    pub fn new(size: usize) -> Result<Self> {
        if size < 2 {
            let message = format!("a grid of {size} by {size} fields has no place for an agent and a target");
            return Err(Error::invalid(message).with_hint("use a size of at least 2"));
        }
        Ok(Self {
            size,
            agent: [0; 2],
            target: [0; 2],
        })
    }

    fn observe(&self, observation: &mut [f32]) {
        for (x, field) in observation.iter_mut().zip(self.agent.iter().chain(&self.target)) {
            *x = *field as f32;
        }
    }
}

impl Env for GridWorld {
    fn observation_space(&self) -> Space {
        Space::multi_discrete(&[self.size; 4])
    }

    fn action_space(&self) -> Space {
        Space::discrete(4)
    }

    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        let mut field = || [rng.below(self.size), rng.below(self.size)];
        self.agent = field();
        self.target = field();
        while self.target == self.agent {
            self.target = field();
        }
        self.observe(observation);
    }

    fn step(&mut self, action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step {
        let [column, row] = &mut self.agent;
        let last = self.size - 1;
        match action[0] as usize {
            0 => *column = (*column + 1).min(last),
            1 => *row = (*row + 1).min(last),
            2 => *column = column.saturating_sub(1),
            _ => *row = row.saturating_sub(1),
        }
        self.observe(observation);
        let arrived = self.agent == self.target;
        Step::new(f64::from(u8::from(arrived)), arrived)
    }
}
impl Render for GridWorld {
    fn size(&self) -> [f32; 2] {
        [512.0; 2]
    }

    fn fps(&self) -> f64 {
        4.0
    }

    /// Row 0 is at the bottom.
    fn render(&self, canvas: &mut Canvas) {
        let side = 512.0 / self.size as f32;
        let left_top = |[column, row]: [usize; 2]| (side * column as f32, side * (self.size - 1 - row) as f32);
        let (x, y) = left_top(self.target);
        canvas.rectangle((x, y), (x + side, y + side), [255, 0, 0]);
        let (x, y) = left_top(self.agent);
        canvas.disc((x + side / 2.0, y + side / 2.0), side / 3.0, [0, 0, 255]);
        for line in 0..=self.size {
            let at = side * line as f32;
            canvas.line(&[(0.0, at), (512.0, at)], 3.0, BLACK);
            canvas.line(&[(at, 0.0), (at, 512.0)], 3.0, BLACK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_where_the_observation_says() {
        let mut world = GridWorld::new(5).unwrap();
        let mut seen = [0.0; 4];
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            world.reset(&mut rng, &mut seen);
            let away = (seen[0] - seen[2]).abs() + (seen[1] - seen[3]).abs();
            let mut steps = 0.0;
            loop {
                let action = match (seen[2] - seen[0], seen[3] - seen[1]) {
                    (x, _) if x > 0.0 => 0.0,
                    (x, _) if x < 0.0 => 2.0,
                    (_, y) if y > 0.0 => 1.0,
                    _ => 3.0,
                };
                let step = world.step(&[action], &mut rng, &mut seen);
                steps += 1.0;
                assert_eq!(step.rewards[0] == 1.0, step.terminated);
                if step.terminated {
                    break;
                }
            }
            assert!(steps == away && away > 0.0, "{steps} steps, {away} away");
        }
        assert!(GridWorld::new(1).is_err());
    }

    #[test]
    fn the_border_holds() {
        let mut world = GridWorld::new(2).unwrap();
        let (mut rng, mut seen) = (Rng::new(0), [0.0; 4]);
        for action in [0.0, 1.0, 2.0, 3.0] {
            world.reset(&mut rng, &mut seen);
            for _ in 0..4 {
                world.step(&[action], &mut rng, &mut seen);
                assert!(world.observation_space().contains(&seen), "{seen:?}");
            }
        }
    }
}
