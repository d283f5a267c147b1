//! MXNet's kv-stores: servers or owning ranks sum the gradients, update the weights and send them back.
//!
//! | module | content |
//! |---|---|
//! | [`server`] | a server process: its shards of the weights, a thread for each connection, update threads |
//! | [`client`] | a rank that trains with servers: its connections, aggregation on its host, compression |
//! | [`sharded`] | kv-stores without servers: the owner of a part sums, updates and sends the weights |
//! | [`rendezvous`] | exchange of addresses and connections; [`accept`] rejects connections that are not workers' |
//! | [`protocol`] | frames on the wire; [`formats`] of the arrays in them |
//! | [`plan`] | assignment of values to servers; pure |
//!
//! Workers and servers communicate by TCP, like MXNet's ps-lite, and not by MPI: Open MPI ends every process that is
//! connected to a failed one, and serves one thread at a time. With TCP the other workers continue when one fails, and
//! each connection has its own threads, so that no array waits for another. MPI starts the processes, distributes the
//! servers' addresses and gathers the results.

mod accept;
pub mod client;
mod formats;
mod plan;
mod protocol;
mod rendezvous;
pub mod server;
pub mod sharded;
