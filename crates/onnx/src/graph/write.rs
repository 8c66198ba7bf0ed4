//! Writing: from a graph to protobuf messages.

use polygrad_core::Result;
use prost::Message;

use super::save::Outside;
use super::{Attribute, Body, Function, Graph, Literal, Node, ValueId};
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
    TensorProto, ValueInfoProto, attribute_type,
};

impl Graph {
    /// The graph as the content of a model file that includes all values.
    ///
    /// # Errors
    /// If it is no valid graph (a name that is undefined or defined twice, a cycle of nodes), or larger than the 2 GB
    /// that one file can hold.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        self.encode(&mut Outside::none())
    }

    /// Encodes the graph without the values that `outside` takes.
    pub(super) fn encode(&self, outside: &mut Outside) -> Result<Vec<u8>> {
        self.check()?;
        let proto = self.message(outside);
        let length = proto.encoded_len();
        if length > i32::MAX as usize {
            let error = super::malformed(format!("the model takes {length} bytes, one file holds 2 GB"));
            return Err(error.with_hint("save it with external data"));
        }
        Ok(proto.encode_to_vec())
    }

    fn message(&self, outside: &mut Outside) -> ModelProto {
        let header = &self.header;
        ModelProto {
            ir_version: header.ir_version,
            opset_import: opsets(&self.opsets),
            producer_name: header.producer_name.clone(),
            producer_version: header.producer_version.clone(),
            domain: header.domain.clone(),
            model_version: header.model_version,
            doc_string: header.doc_string.clone(),
            graph: Some(graph(&self.body, outside)),
            metadata_props: header.metadata.iter().map(|(key, value)| entry(key, value)).collect(),
            functions: self.functions.iter().map(|f| function(f, outside)).collect(),
        }
    }
}

pub(super) fn entry(key: &str, value: &str) -> StringStringEntryProto {
    StringStringEntryProto {
        key: key.into(),
        value: value.into(),
    }
}

fn opsets(versions: &std::collections::HashMap<String, i64>) -> Vec<OperatorSetIdProto> {
    let mut opsets: Vec<_> = versions
        .iter()
        .map(|(domain, &version)| OperatorSetIdProto {
            domain: domain.clone(),
            version,
        })
        .collect();
    opsets.sort_by(|a, b| a.domain.cmp(&b.domain));
    opsets
}

fn graph(body: &Body, outside: &mut Outside) -> GraphProto {
    let info = |&id: &ValueId| value_info(body, id);
    let listed = |id: &ValueId| body.inputs.contains(id) || body.outputs.contains(id);
    let captured = |id: &ValueId| body.captures.iter().any(|capture| capture.inner == *id);
    let fixed: std::collections::HashSet<ValueId> = body.initializers.iter().map(|i| i.value).collect();
    let between = (0..body.values.len() as u32)
        .map(ValueId)
        .filter(|id| body.value(*id).ty.is_some() && !fixed.contains(id) && !listed(id) && !captured(id));
    GraphProto {
        node: body.nodes.iter().map(|n| node(body, n, outside)).collect(),
        name: if body.name.is_empty() {
            "graph".into()
        } else {
            body.name.clone()
        },
        initializer: body
            .initializers
            .iter()
            .map(|initializer| tensor(&initializer.tensor, body.name_of(initializer.value), outside))
            .collect(),
        sparse_initializer: Vec::new(),
        doc_string: String::new(),
        input: body.inputs.iter().map(info).collect(),
        output: body.outputs.iter().map(info).collect(),
        value_info: between.map(|id| value_info(body, id)).collect(),
    }
}

fn value_info(body: &Body, id: ValueId) -> ValueInfoProto {
    let value = body.value(id);
    ValueInfoProto {
        name: value.name.clone(),
        r#type: value.ty.as_ref().map(super::ValueType::write),
        doc_string: String::new(),
    }
}

fn names(body: &Body, ids: &[Option<ValueId>]) -> Vec<String> {
    ids.iter()
        .map(|id| id.map_or_else(String::new, |id| body.name_of(id).to_owned()))
        .collect()
}

fn node(body: &Body, node: &Node, outside: &mut Outside) -> NodeProto {
    NodeProto {
        input: names(body, &node.inputs),
        output: names(body, &node.outputs),
        name: node.name.clone(),
        op_type: node.op_type.clone(),
        attribute: node
            .attributes
            .iter()
            .map(|(name, value)| attribute(name, value, outside))
            .collect(),
        doc_string: String::new(),
        domain: node.domain.clone(),
        overload: node.overload.clone(),
    }
}

fn function(function: &Function, outside: &mut Outside) -> FunctionProto {
    let body = &function.body;
    let named = |ids: &[ValueId]| ids.iter().map(|&id| body.name_of(id).to_owned()).collect();
    let plain = function.attributes.iter().filter(|(_, value)| value.is_none());
    let with_value = function.attributes.iter();
    let with_value = with_value.filter_map(|(name, value)| value.as_ref().map(|value| (name, value)));
    FunctionProto {
        name: function.name.clone(),
        input: named(&body.inputs),
        output: named(&body.outputs),
        attribute: plain.map(|(name, _)| name.clone()).collect(),
        attribute_proto: with_value
            .map(|(name, value)| attribute(name, value, outside))
            .collect(),
        node: body.nodes.iter().map(|n| node(body, n, outside)).collect(),
        doc_string: String::new(),
        opset_import: opsets(&function.opsets),
        domain: function.domain.clone(),
        overload: function.overload.clone(),
    }
}

fn tensor(tensor: &Literal, name: &str, outside: &mut Outside) -> TensorProto {
    match outside.take(tensor) {
        Some(place) => place.of(tensor, name),
        None => tensor.write(name),
    }
}

fn attribute(name: &str, value: &Attribute, outside: &mut Outside) -> AttributeProto {
    let mut proto = AttributeProto {
        name: name.into(),
        ..AttributeProto::default()
    };
    proto.r#type = match value {
        Attribute::Float(v) => {
            proto.f = Some(*v);
            attribute_type::FLOAT
        }
        Attribute::Int(v) => {
            proto.i = Some(*v);
            attribute_type::INT
        }
        Attribute::String(v) => {
            proto.s = Some(v.clone().into_bytes().into());
            attribute_type::STRING
        }
        Attribute::Bytes(v) => {
            proto.s = Some(v.clone());
            attribute_type::STRING
        }
        Attribute::Tensor(v) => {
            proto.t = Some(Box::new(tensor(v, "", outside)));
            attribute_type::TENSOR
        }
        Attribute::Body(v) => {
            proto.g = Some(Box::new(graph(v, outside)));
            attribute_type::GRAPH
        }
        Attribute::Floats(v) => {
            proto.floats.clone_from(v);
            attribute_type::FLOATS
        }
        Attribute::Ints(v) => {
            proto.ints.clone_from(v);
            attribute_type::INTS
        }
        Attribute::Strings(v) => {
            proto.strings = v.iter().map(|text| text.clone().into_bytes().into()).collect();
            attribute_type::STRINGS
        }
        Attribute::Tensors(v) => {
            proto.tensors = v.iter().map(|t| tensor(t, "", outside)).collect();
            attribute_type::TENSORS
        }
        Attribute::Bodies(v) => {
            proto.graphs = v.iter().map(|g| graph(g, outside)).collect();
            attribute_type::GRAPHS
        }
        Attribute::Type(v) => {
            proto.tp = v.as_ref().map(|ty| Box::new(ty.write()));
            attribute_type::TYPE_PROTO
        }
        Attribute::Reference(v) => {
            proto.ref_attr_name.clone_from(v);
            attribute_type::UNDEFINED
        }
    };
    proto
}
