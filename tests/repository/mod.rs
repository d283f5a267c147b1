//! The repository itself: sources, documents, schemas, scripts.

mod architecture;
mod documents;
mod language;
mod migration_hints;
mod schema;
mod scripts;
mod setup;
