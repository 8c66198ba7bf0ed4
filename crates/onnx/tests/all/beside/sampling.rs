//! GridSample, RoiAlign and NonMaxSuppression.

use super::*;

#[test]
fn places_between_elements_are_as_there() {
    for (mode, padding, corners) in ["nearest", "bilinear", "bicubic"]
        .into_iter()
        .flat_map(|mode| ["zeros", "border", "reflection"].map(|padding| (mode, padding)))
        .flat_map(|(mode, padding)| [0, 1].map(|corners| (mode, padding, corners)))
    {
        let attributes = [
            ("mode", text(mode)),
            ("padding_mode", text(padding)),
            ("align_corners", Attribute::Int(corners)),
        ];
        let inputs = [
            input(ElementType::F32, &[0, 0, 0, 0]),
            input(ElementType::F32, &[0, 0, 0, 0]),
        ];
        let Some(pair) = Pair::new("GridSample", 16, &inputs, &attributes) else {
            return;
        };
        for (height, width) in [(3, 3), (2, 5), (1, 4), (4, 1), (6, 7)] {
            let x = tensor(&[1, 2, height, width], mixed(2 * height * width));
            let grid = tensor(&[1, 6, 5, 2], mixed(60).iter().map(|v| v * 1.3).collect());
            // In ONNX Runtime weights are f32.
            within(1e-5, pair.first(&[x, grid]), || {
                format!("{mode}, {padding}, align_corners {corners}: {height} × {width}")
            });
        }
    }
}

/// 30 times 0.1 is 3 in f32, and slightly more in f64: one sample in each cell, not two.
#[test]
fn regions_have_as_many_samples_as_there() {
    for coordinates in ["half_pixel", "output_half_pixel"] {
        for scale in [0.1f32, 0.3, 0.7, 1.0] {
            let attributes = [
                ("coordinate_transformation_mode", text(coordinates)),
                ("output_height", Attribute::Int(3)),
                ("output_width", Attribute::Int(2)),
                ("spatial_scale", Attribute::Float(scale)),
            ];
            let inputs = [
                input(ElementType::F32, &[0, 0, 0, 0]),
                input(ElementType::F32, &[0, 0]),
                input(ElementType::I64, &[0]),
            ];
            let Some(pair) = Pair::new("RoiAlign", 16, &inputs, &attributes) else {
                return;
            };
            let x = tensor(&[1, 2, 9, 8], mixed(144));
            let regions = [
                [0.0f32, 0.0, 30.0, 30.0],
                [10.0, 0.0, 20.0, 60.0],
                [3.0, 1.0, 7.0, 8.0],
                [0.0, 10.0, 20.0, 20.0],
            ];
            let regions = tensor(&[4, 4], regions.concat());
            close(pair.first(&[x, regions, list(&[0i64; 4])]), || {
                format!("{coordinates} {scale}")
            });
        }
    }
}

/// Boxes that share 7 of 10 parts: that is not above a threshold of 0.7.
#[test]
fn boxes_at_the_threshold_are_kept_as_there() {
    let scalar = input(ElementType::F32, &[]);
    let inputs = [
        input(ElementType::F32, &[0, 0, 0]),
        input(ElementType::F32, &[0, 0, 0]),
        input(ElementType::I64, &[]),
        scalar,
        scalar,
    ];
    let Some(pair) = Pair::new("NonMaxSuppression", 11, &inputs, &[]) else {
        return;
    };
    for (share, whole) in (2..=12u8).flat_map(|whole| (1..whole).map(move |share| (share, whole))) {
        let boxes = [[0.0, 0.0, 1.0, f32::from(whole)], [0.0, 0.0, 1.0, f32::from(share)]].concat();
        let threshold = f32::from(share) / f32::from(whole);
        let found = pair.first(&[
            tensor(&[1, 2, 4], boxes),
            tensor(&[1, 1, 2], vec![0.9f32, 0.8]),
            tensor(&[], vec![5i64]),
            tensor(&[], vec![threshold]),
            tensor(&[], vec![0.1f32]),
        ]);
        assert_eq!(found[0].0, [2, 3], "{share} of {whole}");
        close(found, || format!("{share} of {whole}"));
    }
}
