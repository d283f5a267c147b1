//! The repository itself: sources, documents, schemas, scripts.

mod architecture;
mod documents;
mod habits;
mod language;
mod schema;
mod setup;
