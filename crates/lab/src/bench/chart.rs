//! Chart of each peer's time relative to Polygrad's: a row for each case, a dot for each peer, a logarithmic axis.

use std::io;

use polygrad_plot::colours::{GROUND, LINES};
use polygrad_plot::{Axis, Canvas, Chart, Frame, Series};

use super::report::Ratios;

const WIDTH: f32 = 1140.0;
const LEFT: f32 = 420.0;
const RIGHT: f32 = 1100.0;
const ROW: f32 = 30.0;

const TITLE: &str = "times Polygrad's time (left of 1 the peer is faster)";

/// Draws the ratios of a report.
///
/// # Errors
/// Errors of the PNG encoder.
pub(crate) fn draw(rows: &[Ratios]) -> io::Result<Vec<u8>> {
    let chart = chart(rows);
    let top = 20.0 + chart.head(RIGHT - LEFT);
    let bottom = top + ROW * rows.len().max(1) as f32;
    let mut canvas = Canvas::new(WIDTH as usize, (bottom + 60.0) as usize, GROUND);
    chart.draw(&mut canvas, &Frame::new((LEFT, top), (RIGHT, bottom)));
    canvas.to_png()
}

fn chart(rows: &[Ratios]) -> Chart {
    let mut peers: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flat_map(|(_, ratios)| ratios) {
        if !peers.contains(&name.as_str()) {
            peers.push(name);
        }
    }
    let dots = |peer: &str| {
        let of = |(row, (_, ratios)): (usize, &Ratios)| {
            let own = ratios.iter().filter(|(name, _)| name == peer);
            own.map(|(_, ratio)| (*ratio, row as f64 + 0.5)).collect::<Vec<_>>()
        };
        rows.iter().enumerate().flat_map(of).collect()
    };
    let series = peers.iter().zip(LINES.into_iter().cycle());
    // The axis includes at least one half to two.
    let ratios = || rows.iter().flat_map(|(_, ratios)| ratios).map(|(_, ratio)| *ratio);
    let (low, high) = (ratios().fold(0.5, f64::min) / 1.1, ratios().fold(2.0, f64::max) * 1.1);
    Chart {
        heading: String::new(),
        x: Axis::logarithmic(low, high).title(TITLE).grid().stress(1.0).above(),
        y: Axis::names(rows.iter().map(|(case, _)| case.clone())),
        series: series
            .map(|(peer, colour)| Series::new(peer, colour, dots(peer)).dots(11.0, 0.85))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polygrad_plot::{Colour, colours::LABEL, knows};

    #[test]
    fn a_dot_for_each_peer_and_every_text_can_be_drawn() {
        let peers = [("torch.compile 2.13.0+cu130", 0.7), ("burn-flex 0.22.1", 4.0)];
        let row = (
            "elementwise layer_norm 1024".to_owned(),
            peers.map(|(name, ratio)| (name.to_owned(), ratio)).into(),
        );
        let mut reader = png::Decoder::new(io::Cursor::new(draw(&[row]).unwrap()))
            .read_info()
            .unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut bytes).unwrap();
        let count = |colour: Colour| bytes.chunks_exact(3).filter(|pixel| *pixel == colour).count();
        // The dot in the legend is complete.
        assert!(count(LINES[0]) > 50 && count(LINES[1]) > 50);
        let mut texts = format!("{TITLE} 0.5");
        texts.extend(peers.map(|(name, _)| name));
        for case in polygrad_workloads::cases() {
            assert!(LABEL.width(&case.name()) < LEFT - 20.0, "{} has no room", case.name());
            texts += &case.name();
        }
        for c in texts.chars() {
            assert!(knows(c), "{c:?} has no glyph");
        }
    }
}
