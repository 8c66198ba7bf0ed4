use polygrad_core::Rng;

use super::{WHITE, YELLOW};
use crate::{Canvas, Env, Render, Space, Step};

/// Drop discs in turns into the columns of an upright board, until four of one's own are in a line: horizontal,
/// vertical or diagonal.
///
/// Agent 0 begins. Observation `[3, 6, 7]` of each agent, from its own side, rows from the top: its discs, the other's,
/// and 1 everywhere if it is to move. Actions 0 to 6: the column. The mask of the agent to move allows the columns that
/// are not full. The mask of the other agent allows only 0, which means to wait and has no effect. The last move gives
/// the rewards 1 to the winner and −1 to the loser, or 0 to both if the board is full, and terminates. All other
/// rewards are 0.
#[derive(Clone, Debug, Default)]
pub struct ConnectFour {
    /// A bit for each disc of each agent: 7 for each column, from the bottom; the seventh is always 0.
    discs: [u64; 2],
    moves: usize,
    over: bool,
}

const COLUMNS: usize = 7;
const ROWS: usize = 6;
/// Distance in bits between neighbouring columns.
const NEXT: usize = ROWS + 1;
const PLANE: usize = ROWS * COLUMNS;

impl ConnectFour {
    /// An empty board.
    pub fn new() -> Self {
        Self::default()
    }

    /// The agent to move.
    fn mover(&self) -> usize {
        self.moves % 2
    }

    fn taken(&self) -> u64 {
        self.discs[0] | self.discs[1]
    }

    /// The lowest free place of a column; `None` if it is full.
    fn place(&self, column: usize) -> Option<u64> {
        if column >= COLUMNS {
            return None;
        }
        let bottom = 1 << (column * NEXT);
        let free = (self.taken() + bottom) & (((1 << ROWS) - 1) << (column * NEXT));
        (free != 0).then_some(free)
    }

    fn observe(&self, observation: &mut [f32]) {
        for (agent, own) in observation.chunks_exact_mut(3 * PLANE).enumerate() {
            let (discs, turn) = own.split_at_mut(2 * PLANE);
            for (plane, discs) in discs
                .chunks_exact_mut(PLANE)
                .zip([self.discs[agent], self.discs[1 - agent]])
            {
                for (above, row) in plane.chunks_exact_mut(COLUMNS).rev().enumerate() {
                    for (column, x) in row.iter_mut().enumerate() {
                        *x = (discs >> (column * NEXT + above) & 1) as f32;
                    }
                }
            }
            turn.fill(if agent == self.mover() && !self.over { 1.0 } else { 0.0 });
        }
    }
}

/// Whether four discs are in a line.
///
/// Source: Tromp, "John's Connect Four Playground" (its bitboard).
fn has_four(discs: u64) -> bool {
    [1, NEXT - 1, NEXT, NEXT + 1].into_iter().any(|by| {
        let pairs = discs & discs >> by;
        pairs & pairs >> (2 * by) != 0
    })
}

impl Env<2> for ConnectFour {
    fn observation_space(&self) -> Space {
        Space::boxed_in(0.0, 1.0, &[3, ROWS, COLUMNS])
    }

    fn action_space(&self) -> Space {
        Space::discrete(COLUMNS)
    }

    fn reset(&mut self, _rng: &mut Rng, observation: &mut [f32]) {
        *self = Self::new();
        self.observe(observation);
    }

    fn step(&mut self, action: &[f32], _rng: &mut Rng, observation: &mut [f32]) -> Step<2> {
        let mover = self.mover();
        let mut rewards = [0.0; 2];
        // A disc in a full column, which the mask does not allow, is ignored.
        if let Some(place) = self.place(action[mover] as usize).filter(|_| !self.over) {
            self.discs[mover] |= place;
            self.moves += 1;
            let won = has_four(self.discs[mover]);
            if won {
                (rewards[mover], rewards[1 - mover]) = (1.0, -1.0);
            }
            self.over = won || self.moves == PLANE;
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
        for (agent, own) in mask.chunks_exact_mut(COLUMNS).enumerate() {
            for (column, allowed) in own.iter_mut().enumerate() {
                *allowed = if agent == self.mover() {
                    self.place(column).is_some()
                } else {
                    column == 0
                };
            }
        }
    }
}
impl Render for ConnectFour {
    fn size(&self) -> [f32; 2] {
        [700.0, 600.0]
    }

    fn fps(&self) -> f64 {
        2.0
    }

    /// Agent 0 has the red discs.
    fn render(&self, canvas: &mut Canvas) {
        canvas.rectangle((0.0, 0.0), (700.0, 600.0), [30, 70, 180]);
        for (column, above) in (0..COLUMNS).flat_map(|column| (0..ROWS).map(move |above| (column, above))) {
            let bit = column * NEXT + above;
            let colour = match self.discs.map(|discs| discs >> bit & 1 == 1) {
                [true, _] => [210, 40, 40],
                [_, true] => YELLOW,
                _ => WHITE,
            };
            let middle = (100.0 * column as f32 + 50.0, 100.0 * (ROWS - 1 - above) as f32 + 50.0);
            canvas.disc(middle, 40.0, colour);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;
    use crate::check_env;

    struct Game {
        board: ConnectFour,
        seen: Vec<f32>,
    }

    impl Game {
        fn new() -> Self {
            let (mut board, mut seen) = (ConnectFour::new(), vec![9.0; 6 * PLANE]);
            board.reset(&mut Rng::new(0), &mut seen);
            Self { board, seen }
        }

        fn drop(&mut self, column: usize) -> Step<2> {
            let mut action = [0.0; 2];
            action[self.board.mover()] = column as f32;
            self.board.step(&action, &mut Rng::new(0), &mut self.seen)
        }

        fn masks(&self) -> [Vec<bool>; 2] {
            let mut mask = [true; 2 * COLUMNS];
            self.board.action_mask(&mut mask);
            [mask[..COLUMNS].to_vec(), mask[COLUMNS..].to_vec()]
        }

        fn disc(&self, agent: usize, plane: usize, row: usize, column: usize) -> bool {
            self.seen[((agent * 3 + plane) * ROWS + row) * COLUMNS + column] == 1.0
        }

        /// The lines of four of an agent's own discs that it observes, by start and direction.
        fn lines(&self, agent: usize) -> Vec<[usize; 3]> {
            let mut found = Vec::new();
            for (direction, (down, right)) in [(0, 1), (1, 0), (1, 1), (1, -1)].into_iter().enumerate() {
                for (row, column) in (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |column| (row, column))) {
                    let at = |i: usize| Some((row + i * down, column.checked_add_signed(i as isize * right)?));
                    let own = |i| {
                        at(i).is_some_and(|(row, column)| {
                            row < ROWS && column < COLUMNS && self.disc(agent, 0, row, column)
                        })
                    };
                    if (0..4).all(own) {
                        found.push([direction, row, column]);
                    }
                }
            }
            found
        }
    }

    #[test]
    fn four_in_a_line_win() {
        for (moves, winner) in [
            // Horizontal, vertical, and both diagonals.
            (&[0, 0, 1, 1, 2, 2, 3][..], 0),
            (&[6, 5, 6, 5, 0, 5, 6, 5], 1),
            (&[0, 1, 1, 2, 2, 3, 2, 3, 3, 6, 3], 0),
            (&[0, 6, 5, 5, 4, 4, 3, 4, 3, 3, 0, 3], 1),
            // Three and one across the border are no line, nor are discs at the top of a column and the bottom of the
            // next.
            (&[4, 0, 5, 0, 6, 1, 0, 6, 3], 0),
        ] {
            let mut game = Game::new();
            for (number, column) in moves.iter().enumerate() {
                let step = game.drop(*column);
                let last = number + 1 == moves.len();
                assert_eq!(step.terminated, last, "{moves:?}, {number}");
                let mut rewards = [0.0; 2];
                if last {
                    (rewards[winner], rewards[1 - winner]) = (1.0, -1.0);
                }
                assert_eq!(step.rewards, rewards, "{moves:?}, {number}");
            }
            // The game stays over.
            let seen = game.seen.clone();
            assert!(game.drop(2).terminated && game.seen == seen);
        }
    }

    /// Found by a random search, and verified with another program.
    const DRAWN: [usize; PLANE] = [
        4, 3, 6, 0, 1, 4, 5, 5, 1, 1, 5, 0, 1, 6, 0, 1, 5, 5, 1, 0, 4, 6, 3, 2, 6, 6, 0, 4, 6, 5, 2, 0, 4, 2, 4, 2, 2,
        2, 3, 3, 3, 3,
    ];

    #[test]
    fn a_full_board_is_a_draw() {
        let mut game = Game::new();
        for (number, column) in DRAWN.into_iter().enumerate() {
            let step = game.drop(column);
            assert_eq!(
                (step.rewards, step.terminated),
                ([0.0; 2], number == PLANE - 1),
                "{number}"
            );
        }
    }

    #[test]
    fn full_columns_are_masked() {
        let mut game = Game::new();
        let waits = |mask: &[bool]| mask == [true, false, false, false, false, false, false];
        for number in 0..ROWS {
            let [first, second] = game.masks();
            let (moves, rests) = if number % 2 == 0 {
                (first, second)
            } else {
                (second, first)
            };
            assert!(moves == [true; COLUMNS] && waits(&rests));
            assert!(
                game.seen[2 * PLANE..3 * PLANE]
                    .iter()
                    .all(|x| *x == f32::from(number % 2 == 0))
            );
            assert!(game.seen[5 * PLANE..].iter().all(|x| *x == f32::from(number % 2 == 1)));
            game.drop(3);
            // From the bottom; both agents see the same disc from their sides.
            let row = ROWS - 1 - number;
            assert!(game.disc(number % 2, 0, row, 3) && game.disc(1 - number % 2, 1, row, 3));
        }
        let [moves, rests] = game.masks();
        assert!(moves == [true, true, true, false, true, true, true] && waits(&rests));
        let seen = game.seen.clone();
        for column in [3, 7, usize::MAX] {
            assert!(!game.drop(column).terminated && game.seen == seen);
        }
        check_env(&mut ConnectFour::new()).unwrap();
    }

    #[test]
    fn games_of_chance_end_when_a_line_is_seen() {
        let mut rng = Rng::new(5);
        let (mut lines, mut draws) = (HashSet::new(), 0);
        for _ in 0..6000 {
            let mut game = Game::new();
            loop {
                let mover = game.board.mover();
                let mut column = [0.0];
                game.board
                    .action_space()
                    .sample_masked(&game.masks()[mover], &mut rng, &mut column);
                let step = game.drop(column[0] as usize);
                if !step.terminated {
                    continue;
                }
                let found = game.lines(mover);
                assert!(game.lines(1 - mover).is_empty());
                assert_eq!(step.rewards[mover] == 1.0, !found.is_empty());
                draws += usize::from(found.is_empty());
                lines.extend(found);
                break;
            }
        }
        // 24 horizontal, 21 vertical, 12 of each diagonal.
        assert!(lines.len() == 69 && draws > 0, "{} lines, {draws} draws", lines.len());
    }

    #[test]
    fn as_many_positions_as_are_known() {
        // Number of positions after each number of moves: OEIS A212693.
        let known = [1, 7, 49, 238, 1120, 4263, 16422, 54859];
        let bits = |seen: &[f32]| {
            seen[..2 * PLANE]
                .iter()
                .fold(0u128, |bits, x| bits << 1 | u128::from(*x == 1.0))
        };
        let start = Game::new();
        let mut positions = HashMap::from([(bits(&start.seen), Some(start.board))]);
        for (moves, expected) in known.into_iter().enumerate() {
            assert_eq!(positions.len(), expected, "after {moves} moves");
            let mut next = HashMap::new();
            let mut mask = [true; 2 * COLUMNS];
            let mut seen = vec![0.0; 6 * PLANE];
            for board in positions.values().flatten() {
                mask.fill(true);
                board.action_mask(&mut mask);
                let own = &mask[board.mover() * COLUMNS..][..COLUMNS];
                for column in (0..COLUMNS).filter(|column| own[*column]) {
                    let mut action = [0.0; 2];
                    action[board.mover()] = column as f32;
                    let mut board = board.clone();
                    let step = board.step(&action, &mut Rng::new(0), &mut seen);
                    // No position follows the end of a game.
                    next.insert(bits(&seen), (!step.terminated).then_some(board));
                }
            }
            positions = next;
        }
    }
}
