//! A small stroke font, so that a chart needs no font from the system.
//!
//! A glyph is a list of strokes on a grid: the top of capitals is y = 0, of small letters y = 4, the baseline y = 12,
//! the lowest descender y = 16. A point is two base-36 digits, x and y. A stroke starts with its kind: `-` straight
//! lines, `~` an open and `o` a closed quadratic B-spline (a curve that touches the middle of each side of its control
//! polygon), `.` a dot.

use crate::canvas::Point;

/// Grid units from the top of capitals to the baseline.
const CAP_HEIGHT: f32 = 12.0;
/// Grid units between two glyphs.
const GAP: f32 = 3.4;
/// Straight pieces per piece of a curve.
const PIECES: u8 = 6;

fn glyph(c: char) -> &'static str {
    match c {
        '0' => "o00 80 86 8c 0c 06",
        '1' => "-23 50 5c",
        '2' => "~03 00 80 85 0c -0c 8c",
        '3' => "~02 00 70 76 36 ~36 86 8c 0c 0a",
        '4' => "-88 08 60 6c",
        '5' => "-70 10 05 ~05 24 84 8c 0c 0a",
        '6' => "~70 00 09 o05 85 8c 0c",
        '7' => "-00 80 3c",
        '8' => "o10 70 76 16 o06 86 8c 0c",
        '9' => "o00 80 87 07 ~1c 8c 83",
        'A' => "-0c 40 8c -18 78",
        'B' => "-00 0c ~00 40 70 76 46 06 ~06 46 86 8c 4c 0c",
        'C' => "~83 80 00 06 0c 8c 89",
        'D' => "-00 0c ~00 30 80 86 8c 3c 0c",
        'E' => "-70 00 0c 7c -06 66",
        'F' => "-70 00 0c -06 66",
        'G' => "~83 80 00 06 0c 8c 89 -89 86 56",
        'H' => "-00 0c -80 8c -06 86",
        'I' => "-00 0c",
        'J' => "~60 68 6c 0c 09",
        'K' => "-00 0c -80 08 -35 8c",
        'L' => "-00 0c 7c",
        'M' => "-0c 00 58 a0 ac",
        'N' => "-0c 00 8c 80",
        'O' => "o00 90 96 9c 0c 06",
        'P' => "-00 0c ~00 40 80 87 47 07",
        'Q' => "o00 90 96 9c 0c 06 -69 9d",
        'R' => "-00 0c ~00 40 80 87 47 07 -47 8c",
        'S' => "~82 80 00 06 86 8c 0c 0a",
        'T' => "-00 80 -40 4c",
        'U' => "~00 08 0c 8c 88 80",
        'V' => "-00 4c 80",
        'W' => "-00 3c 60 9c c0",
        'X' => "-00 8c -80 0c",
        'Y' => "-00 46 80 -46 4c",
        'Z' => "-00 80 0c 8c",
        'a' => "-74 7c o04 74 7c 0c",
        'b' => "-00 0c o04 74 7c 0c",
        'c' => "~66 64 04 0c 6c 6a",
        'd' => "-70 7c o04 74 7c 0c",
        'e' => "-08 78 ~78 74 04 0c 7c 7a",
        'f' => "~50 20 24 2c -04 54",
        'g' => "o04 74 7c 0c ~74 7c 7g 0g 0e",
        'h' => "-00 0c ~08 04 64 68 6c",
        'i' => "-04 0c .01",
        'j' => "~24 2c 2g 0g .21",
        'k' => "-00 0c -64 0a -37 6c",
        'l' => "-00 0c",
        'm' => "-04 0c ~08 04 54 58 5c ~58 54 a4 a8 ac",
        'n' => "-04 0c ~08 04 64 68 6c",
        'o' => "o04 74 7c 0c",
        'p' => "-04 0g o04 74 7c 0c",
        'q' => "-74 7g o04 74 7c 0c",
        'r' => "-04 0c ~08 04 44",
        's' => "~65 64 04 08 68 6c 0c 0b",
        't' => "~21 28 2c 5c -04 54",
        'u' => "~04 08 0c 6c 68 -64 6c",
        'v' => "-04 3c 64",
        'w' => "-04 2c 54 8c a4",
        'x' => "-04 6c -64 0c",
        'y' => "-04 3c -64 3c ~3c 2g 0g",
        'z' => "-04 64 0c 6c",
        '.' => ".0c",
        ',' => "-1c 0e",
        ':' => ".05 .0c",
        '-' => "-08 48",
        '–' => "-08 88",
        '_' => "-0d 8d",
        '+' => "-44 4c -08 88",
        '=' => "-06 86 -0a 8a",
        '/' => "-0e 60",
        '(' => "~30 07 3e",
        ')' => "~00 37 0e",
        '%' => "o00 50 55 05 o67 b7 bc 6c -a0 1c",
        '·' => ".07",
        '!' => "-00 08 .0c",
        '?' => "~02 00 70 75 38 .3c",
        '\'' => "-00 03",
        '^' => "-04 30 64",
        '×' => "-05 6b -65 0b",
        'µ' => "-04 0g ~08 0c 6c 68 -64 6c",
        _ => "-00 60 6c 0c 00",
    }
}

/// Whether a character has a glyph of its own; others are drawn as boxes.
pub fn knows(c: char) -> bool {
    c == ' ' || glyph(c) != glyph('\u{0}')
}

/// The width of a line of text whose capitals are `size` high.
pub(crate) fn width(text: &str, size: f32) -> f32 {
    let units: f32 = text.chars().map(advance).sum();
    (units - GAP).max(0.0) * size / CAP_HEIGHT
}

/// The strokes of a line of text whose baseline starts at `at` and whose capitals are `size` high.
pub(crate) fn strokes(text: &str, size: f32, at: Point) -> Vec<Vec<Point>> {
    let scale = size / CAP_HEIGHT;
    let mut lines = Vec::new();
    let mut x = at.0;
    for c in text.chars() {
        if c != ' ' {
            for mut line in outline(c) {
                for p in &mut line {
                    *p = (x + p.0 * scale, at.1 + (p.1 - CAP_HEIGHT) * scale);
                }
                lines.push(line);
            }
        }
        x += advance(c) * scale;
    }
    lines
}

/// Digits are all of one width, so that columns of numbers line up.
fn advance(c: char) -> f32 {
    if c == ' ' {
        return 5.0;
    }
    let widest = if c.is_ascii_digit() {
        8.0
    } else {
        outline(c).iter().flatten().map(|p| p.0).fold(0.0, f32::max)
    };
    widest + GAP
}

fn outline(c: char) -> Vec<Vec<Point>> {
    let mut lines: Vec<Vec<Point>> = Vec::new();
    let mut kinds = Vec::new();
    for word in glyph(c).split(' ') {
        let point = match word.as_bytes() {
            [kind, x, y] => {
                kinds.push(*kind);
                lines.push(Vec::new());
                (grid(*x), grid(*y))
            }
            [x, y] => (grid(*x), grid(*y)),
            _ => continue,
        };
        if let Some(line) = lines.last_mut() {
            line.push(point);
        }
    }
    lines
        .into_iter()
        .zip(kinds)
        .map(|(points, kind)| match kind {
            b'~' => spline(&points, false),
            b'o' => spline(&points, true),
            _ => points,
        })
        .collect()
}

fn grid(digit: u8) -> f32 {
    char::from(digit).to_digit(36).unwrap_or(0) as f32
}

fn middle(a: Point, b: Point) -> Point {
    ((a.0 + b.0) / 2.0, (a.1 + b.1) / 2.0)
}

/// A quadratic B-spline over the control points: it runs from middle to middle of the polygon's sides; an open one
/// starts and ends in the first and last point.
fn spline(points: &[Point], closed: bool) -> Vec<Point> {
    let n = points.len();
    let mut line = Vec::new();
    for i in 0..n {
        if !closed && (i == 0 || i + 1 == n) {
            continue;
        }
        let (before, here, after) = (points[(i + n - 1) % n], points[i], points[(i + 1) % n]);
        let start = if !closed && i == 1 {
            before
        } else {
            middle(before, here)
        };
        let end = if !closed && i + 2 == n {
            after
        } else {
            middle(here, after)
        };
        for k in 0..=PIECES {
            let t = f32::from(k) / f32::from(PIECES);
            let blend = |a: f32, b: f32, c: f32| (1.0 - t) * (1.0 - t) * a + 2.0 * t * (1.0 - t) * b + t * t * c;
            line.push((blend(start.0, here.0, end.0), blend(start.1, here.1, end.1)));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_glyph_is_well_formed() {
        let all = ('!'..='~').chain(['–', '·', '×', 'µ', '€']);
        for c in all {
            for stroke in glyph(c).split(' ') {
                let digits = stroke.trim_start_matches(['-', '~', 'o', '.']);
                assert!(
                    digits.len() == 2 && digits.chars().all(|d| d.is_digit(17)),
                    "{c}: {stroke}"
                );
            }
            for p in outline(c).iter().flatten() {
                assert!((0.0..=12.0).contains(&p.0) && (0.0..=16.0).contains(&p.1), "{c}: {p:?}");
            }
        }
    }

    #[test]
    fn digits_are_equally_wide_and_text_is_placed() {
        assert_eq!(width("111", 12.0), width("808", 12.0));
        assert_eq!(width("", 12.0), 0.0);
        let lines = strokes("I", 24.0, (100.0, 50.0));
        assert_eq!(lines, [[(100.0, 26.0), (100.0, 50.0)]]);
    }

    #[test]
    fn a_closed_spline_touches_its_box() {
        let line = spline(&[(0.0, 0.0), (8.0, 0.0), (8.0, 8.0), (0.0, 8.0)], true);
        for p in [(4.0, 0.0), (8.0, 4.0), (4.0, 8.0), (0.0, 4.0)] {
            assert!(line.contains(&p), "{line:?}");
        }
    }
}
