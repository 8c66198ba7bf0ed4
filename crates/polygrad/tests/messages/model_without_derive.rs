// Says: `Net` is no module on the backend
// Says: put #[derive(Module)] on it

use polygrad::nn::{Checkpoint, Linear};
use polygrad::{optim::Adam, prelude::*};

struct Net {
    fc: Linear,
}

fn checkpoint(net: &Net, optimizer: &Adam) -> Result<Checkpoint> {
    Checkpoint::new(net, optimizer, 1)
}

fn main() {}
