//! The page at `/`, tested by a script in Chromium.

use std::process::Command;
use std::sync::Arc;

use crate::support::{Function, accumulate, identity, shifted, signature, spec};
use polygrad_core::{HostTensor, Result, Shape};
use polygrad_onnx::graph::ElementType;
use polygrad_serve::{Model, Pool, Repository, Server, ServerOptions, Settings, Value};
use tokio::net::TcpListener;

const SIDE: usize = 28;
const BANDS: usize = 10;

/// A model that computes the mean of each band of an image.
fn picture() -> Arc<dyn Model> {
    let input = spec("image", ElementType::F32, &["batch", "1", "28", "28"]);
    let output = spec("bands", ElementType::F32, &["batch", "10"]);
    let run = |inputs: &[Value]| {
        let values = inputs[0].tensor()?.host().to_vec::<f32>()?;
        let (mut sums, mut counts) = ([0f32; BANDS], [0f32; BANDS]);
        for (i, value) in values.iter().enumerate() {
            let band = i / SIDE * BANDS / SIDE;
            sums[band] += value;
            counts[band] += 1.0;
        }
        let means = sums.iter().zip(counts).map(|(sum, count)| sum / count).collect();
        Ok(vec![HostTensor::new(Shape::new(&[1, BANDS])?, means)?.into()])
    };
    let mut signature = signature(vec![input], vec![output]);
    // One image at a time.
    signature.inputs[0].batch = None;
    Arc::new(Function { signature, run })
}

/// A model that doubles each number.
fn row() -> Arc<dyn Model> {
    let spec = |name: &str| spec(name, ElementType::F32, &["batch", "4"]);
    let run = |inputs: &[Value]| {
        let host = inputs[0].tensor()?.host();
        let doubled = host.to_vec::<f32>()?.iter().map(|v| v * 2.0).collect();
        Ok(vec![HostTensor::new(*host.shape(), doubled)?.into()])
    };
    Arc::new(Function {
        signature: signature(vec![spec("x")], vec![spec("y")]),
        run,
    })
}

fn repository() -> Result<Repository> {
    let repository = Repository::new(Pool::new(1)?);
    repository.add("picture", 1, || Ok(picture()), Settings::default())?;
    repository.add("row", 1, || Ok(row()), Settings::default())?;
    repository.add("text", 1, || Ok(identity(ElementType::String)), Settings::default())?;
    repository.add("accumulate", 1, || Ok(accumulate()), Settings::default())?;
    repository.add("shifted", 1, || Ok(shifted()), Settings::default())?;
    for (name, ..) in repository.index() {
        repository.load(&name).unwrap();
    }
    Ok(repository)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_works_in_chromium() {
    if std::env::var_os("POLYGRAD_CHROMIUM").is_none() {
        return eprintln!("skipped: `cargo xtask test` says where Chromium is, or that there is none");
    }
    let router = Server::new(repository().unwrap(), ServerOptions::default()).router();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/serve/page.py");
    let run = move || Command::new("python3").arg(script).arg(url).output();
    let output = tokio::task::spawn_blocking(run).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{wrong}");
}
