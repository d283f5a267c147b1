//! Figures as a reader wants them: text for a terminal, Markdown, CSV, JSON, pages. Not for working anything out.
//!
//! | module | what it is for |
//! |---|---|
//! | [`table`] | tables, aligned for a terminal or in Markdown |
//! | [`text`] | headings, tables, notes and warnings, for a terminal or in Markdown |
//! | [`numbers`] | formats of numbers |
//! | [`batch_sizes`] | figures by batch size as the cells of a table |
//! | [`utilisation`] | what a network's arithmetic takes of the devices |
//! | [`economy`] | power, energy and money as the cells of a table |
//! | [`work_load`] | what the division of the batch among ranks cost |
//! | [`extraction`] | the figures of a folder |
//! | [`score`] | tables of a scoring sweep |
//! | [`export`] | the figures of a folder in the formats of other programs |
//! | [`check`] | the checks of a result |
//! | [`comparison`] | a comparison of two results |
//! | [`prediction`] | a prediction of larger cases |
//! | [`once`] | warnings of several points, each once |
//! | [`page`] | a report: charts on a page, the same as text, and its figures for programs |

pub mod batch_sizes;
pub mod check;
pub mod comparison;
pub mod economy;
pub mod export;
pub mod extraction;
pub mod numbers;
pub mod once;
pub mod page;
pub mod prediction;
pub mod score;
pub mod table;
pub mod text;
pub mod utilisation;
pub mod work_load;
