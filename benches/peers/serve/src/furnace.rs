//! An identity model in furnace-server, as in its documentation.

use ::furnace::{HostTensor, IoSpec, Model, Server, TensorModel};

use crate::Error;
use crate::arguments::Serve;

#[derive(Debug)]
struct Identity {
    width: usize,
}

impl TensorModel for Identity {
    fn name(&self) -> &str {
        "identity_fp32"
    }

    fn backend(&self) -> &str {
        "cpu"
    }

    fn inputs(&self) -> Vec<IoSpec> {
        vec![IoSpec::fp32("x", &[self.width])]
    }

    fn outputs(&self) -> Vec<IoSpec> {
        vec![IoSpec::fp32("y", &[self.width])]
    }

    fn run(&self, inputs: Vec<HostTensor>) -> ::furnace::Result<Vec<HostTensor>> {
        Ok(inputs)
    }
}

pub async fn serve(asked: Serve) -> Result<(), Error> {
    let model = Model::custom(Identity { width: asked.width });
    let server = Server::new().host("127.0.0.1").port(asked.port).model(model);
    Ok(server.serve().await?)
}
