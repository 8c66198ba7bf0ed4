//! Which graphs are computed for several clients at once: only those that are known to keep rows apart.

use polygrad_core::HostTensor;
use polygrad_cpu::Cpu;
use polygrad_onnx::graph::{Attribute, Body, Dim, ElementType, Graph, Node, ValueId, ValueType};
use polygrad_onnx::{OnnxModel, Options};
use polygrad_serve::{Model, OnnxService};
use polygrad_tensor::Device;

use Attribute::{Float, Int, Ints};

/// A graph builder; nodes name their operands.
struct Making(Graph);

/// Attributes of a node.
type Given<'a> = &'a [(&'a str, Attribute)];

impl Making {
    fn new(opset: i64) -> Self {
        let mut graph = Graph::default();
        graph.opsets.insert(String::new(), opset);
        graph.body.name = "graph".to_owned();
        Self(graph)
    }

    fn typed(&mut self, name: &str, element: ElementType, dims: &[&str]) -> ValueId {
        let dim = |dim: &&str| dim.parse().map_or_else(|_| Dim::Named((*dim).to_owned()), Dim::Fixed);
        let ty = ValueType::tensor(element, dims.iter().map(dim).collect());
        self.0.body.add_value(name, Some(ty))
    }

    fn input(mut self, name: &str, element: ElementType, dims: &[&str]) -> Self {
        let id = self.typed(name, element, dims);
        self.0.body.inputs.push(id);
        self
    }

    /// An input `x` of floats.
    fn x(self, dims: &[&str]) -> Self {
        self.input("x", ElementType::F32, dims)
    }

    fn floats(mut self, name: &str, dims: &[usize]) -> Self {
        let shape = polygrad_core::Shape::new(dims).unwrap();
        let values = (0..shape.numel()).map(|i| (i as f32 * 0.7).sin()).collect::<Vec<f32>>();
        self.0
            .body
            .add_initializer(name, HostTensor::new(shape, values).unwrap());
        self
    }

    fn ints(mut self, name: &str, values: &[i64]) -> Self {
        let shape = polygrad_core::Shape::new(&[values.len()]).unwrap();
        let host = HostTensor::new(shape, values.to_vec()).unwrap();
        self.0.body.add_initializer(name, host);
        self
    }

    fn number(mut self, name: &str, value: f32) -> Self {
        self.0.body.add_initializer(name, HostTensor::scalar(value));
        self
    }

    fn place(body: &mut Body, name: &str) -> ValueId {
        let found = body.values.iter().position(|value| value.name == name);
        found.map_or_else(|| body.add_value(name, None), |at| ValueId(at as u32))
    }

    /// A node with the names of operands and results, separated by spaces; `-` is one that is left out.
    fn node(mut self, op: &str, inputs: &str, outputs: &str, attributes: Given<'_>) -> Self {
        let body = &mut self.0.body;
        let mut ids = |names: &str| -> Vec<Option<ValueId>> {
            let names = names.split(' ');
            names
                .map(|name| (name != "-").then(|| Self::place(body, name)))
                .collect()
        };
        let (inputs, outputs) = (ids(inputs), ids(outputs));
        let attributes = attributes
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()));
        self.0.body.nodes.push(Node {
            name: format!("the {op}"),
            op_type: op.to_owned(),
            inputs,
            outputs,
            attributes: attributes.collect(),
            ..Node::default()
        });
        self
    }

    /// The service, whose output is the value `y`.
    fn served(self, dims: &[&str]) -> OnnxService {
        self.served_as(ElementType::F32, dims)
    }

    fn served_as(mut self, element: ElementType, dims: &[&str]) -> OnnxService {
        let body = &mut self.0.body;
        let id = Self::place(body, "y");
        let dim = |dim: &&str| dim.parse().map_or_else(|_| Dim::Named((*dim).to_owned()), Dim::Fixed);
        body.values[id.index()].ty = Some(ValueType::tensor(element, dims.iter().map(dim).collect()));
        body.outputs.push(id);
        let device = Device::<Cpu>::default().into_any();
        let model = OnnxModel::from_graph(&self.0, &device, Options::default()).unwrap();
        OnnxService::new(model).unwrap()
    }
}

fn apart(service: &OnnxService, words: &str) {
    assert!(!service.signature().is_batched(), "{words}: it was joined");
    let why = service.apart().unwrap_or_default();
    assert!(why.contains(words), "{words} is not in: {why}");
}

fn joined(service: &OnnxService) {
    assert!(service.signature().is_batched(), "{:?}", service.apart());
    assert_eq!(service.apart(), None);
}

fn new() -> Making {
    Making::new(17)
}

#[test]
fn what_computes_over_rows_is_kept_apart_and_named() {
    let axis = |axis: i64| [("axis", Int(axis))];
    for (op, more, attributes) in [
        ("Softmax", "", &axis(0)[..]),
        ("LogSoftmax", "", &axis(0)),
        ("Hardmax", "", &axis(-2)),
        ("LpNormalization", "", &axis(0)),
        ("CumSum", " zero", &[]),
        ("ReduceMax", "", &[("axes", Ints(vec![0]))]),
        ("ReduceMean", "", &[]),
        ("ArgMax", "", &axis(0)),
        ("TopK", " two", &axis(0)),
        ("Concat", " x", &axis(0)),
        ("Slice", " zero two zero", &[]),
        ("Gather", " one", &axis(0)),
        ("Transpose", "", &[]),
        ("NonZero", "", &[]),
        ("Unique", "", &[]),
        ("Tile", " ones", &[]),
        ("Pad", " pads", &[]),
        ("RandomNormalLike", "", &[]),
        ("MeanVarianceNormalization", "", &[("axes", Ints(vec![0]))]),
    ] {
        let made = new()
            .x(&["batch", "4"])
            .ints("zero", &[0])
            .ints("one", &[1])
            .ints("two", &[2])
            .ints("ones", &[2, 1])
            .ints("pads", &[1, 0, 0, 0]);
        let outputs = if op == "TopK" { "y places" } else { "y" };
        let service = made
            .node(op, &format!("x{more}"), outputs, attributes)
            .served(&["batch", "4"]);
        assert!(!service.signature().is_batched(), "{op}");
        let why = service.apart().unwrap_or_default();
        // A transposed or shortened tensor is noticed by the position of the rows.
        assert!(
            why.contains(op) || why.contains("does not have the rows"),
            "{op}: {why}"
        );
    }
}

#[test]
fn one_scale_for_all_rows_keeps_them_apart() {
    let made = new()
        .x(&["batch", "4"])
        .node("DynamicQuantizeLinear", "x", "q scale zero", &[]);
    apart(
        &made
            .node("DequantizeLinear", "q scale zero", "y", &[])
            .served(&["batch", "4"]),
        "one scale for all rows",
    );
}

/// Models whose rows only depend on each other for some numbers.
#[test]
fn what_depends_on_other_rows_for_some_numbers_alone_is_kept_apart() {
    let most = |made: Making| made.node("ReduceMax", "x", "most", &[("keepdims", Int(0))]);
    let guard = most(
        new()
            .x(&["batch", "4"])
            .number("bound", 1e6)
            .number("small", 0.01)
            .number("whole", 1.0),
    )
    .node("Greater", "most bound", "is", &[])
    .node("Where", "is small whole", "factor", &[])
    .node("Mul", "x factor", "y", &[]);
    apart(&guard.served(&["batch", "4"]), "ReduceMax");
    let clip = most(new().x(&["batch", "4"]).number("least", 1e7).number("low", -1e9))
        .node("Max", "most least", "high", &[])
        .node("Clip", "x low high", "y", &[]);
    apart(&clip.served(&["batch", "4"]), "ReduceMax");
    let trim = new()
        .x(&["batch", "8"])
        .input("lengths", ElementType::I64, &["batch"])
        .ints("zero", &[0])
        .ints("one", &[1])
        .node("ReduceMax", "lengths", "most", &[("keepdims", Int(1))])
        .node("Slice", "x zero most one", "y", &[]);
    apart(&trim.served(&["batch", "length"]), "ReduceMax");
}

#[test]
fn what_depends_on_how_many_rows_there_are_is_kept_apart() {
    let counted = new()
        .x(&["batch", "4"])
        .ints("zero", &[0])
        .node("Shape", "x", "shape", &[])
        .node("Gather", "shape zero", "count", &[("axis", Int(0))])
        .node("Cast", "count", "number", &[("to", Int(1))])
        .node("Div", "x number", "y", &[]);
    apart(&counted.served(&["batch", "4"]), "how many rows");
    // From five rows on, more than the two or three that are tested.
    let many = new()
        .x(&["batch", "4"])
        .ints("zero", &[0])
        .ints("four", &[4])
        .node("Shape", "x", "shape", &[])
        .node("Gather", "shape zero", "count", &[("axis", Int(0))])
        .node("Greater", "count four", "is", &[])
        .node("Neg", "x", "less", &[])
        .node("Where", "is less x", "y", &[]);
    apart(&many.served(&["batch", "4"]), "how many rows");
}

#[test]
fn rows_that_a_shape_cuts_or_joins_are_kept_apart() {
    let twisted = new()
        .x(&["batch", "6"])
        .ints("wide", &[6, -1])
        .ints("back", &[-1, 6])
        .node("Reshape", "x wide", "turned", &[])
        .node("Softmax", "turned", "soft", &[("axis", Int(1))])
        .node("Reshape", "soft back", "y", &[]);
    assert!(!twisted.served(&["batch", "6"]).signature().is_batched());
    // Eight positions are one whole row only at the tested length; at another length they belong to two rows.
    let long = new()
        .x(&["batch", "length"])
        .ints("eight", &[-1, 8])
        .node("Shape", "x", "shape", &[])
        .node("Reshape", "x eight", "parts", &[])
        .node("Softmax", "parts", "soft", &[("axis", Int(1))])
        .node("Reshape", "soft shape", "y", &[]);
    assert!(!long.served(&["batch", "length"]).signature().is_batched());
}

#[test]
fn training_and_products_of_rows_are_kept_apart() {
    let normal = new().x(&["batch", "4"]).floats("each", &[4]).node(
        "BatchNormalization",
        "x each each each each",
        "y mean var",
        &[("training_mode", Int(1))],
    );
    apart(&normal.served(&["batch", "4"]), "normalizes by what all rows are");
    let gram = new()
        .x(&["batch", "4"])
        .node("Transpose", "x", "turned", &[("perm", Ints(vec![1, 0]))])
        .node("MatMul", "x turned", "gram", &[])
        .node("MatMul", "gram x", "y", &[]);
    assert!(!gram.served(&["batch", "4"]).signature().is_batched());
    apart(&branch().served(&["batch", "4"]), "ReduceMax");
}

/// An If on a value of the rows.
fn branch() -> Making {
    let made = new()
        .x(&["batch", "4"])
        .number("bound", 1e6)
        .node("ReduceMax", "x", "most", &[("keepdims", Int(0))])
        .node("Greater", "most bound", "is", &[]);
    let mut body = Body {
        name: "branch".to_owned(),
        ..Body::default()
    };
    let inner = body.add_value("outer", None);
    let result = body.add_value("result", None);
    let outer = made.0.body.inputs[0];
    body.captures.push(polygrad_onnx::graph::Capture { inner, outer });
    body.outputs.push(result);
    let side = |op: &str| {
        let mut body = body.clone();
        body.nodes.push(Node {
            op_type: op.to_owned(),
            inputs: vec![Some(inner)],
            outputs: vec![Some(result)],
            ..Node::default()
        });
        Attribute::Body(std::sync::Arc::new(body))
    };
    let sides = [("then_branch", side("Neg")), ("else_branch", side("Abs"))];
    made.node("If", "is", "y", &sides)
}

#[test]
fn layers_stay_joined() {
    let mlp = new()
        .x(&["batch", "4"])
        .floats("w", &[4, 3])
        .floats("b", &[3])
        .floats("v", &[3, 2])
        .node("MatMul", "x w", "h", &[])
        .node("Add", "h b", "i", &[])
        .node("Gelu", "i", "j", &[])
        .node("Gemm", "j v", "k", &[])
        .node("Softmax", "k", "y", &[("axis", Int(-1))]);
    let mlp = Making(Graph {
        opsets: [(String::new(), 20)].into(),
        ..mlp.0
    });
    joined(&mlp.served(&["batch", "2"]));
    let cnn = new()
        .x(&["batch", "1", "8", "8"])
        .floats("w", &[4, 1, 3, 3])
        .floats("each", &[4])
        .ints("flat", &[-1, 36])
        .floats("v", &[36, 2])
        .node("Conv", "x w", "c", &[])
        .node("BatchNormalization", "c each each each each", "n", &[])
        .node("Relu", "n", "r", &[])
        .node(
            "MaxPool",
            "r",
            "p",
            &[("kernel_shape", Ints(vec![2, 2])), ("strides", Ints(vec![2, 2]))],
        )
        .node("Reshape", "p flat", "f", &[])
        .node("MatMul", "f v", "y", &[]);
    joined(&cnn.served(&["batch", "2"]));
}

#[test]
fn recurrent_layers_stay_joined() {
    for (cell, gates) in [("LSTM", 4), ("GRU", 3), ("RNN", 1)] {
        let made = new()
            .x(&["batch", "length", "3"])
            .floats("w", &[1, gates * 5, 3])
            .floats("r", &[1, gates * 5, 5])
            .ints("zero", &[0])
            .ints("one", &[1])
            .ints("five", &[5])
            .node("Shape", "x", "shape", &[])
            .node("Gather", "shape zero", "count", &[("axis", Int(0))])
            .node("Concat", "one count five", "extents", &[("axis", Int(0))])
            .node("ConstantOfShape", "extents", "state", &[])
            .node("Transpose", "x", "t", &[("perm", Ints(vec![1, 0, 2]))])
            .node(cell, "t w r - - state", "- last", &[("hidden_size", Int(5))])
            .node("Squeeze", "last zero", "y", &[]);
        joined(&made.served(&["batch", "5"]));
    }
}

/// Attention as PyTorch writes it: heads split by computed shapes, an expanded mask.
#[test]
fn attention_with_masks_stays_joined() {
    let made = new()
        .input("ids", ElementType::I64, &["batch", "length"])
        .input("mask", ElementType::I64, &["batch", "length"])
        .floats("table", &[16, 8])
        .floats("w", &[8, 8])
        .floats("each", &[8])
        .ints("zero", &[0])
        .ints("one", &[1])
        .ints("heads", &[2])
        .ints("width", &[4])
        .ints("whole", &[8])
        .ints("axes", &[1, 2])
        .number("scale", 0.5)
        .number("all", 1.0)
        .number("least", -1e9)
        .node("Gather", "table ids", "e", &[])
        .node("LayerNormalization", "e each each", "x", &[("axis", Int(-1))])
        .node("Shape", "ids", "shape", &[])
        .node("Gather", "shape zero", "batch", &[])
        .node("Gather", "shape one", "length", &[])
        .node("Concat", "batch length heads width", "split", &[("axis", Int(0))])
        .node("Concat", "batch length whole", "back", &[("axis", Int(0))])
        .node("MatMul", "x w", "q", &[])
        .node("Reshape", "q split", "qs", &[])
        .node("Transpose", "qs", "qt", &[("perm", Ints(vec![0, 2, 1, 3]))])
        .node("Transpose", "qs", "kt", &[("perm", Ints(vec![0, 2, 3, 1]))])
        .node("MatMul", "qt kt", "scores", &[])
        .node("Mul", "scores scale", "scaled", &[])
        .node("Unsqueeze", "mask axes", "wide", &[])
        .node("Cast", "wide", "seen", &[("to", Int(1))])
        .node("Sub", "all seen", "hidden", &[])
        .node("Mul", "hidden least", "bias", &[])
        .node("Add", "scaled bias", "biased", &[])
        .node("Softmax", "biased", "weights", &[("axis", Int(-1))])
        .node("MatMul", "weights qt", "mixed", &[])
        .node("Transpose", "mixed", "turned", &[("perm", Ints(vec![0, 2, 1, 3]))])
        .node("Reshape", "turned back", "out", &[])
        .node(
            "ReduceMean",
            "out",
            "y",
            &[("axes", Ints(vec![1])), ("keepdims", Int(0))],
        );
    joined(&made.served(&["batch", "8"]));
}

/// The model's own token is put before those of a row, by a shape that is expanded as in PyTorch's exports.
#[test]
fn what_is_repeated_for_each_row_stays_joined() {
    let made = new()
        .x(&["batch", "3", "4"])
        .floats("token", &[1, 1, 4])
        .ints("zero", &[0])
        .ints("rest", &[-1, -1])
        .ints("minus", &[-1])
        .ints("three", &[3])
        .node("Shape", "x", "shape", &[])
        .node("Gather", "shape zero", "count", &[])
        .node("Concat", "count rest", "wanted", &[("axis", Int(0))])
        .node("ConstantOfShape", "three", "ones", &[("value", literal(1))])
        .node("Equal", "wanted minus", "is", &[])
        .node("Where", "is ones wanted", "extents", &[])
        .node("Expand", "token extents", "tokens", &[])
        .node("Concat", "tokens x", "all", &[("axis", Int(1))])
        .node("LeakyRelu", "all", "soft", &[("alpha", Float(0.1))])
        .node("Flatten", "soft", "y", &[("axis", Int(1))]);
    joined(&made.served(&["batch", "16"]));
}

fn literal(value: i64) -> Attribute {
    let shape = polygrad_core::Shape::new(&[1]).unwrap();
    Attribute::Tensor(HostTensor::new(shape, vec![value]).unwrap().into())
}

#[test]
fn masks_of_policies_stay_joined() {
    let made = new()
        .x(&["batch", "4"])
        .input("allowed", ElementType::Bool, &["batch", "2"])
        .floats("w", &[4, 2])
        .number("least", -1e9)
        .node("MatMul", "x w", "logits", &[])
        .node("Where", "allowed logits least", "masked", &[])
        .node("ArgMax", "masked", "y", &[("axis", Int(1)), ("keepdims", Int(0))]);
    joined(&made.served_as(ElementType::I64, &["batch"]));
}
