//! Stub libraries in place of CUDA's, which PyTorch's own libraries link to, but never call on a CPU.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The library that needs CUDA's libraries.
const ASKS: &str = "libtorch_python.so";

/// The libraries that are kept, and define the other symbols.
const KEPT: [&str; 6] = [
    "libtorch_cpu.so",
    "libc10.so",
    "libc10_cuda.so",
    "libshm.so",
    "libcudart.so.13",
    "libcupti.so.13",
];

/// The libraries that are replaced: the CUDA part of PyTorch, which gets all symbols without a version, and libraries
/// of packages that are not installed.
const STUBS: [&str; 4] = ["libtorch_cuda.so", "libcudnn.so.9", "libcufile.so.0", "libnccl.so.2"];

/// Symbols of Python, which the program provides, and of the C++ library: members of `std`, `new` and `delete`.
const ELSEWHERE: [&str; 9] = ["Py", "_Py", "_ZNSt", "_ZNKSt", "_ZSt", "_Zda", "_Zdl", "_Zna", "_Znw"];

/// Minimal definitions of symbols that are used when PyTorch is loaded: a reference to a pointer, which is set there,
/// and a zero object with its vtable, which is only destroyed at the end.
const CALLED: [(&str, &str); 2] = [
    (
        "_ZN4c10d15get_gil_checkerEv",
        "lea 1f(%rip), %rax\nret\n.data\n.balign 8\n1: .quad 0\n",
    ),
    (
        "_ZN4c10d16ProcessGroupNCCL7OptionsC1Eb",
        "push %rbx\nmov %rdi, %rbx\ncall malloc_usable_size@PLT\nmov %rax, %rcx\nmov %rbx, %rdi\nxor %eax, %eax\nrep stosb\n\
         mov _ZTVN4c10d16ProcessGroupNCCL7OptionsE@GOTPCREL(%rip), %rax\nadd $16, %rax\nmov %rax, (%rbx)\npop %rbx\nret\n",
    ),
];

/// Writes the stubs to PyTorch's library folder.
///
/// # Errors
/// Without a C compiler and its `nm`, or if a file cannot be written.
pub(super) fn write(lib: &Path) -> Result<(), String> {
    let defined: BTreeSet<String> = symbols(lib, "--defined-only", &KEPT)?.into_iter().collect();
    let wanted = symbols(lib, "--undefined-only", &[ASKS])?;
    let mut missing: BTreeMap<&str, Vec<&str>> = STUBS.iter().map(|stub| (*stub, Vec::new())).collect();
    for symbol in &wanted {
        let (name, version) = symbol.split_once('@').unwrap_or((symbol, STUBS[0]));
        // Most symbols of the system's libraries have versions, and so are in none of the stubs.
        let elsewhere = ELSEWHERE.iter().any(|start| name.starts_with(start));
        if let Some(symbols) = missing.get_mut(version)
            && !elsewhere
            && !defined.contains(name)
        {
            symbols.push(name);
        }
    }
    for (stub, symbols) in missing {
        library(lib, stub, &symbols)?;
    }
    Ok(())
}

/// The names in libraries' dynamic symbol tables, each with `@` and the version if it has one.
fn symbols(lib: &Path, which: &str, names: &[&str]) -> Result<Vec<String>, String> {
    let output = Command::new("nm")
        .args(["--dynamic", "--format=posix", which])
        .args(names)
        .current_dir(lib)
        .output();
    let output = output.map_err(|e| format!("nm cannot be started: {e}\n  fix: apt-get install binutils"))?;
    if !output.status.success() {
        return Err(format!("nm {which}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let strong = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(' ')?;
        // An undefined weak symbol is no error.
        (!rest.starts_with(['w', 'v'])).then(|| name.to_owned())
    });
    Ok(match which {
        "--defined-only" => strong
            .map(|name| name.split('@').next().unwrap_or_default().to_owned())
            .collect(),
        _ => strong.collect(),
    })
}

/// One library: functions that abort the program, tables of zeros, and types with their names, by which PyTorch's
/// bindings distinguish them.
fn library(lib: &Path, soname: &str, symbols: &[&str]) -> Result<(), String> {
    let source = source(symbols);
    let files = [("stub.s", source), ("stub.map", format!("{soname} {{ *; }};\n"))];
    for (name, text) in &files {
        fs::write(lib.join(name), text).map_err(|e| format!("cannot write {}: {e}", lib.join(name).display()))?;
    }
    let mut line = format!("-shared -nostartfiles -o {soname} -Wl,-soname,{soname} stub.s -Wl,--allow-shlib-undefined");
    if soname != STUBS[0] {
        line += " -Wl,--version-script=stub.map";
    }
    let output = Command::new("cc").args(line.split(' ')).current_dir(lib).output();
    let output = output.map_err(|e| format!("cc cannot be started: {e}\n  fix: apt-get install gcc"))?;
    if !output.status.success() {
        return Err(format!("cc {line}\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    for (name, _) in &files {
        fs::remove_file(lib.join(name)).map_err(|e| format!("cannot delete {}: {e}", lib.join(name).display()))?;
    }
    Ok(())
}

fn source(symbols: &[&str]) -> String {
    let mut text = String::from(".section .note.GNU-stack,\"\",@progbits\n");
    for symbol in symbols {
        let called = CALLED.iter().find(|(name, _)| name == symbol);
        let content = match (symbol.get(..4), called) {
            (_, Some((_, body))) => format!(".text\n.type {symbol},@function\n{symbol}: {body}"),
            (Some("_ZTI"), _) => format!(
                ".data\n.balign 8\n.type {symbol},@object\n{symbol}: .quad _ZTVN10__cxxabiv117__class_type_infoE+16, 1f\n1: .asciz \"{}\"\n",
                &symbol[4..]
            ),
            (Some("_ZTV"), _) => format!(".data\n.balign 8\n.type {symbol},@object\n{symbol}: .zero 1024\n"),
            _ => format!(".text\n.type {symbol},@function\n{symbol}: ud2\n"),
        };
        // Writing to a string cannot fail.
        let _ = write!(text, ".globl {symbol}\n{content}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::source;

    #[test]
    fn types_have_their_names() {
        let text = source(&["_ZN1a1bEv", "_ZTIN1a1cE"]);
        assert!(
            text.contains("_ZN1a1bEv: ud2") && text.contains(".asciz \"N1a1cE\""),
            "{text}"
        );
    }
}
