//! Interpolation, padding and masks with extents that are known only when the model runs.

use polygrad_nn::{Conv2d, ConvConfig, Sequential, Upsample, alibi_bias};
use polygrad_onnx::graph::{Body, Graph};
use polygrad_onnx::{Export, ExportOnnx, Input, IntoDims, Opset};
use polygrad_tensor::{Attention, DType, InterpolateMode, PadMode, Resize, Result, Tensor};

use super::cpu;

fn ops(body: &Body) -> Vec<&str> {
    body.nodes.iter().map(|node| node.op_type.as_str()).collect()
}

/// The graph of a function of one tensor. The export compares it with the function, at two sizes if there are named
/// extents.
fn graph(dims: impl IntoDims, opset: Opset, run: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Graph> {
    let model = Sequential::new().push(Conv2d::new(2, 2, 1, &cpu())?);
    let export = Export::new([Input::new("x", DType::F32, dims)])
        .outputs(["y"])
        .opset(opset);
    model.record_onnx(&export, |x| run(&x[0]))
}

#[test]
fn interpolation_is_one_resize_at_any_size() -> Result<()> {
    use InterpolateMode::*;
    for opset in Opset::ALL {
        for (mode, align_corners) in [
            (Nearest, false),
            (NearestExact, false),
            (Linear, false),
            (Linear, true),
            (Cubic, false),
            (Cubic, true),
        ] {
            // With rounded extents, ONNX and PyTorch differ in the extent whose corners are aligned.
            let by = if align_corners { [2.0, 3.0] } else { [2.0, 1.5] };
            let doubled = |x: &Tensor| x.interpolate(Resize::Scale(&by), mode, align_corners);
            let sized = |x: &Tensor| x.interpolate(Resize::Size(&[7, 5]), mode, align_corners);
            for run in [&doubled as &dyn Fn(&Tensor) -> Result<Tensor>, &sized] {
                let named = graph(("n", 2usize, "h", "w"), opset, run)?;
                let resizes = ops(&named.body).into_iter().filter(|op| *op == "Resize").count();
                assert_eq!(
                    (resizes, ops(&named.body).contains(&"Gather")),
                    (1, false),
                    "{mode:?}: {:?}",
                    ops(&named.body)
                );
                let fixed = graph((1usize, 2usize, 6usize, 5usize), opset, run)?;
                assert_eq!(ops(&fixed.body), ["Resize"], "{mode:?}");
            }
            let half = |x: &Tensor| x.interpolate(Resize::Scale(&[0.6, 1.5]), mode, align_corners);
            assert_eq!(
                ops(&graph((1usize, 2usize, 6usize, 5usize), opset, half)?.body),
                ["Resize"]
            );
        }
        // To the extents of another tensor, as a U-Net does.
        let like = graph((1usize, 2usize, "h", "w"), opset, |x| {
            let half = x.max_pool(&polygrad_tensor::PoolParams::new([2, 2, 1]))?.0;
            let shape = x.shape();
            half.interpolate(Resize::Size(&shape[2..]), Nearest, false)? + x
        })?;
        assert_eq!(ops(&like.body).into_iter().filter(|op| *op == "Resize").count(), 1);
        // Other ranks.
        let line = |x: &Tensor| x.interpolate(Resize::Scale(&[3.0]), Linear, false);
        assert_eq!(ops(&graph(("n", 2usize, "l"), opset, line)?.body), ["Resize"]);
        let volume = |x: &Tensor| x.interpolate(Resize::Scale(&[2.0; 3]), Nearest, false);
        assert_eq!(
            ops(&graph((1usize, 2usize, "d", "h", 3usize), opset, volume)?.body),
            ["Resize"]
        );
    }
    Ok(())
}

#[test]
fn upsample_is_one_resize() -> Result<()> {
    let model = Sequential::new().push(Upsample::scale_factor(2.0));
    let export = Export::new([Input::new("x", DType::F32, ("n", 2usize, "h", "w"))]).outputs(["y"]);
    let recorded = model.record_onnx(&export, |x| model.forward(&x[0]))?;
    assert_eq!(ops(&recorded.body), ["Resize"]);
    Ok(())
}

#[test]
fn borders_are_one_pad_at_any_size() -> Result<()> {
    for opset in Opset::ALL {
        for mode in [PadMode::Reflect, PadMode::Replicate, PadMode::Circular] {
            let layer = ConvConfig::<2>::new(2, 3, 3)
                .padding(2)
                .padding_mode(mode)
                .build(&cpu())?;
            let model = Sequential::new().push(layer);
            let input = Input::new("x", DType::F32, ("n", 2usize, "h", "w"));
            let export = Export::new([input]).outputs(["y"]).opset(opset);
            let named = model.record_onnx(&export, |x| model.forward(&x[0]))?;
            let fixed = Export::new([Input::new("x", DType::F32, (1usize, 2usize, 6usize, 5usize))]).opset(opset);
            let fixed = model.record_onnx(&fixed, |x| model.forward(&x[0]))?;
            for found in [ops(&named.body), ops(&fixed.body)] {
                // Version 19 introduced the mode wrap.
                match mode == PadMode::Circular && opset < Opset::V20 {
                    true => assert!(!found.contains(&"Pad") && !found.contains(&"Gather"), "{found:?}"),
                    false => assert_eq!(found, ["Pad", "Conv"], "{mode:?}"),
                }
            }
            let uneven = |x: &Tensor| x.pad_with(&[(0, 0), (0, 1), (2, 0), (1, 3)], mode);
            graph(("n", 2usize, "h", "w"), opset, uneven)?;
            // Negative padding needs fixed sizes.
            let cut = |x: &Tensor| x.pad_with(&[(0, 0), (0, 0), (2, -1), (-1, 1)], mode);
            graph((1usize, 2usize, 6usize, 5usize), opset, cut)?;
        }
    }
    Ok(())
}

#[test]
fn masks_follow_their_extents() -> Result<()> {
    for opset in Opset::ALL {
        graph(("n", "s", 8usize), opset, |x| {
            let queries = x.unsqueeze(1)?.expand([x.shape()[0], 2, x.shape()[1], 8])?;
            let bias = alibi_bias(2, x.shape()[1], x.shape()[1], x.dtype(), &x.device())?;
            let mask = Attention::new().mask(Some(&bias)).causal(true);
            queries.scaled_dot_product_attention(&queries, &queries, mask)
        })?;
        graph(("n", "h", "w"), opset, |x| x.tril(1)?.add(&x.triu(-1)?))?;
    }
    Ok(())
}
