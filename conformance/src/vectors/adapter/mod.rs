//! PyTorch's functions, layers and optimizers by name, in terms of Polygrad's.

mod elementwise;
mod functional;
mod index;
mod language;
mod layer;
mod loss;
mod model;
mod movement;
mod optimizer;
mod recurrent;
mod reduce;
mod transformer;
mod window;

use polygrad_tensor::Backend;

use crate::vectors::call::{Call, CaseError, CaseOutputs, unsupported};

/// The library's answer to a case.
pub(crate) fn answer<B: Backend>(call: &Call<'_, B>) -> CaseOutputs<B> {
    let families = [
        elementwise::answer,
        reduce::answer,
        movement::answer,
        index::answer,
        window::answer,
        loss::answer,
        functional::answer,
        layer::answer,
        model::answer,
        recurrent::answer,
        transformer::answer,
        language::answer,
        optimizer::answer,
    ];
    for family in families {
        match family(call) {
            Err(CaseError::OtherFamily) => {}
            Ok(answer) => {
                let unread = call.unread();
                if unread.is_empty() {
                    return Ok(answer);
                }
                return unsupported(format!("the adapter does not know the arguments {unread:?}"));
            }
            stop => return stop,
        }
    }
    unsupported(format!("the adapter does not know {}", call.op()))
}
