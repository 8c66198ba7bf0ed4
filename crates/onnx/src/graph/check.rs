//! Checks of a graph that was built by hand, before it is written.

use std::collections::HashSet;

use polygrad_core::Result;

use super::{Body, Graph, ValueId, malformed};

impl Graph {
    /// Makes the checks that reading a file makes: ids and names are valid, and each value is produced once, before it
    /// is used.
    ///
    /// # Errors
    /// [`Format`](polygrad_core::ErrorKind::Format), naming the value or node.
    pub fn check(&self) -> Result<()> {
        self.body.check()?;
        for function in &self.functions {
            let name = &function.name;
            function
                .body
                .check()
                .map_err(|e| e.in_module(format!("function {name}")))?;
        }
        if self.opsets.is_empty() {
            return Err(malformed("the model does not say which version of the ops it calls"));
        }
        Ok(())
    }
}

impl Body {
    fn check(&self) -> Result<()> {
        let mut names = HashSet::new();
        for value in &self.values {
            if value.name.is_empty() || !names.insert(value.name.as_str()) {
                return Err(malformed(format!(
                    "two values, or one without a name: {:?}",
                    value.name
                )));
            }
        }
        let mut given = HashSet::new();
        let fixed: HashSet<ValueId> = self.initializers.iter().map(|i| i.value).collect();
        if fixed.len() < self.initializers.len() {
            return Err(malformed("two initializers give one value"));
        }
        for &id in self
            .inputs
            .iter()
            .chain(self.captures.iter().map(|capture| &capture.inner))
        {
            self.give(&mut given, id)?;
        }
        for &id in &fixed {
            self.known(id)?;
            given.insert(id);
        }
        for node in &self.nodes {
            let mut check = || {
                let within = node.attributes.iter().flat_map(|(_, attribute)| attribute.bodies());
                let captured = within
                    .clone()
                    .flat_map(|body| body.captures.iter().map(|capture| capture.outer));
                for id in node.inputs.iter().flatten().copied().chain(captured) {
                    self.known(id)?;
                    if !given.contains(&id) {
                        return Err(malformed(format!(
                            "nothing gives {:?} before it is used",
                            self.name_of(id)
                        )));
                    }
                }
                within.clone().try_for_each(|body| body.check())?;
                node.outputs
                    .iter()
                    .flatten()
                    .try_for_each(|&id| self.give(&mut given, id))
            };
            check().map_err(|e| e.in_module(format!("node {:?} ({})", node.name, node.op_type)))?;
        }
        for &id in &self.outputs {
            self.known(id)?;
            if !given.contains(&id) {
                return Err(malformed(format!("nothing gives the output {:?}", self.name_of(id))));
            }
        }
        Ok(())
    }

    fn known(&self, id: ValueId) -> Result<()> {
        if id.index() < self.values.len() {
            return Ok(());
        }
        Err(malformed(format!("there is no value of id {}", id.0)))
    }

    fn give(&self, given: &mut HashSet<ValueId>, id: ValueId) -> Result<()> {
        self.known(id)?;
        if given.insert(id) {
            return Ok(());
        }
        Err(malformed(format!("the value {:?} is defined twice", self.name_of(id))))
    }
}
