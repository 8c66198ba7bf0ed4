//! How many times Polygrad's time each peer takes: a row for each case, a dot for each peer, a logarithmic axis.

use super::report::Ratios;
use crate::plot::canvas::{Align, Canvas, Colour, Picture as _, Style};
use crate::plot::colours::{FAINT, GRID, GROUND, INK, LINES};

const WIDTH: f32 = 1100.0;
const LEFT: f32 = 380.0;
const RIGHT: f32 = 1060.0;
/// From the middle of the legend's last line to the first row.
const HEAD: f32 = 67.0;
const ROW: f32 = 30.0;

const LABEL: Style = Style {
    size: 14.0,
    weight: 1.8,
    colour: INK,
};
const AXIS: Style = Style { colour: FAINT, ..LABEL };

/// Draws the ratios of a report.
///
/// # Errors
/// Whatever the PNG encoder says.
pub(crate) fn draw(rows: &[Ratios]) -> Result<Vec<u8>, png::EncodingError> {
    let mut peers: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flat_map(|(_, ratios)| ratios) {
        if !peers.contains(&name.as_str()) {
            peers.push(name);
        }
    }
    let places = legend(&peers);
    let top = places.last().map_or(43.0, |place| place.1) + HEAD;
    let bottom = top + ROW * rows.len().max(1) as f32;
    let mut canvas = Canvas::new(WIDTH as usize, (bottom + 60.0) as usize, GROUND);
    for (i, (name, &(x, y))) in peers.iter().zip(&places).enumerate() {
        canvas.strokes(&[vec![(x, y)]], 11.0, colour(i), 1.0);
        canvas.text(name, (x + 14.0, y + 6.0), Align::Left, LABEL);
    }
    let axis = Axis::of(rows.iter().flat_map(|(_, ratios)| ratios).map(|(_, ratio)| *ratio));
    for tick in axis.ticks() {
        let x = axis.place(tick).round() + 0.5;
        let (thickness, shade) = if tick == 1.0 { (3.0, FAINT) } else { (1.0, GRID) };
        canvas.strokes(&[vec![(x, top - 8.0), (x, bottom)]], thickness, shade, 1.0);
        canvas.text(&format!("{tick}"), (x, top - 18.0), Align::Centre, AXIS);
    }
    let title = "times Polygrad's time (left of 1 the peer is faster)";
    canvas.text(title, ((LEFT + RIGHT) / 2.0, bottom + 38.0), Align::Centre, AXIS);
    for (row, (case, ratios)) in rows.iter().enumerate() {
        let y = top + ROW * (row as f32 + 0.5);
        canvas.text(case, (LEFT - 16.0, y + 6.0), Align::Right, LABEL);
        for (name, ratio) in ratios {
            let peer = peers.iter().position(|peer| peer == name).unwrap_or(0);
            canvas.strokes(&[vec![(axis.place(*ratio), y)]], 11.0, colour(peer), 0.85);
        }
    }
    canvas.to_png()
}

/// Where each peer's dot stands in the legend, line by line.
fn legend(peers: &[&str]) -> Vec<(f32, f32)> {
    let (mut x, mut y) = (LEFT, 43.0);
    let place = |name: &&str| {
        let width = 50.0 + 10.5 * name.len() as f32;
        if x > LEFT && x + width > WIDTH {
            (x, y) = (LEFT, y + ROW);
        }
        let here = (x, y);
        x += width;
        here
    };
    peers.iter().map(place).collect()
}

fn colour(peer: usize) -> Colour {
    LINES[peer % LINES.len()]
}

/// The ratios from left to right.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    /// From at most a half to at least two.
    fn of(ratios: impl Iterator<Item = f64> + Clone) -> Self {
        Self {
            low: ratios.clone().fold(0.5, f64::min) / 1.1,
            high: ratios.fold(2.0, f64::max) * 1.1,
        }
    }

    fn place(&self, ratio: f64) -> f32 {
        let share = (ratio / self.low).ln() / (self.high / self.low).ln();
        LEFT + share as f32 * (RIGHT - LEFT)
    }

    /// 1, 2 and 5 of each power of ten; of a wide axis the powers alone.
    fn ticks(&self) -> Vec<f64> {
        let wide = self.high / self.low > 300.0;
        let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let steps: &[f64] = if wide { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let ticks = powers.flat_map(|power| {
            // A division gives the nearest number to 0.1, a product does not.
            let power_of_ten = 10f64.powi(power.abs());
            steps.iter().map(move |step| {
                if power < 0 {
                    step / power_of_ten
                } else {
                    step * power_of_ten
                }
            })
        });
        ticks.filter(|tick| (self.low..=self.high).contains(tick)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_its_place_on_every_axis() {
        for ratios in [vec![], vec![0.2, 40.0], vec![1e-3, 1e4]] {
            let axis = Axis::of(ratios.iter().copied());
            assert!(axis.ticks().contains(&1.0) && axis.ticks().is_sorted());
            for ratio in ratios {
                assert!((LEFT..=RIGHT).contains(&axis.place(ratio)));
            }
        }
    }

    #[test]
    fn the_legend_goes_on_in_the_next_line() {
        let peers = [
            "polygrad-written 0.1.0",
            "torch.compile 2.13.0+cu130",
            "candle 0.11.1",
            "burn-flex 0.22.1",
        ];
        let places = legend(&peers);
        assert_eq!(places.len(), 4);
        assert!(
            places.iter().all(|&(x, _)| x < WIDTH - 200.0) && places[3].1 > places[0].1,
            "{places:?}"
        );
    }

    #[test]
    fn a_dot_for_each_peer_and_every_text_can_be_drawn() {
        let peers = [("torch.compile 2.13.0+cu130", 0.7), ("burn-flex 0.22.1", 4.0)];
        let row = (
            "elementwise layer_norm 1024".to_owned(),
            peers.map(|(name, ratio)| (name.to_owned(), ratio)).into(),
        );
        let mut reader = png::Decoder::new(std::io::Cursor::new(draw(&[row]).unwrap()))
            .read_info()
            .unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut bytes).unwrap();
        let count = |colour: Colour| bytes.chunks_exact(3).filter(|pixel| *pixel == colour).count();
        // The dot in the legend is drawn whole.
        assert!(count(LINES[0]) > 50 && count(LINES[1]) > 50);
        let mut texts = "times Polygrad's time (left of 1 the peer is faster) 0.5".to_owned();
        texts.extend(peers.map(|(name, _)| name));
        texts.extend(polygrad_workloads::cases().iter().map(polygrad_workloads::Case::name));
        for c in texts.chars() {
            assert!(crate::plot::font::knows(c), "{c:?} has no glyph");
        }
    }
}
