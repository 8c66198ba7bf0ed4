//! Fused ops spelled out in core ops.
//!
//! Each function is the default of the [`Backend`](crate::Backend) method of the same name, and its meaning: a backend's own kernel must give the
//! same values. Since they are written over any `Backend`, they also serve where a fused op has to be differentiated again.

mod activation;
mod attention;
mod basic;
mod conv;
mod inference;
mod norm;
mod optim;
mod recurrent;
mod softmax;
mod steps;
mod wide;

pub use activation::{activation, activation_backward};
pub use attention::{attention, attention_backward, attention_weights};
pub use basic::{
    binary_scalar, compare_scalar, embedding, embedding_backward, index_add, linear, linear_weight_grad, sum_to,
};
pub use conv::{avg_pool_backward, conv_input_grad, conv_weight_grad, max_pool_backward};
pub use inference::{conv_activation, linear_activation};
pub use norm::{
    batch_norm, batch_norm_backward, batch_norm_running, layer_norm, layer_norm_backward, rms_norm, rms_norm_backward,
};
pub use optim::{adam_step, sgd_step};
pub use recurrent::{gru, gru_cell, lstm, lstm_cell, rnn};
pub use softmax::{
    cross_entropy, cross_entropy_backward, cross_entropy_mean, cross_entropy_mean_backward, log_softmax,
    log_softmax_backward, softmax, softmax_backward,
};
pub use steps::{lstm_steps, lstm_steps_backward};
