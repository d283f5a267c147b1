//! Commands that read results: logs, records and folders that the tests make or that are committed.

mod batch_size_tables;
mod broken_input;
mod check;
mod conclusion;
mod diff;
mod diff_other_programs;
mod diff_statistics;
mod export;
mod extract;
mod extract_excluded;
mod extract_other_tools;
mod extract_unreliable;
mod figures;
mod fleet;
mod goodput;
mod predict;
mod predict_shards;
mod predict_strategies;
mod report;
mod report_page;
mod score_tables;
mod strategy_tables;
