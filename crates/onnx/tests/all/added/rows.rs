//! Whether these nodes keep rows apart, so that requests of several clients may be computed together.

use super::*;

/// The reason why the rows of operand 0 do not stay apart in a node whose other operands are fixed.
fn mixed(domain: &str, op: &str, operands: &[Option<Value>], attributes: &Attributes) -> Option<String> {
    let mut graph = graph(domain, op, operands, attributes, 1);
    let fixed = graph.body.inputs.split_off(1);
    for (value, tensor) in fixed.into_iter().zip(operands[1..].iter().flatten()) {
        let tensor = tensor.literal().unwrap();
        graph.body.initializers.push(Initializer { value, tensor });
    }
    let model = OnnxModel::from_graph(&graph, &Device::<Cpu>::default().into_any(), Options::default()).unwrap();
    let first = operands[0].as_ref().unwrap();
    let (shape, element) = (first.shape().unwrap(), first.element().unwrap());
    let inputs = |rows: usize| {
        let shape = shape.with_dim(0, rows);
        let values = (0..shape.numel()).map(|i| (i * 7 % 5) as f32).collect::<Vec<f32>>();
        let host = HostTensor::new(shape, values)?.cast(element.dtype()?);
        Ok(vec![Literal::new(element, host)?.into()])
    };
    model.mixes_rows([&[0], &[0]], inputs).unwrap()
}

#[test]
fn rows_stay_apart_where_each_is_computed_by_itself() {
    let x = || ones(1f32, &[2, 4]);
    let q = || ones(1u8, &[2, 4]);
    let heads = || vec![int("num_heads", 2)];
    for (domain, op, operands, attributes) in [
        (MS, "QuickGelu", vec![x()], vec![]),
        (MS, "BiasGelu", vec![x(), ones(1f32, &[4])], vec![]),
        (
            MS,
            "FusedGemm",
            vec![x(), ones(1f32, &[4, 3])],
            vec![text("activation", "Relu")],
        ),
        (MS, "FusedMatMul", vec![x(), ones(1f32, &[4, 3])], vec![]),
        (
            MS,
            "FusedConv",
            vec![ones(1f32, &[2, 1, 4]), ones(1f32, &[1, 1, 2])],
            vec![text("activation", "Relu")],
        ),
        (
            MS,
            "QLinearAdd",
            vec![
                q(),
                scalar(0.5),
                zero(0),
                ones(1u8, &[4]),
                scalar(0.5),
                zero(0),
                scalar(1.0),
                zero(0),
            ],
            vec![],
        ),
        (
            MS,
            "QGemm",
            vec![q(), scalar(0.5), zero(0), signed(&[4, 3]), scalar(0.5), signed(&[])],
            vec![],
        ),
        (
            MS,
            "MatMulIntegerToFloat",
            vec![q(), signed(&[4, 3]), scalar(0.5), scalar(0.5)],
            vec![],
        ),
        (MS, "SimplifiedLayerNormalization", vec![x(), ones(1f32, &[4])], vec![]),
        (
            MS,
            "Attention",
            vec![ones(1f32, &[2, 3, 4]), ones(1f32, &[4, 12]), ones(1f32, &[12])],
            heads(),
        ),
        (ML, "Normalizer", vec![x()], vec![]),
        (ML, "TreeEnsembleRegressor", vec![x()], stump(vec![])),
        (
            ML,
            "LinearRegressor",
            vec![x()],
            vec![floats("coefficients", &[1.0; 4])],
        ),
    ] {
        assert_eq!(mixed(domain, op, &operands, &attributes), None, "{op}");
    }
}

#[test]
fn what_brings_rows_together_is_named() {
    let x = || ones(1f32, &[2, 4]);
    let softmax = vec![ones(1u8, &[2, 4]), scalar(0.5), zero(0), scalar(0.5), zero(0)];
    for (op, operands, attributes, says) in [
        (
            "DynamicQuantizeMatMul",
            vec![x(), signed(&[4, 2]), scalar(0.5)],
            vec![],
            "takes one scale for all rows",
        ),
        (
            "QLinearSoftmax",
            softmax,
            vec![int("axis", 0), int("opset", 13)],
            "computes over several rows",
        ),
    ] {
        let why = mixed(MS, op, &operands, &attributes).unwrap();
        assert!(why.contains(says) && why.contains(op), "{why}");
    }
}
