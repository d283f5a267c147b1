//! MXNet's kv-stores: gradients are summed and weights updated in one place, and the weights come back.
//!
//! | module | what it is for |
//! |---|---|
//! | [`server`] | a server process: decides what is due; [`updaters`] sum, update and answer, [`connection`] is a worker's end at it,
//! | | [`held_part`] what it holds, [`server_memory`] what that takes |
//! | [`worker`] | a rank that trains with servers; [`links`] are its connections, which send in [`turns`], [`host_sum`] what its host adds up first,
//! | | [`push_codes`] what goes instead of gradients, [`own_update`] what it does with sums |
//! | [`owners`] | the kv-stores without servers: a rank sums, updates and sends the weights |
//! | [`meeting`] | how they find each other; [`callers`] tells workers from strangers |
//! | [`protocol`] | what they say |
//! | [`plan`] | which server holds which values; pure |
//!
//! Between workers and servers goes TCP, as MXNet's ps-lite does, and not MPI. Open MPI ends every process that has a
//! connection to one that died, and lets one thread at a time call it; here a worker may die and the others go on, and
//! each connection has threads of its own, so that no array waits for another. MPI starts the processes, tells
//! workers where servers listen, and brings the results together.

mod callers;
mod connection;
mod held_part;
mod host_sum;
mod links;
mod meeting;
mod own_update;
pub mod owners;
mod plan;
mod protocol;
mod push_codes;
pub mod server;
mod server_memory;
mod turns;
mod updaters;
pub mod worker;
