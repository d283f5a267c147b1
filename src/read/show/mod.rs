//! Presentation of figures: terminal text, Markdown, CSV, JSON and pages.
//!
//! | module | contents |
//! |---|---|
//! | [`text`] | headings, tables, notes and warnings, for a terminal or in Markdown |
//! | [`numbers`] | number formats |
//! | [`batch_sizes`] | table cells of figures by batch size |
//! | [`utilization`] | arithmetic rate of a network relative to its devices |
//! | [`economy`] | table cells of power, energy and cost |
//! | [`checkpoints`] | cost of checkpoints |
//! | [`work_load`] | effect of uneven batch sizes per rank |
//! | [`published`] | figures published by others |
//! | [`training`], [`score`] | columns, tables and files of training and scoring |
//! | [`columns`] | figures of a case as columns of tables and CSV |
//! | [`export`] | figures of a folder in the formats of other programs |
//! | [`check`] | checks of a result |
//! | [`comparison`] | comparison of two results |
//! | [`prediction`] | predictions of larger cases |
//! | [`page`] | reports: pages with charts, text and JSON |

// Only this package uses these items, and the names of most fields of charts and documents need no explanation.
#![allow(missing_docs)]

pub mod batch_sizes;
pub mod check;
pub mod checkpoints;
pub mod columns;
pub mod comparison;
pub mod economy;
pub mod export;
pub mod numbers;
pub mod page;
pub mod prediction;
pub mod published;
pub mod score;
pub mod text;
pub mod training;
pub mod utilization;
pub mod weight_waits;
pub mod work_load;
