//! Compiler messages for common mistakes: the files of `tests/messages` must not compile, and the messages must contain
//! the phrases quoted in their first lines.
//!
//! Only phrases are compared, unlike `trybuild`'s whole messages: those change with the compiler, and the tests have to
//! pass with any version from the MSRV on.

use std::path::Path;
use std::process::Command;

const SAYS: &str = "// Says: ";

#[test]
fn messages_say_what_to_write() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let bins = folder.path().join("src/bin");
    std::fs::create_dir_all(&bins).unwrap();
    // Without backends, and only checked, so that little is compiled.
    let manifest = format!(
        "[package]\nname = \"messages\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
         polygrad = {{ path = {root:?}, default-features = false }}\n\
         polygrad-reference = {{ path = {:?} }}\n",
        root.join("../reference")
    );
    std::fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    std::fs::copy(root.join("../../Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root.join("tests/messages")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, bins.join(path.file_name().unwrap())).unwrap();
        files.push(path);
    }
    let checked = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--bins", "--keep-going", "--quiet"])
        .arg("--message-format=json")
        .current_dir(&folder)
        .env(
            "CARGO_TARGET_DIR",
            Path::new(env!("CARGO_TARGET_TMPDIR")).join("messages"),
        )
        .output()
        .unwrap();
    let messages: Vec<serde_json::Value> = String::from_utf8_lossy(&checked.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let mut wrong = Vec::new();
    for path in &files {
        let name = path.file_stem().unwrap().to_string_lossy();
        let said: String = messages
            .iter()
            .filter(|message| message["target"]["name"] == *name && message["message"]["level"] == "error")
            .filter_map(|message| message["message"]["rendered"].as_str())
            .collect();
        let source = std::fs::read_to_string(path).unwrap();
        let phrases: Vec<_> = source.lines().filter_map(|line| line.strip_prefix(SAYS)).collect();
        assert!(!phrases.is_empty(), "{name} quotes nothing");
        wrong.extend(
            phrases
                .iter()
                .filter(|phrase| !said.contains(**phrase))
                .map(|phrase| format!("{name} does not say {phrase:?}, but:\n{said}")),
        );
    }
    assert!(
        wrong.is_empty(),
        "{}\n{}",
        wrong.join("\n"),
        String::from_utf8_lossy(&checked.stderr)
    );
}
