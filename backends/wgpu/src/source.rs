//! Assembly of a shader's text: bindings, parameters, and the library functions that it needs.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use polygrad_core::DType;

/// A kernel's access to an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Reads it.
    Read,
    /// Writes whole words, and possibly reads them.
    Write,
    /// Changes words atomically, concurrently with other threads.
    Atomic,
}

/// Which operands share a buffer. A buffer is bound only once, even for several operands, since WebGPU requires that if
/// one of them is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Slots {
    /// For each operand, its binding.
    of: Vec<u8>,
    /// The access to each binding.
    access: Vec<Access>,
}

impl Slots {
    /// From the operands' buffers.
    pub(crate) fn new(buffers: &[u64], accesses: &[Access]) -> Self {
        let mut seen: Vec<u64> = Vec::with_capacity(buffers.len());
        let mut slots = Self {
            of: Vec::with_capacity(buffers.len()),
            access: Vec::with_capacity(buffers.len()),
        };
        for (&buffer, &access) in buffers.iter().zip(accesses) {
            let at = seen.iter().position(|&other| other == buffer).unwrap_or_else(|| {
                seen.push(buffer);
                slots.access.push(access);
                seen.len() - 1
            });
            slots.access[at] = slots.access[at].max(access);
            slots.of.push(at as u8);
        }
        slots
    }

    /// With a separate buffer for each operand.
    pub(crate) fn distinct(accesses: &[Access]) -> Self {
        let buffers: Vec<_> = (0..accesses.len() as u64).collect();
        Self::new(&buffers, accesses)
    }

    /// The access to each binding.
    pub(crate) fn accesses(&self) -> &[Access] {
        &self.access
    }

    /// The first operand of each binding.
    pub(crate) fn firsts(&self) -> impl Iterator<Item = usize> {
        (0..self.access.len()).map(|slot| {
            let first = self.of.iter().position(|&of| usize::from(of) == slot);
            first.unwrap_or(0)
        })
    }
}

/// The most words of parameters of a kernel.
pub(crate) const PARAMS: usize = 256;

/// The name of a parameter. The first word is always 0, as the library's function `opaque` requires.
pub(crate) fn param(i: usize) -> String {
    let i = i + 1;
    format!("P[{}].{}", i / 4, ["x", "y", "z", "w"][i % 4])
}

/// The shader's type in which elements of a dtype are computed.
pub(crate) fn type_of(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => "f32",
        DType::I32 => "i32",
        DType::I64 => "i64",
        DType::U8 => "u32",
        DType::Bool => "bool",
    }
}

/// A shader that is being assembled.
pub(crate) struct Source<'a> {
    slots: &'a Slots,
    functions: String,
    shared: String,
}

impl<'a> Source<'a> {
    pub(crate) fn new(slots: &'a Slots) -> Self {
        Self {
            slots,
            functions: String::new(),
            shared: String::new(),
        }
    }

    /// The expression for the word at an index of an operand.
    pub(crate) fn word(&self, operand: usize, index: &str) -> String {
        let slot = usize::from(self.slots.of[operand]);
        match self.slots.access[slot] {
            Access::Atomic => format!("atomicLoad(&b{slot}[{index}])"),
            _ => format!("b{slot}[{index}]"),
        }
    }

    /// The call of an atomic function on an operand's word.
    pub(crate) fn atomic(&self, function: &str, operand: usize, index: &str, value: &str) -> String {
        format!("{function}(&b{}[{index}], {value})", self.slots.of[operand])
    }

    /// The statement that writes an operand's word.
    pub(crate) fn set_word(&self, operand: usize, index: &str, value: &str) -> String {
        let slot = usize::from(self.slots.of[operand]);
        match self.slots.access[slot] {
            Access::Atomic => format!("atomicStore(&b{slot}[{index}], {value});"),
            _ => format!("b{slot}[{index}] = {value};"),
        }
    }

    /// Adds a function to the shader.
    pub(crate) fn function(&mut self, text: &str) {
        self.functions.push_str(text);
        self.functions.push('\n');
    }

    /// Adds an array in workgroup memory.
    pub(crate) fn share(&mut self, name: &str, element: &str, len: usize) {
        let _ = writeln!(self.shared, "var<workgroup> {name}: array<{element}, {len}>;");
    }

    /// Defines `name(i)`, which loads an operand's element `i` in the type of computation.
    pub(crate) fn loader(&mut self, name: &str, operand: usize, dtype: DType) {
        let body = match dtype {
            DType::F32 | DType::F64 => format!("return bitcast<f32>({});", self.word(operand, "i")),
            DType::I32 => format!("return bitcast<i32>({});", self.word(operand, "i")),
            DType::I64 => format!(
                "return i64_join({}, {});",
                self.word(operand, "2u * i"),
                self.word(operand, "2u * i + 1u")
            ),
            DType::U8 => format!("return ({} >> (8u * (i & 3u))) & 255u;", self.word(operand, "i >> 2u")),
            DType::Bool => format!(
                "return (({} >> (8u * (i & 3u))) & 255u) != 0u;",
                self.word(operand, "i >> 2u")
            ),
            DType::F16 | DType::BF16 => format!(
                "return {}_load(({} >> (16u * (i & 1u))) & 65535u);",
                dtype.name(),
                self.word(operand, "i >> 1u")
            ),
        };
        let text = format!("fn {name}(i: u32) -> {} {{ {body} }}", type_of(dtype));
        self.function(&text);
    }

    /// Defines `name(i, v)`, which stores element `i` of a dtype of whole words.
    pub(crate) fn storer(&mut self, name: &str, operand: usize, dtype: DType) {
        let body = match dtype {
            DType::I64 => format!(
                "{} {}",
                self.set_word(operand, "2u * i", "i64_low(v)"),
                self.set_word(operand, "2u * i + 1u", "i64_high(v)")
            ),
            _ => self.set_word(operand, "i", "bitcast<u32>(v)"),
        };
        let text = format!("fn {name}(i: u32, v: {}) {{ {body} }}", type_of(dtype));
        self.function(&text);
    }

    /// The complete text with this body of `main`, in which `wg` (the workgroup's number along x and y), `lane` and
    /// `wid.z` are defined.
    pub(crate) fn finish(self, workgroup: u32, body: &str) -> String {
        let mut text = format!(
            "@group(0) @binding(0) var<uniform> P: array<vec4<u32>, {}>;\n",
            PARAMS / 4
        );
        for (slot, access) in self.slots.access.iter().enumerate() {
            let (mode, element) = match access {
                Access::Read => ("read", "u32"),
                Access::Write => ("read_write", "u32"),
                Access::Atomic => ("read_write", "atomic<u32>"),
            };
            let _ = writeln!(
                text,
                "@group(1) @binding({slot}) var<storage, {mode}> b{slot}: array<{element}>;"
            );
        }
        let own = format!(
            "{}{}@compute @workgroup_size({workgroup})\nfn main(@builtin(workgroup_id) wid: vec3<u32>, \
             @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {{\n\
             let wg = wid.x + wid.y * nwg.x;\n{body}}}\n",
            self.shared, self.functions
        );
        text.push_str(&library(&own));
        text.push_str(&own);
        text
    }
}

const LIBRARY: [&str; 6] = [
    include_str!("wgsl/bits.wgsl"),
    include_str!("wgsl/ints.wgsl"),
    include_str!("wgsl/random.wgsl"),
    include_str!("wgsl/math.wgsl"),
    include_str!("wgsl/trig.wgsl"),
    include_str!("wgsl/pow.wgsl"),
];

/// The library functions that a text uses, including those that they use.
fn library(text: &str) -> String {
    let mut parts = Vec::new();
    for file in LIBRARY {
        for part in file.split("\n\n") {
            let start = part.lines().find(|line| !line.starts_with("//")).unwrap_or("");
            let name = start
                .trim_start_matches("fn ")
                .trim_start_matches("struct ")
                .trim_start_matches("var<private> ");
            let name = name.split(['(', ':', ' ']).next().unwrap_or("");
            if !name.is_empty() {
                parts.push((name, part));
            }
        }
    }
    let mut wanted = BTreeSet::new();
    let mut open: Vec<&str> = vec![text];
    while let Some(text) = open.pop() {
        for word in text.split(|c: char| !c.is_alphanumeric() && c != '_') {
            if let Some(i) = parts.iter().position(|(name, _)| *name == word)
                && wanted.insert(i)
            {
                open.push(parts[i].1);
            }
        }
    }
    wanted.into_iter().map(|i| format!("{}\n\n", parts[i].1)).collect()
}
