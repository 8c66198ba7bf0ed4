//! Recurrent layers and their cells: RNN, LSTM, GRU as one mechanism with three kinds of step, and MinGRU.

mod cell;
mod config;
mod lengths;
mod min_gru;
mod recurrence;
mod scan;
mod stack;
mod state;
mod weights;

pub use cell::{
    GRUCell, GRUCellConfig, LSTMCell, LSTMCellConfig, RNNCell, RNNCellConfig, RecurrentCell, RecurrentCellConfig,
};
pub use config::{GRUConfig, LSTMConfig, RNNConfig, RecurrentConfig};
pub use min_gru::{MinGRU, MinGRUConfig};
pub use recurrence::{GruGates, LstmGates, Nonlinearity, Recurrence};
pub use stack::{GRU, LSTM, RNN, Recurrent};
pub use state::RecurrentState;
pub use weights::RecurrentWeights;
