//! Resize and Upsample.

use super::*;

const COORDINATES: [&str; 5] = [
    "half_pixel",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
    "asymmetric",
    "align_corners",
];
const NEAREST: [&str; 4] = ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"];
const FACTORS: [f32; 15] = [
    0.1, 0.3, 0.35, 0.6, 0.7, 0.75, 0.9, 1.1, 1.3, 1.6, 1.7, 2.0, 2.3, 3.0, 3.3,
];

fn along(from: usize) -> Value {
    tensor(&[from], (0..from).map(|i| i as f32).collect())
}

/// The source of an element, computed only with integers, and whether rounding decides it.
fn exact(coordinates: &str, nearest: &str, [from, to, i]: [i64; 3]) -> (i64, bool) {
    let (top, bottom) = match coordinates {
        "align_corners" => (i * (from - 1), (to - 1).max(1)),
        "asymmetric" => (i * from, to),
        "pytorch_half_pixel" if to == 1 => (0, 1),
        _ => ((2 * i + 1) * from - to, 2 * to),
    };
    let (base, rest) = (top.div_euclid(bottom), top.rem_euclid(bottom));
    let (up, tie) = match nearest {
        "floor" => (false, rest == 0),
        "ceil" => (rest > 0, rest == 0),
        "round_prefer_floor" => (2 * rest > bottom, 2 * rest == bottom),
        _ => (2 * rest >= bottom, 2 * rest == bottom),
    };
    ((base + i64::from(up)).clamp(0, from - 1), tie)
}

/// With sizes Polygrad is exact. ONNX Runtime divides by a quotient in f32, and may miss only positions that are whole
/// or midway.
#[test]
fn nearest_elements_by_sizes_are_exact() {
    for (coordinates, nearest) in COORDINATES.into_iter().flat_map(|c| NEAREST.map(|n| (c, n))) {
        let attributes = [
            ("mode", text("nearest")),
            ("nearest_mode", text(nearest)),
            ("coordinate_transformation_mode", text(coordinates)),
        ];
        let inputs = [input(ElementType::F32, &[0]), None, None, input(ElementType::I64, &[1])];
        let Some(pair) = Pair::new("Resize", 19, &inputs, &attributes) else {
            return;
        };
        for (from, to) in (1..=17).flat_map(|from| (1..=19).map(move |to| (from, to))) {
            let [ours, theirs] = pair.first(&[along(from), list(&[to as i64])]);
            for i in 0..to {
                let (wanted, tie) = exact(coordinates, nearest, [from, to, i].map(|n| n as i64));
                let what = format!("{coordinates}, {nearest}: element {i} of {from} brought to {to}");
                assert_eq!(ours.1[i], wanted as f64, "{what}");
                assert!(tie || theirs.1[i] == ours.1[i], "{what}: {} there", theirs.1[i]);
            }
        }
    }
}

#[test]
fn extents_and_nearest_elements_by_factors_are_as_there() {
    for (coordinates, nearest) in COORDINATES.into_iter().flat_map(|c| NEAREST.map(|n| (c, n))) {
        let attributes = [
            ("mode", text("nearest")),
            ("nearest_mode", text(nearest)),
            ("coordinate_transformation_mode", text(coordinates)),
        ];
        let inputs = [input(ElementType::F32, &[0]), None, input(ElementType::F32, &[0])];
        let Some(pair) = Pair::new("Resize", 19, &inputs, &attributes) else {
            return;
        };
        for (from, factor) in (1..=20).flat_map(|from| FACTORS.map(|factor| (from, factor))) {
            close(pair.first(&[along(from), list(&[factor])]), || {
                format!("{coordinates}, {nearest}: {from} by {factor}")
            });
        }
    }
}

#[test]
fn old_versions_are_as_there() {
    for (op, opset) in [("Resize", 10), ("Upsample", 9)] {
        for mode in ["nearest", "linear"] {
            let inputs = [input(ElementType::F32, &[0, 0, 0, 0]), input(ElementType::F32, &[0])];
            let Some(pair) = Pair::new(op, opset, &inputs, &[("mode", text(mode))]) else {
                return;
            };
            let factors = FACTORS.into_iter().filter(|&factor| factor >= 1.0 || op == "Resize");
            for (from, factor) in factors.flat_map(|factor| [1, 2, 5, 10, 13].map(|from| (from, factor))) {
                let x = tensor(&[1, 1, 2, from], mixed(2 * from));
                close(pair.first(&[x, list(&[1.0, 1.0, 1.0, factor])]), || {
                    format!("{op} {mode}: {from} by {factor}")
                });
            }
        }
    }
}

#[test]
fn mixtures_are_as_there() {
    for mode in ["linear", "cubic"] {
        for (antialias, exclude) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            // In ONNX Runtime, only a cubic excludes the outside.
            if mode == "linear" && exclude == 1 {
                continue;
            }
            for coordinates in COORDINATES {
                let attributes = [
                    ("mode", text(mode)),
                    ("coordinate_transformation_mode", text(coordinates)),
                    ("antialias", Attribute::Int(antialias)),
                    ("exclude_outside", Attribute::Int(exclude)),
                ];
                // In ONNX Runtime weights are f32, and divided by a sum that may be small.
                let bound = if exclude == 1 { 1e-5 } else { 2e-6 };
                let what = format!("{mode}, {coordinates}, antialias {antialias}, exclude_outside {exclude}");
                let x = |from: usize| tensor(&[1, 1, 3, from], mixed(3 * from));
                let image = input(ElementType::F32, &[0, 0, 0, 0]);
                let by_sizes = [image, None, None, input(ElementType::I64, &[4])];
                let Some(pair) = Pair::new("Resize", 19, &by_sizes, &attributes) else {
                    return;
                };
                for (from, to) in [1usize, 2, 4, 7, 10]
                    .into_iter()
                    .flat_map(|from| [1i64, 3, 5, 8, 14].map(|to| (from, to)))
                {
                    within(bound, pair.first(&[x(from), list(&[1, 1, 3, to])]), || {
                        format!("{what}: {from} to {to}")
                    });
                }
                let by_factors = [image, None, input(ElementType::F32, &[0])];
                let pair = Pair::new("Resize", 19, &by_factors, &attributes).unwrap();
                for (from, factor) in FACTORS
                    .into_iter()
                    .flat_map(|factor| [2, 5, 10].map(|from| (from, factor)))
                {
                    // In ONNX Runtime, a cubic leaves an axis unchanged if its length stays the same.
                    let to = (factor * from as f32) as usize;
                    if to > 0 && (mode == "linear" || to != from) {
                        within(bound, pair.first(&[x(from), list(&[1.0, 1.0, 1.0, factor])]), || {
                            format!("{what}: {from} by {factor}")
                        });
                    }
                }
            }
        }
    }
}

#[test]
fn parts_of_images_are_as_there() {
    for mode in ["nearest", "linear", "cubic"] {
        let attributes = [
            ("mode", text(mode)),
            ("coordinate_transformation_mode", text("tf_crop_and_resize")),
            ("extrapolation_value", Attribute::Float(9.0)),
        ];
        let inputs = [
            input(ElementType::F32, &[0, 0, 0, 0]),
            input(ElementType::F32, &[0]),
            None,
            input(ElementType::I64, &[4]),
        ];
        let Some(pair) = Pair::new("Resize", 13, &inputs, &attributes) else {
            return;
        };
        for (start, end) in [(0.0f32, 1.0f32), (0.2, 0.7), (0.4, 1.3), (-0.3, 0.6)] {
            for (from, to) in [(4usize, 1i64), (4, 3), (7, 5), (5, 9)] {
                let x = tensor(&[1, 1, 3, from], mixed(3 * from));
                let roi = list(&[0.0, 0.0, 0.0, start, 1.0, 1.0, 1.0, end]);
                close(pair.first(&[x, roi, list(&[1, 1, 3, to])]), || {
                    format!("{mode}: {start} to {end} of {from} to {to}")
                });
            }
        }
    }
}

#[test]
fn aspect_ratios_are_as_there() {
    for policy in ["not_larger", "not_smaller"] {
        for mode in ["nearest", "linear"] {
            let attributes = [
                ("mode", text(mode)),
                ("keep_aspect_ratio_policy", text(policy)),
                ("axes", Attribute::Ints(vec![2, 3])),
            ];
            let inputs = [
                input(ElementType::F32, &[0, 0, 0, 0]),
                None,
                None,
                input(ElementType::I64, &[2]),
            ];
            let Some(pair) = Pair::new("Resize", 19, &inputs, &attributes) else {
                return;
            };
            for (height, width) in [(2, 3), (5, 4), (7, 10)] {
                for sizes in [[1i64, 1], [3, 9], [4, 4], [11, 6]] {
                    let x = tensor(&[1, 1, height, width], mixed(height * width));
                    close(pair.first(&[x, list(&sizes)]), || {
                        format!("{policy} {mode}: {height} × {width} to {sizes:?}")
                    });
                }
            }
        }
    }
}

#[test]
fn mixtures_of_integers_are_cut_off_as_there() {
    for element in [ElementType::U8, ElementType::I8, ElementType::I32] {
        let inputs = [input(element, &[0, 0, 0, 0]), None, input(ElementType::F32, &[0])];
        let Some(pair) = Pair::new("Resize", 19, &inputs, &[("mode", text("linear"))]) else {
            return;
        };
        let low = if element == ElementType::U8 { 0 } else { -100 };
        let values: Vec<i64> = (0..12).map(|i| low + i * 37 % 120).collect();
        let host = HostTensor::new(Shape::new(&[1, 1, 2, 6]).unwrap(), values).unwrap();
        let host = host.cast(element.dtype().unwrap());
        let x: Value = polygrad_onnx::graph::Literal::new(element, host).unwrap().into();
        for factor in [0.5f32, 1.6, 2.0, 3.0] {
            close(pair.first(&[x.clone(), list(&[1.0, 1.0, 1.0, factor])]), || {
                format!("{element} by {factor}")
            });
        }
    }
}
