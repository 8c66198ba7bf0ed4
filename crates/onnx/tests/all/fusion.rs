//! Which nodes are fused and which are not, and that the results are the same.

use polygrad_core::{DType, Distribution, HostTensor, RandomKey, random_host};
use polygrad_cpu::Cpu;
use polygrad_onnx::graph::{Attribute, Body, Dim, ElementType, Graph, Node, ValueId, ValueType};
use polygrad_onnx::{OnnxModel, Options};
use polygrad_tensor::{Device, Shape, Tensor};

fn random(dims: &[usize], seed: u64) -> HostTensor {
    let key = RandomKey { seed, offset: 0 };
    let normal = Distribution::Normal { mean: 0.0, std: 0.7 };
    random_host(Shape::new(dims).unwrap(), normal, DType::F32, key).unwrap()
}

/// A graph that grows node by node.
struct Builder {
    body: Body,
}

impl Builder {
    /// With one input `x`.
    fn new(dims: &[usize]) -> (Self, ValueId) {
        let mut body = Body::default();
        let dims = dims.iter().map(|&extent| Dim::Fixed(extent)).collect();
        let x = body.add_value("x", Some(ValueType::tensor(ElementType::F32, dims)));
        body.inputs = vec![x];
        (Self { body }, x)
    }

    fn weight(&mut self, dims: &[usize]) -> ValueId {
        let seed = self.body.values.len() as u64;
        self.body.add_initializer(format!("w{seed}"), random(dims, seed))
    }

    fn positive(&mut self, count: usize) -> ValueId {
        let name = format!("w{}", self.body.values.len());
        let values = (0..count).map(|i| 0.5 + i as f32).collect();
        self.body
            .add_initializer(name, HostTensor::new(Shape::from([count]), values).unwrap())
    }

    fn call(&mut self, op: &str, inputs: &[ValueId], attributes: &[(&str, Attribute)]) -> ValueId {
        let name = format!("{op}_{}", self.body.values.len());
        let output = self.body.add_value(name.clone(), None);
        self.body.nodes.push(Node {
            name,
            op_type: op.into(),
            inputs: inputs.iter().copied().map(Some).collect(),
            outputs: vec![Some(output)],
            attributes: attributes
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
            ..Node::default()
        });
        output
    }

    /// The steps of a run, after comparing its results with those of the unfused nodes.
    fn steps(mut self, outputs: &[ValueId]) -> Vec<String> {
        self.body.outputs = outputs.to_vec();
        let graph = Graph {
            opsets: [(String::new(), 20)].into(),
            body: self.body,
            ..Graph::default()
        };
        let device = Device::<Cpu>::default().into_any();
        let load = |fuse| {
            let options = Options {
                fuse,
                ..Options::default()
            };
            OnnxModel::from_graph(&graph, &device, options).unwrap()
        };
        let (fused, plain) = (load(true), load(false));
        let dims: Vec<usize> = fused.inputs().flat_map(|(_, ty)| fixed(ty.unwrap())).collect();
        let x = Tensor::from_host(random(&dims, 99), &device).unwrap();
        // Tracked operands too, and a second run.
        for x in [x.clone(), x.clone(), x.requires_grad().unwrap()] {
            let tracked = x.is_tracked();
            let (a, b) = (
                fused.forward(std::slice::from_ref(&x)).unwrap(),
                plain.forward(&[x]).unwrap(),
            );
            for i in 0..outputs.len() {
                let (a, b) = (a.tensor(i).unwrap(), b.tensor(i).unwrap());
                assert_eq!((a.shape(), a.is_tracked()), (b.shape(), tracked));
                let [a, b] = [a, b].map(|x| x.detach().to_vec::<f32>().unwrap());
                let apart = a.iter().zip(&b).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
                assert!(apart < 1e-5, "{apart}");
            }
        }
        assert!(plain.steps().iter().all(|step| !step.contains('+')));
        fused.steps().into_iter().map(str::to_owned).collect()
    }
}

fn fixed(ty: &ValueType) -> Vec<usize> {
    let shape = ty.as_tensor().and_then(|ty| ty.shape.clone()).unwrap();
    let extent = |dim: &Dim| match dim {
        Dim::Fixed(extent) => *extent,
        _ => panic!("the tests have fixed shapes"),
    };
    shape.iter().map(extent).collect()
}

#[test]
fn products_take_bias_and_activation() {
    for batch in [1, 5, 200] {
        let (mut b, x) = Builder::new(&[batch, 20]);
        let (w, c) = (b.weight(&[30, 20]), b.weight(&[30]));
        let y = b.call("Gemm", &[x, w, c], &[("transB", Attribute::Int(1))]);
        let y = b.call("Relu", &[y], &[]);
        let w = b.weight(&[30, 7]);
        let y = b.call("MatMul", &[y, w], &[]);
        let c = b.weight(&[7]);
        let y = b.call("Add", &[c, y], &[]);
        let y = b.call("Gelu", &[y], &[]);
        assert_eq!(b.steps(&[y]), ["Gemm+Relu", "MatMul+Add+Gelu"]);
    }
}

#[test]
fn gelu_is_found_in_the_nodes_that_spell_it() {
    let number = |b: &mut Builder, value: f32| {
        let name = format!("c{}", b.body.values.len());
        let one = HostTensor::new(Shape::SCALAR, vec![value]).unwrap();
        b.body.add_initializer(name, one)
    };
    let erf = |b: &mut Builder, x: ValueId, by: f32, op: &str| {
        let by = number(b, by);
        let scaled = b.call(op, &[x, by], &[]);
        let erf = b.call("Erf", &[scaled], &[]);
        let one = number(b, 1.0);
        b.call("Add", &[one, erf], &[])
    };
    // The half beside the sum, behind the product with it, or beside x; a division or a product.
    for (place, by, op) in [
        (0, std::f32::consts::SQRT_2, "Div"),
        (1, std::f32::consts::SQRT_2, "Div"),
        (2, std::f32::consts::FRAC_1_SQRT_2, "Mul"),
    ] {
        let (mut b, x) = Builder::new(&[3, 4]);
        let (w, bias) = (b.weight(&[4, 5]), b.weight(&[5]));
        let y = b.call("MatMul", &[x, w], &[]);
        let y = b.call("Add", &[y, bias], &[]);
        let sum = erf(&mut b, y, by, op);
        let half = number(&mut b, 0.5);
        let factors = match place {
            0 => [y, b.call("Mul", &[half, sum], &[])],
            1 => [b.call("Mul", &[y, sum], &[]), half],
            _ => [b.call("Mul", &[y, half], &[]), sum],
        };
        let z = b.call("Mul", &factors, &[]);
        assert_eq!(b.steps(&[z]), ["MatMul+Add+Gelu"], "{place}");
    }
    // Another factor, and a sum that something else reads.
    for (by, more) in [(1.5, false), (std::f32::consts::SQRT_2, true)] {
        let (mut b, x) = Builder::new(&[3, 4]);
        let sum = erf(&mut b, x, by, "Div");
        let half = number(&mut b, 0.5);
        let y = b.call("Mul", &[x, sum], &[]);
        let z = b.call("Mul", &[y, half], &[]);
        let outputs = if more { vec![z, sum] } else { vec![z] };
        assert_eq!(b.steps(&outputs).len(), 5, "{by}");
    }
}

#[test]
fn gates_are_found_in_the_nodes_that_spell_them() {
    let number = |b: &mut Builder, value: f32| {
        let name = format!("c{}", b.body.values.len());
        let one = HostTensor::new(Shape::SCALAR, vec![value]).unwrap();
        b.body.add_initializer(name, one)
    };
    let conv = || {
        let (mut b, x) = Builder::new(&[2, 3, 9, 8]);
        let (w, c) = (b.weight(&[4, 3, 3, 3]), b.weight(&[4]));
        let y = b.call("Conv", &[x, w, c], &[]);
        (b, y)
    };
    let open = |b: &mut Builder, x: ValueId, most: f32| {
        let three = number(b, 3.0);
        let sum = b.call("Add", &[three, x], &[]);
        let bounds = [number(b, 0.0), number(b, most)];
        b.call("Clip", &[sum, bounds[0], bounds[1]], &[])
    };
    // Six divides the product or one factor, or a sixth multiplies it.
    for place in 0..4 {
        let (mut b, y) = conv();
        let z = match place {
            0 => {
                let gate = open(&mut b, y, 6.0);
                let (product, six) = (b.call("Mul", &[y, gate], &[]), number(&mut b, 6.0));
                b.call("Div", &[product, six], &[])
            }
            1 => {
                let (gate, six) = (open(&mut b, y, 6.0), number(&mut b, 6.0));
                let gate = b.call("Div", &[gate, six], &[]);
                b.call("Mul", &[gate, y], &[])
            }
            2 => {
                let (gate, sixth) = (open(&mut b, y, 6.0), number(&mut b, 1.0 / 6.0));
                let gate = b.call("Mul", &[sixth, gate], &[]);
                b.call("Mul", &[y, gate], &[])
            }
            _ => {
                let gate = b.call("HardSigmoid", &[y], &[("alpha", Attribute::Float(1.0 / 6.0))]);
                b.call("Mul", &[gate, y], &[])
            }
        };
        assert_eq!(b.steps(&[z]), ["Conv+HardSwish"], "{place}");
    }
    // With numbers before and after it.
    let (mut b, mut y) = conv();
    for (op, by) in [("Mul", -1.5), ("Add", 0.3)] {
        let by = number(&mut b, by);
        y = b.call(op, &[by, y], &[]);
    }
    let gate = open(&mut b, y, 6.0);
    let (product, six) = (b.call("Mul", &[y, gate], &[]), number(&mut b, 6.0));
    let mut z = b.call("Div", &[product, six], &[]);
    for (op, by) in [("Add", 0.2), ("Mul", 0.7), ("Add", -0.4)] {
        let by = number(&mut b, by);
        z = b.call(op, &[z, by], &[]);
    }
    assert_eq!(b.steps(&[z]), ["Conv+Mul+Add+HardSwish+Add+Mul+Add"]);
    // Silu, of a product with 1 too.
    for by_one in [false, true] {
        let (mut b, y) = conv();
        let one = number(&mut b, 1.0);
        let inner = if by_one { b.call("Mul", &[y, one], &[]) } else { y };
        let gate = b.call("Sigmoid", &[inner], &[]);
        let z = b.call("Mul", &[y, gate], &[]);
        assert_eq!(b.steps(&[z]), ["Conv+QuickGelu"]);
    }
    // Other bounds, and the gate of another value.
    let (mut b, y) = conv();
    let gate = open(&mut b, y, 5.0);
    let (product, six) = (b.call("Mul", &[y, gate], &[]), number(&mut b, 6.0));
    let z = b.call("Div", &[product, six], &[]);
    assert_eq!(b.steps(&[z]).len(), 5);
    let (mut b, y) = conv();
    let other = b.call("Neg", &[y], &[]);
    let gate = b.call("Sigmoid", &[other], &[]);
    let z = b.call("Mul", &[y, gate], &[]);
    assert_eq!(b.steps(&[z]).len(), 4);
}

#[test]
fn convolutions_take_norm_residual_and_activation() {
    let (mut b, x) = Builder::new(&[2, 3, 9, 8]);
    let pads = || [("pads", Attribute::Ints(vec![1; 4]))];
    let (w, c) = (b.weight(&[4, 3, 3, 3]), b.weight(&[4]));
    let first = b.call("Conv", &[x, w, c], &pads());
    let first = b.call("Relu", &[first], &[]);
    let w = b.weight(&[4, 4, 3, 3]);
    let y = b.call("Conv", &[first, w], &pads());
    let (scale, shift, mean, var) = (b.weight(&[4]), b.weight(&[4]), b.weight(&[4]), b.positive(4));
    let y = b.call("BatchNormalization", &[y, scale, shift, mean, var], &[]);
    let y = b.call("Add", &[first, y], &[]);
    let y = b.call("LeakyRelu", &[y], &[]);
    let y = b.call(
        "MaxPool",
        &[y],
        &[
            ("kernel_shape", Attribute::Ints(vec![3, 2])),
            ("strides", Attribute::Ints(vec![2, 1])),
            ("pads", Attribute::Ints(vec![1, 0, 1, 0])),
        ],
    );
    let steps = ["Conv+Relu", "Conv+BatchNormalization+Add+LeakyRelu", "MaxPool"];
    assert_eq!(b.steps(&[y]), steps);
}

#[test]
fn convolutions_take_the_pooling_after_them() {
    // All images at once, and a few at a time: the second case has 2.5 MB of output.
    for (images, side) in [(2, 9), (41, 40)] {
        let (mut b, x) = Builder::new(&[images, 3, side, side]);
        let (w, c) = (b.weight(&[10, 3, 3, 3]), b.weight(&[10]));
        let y = b.call("Conv", &[x, w, c], &[("pads", Attribute::Ints(vec![1; 4]))]);
        let y = b.call("Relu", &[y], &[]);
        let halves = || {
            [
                ("kernel_shape", Attribute::Ints(vec![2; 2])),
                ("strides", Attribute::Ints(vec![2; 2])),
            ]
        };
        let y = b.call("MaxPool", &[y], &halves());
        let w = b.weight(&[4, 10, 2, 2]);
        let y = b.call("Conv", &[y, w], &[]);
        let y = b.call("MaxPool", &[y], &halves());
        assert_eq!(b.steps(&[y]), ["Conv+Relu+MaxPool", "Conv+MaxPool"]);
    }
}

#[test]
fn a_residual_may_have_another_shape() {
    let (mut b, x) = Builder::new(&[1, 3, 5, 5]);
    let (w, r) = (b.weight(&[4, 3, 1, 1]), b.weight(&[2, 4, 1, 5]));
    let y = b.call("Conv", &[x, w], &[]);
    let y = b.call("Add", &[y, r], &[]);
    let y = b.call("Relu", &[y], &[]);
    assert_eq!(b.steps(&[y]), ["Conv+Add+Relu"]);
}

#[test]
fn what_others_read_stays() {
    // Two readers.
    let (mut b, x) = Builder::new(&[3, 4]);
    let w = b.weight(&[4, 4]);
    let y = b.call("MatMul", &[x, w], &[]);
    let (r, t) = (b.call("Relu", &[y], &[]), b.call("Tanh", &[y], &[]));
    let sum = b.call("Add", &[r, t], &[]);
    assert_eq!(b.steps(&[sum]), ["MatMul", "Relu", "Tanh", "Add"]);
    // A reader that reads twice.
    let (mut b, x) = Builder::new(&[3, 4]);
    let w = b.weight(&[4, 4]);
    let y = b.call("MatMul", &[x, w], &[]);
    let sum = b.call("Add", &[y, y], &[]);
    assert_eq!(b.steps(&[sum]), ["MatMul", "Add"]);
    // An output.
    let (mut b, x) = Builder::new(&[3, 4]);
    let w = b.weight(&[4, 4]);
    let y = b.call("MatMul", &[x, w], &[]);
    let r = b.call("Relu", &[y], &[]);
    assert_eq!(b.steps(&[y, r]), ["MatMul", "Relu"]);
}

#[test]
fn other_forms_stay() {
    // A factor, a bias of other extents, asymmetric padding, and positions requested.
    let (mut b, x) = Builder::new(&[3, 4]);
    let (w, c) = (b.weight(&[4, 4]), b.weight(&[3, 4]));
    let y = b.call("Gemm", &[x, w, c], &[]);
    let w = b.weight(&[4, 4]);
    let y = b.call("Gemm", &[y, w], &[("alpha", Attribute::Float(0.5))]);
    let y = b.call("Relu", &[y], &[]);
    assert_eq!(b.steps(&[y]), ["Gemm", "Gemm", "Relu"]);
    let (mut b, x) = Builder::new(&[1, 2, 6, 6]);
    let w = b.weight(&[2, 2, 2, 2]);
    let y = b.call("Conv", &[x, w], &[("auto_pad", Attribute::String("SAME_UPPER".into()))]);
    let y = b.call("Relu", &[y], &[]);
    assert_eq!(b.steps(&[y]), ["Conv", "Relu"]);
}

#[test]
fn what_trains_stays() {
    let (mut b, x) = Builder::new(&[3, 4]);
    let w = b.weight(&[4, 2]);
    let y = b.call("MatMul", &[x, w], &[]);
    let y = b.call("Relu", &[y], &[]);
    b.body.outputs = vec![y];
    let graph = Graph {
        opsets: [(String::new(), 20)].into(),
        body: b.body,
        ..Graph::default()
    };
    let device = Device::<Cpu>::default().into_any();
    let mut model = OnnxModel::from_graph(&graph, &device, Options::default()).unwrap();
    assert_eq!(model.steps(), ["MatMul+Relu"]);
    let x = Tensor::from_host(random(&[3, 4], 7), &device).unwrap();
    let before = model.forward(std::slice::from_ref(&x)).unwrap().tensor(0).unwrap();
    model.train(|_| true).unwrap();
    assert_eq!(model.steps(), ["MatMul", "Relu"]);
    // Another value of the same parameter takes effect at once.
    for _ in 0..2 {
        let w = Tensor::var("w1", Tensor::from_host(random(&[4, 2], 40), &device).unwrap()).unwrap();
        model.set([("w1".to_owned(), w)]).unwrap();
        let after = model.forward(std::slice::from_ref(&x)).unwrap().tensor(0).unwrap();
        assert!(after.is_tracked());
        assert_ne!(after.detach().to_vec::<f32>().unwrap(), before.to_vec::<f32>().unwrap());
    }
}

#[test]
fn recurrent_layers_of_all_directions_and_layouts_give_the_same() {
    for (op, gates, after) in [("LSTM", 4, None), ("GRU", 3, Some(0)), ("GRU", 3, Some(1))] {
        for (direction, count) in [("forward", 1), ("reverse", 1), ("bidirectional", 2)] {
            for (layout, rows, has_bias) in [(0, 3, true), (1, 3, true), (0, 1, false)] {
                let (mut b, x) = Builder::new(&[6, rows, 5]);
                let (w, r) = (b.weight(&[count, gates * 7, 5]), b.weight(&[count, gates * 7, 7]));
                let mut operands = vec![x, w, r];
                if has_bias {
                    operands.push(b.weight(&[count, 2 * gates * 7]));
                }
                let mut attributes = vec![
                    ("direction", Attribute::String(direction.into())),
                    ("layout", Attribute::Int(layout)),
                    ("hidden_size", Attribute::Int(7)),
                ];
                attributes.extend(after.map(|after| ("linear_before_reset", Attribute::Int(after))));
                let y = b.call(op, &operands, &attributes);
                let mut outputs = vec![y];
                for name in if op == "LSTM" { &["h", "c"][..] } else { &["h"] } {
                    let extra = b.body.add_value(*name, None);
                    b.body.nodes[0].outputs.push(Some(extra));
                    outputs.push(extra);
                }
                assert_eq!(b.steps(&outputs), [op]);
            }
        }
    }
}

#[test]
fn attention_is_found_in_the_nodes_that_spell_it() {
    for masking in ["none", "choice", "sum"] {
        let (mut b, x) = Builder::new(&[2, 3, 4, 5]);
        let w = b.weight(&[5, 5]);
        let k = b.call("MatMul", &[x, w], &[]);
        let turned = b.call("Transpose", &[k], &[("perm", Attribute::Ints(vec![0, 1, 3, 2]))]);
        let scores = b.call("MatMul", &[x, turned], &[]);
        let half = b.body.add_initializer("half", HostTensor::scalar(0.5f32));
        let mut scores = b.call("Mul", &[scores, half], &[]);
        let mut name = "MatMul+Mul".to_owned();
        if masking == "choice" {
            let seen = vec![true, true, false, true];
            let mask = HostTensor::new(Shape::from([1, 1, 1, 4]), seen).unwrap();
            let mask = b.body.add_initializer("mask", mask);
            let hidden = b.body.add_initializer("hidden", HostTensor::scalar(f32::NEG_INFINITY));
            scores = b.call("Where", &[mask, scores, hidden], &[]);
            name += "+Where";
        } else if masking == "sum" {
            let mask = b.weight(&[4, 4]);
            scores = b.call("Add", &[mask, scores], &[]);
            name += "+Add";
        }
        let weights = b.call("Softmax", &[scores], &[]);
        let y = b.call("MatMul", &[weights, x], &[]);
        let steps = b.steps(&[y]);
        assert_eq!(steps, ["MatMul", "Transpose", &(name + "+Softmax+MatMul")]);
    }
}

#[test]
fn attention_takes_the_choice_of_zero_for_queries_without_keys() {
    let axes = |b: &mut Builder, name: &str, axis: i64| {
        let list = HostTensor::new(Shape::from([1]), vec![axis]).unwrap();
        b.body.add_initializer(name, list)
    };
    // The mask's axis of keys; and another, which is not what attention does.
    for (axis, kept, is_fused) in [(3, 1, true), (-1, 1, true), (2, 1, true), (-1, 0, false)] {
        let (mut b, x) = Builder::new(&[2, 3, 4, 5]);
        let w = b.weight(&[5, 4]);
        let bound = b.body.add_initializer("bound", HostTensor::scalar(1.6f32));
        let hidden = b.body.add_initializer("hidden", HostTensor::scalar(f32::NEG_INFINITY));
        let zero = b.body.add_initializer("zero", HostTensor::scalar(0f32));
        let (first, last) = (axes(&mut b, "first", 1), axes(&mut b, "last", axis));
        let v = b.call("MatMul", &[x, w], &[]);
        let m = b.call("ReduceMax", &[v, first], &[]);
        let mask = b.call("Greater", &[m, bound], &[]);
        let turned = b.call("Transpose", &[x], &[("perm", Attribute::Ints(vec![0, 1, 3, 2]))]);
        let scores = b.call("MatMul", &[x, turned], &[]);
        let scores = b.call("Where", &[mask, scores, hidden], &[]);
        let weights = b.call("Softmax", &[scores], &[]);
        let y = b.call("MatMul", &[weights, v], &[]);
        let count = b.call("Cast", &[mask], &[("to", Attribute::Int(7))]);
        let count = b.call("ReduceSum", &[count, last], &[("keepdims", Attribute::Int(kept))]);
        let sees = b.call("Cast", &[count], &[("to", Attribute::Int(9))]);
        let sees = if kept == 1 {
            sees
        } else {
            b.call("Unsqueeze", &[sees, last], &[])
        };
        let y = b.call("Where", &[sees, y, zero], &[]);
        let y = b.call("Relu", &[y], &[]);
        let steps = b.steps(&[y]);
        let name = "MatMul+Where+Softmax+MatMul";
        let found = steps.contains(&format!("{name}+Where"));
        assert_eq!(
            (found, steps.contains(&"ReduceSum".to_owned())),
            (is_fused, !is_fused),
            "{axis}: {steps:?}"
        );
    }
}

#[test]
fn attention_takes_the_zeros_for_weights_that_are_nan() {
    for shared in [false, true] {
        let (mut b, x) = Builder::new(&[2, 3, 4, 5]);
        let w = b.weight(&[5, 4]);
        let first = b
            .body
            .add_initializer("first", HostTensor::new(Shape::from([1]), vec![1i64]).unwrap());
        let bound = b.body.add_initializer("bound", HostTensor::scalar(1.6f32));
        let hidden = b.body.add_initializer("hidden", HostTensor::scalar(f32::NEG_INFINITY));
        let zero = b.body.add_initializer("zero", HostTensor::scalar(0f32));
        let m = b.call("MatMul", &[x, w], &[]);
        let m = b.call("ReduceMax", &[m, first], &[]);
        let mask = b.call("Greater", &[m, bound], &[]);
        let mask = b.call("Where", &[mask, zero, hidden], &[]);
        let turned = b.call("Transpose", &[x], &[("perm", Attribute::Ints(vec![0, 1, 3, 2]))]);
        let scores = b.call("MatMul", &[x, turned], &[]);
        let scores = b.call("Add", &[scores, mask], &[]);
        let weights = b.call("Softmax", &[scores], &[]);
        let test = b.call("IsNaN", &[weights], &[]);
        let weights = b.call("Where", &[test, zero, weights], &[]);
        let y = b.call("MatMul", &[weights, x], &[]);
        // Weights that others read, too, stay.
        let y = if shared { vec![y, weights] } else { vec![y] };
        let steps = b.steps(&y);
        let name = "MatMul+Add+Softmax+IsNaN+Where+MatMul".to_owned();
        assert_eq!(steps.contains(&name), !shared, "{steps:?}");
    }
}
