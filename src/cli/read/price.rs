//! `--price`, for every command that prints costs.

use clap::Args;

use crate::read::analyze::training::cost::Price;

/// Option for the price of a GPU or a host.
#[derive(Debug, Args)]
pub struct PriceOption {
    /// Add the cost of an epoch of ImageNet, or of 1e9 tokens, such as '$2.49/gpu-hour' or 20/host-hour
    ///
    /// Adds the cost at the speed of each case: AMOUNT/gpu-hour or AMOUNT/host-hour. extract and report also print that of
    /// 90 epochs.
    #[arg(long, value_name = "PRICE")]
    pub price: Option<Price>,
}
