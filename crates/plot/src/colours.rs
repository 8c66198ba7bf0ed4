//! The colours and the styles of text of all charts.

use crate::canvas::Colour;
use crate::text::Style;

/// The background.
pub const GROUND: Colour = [255, 255, 255];
/// Headings and names.
pub const INK: Colour = [38, 43, 52];
/// Numbers along an axis.
pub const FAINT: Colour = [112, 119, 130];
/// Lines across a chart.
pub const GRID: Colour = [229, 232, 236];
/// Colours that the colour-blind can tell apart (Okabe and Ito, "Color Universal Design", 2008).
pub const LINES: [Colour; 8] = [
    [0, 114, 178],
    [213, 94, 0],
    [0, 158, 115],
    [204, 121, 167],
    [230, 159, 0],
    [86, 180, 233],
    [0, 0, 0],
    [240, 228, 66],
];

/// The title of a picture.
pub const TITLE: Style = Style {
    size: 22.0,
    weight: 3.2,
    colour: INK,
};
/// The heading of a part.
pub const HEADING: Style = Style {
    size: 18.0,
    weight: 2.4,
    colour: INK,
};
/// Text along an axis.
pub const LABEL: Style = Style {
    size: 15.0,
    weight: 1.9,
    colour: FAINT,
};
