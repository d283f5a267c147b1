//! Commands that read results: logs, records and folders that the tests make or that are committed.

mod batch_size_tables;
mod broken_input;
mod check;
mod conclusion;
mod diff;
mod export;
mod extract;
mod figures;
mod kv_store_tables;
mod predict;
mod predict_kv_stores;
mod report;
mod score_tables;
