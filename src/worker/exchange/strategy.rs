//! Creates the requested exchange strategy.

use anyhow::Result;
use ringmark_core::dimension::Strategy;

use crate::exchange::all_reduce::AllReduce;
use crate::exchange::kv_store::client::ServerClient;
use crate::exchange::kv_store::sharded::Sharded;
use crate::exchange::request::ExchangeRequest;
use crate::exchange::shards::Shards;
use crate::exchange::{GradientExchange, Parameters};
use crate::job::session::Session;

/// Returns the requested strategy, hooked into backward of `parameters`. All ranks call this together.
pub fn new(request: &ExchangeRequest, parameters: Parameters, session: &Session) -> Result<Box<dyn GradientExchange>> {
    let strategy = request.strategy.strategy;
    Ok(match strategy {
        Strategy::AllReduce => Box::new(AllReduce::new(request, parameters, session)?),
        _ if strategy.shards_gradients() => Box::new(Shards::new(request, parameters, session)?),
        _ if strategy.has_servers() => Box::new(ServerClient::new(request, parameters, session)?),
        _ => Box::new(Sharded::new(request, parameters, session)?),
    })
}
