//! Report on one or more results: a page with charts, and text.
//!
//! | module | contents |
//! |---|---|
//! | [`content`] | blocks and sections from the results |
//! | [`document`] | structure of a report, independent of the output format |
//! | [`charts`] | charts as data and as SVG |
//! | [`layout`] | arrangement of blocks in two columns |
//! | [`html`] | self-contained HTML page |
//! | [`svg`] | self-contained SVG picture |
//! | [`text`] | Markdown, and tables for a terminal |

pub mod charts;
pub mod content;
pub mod document;
pub mod html;
pub mod layout;
pub mod svg;
pub mod text;
