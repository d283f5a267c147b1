//! Which strategy exchanges: what was asked for.

use anyhow::Result;
use ringmark_record::benchmark::kv_store::KvStore;
use ringmark_record::benchmark::train::config::TrainConfig;

use crate::exchange::all_reduce::AllReduce;
use crate::exchange::kv_store::owners::Owners;
use crate::exchange::kv_store::worker::WithServers;
use crate::exchange::{GradientExchange, Parameters};
use crate::job::session::Session;

/// The strategy that `config` asks for, hooked into backward of `parameters`; all ranks call it together.
pub fn new(config: &TrainConfig, parameters: Parameters, session: &Session) -> Result<Box<dyn GradientExchange>> {
    let kv_store = config.kv_store.kv_store;
    Ok(match kv_store {
        KvStore::Ring => Box::new(AllReduce::new(config, parameters, session)?),
        _ if kv_store.has_servers() => Box::new(WithServers::new(config, parameters, session)?),
        _ => Box::new(Owners::new(config, parameters, session)?),
    })
}
