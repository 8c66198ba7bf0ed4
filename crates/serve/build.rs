//! Generates the messages and services of gRPC.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let protos = ["proto/inference.proto", "proto/health.proto"];
    for proto in protos {
        println!("cargo::rerun-if-changed={proto}");
    }
    let files = protox::compile(protos, ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    // The tests' clients lie apart from what the library is built of.
    let clients = out.join("client");
    std::fs::create_dir_all(&clients)?;
    for (folder, is_client) in [(out, false), (clients, true)] {
        tonic_prost_build::configure()
            .build_client(is_client)
            .build_server(!is_client)
            .build_transport(false)
            .bytes(".")
            .btree_map(".")
            .out_dir(folder)
            .compile_fds(files.clone())?;
    }
    Ok(())
}
