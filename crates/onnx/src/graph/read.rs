//! Reading: from protobuf messages to a checked graph.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use bytes::Bytes;
use polygrad_core::{Error, Result};
use prost::Message;

use super::budget::Budget;
use super::external::Folder;
use super::{
    Body, Capture, Function, Graph, Header, Initializer, Literal, Node, ValueId, ValueInfo, ValueType, malformed,
    order, weight,
};
use crate::import::Options;
use crate::proto::{FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto};

/// The largest file that is read: the limit of a protobuf message.
const MAX_FILE: u64 = i32::MAX as u64;

/// The deepest nesting of bodies.
const MAX_DEPTH: usize = 24;

impl Graph {
    /// Reads and checks a model file, and the files with external data beside it.
    ///
    /// # Errors
    /// [`Io`](polygrad_core::ErrorKind::Io) when a file cannot be read, else most often
    /// [`Format`](polygrad_core::ErrorKind::Format): undefined names or names defined twice, cycles of nodes, tensors
    /// whose size differs from their shape, external data outside the model's folder, bodies nested too deep. Element
    /// types that no dtype stores exactly are [`DType`](polygrad_core::ErrorKind::DType).
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_within(path, Options::default().max_memory_bytes)
    }

    /// [`Graph::load`], in which all tensors together, external data included, may take at most `max_memory_bytes`.
    ///
    /// # Errors
    /// As [`Graph::load`]; and [`OutOfMemory`](polygrad_core::ErrorKind::OutOfMemory) when they take more.
    pub fn load_within(path: impl AsRef<Path>, max_memory_bytes: usize) -> Result<Self> {
        let path = path.as_ref();
        let bytes = bytes_of(path)?;
        let folder = Folder::of(path)?;
        let budget = Budget::new(Some(&folder), max_memory_bytes);
        read(bytes, budget).map_err(|e| e.in_module(path.display().to_string()))
    }

    /// Reads and checks a model in memory. External data is an error, since the location of its files is unknown.
    ///
    /// # Errors
    /// As [`Graph::load`].
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Self> {
        read(bytes.into(), Budget::new(None, Options::default().max_memory_bytes))
    }
}

/// The bytes of a model file.
pub(super) fn bytes_of(path: &Path) -> Result<Bytes> {
    let metadata = path.metadata().map_err(|e| Error::io("read", path, e))?;
    if !metadata.is_file() || metadata.len() > MAX_FILE {
        let (what, fix) = if metadata.is_file() {
            ("larger than 2 GB", "a larger model is a file with external data")
        } else {
            ("a folder, a device or a pipe", "give the path of a file")
        };
        return Err(malformed(format!("{} is {what}", path.display())).with_hint(fix));
    }
    let bytes = std::fs::read(path).map_err(|e| Error::io("read", path, e))?;
    Ok(bytes.into())
}

/// The message in a model file.
pub(super) fn decoded(bytes: Bytes) -> Result<ModelProto> {
    weight::check(&bytes)?;
    ModelProto::decode(bytes).map_err(|e| {
        let message = format!("this is no ONNX model, or a damaged one: {e}");
        malformed(message)
            .with_source(e)
            .with_hint("export or download the file anew")
    })
}

/// Before this version of the format, every initializer also had to be listed as an input.
const FIRST_WITH_DEFAULTS: i64 = 4;

fn read(bytes: Bytes, budget: Budget<'_>) -> Result<Graph> {
    let proto = decoded(bytes)?;
    let reader = Reader { budget };
    let Some(graph) = proto.graph else {
        return Err(malformed("the model has no graph").with_hint("check that this is an ONNX file"));
    };
    let opsets = opsets(&proto.opset_import)?;
    if opsets.is_empty() {
        return Err(malformed("the model does not say which version of the ops it calls"));
    }
    let mut functions = Vec::with_capacity(proto.functions.len());
    let mut seen = HashSet::new();
    for function in proto.functions {
        let function = reader.function(function)?;
        let key = (
            function.domain.clone(),
            function.name.clone(),
            function.overload.clone(),
        );
        if !seen.insert(key) {
            return Err(malformed(format!("the function {:?} is defined twice", function.name)));
        }
        functions.push(function);
    }
    let mut body = reader.graph(graph, &mut Vec::new())?;
    if proto.ir_version < FIRST_WITH_DEFAULTS {
        let fixed: HashSet<ValueId> = body.initializers.iter().map(|initializer| initializer.value).collect();
        body.inputs.retain(|input| !fixed.contains(input));
    }
    let metadata = proto.metadata_props.into_iter().map(|entry| (entry.key, entry.value));
    Ok(Graph {
        header: Header {
            ir_version: proto.ir_version,
            producer_name: proto.producer_name,
            producer_version: proto.producer_version,
            domain: proto.domain,
            model_version: proto.model_version,
            doc_string: proto.doc_string,
            metadata: metadata.collect(),
        },
        opsets,
        functions,
        body,
    })
}

/// Maps both names of the standard domain to one.
fn standard(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

fn opsets(imports: &[OperatorSetIdProto]) -> Result<HashMap<String, i64>> {
    let mut opsets = HashMap::new();
    for import in imports {
        let known = opsets.insert(standard(&import.domain).to_owned(), import.version);
        if known.is_some_and(|version| version != import.version) {
            return Err(malformed(format!(
                "two versions of the ops of domain {:?}",
                import.domain
            )));
        }
    }
    Ok(opsets)
}

/// A body under construction: its values by name.
pub(super) struct Scope {
    body: Body,
    ids: HashMap<String, ValueId>,
    /// Values with a definition: an input, an initializer or a node.
    defined: HashSet<ValueId>,
}

impl Scope {
    fn new(name: String) -> Self {
        Self {
            body: Body {
                name,
                ..Body::default()
            },
            ids: HashMap::new(),
            defined: HashSet::new(),
        }
    }

    fn id(&mut self, name: &str) -> ValueId {
        match self.ids.get(name) {
            Some(&id) => id,
            None => {
                let id = self.body.add_value(name, None);
                self.ids.insert(name.to_owned(), id);
                id
            }
        }
    }

    fn define(&mut self, name: &str) -> Result<ValueId> {
        if name.is_empty() {
            return Err(malformed("an input has no name"));
        }
        let id = self.id(name);
        if !self.defined.insert(id) {
            return Err(malformed(format!("the value {name:?} is defined twice")));
        }
        Ok(id)
    }
}

pub(super) struct Reader<'a> {
    pub(super) budget: Budget<'a>,
}

impl Reader<'_> {
    /// `around` are the enclosing bodies, the outermost first.
    pub(super) fn graph(&self, proto: GraphProto, around: &mut Vec<Scope>) -> Result<Body> {
        if around.len() >= MAX_DEPTH {
            return Err(malformed(format!("bodies are nested more than {MAX_DEPTH} deep")));
        }
        let mut scope = Scope::new(proto.name);
        for input in &proto.input {
            let id = scope.define(&input.name)?;
            scope.body.inputs.push(id);
            note_type(&mut scope.body.values[id.index()], input)?;
        }
        let dense = proto.initializer.into_iter().map(|mut tensor: TensorProto| {
            let name = std::mem::take(&mut tensor.name);
            let read = Literal::read(tensor, &self.budget).map_err(|e| e.in_module(format!("initializer {name:?}")));
            read.map(|tensor| (name, tensor))
        });
        let sparse = proto.sparse_initializer.into_iter();
        let sparse = sparse.map(|tensor| Literal::read_sparse(tensor, &self.budget));
        let mut fixed = HashSet::new();
        for initializer in dense.chain(sparse) {
            let (name, tensor) = initializer?;
            let value = scope.id(&name);
            if name.is_empty() || !fixed.insert(value) {
                return Err(malformed(format!("two initializers, or one without a name: {name:?}")));
            }
            // An initializer that is also an input is that input's default.
            scope.defined.insert(value);
            scope.body.initializers.push(Initializer { value, tensor });
        }
        for info in &proto.value_info {
            let id = scope.id(&info.name);
            note_type(&mut scope.body.values[id.index()], info)?;
        }
        let mut body = self.nodes(scope, proto.node, around)?;
        for info in &proto.output {
            let id = match body.ids.get(&info.name) {
                Some(&id) if body.defined.contains(&id) => id,
                // A body may return a value of the enclosing body.
                _ => self
                    .capture(&mut body, around, &info.name)
                    .ok_or_else(|| malformed(format!("nothing gives the output {:?}", info.name)))?,
            };
            body.body.outputs.push(id);
            note_type(&mut body.body.values[id.index()], info)?;
        }
        Ok(body.body)
    }

    fn function(&self, proto: FunctionProto) -> Result<Function> {
        let name = proto.name.clone();
        let read = || {
            let mut scope = Scope::new(proto.name.clone());
            for input in &proto.input {
                let id = scope.define(input)?;
                scope.body.inputs.push(id);
            }
            let mut scope = self.nodes(scope, proto.node, &mut Vec::new())?;
            for output in &proto.output {
                let found = scope.ids.get(output).filter(|id| scope.defined.contains(id));
                let id = *found.ok_or_else(|| malformed(format!("nothing gives the output {output:?}")))?;
                scope.body.outputs.push(id);
            }
            let mut attributes: Vec<_> = proto.attribute.into_iter().map(|name| (name, None)).collect();
            for attribute in proto.attribute_proto {
                let name = attribute.name.clone();
                attributes.push((name, Some(self.attribute(attribute, &mut Vec::new())?)));
            }
            Ok(Function {
                name: proto.name,
                domain: standard(&proto.domain).to_owned(),
                overload: proto.overload,
                body: scope.body,
                attributes,
                opsets: opsets(&proto.opset_import)?,
            })
        };
        read().map_err(|e: Error| e.in_module(format!("function {name}")))
    }

    /// The nodes of a body, checked and sorted.
    fn nodes(&self, mut scope: Scope, protos: Vec<NodeProto>, around: &mut Vec<Scope>) -> Result<Scope> {
        let mut nodes = Vec::with_capacity(protos.len());
        let mut pending = Vec::with_capacity(protos.len());
        // First all definitions are collected, so that the order of nodes does not matter.
        for mut proto in protos {
            let attributes = std::mem::take(&mut proto.attribute);
            let define = |name: &String| match name.as_str() {
                "" => Ok(None),
                name => scope.define(name).map(Some),
            };
            let outputs = proto.output.iter().map(define).collect::<Result<_>>();
            let outputs = outputs.map_err(|e| in_node(e, &proto.name, &proto.op_type))?;
            nodes.push(Node {
                name: proto.name,
                op_type: proto.op_type,
                domain: standard(&proto.domain).to_owned(),
                overload: proto.overload,
                version: None,
                inputs: Vec::new(),
                outputs,
                attributes: Vec::new(),
            });
            pending.push((proto.input, attributes));
        }
        let mut needs = Vec::with_capacity(nodes.len());
        for (node, (inputs, attributes)) in nodes.iter_mut().zip(pending) {
            let mut needed = Vec::new();
            let fill = || {
                for name in &inputs {
                    let id = match name.as_str() {
                        "" => None,
                        name => Some(self.resolve(&mut scope, around, name)?),
                    };
                    needed.extend(id.map(|id| id.0));
                    node.inputs.push(id);
                }
                // The scope becomes one of the enclosing bodies for the attributes.
                around.push(std::mem::replace(&mut scope, Scope::new(String::new())));
                let read = attributes.into_iter().try_for_each(|proto| {
                    let name = proto.name.clone();
                    if node.attribute(&name).is_some() {
                        return Err(malformed(format!("the attribute {name:?} is given twice")));
                    }
                    let attribute = self.attribute(proto, around)?;
                    node.attributes.push((name, attribute));
                    Ok(())
                });
                if let Some(outer) = around.pop() {
                    scope = outer;
                }
                read
            };
            let outcome = fill();
            outcome.map_err(|e: Error| in_node(e, &node.name, &node.op_type))?;
            for (_, attribute) in &node.attributes {
                for body in attribute.bodies() {
                    needed.extend(body.captures.iter().map(|capture| capture.outer.0));
                }
            }
            needs.push(needed);
        }
        scope.body.nodes = order::sort(nodes, &needs, scope.body.values.len())?;
        Ok(scope)
    }

    /// The value of a name in this body or an enclosing one.
    fn resolve(&self, scope: &mut Scope, around: &mut [Scope], name: &str) -> Result<ValueId> {
        if let Some(&id) = scope.ids.get(name)
            && scope.defined.contains(&id)
        {
            return Ok(id);
        }
        self.capture(scope, around, name)
            .ok_or_else(|| malformed(format!("nothing gives the value {name:?}")))
    }

    /// Makes a value of an enclosing body known in this one.
    fn capture(&self, scope: &mut Scope, around: &mut [Scope], name: &str) -> Option<ValueId> {
        let (nearest, further) = around.split_last_mut()?;
        let outer = match nearest.ids.get(name) {
            Some(&id) if nearest.defined.contains(&id) => id,
            _ => self.capture(nearest, further, name)?,
        };
        let inner = scope.id(name);
        scope.defined.insert(inner);
        scope.body.captures.push(Capture { inner, outer });
        Some(inner)
    }
}

fn note_type(value: &mut ValueInfo, info: &ValueInfoProto) -> Result<()> {
    let Some(ty) = &info.r#type else { return Ok(()) };
    let read = ValueType::read(ty).map_err(|e| e.in_module(format!("value {:?}", info.name)))?;
    if let Some(ty) = read {
        value.ty.get_or_insert(ty);
    }
    Ok(())
}

fn in_node(error: Error, name: &str, op_type: &str) -> Error {
    error.in_module(format!("node {name:?} ({op_type})"))
}
