use polygrad_core::{Error, Result, Rng};

use super::{GREY, WHITE};
use crate::{Canvas, Env, Point, Render, Space, Step};

/// A corridor that ends in a junction, with a sign at its beginning that says where to turn there.
///
/// Observation `[3]`: at the beginning the sign, (0, 1, 1) or (1, 1, 0); in the corridor (1, 0, 1); at the junction
/// (0, 1, 0). Actions 0, 1, 2, 3: north, east, south, west; the corridor goes east. The first sign means north, the
/// second south. The reward is 4 for the right turn and −0.1 for the wrong one, which both terminate, −0.1 for a step
/// against a wall, and 0 otherwise.
///
/// At the junction both signs look alike: a policy without memory takes the right turn at most half of the time.
///
/// Source: Bakker, "Reinforcement learning with long short-term memory" (NeurIPS 2001).
#[derive(Clone, Debug)]
pub struct TMaze {
    length: usize,
    place: usize,
    north: bool,
}

impl TMaze {
    /// A corridor whose junction is `length` steps from its beginning, without a time limit.
    ///
    /// # Errors
    /// When `length` is 0.
    pub fn new(length: usize) -> Result<Self> {
        if length == 0 {
            let message = "a corridor of length 0 has its sign at the junction, and needs no memory";
            return Err(Error::invalid(message).with_hint("use a length of at least 1"));
        }
        Ok(Self {
            length,
            place: 0,
            north: false,
        })
    }

    fn observe(&self, observation: &mut [f32]) {
        observation.copy_from_slice(match self.place {
            0 if self.north => &[0.0, 1.0, 1.0],
            0 => &[1.0, 1.0, 0.0],
            place if place < self.length => &[1.0, 0.0, 1.0],
            _ => &[0.0, 1.0, 0.0],
        });
    }
}

impl Env for TMaze {
    fn observation_space(&self) -> Space {
        Space::multi_binary(3)
    }

    fn action_space(&self) -> Space {
        Space::discrete(4)
    }

    fn reset(&mut self, rng: &mut Rng, observation: &mut [f32]) {
        self.place = 0;
        self.north = rng.below(2) == 0;
        self.observe(observation);
    }

    fn step(&mut self, action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step {
        let at_junction = self.place == self.length;
        let step = match action[0] as usize {
            turn @ (0 | 2) if at_junction => Step::new(if (turn == 0) == self.north { 4.0 } else { -0.1 }, true),
            1 if !at_junction => {
                self.place += 1;
                Step::new(0.0, false)
            }
            3 if self.place > 0 => {
                self.place -= 1;
                Step::new(0.0, false)
            }
            _ => Step::new(-0.1, false),
        };
        self.observe(observation);
        step
    }
}
impl Render for TMaze {
    /// A field is a square of 40 pixels.
    fn size(&self) -> [f32; 2] {
        [40.0 * (self.length + 3) as f32, 200.0]
    }

    fn fps(&self) -> f64 {
        5.0
    }

    /// The sign points in the direction to turn. The goal there is green.
    fn render(&self, canvas: &mut Canvas) {
        let [width, height] = self.size();
        canvas.rectangle((0.0, 0.0), (width, height), GREY);
        let left = |column: usize| 40.0 * (column + 1) as f32;
        let mut field = |column: usize, row: f32, colour| {
            canvas.rectangle(
                (left(column), 80.0 + 40.0 * row),
                (left(column) + 40.0, 120.0 + 40.0 * row),
                colour,
            );
        };
        (0..=self.length).for_each(|column| field(column, 0.0, WHITE));
        for (row, is_goal) in [(-1.0, self.north), (1.0, !self.north)] {
            field(self.length, row, if is_goal { [60, 180, 90] } else { WHITE });
        }
        let up: f32 = if self.north { -1.0 } else { 1.0 };
        let sign: [Point; 3] = [(48.0, 100.0), (72.0, 100.0), (60.0, 100.0 + 16.0 * up)];
        canvas.polygon(&sign, [60, 180, 90]);
        canvas.disc((left(self.place) + 20.0, 100.0), 10.0, [40, 80, 220]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes east, then turns as `turn` chooses from the sign. Returns the return.
    fn walk(seed: u64, length: usize, turn: impl Fn(&[f32]) -> f32) -> f64 {
        let mut maze = TMaze::new(length).unwrap();
        let (mut rng, mut observation) = (Rng::new(seed), [9.0; 3]);
        maze.reset(&mut rng, &mut observation);
        let sign = observation;
        let mut total = 0.0;
        for place in 1..=length {
            let step = maze.step(&[1.0], &mut rng, &mut observation);
            total += step.rewards[0];
            assert!(!step.ended());
            assert_eq!(observation == [1.0, 0.0, 1.0], place < length);
        }
        let wall = maze.step(&[1.0], &mut rng, &mut observation);
        assert_eq!((wall.rewards, observation), ([-0.1], [0.0, 1.0, 0.0]));
        let last = maze.step(&[turn(&sign)], &mut rng, &mut observation);
        assert!(last.terminated);
        total + last.rewards[0]
    }

    #[test]
    fn the_sign_says_where_to_turn() {
        for seed in 0..20 {
            assert_eq!(walk(seed, 5, |sign| if sign[0] == 0.0 { 0.0 } else { 2.0 }), 4.0);
            assert_eq!(walk(seed, 1, |sign| if sign[0] == 0.0 { 2.0 } else { 0.0 }), -0.1);
        }
        let right = (0..1000).filter(|seed| walk(*seed, 3, |_| 0.0) == 4.0).count();
        assert!((440..560).contains(&right), "{right}");
        assert!(TMaze::new(0).is_err());
    }
}
