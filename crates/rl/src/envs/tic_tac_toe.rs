use polygrad_core::Rng;

use super::WHITE;
use crate::{Canvas, Env, Render, Space, Step};

/// Put marks in turns on a board of 3 by 3 fields, until three of one's own are in a line: horizontal, vertical or
/// diagonal.
///
/// Agent 0 begins. Observation `[19]` of each agent, from its own side, rows from the top: its marks, the other's, and
/// 1 if it is to move. Actions 0 to 8: the field. The mask of the agent to move allows the free fields. The mask of the
/// other agent allows only 0, which means to wait and has no effect. The last move gives the rewards 1 to the winner
/// and −1 to the loser, or 0 to both if the board is full, and terminates. All other rewards are 0.
#[derive(Clone, Debug, Default)]
pub struct TicTacToe {
    /// A bit for each mark of each agent.
    marks: [u16; 2],
    moves: usize,
    over: bool,
}

const FIELDS: usize = 9;
const SIDE: usize = 3;
/// Numbers of an observation.
const SEEN: usize = 2 * FIELDS + 1;
const LINES: [u16; 8] = [
    0o007, 0o070, 0o700, // across
    0o111, 0o222, 0o444, // upright
    0o421, 0o124, // diagonal
];

impl TicTacToe {
    /// An empty board.
    pub fn new() -> Self {
        Self::default()
    }

    /// The agent to move.
    fn mover(&self) -> usize {
        self.moves % 2
    }

    fn is_free(&self, field: usize) -> bool {
        field < FIELDS && (self.marks[0] | self.marks[1]) >> field & 1 == 0
    }

    fn observe(&self, observation: &mut [f32]) {
        for (agent, own) in observation.chunks_exact_mut(SEEN).enumerate() {
            for (fields, marks) in own
                .chunks_exact_mut(FIELDS)
                .zip([self.marks[agent], self.marks[1 - agent]])
            {
                let numbers = fields.iter_mut().enumerate();
                numbers.for_each(|(field, x)| *x = f32::from(marks >> field & 1));
            }
            own[2 * FIELDS] = f32::from(agent == self.mover() && !self.over);
        }
    }
}

impl Env<2> for TicTacToe {
    fn observation_space(&self) -> Space {
        Space::boxed_in(0.0, 1.0, &[SEEN])
    }

    fn action_space(&self) -> Space {
        Space::discrete(FIELDS)
    }

    fn reset(&mut self, _rng: &mut Rng, observation: &mut [f32]) {
        *self = Self::new();
        self.observe(observation);
    }

    fn step(&mut self, action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step<2> {
        let mover = self.mover();
        let mut rewards = [0.0; 2];
        let field = action[mover] as usize;
        // A mark on a taken field, which the mask does not allow, is ignored.
        if self.is_free(field) && !self.over {
            self.marks[mover] |= 1 << field;
            self.moves += 1;
            let won = LINES.iter().any(|line| self.marks[mover] & line == *line);
            if won {
                (rewards[mover], rewards[1 - mover]) = (1.0, -1.0);
            }
            self.over = won || self.moves == FIELDS;
        }
        self.observe(observation);
        Step {
            rewards,
            terminated: self.over,
            truncated: false,
        }
    }

    fn waits(&self, agent: usize) -> bool {
        agent != self.mover()
    }

    fn has_action_mask(&self) -> bool {
        true
    }

    fn action_mask(&self, mask: &mut [bool]) {
        for (agent, own) in mask.chunks_exact_mut(FIELDS).enumerate() {
            for (field, allowed) in own.iter_mut().enumerate() {
                *allowed = if agent == self.mover() {
                    self.is_free(field)
                } else {
                    field == 0
                };
            }
        }
    }
}

impl Render for TicTacToe {
    fn size(&self) -> [f32; 2] {
        [300.0, 300.0]
    }

    fn fps(&self) -> f64 {
        2.0
    }

    /// Agent 0 has the crosses.
    fn render(&self, canvas: &mut Canvas) {
        canvas.rectangle((0.0, 0.0), (300.0, 300.0), WHITE);
        for at in [100.0, 200.0] {
            canvas.line(&[(at, 0.0), (at, 300.0)], 3.0, [0; 3]);
            canvas.line(&[(0.0, at), (300.0, at)], 3.0, [0; 3]);
        }
        for field in 0..FIELDS {
            let (x, y) = (
                100.0 * (field % SIDE) as f32 + 50.0,
                100.0 * (field / SIDE) as f32 + 50.0,
            );
            match self.marks.map(|marks| marks >> field & 1 == 1) {
                [true, _] => {
                    canvas.line(&[(x - 30.0, y - 30.0), (x + 30.0, y + 30.0)], 8.0, [210, 40, 40]);
                    canvas.line(&[(x - 30.0, y + 30.0), (x + 30.0, y - 30.0)], 8.0, [210, 40, 40]);
                }
                [_, true] => {
                    canvas.disc((x, y), 34.0, [30, 70, 180]);
                    canvas.disc((x, y), 26.0, WHITE);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check_env;

    /// Plays every game from here on. Returns the number of games, and those won by agent 0 and by agent 1.
    fn games(board: &TicTacToe, seen: &mut [f32]) -> [usize; 3] {
        let mut mask = [true; 2 * FIELDS];
        board.action_mask(&mut mask);
        let mover = board.mover();
        let mut all = [0; 3];
        for field in (0..FIELDS).filter(|field| mask[mover * FIELDS + field]) {
            let (mut next, mut action) = (board.clone(), [0.0; 2]);
            action[mover] = field as f32;
            let step = next.step(&action, &mut Rng::new(0), seen);
            let found = match step.terminated {
                true => [
                    1,
                    usize::from(step.rewards[0] > 0.0),
                    usize::from(step.rewards[1] > 0.0),
                ],
                false => games(&next, seen),
            };
            all.iter_mut().zip(found).for_each(|(all, found)| *all += found);
        }
        all
    }

    #[test]
    fn as_many_games_as_are_known() {
        // 255,168 games, of which 131,184 are won by the first player and 77,904 by the second.
        let found = games(&TicTacToe::new(), &mut [0.0; 2 * SEEN]);
        assert_eq!(found, [255_168, 131_184, 77_904]);
        check_env(&mut TicTacToe::new()).unwrap();
    }

    #[test]
    fn each_side_sees_the_board_as_its_own() {
        let (mut board, mut seen, mut rng) = (TicTacToe::new(), [0.0; 2 * SEEN], Rng::new(0));
        board.reset(&mut rng, &mut seen);
        assert!(!board.waits(0) && board.waits(1) && seen[18] == 1.0 && seen[37] == 0.0);
        board.step(&[4.0, 0.0], &mut rng, &mut seen);
        assert!(board.waits(0) && !board.waits(1));
        assert!(seen[4] == 1.0 && seen[19 + 13] == 1.0 && seen.iter().sum::<f32>() == 3.0);
        // A mark on a taken field changes nothing.
        let step = board.step(&[0.0, 4.0], &mut rng, &mut seen);
        assert!(!step.ended() && board.mover() == 1);
    }
}
